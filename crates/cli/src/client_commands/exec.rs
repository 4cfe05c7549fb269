//! `ringfence exec`: one call in a session that is held.

use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};
use tokio::signal::unix::SignalKind;

use super::interruptible::{Uninterrupted, interruptible};
use super::outcome::{NOT_RUN, as_json, by_signal, exit, show};
use super::source::{call, call_args, read};
use super::{Connection, block_on, complain, connection_args, print_json};

const AFTER: &str = "\
Variables and files of earlier calls of the session are there. `ringfence session create` leases one. Ctrl-C interrupts \
the call, and its answer is still shown.

Example: ringfence exec \"$SESSION\" 'x = 41; print(x + 1)'

Exit status: the program's own; 125 where it could not be run at all (no such session, no backend), 130 where ctrl-C \
left it running, since the backend cannot interrupt or, pressed again, has not answered, 2 for wrong arguments.";

/// Its line of the command line.
pub(crate) fn command() -> Command {
    let code = Arg::new("code").value_name("CODE").required_unless_present("file").allow_hyphen_values(true);
    let file = Arg::new("file").long("file").short('f').value_name("FILE").conflicts_with("code");
    Command::new("exec")
        .about("Runs one call in a session that is held")
        .after_help(AFTER)
        .arg(Arg::new("session").value_name("SESSION").required(true).help("The session's id"))
        .arg(code.help("The program itself; - reads it from standard input"))
        .arg(file.help("Read the program from a file"))
        .args(call_args())
        .args(connection_args())
}

/// Runs it.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    block_on(execute(matches)).unwrap_or_else(|error| {
        complain(&error);
        ExitCode::from(NOT_RUN)
    })
}

async fn execute(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let text = match (matches.get_one::<String>("file"), matches.get_one::<String>("code")) {
        (Some(path), _) => read(path)?,
        (None, Some(code)) if code != "-" => code.clone(),
        _ => read("-")?,
    };
    let session = Connection::of(matches)?.client()?.attach(super::text(matches, "session"));
    let call = call(matches, text, matches.get_flag("bash"));
    let Some(done) = interruptible(&session, &call, Uninterrupted::Leave).await? else {
        return Ok(by_signal(SignalKind::interrupt().as_raw_value()));
    };
    if matches.get_flag("json") {
        print_json(&as_json(session.id(), &done));
    } else {
        show(&done);
    }
    Ok(exit(&done))
}
