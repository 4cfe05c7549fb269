//! Images from outside: several of them in one server, and the command that keeps the store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod fixtures;
mod limits;
mod locks;
mod packages;
mod pulls;
/// The double that pulls are tested with.
#[path = "../../../oci/tests/registry/mod.rs"]
mod registry;
mod roots;
mod store;

use std::fs;
use std::path::Path;

use ringfence_testkit::{Client, ServerOptions};
use serde_json::{Value, json};

/// A state folder, and files beside its images.
pub(crate) struct House {
    folder: tempfile::TempDir,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ran {
    status: i32,
    out: String,
    err: String,
}

impl House {
    fn new() -> Self {
        House { folder: tempfile::tempdir().unwrap() }
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Ran {
    /// What it answered with `--json`.
    fn json(&self) -> Value {
        assert_eq!(self.status, 0, "{self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

fn options() -> ServerOptions {
    ServerOptions::new(env!("CARGO_BIN_EXE_ringfence"))
}

fn lease(client: &mut Client, body: &Value) -> (String, String) {
    let answer = client.call("POST", "/sessions", Some(body));
    assert_eq!(answer.status, 201, "{answer:?}");
    let handle = answer.json();
    (handle["session_id"].as_str().unwrap().to_owned(), handle["image"].as_str().unwrap().to_owned())
}

#[test]
fn a_lease_gets_the_image_that_it_names_and_any_other_name_is_the_default() {
    let state = tempfile::tempdir().unwrap();
    fs::write(
        state.path().join("mine.toml"),
        "base = 'host'\n[environment]\nWHICH = 'mine'\n[files]\n'/opt/note' = 'note'\n",
    )
    .unwrap();
    fs::write(state.path().join("note"), "a note\n").unwrap();
    let mine = state.path().join("mine.toml");
    let images = format!("old:1={}", mine.display());
    let server = options().state_dir(state.path()).args(["--images", &images]).start();
    let mut client = server.client();
    for (name, image, said) in
        [("mine", "mine", "mine"), ("old:1", "mine", "mine"), ("bare", "bare", "-"), ("gold", "bare", "-")]
    {
        let mut session = client.lease(&json!({"image": name}));
        assert_eq!(session.python("import os; print(os.environ.get('WHICH', '-'))"), format!("{said}\n"), "{name}");
        assert_eq!(
            session.bash("cat /opt/note 2>&1 | head -c 6; echo $WHICH"),
            if image == "mine" { "a notemine\n" } else { "cat: /\n" }
        );
        session.release();
        assert_eq!(lease(&mut client, &json!({"image": name})).1, image, "{name}");
    }
    assert_eq!(lease(&mut client, &json!({})).1, "bare");
}

#[test]
fn javascript_runs_from_bash_where_the_machine_has_node() {
    let server = options().args(["--images", "node"]).start();
    let mut client = server.client();
    let mut session = client.lease(&json!({"image": "node"}));
    assert_eq!(session.bash("node -e 'console.log(6 * 7)'"), "42\n", "needs the Debian package nodejs");
    session.bash("echo 'require(\"fs\").writeFileSync(\"out.txt\", \"js\")' > a.js; node a.js");
    assert_eq!(session.python("print(open('out.txt').read())"), "js\n");
}

#[test]
fn an_image_whose_python_does_not_start_falls_back_to_the_default() {
    let house = House::new();
    let root = house.folder().join("root");
    fs::create_dir_all(root.join("bin")).unwrap();
    // By its head and its name it is a Python 3.11.
    fs::copy("/bin/busybox", root.join("bin/python3.11")).expect("the Debian package busybox-static");
    std::os::unix::fs::symlink("python3.11", root.join("bin/python3")).unwrap();
    let archive = house.folder().join("false.tar");
    let mut tar = std::process::Command::new("tar");
    let made = tar.arg("--create").arg("--file").arg(&archive).arg("-C").arg(&root).arg("bin").status().unwrap();
    assert!(made.success());
    house.image(&["import", "--root", &archive.display().to_string()]);
    let server = options().state_dir(house.folder()).start();
    let mut client = server.client();
    assert_eq!(lease(&mut client, &json!({"image": "false"})).1, "bare");
    assert_eq!(client.lease(&json!({"image": "false"})).python("print(1)"), "1\n");
}
