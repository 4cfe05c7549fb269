//! Archives that want to do harm: each is refused with the entry named, and nothing is left or touched.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod fixtures;

use fixtures::{Home, Tape, chain, gzip, header, pax, put, tape};
use proptest::prelude::*;
use ringfence_oci::{Owners, UnpackLimits, Unpacked, unpack, unpack_layer};

/// An attack: the layers, the entry that must be named, and the reason that must be given.
struct Case {
    name: &'static str,
    layers: Vec<Vec<u8>>,
    entry: &'static str,
    why: &'static str,
}

fn case(name: &'static str, tape: Tape, entry: &'static str, why: &'static str) -> Case {
    Case { name, layers: vec![tape.end()], entry, why }
}

/// The last layer is the attack.
fn above(name: &'static str, layers: [Tape; 2], entry: &'static str, why: &'static str) -> Case {
    Case { name, layers: layers.into_iter().map(Tape::end).collect(), entry, why }
}

fn limits() -> UnpackLimits {
    let mut limits = UnpackLimits::default();
    limits.bytes_max = 1 << 20;
    limits.entries_max = 1000;
    limits.ratio_max = 100;
    limits.ratio_free_bytes = 64 << 10;
    limits
}

fn names() -> Vec<Case> {
    let deep = "d/".repeat(129) + "f";
    vec![
        case("a parent", tape().file("../escape", "x"), "../escape", "`..`"),
        case("a parent inside", tape().file("a/../../outside/x", "x"), "a/../../outside/x", "`..`"),
        case("a harmless parent too", tape().file("a/../b", "x"), "a/../b", "`..`"),
        case("the parent as a folder", tape().folder(".."), "..", "`..`"),
        case("an absolute name", tape().file("/outside/x", "x"), "/outside/x", "absolute"),
        case("an absolute name, twice", tape().folder("//outside"), "//outside", "absolute"),
        case("an absolute link", tape().link("/outside/x", "y"), "/outside/x", "absolute"),
        case("the root as a file", tape().file(".", "x"), ".", "root"),
        case("the root as a link", tape().link("./", "/etc"), "./", "root"),
        case("no name", tape().file("", "x"), "", "no name"),
        case("a NUL", tape().pax(&[("path", "a\0b")]).file("x", ""), "a\\u{0}b", "NUL"),
        case("a long name", tape().pax(&[("path", &"n/".repeat(2100))]).file("x", ""), "n/n/n/", "bytes"),
        case("a long part", tape().pax(&[("path", &"n".repeat(256))]).file("x", ""), "nnnn", "255 bytes"),
        case("depth", tape().pax(&[("path", &deep)]).file("x", ""), "d/d/d", "deep"),
        case("a name by GNU", tape().extended(b'L', b"../../escape\0").file("x", ""), "../../escape", "`..`"),
        case("a name by pax", tape().pax(&[("path", "../escape")]).file("x", ""), "../escape", "`..`"),
        case(
            "a name of a sparse file",
            tape().pax(&[("GNU.sparse.name", "../e"), ("GNU.sparse.size", "0")]).file("x", ""),
            "../e",
            "`..`",
        ),
        case("a name by ustar's prefix", prefixed("..", "escape"), "../escape", "`..`"),
    ]
}

fn prefixed(prefix: &str, name: &str) -> Tape {
    let mut ustar = tar::Header::new_ustar();
    put(&mut ustar.as_old_mut().name, name.as_bytes());
    put(&mut ustar.as_ustar_mut().unwrap().prefix, prefix.as_bytes());
    ustar.set_entry_type(tar::EntryType::Regular);
    ustar.set_size(0);
    ustar.set_cksum();
    tape().entry(&ustar, b"")
}

