//! What a call is said to have made.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test fails by a panic"
)]

mod place;

use std::fs;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use place::{Place, path};

#[test]
fn what_a_program_made_or_changed_is_named_once() {
    let place = Place::new();
    let at = |name: &str| place.dir.join(name);
    place.put("in.txt", b"seed").unwrap();
    assert_eq!(place.changed(), [""; 0], "an upload is nobody's");
    fs::create_dir(at("out")).unwrap();
    fs::write(at("a.csv"), "1").unwrap();
    fs::write(at("out/a.csv"), "2").unwrap();
    let mut names = place.changed();
    names.sort();
    assert_eq!(names, ["a.csv", "out/a.csv"]);
    assert_eq!(place.changed(), [""; 0]);
    OpenOptions::new().append(true).open(at("in.txt")).unwrap().write_all(b"more").unwrap();
    assert_eq!(place.changed(), ["in.txt"]);
    fs::write(at("a.csv"), "3").unwrap();
    assert_eq!(place.changed(), ["a.csv"], "the same size is another content all the same");
    fs::rename(at("a.csv"), at("b.csv")).unwrap();
    assert_eq!(place.changed(), ["b.csv"]);
    fs::remove_file(at("b.csv")).unwrap();
    assert_eq!(place.changed(), [""; 0]);
    fs::write(at("b.csv"), "3").unwrap();
    assert_eq!(place.changed(), ["b.csv"]);
    // Folders that come whole, and are new to the watching.
    fs::create_dir_all(at("x/y/z")).unwrap();
    assert_eq!(place.changed(), [""; 0]);
    fs::write(at("x/y/z/f"), "").unwrap();
    assert_eq!(place.changed(), ["x/y/z/f"]);
    fs::rename(at("x/y"), at("moved")).unwrap();
    assert_eq!(place.changed(), ["moved/z/f"]);
    fs::write(at("moved/z/f"), "again").unwrap();
    assert_eq!(place.changed(), ["moved/z/f"]);
}

#[test]
fn a_file_held_open_is_seen_at_each_write() {
    let place = Place::new();
    let mut file = fs::File::create(place.dir.join("log")).unwrap();
    for _ in 0..3 {
        file.write_all(b"line\n").unwrap();
        assert_eq!(place.changed(), ["log"]);
        assert_eq!(place.changed(), [""; 0]);
    }
}

#[test]
fn figures_come_first_then_the_newest_and_the_rest_is_counted() {
    let place = Place::new();
    let old = SystemTime::now() - Duration::from_secs(100);
    for (n, name) in ["a.csv", "plot.png", "b.csv", "c.csv", "early.SVG"].iter().enumerate() {
        let file = fs::File::create(place.dir.join(name)).unwrap();
        file.set_modified(old + Duration::from_secs(n as u64)).unwrap();
    }
    let changed = place.workspace.changed_since_last(3);
    let names: Vec<_> = changed.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!((names, changed.omitted), (vec!["early.SVG", "plot.png", "c.csv"], 2));
    assert_eq!(place.changed(), [""; 0], "what was only counted is not named later");
}

#[test]
fn hidden_files_caches_and_links_are_left_out() {
    let place = Place::new();
    let at = |name: &str| place.dir.join(name);
    for folder in [".cache/deep", "pkg/__pycache__", "node_modules/x", ".git"] {
        fs::create_dir_all(at(folder)).unwrap();
        fs::write(at(folder).join("f.png"), "").unwrap();
    }
    fs::write(at(".env"), "").unwrap();
    symlink("/etc", at("etc")).unwrap();
    symlink("/etc/hostname", at("name")).unwrap();
    symlink(".", at("again")).unwrap();
    assert_eq!(place.changed(), [""; 0]);
}

#[test]
fn file_ids_are_stable_and_lead_back() {
    let place = Place::new();
    fs::write(place.dir.join("f"), "1").unwrap();
    let first = place.workspace.changed_since_last(9).files;
    fs::write(place.dir.join("new"), "2").unwrap();
    fs::rename(place.dir.join("new"), place.dir.join("f")).unwrap();
    let second = place.workspace.changed_since_last(9).files;
    assert_eq!(first, second, "a file that was replaced keeps its id");
    assert_eq!(place.workspace.path_of(&first[0].file_id), Some(path("f")));
    assert_eq!(place.workspace.path_of("file_0"), None);
}

#[test]
fn what_was_there_before_is_nobodys() {
    let place = Place::new();
    fs::write(place.dir.join("old"), "1").unwrap();
    let root = fs::File::open(&place.dir).unwrap().into();
    let later = ringfence_workspace::Workspace::new(root, place.owner_id, 100);
    assert!(later.changed_since_last(9).files.is_empty());
    fs::write(place.dir.join("old"), "2").unwrap();
    assert_eq!(later.changed_since_last(9).files.len(), 1);
    assert_eq!(place.changed(), ["old"], "each workspace has a look of its own");
}
