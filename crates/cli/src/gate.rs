//! `ringfence gate`: the front door in front of one or several backends.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use ringfence_gate::limits::SPOOL_BYTES_DEFAULT;
use ringfence_gate::{Gate, GateConfig, Pace, Policy, TlsConfig, UsageConfig};
use ringfence_tls::{ClientTls, ServerTls};
use tokio::signal::unix::{SignalKind, signal};

use crate::client_commands::{print, text};
use crate::failure::{self, Failure, Kind};
use crate::limits::{RUNTIME_END_MAX, SECONDS_MAX};

/// Below the options of `gate --help`.
const AFTER: &str = "\
A key for session ids: `head -c 32 /dev/urandom | basenc --base64url | tr -d = > id-keys && chmod 600 id-keys`. Every \
gate of a deployment has the same file. The grants, the headers and the usage records are in docs/grant.md and \
docs/gate.md.

Example: ringfence gate --listen 0.0.0.0:8081 --issuer https://control.example --audience https://gate.example \
--keys http://127.0.0.1:8090/.well-known/jwks.json --id-keys-file id-keys --backend b1=http://10.0.0.1:8080

Exit status: 0 after a shutdown that was asked for, 1 the gate failed, 2 the configuration is wrong.";

/// The command line.
pub(crate) fn command() -> Command {
    let value = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let file = |name, help| value(name, "FILE", help).value_parser(value_parser!(PathBuf));
    let number = |name, shown, default, help| {
        value(name, shown, help).default_value(default).value_parser(value_parser!(u64).range(0..=SECONDS_MAX))
    };
    let seconds = |name, default, help| number(name, "SECONDS", default, help);
    Command::new("gate")
        .about("The front door: checks grants, routes to backends by session, meters")
        .after_help(AFTER)
        .arg(
            value("listen", "ADDRESS:PORT", "Where to listen; port 0 takes a free one").default_value("127.0.0.1:8081"),
        )
        .arg(value(
            "metrics-listen",
            "ADDRESS:PORT",
            "Where `GET /metrics` is answered, to whoever reaches it [default: nowhere]",
        ))
        .arg(value("issuer", "TEXT", "The control plane whose grants are accepted (`iss`)").required(true))
        .arg(value("audience", "TEXT", "What this gate is called in grants (`aud`)").required(true))
        .arg(
            value("keys", "FILE|URL", "The control plane's key set (JWKS); an http[s]:// URL is refreshed")
                .required(true),
        )
        .arg(seconds("keys-refresh", "60", "How often the key set is read again"))
        .arg(file("id-keys-file", "The keys that seal session ids (mode 0600)").required(true))
        .arg(
            value("backend", "NAME=URL", "A backend; dns+http://... is every address of its host. Repeatable")
                .action(ArgAction::Append),
        )
        .arg(file("backends-file", "More backends, one `NAME URL [draining]` a line; read again when it changes"))
        .arg(file("backend-token-file", "The secret that proves this gate to the backends (mode 0600)"))
        .args(tls_args(file))
        .arg(seconds("skew", "30", "How far the control plane's clock may differ, at most 60"))
        .arg(seconds("timeout-default", "30", "The timeout of a call that names none, where its grant has a ceiling"))
        .arg(seconds("idle-timeout-default", "300", "The same for a lease's idle timeout"))
        .arg(seconds("lifetime-default", "3600", "The same for a lease's lifetime"))
        .arg(seconds("call-headroom", "60", "How long beyond its timeout a call is waited for"))
        .arg(seconds("shutdown-grace", "60", "How long running operations may go on after SIGTERM"))
        .arg(
            value("usage-spool", "FOLDER", "Where usage is kept until it is shipped; this gate's own")
                .requires("usage-url")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(value("usage-url", "URL", "Where usage is posted").requires("usage-spool"))
        .arg(file("usage-token-file", "The bearer token for it (mode 0600)").requires("usage-url"))
        .arg(
            value(
                "usage-bytes-max",
                "BYTES",
                "The largest spool; when it is full, leases and calls are refused [default: 268435456]",
            )
            .requires("usage-url")
            .value_parser(value_parser!(u64).range(1 << 16..)),
        )
        .arg(value("name", "TEXT", "What this gate calls itself in usage batches").default_value("gate"))
        .arg(
            value("log-level", "LEVEL", "error, warn, info, debug or trace; to standard error")
                .default_value("info")
                .value_parser(["error", "warn", "info", "debug", "trace"]),
        )
        .arg(
            value("log-format", "FORMAT", "How log lines are written")
                .default_value("text")
                .value_parser(["text", "json"]),
        )
}

/// TLS, each way.
fn tls_args(file: impl Fn(&'static str, &'static str) -> Arg) -> Vec<Arg> {
    vec![
        file("tls-cert", "Speak TLS to clients: the certificate chain, in PEM").requires("tls-key"),
        file("tls-key", "Its private key, in PEM (mode 0600)").requires("tls-cert"),
        file("tls-client-ca", "Let in only clients with a certificate of these authorities").requires("tls-cert"),
        file("backend-ca", "The authorities of backends with https:// URLs"),
        file("backend-client-cert", "What the gate shows to them, in PEM")
            .requires("backend-client-key")
            .requires("backend-ca"),
        file("backend-client-key", "Its private key, in PEM (mode 0600)").requires("backend-client-cert"),
        Arg::new("backend-tls-name")
            .long("backend-tls-name")
            .value_name("NAME")
            .help("What every backend's certificate is for, in place of the host of its URL")
            .requires("backend-ca"),
        file("control-ca", "The authorities of the control plane, where the key set or usage has an https:// URL"),
    ]
}

/// Serves until it is told to end.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    failure::ended(serve(matches).map(|()| ExitCode::SUCCESS))
}

