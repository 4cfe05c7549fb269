//! From what a declaration requires to the lock that its image is built by: pip resolves, and every package is pinned
//! with the digest of the wheel that was found.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::build::{Ground, ground};
use crate::declare::Declaration;
use crate::limits::{PACKAGES_MAX, REPORT_BYTES_MAX, SHOWN_CHARS_MAX};
use crate::manifest::{Interpreter, Root, Source};
use crate::python::Python;
use crate::store::{Entry, Store};
use crate::{ImageError, Progress, folder, lock, venv};

/// A lock file that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockFile {
    /// Where.
    pub path: PathBuf,
    /// What it pins, `name==version`.
    pub packages: Vec<String>,
    /// The version of the Python that it is for.
    pub python: String,
}

/// Resolves the `requirements` of the declaration in `path` for the Python that its image will have, and writes the file
/// that its `lock` names. Packages that the image beneath has are taken as they are there.
///
/// # Errors
/// When it requires nothing, or pip finds no wheels that fit.
pub fn lock_packages(
    store: &Store,
    path: &Path,
    python: Option<&Path>,
    progress: &mut dyn Progress,
) -> Result<LockFile, ImageError> {
    let declaration = Declaration::read_to_lock(path)?;
    let Some(lock) = declaration.lock_file.as_ref().filter(|_| !declaration.requirements.is_empty()) else {
        let why = "there is nothing to lock: it needs `requirements`, and `lock`, which names the file to be written";
        return Err(ImageError::Declaration { path: path.to_owned(), why: why.to_owned() });
    };
    let lock = path.parent().unwrap_or(Path::new(".")).join(lock);
    let ground = ground(store, &declaration, python)?;
    let beneath = match &ground {
        Ground::Host(_) => Vec::new(),
        Ground::Image(held) => packages_of(store, &held.entry),
    };
    let (python, fit) = fitting(&ground, python)?;
    let locked = store.lock(progress)?;
    let found = locked.scratch(|scratch| {
        let report = scratch.join("report.json");
        let wanted = venv::Resolve { wanted: &declaration.requirements, beneath: &beneath, fit: fit.as_deref() };
        venv::resolve(&python, scratch, &wanted, &report, progress)?;
        read_report(&report)
    })?;
    let mut pins: Vec<(String, String)> = found.into_iter().filter(|(pin, _)| !beneath.contains(pin)).collect();
    pins.sort_by_key(|(pin, _)| pin.to_ascii_lowercase());
    let version = python.version;
    let mut text = format!(
        "{}\n# For Python {}.{}, {}. Written by `ringfence image lock`.\n",
        lock::header(&declaration.requirements),
        version.major,
        version.minor,
        python.platform
    );
    for (pin, digest) in &pins {
        text.push_str(&format!("{pin} \\\n    --hash=sha256:{digest}\n"));
    }
    // What could not be read again is not written.
    lock::requirements(&text, version)?;
    let new = lock.with_extension("lock-new");
    fs::write(&new, text).map_err(ImageError::file("write", &new))?;
    fs::rename(&new, &lock).map_err(ImageError::file("put in place", &lock))?;
    let packages = pins.into_iter().map(|(pin, _)| pin).collect();
    Ok(LockFile { path: lock, packages, python: format!("{}.{}", version.major, version.minor) })
}

/// What an image has of packages, its bases' included: `name==version`.
fn packages_of(store: &Store, entry: &Entry) -> Vec<String> {
    let mut packages = Vec::new();
    let mut next = Some(entry.clone());
    while let Some(entry) = next.take() {
        if let Source::Declared { base, packages: own } = &entry.manifest.source {
            packages.extend(own.iter().cloned());
            next = base.as_ref().and_then(|id| store.find(id).ok());
        }
        if packages.len() > PACKAGES_MAX {
            break;
        }
    }
    packages
}

/// The Python that packages are for, and pip's options that say so where it is not the one that runs pip.
fn fitting(ground: &Ground, python: Option<&Path>) -> Result<(Python, Option<Vec<String>>), ImageError> {
    let entry = match ground {
        Ground::Host(python) => return Ok((python.clone(), None)),
        Ground::Image(held) => &held.entry,
    };
    if let Root::Host { python, .. } = &entry.manifest.root {
        return Ok((python.clone(), None));
    }
    let Interpreter::Python { version, .. } = &entry.manifest.facts.interpreter else {
        return Err(ImageError::NoInterpreter { image: entry.title() });
    };
    let machine = folder::target(&Python::find(python)?, version)?;
    Ok((machine, Some(folder::fit(version, entry.manifest.facts.libc))))
}

/// What pip writes for `--report` (version 1 of its format).
#[derive(Deserialize)]
struct Report {
    install: Vec<Installed>,
}

#[derive(Deserialize)]
struct Installed {
    download_info: Download,
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    version: String,
}

#[derive(Deserialize)]
struct Download {
    archive_info: Option<Archive>,
}

/// `hash` is how versions before 23 wrote it.
#[derive(Deserialize)]
struct Archive {
    hash: Option<String>,
    hashes: Option<std::collections::BTreeMap<String, String>>,
}

