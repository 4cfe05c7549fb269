//! Files in, files out, and what must be refused.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test fails by a panic"
)]

mod place;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use place::{Place, SECRET, kind, path};
use ringfence_op::FaultKind;
use rustix::fs::{CWD, FileType, Mode, mknodat};

#[test]
fn what_was_put_is_listed_and_got() {
    let place = Place::new();
    let all: Vec<u8> = (0..=255).collect();
    place.put("data.csv", b"a,b\n1,2\n").unwrap();
    place.put("deep/er/x.bin", &all).unwrap();
    assert_eq!(place.names("", false), ["data.csv"]);
    assert_eq!(place.names("deep/er", false), ["deep/er/x.bin"]);
    assert_eq!(place.names("", true), ["data.csv", "deep/er/x.bin"]);
    assert_eq!(place.get("deep/er/x.bin").unwrap(), all);
    assert_eq!(place.get("/workspace/data.csv").unwrap(), b"a,b\n1,2\n");
    let listing = place.workspace.list(&path(""), false).unwrap();
    assert_eq!((listing.files[0].size_bytes, listing.unlistable, listing.truncated), (8, 0, false));
    let written = fs::metadata(place.dir.join("data.csv")).unwrap();
    assert!((listing.files[0].modified - written.mtime() as f64 - written.mtime_nsec() as f64 / 1e9).abs() < 1e-6);
    assert_eq!(kind(place.get("deep")), FaultKind::NotAFile);
    assert_eq!(kind(place.get("")), FaultKind::NotAFile);
    assert_eq!(kind(place.get("missing")), FaultKind::UnknownFile);
    assert_eq!(kind(place.get("data.csv/x")), FaultKind::UnknownFile);
    assert_eq!(kind(place.workspace.list(&path("missing"), false)), FaultKind::UnknownFile);
    assert_eq!(kind(place.workspace.list(&path("data.csv"), false)), FaultKind::NotAFile);
}

#[test]
fn uploads_and_their_folders_belong_to_the_session() {
    let place = Place::new();
    place.put("a/b/f", b"x").unwrap();
    for (name, mode) in [("a", 0o755), ("a/b", 0o755), ("a/b/f", 0o644)] {
        let meta = fs::metadata(place.dir.join(name)).unwrap();
        assert_eq!((meta.uid(), meta.mode() & 0o7777), (place.owner_id, mode), "{name}");
        // Where they are our own anyway, the group is our own too, whatever its number.
        let own = place.owner_id == rustix::process::geteuid().as_raw();
        let group = if own { rustix::process::getegid().as_raw() } else { place.owner_id };
        assert_eq!(meta.gid(), group, "{name}");
    }
    fs::set_permissions(place.dir.join("a/b/f"), fs::Permissions::from_mode(0o750)).unwrap();
    place.put("a/b/f", b"y").unwrap();
    assert_eq!(fs::metadata(place.dir.join("a/b/f")).unwrap().mode() & 0o7777, 0o750, "the mode is kept");
}

#[test]
fn a_refused_or_dropped_upload_leaves_nothing() {
    let place = Place::new();
    place.put("kept", b"old").unwrap();
    let mut upload = place.workspace.create_upload(&path("kept"), 10).unwrap();
    upload.write_chunk(b"12345").unwrap();
    assert_eq!(kind(upload.write_chunk(b"678901")), FaultKind::TooLarge);
    assert_eq!(kind(upload.commit()), FaultKind::TooLarge);
    let mut upload = place.workspace.create_upload(&path("new/folder/f"), 10).unwrap();
    upload.write_chunk(b"1").unwrap();
    assert_eq!(place.everything(), ["kept"], "nothing is seen before the commit");
    drop(upload);
    // A folder in the file's place is found at the commit: the folders made for it are gone again.
    let upload = place.workspace.begin_upload(10).unwrap();
    assert_eq!(kind(upload.commit_to(&path(&format!("x/y/{}", "d/".repeat(200))))), FaultKind::Malformed);
    assert_eq!(place.everything(), ["kept"]);
    assert_eq!(place.get("kept").unwrap(), b"old");
}

