//! Runs attacks one after another, each with two sessions of its own.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use ringfence_probe::Address;
use serde::Serialize;

use crate::catalogue::{Attack, Class, Expect, PRELUDE, Request, Tool};
use crate::door;
use crate::target::{Called, Session, is_healthy, start_of, tier};

/// How much later than its timeout a call may answer, as a caller sees it.
const LATE_AFTER: Duration = Duration::from_secs(6);
/// How long the second session's print may take while and after it is attacked.
const NEIGHBOUR_WAIT_MAX: Duration = Duration::from_secs(10);

/// What came of one attack.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: &'static str,
    /// Whether it was held.
    pub held: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finding: Option<String>,
}

/// Totals of a class.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct ClassTotal {
    /// Attacks that were held.
    pub held: u32,
    /// Attacks that were not, or could not be run.
    pub failed: u32,
}

/// What came of all of them.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Each attack.
    pub findings: Vec<Finding>,
    /// By class.
    pub classes: BTreeMap<&'static str, ClassTotal>,
    /// How the backend says that it holds sessions.
    pub tier: String,
    /// Attacks that this tier does not claim to hold, which were not run.
    pub unclaimed: u32,
}

impl Report {
    /// Whether every attack was held.
    #[must_use]
    pub fn all_held(&self) -> bool {
        self.findings.iter().all(|finding| finding.held)
    }

    /// For people: the failures, then held and failed by class.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        for finding in self.findings.iter().filter(|finding| !finding.held) {
            let why = finding.finding.as_deref().unwrap_or("");
            let _ = writeln!(out, "FAILED {} ({}): {why}", finding.name, finding.class);
        }
        let _ = writeln!(out, "{:<12} {:>5} {:>7}", "class", "held", "failed");
        for (class, total) in &self.classes {
            let _ = writeln!(out, "{class:<12} {:>5} {:>7}", total.held, total.failed);
        }
        let held = self.findings.iter().filter(|finding| finding.held).count();
        let _ = writeln!(out, "{held} held, {} failed", self.findings.len() - held);
        if self.unclaimed > 0 {
            let _ = writeln!(out, "{} not run: not claimed by tier {}", self.unclaimed, self.tier);
        }
        out
    }
}

/// Runs the attacks; `progress` hears of each as it ends. A backend that does not answer makes every attack fail.
pub fn run(address: &Address, attacks: &[(Class, Attack)], mut progress: impl FnMut(&Finding)) -> Report {
    let mut report = Report { findings: Vec::new(), classes: BTreeMap::new(), tier: tier(address), unclaimed: 0 };
    for (class, attack) in attacks {
        if !attack.is_claimed_by(&report.tier) {
            report.unclaimed += 1;
            continue;
        }
        let outcome = match &attack.door {
            Some(door) => door::attempt(address, door),
            None => attempt(address, attack),
        };
        let finding =
            Finding { name: attack.name.clone(), class: class.name(), held: outcome.is_ok(), finding: outcome.err() };
        let total = report.classes.entry(class.name()).or_default();
        if finding.held {
            total.held += 1;
        } else {
            total.failed += 1;
        }
        progress(&finding);
        report.findings.push(finding);
    }
    report
}

/// One attack; the error is the finding.
fn attempt(address: &Address, attack: &Attack) -> Result<(), String> {
    let port = address.port();
    let mut other = Session::lease(address)?;
    let mut mine = Session::lease(address)?;
    prepare(&mut other, port)?;
    if let Some(setup) = &attack.setup {
        other.run(Tool::Python, setup, 20)?;
    }
    if matches!(attack.tool, Tool::Python) {
        prepare(&mut mine, port)?;
    }
    let called = mine.run(attack.tool, &attack.program, attack.timeout)?;
    if called.took > Duration::from_secs(attack.timeout) + LATE_AFTER {
        return Err(format!("answered after {:.1} s of a timeout of {} s", called.took.as_secs_f64(), attack.timeout));
    }
    if attack.expect == Expect::Held {
        must_be_held("the attack", &called)?;
    }
    for request in &attack.request {
        ask(&mut mine, request)?;
    }
    if let Some(check) = &attack.check {
        let session = if attack.setup.is_some() { &mut other } else { &mut mine };
        if attack.setup.is_none() {
            prepare(session, port)?;
        }
        must_be_held("the check afterwards", &session.run(Tool::Python, check, 20)?)?;
    }
    let neighbour = other.run(Tool::Python, "print('neighbour')", 20)?;
    if neighbour.stdout != "neighbour\n" || neighbour.took > NEIGHBOUR_WAIT_MAX {
        return Err(format!("the second session suffered: {:.1} s, {}", neighbour.took.as_secs_f64(), neighbour.whole));
    }
    if is_healthy(address) { Ok(()) } else { Err("the server no longer answers GET /health".to_owned()) }
}

fn prepare(session: &mut Session, port: &str) -> Result<(), String> {
    let called = session.run(Tool::Python, &format!("{PRELUDE}\nPORT = {port:?}\nprint('prepared')"), 20)?;
    if called.stdout == "prepared\n" { Ok(()) } else { Err(format!("the prelude failed: {}", called.whole)) }
}

fn must_be_held(what: &str, called: &Called) -> Result<(), String> {
    if called.stdout.lines().last() == Some("held") {
        return Ok(());
    }
    Err(format!("{what} was not held: {}", called.whole))
}

fn ask(session: &mut Session, request: &Request) -> Result<(), String> {
    for _ in 0..request.repeat.max(1) {
        let (what, answer) = match (&request.get, &request.put, &request.list) {
            (Some(path), None, None) => (format!("GetFile {path}"), session.get(path)?),
            (None, Some(path), None) => (format!("PutFile {path}"), session.put(path)?),
            (None, None, Some(path)) => (format!("ListFiles {path}"), session.list(path)?),
            _ => return Err("a request names exactly one of get, put, list".to_owned()),
        };
        if !request.status.contains(&answer.status) {
            return Err(format!("{what} answered {}: {}", answer.status, start_of(&answer)));
        }
        if answer.body.windows(5).any(|five| five == b"root:") {
            return Err(format!("{what} served a file of the host"));
        }
    }
    Ok(())
}
