//! `ringfence doctor`: what this host offers, which tier that allows, and what lifts what is missing.
//!
//! Needs no server, no image and no privilege; starts nothing that stays.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use ringfence_attack::{Ids, sandbox_weaknesses, weaknesses};
use ringfence_host::{BUILT, Choice, Facts, Look, Missing, Row, can, choose, of_cell, rows};
use ringfence_op::Tier;
use serde_json::json;

use crate::client_commands::{complain, print};
use crate::failure::Kind;

/// Below the options.
const AFTER: &str = "\
Exit status: 0 the host offers a tier that is at least as strong as --tier-min, or none was asked for; 1 it could not \
be looked at; 2 the command line is wrong; 4 it offers no such tier.

Example: ringfence doctor --json

Run it as the user who is to run `ringfence serve`, and where it is to run: in the same container or unit.";

/// Its line of the command line.
pub(crate) fn command() -> Command {
    let names = BUILT.iter().map(|tier| tier.as_str());
    Command::new("doctor")
        .about("Shows what this host offers, which tier that allows, and what lifts what is missing")
        .after_help(AFTER)
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("The same for programs"))
        .arg(
            Arg::new("tier-min")
                .long("tier-min")
                .value_name("TIER")
                .value_parser(PossibleValuesParser::new(names))
                .help("Exit with 4 where no tier at least as strong as this one can be had"),
        )
        .arg(
            Arg::new("id-base")
                .long("id-base")
                .value_name("ID")
                .default_value("1000000000")
                .value_parser(clap::value_parser!(u32).range(65_536..=i64::from(u32::MAX - 65_536)))
                .help("As for `serve`: the first of the host ids that cells run under"),
        )
}

/// Looks, tells, and ends with the status that the help names.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    let look = Look {
        program: Path::new("/proc/self/exe"),
        id_base: matches.get_one::<u32>("id-base").copied().unwrap_or_default(),
        ask_runsc: true,
        try_cell: true,
        try_gvisor: true,
    };
    let facts = match Facts::find(&look).context("cannot look at what this host offers") {
        Ok(facts) => facts,
        Err(error) => {
            complain(&error);
            return ExitCode::FAILURE;
        }
    };
    let least = matches.get_one::<String>("tier-min").and_then(|name| Tier::parse(name));
    let chosen = choose(Choice::Auto, least.unwrap_or(Tier::Cell), &facts).ok();
    print(if matches.get_flag("json") { for_programs(&facts, chosen) } else { for_people(&facts, least, chosen) });
    match (least, chosen) {
        (Some(_), None) => Kind::Isolation.code(),
        _ => ExitCode::SUCCESS,
    }
}

/// What is said of one tier.
struct Verdict {
    tier: Tier,
    outcome: Result<(), Vec<Missing>>,
}

/// All tiers that this version has, strongest first.
fn verdicts(facts: &Facts) -> Vec<Verdict> {
    BUILT.iter().rev().map(|tier| Verdict { tier: *tier, outcome: can(*tier, facts) }).collect()
}

fn for_programs(facts: &Facts, chosen: Option<Tier>) -> String {
    let tiers = verdicts(facts).into_iter().map(|verdict| {
        let missing = verdict.outcome.err().unwrap_or_default();
        let not_promised = not_promised(verdict.tier, facts);
        let available = missing.is_empty();
        json!({"tier": verdict.tier, "available": available, "missing": missing, "not_promised": not_promised})
    });
    let report = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "auto": chosen,
        "tiers": tiers.collect::<Vec<_>>(),
        "rows": rows(facts),
        "facts": facts,
    });
    format!("{report:#}\n")
}

/// What this tier does not promise to whoever runs the server here, beyond what SECURITY.md says of all.
fn not_promised(tier: Tier, facts: &Facts) -> Vec<String> {
    let one_id = facts.user.id != 0;
    // The lists are built in, and tests read them.
    let all = match tier {
        Tier::Confined => weaknesses(),
        Tier::Gvisor => sandbox_weaknesses(),
        Tier::Cell | Tier::None => return Vec::new(),
    };
    let all = all.unwrap_or_default().into_iter();
    all.filter(|one| one_id || one.ids == Ids::Any).map(|one| one.about).collect()
}

fn for_people(facts: &Facts, least: Option<Tier>, chosen: Option<Tier>) -> String {
    let rows = rows(facts);
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let mut text = String::from("This host\n");
    for Row { name, found, lift } in &rows {
        text.push_str(&format!("  {name:width$}  {found}\n"));
        if let Some(lift) = lift {
            text.push_str(&format!("  {:width$}    to have it: {lift}\n", ""));
        }
    }
    text.push_str("\nTiers, strongest first\n");
    for Verdict { tier, outcome } in verdicts(facts) {
        let detail = if tier == Tier::Cell { of_cell(&facts.cell) } else { None };
        match outcome {
            Ok(()) => {
                let detail = detail.map(|detail| format!(": {detail}")).unwrap_or_default();
                text.push_str(&format!("  {:width$}  yes{detail}\n", tier.as_str()));
                for about in not_promised(tier, facts) {
                    text.push_str(&format!("  {:width$}    not promised: {about}\n", ""));
                }
            }
            Err(missing) => {
                for Missing { what, lift } in missing {
                    text.push_str(&format!("  {:width$}  no: {what}\n", tier.as_str()));
                    text.push_str(&format!("  {:width$}    to have it: {lift}\n", ""));
                }
            }
        }
    }
    let weaker = choose(Choice::Auto, Tier::Confined, facts).ok();
    let serve = match least {
        Some(least) => format!("`ringfence serve --tier-min {least}`"),
        None => "`ringfence serve`".to_owned(),
    };
    text.push_str(&match (chosen, weaker) {
        (Some(tier), _) => format!("\n{serve} takes: {tier}\n"),
        (None, Some(tier)) => format!("\n{serve} does not start; with `--tier-min {tier}` it takes: {tier}\n"),
        (None, None) => format!("\n{serve} does not start\n"),
    });
    text
}
