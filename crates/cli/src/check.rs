//! `ringfence check`: whether a backend follows the contract.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use ringfence_conformance::{Options, Report, catalogue, junit, text};
use serde_json::json;

use crate::client_commands::{Connection, block_on, connection_args, judged, print};

const AFTER: &str = "\
Checks any backend of contract version 1 from outside: it leases sessions, runs small programs in them, and judges \
every answer. Optional operations that are not served are skipped. With --strict it also tells how the backend behaves \
beyond the contract; that is advice, and changes nothing about the verdict. Strict programs fill memory, disk and \
process tables of their sessions: run them against a backend that may suffer.

Example: ringfence check --base-url http://127.0.0.1:8080 --strict

Exit status: 0 the backend conforms, 1 it does not, 2 nothing could be checked (no such backend, one that lets nobody in, no \
credential, no room, wrong arguments).";

/// Its line of the command line.
pub(crate) fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let only = Arg::new("only").long("only").value_name("ID").value_delimiter(',').action(ArgAction::Append);
    let format = Arg::new("format").long("format").value_parser(["text", "json", "junit"]).default_value("text");
    let output = Arg::new("output").long("output").value_name("FILE").value_parser(value_parser!(PathBuf));
    Command::new("check")
        .about("Checks whether a backend follows the contract")
        .after_help(AFTER)
        .args(connection_args())
        .arg(flag("strict", "Also check the behaviour beyond the contract, as advice"))
        .arg(only.help("Only these checks, or groups of them (lease, exec.echo)"))
        .arg(format.help("How to report"))
        .arg(flag("json", "The same as --format json").conflicts_with("format"))
        .arg(output.help("Write the report to a file; the text table still goes to standard output"))
        .arg(flag("list", "Show every check with its clause, and end"))
}

/// Checks, and reports.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    if matches.get_flag("list") {
        print(listing(matches.get_flag("json")));
        return ExitCode::SUCCESS;
    }
    judged(block_on(check(matches)))
}

async fn check(matches: &ArgMatches) -> anyhow::Result<bool> {
    let only = matches.get_many::<String>("only").into_iter().flatten().cloned().collect();
    let connection = Connection::of(matches)?;
    connection.scheme()?;
    let options = Options { strict: matches.get_flag("strict"), only, ..connection.options() };
    let format = match matches.get_one::<String>("format") {
        _ if matches.get_flag("json") => "json",
        format => format.map_or("text", String::as_str),
    };
    let output = matches.get_one::<PathBuf>("output");
    let table = output.is_some() || format == "text";
    let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let report = ringfence_conformance::run(&options, &mut |row| {
        if table {
            print(text::row(row, colours));
        }
    })
    .await?;
    if table {
        print(text::summary(&report));
    }
    match output {
        Some(path) => std::fs::write(path, document(&report, format)?).with_context(|| path.display().to_string())?,
        None if format != "text" => print(document(&report, format)?),
        None => {}
    }
    Ok(report.conforming)
}

fn document(report: &Report, format: &str) -> anyhow::Result<String> {
    Ok(match format {
        "json" => report.json()? + "\n",
        "junit" => junit::document(report),
        _ => report.checks.iter().map(|row| text::row(row, false)).collect::<String>() + &text::summary(report),
    })
}

fn listing(as_json: bool) -> String {
    if as_json {
        let all: Vec<_> = catalogue()
            .map(|check| json!({"id": check.id, "title": check.title, "severity": check.severity, "clause": check.clause}))
            .collect();
        return format!("{}\n", json!(all));
    }
    catalogue()
        .map(|check| {
            format!("{:28}  {}\n{:30}{}: {}\n", check.id, check.title, "", check.clause.section, check.clause.says)
        })
        .collect()
}
