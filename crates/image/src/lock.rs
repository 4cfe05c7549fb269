//! The list of pinned packages: read, and cut to what one Python needs.
//!
//! A subset of pip's requirements format: `name==version [; marker] \` followed by `--hash=sha256:...` lines. The
//! markers that occur compare `python_full_version` only; whatever else is an error, found by a test.

use sha2::{Digest, Sha256};

use crate::ImageError;
use crate::python::Version;

/// The list, as it is built into the program.
pub(crate) const SCIENTIFIC: &str = include_str!("scientific.lock");

/// One pinned package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Requirement {
    /// `name==version`.
    pub(crate) pin: String,
    /// SHA-256 digests of the wheels that are fit for it, lower-case hexadecimal.
    pub(crate) digests: Vec<String>,
}

impl Requirement {
    /// The requirement as pip reads it, without a marker.
    pub(crate) fn as_pip_text(&self) -> String {
        let mut text = self.pin.clone();
        for digest in &self.digests {
            text.push_str(" \\\n    --hash=sha256:");
            text.push_str(digest);
        }
        text.push('\n');
        text
    }
}

/// The digest of a text, lower-case hexadecimal.
pub(crate) fn digest_of(text: &str) -> String {
    hexadecimal(&Sha256::digest(text.as_bytes()))
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The packages of `list` that a Python of `version` needs, in the list's order.
pub(crate) fn requirements(list: &str, version: Version) -> Result<Vec<Requirement>, ImageError> {
    let mut wanted = Vec::new();
    let mut skipping = false;
    for (at, line) in list.lines().enumerate() {
        let wrong = || ImageError::List { line: at + 1, text: line.to_owned() };
        let text = line.trim_end_matches('\\').trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if let Some(digest) = text.strip_prefix("--hash=sha256:") {
            if !skipping {
                wanted
                    .last_mut()
                    .map(|last: &mut Requirement| last.digests.push(digest.to_owned()))
                    .ok_or_else(wrong)?;
            }
            continue;
        }
        let (pin, marker) = text.split_once(';').unwrap_or((text, ""));
        if !pin.contains("==") {
            return Err(wrong());
        }
        skipping = !marker_holds(marker, version).ok_or_else(wrong)?;
        if !skipping {
            wanted.push(Requirement { pin: pin.trim().to_owned(), digests: Vec::new() });
        }
    }
    Ok(wanted)
}

/// Whether the marker holds; `None` where it is not understood.
fn marker_holds(marker: &str, version: Version) -> Option<bool> {
    let mut holds = true;
    for term in marker.split(" and ").map(str::trim).filter(|term| !term.is_empty()) {
        let mut words = term.split_whitespace();
        let (name, operator, quoted) = (words.next()?, words.next()?, words.next()?);
        if name != "python_full_version" || words.next().is_some() {
            return None;
        }
        let quoted = quoted.strip_prefix('\'')?.strip_suffix('\'')?;
        holds &= match operator {
            "==" => (version.major, version.minor) == two_parts(quoted.strip_suffix(".*")?)?,
            ">=" => version >= three_parts(quoted)?,
            "<" => version < three_parts(quoted)?,
            _ => return None,
        };
    }
    Some(holds)
}

fn two_parts(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn three_parts(text: &str) -> Option<Version> {
    let mut parts = text.split('.').map(|part| part.parse().ok());
    let version = Version { major: parts.next()??, minor: parts.next()??, micro: parts.next().unwrap_or(Some(0))? };
    parts.next().is_none().then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &str = include_str!("scientific.in");

    fn version(minor: u32, micro: u32) -> Version {
        Version { major: 3, minor, micro }
    }

    #[test]
    fn every_python_gets_every_package_once_and_with_digests() {
        for minor in 10..=14 {
            let found = requirements(SCIENTIFIC, version(minor, 1)).unwrap();
            for name in NAMES.lines() {
                let of_name = |r: &&Requirement| r.pin.split("==").next() == Some(name);
                assert_eq!(found.iter().filter(of_name).count(), 1, "{name} for 3.{minor}");
            }
            for requirement in &found {
                assert!(!requirement.digests.is_empty(), "{} for 3.{minor}", requirement.pin);
                assert!(requirement.digests.iter().all(|digest| digest.len() == 64));
            }
            let mut names: Vec<_> = found.iter().filter_map(|r| r.pin.split("==").next()).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), found.len(), "a package twice for 3.{minor}");
        }
    }

    #[test]
    fn markers_choose_by_version() {
        let list = "a==1 ; python_full_version == '3.10.*' \\\n    --hash=sha256:aa\n\
                    a==2 ; python_full_version >= '3.11' and python_full_version < '3.11.5'\n    --hash=sha256:bb\n";
        let pins = |v| requirements(list, v).unwrap().into_iter().map(|r| (r.pin, r.digests)).collect::<Vec<_>>();
        assert_eq!(pins(version(10, 13)), [("a==1".to_owned(), vec!["aa".to_owned()])]);
        assert_eq!(pins(version(11, 4)), [("a==2".to_owned(), vec!["bb".to_owned()])]);
        assert_eq!(pins(version(11, 5)), []);
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for list in ["a", "--hash=sha256:aa", "a==1 ; sys_platform == 'win32'", "a==1 ; python_full_version ~= '3.1'"] {
            assert!(requirements(list, version(11, 0)).is_err(), "{list}");
        }
    }
}
