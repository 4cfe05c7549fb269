//! What the tiers `confined` and `gvisor` do not promise, as data, and a way to see that each is still true.

use ringfence_probe::Address;
use serde::Deserialize;

use crate::catalogue::{CatalogueError, PRELUDE, Tool};
use crate::target::Session;

const CONFINED: &str = include_str!("../../../security/weaknesses.toml");
const GVISOR: &str = include_str!("../../../security/weaknesses-gvisor.toml");

/// Under which servers a session is weak in some way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ids {
    /// All.
    Any,
    /// Those that have one id for all sessions.
    One,
}

/// One thing that is not promised, or is different.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weakness {
    /// Its name, unique.
    pub name: String,
    /// Where it is so.
    pub ids: Ids,
    /// A sentence without a full stop.
    pub about: String,
    /// A shell command that goes before the program.
    #[serde(default)]
    shell: Option<String>,
    /// Python that prints `open` as its last line, as long as it is true.
    program: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    weakness: Vec<Weakness>,
}

/// All of the tier `confined`.
///
/// # Errors
/// When the built-in list is malformed.
pub fn weaknesses() -> Result<Vec<Weakness>, CatalogueError> {
    read("../weaknesses", CONFINED)
}

/// All of the tier `gvisor`.
///
/// # Errors
/// As [`weaknesses`].
pub fn sandbox_weaknesses() -> Result<Vec<Weakness>, CatalogueError> {
    read("../weaknesses-gvisor", GVISOR)
}

fn read(name: &'static str, text: &str) -> Result<Vec<Weakness>, CatalogueError> {
    let file: File = toml::from_str(text).map_err(|cause| CatalogueError::of(name, cause))?;
    Ok(file.weakness)
}

impl Weakness {
    /// Runs its program in a session of the backend; `names` are Python assignments for what programs need to know.
    ///
    /// # Errors
    /// What the program came to, where it did not find the weakness.
    pub fn show(&self, address: &Address, names: &str) -> Result<(), String> {
        let mut session = Session::lease(address)?;
        if let Some(shell) = &self.shell {
            session.run(Tool::Bash, shell, 20)?;
        }
        let program = format!("{PRELUDE}\n{names}\n{}", self.program);
        let called = session.run(Tool::Python, &program, 60)?;
        if called.stdout.lines().last() == Some("open") {
            return Ok(());
        }
        Err(format!("{}: {}", self.name, called.whole))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_weakness_has_a_name_a_sentence_and_a_program_that_can_fail() {
        let mut all = weaknesses().unwrap();
        all.extend(sandbox_weaknesses().unwrap());
        let names: HashSet<_> = all.iter().map(|one| &one.name).collect();
        assert_eq!(names.len(), all.len());
        for one in &all {
            assert!(!one.about.ends_with('.') && one.about.len() > 20, "{}", one.name);
            assert!(one.program.contains("'open'") && one.program.contains("print("), "{}", one.name);
        }
    }
}