fn serve(matches: &ArgMatches) -> Result<(), Failure> {
    observe(matches);
    crate::serve::raise_descriptors();
    let config = config(matches).map_err(Failure::of(Kind::Configuration))?;
    let address = text(matches, "listen");
    let listener = TcpListener::bind(&address).with_context(|| format!("cannot listen on {address}"));
    let listener = listener.map_err(Failure::of(Kind::Serving))?;
    // Connections are carried by threads of the gate's own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime").map_err(Failure::of(Kind::Serving))?;
    let metrics = matches
        .get_one::<String>("metrics-listen")
        .map(|address| TcpListener::bind(address).with_context(|| format!("cannot listen on {address}")));
    let metrics = metrics.transpose().map_err(Failure::of(Kind::Serving))?;
    let ended = runtime.block_on(until_told(config, listener, metrics));
    runtime.shutdown_timeout(RUNTIME_END_MAX);
    ended
}

async fn until_told(config: GateConfig, listener: TcpListener, metrics: Option<TcpListener>) -> Result<(), Failure> {
    let listen = |kind| signal(kind).context("cannot listen to signals").map_err(Failure::of(Kind::Serving));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let facts = facts(&config, &listener)?;
    let mut gate = Gate::start(config).map_err(Failure::of(Kind::Configuration))?;
    if let Some(metrics) = metrics {
        gate.serve_metrics(metrics);
    }
    print(facts);
    let (told, stop) = tokio::sync::oneshot::channel::<()>();
    let mut serving = std::pin::pin!(gate.serve(listener, async { drop(stop.await) }));
    tokio::select! {
        ended = &mut serving => return ended.map_err(Failure::of(Kind::Serving)),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("shutting down: no more connections; what runs may go on");
    drop(told);
    tokio::select! {
        ended = &mut serving => ended.map_err(Failure::of(Kind::Serving)),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

/// What a person wants to know of a gate that is up.
fn facts(config: &GateConfig, listener: &TcpListener) -> Result<String, Failure> {
    let address = listener.local_addr().context("the listening socket has no address");
    let address = address.map_err(Failure::of(Kind::Serving))?;
    let shows = config.tls.backends.as_ref().is_some_and(ClientTls::shows_identity);
    let proof = match (&config.backend_token_file, shows) {
        (Some(_), _) | (None, true) => "with proof",
        (None, false) => "WITHOUT proof: whoever reaches them can name any workspace",
    };
    let usage = match &config.usage {
        Some(usage) => format!("to {}", usage.url),
        None => "not recorded".to_owned(),
    };
    let scheme = if config.tls.listener.is_some() { "https" } else { "http" };
    Ok(format!("ringfence gate listens on {scheme}://{address}\n  backends  {proof}\n  usage     {usage}\n"))
}

/// TLS, each way.
fn tls(matches: &ArgMatches) -> anyhow::Result<TlsConfig> {
    let path = |name| matches.get_one::<PathBuf>(name).map(PathBuf::as_path);
    let identity = |certificate, key| path(certificate).zip(path(key));
    let listener = identity("tls-cert", "tls-key")
        .map(|(certificate, key)| ServerTls::read(certificate, key, path("tls-client-ca")))
        .transpose()?;
    let shown = identity("backend-client-cert", "backend-client-key");
    let name = matches.get_one::<String>("backend-tls-name").map(String::as_str);
    let backends = path("backend-ca").map(|ca| ClientTls::read(ca, shown, name)).transpose()?;
    let control = path("control-ca").map(|ca| ClientTls::read(ca, None, None)).transpose()?;
    Ok(TlsConfig { listener, backends, control })
}

fn config(matches: &ArgMatches) -> anyhow::Result<GateConfig> {
    let path = |name| matches.get_one::<PathBuf>(name).cloned();
    let seconds = |name| matches.get_one::<u64>(name).copied().unwrap_or_default();
    let usage = path("usage-spool").map(|spool| UsageConfig {
        token_file: path("usage-token-file"),
        gate: text(matches, "name"),
        spool_bytes_max: matches.get_one("usage-bytes-max").copied().unwrap_or(SPOOL_BYTES_DEFAULT),
        ..UsageConfig::new(spool, text(matches, "usage-url"))
    });
    Ok(GateConfig {
        issuer: text(matches, "issuer"),
        audience: text(matches, "audience"),
        skew_seconds: seconds("skew"),
        keys: text(matches, "keys"),
        // It is required.
        id_keys_file: path("id-keys-file").unwrap_or_default(),
        backends: matches.get_many::<String>("backend").unwrap_or_default().cloned().collect(),
        backends_file: path("backends-file"),
        backend_token_file: path("backend-token-file"),
        tls: tls(matches)?,
        usage,
        policy: Policy {
            timeout_seconds_default: seconds("timeout-default"),
            idle_timeout_seconds_default: seconds("idle-timeout-default"),
            max_lifetime_seconds_default: seconds("lifetime-default"),
            call_headroom: Duration::from_secs(seconds("call-headroom")),
            drain: Duration::from_secs(seconds("shutdown-grace")),
        },
        pace: Pace { keys_every: Duration::from_secs(seconds("keys-refresh").max(1)), ..Pace::default() },
        clock: None,
    })
}

/// Logs go to standard error, for whoever supervises us.
pub(crate) fn observe(matches: &ArgMatches) {
    // The command line takes no other level.
    let level = text(matches, "log-level").parse().unwrap_or(tracing::Level::INFO);
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    let builder = builder.with_ansi(crate::progress::decorated());
    if text(matches, "log-format") == "json" { builder.json().init() } else { builder.with_target(false).init() }
}
