//! The build that can leave mitigations out.

#![allow(clippy::panic, clippy::print_stderr, reason = "a program for proofs says what is wrong with it and ends")]

use std::ffi::CString;
use std::sync::OnceLock;

use crate::names::Mitigation;

/// Names, separated by commas.
const VARIABLE: &str = "WEAKENED";

static LEFT_OUT: OnceLock<Vec<Mitigation>> = OnceLock::new();

fn named() -> &'static [Mitigation] {
    LEFT_OUT.get_or_init(|| {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        let find = |name: &str| Mitigation::ALL.iter().copied().find(|known| known.name() == name);
        let names = text.split(',').filter(|name| !name.is_empty());
        names.map(|name| find(name).unwrap_or_else(|| panic!("there is no mitigation {name}"))).collect()
    })
}

/// Whether the mitigation is in force. Child-safe once it was asked before.
#[must_use]
pub fn holds(mitigation: Mitigation) -> bool {
    !named().contains(&mitigation)
}

/// The variable, for a program that is started with an empty environment otherwise.
#[must_use]
pub fn environment() -> Vec<CString> {
    let names: Vec<_> = left_out();
    CString::new(format!("{VARIABLE}={}", names.join(","))).into_iter().collect()
}

/// The names of what is left out.
#[must_use]
pub fn left_out() -> Vec<&'static str> {
    named().iter().map(|one| one.name()).collect()
}

/// A program in Python without the lines of what is left out.
///
/// # Panics
/// Where the program, told by its first words, has not got such a line: then the list of lines is out of date.
#[must_use]
pub fn kept_source(mut source: String) -> String {
    for mitigation in named() {
        for (program, line) in mitigation.python_lines() {
            if !source.starts_with(program) {
                continue;
            }
            let whole = format!("\n{line}\n");
            assert!(source.contains(&whole), "{}: no line '{line}' in {program}", mitigation.name());
            let indent: String = line.chars().take_while(|c| *c == ' ').collect();
            source = source.replace(&whole, &format!("\n{indent}pass\n"));
        }
    }
    source
}
