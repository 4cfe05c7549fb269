//! Layers into a folder: what comes out is what the image says.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod fixtures;

use std::os::unix::fs::MetadataExt;

use fixtures::{Home, Tape, gzip, header, put, tape, tree, zstd};
use ringfence_oci::{ImportOptions, OciError, Owners, UnpackLimits, Unpacked, import_root, unpack};

fn unpacked(layers: &[Tape]) -> (Home, Unpacked) {
    let home = Home::new();
    let layers: Vec<Vec<u8>> = layers.iter().map(|layer| layer.clone().end()).collect();
    let unpacked = home.unpack(&layers, Owners::Drop, &UnpackLimits::default()).unwrap();
    home.assert_untouched("it");
    (home, unpacked)
}

fn tree_of(layers: &[Tape]) -> Vec<String> {
    tree(&unpacked(layers).0.root())
}

#[test]
fn a_layer_removes_of_the_layers_below_alone() {
    let below = tape()
        .folder("d")
        .file("d/old", "1")
        .folder("d/sub")
        .file("d/sub/old", "2")
        .file("f", "3")
        .folder("e")
        .file("e/x", "4");
    let opaque = tape()
        .folder("d")
        .file("d/.wh..wh..opq", "")
        .file("d/new", "5")
        .file(".wh.f", "")
        .file(".wh.none", "")
        .file("none/.wh.x", "");
    assert_eq!(tree_of(&[below.clone(), opaque]), ["d/", "d/new = 5", "e/", "e/x = 4"]);
    // The order within a layer says nothing.
    let late = tape()
        .file("d/new", "5")
        .file("d/sub/new", "6")
        .file("f", "7")
        .file("d/.wh..wh..opq", "")
        .file(".wh.f", "")
        .file(".wh.e", "");
    assert_eq!(tree_of(&[below.clone(), late]), ["d/", "d/new = 5", "d/sub/", "d/sub/new = 6", "f = 7"]);
    let gone = tape().file(".wh.d", "").file("d/again", "8").file("d/.wh.again", "");
    assert_eq!(tree_of(&[below.clone(), gone]), ["d/", "d/again = 8", "e/", "e/x = 4", "f = 3"]);
    let driver = tape().file(".wh..wh.plnk", "").file(".wh..wh.aufs", "");
    assert_eq!(tree_of(&[below, driver]).len(), 7);
}

#[test]
fn a_layer_replaces_whatever_is_below() {
    let below =
        tape().folder("a").file("a/x", "1").file("b", "2").link("c", "a").folder("k").file("k/x", "3").link("l", "k");
    let above = tape()
        .file("a", "file")
        .folder("b")
        .file("b/y", "4")
        .folder("c")
        .file("c/z", "5")
        .link("k", "b")
        .file("l", "6");
    assert_eq!(tree_of(&[below, above]), ["a = file", "b/", "b/y = 4", "c/", "c/z = 5", "k -> b", "l = 6"]);
}

#[test]
fn links_inside_are_followed_as_in_the_image() {
    let usr =
        tape().folder("usr").folder("usr/lib").link("lib", "usr/lib").link("abs", "/usr").link("usr/up", "../usr/lib");
    let above = tape().file("lib/a", "1").file("abs/b", "2").file("usr/up/c", "3").file("lib/new/d", "4");
    let expected = [
        "abs -> /usr",
        "lib -> usr/lib",
        "usr/",
        "usr/b = 2",
        "usr/lib/",
        "usr/lib/a = 1",
        "usr/lib/c = 3",
        "usr/lib/new/",
        "usr/lib/new/d = 4",
        "usr/up -> ../usr/lib",
    ];
    assert_eq!(tree_of(&[usr.clone(), above.clone()]), expected);
    // The same in one layer; and a link that was one below becomes a folder of its own.
    let both = Tape([usr.0.clone(), above.0].concat());
    assert_eq!(tree_of(&[both]), expected);
    let absent = tape().link("var/run", "/run").file("var/run/x", "1");
    assert_eq!(tree_of(&[absent]), ["run/", "run/x = 1", "var/", "var/run -> /run"]);
    // Where a link points to is the business of whoever follows it in the cell, not of who unpacks it.
    let outward = tape().link("etc/mtab", "../../../../proc/mounts").link("x", "/etc/passwd");
    assert_eq!(tree_of(&[outward])[1..], ["etc/mtab -> ../../../../proc/mounts", "x -> /etc/passwd"]);
}

