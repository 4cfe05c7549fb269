//! Building a virtual environment of the machine's Python: wheels, bytecode, font list, start-up scripts.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::digest::digest_of_file;
use crate::limits::{DOWNLOADS_AT_ONCE, PIP_RETRIES, SCRIPT_BYTES_MAX};
use crate::lock::Requirement;
use crate::pip::{Module, Running};
use crate::python::Python;
use crate::root::VENV;
use crate::tree::link_tree;
use crate::{ImageError, Progress};

/// The folder of what matplotlib found, in an image's folder.
pub(crate) const FONT_LISTS: &str = "matplotlib";

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
    /// The folder of an image whose virtual environment this one begins as.
    pub(crate) on: Option<&'a Path>,
}

/// Builds it. A failure leaves the wheels, and `folder` half made.
pub(crate) fn build(plan: &Plan<'_>, progress: &mut dyn Progress) -> Result<(), ImageError> {
    progress.step("making a virtual environment");
    fs::create_dir_all(plan.scratch()).map_err(ImageError::file("create", &plan.scratch()))?;
    match plan.on {
        Some(base) => take_over(base, plan.folder)?,
        None => make_venv(plan)?,
    }
    fetch(plan, progress)?;
    progress.step("installing the packages");
    install(plan, &plan.venv_python(), &write_list(plan)?, &[])?;
    progress.step("compiling the packages");
    compile(plan)?;
    if has_matplotlib(plan)? && !plan.folder.join(FONT_LISTS).exists() {
        progress.step("listing the fonts");
        list_fonts(plan)?;
    }
    fs::remove_dir_all(plan.scratch()).map_err(ImageError::file("remove", &plan.scratch()))?;
    move_scripts(plan)
}

/// Puts into `folder` what the image in the folder `base` has of it.
pub(crate) fn take_over(base: &Path, folder: &Path) -> Result<(), ImageError> {
    let parts = ["venv", FONT_LISTS];
    parts
        .iter()
        .filter(|part| base.join(part).is_dir())
        .try_for_each(|part| link_tree(&base.join(part), &folder.join(part)))
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
    progress.count(done, total, "packages", "fetching");
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
        progress.count(done, total, "packages", &requirement.pin);
    }
}

/// Fetches and unpacks the packages for another Python than the one that does so. `fit` are pip's options that say which.
pub(crate) fn install_apart(
    plan: &Plan<'_>,
    fit: &[String],
    target: &Path,
    progress: &mut dyn Progress,
) -> Result<(), ImageError> {
    fs::create_dir_all(plan.scratch()).map_err(ImageError::file("create", &plan.scratch()))?;
    let list = write_list(plan)?;
    let python = &plan.python.executable;
    let retries = PIP_RETRIES.to_string();
    progress.step("fetching the packages");
    #[rustfmt::skip]
    let mut arguments: Vec<&dyn AsOsStr> = vec![
        &"pip", &"download", &"--no-input", &"--disable-pip-version-check", &"--progress-bar", &"off",
        &"--retries", &retries, &"--no-deps", &"--require-hashes", &"--dest", &plan.wheels, &"--requirement", &list,
    ];
    arguments.extend(fit.iter().map(|option| option as &dyn AsOsStr));
    plan.module(python, "fetching the packages", "fetch.log", &arguments).run()?;
    progress.step("installing the packages");
    let mut apart: Vec<&dyn AsOsStr> = vec![&"--target", &target];
    apart.extend(fit.iter().map(|option| option as &dyn AsOsStr));
    install(plan, python, &list, &apart)?;
    fs::remove_dir_all(plan.scratch()).map_err(ImageError::file("remove", &plan.scratch()))
}

/// What pip is asked to resolve.
pub(crate) struct Resolve<'a> {
    /// Requirements as a person writes them.
    pub(crate) wanted: &'a [String],
    /// Pins that are there already.
    pub(crate) beneath: &'a [String],
    /// Options that say which Python it is for, where it is not the one that resolves.
    pub(crate) fit: Option<&'a [String]>,
}

