//! Backends that are broken in one place, each found by the check of that place and by no other.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod exec;
mod files;
mod lease;
mod sessions;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ringfence_client::BearerToken;
use ringfence_conformance::{Options, Outcome, Report, Severity, catalogue, run};
use ringfence_fake::{Asked, Fake, Quirks, Reply, Rules};
use serde_json::Value;

/// A backend that is broken in one place.
pub(crate) struct Breakage {
    /// What is wrong with it.
    pub(crate) name: &'static str,
    /// The check that finds it.
    pub(crate) found_by: &'static str,
    pub(crate) rules: Rules,
}

/// An answer that is changed on its way out.
pub(crate) fn twisted(
    name: &'static str,
    found_by: &'static str,
    twist: impl Fn(&Asked, Reply) -> Reply + Send + Sync + 'static,
) -> Breakage {
    Breakage { name, found_by, rules: Rules { twist: Some(Arc::new(twist)), ..Rules::default() } }
}

/// The JSON of those answers changed, of which the first function says so.
pub(crate) fn edited(
    name: &'static str,
    found_by: &'static str,
    of: impl Fn(&Asked, &Reply) -> bool + Send + Sync + 'static,
    change: impl Fn(&mut Value) + Send + Sync + 'static,
) -> Breakage {
    twisted(name, found_by, move |asked, reply| if of(asked, &reply) { reply.changed(&change) } else { reply })
}

/// Another status for those answers, of which the function says so.
pub(crate) fn answering(
    status: u16,
    name: &'static str,
    found_by: &'static str,
    of: impl Fn(&Asked, &Reply) -> bool + Send + Sync + 'static,
) -> Breakage {
    twisted(name, found_by, move |asked, reply| if of(asked, &reply) { Reply { status, ..reply } } else { reply })
}

/// A fault of the backend itself.
pub(crate) fn faulty(name: &'static str, found_by: &'static str, set: impl FnOnce(&mut Quirks)) -> Breakage {
    let mut quirks = Quirks::default();
    set(&mut quirks);
    Breakage { name, found_by, rules: Rules { quirks, ..Rules::default() } }
}

pub(crate) async fn report(fake: &Fake, token: Option<&str>) -> Report {
    let mut options = Options::new(fake.url());
    options.token = token.map(|token| BearerToken::new(token).unwrap());
    // Only a backend that never answers takes this long.
    options.headroom = Duration::from_millis(500);
    run(&options, &mut |_| {}).await.unwrap()
}

fn failed(report: &Report) -> Vec<&'static str> {
    report.checks.iter().filter(|row| matches!(row.outcome, Outcome::Fail(_))).map(|row| row.id).collect()
}

#[tokio::test]
async fn a_correct_backend_passes_everything() {
    let rules = Rules { token: Some("s3cret".to_owned()), ..Rules::default() };
    let fake = Fake::start(rules).await.unwrap();
    let report = report(&fake, Some("s3cret")).await;
    for row in &report.checks {
        assert_eq!(row.outcome, Outcome::Pass, "{}", row.id);
    }
    assert!(report.conforming);
    assert_eq!(fake.sessions(), 0, "every leased session is released");
}

#[tokio::test]
async fn a_backend_without_file_operations_conforms() {
    let fake = Fake::start(Rules { without_files: true, ..Rules::default() }).await.unwrap();
    let report = report(&fake, None).await;
    assert!(report.conforming, "{:?}", failed(&report));
    for row in &report.checks {
        let of_files = ["files.", "upload.", "confine.", "gone.list", "gone.read", "gone.put"];
        let skipped = matches!(row.outcome, Outcome::Skip(_));
        let expected = of_files.iter().any(|group| row.id.starts_with(group)) || row.id == "credential.missing";
        assert_eq!(skipped, expected, "{}", row.id);
    }
}

#[tokio::test]
async fn each_broken_backend_is_found_by_its_check_alone() {
    let breakages: Vec<Breakage> = [lease::breakages(), exec::breakages(), sessions::breakages(), files::breakages()]
        .into_iter()
        .flatten()
        .collect();
    assert!(breakages.len() >= 25);
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    for Breakage { name, found_by, rules } in breakages {
        let token = rules.token.clone();
        let fake = Fake::start(rules).await.unwrap();
        let report = report(&fake, token.as_deref()).await;
        if failed(&report) != [found_by] || report.conforming {
            wrong.push(format!("{name}: wanted {found_by}, found {:?}", failed(&report)));
        }
        used.insert(found_by);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // A check that nothing fails proves nothing.
    let conformance = catalogue().filter(|check| check.severity == Severity::Conformance);
    let idle: Vec<&str> = conformance.map(|check| check.id).filter(|id| !used.contains(id)).collect();
    assert!(idle.is_empty(), "no broken backend is found by {idle:?}");
}
