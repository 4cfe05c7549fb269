//! Locks that are written from requirements.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::roots::debian_root;
use crate::{House, Ran, options};

/// Writes wheels of one module each: two versions of one, which needs another.
const WHEELS: &str = r#"
import zipfile
def wheel(name, version, needs=""):
    with zipfile.ZipFile(f"{name}-{version}-py3-none-any.whl", "w") as out:
        def put(path, text):
            out.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), text)
        put(f"{name}.py", f"said = '{name} {version}'\n")
        info = f"{name}-{version}.dist-info"
        put(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + needs)
        put(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        put(f"{info}/RECORD", "")
wheel("upper", "1.0", "Requires-Dist: lower\n")
wheel("upper", "2.0", "Requires-Dist: lower>=1\n")
wheel("lower", "1.5")
"#;

fn wheels() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    assert!(Command::new("python3").args(["-c", WHEELS]).current_dir(folder.path()).status().unwrap().success());
    folder
}

/// Runs a command with the folder of wheels as the only source of packages.
fn with_wheels(house: &House, wheels: &Path, arguments: &[&str]) -> Ran {
    let mut command = house.command(arguments);
    command.env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", wheels).env("PIP_CONFIG_FILE", "/dev/null");
    Ran::of(&mut command)
}

#[test]
fn requirements_are_locked_with_digests_and_the_same_lock_is_the_same_image() {
    let (house, wheels) = (House::new(), wheels());
    let path = house.folder().join("mine.toml");
    let mine = path.display().to_string();
    let lock = house.folder().join("mine.lock");
    let declare = |requirements: &str| {
        fs::write(&path, format!("base = 'host'\nlock = 'mine.lock'\nrequirements = {requirements}\n")).unwrap();
    };
    declare("['upper<2']");
    let unlocked = house.image(&["build", &mine]);
    assert!(unlocked.status == 2 && unlocked.err.contains("ringfence image lock"), "{unlocked:?}");
    let locked = with_wheels(&house, wheels.path(), &["lock", &mine, "--json"]).json();
    assert_eq!(locked["packages"], json!(["lower==1.5", "upper==1.0"]));
    let first = fs::read_to_string(&lock).unwrap();
    assert_eq!(first.matches("--hash=sha256:").count(), 2, "{first}");
    assert_eq!(with_wheels(&house, wheels.path(), &["lock", &mine]).status, 0);
    assert_eq!(fs::read_to_string(&lock).unwrap(), first);
    let build = || with_wheels(&house, wheels.path(), &["build", &mine, "--json"]).json();
    let built = build();
    assert_eq!(built["source"]["declared"]["packages"], json!(["lower==1.5", "upper==1.0"]));
    assert_eq!(build()["id"], built["id"]);

    declare("['upper']");
    let stale = house.image(&["build", &mine]);
    assert!(stale.status == 2 && stale.err.contains("other requirements"), "{stale:?}");
    assert_eq!(
        with_wheels(&house, wheels.path(), &["lock", &mine, "--json"]).json()["packages"],
        json!(["lower==1.5", "upper==2.0"])
    );
    assert_ne!(build()["id"], built["id"]);
    let server = options().state_dir(house.folder()).args(["--image", "mine"]).start();
    assert_eq!(server.client().lease(&json!({})).python("import upper; print(upper.said)"), "upper 2.0\n");
    drop(server);

    declare("['no-such-package']");
    let none = with_wheels(&house, wheels.path(), &["lock", &mine]);
    assert!(none.status == 1 && none.err.contains("no-such-package"), "{none:?}");
    fs::write(&path, "base = 'host'\n").unwrap();
    let nothing = house.image(&["lock", &mine]);
    assert!(nothing.status == 2 && nothing.err.contains("nothing to lock"), "{nothing:?}");
    let left = fs::read_dir(house.folder().join("images")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.filter(|name| name.to_string_lossy().starts_with(".building")).count(), 0);
}

#[test]
fn a_lock_for_an_image_beneath_takes_what_that_has() {
    let (house, wheels) = (House::new(), wheels());
    let archive = house.folder().join("debian.tar");
    debian_root(&archive);
    assert_eq!(house.image(&["import", "--root", &archive.display().to_string(), "--name", "debian"]).status, 0);
    let declare = |name: &str, base: &str, wanted: &str| {
        let path = house.folder().join(format!("{name}.toml"));
        fs::write(&path, format!("base = '{base}'\nlock = '{name}.lock'\nrequirements = [{wanted}]\n")).unwrap();
        let path = path.display().to_string();
        let locked = with_wheels(&house, wheels.path(), &["lock", &path, "--json"]).json();
        assert_eq!(with_wheels(&house, wheels.path(), &["build", &path]).status, 0);
        locked["packages"].clone()
    };
    assert_eq!(declare("one", "debian", "'lower'"), json!(["lower==1.5"]));
    assert_eq!(declare("two", "one", "'upper'"), json!(["upper==2.0"]));
}