fn links() -> Vec<Case> {
    let out = "leads out";
    vec![
        case("a link up", tape().link("l", "..").file("l/escape", "x"), "l/escape", out),
        case("a link far up", tape().link("l", "../../../../outside").file("l/x", "x"), "l/x", out),
        case("a link up from below", tape().folder("a").link("a/l", "../../outside").file("a/l/x", ""), "a/l/x", out),
        case("a link by a link", tape().link("a", "b").link("b", "..").file("a/outside/x", ""), "a/outside/x", out),
        case("a folder by a link", tape().link("l", "..").folder("l/made"), "l/made", out),
        case("a link by a link's folder", tape().link("l", "..").link("l/m", "x"), "l/m", out),
        case("a hard link by a link", tape().file("f", "").link("l", "..").hard("l/h", "f"), "l/h", out),
        case("a removal by a link", tape().link("l", "..").file("l/.wh.outside", ""), "l/.wh.outside", out),
        case("an emptying by a link", tape().link("l", "../outside").file("l/.wh..wh..opq", ""), "l/.wh..wh..opq", out),
        above("a link of the layer below", [tape().link("l", ".."), tape().file("l/escape", "")], "l/escape", out),
        case("a circle", tape().link("a", "b").link("b", "a").file("a/x", ""), "a/x", "too many links"),
        case("a file on the way", tape().file("f", "").file("f/x", ""), "f/x", "no folder"),
        case("a file by a link on the way", tape().file("f", "").link("l", "f").file("l/x", ""), "l/x", "no folder"),
        case("an empty link", tape().link("l", ""), "l", "links to nothing"),
        case("a hard link up", tape().hard("h", "../outside/secret"), "h", "`..`"),
        case("an absolute hard link", tape().hard("h", "/etc/passwd"), "h", "absolute"),
        case("a hard link to nothing", tape().hard("h", "missing"), "h", "not there"),
        case("a hard link through a link", tape().link("l", "..").hard("h", "l/outside/secret"), "h", out),
        case("a hard link to a folder", tape().folder("d").hard("h", "d"), "h", "folder"),
        case("a hard link to itself", tape().hard("h", "h"), "h", "not there"),
        case("a hard link to the root", tape().hard("h", "."), "h", "not there"),
        case("a hard link with content", tape().file("f", "x").entry(&header(b'1', "h", 3), b"abc"), "h", "content"),
        case("a link with content", tape().entry(&header(b'2', "l", 3), b"abc"), "l", "content"),
        case("a folder with content", tape().entry(&header(b'5', "d", 3), b"abc"), "d", "content"),
    ]
}

fn kinds() -> Vec<Case> {
    vec![
        case("a disk", tape().device(b'4', "dev/sda", 8, 0), "dev/sda", "device"),
        case("the memory", tape().device(b'3', "dev/mem", 1, 1), "dev/mem", "device"),
        case("a usual device elsewhere", tape().device(b'3', "etc/null", 1, 3), "etc/null", "device"),
        case("a usual device by another way", tape().device(b'4', "dev/null", 1, 3), "dev/null", "device"),
        case("an overlay's whiteout", tape().device(b'3', "gone", 0, 0), "gone", "device"),
        case("a volume", tape().with(b'V', "v", |_| {}), "v", "type"),
        case("a continuation", tape().with(b'M', "m", |_| {}), "m", "type"),
        case("an unknown type", tape().with(b'Z', "z", |_| {}), "z", "type"),
        case("a file twice", tape().file("a", "1").file("a", "2"), "a", "twice"),
        case(
            "a file twice, by a link",
            tape().folder("d").link("l", "d").file("d/a", "1").file("l/a", "2"),
            "l/a",
            "twice",
        ),
        case("a file, then a folder", tape().file("a", "1").folder("a"), "a", "twice"),
        case("a folder, then a link", tape().folder("a").link("a", "/etc"), "a", "twice"),
        case("a filled folder, then a link", tape().file("a/b", "1").link("a", "/etc"), "a", "filled"),
        case("a link, then a folder", tape().link("a", "/etc").folder("a"), "a", "twice"),
        case("a removal with content", tape().file(".wh.a", "x"), ".wh.a", "removes"),
        case("a removal as a link", tape().link(".wh.a", "x"), ".wh.a", "removes"),
        case("a removal as a folder", tape().folder("d/.wh..wh..opq"), "d/.wh..wh..opq", "removes"),
        case("a removal of nothing", tape().file(".wh.", ""), ".wh.", "removes"),
        case("a removal of the folder", tape().file("a/.wh..", ""), "a/.wh..", "removes"),
        case("a removal of the parent", tape().file("a/.wh...", ""), "a/.wh...", "removes"),
        case("something in a removal", tape().file(".wh.a/b", ""), ".wh.a/b", "removes"),
    ]
}

