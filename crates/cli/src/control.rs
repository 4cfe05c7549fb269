//! `ringfence control`: the control plane, served and managed.

mod client;
mod local;
mod policy;

use std::process::ExitCode;

use clap::{ArgMatches, Command};

use crate::client_commands::ended;

/// The variables that these commands read.
pub(crate) const VARIABLES: &[&str] =
    &[local::DATABASE_VARIABLE, client::URL_VARIABLE, client::TOKEN_FILE_VARIABLE, client::CA_FILE_VARIABLE];

/// Below the commands of `control --help`.
const AFTER: &str = "\
Example, a minute to the first grant:
  ringfence control init --folder control
  ringfence control serve --folder control --issuer https://control.example --audience https://gate.example &
  export RINGFENCE_CONTROL_TOKEN_FILE=control/admin-token
  ringfence control workspaces create team-a --enabled true --tool code_execution
  ringfence control tokens create --kind gateway --name otari --out gateway-token

`init`, `serve`, `backup` and `prune` work on the folder and the database; all others speak to a control plane by its URL. \
docs/control.md says more.

Exit status: 0 done, 1 it failed or was refused, 2 wrong arguments.";

/// The command line.
pub(crate) fn command() -> Command {
    Command::new("control")
        .about("The control plane: workspaces, policy, grants, keys, usage")
        .after_help(AFTER)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(local::commands())
        .subcommands(client::commands())
}

/// Does what the subcommand says.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    match matches.subcommand() {
        Some(("serve", matches)) => local::serve(matches),
        Some(("init", matches)) => ended(local::init(matches)),
        Some(("backup", matches)) => ended(local::backup(matches)),
        Some(("prune", matches)) => ended(local::prune(matches)),
        Some((name, matches)) => ended(client::run(name, matches)),
        // The command line takes no other.
        None => ExitCode::FAILURE,
    }
}
