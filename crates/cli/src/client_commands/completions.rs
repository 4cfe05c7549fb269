//! `ringfence completions`: what a shell completes.

use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use super::print;

const AFTER: &str = "\
Example: ringfence completions bash > /etc/bash_completion.d/ringfence

Exit status: 0 done, 2 wrong arguments.";

/// Its line of the command line.
pub(crate) fn command() -> Command {
    let shell = Arg::new("shell").value_name("SHELL").required(true).value_parser(value_parser!(Shell));
    Command::new("completions")
        .about("Writes the completions of a shell to standard output")
        .after_help(AFTER)
        .arg(shell.help("The shell"))
}

/// Writes them.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    if let Some(shell) = matches.get_one::<Shell>("shell") {
        let mut text = Vec::new();
        clap_complete::generate(*shell, &mut crate::args::command(), "ringfence", &mut text);
        print(text);
    }
    ExitCode::SUCCESS
}