fn sparse(records: &[(&str, &str)], content: &str) -> Tape {
    tape().pax(records).file("s", content)
}

fn sizes() -> Vec<Case> {
    let size = |field: [u8; 12]| {
        let mut wrong = header(b'0', "f", 0);
        wrong.as_old_mut().size = field;
        wrong.set_cksum();
        tape().file("before", "").entry(&wrong, b"")
    };
    let records = |count: usize| {
        (0..count)
            .fold(tape().file("before", ""), |tape, _| tape.extended(b'x', &pax(&[("comment", &"x".repeat(60_000))])))
    };
    let zeros = "0".repeat(2 << 20);
    let many = (0..1001).fold(tape(), |tape, at| tape.folder(&format!("d{at}")));
    vec![
        case("a negative size", size([0xff; 12]), "before", "negative"),
        case("a size over 63 bits", size([0x80, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0]), "before", "no number"),
        case(
            "a size near 63 bits",
            size([0x80, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            "before",
            "range",
        ),
        case("a size that is no number", size(*b"99999999999\0"), "before", "no number"),
        case("a large file", size(*b"77777777777\0"), "f", "over 1048576 bytes"),
        case("a size by pax", tape().pax(&[("size", "99999999")]).file("f", ""), "f", "over 1048576 bytes"),
        case(
            "a negative size by pax",
            tape().file("before", "").pax(&[("size", "-1")]).file("f", ""),
            "before",
            "number",
        ),
        case(
            "a damaged record",
            tape().file("before", "").extended(b'x', b"99 path=a\n").file("f", ""),
            "before",
            "damaged",
        ),
        case(
            "a header that renames all",
            tape().file("before", "").extended(b'g', &pax(&[("path", "x")])).file("f", ""),
            "before",
            "global",
        ),
        case(
            "a large header",
            tape().file("before", "").extended(b'x', &pax(&[("comment", &zeros)])),
            "before",
            "headers",
        ),
        case("a large long name", tape().file("before", "").extended(b'L', zeros.as_bytes()), "before", "headers"),
        case("many headers", records(30), "before", "headers"),
        case("many entries", many, "d1000", "entries"),
        case(
            "many bytes",
            tape().file("a", "1".repeat(600_000)).file("b", "1".repeat(600_000)),
            "b",
            "over 1048576 bytes",
        ),
        case(
            "a sparse file of a terabyte",
            sparse(&[("GNU.sparse.size", "1099511627776"), ("GNU.sparse.map", "0,1")], "x"),
            "s",
            "over 1048576 bytes",
        ),
        case(
            "a sparse map that overlaps",
            sparse(&[("GNU.sparse.size", "9"), ("GNU.sparse.map", "4,2,5,2")], "abcd"),
            "s",
            "overlaps",
        ),
        case(
            "a sparse map that falls",
            sparse(&[("GNU.sparse.size", "9"), ("GNU.sparse.map", "4,2,0,2")], "abcd"),
            "s",
            "overlaps",
        ),
        case(
            "a sparse map that leaves",
            sparse(&[("GNU.sparse.size", "9"), ("GNU.sparse.map", "8,2")], "ab"),
            "s",
            "leaves",
        ),
        case(
            "a sparse map over 63 bits",
            sparse(&[("GNU.sparse.size", "9"), ("GNU.sparse.map", "9223372036854775000,9223372036854775000")], "ab"),
            "s",
            "leaves",
        ),
        case(
            "a sparse map with less",
            sparse(&[("GNU.sparse.size", "9"), ("GNU.sparse.map", "0,2")], "abcd"),
            "s",
            "fit",
        ),
        case(
            "a sparse map without an end",
            sparse(&[("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", "9")], "9\n0\n"),
            "s",
            "cut off",
        ),
        case(
            "a sparse map that is too long",
            sparse(
                &[("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", "9")],
                &format!("70000\n{}", "0\n".repeat(300)),
            ),
            "s",
            "too long",
        ),
        case(
            "a sparse file of a new kind",
            sparse(&[("GNU.sparse.major", "2"), ("GNU.sparse.minor", "0"), ("GNU.sparse.size", "9")], "x"),
            "s",
            "kind",
        ),
    ]
}

fn damages() -> Vec<Case> {
    let whole = tape().file("first", "1").file("second", "2".repeat(700)).end();
    let cut = |length: usize| vec![whole[..length].to_vec()];
    let mut sum = whole.clone();
    sum[1024 + 3] ^= 1;
    let case = |name, layers, entry, why| Case { name, layers, entry, why };
    vec![
        case("cut in a header", cut(1100), "first", "ends before its end"),
        case("cut in content", cut(1024 + 600), "second", "ends before its end"),
        case("cut in padding", cut(1024 + 512 + 710), "second", "ends before its end"),
        case("cut before the end's mark", cut(1024 + 512 + 1024), "second", "ends before its end"),
        case("a wrong sum", vec![sum], "first", "damaged"),
        case("no archive", vec![b"#!/bin/sh\n".repeat(100)], "", "no tar archive"),
    ]
}

fn check(case: &Case) {
    let home = Home::in_memory();
    let refused = home.unpack(&case.layers, Owners::Drop, &limits());
    let error = chain(&refused.err().unwrap_or_else(|| panic!("{}: it was unpacked", case.name)));
    assert!(error.contains(case.why), "{}: {error}", case.name);
    assert!(case.entry.is_empty() || error.contains(&format!("`{}", case.entry)), "{}: {error}", case.name);
    assert!(!home.root().exists(), "{}: something is left", case.name);
    home.assert_untouched(case.name);
}

#[test]
fn each_hostile_archive_is_refused_by_name() {
    let cases: Vec<Case> = [names(), links(), kinds(), sizes(), damages()].into_iter().flatten().collect();
    assert!(cases.len() >= 90, "only {} cases", cases.len());
    cases.iter().for_each(check);
}

#[test]
fn an_owner_that_is_no_id_is_refused_where_owners_matter() {
    for owner in ["4294967295", "4294967296", "99999999999"] {
        let home = Home::in_memory();
        let layer = tape().pax(&[("uid", owner)]).file("f", "").end();
        let refused = home.unpack(&[layer], Owners::Keep, &limits());
        assert!(chain(&refused.unwrap_err()).contains("`f` is refused: its owner"), "{owner}");
        assert!(!home.root().exists());
    }
}

#[test]
fn bombs_of_compression_end_at_their_bounds() {
    let home = Home::in_memory();
    let plain = tape().file("zeros", vec![0; 900_000]).end();
    for (kept, words) in [(gzip(&plain), "100 to 1"), (fixtures::zstd(&plain), "100 to 1")] {
        let found = home.found(&[(kept, plain.clone())]);
        let refused = unpack(&found, &home.blobs, &home.root(), Owners::Drop, &limits(), &mut ());
        let error = chain(&refused.unwrap_err());
        assert!(error.contains(words), "{error}");
        assert!(!home.root().exists());
    }
    // Behind the end of the archive too, where nothing is unpacked.
    let long = [plain, vec![0; 8 << 20]].concat();
    let found = home.found(&[(gzip(&long), long)]);
    let mut bounds = limits();
    bounds.ratio_max = 10_000;
    let refused = unpack(&found, &home.blobs, &home.root(), Owners::Drop, &bounds, &mut ());
    let error = chain(&refused.unwrap_err());
    assert!(error.contains("1048576 bytes"), "{error}");
    assert!(!home.root().exists());
}

#[test]
fn damage_of_the_compression_is_an_error() {
    let plain = tape().file("f", "12345".repeat(5000)).end();
    let mut kept = gzip(&plain);
    let middle = kept.len() / 2;
    kept.truncate(middle);
    let home = Home::in_memory();
    let found = home.found(&[(kept, plain)]);
    let refused = unpack(&found, &home.blobs, &home.root(), Owners::Drop, &limits(), &mut ());
    assert!(refused.is_err() && !home.root().exists());
}

/// Names that meet each other often: folders, links, removals, and ways out.
fn name() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        8 => Just("a"), 8 => Just("b"), 4 => Just("c"), 3 => Just(".."), 1 => Just("."), 1 => Just(""),
        2 => Just(".wh.a"), 1 => Just(".wh..wh..opq"), 1 => Just("outside"),
    ];
    prop::collection::vec(part, 1..5).prop_map(|parts| parts.join("/"))
}

