//! The attacks, as data.

use serde::Deserialize;
use thiserror::Error;

use crate::door::Door;

/// What kind of wall an attack runs against; one file of `security/attacks/` each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Out of the cell.
    Escape,
    /// Into another session.
    Neighbours,
    /// At the daemon and the keeper.
    Daemon,
    /// By using things up.
    Exhaustion,
    /// Through the file operations.
    Files,
    /// At what holds a session that has no namespaces: rules, filter, ids, the guard.
    Confined,
    /// At the HTTP door, with bytes that no client sends.
    Door,
}

impl Class {
    /// The name of its file and of its line in the report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Class::Escape => "escape",
            Class::Neighbours => "neighbours",
            Class::Daemon => "daemon",
            Class::Exhaustion => "exhaustion",
            Class::Files => "files",
            Class::Confined => "confined",
            Class::Door => "door",
        }
    }
}

const FILES: [(Class, &str); 7] = [
    (Class::Escape, include_str!("../../../security/attacks/escape.toml")),
    (Class::Neighbours, include_str!("../../../security/attacks/neighbours.toml")),
    (Class::Daemon, include_str!("../../../security/attacks/daemon.toml")),
    (Class::Exhaustion, include_str!("../../../security/attacks/exhaustion.toml")),
    (Class::Files, include_str!("../../../security/attacks/files.toml")),
    (Class::Confined, include_str!("../../../security/attacks/confined.toml")),
    (Class::Door, include_str!("../../../security/attacks/door.toml")),
];

/// Names that the programs of every attack use.
pub(crate) const PRELUDE: &str = include_str!("../../../security/prelude.py");

/// One attack.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attack {
    /// Its name, unique.
    pub name: String,
    /// What it tries, and why that would be bad.
    pub about: String,
    /// The tiers that claim to hold it; without, all do.
    #[serde(default)]
    tiers: Vec<String>,
    /// Python that a second session runs first.
    #[serde(default)]
    pub(crate) setup: Option<String>,
    /// What runs `program`.
    #[serde(default)]
    pub(crate) tool: Tool,
    /// The attack.
    #[serde(default)]
    pub(crate) program: String,
    /// The attack, where it is no program but what a connection sends.
    #[serde(default)]
    pub(crate) door: Option<Door>,
    /// What its call must come to.
    #[serde(default)]
    pub(crate) expect: Expect,
    /// `timeout_seconds` of its call.
    #[serde(default = "timeout_default")]
    pub(crate) timeout: u64,
    /// Python that must hold afterwards: in the second session where there is a setup, else in the attacker's own.
    #[serde(default)]
    pub(crate) check: Option<String>,
    /// What the daemon is asked for afterwards.
    #[serde(default)]
    pub(crate) request: Vec<Request>,
}

impl Attack {
    /// Whether sessions held by this tier (as `GET /health` names it) are claimed to withstand it.
    #[must_use]
    pub fn is_claimed_by(&self, tier: &str) -> bool {
        self.tiers.is_empty() || self.tiers.iter().any(|claiming| claiming == tier)
    }
}

fn timeout_default() -> u64 {
    10
}

/// What runs a program.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tool {
    /// `code_execution`.
    #[default]
    Python,
    /// `bash_code_execution`.
    Bash,
}

/// What an attack's call must come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Expect {
    /// Its last line of stdout is `held`.
    #[default]
    Held,
    /// Any result, in time.
    Any,
}

/// A file operation and the statuses that are right.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// GetFile of this path.
    #[serde(default)]
    pub(crate) get: Option<String>,
    /// PutFile to this path.
    #[serde(default)]
    pub(crate) put: Option<String>,
    /// ListFiles of this path.
    #[serde(default)]
    pub(crate) list: Option<String>,
    /// The right statuses.
    pub(crate) status: Vec<u16>,
    /// How often to ask.
    #[serde(default = "once")]
    pub(crate) repeat: u32,
}

fn once() -> u32 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    attack: Vec<Attack>,
}

/// Why the built-in catalogue cannot be read.
#[derive(Debug, Error)]
#[error("security/attacks/{file}.toml cannot be read")]
pub struct CatalogueError {
    file: &'static str,
    #[source]
    cause: toml::de::Error,
}

impl CatalogueError {
    pub(crate) fn of(file: &'static str, cause: toml::de::Error) -> CatalogueError {
        CatalogueError { file, cause }
    }
}

/// All attacks, class by class.
///
/// # Errors
/// When a file of the catalogue is malformed.
pub fn catalogue() -> Result<Vec<(Class, Attack)>, CatalogueError> {
    let mut attacks = Vec::new();
    for (class, text) in FILES {
        let file: File = toml::from_str(text).map_err(|cause| CatalogueError { file: class.name(), cause })?;
        attacks.extend(file.attack.into_iter().map(|attack| (class, attack)));
    }
    Ok(attacks)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_attack_can_be_read_and_can_fail() {
        let attacks = catalogue().unwrap();
        assert!(attacks.len() >= 60, "{} attacks", attacks.len());
        let mut names = HashSet::new();
        for (_, attack) in &attacks {
            assert!(names.insert(&attack.name), "{} stands twice", attack.name);
            assert_eq!(attack.program.is_empty(), attack.door.is_some(), "{}: a program or a connection", attack.name);
            let judged = attack.expect == Expect::Held || attack.check.is_some() || !attack.request.is_empty();
            assert!(judged, "{}: nothing could make it fail", attack.name);
            let known = |tier: &String| ["cell", "confined"].contains(&tier.as_str());
            assert!(attack.tiers.iter().all(known), "{}: {:?}", attack.name, attack.tiers);
        }
    }
}
