//! `ringfence shell`: a session to type into.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use ringfence_client::LeaseOptions;

use super::ends::{self, Ends};
use super::outcome::by_signal;
use super::{Connection, complain, connection_args};
use crate::limits::RUNTIME_END_MAX;
use crate::shell::{self, Ended, Input, Options};

const AFTER: &str = "\
Each entry is a call of one session: variables and files stay. The value of a last expression is printed; a line that \
begins with ! is a shell command. An entry goes on while a bracket or a string of three quotes is open or its line ends \
with a backslash; one with a line that ends with a colon, is indented or begins with @ goes on until an empty line. \
Ctrl-C interrupts the call that runs, as often as it is pressed, or drops what is typed; ctrl-D or `exit` ends the shell \
and releases the session. On a pipe there is no prompt, and the entries are its lines.

Example: ringfence shell --image scientific

Exit status: 0 ended, 1 the session could not be leased or is gone, 2 wrong arguments; after a signal 128 and its number: \
130 after ctrl-C on a pipe or before there is a session, 129 where the terminal is gone during a call, 143 after SIGTERM; a shell that waits at its \
prompt hears no signal.";

/// Its line of the command line.
pub(crate) fn command() -> Command {
    let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
    let seconds = Arg::new("timeout").long("timeout").value_name("SECONDS").value_parser(value_parser!(u32).range(1..));
    Command::new("shell")
        .about("A session to type into, Python and shell commands")
        .after_help(AFTER)
        .arg(
            Arg::new("session")
                .long("session")
                .value_name("SESSION")
                .conflicts_with("image")
                .help("Attach to this session, and leave it at the end"),
        )
        .arg(Arg::new("image").long("image").value_name("IMAGE").help("Ask for an image"))
        .arg(seconds.default_value("600").help("How long a call may run"))
        .arg(flag("json").help("Show each result as one JSON object on a line"))
        .arg(flag("no-history").help("Keep no entries in ~/.local/state/ringfence/shell-history"))
        .args(connection_args())
}

/// Runs it.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    match typed_into(matches) {
        Ok(Ended::Done) => ExitCode::SUCCESS,
        Ok(Ended::BySignal(number)) => by_signal(number),
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn typed_into(matches: &ArgMatches) -> anyhow::Result<Ended> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("the runtime")?;
    let options = Options {
        timeout: Duration::from_secs(matches.get_one::<u32>("timeout").copied().unwrap_or(600).into()),
        json: matches.get_flag("json"),
    };
    let client = Connection::of(matches)?.client()?;
    let mut ends = runtime.block_on(async { Ends::listen() }).context("cannot listen to signals")?;
    let mut input = Input::open(!matches.get_flag("no-history"))?;
    let outcome = match matches.get_one::<String>("session") {
        Some(id) => {
            ends.without_interrupt();
            shell::run(&runtime, &client.attach(id), &mut input, &mut ends, &options)
        }
        None => {
            let mut hints = LeaseOptions::default();
            if let Some(image) = matches.get_one::<String>("image") {
                hints = hints.image(image);
            }
            match runtime.block_on(ends::lease(&client, &hints, &mut ends))? {
                Ok(lease) => {
                    // From here on ctrl-C is the shell's, and is not its end.
                    ends.without_interrupt();
                    let outcome = shell::run(&runtime, lease.session(), &mut input, &mut ends, &options);
                    runtime.block_on(async { ends.with_interrupt() });
                    runtime.block_on(ends::release(lease, &mut ends));
                    outcome
                }
                Err(number) => Ok(Ended::BySignal(number)),
            }
        }
    };
    runtime.shutdown_timeout(RUNTIME_END_MAX);
    outcome
}
