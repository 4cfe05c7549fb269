//! The machine's Python: which one it really is, and what of the disk it needs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::ImageError;

/// A Python's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    /// 3.
    pub major: u32,
    /// 11 of 3.11.7.
    pub minor: u32,
    /// 7 of 3.11.7.
    pub micro: u32,
}

/// The interpreter behind shims, links and virtual environments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Python {
    /// The program itself, no symbolic link.
    pub executable: PathBuf,
    /// Folders that hold its libraries: its prefixes and its standard library.
    pub folders: Vec<PathBuf>,
    /// Its version.
    pub version: Version,
    /// Machine and ABI, such as `linux-x86_64-cpython-311-x86_64-linux-gnu`; wheels of one are no good for another.
    pub platform: String,
}

/// Prints what [`Python`] holds, one JSON object. `_base_executable` leads out of a virtual environment.
const PROBE: &str = "\
import json, os, sys, sysconfig
paths = [sys.base_prefix, sys.base_exec_prefix, sysconfig.get_path('stdlib'), sysconfig.get_path('platstdlib')]
config = sysconfig.get_config_vars()
paths += [config.get('LIBDIR')] if config.get('Py_ENABLE_SHARED') else []
print(json.dumps({
    'executable': os.path.realpath(getattr(sys, '_base_executable', None) or sys.executable),
    'folders': [os.path.realpath(p) for p in paths if p],
    'version': dict(zip(('major', 'minor', 'micro'), sys.version_info)),
    'platform': '-'.join([sysconfig.get_platform(), sys.implementation.cache_tag, str(config.get('SOABI'))]),
}))
";

impl Python {
    /// The oldest that will do.
    const OLDEST: (u32, u32) = (3, 8);

    /// Asks `python`, or `python3` of `PATH`, what it really is.
    ///
    /// # Errors
    /// When it cannot be run or is older than 3.8.
    pub fn find(python: Option<&Path>) -> Result<Self, ImageError> {
        let asked = python.unwrap_or(Path::new("python3")).to_owned();
        // -I: no PYTHONPATH, PYTHONHOME or user site of the caller; the answer is about the machine.
        let answer = Command::new(&asked).args(["-I", "-c", PROBE]).stdin(Stdio::null()).output();
        let answer = answer.map_err(|source| ImageError::NoPython { python: asked.clone(), source })?;
        let mut found: Python = serde_json::from_slice(&answer.stdout).map_err(|_| {
            let said = String::from_utf8_lossy(&answer.stderr);
            let said = said.lines().last().unwrap_or("it does not say what it is").to_owned();
            ImageError::StrangePython { python: asked.clone(), said }
        })?;
        if (found.version.major, found.version.minor) < Self::OLDEST {
            let version = found.version.to_string();
            return Err(ImageError::PythonVersion { python: asked, version, needed: "3.8 or later".to_owned() });
        }
        found.folders = outermost(found.folders);
        Ok(found)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

/// The folders that no other one of them holds, each once.
fn outermost(mut folders: Vec<PathBuf>) -> Vec<PathBuf> {
    folders.sort();
    folders.dedup();
    let all = folders.clone();
    folders.retain(|folder| !all.iter().any(|other| other != folder && folder.starts_with(other)));
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_python_is_found_behind_its_links() {
        let python = Python::find(None).unwrap();
        assert_eq!(python.executable.canonicalize().unwrap(), python.executable);
        assert!(python.folders.iter().all(|folder| folder.is_dir()), "{:?}", python.folders);
        assert_eq!(Python::find(Some(&python.executable)).unwrap(), python);
    }

    #[test]
    fn what_is_no_python_is_named() {
        let error = Python::find(Some(Path::new("/nonexistent/python3"))).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/python3"), "{error}");
        let error = Python::find(Some(Path::new("/bin/true"))).unwrap_err();
        assert!(matches!(error, ImageError::StrangePython { .. }) && error.help().is_some(), "{error}");
    }

    #[test]
    fn folders_inside_others_are_dropped() {
        let of = |texts: &[&str]| texts.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(outermost(of(&["/usr", "/usr/lib/python3", "/usr", "/opt/p"])), of(&["/opt/p", "/usr"]));
    }
}
