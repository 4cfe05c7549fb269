//! The command line, made of the table of settings.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::client_commands;
use crate::settings::{BOOL, SETTINGS, Values};

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Task {
    /// `ringfence serve`.
    Serve(ServeArguments),
    /// A command that speaks to a backend by its URL.
    Client {
        /// What it does.
        run: client_commands::Run,
        /// Its arguments.
        matches: ArgMatches,
    },
    /// `ringfence keeper SOCKET CONFIG`, started by `serve` alone: the numbers of two inherited descriptors.
    Keeper {
        /// The daemon's socket.
        socket: i32,
        /// The keeper's configuration.
        config: i32,
    },
    /// `ringfence puller`, started by `serve` alone, with sockets as its standard input and output.
    Puller,
}

/// The command line of `serve`.
#[derive(Debug)]
pub(crate) struct ServeArguments {
    matches: ArgMatches,
}

/// The one variable that is no setting.
pub(crate) const CONFIG_VARIABLE: &str = "RINGFENCE_CONFIG";

/// Below the options of `serve --help`.
const SERVE_AFTER: &str = "\
Every option can be given as a variable (RINGFENCE_MAX_SESSIONS=10) or in the file of --config, one `name = value` \
each. The command line counts before variables, these before the file, the file before the defaults.

BYTES take KiB, MiB, GiB.

Example: ringfence serve --listen 127.0.0.1:8080 --max-sessions 50

Exit status: 0 after a shutdown that was asked for, 1 the server failed, 2 the configuration \
is wrong, 3 there is no image, 4 this machine does not let sessions be isolated, 5 the keeper died.";

/// Reads the command line; on a wrong one, or where help is asked for, it answers and ends the process.
pub(crate) fn parse() -> Task {
    task_of(command().get_matches())
}

fn task_of(mut matches: ArgMatches) -> Task {
    match matches.remove_subcommand() {
        Some((name, matches)) if name == "keeper" => {
            let number = |name| matches.get_one::<i32>(name).copied().unwrap_or(-1);
            Task::Keeper { socket: number("socket"), config: number("config") }
        }
        Some((name, _)) if name == "puller" => Task::Puller,
        // A command without a subcommand was refused: what is left is `serve`.
        other => {
            let (name, matches) = other.unwrap_or_default();
            match client_commands::named(&name) {
                Some(run) => Task::Client { run, matches },
                None => Task::Serve(ServeArguments { matches }),
            }
        }
    }
}

impl ServeArguments {
    /// Whether the settings are only to be shown.
    pub(crate) fn print_config(&self) -> bool {
        self.matches.get_flag("print-config")
    }

    /// Whether the end of standard input ends the server.
    pub(crate) fn until_stdin_ends(&self) -> bool {
        self.matches.get_flag("until-stdin-ends")
    }

    /// The value of every setting, from wherever it comes.
    ///
    /// # Errors
    /// When the configuration file cannot be read, or a variable is no text.
    pub(crate) fn values(&self) -> anyhow::Result<Values> {
        let flag = |name: &str| match name {
            "cgroups" if self.matches.get_flag("no-cgroups") => Some("false".to_owned()),
            _ => self.matches.get_one::<String>(name).cloned(),
        };
        let variable = |name: &str| std::env::var(name).ok();
        let of_environment = || std::env::var_os(CONFIG_VARIABLE).map(PathBuf::from);
        let file = self.matches.get_one::<PathBuf>("config").cloned().or_else(of_environment);
        Values::gather(flag, variable, file.as_deref())
    }
}

/// Variables that look like settings and are none, as after a slip of the pen.
pub(crate) fn unknown_variables() -> Vec<String> {
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let of_others = [client_commands::VARIABLES, crate::control::VARIABLES];
    let of_clients = |name: &String| of_others.iter().any(|names| names.contains(&name.as_str()));
    let is_known = |name: &String| {
        name == CONFIG_VARIABLE || of_clients(name) || SETTINGS.iter().any(|row| row.variable() == *name)
    };
    names.filter(|name| name.starts_with("RINGFENCE_") && !is_known(name)).collect()
}