/// Has pip find what `wanted` takes, all of it, and write that to `report`; nothing is installed. `folder` is scratch.
pub(crate) fn resolve(
    python: &Python,
    folder: &Path,
    resolve: &Resolve<'_>,
    report: &Path,
    progress: &mut dyn Progress,
) -> Result<(), ImageError> {
    let plan = Plan { python, folder, wheels: folder, wanted: &[], on: None };
    fs::create_dir_all(plan.scratch()).map_err(ImageError::file("create", &plan.scratch()))?;
    let (list, bounds) = (folder.join("wanted.txt"), folder.join("beneath.txt"));
    for (path, lines) in [(&list, resolve.wanted), (&bounds, resolve.beneath)] {
        fs::write(path, lines.join("\n") + "\n").map_err(ImageError::file("write", path))?;
    }
    let own = plan.venv_python();
    let runs = if resolve.fit.is_some() {
        &python.executable
    } else {
        progress.step("making a virtual environment");
        make_venv(&plan)?;
        &own
    };
    let (retries, target) = (PIP_RETRIES.to_string(), folder.join("target"));
    #[rustfmt::skip]
    let mut arguments: Vec<&dyn AsOsStr> = vec![
        &"pip", &"install", &"--no-input", &"--disable-pip-version-check", &"--progress-bar", &"off", &"--quiet",
        &"--retries", &retries, &"--only-binary", &":all:", &"--dry-run", &"--ignore-installed", &"--report", &report,
        &"--requirement", &list, &"--constraint", &bounds,
    ];
    if let Some(fit) = resolve.fit {
        arguments.extend([&"--target" as &dyn AsOsStr, &target]);
        arguments.extend(fit.iter().map(|option| option as &dyn AsOsStr));
    }
    progress.step("finding the packages");
    plan.module(runs, "finding the packages", "resolve.log", &arguments).run()
}

fn write_list(plan: &Plan<'_>) -> Result<PathBuf, ImageError> {
    let list = plan.scratch().join("all.txt");
    let text: String = plan.wanted.iter().map(Requirement::as_pip_text).collect();
    fs::write(&list, text).map_err(ImageError::file("write", &list))?;
    Ok(list)
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
        digests.insert(digest_of_file(&path)?);
    }
    Ok(digests)
}

/// Installs from the wheels alone. `--isolated`: what the caller's pip settings say about targets is no matter of ours.
fn install(plan: &Plan<'_>, python: &Path, list: &Path, more: &[&dyn AsOsStr]) -> Result<(), ImageError> {
    #[rustfmt::skip]
    let mut arguments: Vec<&dyn AsOsStr> = vec![
        &"pip", &"--isolated", &"install", &"--disable-pip-version-check", &"--no-index", &"--no-deps", &"--no-compile",
        &"--require-hashes", &"--find-links", &plan.wheels, &"--requirement", &list,
    ];
    arguments.extend(more);
    plan.module(python, "installing the packages", "install.log", &arguments).run()
}

fn has_matplotlib(plan: &Plan<'_>) -> Result<bool, ImageError> {
    let lib = plan.venv().join("lib");
    for entry in fs::read_dir(&lib).map_err(ImageError::file("list", &lib))? {
        let folder = entry.map_err(ImageError::file("list", &lib))?.path();
        if folder.join("site-packages/matplotlib").is_dir() {
            return Ok(true);
        }
    }
    Ok(false)
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
    let cache = plan.folder.join(FONT_LISTS);
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
            replace(&path, &text.replace(&here, VENV), metadata.permissions())?;
        }
    }
    let config = plan.venv().join("pyvenv.cfg");
    let text = fs::read_to_string(&config).map_err(ImageError::file("read", &config))?;
    replace(&config, &text.replace(&here, VENV), fs::Permissions::from_mode(0o644))?;
    fs::set_permissions(plan.folder, fs::Permissions::from_mode(0o755))
        .map_err(ImageError::file("make readable", plan.folder))
}

/// Puts a new file in a file's place: the old one may be another image's as well.
fn replace(path: &Path, text: &str, rights: fs::Permissions) -> Result<(), ImageError> {
    let new = path.with_extension("ringfence-new");
    fs::write(&new, text).map_err(ImageError::file("write", &new))?;
    fs::set_permissions(&new, rights).map_err(ImageError::file("make readable", &new))?;
    fs::rename(&new, path).map_err(ImageError::file("put in place", path))
}