#[test]
fn a_path_that_comes_last_is_good_enough() {
    let place = Place::new();
    let mut upload = place.workspace.begin_upload(100).unwrap();
    upload.write_chunk(b"late").unwrap();
    let entry = upload.commit_to(&path("sub/late.txt")).unwrap();
    assert_eq!((entry.path.as_str(), entry.size_bytes), ("sub/late.txt", 4));
    assert_eq!(kind(place.workspace.begin_upload(1).unwrap().commit()), FaultKind::Malformed);
}

#[test]
fn escapes_are_refused_by_kind() {
    let place = Place::new();
    let at = |name: &str| place.dir.join(name);
    symlink(place.outside.join("secret"), at("link")).unwrap();
    symlink("/", at("rootdir")).unwrap();
    symlink("../../..", at("up")).unwrap();
    symlink("../outside/secret", at("beside")).unwrap();
    fs::create_dir(at("d")).unwrap();
    symlink("../link", at("d/chain")).unwrap();
    symlink("/workspace/../outside", at("sly")).unwrap();
    symlink("/workspacex/f", at("like")).unwrap();
    for name in ["link", "rootdir/etc/passwd", "up/etc/passwd", "d/chain", "beside", "sly/secret", "like"] {
        assert_eq!(kind(place.get(name)), FaultKind::PathEscapes, "get {name}");
    }
    for name in ["link", "rootdir/tmp/x", "up/x", "beside", "d/chain", "sly/x", "sly/new/x"] {
        assert_eq!(kind(place.put(name, b"owned")), FaultKind::PathEscapes, "put {name}");
    }
    for name in ["rootdir", "up", "sly"] {
        assert_eq!(kind(place.workspace.list(&path(name), true)), FaultKind::PathEscapes, "list {name}");
        assert_eq!(kind(place.workspace.archive(&path(name))), FaultKind::PathEscapes, "archive {name}");
        assert_eq!(kind(place.workspace.remove(&path(&format!("{name}/x")))), FaultKind::PathEscapes, "remove {name}");
    }
    assert_eq!(fs::read(place.outside.join("secret")).unwrap(), SECRET);
    assert_eq!(fs::read_dir(&place.outside).unwrap().count(), 1);
    assert_eq!(place.names("", true), [""; 0], "links that lead out are not listed");
    place.workspace.remove(&path("link")).unwrap();
    assert!(place.outside.join("secret").exists() && !at("link").exists(), "the link goes, not what it leads to");
}

#[test]
fn links_that_stay_inside_are_followed() {
    let place = Place::new();
    let at = |name: &str| place.dir.join(name);
    place.put("real/f", b"12345").unwrap();
    symlink("real/f", at("file")).unwrap();
    symlink("real", at("folder")).unwrap();
    symlink("/workspace/real/f", at("rooted")).unwrap();
    symlink("/workspace", at("home")).unwrap();
    symlink("../home/real/../file", at("real/chain")).unwrap();
    symlink("real/new", at("dangling")).unwrap();
    for name in ["file", "folder/f", "rooted", "home/real/f", "real/chain", "home/home/rooted"] {
        assert_eq!(place.get(name).unwrap(), b"12345", "{name}");
    }
    let listing = place.workspace.list(&path(""), false).unwrap();
    let sizes: Vec<_> = listing.files.iter().map(|file| (file.path.as_str(), file.size_bytes)).collect();
    assert_eq!(sizes, [("file", 5), ("rooted", 5)]);
    assert_eq!(place.names("home/folder", true), ["home/folder/chain", "home/folder/f"]);
    for (name, real) in [("file", "real/f"), ("rooted", "real/f"), ("dangling", "real/new"), ("home/x/y", "x/y")] {
        place.put(name, name.as_bytes()).unwrap();
        assert_eq!(fs::read(at(real)).unwrap(), name.as_bytes(), "{name} is written through");
    }
    assert!(fs::symlink_metadata(at("file")).unwrap().is_symlink(), "the link is still one");
}

