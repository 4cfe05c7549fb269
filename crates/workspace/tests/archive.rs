//! Folders as tar archives, kind and hostile.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test fails by a panic"
)]

mod place;

use std::fs;
use std::io::{Cursor, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use place::{Place, SECRET, kind, path};
use ringfence_op::FaultKind;

fn packed(place: &Place, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    place.workspace.archive(&path(name)).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

/// One ustar entry.
fn entry(name: &str, kind: u8, link: &str, content: &[u8]) -> Vec<u8> {
    let mut block = vec![0_u8; 512];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    put(124, format!("{:011o}\0", content.len()).as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(157, link.as_bytes());
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block.extend_from_slice(content);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), vec![0; 1024]].concat()
}

fn unpack(place: &Place, to: &str, bytes: &[u8]) -> Result<ringfence_workspace::Unpacked, ringfence_op::Fault> {
    place.workspace.unpack(&path(to), &mut Cursor::new(bytes), 1 << 20)
}

#[test]
fn a_folder_survives_the_way_out_and_in() {
    let one = Place::new();
    let long = format!("{}/{}", "l".repeat(120), "m".repeat(120));
    for (name, content) in
        [("a/b", &b"12345"[..]), ("a/empty", b""), ("block", &[7; 512]), (&long, b"long"), (".h", b"h")]
    {
        one.put(name, content).unwrap();
    }
    one.put("big", &vec![9; 300_000]).unwrap();
    fs::create_dir(one.dir.join("void")).unwrap();
    fs::set_permissions(one.dir.join("block"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("b", one.dir.join("a/link")).unwrap();
    symlink(format!("../{long}"), one.dir.join("a/longlink")).unwrap();
    symlink("/etc/passwd", one.dir.join("out")).unwrap();
    symlink("../up", one.dir.join("up")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, one.dir.join("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let bytes = packed(&one, "");
    assert_eq!(bytes, packed(&one, ""), "the same folder is the same stream");

    let two = Place::new();
    let unpacked = unpack(&two, "in/here", &bytes).unwrap();
    assert_eq!(unpacked.files, 8);
    for name in ["a/b", "a/empty", "a/link", "a/longlink", "block", &long, ".h", "big"] {
        assert_eq!(two.get(&format!("in/here/{name}")).unwrap(), one.get(name).unwrap(), "{name}");
    }
    let here = two.dir.join("in/here");
    assert!(here.join("void").is_dir());
    let meta = fs::metadata(here.join("block")).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.uid()), (0o755, two.owner_id));
    assert_eq!(fs::symlink_metadata(here.join("a/link")).unwrap().uid(), two.owner_id);
    for name in ["out", "up", "pipe"] {
        assert!(fs::symlink_metadata(here.join(name)).is_err(), "{name}");
    }
    assert_eq!(two.changed(), [""; 0], "an unpacked archive is nobody's");
    assert_eq!(packed(&two, "in/here"), bytes.to_vec());
}

#[test]
fn other_programs_read_and_write_the_same() {
    let place = Place::new();
    let long = format!("{}/{}", "l".repeat(120), "m".repeat(150));
    place.put("a/b", b"12345").unwrap();
    place.put(&long, b"long").unwrap();
    let beside = place.outside.join("x.tar");
    fs::write(&beside, packed(&place, "")).unwrap();
    let Ok(listed) = Command::new("tar").arg("-tf").arg(&beside).output() else {
        eprintln!("skipped: there is no tar program on this machine");
        return;
    };
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert_eq!(listed.lines().collect::<Vec<_>>(), ["a/", "a/b", &format!("{}/", "l".repeat(120)), &long]);
    for format in ["gnu", "pax", "ustar", "v7"] {
        let other = Place::new();
        let name = if format == "v7" { "a" } else { "." };
        let mut make = Command::new("tar");
        make.arg("-C").arg(&place.dir).args(["--format", format, "-cf"]).arg(&beside).arg(name);
        let made = make.output().unwrap();
        if !made.status.success() {
            // ustar and v7 cannot say some names; what they can say is in the archive.
            assert!(matches!(format, "ustar" | "v7"), "{made:?}");
        }
        unpack(&other, "", &fs::read(&beside).unwrap()).unwrap();
        assert_eq!(other.get("a/b").unwrap(), b"12345", "{format}");
        if format == "pax" || format == "gnu" {
            assert_eq!(other.get(&long).unwrap(), b"long", "{format}");
        }
    }
}

#[test]
fn hostile_entries_are_refused_by_name() {
    for (bad, wanted) in [
        (entry("../x", b'0', "", b"evil"), FaultKind::PathEscapes),
        (entry("a/../../x", b'0', "", b"evil"), FaultKind::PathEscapes),
        (entry("/x", b'0', "", b"evil"), FaultKind::PathEscapes),
        (entry("x", b'2', "/etc/passwd", b""), FaultKind::PathEscapes),
        (entry("x", b'2', "../../outside", b""), FaultKind::PathEscapes),
        (entry("x", b'1', "../outside/secret", b""), FaultKind::PathEscapes),
        (entry("x", b'1', "/etc/passwd", b""), FaultKind::PathEscapes),
        (entry("out/x", b'0', "", b"evil"), FaultKind::PathEscapes),
        (entry("x", b'1', "out/secret", b""), FaultKind::PathEscapes),
        (entry("x", b'3', "", b""), FaultKind::NotAFile),
        (entry("x", b'4', "", b""), FaultKind::NotAFile),
        (entry("x", b'6', "", b""), FaultKind::NotAFile),
        (entry("x", b'S', "", b""), FaultKind::NotAFile),
        (entry("x", b'1', "missing", b""), FaultKind::UnknownFile),
        (entry("x", b'1', "before", b"content"), FaultKind::Malformed),
        (entry("before", b'5', "", b""), FaultKind::NotAFile),
        (entry("folder", b'0', "", b"x"), FaultKind::NotAFile),
        (entry("before/x", b'0', "", b"x"), FaultKind::UnknownFile),
        (entry(&"d/".repeat(40), b'x', "", b"20 path=/etc/passwd\n"), FaultKind::PathEscapes),
    ] {
        let place = Place::new();
        fs::create_dir_all(place.dir.join("to/folder")).unwrap();
        symlink("../../outside", place.dir.join("to/out")).unwrap();
        let mut entries = vec![entry("before", b'0', "", b"kept"), bad];
        entries.push(entry("x", b'0', "", b"after"));
        let refused = unpack(&place, "to", &archive(&entries));
        let fault = refused.as_ref().unwrap_err();
        assert!(!fault.detail().contains(place.dir.to_str().unwrap()), "{fault:?}");
        assert_eq!(kind(refused), wanted);
        assert_eq!(place.get("to/before").unwrap(), b"kept", "what came before stays");
        assert!(fs::symlink_metadata(place.dir.join("to/x")).is_err(), "what comes after is not written");
        assert_eq!(fs::read(place.outside.join("secret")).unwrap(), SECRET);
        assert_eq!(fs::read_dir(&place.outside).unwrap().count(), 1);
        assert_eq!(fs::metadata(place.outside.join("secret")).unwrap().nlink(), 1);
    }
}

#[test]
fn a_link_of_the_archive_cannot_carry_its_next_entry_out() {
    let place = Place::new();
    let bytes = archive(&[
        entry("a/b/", b'5', "", b""),
        entry("l", b'2', "a/b", b""),
        entry("l/m", b'2', "../..", b""),
        entry("l/m/m2", b'2', "x", b""),
        entry("l/m/../../outside/y", b'0', "", b"evil"),
    ]);
    assert_eq!(kind(unpack(&place, "", &bytes)), FaultKind::PathEscapes);
    assert_eq!(fs::read_dir(&place.outside).unwrap().count(), 1);
}

#[test]
fn bombs_and_cut_archives_are_refused() {
    let place = Place::new();
    let big = entry("big", b'0', "", &vec![0; 600 << 10]);
    assert_eq!(
        kind(unpack(&place, "", &archive(&[big.clone(), entry("two", b'0', "", &vec![0; 600 << 10])]))),
        FaultKind::TooLarge
    );
    assert_eq!(place.everything(), ["big"], "the one that fitted");
    let mut claims = entry("claims", b'0', "", b"");
    claims[124..136].copy_from_slice(b"77777777777\0");
    assert!(unpack(&place, "", &claims).is_err());
    let pax = entry("h", b'x', "", &vec![b'1'; 100 << 10]);
    assert_eq!(kind(unpack(&place, "", &pax)), FaultKind::TooLarge);
    assert_eq!(kind(unpack(&place, "", &big[..1000])), FaultKind::Malformed, "cut in a file");
    assert_eq!(kind(unpack(&place, "", &big)), FaultKind::Malformed, "no end mark");
    assert_eq!(kind(unpack(&place, "", b"")), FaultKind::Malformed);
    assert_eq!(kind(unpack(&place, "", &[b'x'; 4096])), FaultKind::Malformed);
    assert_eq!(place.everything(), ["big"]);
    let endless = entry("h", b'g', "", b"").repeat(ringfence_workspace::limits::ARCHIVE_ENTRIES_MAX + 1);
    assert_eq!(kind(unpack(&place, "", &endless)), FaultKind::TooLarge);
}

#[test]
fn a_hard_link_inside_is_one_file() {
    let place = Place::new();
    unpack(&place, "to", &archive(&[entry("a", b'0', "", b"1"), entry("b/c", b'1', "a", b"")])).unwrap();
    let meta = |name: &str| fs::metadata(place.dir.join(name)).unwrap().ino();
    assert_eq!(meta("to/a"), meta("to/b/c"));
    assert_eq!(place.changed(), [""; 0]);
}

#[test]
fn a_file_that_shrinks_cuts_the_stream_off() {
    let place = Place::new();
    place.put("f", &vec![1; 500_000]).unwrap();
    let mut out = place.workspace.archive(&path("")).unwrap();
    let mut first = [0; 1024];
    out.read_exact(&mut first).unwrap();
    fs::write(place.dir.join("f"), "short").unwrap();
    let mut rest = Vec::new();
    assert!(out.read_to_end(&mut rest).is_err());
}