impl Archive {
    fn sha256(&self) -> Option<String> {
        let new = self.hashes.as_ref().and_then(|hashes| hashes.get("sha256").cloned());
        new.or_else(|| self.hash.as_ref()?.strip_prefix("sha256=").map(str::to_owned))
    }
}

/// Pins and their digests. What an index named is not believed: a line break in it would be a line of the lock.
fn read_report(path: &Path) -> Result<Vec<(String, String)>, ImageError> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(ImageError::file("open", path))?;
    file.take(REPORT_BYTES_MAX).read_to_end(&mut text).map_err(ImageError::file("read", path))?;
    let report: Report =
        serde_json::from_slice(&text).map_err(|error| ImageError::file("understand", path)(error.into()))?;
    let pin = |installed: Installed| {
        let Metadata { name, version } = installed.metadata;
        let strange = |what, text: &str| ImageError::Strange {
            package: name.escape_debug().take(SHOWN_CHARS_MAX).collect(),
            what,
            text: text.escape_debug().take(SHOWN_CHARS_MAX).collect(),
        };
        if !lock::is_name(&name) {
            return Err(strange("name", &name));
        }
        if !lock::is_version(&version) {
            return Err(strange("version", &version));
        }
        let package = format!("{name}=={version}");
        match installed.download_info.archive_info.as_ref().and_then(Archive::sha256) {
            None => Err(ImageError::NoDigest { package }),
            Some(digest) if !lock::is_digest(&digest) => Err(strange("digest", &digest)),
            Some(digest) => Ok((package, digest)),
        }
    };
    report.install.into_iter().map(pin).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_old_and_new_pips_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        let one = |info: &str| {
            format!(
                r#"{{"version": "1", "install": [{{"download_info": {{"url": "https://x/a.whl", {info}}},
                "is_direct": false, "metadata": {{"name": "A_b", "version": "1.0"}}}}]}}"#
            )
        };
        let digest = "a7".repeat(32);
        for info in [
            format!(r#""archive_info": {{"hash": "sha256=aa", "hashes": {{"sha256": "{digest}"}}}}"#),
            format!(r#""archive_info": {{"hash": "sha256={digest}"}}"#),
        ] {
            fs::write(&path, one(&info)).unwrap();
            assert_eq!(read_report(&path).unwrap(), [("A_b==1.0".to_owned(), digest.clone())]);
        }
        for info in [r#""dir_info": {}"#, r#""archive_info": {"hash": "md5=aa"}"#] {
            fs::write(&path, one(info)).unwrap();
            assert!(matches!(read_report(&path), Err(ImageError::NoDigest { .. })), "{info}");
        }
        fs::write(&path, "{").unwrap();
        assert!(read_report(&path).is_err());
    }

    #[test]
    fn what_a_hostile_index_names_is_no_line_of_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        let digest = "0f".repeat(32);
        let smuggled = format!("\nevil==6.6.6 \\\n    --hash=sha256:{digest}");
        let told = |name: &str, version: &str, archive: serde_json::Value| {
            let install = serde_json::json!([{
                "download_info": {"url": "https://x/a.whl", "archive_info": archive},
                "metadata": {"name": name, "version": version},
            }]);
            fs::write(&path, serde_json::json!({"version": "1", "install": install}).to_string()).unwrap();
            read_report(&path)
        };
        let refused = |found: Result<Vec<(String, String)>, ImageError>, package: &str, of: &str| {
            let error = found.unwrap_err();
            assert!(matches!(&error, ImageError::Strange { what, .. } if *what == of), "{of}: {error:?}");
            let text = error.to_string();
            assert!(text.contains(package) && !text.contains('\n') && text.len() < 1000, "{text}");
        };
        let new = |digest: &str| serde_json::json!({"hashes": {"sha256": digest}});
        let old = |digest: &str| serde_json::json!({"hash": format!("sha256={digest}")});
        let long = "f".repeat(100_000);
        for digest in [
            &format!("{digest}{smuggled}"),
            &format!("{digest}\n"),
            &format!("{digest} --hash=sha256:{digest}"),
            &digest.to_uppercase(),
            &digest[1..],
            &"g".repeat(64),
            "",
            &long,
        ] {
            refused(told("harmless", "1.0", new(digest)), "harmless", "digest");
            refused(told("harmless", "1.0", old(digest)), "harmless", "digest");
        }
        for version in [&format!("1.0{smuggled}"), "1.0 \n", "", "1.0;x", "-r", "1.0 --x", &long] {
            refused(told("harmless", version, new(&digest)), "harmless", "version");
        }
        for name in
            [&format!("harmless{smuggled}"), "harmless\n", "harmless[x]", "harmless-", "-harmless", "harmless @"]
        {
            refused(told(name, "1.0", new(&digest)), "harmless", "name");
        }
        for (name, version) in [("a", "1"), ("A.b-c_d", "1!2.0rc1.post2.dev3+local.4"), ("7zip", "2024.1")] {
            assert_eq!(told(name, version, new(&digest)).unwrap(), [(format!("{name}=={version}"), digest.clone())]);
        }
    }
}