#[test]
fn loops_and_long_paths_are_refused() {
    let place = Place::new();
    symlink("b", place.dir.join("a")).unwrap();
    symlink("a", place.dir.join("b")).unwrap();
    symlink("/workspace/self", place.dir.join("self")).unwrap();
    symlink(format!("/workspace/{}", "s/".repeat(2000)), place.dir.join("s")).unwrap();
    for name in ["a", "self", "a/x"] {
        assert_eq!(kind(place.get(name)), FaultKind::NotAFile, "{name}");
        assert_eq!(kind(place.put(name, b"")), FaultKind::NotAFile, "{name}");
    }
    assert!(matches!(kind(place.get("s")), FaultKind::NotAFile | FaultKind::Malformed));
    let long = "d/".repeat(2000);
    assert_eq!(kind(place.get(&long)), FaultKind::UnknownFile);
    assert_eq!(kind(place.put(&long, b"")), FaultKind::Malformed);
    assert_eq!(place.everything(), ["a", "b", "s", "self"]);
}

#[test]
fn special_files_are_never_waited_for() {
    let place = Place::new();
    mknodat(CWD, place.dir.join("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let _socket = UnixListener::bind(place.dir.join("sock")).unwrap();
    let device = place.dir.join("zero");
    let mut names = vec!["pipe", "sock"];
    match mknodat(CWD, &device, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, rustix::fs::makedev(1, 5)) {
        Ok(()) => names.push("zero"),
        Err(error) => eprintln!("no device is tried: making one needs privilege ({error})"),
    }
    for name in &names {
        assert_eq!(kind(place.get(name)), FaultKind::NotAFile, "{name}");
        assert_eq!(kind(place.put(name, b"x")), FaultKind::NotAFile, "{name}");
        assert!(!fs::metadata(place.dir.join(name)).unwrap().is_file());
    }
    assert_eq!(place.names("", true), [""; 0]);
    assert_eq!(place.changed(), [""; 0]);
    place.workspace.remove(&path("pipe")).unwrap();
    assert!(!place.dir.join("pipe").exists());
}

#[test]
fn strange_names_are_files_like_any_other() {
    let place = Place::new();
    let names = [
        "caf\u{e9} \u{2603}.txt",
        " lead",
        "--help",
        "-rf",
        "a'b\"c.txt",
        "new\nline",
        "q?x=1&y#z",
        "%2e%2e",
        "back\\slash",
        "workspace",
        ".hidden",
        "\u{202e}txt",
    ];
    for name in names {
        fs::write(place.dir.join(name), name).unwrap();
    }
    let rubbish = place.dir.join(std::ffi::OsStr::from_bytes(b"\xff\xfe.txt"));
    fs::write(&rubbish, "x").unwrap();
    fs::create_dir(place.dir.join(std::ffi::OsStr::from_bytes(b"\xffdir"))).unwrap();
    fs::write(place.dir.join(std::ffi::OsStr::from_bytes(b"\xffdir/f")), "x").unwrap();
    let mut wanted = names.to_vec();
    wanted.sort_unstable();
    assert_eq!(place.names("", false), wanted);
    assert_eq!(place.workspace.list(&path(""), true).unwrap().unlistable, 2);
    for name in names {
        assert_eq!(place.get(name).unwrap(), name.as_bytes());
        place.put(name, b"again").unwrap();
    }
    let changed = place.workspace.changed_since_last(100);
    assert_eq!((changed.files.len(), changed.omitted), (0, 2), "what cannot be named is counted");
}

#[test]
fn files_that_nobody_may_read_are_refused_or_read_but_break_nothing() {
    let place = Place::new();
    place.put("locked", b"x").unwrap();
    fs::set_permissions(place.dir.join("locked"), fs::Permissions::from_mode(0o000)).unwrap();
    match place.get("locked") {
        Ok(content) => assert_eq!(content, b"x"),
        Err(fault) => assert_eq!(fault.kind(), FaultKind::NotAFile),
    }
    place.put("locked", b"y").unwrap();
    assert_eq!(fs::metadata(place.dir.join("locked")).unwrap().mode() & 0o7777, 0);
}

#[test]
fn a_file_that_changes_while_it_is_read_is_sent_up_to_its_announced_size() {
    let place = Place::new();
    place.put("f", b"0123456789").unwrap();
    let opened = place.workspace.open_file(&path("f")).unwrap();
    fs::write(place.dir.join("f"), b"0123456789abcdef").unwrap();
    let mut buffer = [0; 64];
    assert_eq!(opened.read_at(0, &mut buffer).unwrap(), 10);
    assert_eq!(opened.read_at(10, &mut buffer).unwrap(), 0);
    assert_eq!(opened.read_at(u64::MAX, &mut buffer).unwrap(), 0);
    let etag = opened.etag().to_owned();
    assert_ne!(place.workspace.open_file(&path("f")).unwrap().etag(), etag);
    fs::write(place.dir.join("f"), b"0123").unwrap();
    assert_eq!(opened.read_at(0, &mut buffer).unwrap(), 4);
    assert_eq!(opened.read_at(4, &mut buffer).unwrap(), 0, "the end came before the announced size");
}

#[test]
fn many_files_and_deep_trees_are_bounded() {
    let place = Place::new();
    for n in 0..ringfence_workspace::limits::LIST_ENTRIES_MAX + 3 {
        fs::File::create(place.dir.join(format!("f{n:06}"))).unwrap();
    }
    let listing = place.workspace.list(&path(""), false).unwrap();
    assert_eq!((listing.files.len(), listing.truncated), (ringfence_workspace::limits::LIST_ENTRIES_MAX, true));
    let changed = place.workspace.changed_since_last(50);
    assert_eq!(changed.files.len() as u64 + changed.omitted, ringfence_workspace::limits::LIST_ENTRIES_MAX as u64 + 3);
    assert_eq!(changed.files.len(), 50);

    // A tree deeper than any path that a kernel takes, made as a program makes it: one step at a time.
    let deep = Place::new();
    let name = "d".repeat(200);
    let mut at: std::os::fd::OwnedFd = fs::File::open(&deep.dir).unwrap().into();
    for _ in 0..40 {
        rustix::fs::mkdirat(&at, name.as_str(), Mode::from_raw_mode(0o755)).unwrap();
        at = rustix::fs::openat(&at, name.as_str(), rustix::fs::OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    let file = rustix::fs::openat(&at, "f", rustix::fs::OFlags::CREATE, Mode::from_raw_mode(0o644)).unwrap();
    drop(file);
    let listing = deep.workspace.list(&path(""), true).unwrap();
    assert_eq!((listing.files.len(), listing.unlistable), (0, 1));
    assert_eq!(deep.changed(), [""; 0]);
    assert!(deep.workspace.remove(&path(&name)).is_err());
    // Taken down the same way, since no single path reaches the bottom.
    let mut levels = vec![std::os::fd::OwnedFd::from(fs::File::open(&deep.dir).unwrap())];
    for _ in 0..40 {
        let next =
            rustix::fs::openat(levels.last().unwrap(), name.as_str(), rustix::fs::OFlags::DIRECTORY, Mode::empty());
        levels.push(next.unwrap());
    }
    rustix::fs::unlinkat(levels.pop().unwrap(), "f", rustix::fs::AtFlags::empty()).unwrap();
    for level in levels.iter().rev() {
        rustix::fs::unlinkat(level, name.as_str(), rustix::fs::AtFlags::REMOVEDIR).unwrap();
    }
}

#[test]
fn no_descriptor_is_left_open() {
    let place = Place::new();
    let round = || {
        place.put("a/b/c", b"x").unwrap();
        assert!(place.put("a", b"x").is_err());
        place.get("a/b/c").unwrap();
        place.names("", true);
        place.changed();
        place.workspace.remove(&path("a/b/c")).unwrap();
    };
    round();
    // Only descriptors into this place are counted: other tests of the process have their own.
    let open = || {
        fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
            .filter(|target| target.starts_with(&place.dir))
            .count()
    };
    let before = open();
    (0..20).for_each(|_| round());
    assert_eq!(open(), before);
}
