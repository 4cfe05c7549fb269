//! `ringfence mcp`: the tools of a session for a model, over the Model Context Protocol.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::builder::Resettable;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use ringfence_mcp::{Backend, Door, DoorOptions, Starting, serve_stdio};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{Connection, complain, connection_args, ended};
use crate::embedded::Embedded;
use crate::limits::RUNTIME_END_MAX;

const AFTER: &str = "\
Serves one conversation over standard input and output, or with --http any number of them. Each has a session of its \
own, released at its end. Without --base-url and RINGFENCE_URL a server is started for it, on a free port of loopback, \
and ended with it; what follows -- goes to that server, and RINGFENCE_* variables count for it.

Example: ringfence mcp --image bare -- --memory 1GiB --max-sessions 4

Exit status: 0 the peer is gone or the end was asked for, 1 it could not be served or its server died, 2 wrong arguments.";

/// Its line of the command line.
pub(crate) fn command() -> Command {
    let http = Arg::new("http").long("http").value_name("ADDRESS:PORT").value_parser(value_parser!(SocketAddr));
    let token = Arg::new("http-token-file").long("http-token-file").value_name("FILE").requires("http");
    let many = |name: &'static str, value: &'static str| {
        Arg::new(name).long(name).value_name(value).action(ArgAction::Append).requires("http")
    };
    let serve = Arg::new("serve").value_name("SERVE_OPTION").last(true).num_args(0..);
    Command::new("mcp")
        .about("Gives a model the tools of a session, over the Model Context Protocol")
        .after_help(AFTER)
        .arg(http.help("Serve streamable HTTP there, under /mcp, instead of standard input and output"))
        .arg(
            token
                .value_parser(value_parser!(PathBuf))
                .help("Ask HTTP callers for the bearer token in this file (mode 0600); not optional beyond loopback"),
        )
        .arg(many("allow-host", "HOST").help("A further host that HTTP requests may name; may be given again"))
        .arg(many("allow-origin", "ORIGIN").help("An origin of web pages that may ask over HTTP; may be given again"))
        .arg(Arg::new("image").long("image").value_name("IMAGE").help("Ask for an image"))
        .args(connection_args().map(|arg| match arg.get_id() == "base-url" {
            true => arg.default_value(Resettable::Reset).help("Where the backend is; without it one is started"),
            false => arg,
        }))
        .arg(serve.value_parser(value_parser!(OsString)).help("Options of the server that is started"))
}

/// Serves.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    // Standard output is the protocol's.
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr);
    log.with_ansi(crate::progress::decorated()).with_target(false).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = match runtime.context("cannot start the runtime") {
        Ok(runtime) => runtime,
        Err(error) => return ended(Err(error)),
    };
    let outcome = runtime.block_on(serve(matches));
    runtime.shutdown_timeout(RUNTIME_END_MAX);
    ended(outcome)
}

async fn serve(matches: &ArgMatches) -> anyhow::Result<()> {
    let stop = told_to_end()?;
    let image = matches.get_one::<String>("image").cloned();
    if matches.get_one::<String>("base-url").is_some() {
        let backend = Backend::ready(Connection::of(matches)?.client()?, image);
        return converse(matches, backend, stop).await;
    }
    let (starting, backend) = Backend::starting(image.clone());
    let mut arguments: Vec<OsString> = matches.get_many("serve").into_iter().flatten().cloned().collect();
    if let Some(image) = image {
        arguments.extend(["--image".into(), image.into()]);
    }
    // Beside the conversation: a peer does not wait for an image to be built before it is greeted.
    let (done, over) = oneshot::channel();
    let server = tokio::spawn(own_server(arguments, starting, over, stop.clone()));
    let conversed = converse(matches, backend, stop).await;
    drop(done);
    server.await.context("the server of its own")??;
    conversed
}

/// A server for as long as `over` has not come. One that dies ends all: without it there is nothing to serve, and its port
/// may be somebody else's by now, who must be sent neither its token nor code.
async fn own_server(
    arguments: Vec<OsString>,
    starting: Starting,
    mut over: oneshot::Receiver<()>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let started = tokio::select! {
        started = Embedded::start(&arguments) => started,
        _ = &mut over => return Ok(()),
    };
    match started {
        Ok((mut server, client)) => {
            starting.ready(client);
            tokio::select! {
                _ = &mut over => server.end().await,
                how = server.died() => {
                    // Whoever ends a whole group of processes ends this one too.
                    if stop.is_cancelled() {
                        return Ok(());
                    }
                    stop.cancel();
                    bail!("the server of its own has died ({how})");
                }
            }
        }
        Err(error) => {
            complain(&error);
            starting.failed(format!("{error:#}"));
        }
    }
    Ok(())
}

async fn converse(matches: &ArgMatches, backend: Backend, stop: CancellationToken) -> anyhow::Result<()> {
    let Some(address) = matches.get_one::<SocketAddr>("http") else {
        return Ok(serve_stdio(backend, stop).await?);
    };
    let texts = |name: &str| matches.get_many::<String>(name).into_iter().flatten().cloned().collect();
    let token = matches.get_one::<PathBuf>("http-token-file");
    let token = token.map(|path| ringfence_secret::read_line(path, 1)).transpose()?;
    let options = DoorOptions {
        hosts: texts("allow-host"),
        origins: texts("allow-origin"),
        token: token.map(|token| String::clone(&token)),
    };
    let door = Door::open(backend, *address, options).await?;
    super::print(format!("mcp: {}\nready\n", door.url()));
    door.serve(async move { stop.cancelled().await }).await?;
    Ok(())
}

/// Cancelled at the first signal that asks for the end.
fn told_to_end() -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let listen = |kind| signal(kind).context("cannot listen to signals");
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let told = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        told.cancel();
    });
    Ok(stop)
}
