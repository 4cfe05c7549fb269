//! `ringfence session`: sessions that outlive the command.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use ringfence_client::{LeaseOptions, SessionHandle};
use serde_json::{Value, json};

use super::{Connection, block_on, ended, print, print_json, text};

const AFTER: &str = "\
A session that nobody destroys is reclaimed by the backend after its idle timeout.
`list` shows, with tabs between: id, made at, last used at (POSIX seconds), image, tier.

Example: SESSION=$(ringfence session create --idle-timeout 600)

Exit status: 0 done, 1 the backend could not be reached or refused, 2 wrong arguments.";

/// Its line of the command line.
pub(crate) fn command() -> Command {
    let seconds = |name: &'static str, help: &'static str| {
        let arg = Arg::new(name).long(name).value_name("SECONDS");
        arg.value_parser(value_parser!(u32).range(1..)).help(help)
    };
    let id = || Arg::new("session").value_name("SESSION").required(true).help("The session's id");
    let json = || Arg::new("json").long("json").action(ArgAction::SetTrue).help("Show the answer as one JSON object");
    let each = |name: &'static str, about: &'static str| {
        Command::new(name).about(about).after_help(AFTER).arg(json()).args(super::connection_args())
    };
    Command::new("session")
        .about("Leases, lists, shows, interrupts and destroys sessions")
        .after_help(AFTER)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            each("create", "Leases a session and shows its id")
                .arg(Arg::new("image").long("image").value_name("IMAGE").help("Ask for an image"))
                .arg(seconds("idle-timeout", "Reclaim it after so long without activity"))
                .arg(seconds("lifetime", "Reclaim it so long after its creation")),
        )
        .subcommand(each("list", "Lists the sessions of a backend that asks for a token"))
        .subcommand(each("interrupt", "Interrupts the call that runs in a session, as ctrl-C does").arg(id()))
        .subcommand(each("show", "Shows what the backend knows about a session").arg(id()))
        .subcommand(each("destroy", "Destroys a session, or makes sure that it is gone").arg(id()))
}

/// Does what is asked.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    ended(block_on(async {
        match matches.subcommand() {
            Some(("create", matches)) => create(matches).await,
            Some(("list", matches)) => list(matches).await,
            Some(("interrupt", matches)) => interrupt(matches).await,
            Some(("show", matches)) => show(matches).await,
            Some((_, matches)) => destroy(matches).await,
            None => Ok(()),
        }
    }))
}

async fn create(matches: &ArgMatches) -> anyhow::Result<()> {
    let mut options = LeaseOptions::default();
    if let Some(image) = matches.get_one::<String>("image") {
        options = options.image(image);
    }
    let seconds = |name| matches.get_one::<u32>(name).map(|seconds| Duration::from_secs((*seconds).into()));
    if let Some(idle) = seconds("idle-timeout") {
        options = options.idle_timeout(idle);
    }
    if let Some(lifetime) = seconds("lifetime") {
        options = options.max_lifetime(lifetime);
    }
    let lease = Connection::of(matches)?.client()?.lease(&options).await?;
    let handle = lease.handle().clone();
    let session = lease.keep();
    if matches.get_flag("json") {
        print_json(&as_json(&handle));
    } else {
        print(format!("{}\n", session.id()));
    }
    Ok(())
}

async fn list(matches: &ArgMatches) -> anyhow::Result<()> {
    let handles = Connection::of(matches)?.client()?.sessions().await?;
    if matches.get_flag("json") {
        print_json(&json!({"sessions": handles.iter().map(as_json).collect::<Vec<_>>()}));
        return Ok(());
    }
    for handle in handles {
        let seconds = |at: Option<f64>| at.map_or_else(|| "-".to_owned(), |at| format!("{at:.0}"));
        let said = |text: Option<String>| text.map_or_else(|| "-".to_owned(), |text| text.escape_debug().to_string());
        print(format!(
            "{}\t{}\t{}\t{}\t{}\n",
            handle.session_id.escape_debug(),
            seconds(handle.created_at),
            seconds(handle.last_activity_at),
            said(handle.image),
            said(handle.tier)
        ));
    }
    Ok(())
}

async fn interrupt(matches: &ArgMatches) -> anyhow::Result<()> {
    let session = Connection::of(matches)?.client()?.attach(text(matches, "session"));
    let interrupted = session.interrupt().await?;
    if matches.get_flag("json") {
        print_json(&json!({"session_id": session.id(), "interrupted": interrupted}));
    } else if !interrupted {
        print("no call was running\n");
    }
    Ok(())
}

async fn show(matches: &ArgMatches) -> anyhow::Result<()> {
    let handle = Connection::of(matches)?.client()?.attach(text(matches, "session")).handle().await?;
    let shown = as_json(&handle);
    if matches.get_flag("json") {
        print_json(&shown);
        return Ok(());
    }
    for (name, value) in shown.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        let value = value.as_str().map_or_else(|| value.to_string(), |text| text.escape_debug().to_string());
        print(format!("{}: {value}\n", name.escape_debug()));
    }
    Ok(())
}

async fn destroy(matches: &ArgMatches) -> anyhow::Result<()> {
    let session = Connection::of(matches)?.client()?.attach(text(matches, "session"));
    session.destroy().await?;
    if matches.get_flag("json") {
        print_json(&json!({"session_id": session.id(), "destroyed": true}));
    }
    Ok(())
}

/// The handle as the backend gave it, with what this program does not know.
fn as_json(handle: &SessionHandle) -> Value {
    let mut shown = json!({
        "session_id": handle.session_id,
        "idle_timeout_seconds": handle.idle_timeout_seconds,
        "max_lifetime_seconds": handle.max_lifetime_seconds,
        "created_at": handle.created_at,
        "last_activity_at": handle.last_activity_at,
        "image": handle.image,
        "tier": handle.tier,
    });
    if let Some(fields) = shown.as_object_mut() {
        fields.extend(handle.more.clone());
    }
    shown
}
