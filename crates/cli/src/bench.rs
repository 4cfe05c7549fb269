//! `ringfence bench`: measures a backend, alone or beside another.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use ringfence_bench::{Options, Report, Soak, works};
use ringfence_secret::read_regular;

use crate::client_commands::{Connection, connection_args, judged, print};
use crate::limits::REPORT_BYTES_MAX;

const AFTER: &str = "\
Measures any backend of the contract over HTTP: latencies (p50 / p99), rates, transfers. With --peer-url a second \
backend is measured in turn with the first, and the ratio of the two is shown. The first line is the machine's floor: a \
fixed answer of a bare server. Figures are medians of the rounds.

`--only growth` takes every work that shows how figures grow with sessions and files; --charts draws such a report.

Example: ringfence bench --base-url http://127.0.0.1:8080 --peer-url http://127.0.0.1:9090 --only print,lease

Exit status: 0 every work gave a figure, 1 some failed, 2 nothing could be measured (wrong arguments).";

/// Its line of the command line.
pub(crate) fn command() -> Command {
    let only = Arg::new("only").long("only").value_name("WORK").value_delimiter(',').action(ArgAction::Append);
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let number = |name: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("N").default_value(default).value_parser(value_parser!(u64)).help(help)
    };
    Command::new("bench")
        .about("Measures a backend, alone or beside another")
        .after_help(AFTER)
        .args(connection_args())
        .arg(Arg::new("peer-url").long("peer-url").value_name("URL").help("A second backend, measured in turn"))
        .arg(only.help("Only these works; the long ones run only when they are named"))
        .arg(number("rounds", "5", "Rounds that each median is of"))
        .arg(number("samples", "1000", "Operations in a round of the quick works; the slow ones take a part of it"))
        .arg(number("seconds", "5", "Seconds of a round of the works that count a rate"))
        .arg(number("sessions", "200", "Live sessions of `density`"))
        .arg(number("soak-execs", "100000", "Calls of `soak`"))
        .arg(number("soak-leases", "5000", "Sessions that the calls of `soak` are spread over"))
        .arg(number("for", "0", "Seconds after which `soak` ends, whatever it has reached; 0 for none"))
        .arg(flag("json", "Report as JSON"))
        .arg(charts_arg())
        .arg(flag("list", "Show every work, and end"))
}

fn charts_arg() -> Arg {
    let help = "Measures nothing: prints the growth in this report of --json as Markdown with Mermaid charts";
    Arg::new("charts").long("charts").value_name("REPORT").value_parser(value_parser!(PathBuf)).help(help)
}

/// Measures, and reports.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    if matches.get_flag("list") {
        for work in works() {
            print(format!("{:18} {}{}\n", work.name, work.about, if work.long { " (long)" } else { "" }));
        }
        return ExitCode::SUCCESS;
    }
    judged(match matches.get_one::<PathBuf>("charts") {
        Some(report) => charts(report),
        None => bench(matches),
    })
}

fn charts(path: &Path) -> anyhow::Result<bool> {
    let shown = path.display();
    let bytes = read_regular(path, REPORT_BYTES_MAX)?;
    let report: Report = serde_json::from_slice(&bytes).with_context(|| format!("{shown} is no report of --json"))?;
    let charts = report.to_charts();
    anyhow::ensure!(!charts.is_empty(), "{shown} has no two figures of one growth; see --only growth");
    print(charts);
    Ok(true)
}

fn bench(matches: &ArgMatches) -> anyhow::Result<bool> {
    use std::io::Write;

    let connection = Connection::of(matches)?;
    let number = |name: &str| matches.get_one::<u64>(name).copied().unwrap_or(1);
    let options = Options {
        backend: connection.address()?,
        peer: matches.get_one::<String>("peer-url").map(|url| connection.peer(url)).transpose()?,
        only: matches.get_many::<String>("only").into_iter().flatten().cloned().collect(),
        rounds: usize::try_from(number("rounds"))?,
        samples: number("samples"),
        seconds: number("seconds"),
        sessions: number("sessions"),
        soak: Soak { execs: number("soak-execs"), leases: number("soak-leases"), seconds: number("for") },
    };
    let report = ringfence_bench::run(&options, |work| {
        // Progress is for whoever watches: where it cannot be written, nobody does.
        let _ = writeln!(std::io::stderr(), "measuring {work}");
    })?;
    let json = matches.get_flag("json");
    print(if json { serde_json::to_string_pretty(&report)? + "\n" } else { report.to_text() });
    Ok(report.complete())
}
