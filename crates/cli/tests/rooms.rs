//! The room table of ARCHITECTURE.md against what cargo knows.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

type Rooms = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Rooms and the rooms that each depends on, without those of its tests.
fn from_cargo() -> Rooms {
    let arguments = ["metadata", "--no-deps", "--format-version", "1", "--offline"];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let room = |value: &Value| value["name"].as_str().unwrap().strip_prefix("ringfence-").map(str::to_owned);
    let edges = |package: &Value| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        dependencies.filter(|dependency| dependency["kind"] != "dev").filter_map(room).collect()
    };
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.map(|package| (room(package).expect("packages are named ringfence-*"), edges(package))).collect()
}

/// The same from the table: the first column is the room, the third the rooms that it may know.
fn from_table() -> Rooms {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, after) =
        text.split_once("| room | holds | may know | never knows |").expect("ARCHITECTURE.md has the table");
    let rows = after.lines().skip(2).take_while(|line| line.starts_with('|'));
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let mut rooms = Rooms::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').collect();
        let name = quoted(cells[1]).pop().unwrap_or_else(|| panic!("no room in: {row}"));
        assert!(rooms.insert(name, quoted(cells[3]).into_iter().collect()).is_none(), "twice: {row}");
    }
    rooms
}

#[test]
fn the_room_table_says_what_cargo_says() {
    let (table, cargo) = (from_table(), from_cargo());
    let names = |rooms: &Rooms| rooms.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&table), names(&cargo), "rooms in the table (left) and in the workspace (right)");
    for (room, known) in &cargo {
        assert_eq!(&table[room], known, "what `{room}` may know in the table (left) and does know (right)");
    }
}

#[test]
fn unsafe_code_is_in_one_room() {
    for room in from_cargo().keys().filter(|room| *room != "sys") {
        let manifest = std::fs::read_to_string(root().join("crates").join(room).join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{room} does not take the workspace's lints");
    }
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(workspace.contains("unsafe_code = \"forbid\""));
}

#[test]
fn the_readme_names_every_setting() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let help = Command::new(env!("CARGO_BIN_EXE_ringfence")).args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let options = help.lines().filter_map(|line| line.trim_start().strip_prefix("--")?.split([' ', '[', '=']).next());
    let mut count = 0;
    for option in options {
        assert!(readme.contains(&format!("`--{option}`")), "--{option} is not in the README");
        count += 1;
    }
    assert!(count > 25, "only {count} options in:\n{help}");
}

#[test]
fn every_bound_stands_in_the_documents() {
    let document = std::fs::read_to_string(root().join("docs/limits.md")).unwrap();
    let mut count = 0;
    for room in [
        "attack",
        "cli",
        "control",
        "fuzz",
        "gate",
        "grant",
        "host",
        "image",
        "interp",
        "jail",
        "listen",
        "mcp",
        "oci",
        "secret",
        "server",
        "session",
        "tls",
        "workspace",
    ] {
        let path = root().join("crates").join(room).join("src/limits.rs");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for name in text.lines().filter_map(|line| line.split_once("const ")?.1.split_once(": ")).map(|(name, _)| name)
        {
            assert!(document.contains(&format!("| `{name}` |")), "{room}: {name} is not in docs/limits.md");
            count += 1;
        }
    }
    assert!(count > 50, "only {count} bounds were found");
}