/// The whole command line.
pub(crate) fn command() -> Command {
    Command::new("ringfence")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Runs untrusted, model-written code for LLM gateways, each session in a cell that the kernel holds")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(serve())
        .subcommands(client_commands::commands())
        .subcommand(keeper())
        .subcommand(Command::new("puller").hide(true))
}

fn serve() -> Command {
    let config = Arg::new("config").long("config").value_name("FILE").value_parser(value_parser!(PathBuf));
    let print = Arg::new("print-config").long("print-config").action(ArgAction::SetTrue);
    let mut command = Command::new("serve")
        .about("Serves the code-execution protocol over HTTP")
        .after_help(SERVE_AFTER)
        .arg(config.help("A TOML file of these settings [env: RINGFENCE_CONFIG]"))
        .arg(print.help("Show every setting and where its value comes from, and end"));
    for setting in SETTINGS {
        let mut help = setting.help.to_owned();
        if !setting.default.is_empty() {
            help.push_str(&format!(" [default: {}]", setting.default));
        }
        let mut arg = Arg::new(setting.name).long(setting.name).value_name(setting.value).help(help);
        if setting.value == BOOL {
            arg = arg.num_args(0..=1).require_equals(true).default_missing_value("true");
        }
        command = command.arg(arg);
    }
    // The opposite of the one switch that is on by default, under the name that people look for.
    let no_cgroups = Arg::new("no-cgroups").long("no-cgroups").action(ArgAction::SetTrue).conflicts_with("cgroups");
    // For a program that starts a server for itself: the server ends when whoever holds its standard input does.
    let until = Arg::new("until-stdin-ends").long("until-stdin-ends").action(ArgAction::SetTrue).hide(true);
    command.arg(no_cgroups.help("The same as --cgroups=false")).arg(until)
}

fn keeper() -> Command {
    let number = |name: &'static str| Arg::new(name).required(true).value_parser(value_parser!(i32).range(0..));
    Command::new("keeper").hide(true).arg(number("socket")).arg(number("config"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve_arguments(words: &[&str]) -> ServeArguments {
        match task_of(command().try_get_matches_from(["ringfence", "serve"].iter().chain(words)).unwrap()) {
            Task::Serve(arguments) => arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_well_formed_and_shows_every_setting() {
        command().debug_assert();
        let help = serve().render_long_help().to_string();
        for setting in SETTINGS {
            assert!(help.contains(&format!("--{}", setting.name)), "{}", setting.name);
        }
        let all = command().render_long_help().to_string();
        assert!(!all.contains("keeper") && !all.contains("puller"), "{all}");
    }

    #[test]
    fn switches_may_be_given_without_a_value() {
        let text = |words: &[&str], name| serve_arguments(words).values().unwrap().text(name).map(str::to_owned);
        assert_eq!(text(&["--echo-last-expression"], "echo-last-expression").as_deref(), Some("true"));
        assert_eq!(text(&["--cgroups=false"], "cgroups").as_deref(), Some("false"));
        assert_eq!(text(&["--no-cgroups"], "cgroups").as_deref(), Some("false"));
        assert_eq!(text(&[], "cgroups").as_deref(), Some("true"));
    }

    #[test]
    fn the_keeper_gets_two_numbers() {
        let matches = command().try_get_matches_from(["ringfence", "keeper", "3", "4"]).unwrap();
        assert!(matches!(task_of(matches), Task::Keeper { socket: 3, config: 4 }));
        for words in [vec!["3"], vec!["3", "x"], vec!["-1", "4"]] {
            assert!(command().try_get_matches_from(["ringfence", "keeper"].iter().chain(&words)).is_err());
        }
    }
}
