//! Programs to run: from a file, from standard input, or from the command line.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use ringfence_client::ToolCall;

use crate::limits::PROGRAM_BYTES_MAX;

/// A program's text from a file, or from standard input for `-`.
///
/// # Errors
/// When it cannot be read, is larger than [`PROGRAM_BYTES_MAX`], or is no UTF-8.
pub(crate) fn read(place: &str) -> anyhow::Result<String> {
    let reader: Box<dyn Read> = match place {
        "-" => Box::new(std::io::stdin().lock()),
        path => Box::new(std::fs::File::open(Path::new(path)).with_context(|| path.to_owned())?),
    };
    let mut text = String::new();
    reader.take(PROGRAM_BYTES_MAX + 1).read_to_string(&mut text).with_context(|| place.to_owned())?;
    ensure!(text.len() as u64 <= PROGRAM_BYTES_MAX, "{place} is larger than {PROGRAM_BYTES_MAX} bytes");
    Ok(text)
}

/// The arguments that every call takes.
pub(crate) fn call_args() -> [Arg; 3] {
    let bash = Arg::new("bash").long("bash").action(ArgAction::SetTrue);
    let timeout = Arg::new("timeout").long("timeout").value_name("SECONDS").value_parser(value_parser!(u32).range(1..));
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue);
    [
        bash.help("It is a shell command, not Python"),
        timeout.default_value("60").help("How long it may run"),
        json.help("Show the result as one JSON object"),
    ]
}

/// The call that the arguments ask for.
pub(crate) fn call(matches: &ArgMatches, text: String, is_bash: bool) -> ToolCall {
    let seconds = matches.get_one::<u32>("timeout").copied().unwrap_or(60);
    let call = if is_bash { ToolCall::bash(text) } else { ToolCall::python(text) };
    call.timeout(Duration::from_secs(seconds.into()))
}
