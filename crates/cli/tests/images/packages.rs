//! Packages that a session installs for itself.

use serde_json::json;

use crate::options;

/// Writes a wheel and a source package of one module each.
const MAKE: &str = r#"
import io, tarfile, zipfile
def wheel(name, version):
    with zipfile.ZipFile(f"{name}-{version}-py3-none-any.whl", "w") as out:
        out.writestr(f"{name}.py", f"said = '{name} {version}'\n")
        info = f"{name}-{version}.dist-info"
        out.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        out.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        out.writestr(f"{info}/RECORD", "")
wheel("minewheel", "1.0")
setup = b"from setuptools import setup\nsetup(name='minesource', version='2.0', py_modules=['minesource'])\n"
with tarfile.open("minesource-2.0.tar.gz", "w:gz") as out:
    for name, text in [("setup.py", setup), ("minesource.py", b"said = 'minesource 2.0'\n")]:
        entry = tarfile.TarInfo("minesource-2.0/" + name)
        entry.size = len(text)
        out.addfile(entry, io.BytesIO(text))
"#;

const IMPORT: &str = "
try:
    import minewheel, minesource
    print(minewheel.said, minesource.said)
except ImportError as error:
    print(error)
";

#[test]
fn pip_installs_into_the_workspace_for_that_session_alone() {
    let server = options().scientific().start();
    let mut client = server.client();
    let mut session = client.lease(&json!({}));
    session.python(MAKE);
    assert_eq!(session.python(IMPORT), "No module named 'minewheel'\n");
    let install = "pip install -q ./minewheel-1.0-py3-none-any.whl ./minesource-2.0.tar.gz && echo done";
    assert_eq!(session.bash(install), "done\n");
    assert_eq!(session.python(IMPORT), "minewheel 1.0 minesource 2.0\n", "the running interpreter finds them");
    assert!(session.python("print(minewheel.__file__)").starts_with("/workspace/.local/lib/python3."));
    let unknown = "pip install nothing-of-the-kind 2>&1 | grep -c 'No matching distribution'";
    assert_eq!(session.bash(unknown), "1\n", "there is no index");
    session.release();
    assert_eq!(client.lease(&json!({})).python(IMPORT), "No module named 'minewheel'\n");
}

#[test]
fn pip_finds_what_lies_in_the_wheelhouse() {
    let house = tempfile::tempdir().unwrap();
    let made = std::process::Command::new("python3").args(["-c", MAKE]).current_dir(house.path()).status().unwrap();
    assert!(made.success());
    let server = options().scientific().args(["--wheelhouse".as_ref(), house.path().as_os_str()]).start();
    let mut client = server.client();
    let mut session = client.lease(&json!({}));
    assert_eq!(session.bash("pip install -q minewheel minesource && echo done"), "done\n");
    assert_eq!(session.python(IMPORT), "minewheel 1.0 minesource 2.0\n");
    assert_eq!(session.bash("touch /.ringfence/wheelhouse/x 2>&1 | grep -c 'Read-only'"), "1\n");
}
