//! The worker program under each Python at hand: its own tests, `unittest` alone, in `python/tests`.
//!
//! What ran, and what could not, is written to stderr past the test harness's capture: a Python that is missing is
//! seen. Figures need matplotlib, pandas and seaborn: a Python that has them, or a throw-away environment under
//! the target directory. Where neither can be had, the figure tests are counted as skipped, aloud.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its own files has failed")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// All but the figures; the files are loaded by name, so that one that goes missing fails.
const PLAIN: [&str; 9] = [
    "test_awaiting",
    "test_forks",
    "test_frames",
    "test_interrupts",
    "test_main_module",
    "test_prepared",
    "test_results",
    "test_streams",
    "test_vandals",
];
/// Each in a process of its own: one of them must not have matplotlib imported.
const FIGURES: [&str; 2] = ["test_figures", "test_figures_imported"];
const FIGURE_PACKAGES: [&str; 3] = ["matplotlib", "pandas", "seaborn"];
const OLDEST: (u32, u32) = (3, 8);
/// The oldest that current releases of the figure packages are made for.
const OLDEST_WITH_FIGURES: (u32, u32) = (3, 11);

#[derive(Debug, Clone)]
struct Python {
    program: PathBuf,
    version: (u32, u32),
}

#[test]
fn the_worker_program_keeps_its_promises_under_each_python() {
    let pythons = pythons();
    assert!(!pythons.is_empty(), "there is no Python to run the worker program with");
    let source = source_file();
    for python in pythons.values() {
        let ran = run_tests(python, &source, &PLAIN);
        say(&format!("worker tests under Python {}: {ran}", python.name()));
    }
}

#[test]
fn charts_become_files() {
    let source = source_file();
    let Some(python) = python_with_figures() else {
        say(&format!(
            "SKIPPED {} of {} test files: {}: no Python here has {}, and no environment with them could be made",
            FIGURES.len(),
            FIGURES.len() + PLAIN.len(),
            FIGURES.join(", "),
            FIGURE_PACKAGES.join(", ")
        ));
        return;
    };
    for file in FIGURES {
        let ran = run_tests(&python, &source, &[file]);
        say(&format!("{file} under Python {}: {ran}", python.name()));
    }
}

#[test]
fn every_test_file_is_run() {
    let mut found: Vec<String> = std::fs::read_dir(tests_folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".py").filter(|stem| stem.starts_with("test_")).map(str::to_owned))
        .collect();
    found.sort();
    let mut listed: Vec<_> = PLAIN.iter().chain(&FIGURES).map(|name| (*name).to_owned()).collect();
    listed.sort();
    assert_eq!(found, listed);
}

/// Runs test files in one process; the number of tests, and of those that the files themselves skipped.
fn run_tests(python: &Python, source: &Path, files: &[&str]) -> String {
    let output = command(&python.program)
        .args(["-B", "-m", "unittest"])
        .args(files)
        .current_dir(tests_folder())
        .env("RINGFENCE_WORKER_SOURCE", source)
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "Python {}: {}\n{report}", python.name(), output.status);
    let ran = report.lines().find(|line| line.starts_with("Ran ")).unwrap_or_default().to_owned();
    assert!(!ran.is_empty() && !ran.starts_with("Ran 0 "), "no test ran:\n{report}");
    let verdict = report.lines().last().unwrap_or_default();
    format!("{ran}, {verdict}")
}

/// The program as it is built in, in a file.
fn source_file() -> PathBuf {
    let path = scratch().join("worker-source.py");
    // Tests of this file run side by side: each sees a whole file, and it is the same one.
    let partial = scratch().join(format!("worker-source-{:?}.part", std::thread::current().id()));
    std::fs::write(&partial, ringfence_interp::WORKER_SOURCE).unwrap();
    std::fs::rename(&partial, &path).unwrap();
    path
}

/// One Python of each version: `python3`, pyenv's, the system's.
fn pythons() -> BTreeMap<(u32, u32), Python> {
    let mut programs = vec![PathBuf::from("python3")];
    if let Some(home) = std::env::var_os("HOME") {
        programs.extend(entries(&Path::new(&home).join(".pyenv/versions")).map(|folder| folder.join("bin/python3")));
    }
    programs.extend(entries(Path::new("/usr/bin")).filter(|path| is_system_python(path)));
    let mut found = BTreeMap::new();
    for program in programs {
        if let Some(python) = look_at(&program).filter(|python| python.version >= OLDEST) {
            found.entry(python.version).or_insert(python);
        }
    }
    found
}

fn is_system_python(path: &Path) -> bool {
    let minor = path.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_prefix("python3."));
    minor.is_some_and(|minor| !minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit()))
}

fn look_at(program: &Path) -> Option<Python> {
    let output = command(program)
        .args(["-c", "import sys; print(sys.version_info[0], sys.version_info[1], sys.executable)"])
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut words = text.trim_end().splitn(3, ' ');
    let version = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(Python { program: words.next()?.into(), version })
}

fn python_with_figures() -> Option<Python> {
    let pythons = pythons();
    let has = |python: &&Python| imports_figures(&python.program);
    if let Some(python) = pythons.values().find(has) {
        return Some(python.clone());
    }
    pythons.values().filter(|python| python.version >= OLDEST_WITH_FIGURES).find_map(environment)
}

fn imports_figures(program: &Path) -> bool {
    let import = format!("import {}", FIGURE_PACKAGES.join(", "));
    command(program).args(["-c", &import]).output().is_ok_and(|output| output.status.success())
}

/// A virtual environment with the figure packages, kept for later runs.
fn environment(python: &Python) -> Option<Python> {
    let folder = scratch().join(format!("figures-{}", python.name()));
    let program = folder.join("bin/python3");
    if !imports_figures(&program) {
        say(&format!("making an environment with {} for Python {}", FIGURE_PACKAGES.join(", "), python.name()));
        let made = [
            command(&python.program).args(["-m", "venv", "--clear"]).arg(&folder).output(),
            command(&program).args(["-m", "pip", "install", "-q", "--retries", "1"]).args(FIGURE_PACKAGES).output(),
        ];
        for step in made {
            if let Err(reason) = done(step) {
                say(&format!("no environment with the figure packages: {reason}"));
                return None;
            }
        }
    }
    imports_figures(&program).then_some(Python { program, version: python.version })
}

fn done(step: std::io::Result<Output>) -> Result<(), String> {
    let output = step.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or("it says nothing").to_owned())
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for name in ["PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONWARNINGS", "MPLBACKEND", "DISPLAY"] {
        command.env_remove(name);
    }
    command.stdin(std::process::Stdio::null());
    command
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn tests_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("python/tests")
}

fn scratch() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// Past the capture of the test harness: a skip must be seen.
fn say(line: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = writeln!(stderr, "{line}");
}

impl Python {
    fn name(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }
}