#[test]
fn hard_links_share_a_file() {
    let below = tape().file("bin/one", "1").link("bin/soft", "one");
    let above = tape().hard("bin/two", "./bin/one").hard("three", "bin/two").hard("soft", "bin/soft");
    let (home, _) = unpacked(&[below, above]);
    let ino = |name: &str| home.root().join(name).symlink_metadata().unwrap().ino();
    assert_eq!((ino("bin/one"), ino("bin/one")), (ino("bin/two"), ino("three")));
    assert_eq!(ino("soft"), ino("bin/soft"));
    assert_eq!(home.root().join("three").metadata().unwrap().nlink(), 3);
}

#[test]
fn long_names_come_in_three_ways() {
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(200));
    let name = |tape: Tape| tape.file("short", "1");
    let by_pax = name(tape().pax(&[("path", &long)]));
    let by_gnu = name(tape().extended(b'L', format!("{long}\0").as_bytes()));
    let prefix = {
        let mut ustar = tar::Header::new_ustar();
        put(&mut ustar.as_old_mut().name, &long.as_bytes()[121..221]);
        put(&mut ustar.as_ustar_mut().unwrap().prefix, "d".repeat(120).as_bytes());
        ustar.set_entry_type(tar::EntryType::Regular);
        ustar.set_size(1);
        ustar.set_cksum();
        tape().entry(&ustar, b"1")
    };
    for (tape, length) in [(by_pax, 200), (by_gnu, 200), (prefix, 100)] {
        let expected = [format!("{}/", "d".repeat(120)), format!("{}/{} = 1", "d".repeat(120), "f".repeat(length))];
        assert_eq!(tree_of(&[tape]), expected);
    }
    let target = "t".repeat(300);
    for tape in [tape().pax(&[("linkpath", &target)]), tape().extended(b'K', target.as_bytes())] {
        assert_eq!(tree_of(&[tape.link("l", "short")]), [format!("l -> {target}")]);
    }
}

#[test]
fn modes_and_times_are_kept_without_what_makes_root() {
    let mode = |kind, name: &str, mode, time| {
        let mut header = header(kind, name, 0);
        header.set_mode(mode);
        header.set_mtime(time);
        header.set_cksum();
        header
    };
    let tape = tape()
        .entry(&mode(b'5', "./", 0o750, 1), b"")
        .entry(&mode(b'5', "tmp", 0o1777, 1_111), b"")
        .entry(&mode(b'0', "tmp/suid", 0o6755, 2_222), b"")
        .entry(&mode(b'0', "tmp/none", 0, 3_333), b"")
        .entry(&mode(b'5', "closed", 0, 4_444), b"")
        .file("closed/in", "x")
        .pax(&[("mtime", "5555.25"), ("atime", "1"), ("comment", "x")])
        .file("fine", "");
    let (home, _) = unpacked(&[tape]);
    let look = |name: &str| {
        let metadata = home.root().join(name).metadata().unwrap();
        (metadata.mode() & 0o7777, metadata.mtime())
    };
    assert_eq!(look(""), (0o750, 1));
    assert_eq!(look("tmp"), (0o1755, 1_111));
    assert_eq!(look("tmp/suid"), (0o755, 2_222));
    // Whoever unpacks without owners must be able to read and remove it.
    assert_eq!(look("tmp/none"), (0o400, 3_333));
    assert_eq!(look("closed"), (0o700, 4_444));
    assert_eq!(home.root().join("fine").metadata().unwrap().mtime_nsec(), 250_000_000);
}

