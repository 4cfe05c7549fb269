//! The list of pinned packages: read, and cut to what one Python needs.
//!
//! A subset of pip's requirements format, as `uv pip compile --generate-hashes` and `pip-compile --generate-hashes` write
//! it: `name==version [; marker] \` followed by `--hash=sha256:...` lines. Markers that compare `python_full_version`
//! are judged here; any other is left to pip.

use crate::ImageError;
use crate::limits::{PACKAGE_BYTES_MAX, PACKAGES_MAX};
use crate::python::Version;

/// The first line of a lock that was written for these requirements.
pub(crate) fn header(requirements: &[String]) -> String {
    format!("{HEADER}{}", requirements.join(", "))
}

/// Whether the lock was written for other requirements, as far as it says so.
pub(crate) fn is_of_others(list: &str, requirements: &[String]) -> bool {
    list.lines().next().is_some_and(|first| first.starts_with(HEADER) && first != header(requirements))
}

const HEADER: &str = "# requirements: ";

/// One pinned package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Requirement {
    /// `name==version`.
    pub(crate) pin: String,
    /// SHA-256 digests of the wheels that are fit for it, lower-case hexadecimal.
    pub(crate) digests: Vec<String>,
    /// A marker that pip has to judge.
    pub(crate) marker: Option<String>,
}

impl Requirement {
    /// The requirement as pip reads it.
    pub(crate) fn as_pip_text(&self) -> String {
        let mut text = self.pin.clone();
        if let Some(marker) = &self.marker {
            text.push_str(" ; ");
            text.push_str(marker);
        }
        for digest in &self.digests {
            text.push_str(" \\\n    --hash=sha256:");
            text.push_str(digest);
        }
        text.push('\n');
        text
    }
}

/// The packages of `list` that a Python of `version` needs, in the list's order.
pub(crate) fn requirements(list: &str, version: Version) -> Result<Vec<Requirement>, ImageError> {
    let mut wanted = Vec::new();
    let mut skipping = false;
    for (at, line) in list.lines().enumerate() {
        let wrong = || ImageError::List { line: at + 1, text: line.to_owned() };
        let text = line.split(" #").next().unwrap_or_default().trim_end_matches('\\').trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if let Some(digest) = text.strip_prefix("--hash=sha256:") {
            if !is_digest(digest) {
                return Err(wrong());
            }
            if !skipping {
                wanted
                    .last_mut()
                    .map(|last: &mut Requirement| last.digests.push(digest.to_owned()))
                    .ok_or_else(wrong)?;
            }
            continue;
        }
        let (pin, marker) = text.split_once(';').unwrap_or((text, ""));
        let (pin, marker) = (pin.trim(), marker.trim());
        if !is_pin(pin) {
            return Err(wrong());
        }
        let holds = marker_holds(marker, version);
        skipping = holds == Some(false);
        if !skipping {
            let marker = holds.is_none().then(|| marker.to_owned());
            wanted.push(Requirement { pin: pin.to_owned(), digests: Vec::new(), marker });
        }
    }
    match wanted.iter().find(|requirement| requirement.digests.is_empty()) {
        Some(bare) => Err(ImageError::NoDigest { package: bare.pin.clone() }),
        None if wanted.len() > PACKAGES_MAX => Err(ImageError::TooManyPackages { most: PACKAGES_MAX }),
        None => Ok(wanted),
    }
}

/// A SHA-256 as 64 lower-case hexadecimal digits, which is how pip compares it.
pub(crate) fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The name of a package, as PEP 508 spells it.
pub(crate) fn is_name(text: &str) -> bool {
    is_word(text, b"._-") && text.ends_with(|last: char| last.is_ascii_alphanumeric())
}

/// The characters of a version, as PEP 440 has them.
pub(crate) fn is_version(text: &str) -> bool {
    is_word(text, b"._-+!")
}

/// Letters, digits and `more`, of a length that a file's name may have; the first is a letter or digit.
fn is_word(text: &str, more: &[u8]) -> bool {
    (1..=PACKAGE_BYTES_MAX).contains(&text.len())
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || more.contains(&b))
}

/// `name==version`, perhaps with extras, and nothing else: no option of pip's, no address, no path.
fn is_pin(text: &str) -> bool {
    let Some((name, version)) = text.split_once("==") else { return false };
    let fits = |text: &str, more: &[u8]| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || more.contains(&b))
    };
    fits(name.trim(), b"._-[],") && !name.starts_with('-') && fits(version.trim(), b"._-+!")
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

    const SCIENTIFIC: &str = include_str!("../images/scientific.lock");
    const NAMES: &str = include_str!("../images/scientific.in");

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
        let (aa, bb) = ("a".repeat(64), "b".repeat(64));
        let list = format!(
            "a==1 ; python_full_version == '3.10.*' \\\n    --hash=sha256:{aa}\n\
             a==2 ; python_full_version >= '3.11' and python_full_version < '3.11.5'\n    --hash=sha256:{bb}\n"
        );
        let pins = |v| requirements(&list, v).unwrap().into_iter().map(|r| (r.pin, r.digests)).collect::<Vec<_>>();
        assert_eq!(pins(version(10, 13)), [("a==1".to_owned(), vec![aa])]);
        assert_eq!(pins(version(11, 4)), [("a==2".to_owned(), vec![bb])]);
        assert_eq!(pins(version(11, 5)), []);
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for list in [
            "a",
            "--hash=sha256:aa",
            "--index-url https://example.org",
            "-r other.txt",
            "a @ file:///etc/passwd",
            "./a==1",
            "a==1 --global-option=x",
            "--x==1",
            "a==1",
        ] {
            assert!(requirements(list, version(11, 0)).is_err(), "{list}");
        }
        let digest = "a".repeat(64);
        assert!(requirements(&format!("a==1 \\\n--hash=sha256:{digest}"), version(11, 0)).is_ok());
        for digest in ["aa", &digest.to_uppercase(), &format!("{digest}a"), &format!("{digest} --hash=sha256:{digest}")]
        {
            let found = requirements(&format!("a==1 \\\n--hash=sha256:{digest}"), version(11, 0));
            assert!(matches!(found, Err(ImageError::List { line: 2, .. })), "{digest}: {found:?}");
        }
    }

    #[test]
    fn other_markers_are_left_to_pip() {
        let pip = format!("a[b]==1.0+x ; sys_platform == 'win32' \\\n    --hash=sha256:{}\n", "a".repeat(64));
        let found = requirements(&format!("{pip}    # via c\n"), version(11, 0)).unwrap();
        assert_eq!(found[0].as_pip_text(), pip);
    }
}
