//! `ringfence attack`: runs the attacks of `security/` against a backend.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Arg, ArgAction, ArgMatches, Command};
use ringfence_attack::{Attack, Class, catalogue};

use crate::client_commands::{Connection, connection_args, judged, print};

const AFTER: &str = "\
Attacks a backend with the programs of security/: out of the cell, into a second session, at the server, by using \
things up, through the file operations, and at the HTTP door. An attack is held when the refusal that it must meet was \
met, in time, and the server and a second session answer afterwards. It fills memory, disk and process tables of its sessions: run it \
against a backend that may suffer.

Example: ringfence attack --base-url http://127.0.0.1:8080 --only escape,neighbours

Exit status: 0 every attack was held, 1 some were not, 2 nothing could be attacked (no such \
backend, one that lets nobody in, no credential, no room, wrong arguments).";

/// Its line of the command line.
pub(crate) fn command() -> Command {
    let only = Arg::new("only").long("only").value_name("NAME").value_delimiter(',').action(ArgAction::Append);
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    Command::new("attack")
        .about("Attacks a backend, and reports which attacks were held")
        .after_help(AFTER)
        .args(connection_args())
        .arg(only.help("Only these attacks or classes"))
        .arg(flag("json", "Report as JSON"))
        .arg(flag("list", "Show every attack, and end"))
}

/// Attacks, and reports.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    judged(attack(matches))
}

fn attack(matches: &ArgMatches) -> anyhow::Result<bool> {
    let attacks = chosen(matches)?;
    if matches.get_flag("list") {
        for (class, attack) in &attacks {
            print(format!("{:12} {:40} {}\n", class.name(), attack.name, attack.about));
        }
        return Ok(true);
    }
    let address = Connection::of(matches)?.address()?;
    ringfence_attack::first_contact(&address)?;
    let json = matches.get_flag("json");
    let report = ringfence_attack::run(&address, &attacks, |finding| {
        if !json {
            print(format!("{} {} ({})\n", if finding.held { "held  " } else { "FAILED" }, finding.name, finding.class));
        }
    });
    print(if json { serde_json::to_string_pretty(&report)? + "\n" } else { format!("\n{}", report.to_text()) });
    Ok(report.all_held())
}

fn chosen(matches: &ArgMatches) -> anyhow::Result<Vec<(Class, Attack)>> {
    let all = catalogue()?;
    let only: Vec<&str> = matches.get_many::<String>("only").into_iter().flatten().map(String::as_str).collect();
    let named = |class: Class, attack: &Attack, name: &str| class.name() == name || attack.name == name;
    if let Some(unknown) = only.iter().find(|name| !all.iter().any(|(class, attack)| named(*class, attack, name))) {
        bail!("there is no attack or class named '{unknown}'; see `ringfence attack --list`");
    }
    Ok(all
        .into_iter()
        .filter(|(class, attack)| only.is_empty() || only.iter().any(|name| named(*class, attack, name)))
        .collect())
}