#[test]
fn owners_are_kept_shifted_or_dropped() {
    assert!(rustix::process::geteuid().is_root(), "this test gives files away: run it as root");
    let owned = |name: &str, uid, gid| {
        let mut header = header(b'0', name, 0);
        header.set_uid(uid);
        header.set_gid(gid);
        header.set_cksum();
        header
    };
    let layer = tape()
        .entry(&owned("a/file", 1000, 0), b"")
        .entry(&owned("far", 200_000, 70_000), b"")
        .link("link", "a")
        .pax(&[("uid", "5"), ("gid", "6")])
        .file("pax", "")
        .end();
    let shift = Owners::Shift { base: 100_000, count: 65_536 };
    for (owners, file, far, link, folder) in [
        (Owners::Keep, (1000, 0), (200_000, 70_000), (0, 0), (0, 0)),
        (shift, (101_000, 100_000), (165_534, 165_534), (100_000, 100_000), (100_000, 100_000)),
        (Owners::Shift { base: 7, count: 1 }, (7, 7), (7, 7), (7, 7), (7, 7)),
        (Owners::Drop, (0, 0), (0, 0), (0, 0), (0, 0)),
    ] {
        let home = Home::new();
        home.unpack(std::slice::from_ref(&layer), owners, &UnpackLimits::default()).unwrap();
        let owner = |name: &str| {
            let metadata = home.root().join(name).symlink_metadata().unwrap();
            (metadata.uid(), metadata.gid())
        };
        assert_eq!((owner("a/file"), owner("far"), owner("link"), owner("a")), (file, far, link, folder), "{owners:?}");
        let root = home.root().metadata().unwrap();
        assert_eq!(
            ((root.uid(), root.gid()), root.mode() & 0o7777),
            (folder, 0o755),
            "the root, which no layer describes"
        );
        if owners == Owners::Keep {
            assert_eq!(owner("pax"), (5, 6));
        }
    }
}

#[test]
fn sparse_files_of_all_kinds_have_their_holes() {
    const HOLE: usize = 1 << 20;
    let content = [&b"begin"[..], b"end"].concat();
    let mut old = header(b'S', "old", content.len());
    {
        let gnu = old.as_gnu_mut().unwrap();
        for (slot, (offset, length)) in gnu.sparse.iter_mut().zip([(0, 5), (HOLE, 3)]) {
            put(&mut slot.offset, format!("{offset:011o}").as_bytes());
            put(&mut slot.numbytes, format!("{length:011o}").as_bytes());
        }
        put(&mut gnu.realsize, format!("{:011o}", HOLE + 10).as_bytes());
    }
    old.set_cksum();
    let size = (HOLE + 10).to_string();
    let hole = HOLE.to_string();
    let map = format!("0,5,{hole},3");
    let mut lines = format!("2\n0\n5\n{hole}\n3\n").into_bytes();
    lines.resize(512, 0);
    let layer = tape()
        .entry(&old, &content)
        .pax(&[
            ("GNU.sparse.size", &size),
            ("GNU.sparse.numblocks", "2"),
            ("GNU.sparse.offset", "0"),
            ("GNU.sparse.numbytes", "5"),
            ("GNU.sparse.offset", &hole),
            ("GNU.sparse.numbytes", "3"),
        ])
        .file("zero", &content)
        .pax(&[
            ("GNU.sparse.major", "0"),
            ("GNU.sparse.minor", "1"),
            ("GNU.sparse.size", &size),
            ("GNU.sparse.map", &map),
            ("GNU.sparse.name", "one"),
        ])
        .file("GNUSparseFile.1/one", &content)
        .pax(&[
            ("GNU.sparse.major", "1"),
            ("GNU.sparse.minor", "0"),
            ("GNU.sparse.realsize", &size),
            ("GNU.sparse.name", "two"),
        ])
        .file("GNUSparseFile.2/two", [lines, content].concat())
        .file("after", "x");
    let (home, unpacked) = unpacked(&[layer]);
    let mut expected = vec![0; HOLE + 10];
    expected[..5].copy_from_slice(b"begin");
    expected[HOLE..HOLE + 3].copy_from_slice(b"end");
    for name in ["old", "zero", "one", "two"] {
        let path = home.root().join(name);
        assert!(std::fs::read(&path).unwrap() == expected, "{name}");
        assert!(path.metadata().unwrap().blocks() * 512 < HOLE as u64, "{name} has no hole");
    }
    assert_eq!(unpacked.file_bytes, 4 * (HOLE as u64 + 10) + 1);
}