#[derive(Debug, Clone)]
enum Random {
    File(String),
    Folder(String),
    Link(String, String),
    Hard(String, String),
    Pax(String),
}

fn random() -> impl Strategy<Value = Random> {
    let target = prop_oneof![3 => name(), 1 => name().prop_map(|name| format!("/{name}"))];
    prop_oneof![
        4 => name().prop_map(Random::File),
        3 => name().prop_map(Random::Folder),
        4 => (name(), target).prop_map(|(name, target)| Random::Link(name, target)),
        2 => (name(), name()).prop_map(|(name, target)| Random::Hard(name, target)),
        1 => name().prop_map(Random::Pax),
    ]
}

fn layer(entries: &[Random]) -> Vec<u8> {
    let add = |tape: Tape, entry: &Random| match entry {
        Random::File(name) => tape.file(name, if name.contains(".wh.") { "" } else { "x" }),
        Random::Folder(name) => tape.folder(name),
        Random::Link(name, target) => tape.link(name, target),
        Random::Hard(name, target) => tape.hard(name, target),
        Random::Pax(name) => tape.pax(&[("path", name)]).file("short", ""),
    };
    entries.iter().fold(tape(), add).end()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each layer holds one entry, and all go into one folder: what is refused takes nothing else with it.
    #[test]
    fn no_entry_writes_outside(entries in prop::collection::vec(random(), 1..24)) {
        let home = Home::in_memory();
        std::fs::create_dir(home.root()).unwrap();
        for entry in entries {
            let kept = layer(&[entry]);
            let found = home.found(&[(kept.clone(), kept)]);
            let mut unpacked = Unpacked::default();
            let into = home.root();
            // Refused or not: what counts is what it did.
            let _ = unpack_layer(&found.layers[0], &home.blobs, &into, Owners::Drop, &limits(), &mut unpacked, &mut ());
            home.assert_untouched("random");
        }
    }

    /// The same with all entries in one layer.
    #[test]
    fn no_layer_writes_outside(entries in prop::collection::vec(random(), 1..24)) {
        let home = Home::in_memory();
        let done = home.unpack(&[layer(&entries)], Owners::Drop, &limits());
        home.assert_untouched("random");
        prop_assert_eq!(done.is_ok(), home.root().exists());
    }

    /// Bytes at random, from a place on in an archive that is well formed.
    #[test]
    fn no_damage_panics_or_writes_outside(at: prop::sample::Index, bytes in prop::collection::vec(any::<u8>(), 1..600)) {
        let mut archive = tape().folder("a").file("a/b", "x").link("l", "a").pax(&[("path", "l/c")]).file("x", "y").end();
        let at = at.index(archive.len());
        for (slot, byte) in archive[at..].iter_mut().zip(&bytes) {
            *slot = *byte;
        }
        let home = Home::in_memory();
        let done = home.unpack(&[archive], Owners::Drop, &limits());
        home.assert_untouched("damaged");
        prop_assert_eq!(done.is_ok(), home.root().exists());
    }
}
