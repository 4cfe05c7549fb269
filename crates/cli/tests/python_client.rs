//! The Python package of `clients/python`, installed as its users install it, against the real server.
//!
//! Needs a package index that pip can reach: without one this test fails and says so, since it then shows nothing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ringfence_testkit::ServerOptions;

fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("clients/python")
}

fn run(command: &mut Command) -> (Output, String) {
    // Nothing of these runs is written beside the sources, and settings of whoever runs the tests are none of theirs.
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("PIP_DISABLE_PIP_VERSION_CHECK", "1").env_remove("PYTHONPATH");
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output, said)
}

/// A virtual environment in `folder` that has the package and what its tests need; its interpreter.
fn environment(folder: &Path) -> PathBuf {
    let (made, said) = run(Command::new("python3").args(["-m", "venv"]).arg(folder));
    assert!(made.status.success(), "no virtual environment could be made: {said}");
    let python = folder.join("bin/python");
    let wanted = format!("{}[test]", package().display());
    let (installed, said) = run(Command::new(&python).args(["-m", "pip", "install", "--quiet", &wanted]));
    assert!(
        installed.status.success(),
        "the package could not be installed; where pip reaches no package index, its tests cannot run: {said}"
    );
    python
}

#[test]
fn the_python_package_passes_its_tests_against_this_server() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let python = environment(&folder.path().join("venv"));
    let server = ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).start();
    let mut tests = Command::new(&python);
    tests.args(["-m", "pytest", "--quiet", "--color=no", "-p", "no:cacheprovider", "--basetemp"]);
    tests.arg(folder.path().join("pytest")).arg(package()).current_dir(folder.path());
    let (ended, said) = run(tests.env("RINGFENCE_TEST_URL", format!("http://{}", server.address())));
    assert!(ended.status.success(), "{said}");
    let summary = said.lines().rev().find(|line| line.contains(" passed")).unwrap_or_else(|| panic!("{said}"));
    assert!(!summary.contains("skipped") && !summary.contains("deselected"), "every test is run: {summary}");
}