#[test]
fn layers_come_with_any_compression_and_are_verified() {
    let plain = tape().file("a", "1".repeat(100_000)).end();
    for kept in [plain.clone(), gzip(&plain), zstd(&plain)] {
        let home = Home::new();
        let found = home.found(&[(kept, plain.clone())]);
        unpack(&found, &home.blobs, &home.root(), Owners::Drop, &UnpackLimits::default(), &mut ()).unwrap();
        assert_eq!(home.root().join("a").metadata().unwrap().len(), 100_000);
    }
    let home = Home::new();
    let found = home.found(&[(gzip(&plain), b"another".to_vec())]);
    let refused = unpack(&found, &home.blobs, &home.root(), Owners::Drop, &UnpackLimits::default(), &mut ());
    assert!(matches!(refused, Err(OciError::WrongDigest { .. })), "{refused:?}");
    assert!(!home.root().exists());
}

#[test]
fn what_a_cell_has_of_its_own_is_left_out_and_told() {
    let layer = tape()
        .folder("dev")
        .device(b'3', "dev/null", 1, 3)
        .device(b'3', "./dev/console", 5, 1)
        .device(b'6', "run/initctl", 0, 0)
        .file("a", "1");
    let (home, unpacked) = unpacked(&[layer]);
    assert_eq!(tree(&home.root()), ["a = 1", "dev/"]);
    assert_eq!((unpacked.entries, unpacked.left_out), (5, 3));
    assert_eq!(unpacked.left_out_names, ["dev/null", "./dev/console", "run/initctl"]);
}

#[test]
fn a_target_that_exists_is_not_touched() {
    let home = Home::new();
    std::fs::create_dir(home.root()).unwrap();
    std::fs::write(home.root().join("mine"), "x").unwrap();
    assert!(home.unpack(&[tape().file("a", "1").end()], Owners::Drop, &UnpackLimits::default()).is_err());
    assert_eq!(tree(&home.root()), ["mine = x"]);
}

#[test]
fn it_can_be_given_up() {
    struct Impatient;
    impl ringfence_oci::Progress for Impatient {
        fn cancelled(&mut self) -> bool {
            true
        }
    }
    let home = Home::new();
    let layer = tape().file("a", "1").end();
    let found = home.found(&[(layer.clone(), layer)]);
    let given_up = unpack(&found, &home.blobs, &home.root(), Owners::Drop, &UnpackLimits::default(), &mut Impatient);
    assert!(matches!(given_up, Err(OciError::Cancelled)), "{given_up:?}");
    assert!(!home.root().exists());
}

#[test]
fn a_plain_root_is_an_image_of_one_layer() {
    let plain = tape().folder(".").file("./etc/hello", "hello").end();
    let mut ids = Vec::new();
    for kept in [plain.clone(), gzip(&plain), zstd(&plain)] {
        let home = Home::new();
        let path = home.write("blobs/root.tar", &kept);
        let found = import_root(&path, &home.blobs, &ImportOptions::default(), &mut ()).unwrap();
        assert_eq!(import_root(&path, &home.blobs, &ImportOptions::default(), &mut ()).unwrap(), found);
        assert_eq!(home.blobs.list().unwrap().len(), 3);
        unpack(&found, &home.blobs, &home.root(), Owners::Drop, &UnpackLimits::default(), &mut ()).unwrap();
        assert_eq!(tree(&home.root()), ["etc/", "etc/hello = hello"]);
        ids.push((found.config_digest, found.manifest_digest));
    }
    assert!(ids[0].0 == ids[1].0 && ids[1].0 == ids[2].0, "the root is the same, whatever its compression");
    assert!(ids[0].1 != ids[1].1 && ids[1].1 != ids[2].1);
    let home = Home::new();
    for nothing in [vec![0; 1024], b"no archive".to_vec(), vec![]] {
        let path = home.write("blobs/root.tar", &nothing);
        assert!(import_root(&path, &home.blobs, &ImportOptions::default(), &mut ()).is_err());
        assert_eq!(home.blobs.list().unwrap(), []);
    }
}
