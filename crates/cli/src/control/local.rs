//! The commands that work on the control plane's own folder and database.

use std::fs::DirBuilder;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use ringfence_control::limits::{
    AUDIT_KEEP_DAYS_MIN, GRANT_SECONDS_DEFAULT, KEEP_DAYS_MAX, KEY_LEAD_SECONDS_DEFAULT, USAGE_KEEP_DAYS_MIN,
};
use ringfence_control::{Config, Control, DatabaseUrl, Keep};
use ringfence_tls::ServerTls;
use tokio::signal::unix::{SignalKind, signal};

use crate::client_commands::{block_on, print, text};
use crate::failure::{self, Failure, Kind};
use crate::limits::{RUNTIME_END_MAX, SECONDS_MAX};

/// The database's URL, for those who get their secrets by variables.
pub(super) const DATABASE_VARIABLE: &str = "RINGFENCE_DATABASE_URL";

/// Below the options of `control serve --help`.
const SERVE_AFTER: &str = "\
The database is control.db in the folder, unless --database-url-file or the variable RINGFENCE_DATABASE_URL names \
another: sqlite:PATH or postgres://USER:PASSWORD@HOST/NAME. A URL is never an argument, since arguments are seen by \
others.

Exit status: 0 after a shutdown that was asked for, 1 the control plane failed, 2 the configuration is wrong.";

fn value(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn place(command: Command) -> Command {
    let path = |arg: Arg| arg.value_parser(value_parser!(PathBuf));
    command
        .arg(path(
            value("folder", "FOLDER", "The control plane's folder: admin-token, keys, control.db").required(true),
        ))
        .arg(path(value("database-url-file", "FILE", "A file with the database's URL (mode 0600)")))
}

fn names(command: Command) -> Command {
    command.arg(value("issuer", "TEXT", "What this control plane is called in grants (`iss`)").required(true)).arg(
        value(
            "audience",
            "TEXT",
            "What a front door is called in grants (`aud`). Repeatable; the first is the default",
        )
        .required(true)
        .action(ArgAction::Append),
    )
}

/// How long things are kept.
fn keeping(command: Command) -> Command {
    let days = |name, days_min: u64, help| {
        value(name, "DAYS", help).value_parser(value_parser!(u64).range(days_min..=KEEP_DAYS_MAX))
    };
    command
        .arg(days(
            "usage-keep-days",
            USAGE_KEEP_DAYS_MIN,
            "Roll records of usage up into totals by day after so long (7 or more), and take none that is older",
        ))
        .arg(days("audit-keep-days", AUDIT_KEEP_DAYS_MIN, "Remove lines of the audit after so long"))
}

/// The command lines.
pub(super) fn commands() -> [Command; 4] {
    let seconds = |name, default: &'static str, help| {
        let range = value_parser!(u64).range(0..=SECONDS_MAX);
        value(name, "SECONDS", help).default_value(default).value_parser(range)
    };
    let file = |name, help| value(name, "FILE", help).value_parser(value_parser!(PathBuf));
    let choice = |name, shown, default, choices: &[&'static str], help| {
        value(name, shown, help).default_value(default).value_parser(choices.to_vec())
    };
    let serve = names(place(Command::new("serve").about("Serves the control plane's API over HTTP")));
    let serve = keeping(serve)
        .after_help(SERVE_AFTER)
        .arg(
            value("listen", "ADDRESS:PORT", "Where to listen; port 0 takes a free one").default_value("127.0.0.1:8090"),
        )
        .arg(seconds("grant-seconds", "900", "How long a grant is valid at most; at most 86400"))
        .arg(seconds("key-lead", "300", "How long the next key is published before it signs"))
        .args([
            file("tls-cert", "Speak TLS: the certificate chain, in PEM").requires("tls-key"),
            file("tls-key", "Its private key, in PEM (mode 0600)").requires("tls-cert"),
        ])
        .arg(choice("log-level", "LEVEL", "info", &["error", "warn", "info", "debug", "trace"], "To standard error"))
        .arg(choice("log-format", "FORMAT", "text", &["text", "json"], "How log lines are written"));
    let init = place(Command::new("init").about("Makes the folder, the admin's token, the database and the first key"));
    let backup = place(Command::new("backup").about("Copies an SQLite database, also one in use"));
    let target = Arg::new("target").value_name("FILE").required(true).value_parser(value_parser!(PathBuf));
    let backup = backup.arg(target.help("Where to; it must not be there yet"));
    let prune = keeping(place(Command::new("prune").about("Lets go of usage and audit that are older, now")));
    // Without one of them there would be nothing to do.
    let which = ArgGroup::new("which").args(["usage-keep-days", "audit-keep-days"]).required(true).multiple(true);
    [init, serve, backup, prune.group(which)]
}

fn folder(matches: &ArgMatches) -> PathBuf {
    // It is required.
    matches.get_one::<PathBuf>("folder").cloned().unwrap_or_default()
}

fn database(matches: &ArgMatches) -> anyhow::Result<DatabaseUrl> {
    let file = matches.get_one::<PathBuf>("database-url-file");
    Ok(match (file, std::env::var(DATABASE_VARIABLE)) {
        (Some(path), _) => DatabaseUrl::read(path)?,
        (None, Ok(text)) => DatabaseUrl::parse(&text).context(DATABASE_VARIABLE)?,
        (None, Err(std::env::VarError::NotUnicode(_))) => bail!("{DATABASE_VARIABLE} is no text"),
        (None, Err(std::env::VarError::NotPresent)) => DatabaseUrl::sqlite(&folder(matches).join("control.db")),
    })
}

