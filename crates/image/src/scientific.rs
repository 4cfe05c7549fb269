//! Building the scientific image: virtual environment, wheels, bytecode, font list, start-up scripts.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::limits::{DOWNLOADS_AT_ONCE, PIP_RETRIES, SCRIPT_BYTES_MAX};
use crate::lock::{Requirement, hexadecimal};
use crate::pip::{Module, Running};
use crate::python::Python;
use crate::root::VENV;
use crate::{ImageError, Progress};

/// What to build, and where.
pub(crate) struct Plan<'a> {
    /// The interpreter to stand on.
    pub(crate) python: &'a Python,
    /// The folder that becomes the image.
    pub(crate) folder: &'a Path,
    /// Where wheels are kept until the image stands.
    pub(crate) wheels: &'a Path,
    /// The packages.
    pub(crate) wanted: &'a [Requirement],
}

/// Builds it. A failure leaves the wheels, and `folder` half made.
pub(crate) fn build(plan: &Plan<'_>, progress: &mut dyn Progress) -> Result<(), ImageError> {
    progress.step("making a virtual environment");
    make_venv(plan)?;
    fetch(plan, progress)?;
    progress.step("installing the packages");
    install(plan)?;
    progress.step("compiling the packages");
    compile(plan)?;
    progress.step("listing the fonts");
    list_fonts(plan)?;
    fs::remove_dir_all(plan.scratch()).map_err(ImageError::file("remove", &plan.scratch()))?;
    move_scripts(plan)
}

impl Plan<'_> {
    fn venv(&self) -> PathBuf {
        self.folder.join("venv")
    }

    fn venv_python(&self) -> PathBuf {
        self.venv().join("bin/python")
    }

    /// Logs, requirement files, an empty home: gone when the image stands.
    fn scratch(&self) -> PathBuf {
        self.folder.join("scratch")
    }

    fn module<'m>(&self, python: &'m Path, step: &'static str, log: &str, arguments: &[&'m dyn AsOsStr]) -> Module<'m> {
        Module {
            python,
            arguments: arguments.iter().map(|argument| argument.as_os()).collect(),
            environment: Vec::new(),
            log: self.scratch().join(log),
            step,
        }
    }
}

/// Texts and paths side by side in an argument list.
trait AsOsStr {
    fn as_os(&self) -> &OsStr;
}

impl<T: AsRef<OsStr>> AsOsStr for T {
    fn as_os(&self) -> &OsStr {
        self.as_ref()
    }
}

fn make_venv(plan: &Plan<'_>) -> Result<(), ImageError> {
    fs::create_dir_all(plan.scratch()).map_err(ImageError::file("create", &plan.scratch()))?;
    let python = &plan.python.executable;
    for module in ["venv", "ensurepip"] {
        let found = plan.module(python, "looking for venv", "probe.log", &[&module, &"--help"]).run();
        if let Err(ImageError::Step { .. }) = found {
            let version = format!("{}.{}", plan.python.version.major, plan.python.version.minor);
            return Err(ImageError::NoVenv { python: python.clone(), module: module.to_owned(), version });
        }
        found?;
    }
    let step = "making a virtual environment";
    plan.module(python, step, "venv.log", &[&"venv", &"--symlinks", &plan.venv()]).run()
}

/// Fetches what is not there yet, a few at a time; the first failure ends it, and what was fetched stays.
fn fetch(plan: &Plan<'_>, progress: &mut dyn Progress) -> Result<(), ImageError> {
    let total = plan.wanted.len();
    let have = digests_in(plan.wheels)?;
    let is_here = |r: &&Requirement| r.digests.iter().any(|digest| have.contains(digest));
    let (here, missing): (Vec<_>, Vec<_>) = plan.wanted.iter().partition(is_here);
    let mut done = here.len();
    progress.count(done, total, "fetching");
    let mut running: VecDeque<(&Requirement, Running)> = VecDeque::new();
    let mut waiting = missing.into_iter();
    loop {
        while running.len() < DOWNLOADS_AT_ONCE
            && let Some(requirement) = waiting.next()
        {
            running.push_back((requirement, start_fetch(plan, requirement)?));
        }
        let Some((requirement, mut oldest)) = running.pop_front() else { return Ok(()) };
        if !oldest.wait()?.success() {
            return Err(ImageError::Fetch {
                package: requirement.pin.clone(),
                tail: oldest.tail(),
                wheels: plan.wheels.to_owned(),
            });
        }
        done += 1;
        progress.count(done, total, &requirement.pin);
    }
}

