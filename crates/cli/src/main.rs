//! The one binary `ringfence`: configuration, start and end of the server; the commands of a client; the front door and
//! the control plane, started.
//!
//! May know: the rooms that it starts and those that its commands use; ARCHITECTURE.md names them. Never knows: HTTP
//! routes, kernel calls of cells, what runs in a session.
//!
//! **Invariants.**
//! - Everything that needs the invoking user (image, configuration, token, listening socket) is done before the
//!   keeper starts; everything that serves happens after the daemon has given up its place on the host.
//! - The process has one thread until it has entered the fleet's namespace.
//! - What it says to a person is on standard error, but for the ready lines, which are on standard output.
//! - A token is in memory only: not in an argument, the environment, a log line or `--print-config`.

mod args;
mod attack;
mod bench;
mod check;
mod client_commands;
mod config;
mod control;
mod doctor;
mod embedded;
mod failure;
mod gate;
mod image;
mod limits;
mod progress;
mod pull;
mod ready;
mod serve;
mod served;
mod settings;
mod shell;
mod tenancy;
mod terminal;
mod token;

use std::process::ExitCode;

use args::Task;

fn main() -> ExitCode {
    match args::parse() {
        Task::Keeper { socket, config } => keeper(socket, config),
        Task::Puller => pull::puller::run(),
        Task::Client { run, matches } => run(&matches),
        Task::Serve(arguments) => failure::ended(serve::run(&arguments).map(|()| ExitCode::SUCCESS)),
    }
}

fn keeper(socket: i32, config: i32) -> ExitCode {
    match (ringfence_jail::adopt(socket), ringfence_jail::adopt(config)) {
        (Ok(socket), Ok(config)) => ringfence_jail::keeper_main(socket, config),
        (Err(error), _) | (_, Err(error)) => {
            failure::tell(&format!("ringfence: `keeper` is started by `ringfence serve` alone: {error}\n"));
            failure::Kind::Configuration.code()
        }
    }
}