fn listener_tls(matches: &ArgMatches) -> anyhow::Result<Option<ServerTls>> {
    let path = |name| matches.get_one::<PathBuf>(name);
    let (Some(certificate), Some(key)) = (path("tls-cert"), path("tls-key")) else { return Ok(None) };
    Ok(Some(ServerTls::read(certificate, key, None)?))
}

fn keep(matches: &ArgMatches) -> Keep {
    let days = |name| matches.try_get_one::<u64>(name).ok().flatten().copied();
    Keep { usage_days: days("usage-keep-days"), audit_days: days("audit-keep-days") }
}

fn config(matches: &ArgMatches) -> anyhow::Result<Config> {
    let seconds = |name, default| matches.get_one::<u64>(name).copied().unwrap_or(default);
    Ok(Config {
        issuer: text(matches, "issuer"),
        audiences: matches.get_many::<String>("audience").unwrap_or_default().cloned().collect(),
        grant_seconds_max: seconds("grant-seconds", GRANT_SECONDS_DEFAULT),
        key_lead_seconds: seconds("key-lead", KEY_LEAD_SECONDS_DEFAULT),
        tls: listener_tls(matches)?,
        ..own(matches)?
    })
}

/// For a command that makes no grant: the names do not matter.
fn own(matches: &ArgMatches) -> anyhow::Result<Config> {
    let folder = folder(matches);
    Ok(Config {
        database: database(matches)?,
        keys_folder: folder.join("keys"),
        admin_token_file: folder.join("admin-token"),
        issuer: "command".to_owned(),
        audiences: vec!["command".to_owned()],
        grant_seconds_max: GRANT_SECONDS_DEFAULT,
        key_lead_seconds: KEY_LEAD_SECONDS_DEFAULT,
        keep: keep(matches),
        tls: None,
        clock: None,
    })
}

/// Makes what is not there yet, and leaves alone what is.
pub(super) fn init(matches: &ArgMatches) -> anyhow::Result<()> {
    let folder = folder(matches);
    let made = |path: &Path| {
        DirBuilder::new().recursive(true).mode(0o700).create(path).with_context(|| path.display().to_string())
    };
    made(&folder)?;
    made(&folder.join("keys"))?;
    let token = folder.join("admin-token");
    if !token.try_exists().with_context(|| token.display().to_string())? {
        ringfence_control::make_admin_token(&token)?;
    }
    let config = own(matches)?;
    let key = block_on(async {
        let control = Control::start(config).await?;
        let made = control.make_first_key().await?;
        let key = match made {
            Some(key) => key,
            None => control.signing_key().await?,
        };
        control.close().await;
        Ok(key)
    })?;
    print(format!(
        "ringfence control is ready in {}\n  admin     {}\n  key       {key}\n",
        folder.display(),
        token.display()
    ));
    Ok(())
}

/// Copies the database.
pub(super) fn backup(matches: &ArgMatches) -> anyhow::Result<()> {
    // It is required.
    let target = matches.get_one::<PathBuf>("target").cloned().unwrap_or_default();
    let database = database(matches)?;
    block_on(async { Ok(ringfence_control::backup(&database, &target).await?) })
}

/// Lets go of what is older than it is to be kept.
pub(super) fn prune(matches: &ArgMatches) -> anyhow::Result<()> {
    let config = own(matches)?;
    let pruned = block_on(async {
        let control = Control::start(config).await?;
        let pruned = control.prune().await;
        control.close().await;
        Ok(pruned?)
    })?;
    print(format!("{} records rolled up, {} lines of the audit removed\n", pruned.records, pruned.lines));
    if pruned.ahead_days > 0 {
        let days = pruned.ahead_days;
        failure::tell(&format!(
            "ringfence: the clock is {days} days ahead of the newest record: the times were counted from that\n"
        ));
    }
    Ok(())
}

/// Serves until it is told to end.
pub(super) fn serve(matches: &ArgMatches) -> ExitCode {
    failure::ended(try_serve(matches).map(|()| ExitCode::SUCCESS))
}

fn try_serve(matches: &ArgMatches) -> Result<(), Failure> {
    crate::gate::observe(matches);
    crate::serve::raise_descriptors();
    let config = config(matches).map_err(Failure::of(Kind::Configuration))?;
    let address = text(matches, "listen");
    let listener = TcpListener::bind(&address).with_context(|| format!("cannot listen on {address}"));
    let listener = listener.map_err(Failure::of(Kind::Serving))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("control").build();
    let runtime = runtime.context("cannot start the runtime").map_err(Failure::of(Kind::Serving))?;
    let ended = runtime.block_on(until_told(config, listener));
    runtime.shutdown_timeout(RUNTIME_END_MAX);
    ended
}

async fn until_told(config: Config, listener: TcpListener) -> Result<(), Failure> {
    let listen = |kind| signal(kind).context("cannot listen to signals").map_err(Failure::of(Kind::Serving));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let address = listener.local_addr().context("the listening socket has no address");
    let address = address.map_err(Failure::of(Kind::Serving))?;
    let database = format!("{:?}", config.database);
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let control = Control::start(config).await.map_err(Failure::of(Kind::Configuration))?;
    let key = match control.signing_key().await {
        Ok(key) => key,
        Err(error) => {
            tracing::warn!("no grant can be made: {error}");
            "NONE: no grant can be made".to_owned()
        }
    };
    print(format!("ringfence control listens on {scheme}://{address}\n  database  {database}\n  key       {key}\n"));
    let told = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("shutting down: no more connections; what runs may end");
    };
    control.serve(listener, told).await.map_err(Failure::of(Kind::Serving))
}