fn start_fetch(plan: &Plan<'_>, requirement: &Requirement) -> Result<Running, ImageError> {
    let list = plan.scratch().join(format!("{}.txt", requirement.pin));
    fs::write(&list, requirement.as_pip_text()).map_err(ImageError::file("write", &list))?;
    let retries = PIP_RETRIES.to_string();
    let log = format!("{}.log", requirement.pin);
    #[rustfmt::skip]
    let arguments: [&dyn AsOsStr; 15] = [
        &"pip", &"download", &"--no-input", &"--disable-pip-version-check", &"--progress-bar", &"off",
        &"--retries", &retries, &"--no-deps", &"--only-binary", &":all:", &"--dest", &plan.wheels,
        &"--requirement", &list,
    ];
    plan.module(&plan.venv_python(), "fetching packages", &log, &arguments).start()
}

/// The digests of the files in a folder.
fn digests_in(folder: &Path) -> Result<HashSet<String>, ImageError> {
    let mut digests = HashSet::new();
    for entry in fs::read_dir(folder).map_err(ImageError::file("list", folder))? {
        let path = entry.map_err(ImageError::file("list", folder))?.path();
        let mut file = File::open(&path).map_err(ImageError::file("open", &path))?;
        let mut hasher = Sha256::new();
        std::io::copy(&mut file, &mut hasher).map_err(ImageError::file("read", &path))?;
        digests.insert(hexadecimal(&hasher.finalize()));
    }
    Ok(digests)
}

/// Installs from the wheels alone. `--isolated`: what the caller's pip settings say about targets is no matter of ours.
fn install(plan: &Plan<'_>) -> Result<(), ImageError> {
    let list = plan.scratch().join("all.txt");
    let text: String = plan.wanted.iter().map(Requirement::as_pip_text).collect();
    fs::write(&list, text).map_err(ImageError::file("write", &list))?;
    let python = plan.venv_python();
    #[rustfmt::skip]
    let arguments: [&dyn AsOsStr; 12] = [
        &"pip", &"--isolated", &"install", &"--disable-pip-version-check", &"--no-index", &"--no-deps", &"--no-compile",
        &"--require-hashes", &"--find-links", &plan.wheels, &"--requirement", &list,
    ];
    plan.module(&python, "installing the packages", "install.log", &arguments).run()?;
    // There is no network in a cell, so no use for pip.
    let arguments: [&dyn AsOsStr; 6] = [&"pip", &"--isolated", &"uninstall", &"--yes", &"pip", &"setuptools"];
    plan.module(&python, "removing pip", "uninstall.log", &arguments).run()
}

/// Compiles to bytecode that knows the files by their names in the cell and is never checked against them: the image
/// does not change.
fn compile(plan: &Plan<'_>) -> Result<(), ImageError> {
    let (venv, python) = (plan.venv(), plan.venv_python());
    let packages = venv.join("lib");
    #[rustfmt::skip]
    let arguments: [&dyn AsOsStr; 11] = [
        &"compileall", &"-q", &"-j", &"0", &"--invalidation-mode", &"unchecked-hash",
        &"-s", &venv, &"-p", &VENV, &packages,
    ];
    plan.module(&python, "compiling the packages", "compile.log", &arguments).run()
}

/// Has matplotlib find the fonts once, so that no session has to. The home is empty: a cell sees no home's fonts.
fn list_fonts(plan: &Plan<'_>) -> Result<(), ImageError> {
    let cache = plan.folder.join("matplotlib");
    fs::create_dir_all(&cache).map_err(ImageError::file("create", &cache))?;
    let python = plan.venv_python();
    let mut module = plan.module(&python, "listing the fonts", "fonts.log", &[&"matplotlib.pyplot"]);
    module.environment = vec![("MPLCONFIGDIR", &cache), ("HOME", plan.folder), ("MPLBACKEND", Path::new("Agg"))];
    module.run()
}

/// Gives start-up scripts and configuration their names in the cell.
fn move_scripts(plan: &Plan<'_>) -> Result<(), ImageError> {
    let bin = plan.venv().join("bin");
    let here = plan.venv().display().to_string();
    for entry in fs::read_dir(&bin).map_err(ImageError::file("list", &bin))? {
        let path = entry.map_err(ImageError::file("list", &bin))?.path();
        let metadata = fs::symlink_metadata(&path).map_err(ImageError::file("look at", &path))?;
        if !metadata.is_file() || metadata.len() > SCRIPT_BYTES_MAX {
            continue;
        }
        let Ok(text) = fs::read_to_string(&path) else { continue };
        if text.contains(&here) {
            fs::write(&path, text.replace(&here, VENV)).map_err(ImageError::file("write", &path))?;
        }
    }
    let config = plan.venv().join("pyvenv.cfg");
    let text = fs::read_to_string(&config).map_err(ImageError::file("read", &config))?;
    fs::write(&config, text.replace(&here, VENV)).map_err(ImageError::file("write", &config))?;
    fs::set_permissions(plan.folder, fs::Permissions::from_mode(0o755))
        .map_err(ImageError::file("make readable", plan.folder))
}
