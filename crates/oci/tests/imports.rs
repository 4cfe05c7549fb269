//! Images from archives and layouts, as the common programs write them.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod fixtures;

use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::{Home, Image, Tape, architectures, chain, descriptor, gzip, image, small, tape, zstd};
use ringfence_oci::{Blobs, Digest, Found, ImportOptions, OciError, Owners, UnpackLimits, import, import_root, unpack};
use serde_json::{Value, json};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

fn here(text: &str) -> Image {
    image(&architectures().0, &[small(text)])
}

/// What an index says of an image.
fn listed(image: &Image, more: Value) -> Value {
    let mut entry = descriptor(MANIFEST, &image.manifest);
    entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    entry
}

fn named(name: &str) -> Value {
    json!({"annotations": {"org.opencontainers.image.ref.name": name}})
}

fn index(listed: &[Value]) -> Vec<u8> {
    serde_json::to_vec(&json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": listed})).unwrap()
}

/// The files of a layout.
fn layout(index: Vec<u8>, blobs: &[&Vec<u8>]) -> Vec<(String, Vec<u8>)> {
    let mut files = vec![("oci-layout".to_owned(), br#"{"imageLayoutVersion": "1.0.0"}"#.to_vec())];
    for blob in blobs {
        let path = format!("blobs/sha256/{}", Digest::of(blob).hex());
        if !files.iter().any(|(known, _)| *known == path) {
            files.push((path, blob.to_vec()));
        }
    }
    files.push(("index.json".to_owned(), index));
    files
}

fn archive(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    files.iter().fold(tape(), |tape, (name, content)| add(tape, name, content)).end()
}

fn add(tape: Tape, name: &str, content: &[u8]) -> Tape {
    if name.len() <= 100 { tape.file(name, content) } else { tape.pax(&[("path", name)]).file("x", content) }
}

fn write_folder(home: &Home, files: &[(String, Vec<u8>)]) -> PathBuf {
    for (name, content) in files {
        home.write(&format!("layout/{name}"), content);
    }
    home.path("layout")
}

fn get(home: &Home, path: &Path, name: Option<&str>) -> Result<Found, OciError> {
    import(path, name, &home.blobs, &ImportOptions::default(), &mut ())
}

/// Imports an archive, and checks that it leaves nothing where it is refused.
fn import_tar(content: &[u8], name: Option<&str>) -> Result<(Home, Found), OciError> {
    let home = Home::new();
    let path = home.write("archive", content);
    let done = get(&home, &path, name);
    assert_eq!(std::fs::read_dir(home.path("blobs/partial")).unwrap().count(), 0, "something is on its way still");
    match done {
        Ok(found) => {
            let mut kept: Vec<Digest> = home.blobs.list().unwrap().into_iter().map(|(digest, _)| digest).collect();
            let mut needed = found.blobs();
            kept.sort();
            needed.sort();
            assert_eq!(kept, needed, "what is kept (left) is what is needed (right)");
            Ok((home, found))
        }
        Err(error) => {
            assert_eq!(home.blobs.list().unwrap(), [], "a refused import left blobs");
            Err(error)
        }
    }
}

fn text_of(home: &Home, found: &Found) -> String {
    unpack(found, &home.blobs, &home.root(), Owners::Drop, &UnpackLimits::default(), &mut ()).unwrap();
    std::fs::read_to_string(home.root().join("etc/text")).unwrap()
}

#[test]
fn a_layout_is_read_as_a_folder_and_as_an_archive() {
    let image = here("hello");
    let files = layout(index(&[listed(&image, named("v1"))]), &image.blobs());
    let home = Home::new();
    let found = get(&home, &write_folder(&home, &files), None).unwrap();
    assert_eq!(text_of(&home, &found), "hello");
    assert_eq!((found.manifest_digest, found.config_digest), (Digest::of(&image.manifest), Digest::of(&image.config)));
    assert_eq!(found.names, ["v1"]);
    let config = &found.config;
    assert_eq!((config.os.as_str(), &config.architecture), ("linux", &architectures().0));
    assert_eq!(config.env, ["PATH=/bin", "A=b=c"]);
    assert_eq!((config.working_dir.as_str(), config.user.as_str()), ("/srv", "1000:1000"));
    assert_eq!((&config.entrypoint[..], config.cmd.len()), (&["/bin/x".to_owned(), "y".to_owned()][..], 0));
    assert_eq!((config.labels["l"].as_str(), config.created.as_deref()), ("m", Some("2024-01-01T00:00:00Z")));
    assert_eq!((found.layers.len(), found.layers[0].bytes), (1, image.layers[0].len() as u64));

    let plain = archive(&files);
    for content in [plain.clone(), gzip(&plain), zstd(&plain)] {
        let (home, same) = import_tar(&content, None).unwrap();
        assert_eq!(same, found);
        assert_eq!(text_of(&home, &same), "hello");
    }
    let again = get(&home, &home.path("layout"), Some("v1")).unwrap();
    assert_eq!(again, found, "what is there already is found again");
}

#[test]
fn of_several_images_one_must_be_named() {
    let (one, two) = (here("one"), here("two"));
    let all = index(&[
        listed(&one, named("docker.io/library/thing:1")),
        listed(&two, json!({"annotations": {"io.containerd.image.name": "docker.io/library/thing:2"}})),
        listed(&one, named("also")),
    ]);
    let blobs: Vec<_> = one.blobs().into_iter().chain(two.blobs()).collect();
    let content = archive(&layout(all, &blobs));
    let text = |name: &str| {
        let (home, found) = import_tar(&content, Some(name)).unwrap();
        text_of(&home, &found)
    };
    for (name, expected) in [("thing:1", "one"), ("docker.io/library/thing:2", "two"), ("also", "one")] {
        assert_eq!(text(name), expected, "{name}");
    }
    assert_eq!(text(&Digest::of(&two.manifest).to_string()), "two");
    assert_eq!(import_tar(&content, Some("also")).unwrap().1.names, ["docker.io/library/thing:1", "also"]);
    let several = import_tar(&content, None).err().unwrap();
    assert!(matches!(&several, OciError::SeveralImages { names } if names.len() == 2), "{several:?}");
    let unknown = import_tar(&content, Some("thing:3")).err().unwrap();
    assert!(matches!(unknown, OciError::NoSuchImage { .. }), "{unknown:?}");
}

#[test]
fn names_that_nobody_could_type_are_not_believed() {
    let image = here("x");
    for name in ["a\nb", "a b", "\u{1b}[31mred", "", &"n".repeat(513)] {
        let content = archive(&layout(index(&[listed(&image, named(name))]), &image.blobs()));
        assert_eq!(import_tar(&content, None).unwrap().1.names, [""; 0], "{name:?}");
    }
}

#[test]
fn an_index_is_resolved_to_this_machine() {
    let (arch, other) = architectures();
    let (mine, theirs) = (here("mine"), image(other, &[small("theirs")]));
    let platform = |architecture: &str| json!({"platform": {"os": "linux", "architecture": architecture}});
    let attested = here("attestation");
    let aside = json!({"platform": {"os": "unknown", "architecture": "unknown"},
        "annotations": {"vnd.docker.reference.type": "attestation-manifest"}});
    let inner = index(&[listed(&theirs, platform(other)), listed(&attested, aside), listed(&mine, platform(&arch))]);
    let outer = {
        let mut entry = descriptor(INDEX, &inner);
        entry.as_object_mut().unwrap().extend(named("multi").as_object().unwrap().clone());
        index(&[entry])
    };
    let mut blobs = mine.blobs();
    blobs.push(&inner);
    // Nested, and flat; the blobs of the other one are not even there.
    for index in [outer, inner.clone()] {
        let (home, found) = import_tar(&archive(&layout(index, &blobs)), None).unwrap();
        assert_eq!(text_of(&home, &found), "mine");
    }
    let only = index(&[listed(&theirs, platform(other))]);
    let without = index(&[listed(&theirs, named("x"))]);
    for index in [only, without] {
        let refused = import_tar(&archive(&layout(index, &theirs.blobs())), None).err().unwrap();
        assert!(chain(&refused).contains(&format!("the image is for linux/{other}")), "{refused:?}");
    }
}

/// As `docker save` wrote before version 25: a folder for each layer, shared ones as links.
fn saved(links: bool) -> Vec<u8> {
    let (arch, _) = architectures();
    let (below, above) = (small("below"), small("above"));
    let one = image(&arch, &[(below.1.clone(), below.1.clone())]);
    let two = image(&arch, &[(below.1.clone(), below.1.clone()), (above.1.clone(), above.1.clone())]);
    let id = |image: &Image| Digest::of(&image.config).hex();
    let manifest = json!([
        {"Config": format!("{}.json", id(&one)), "RepoTags": ["one:latest"], "Layers": ["aa/layer.tar"]},
        {"Config": format!("{}.json", id(&two)), "RepoTags": ["two:latest", "two:2"],
            "Layers": ["bb/layer.tar", "cc/layer.tar"]},
    ]);
    let tape = tape().folder("aa/").file("aa/VERSION", "1.0").file("aa/json", "{}").file("aa/layer.tar", &below.1);
    let tape = match links {
        true => tape.link("bb/layer.tar", "../aa/layer.tar"),
        false => tape.hard("bb/layer.tar", "aa/layer.tar"),
    };
    tape.file("cc/layer.tar", &above.1)
        .file(&format!("{}.json", id(&one)), &one.config)
        .file(&format!("{}.json", id(&two)), &two.config)
        .file("manifest.json", serde_json::to_vec(&manifest).unwrap())
        .file("repositories", "{}")
        .end()
}

#[test]
fn what_docker_save_writes_is_an_image() {
    for links in [true, false] {
        let content = saved(links);
        for content in [content.clone(), gzip(&content)] {
            let (home, found) = import_tar(&content, Some("two")).unwrap();
            assert_eq!(text_of(&home, &found), "above");
            assert_eq!((found.layers.len(), found.names.len()), (2, 2));
            assert_eq!(found.layers[0].digest, found.layers[0].diff_id);
            let id = found.config_digest.hex();
            assert_eq!(import_tar(&content, Some(&id)).unwrap().1, found, "an image id names it too");
        }
        assert!(matches!(import_tar(&content, None), Err(OciError::SeveralImages { .. })));
        assert!(matches!(import_tar(&content, Some("three")), Err(OciError::NoSuchImage { .. })));
    }
}

#[test]
fn documents_that_readers_would_read_differently_are_refused() {
    let image = here("x");
    let twice = |text: &[u8], more: Value| {
        let mut value: Value = serde_json::from_slice(text).unwrap();
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::to_vec(&value).unwrap()
    };
    let with = |manifest: Vec<u8>, config: &Vec<u8>| {
        let changed = Image { manifest, config: config.clone(), layers: image.layers.clone() };
        archive(&layout(index(&[listed(&changed, json!({}))]), &changed.blobs()))
    };
    let deep = format!("{{\"x\": {}", "[".repeat(10_000));
    let config = json!({"architecture": architectures().0, "os": "linux", "rootfs": {"diff_ids": []}});
    let config = serde_json::to_vec(&config).unwrap();
    let fewer = twice(&image.manifest, json!({"config": descriptor("", &config)}));
    let large = twice(&image.manifest, json!({"layers": [{"digest": Digest::of(b"x"), "size": u64::MAX}]}));
    let layers: Vec<Value> = (0..128).map(|_| descriptor("", &image.layers[0])).collect();
    let wrong_size = twice(&image.manifest, json!({"layers": [{"digest": Digest::of(&image.layers[0]), "size": 7}]}));
    let missing = twice(&image.manifest, json!({"layers": [descriptor("", b"not there")]}));
    for (manifest, config, why) in [
        (twice(&image.manifest, json!({"manifests": []})), &image.config, "at once"),
        (twice(&image.manifest, json!({"schemaVersion": 1})), &image.config, "schema version"),
        (twice(&image.manifest, json!({"fsLayers": []})), &image.config, "schema version"),
        (twice(&image.manifest, json!({"layers": layers})), &image.config, "127"),
        (fewer, &config, "names 0 layers and the manifest 1"),
        (large, &image.config, "over the limit"),
        (wrong_size, &image.config, "bytes, not 7"),
        (missing, &image.config, "is missing"),
        (deep.into_bytes(), &image.config, "EOF"),
        (b"{}".to_vec(), &image.config, "schema version"),
        (b"".to_vec(), &image.config, "EOF"),
    ] {
        let error = chain(&import_tar(&with(manifest, config), None).err().unwrap());
        assert!(error.contains(why), "{why}: {error}");
    }
}

#[test]
fn hostile_archives_of_images_are_refused_by_name() {
    let image = here("x");
    let good = layout(index(&[listed(&image, named("x"))]), &image.blobs());
    let start = || good.iter().fold(tape(), |tape, (name, content)| add(tape, name, content));
    let hex = Digest::of(b"other").hex();
    for (content, why) in [
        (start().file("../x", "y").end(), "`../x` is refused: its name has `..`"),
        (start().file("/x", "y").end(), "`/x` is refused: its name is absolute"),
        (start().file("index.json", "{}").end(), "`index.json` is refused: it is there twice"),
        (start().link("x", "../../etc/passwd").end(), "`x` is refused: it links to outside"),
        (start().link("x", "/etc/passwd").end(), "`x` is refused: it links to outside"),
        (start().device(b'3', "x", 1, 3).end(), "`x` is refused: it is no file"),
        (start().file(&format!("blobs/sha256/{hex}"), "this").end(), "has the digest"),
        (start().file("blobs/sha256/x", "this").end(), "its name is no digest"),
        (start().pax(&[("GNU.sparse.size", "9"), ("GNU.sparse.map", "0,1")]).file("x", "y").end(), "sparse"),
        (start().0, "ends before its end"),
        (tape().file("manifest.json", "[]").end(), "names no image"),
        (tape().file("manifest.json", r#"[{"Config": "c", "Layers": []}]"#).end(), "`c`, which is not there"),
        (tape().link("manifest.json", "b").link("b", "manifest.json").end(), "holds no image"),
        (tape().file("etc/passwd", "").folder("usr").end(), "holds no image"),
        (b"no archive at all".to_vec(), "ends before its end"),
        (vec![b'x'; 2048], "no tar archive"),
    ] {
        let error = chain(&import_tar(&content, None).err().unwrap_or_else(|| panic!("imported: {why}")));
        assert!(error.contains(why), "{why}: {error}");
    }
    let many = (0..16_400).fold(tape(), |tape, at| tape.file(&format!("f{at}"), "")).end();
    let home = Home::in_memory();
    let error = get(&home, &home.write("archive", &many), None).unwrap_err();
    assert!(chain(&error).contains("16384"), "{error:?}");
    assert_eq!(home.blobs.list().unwrap(), []);
}

#[test]
fn what_is_too_large_ends_at_its_bound() {
    let image = here("x");
    let content = archive(&layout(index(&[listed(&image, named("x"))]), &image.blobs()));
    let home = Home::new();
    let path = home.write("archive", &content);
    let mut options = ImportOptions::default();
    options.bytes_max = 2000;
    let error = import(&path, None, &home.blobs, &options, &mut ()).unwrap_err();
    assert!(matches!(error, OciError::TooLarge { .. }), "{error:?}");
    let root = home.write("root.tar", &gzip(&tape().file("a", vec![b'x'; 100_000]).end()));
    options.unpacked_bytes_max = 50_000;
    let error = import_root(&root, &home.blobs, &options, &mut ()).unwrap_err();
    assert!(matches!(error, OciError::TooLarge { .. }), "{error:?}");
    assert_eq!(home.blobs.list().unwrap(), []);
}

#[test]
fn a_folder_that_strangers_filled_is_read_with_care() {
    let image = here("x");
    let files = layout(index(&[listed(&image, named("x"))]), &image.blobs());
    let home = Home::new();
    let folder = write_folder(&home, &files);
    let blob = folder.join("blobs/sha256").join(Digest::of(&image.layers[0]).hex());
    // A FIFO would hold whoever opens it, a link would lead elsewhere.
    std::fs::remove_file(&blob).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &blob, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    assert!(chain(&get(&home, &folder, None).unwrap_err()).contains("no regular file"));
    std::fs::remove_file(&blob).unwrap();
    std::os::unix::fs::symlink(home.path("outside/secret"), &blob).unwrap();
    assert!(get(&home, &folder, None).is_err());
    std::fs::remove_file(&blob).unwrap();
    std::fs::write(&blob, b"forged").unwrap();
    assert!(matches!(get(&home, &folder, None), Err(OciError::WrongDigest { .. })));
    assert_eq!(home.blobs.list().unwrap(), []);
    assert!(matches!(get(&home, &home.path("outside"), None), Err(OciError::NoImage { .. })));
}

#[test]
fn a_blob_that_has_changed_is_found_out() {
    let home = Home::new();
    let kept = home.blobs.put(&mut &b"kept"[..], "it", None, 9, &mut ()).unwrap();
    assert!(home.blobs.verify(&kept.digest, &mut ()).unwrap());
    std::fs::write(home.blobs.path(&kept.digest), b"kepT").unwrap();
    assert!(!home.blobs.verify(&kept.digest, &mut ()).unwrap());
    assert!(matches!(home.blobs.read(&kept.digest, 9), Err(OciError::WrongDigest { .. })));
    assert!(home.blobs.remove(&kept.digest).unwrap() && !home.blobs.remove(&kept.digest).unwrap());
}

fn run(program: &str, arguments: &[&str], folder: &Path) -> String {
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output =
        output.unwrap_or_else(|error| panic!("{program}: {error}; install {program} (apt-get install {program})"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    said
}

/// A root around a static program, as Debian's tar packs it, through umoci and skopeo and back.
#[test]
fn images_of_real_programs_are_read_and_unpacked() {
    let busybox = Path::new("/usr/bin/busybox");
    assert!(busybox.exists(), "install busybox-static (apt-get install busybox-static)");
    let home = Home::new();
    let work = home.path("work");
    for folder in ["root/bin", "root/etc", "root/usr/share"] {
        std::fs::create_dir_all(work.join(folder)).unwrap();
    }
    std::fs::copy(busybox, work.join("root/bin/busybox")).unwrap();
    std::os::unix::fs::symlink("busybox", work.join("root/bin/sh")).unwrap();
    std::fs::hard_link(work.join("root/bin/busybox"), work.join("root/bin/ls")).unwrap();
    std::fs::write(work.join("root/etc/motd"), "one\n").unwrap();
    let long = format!("root/usr/share/{}", "n".repeat(180));
    std::fs::write(work.join(&long), "long").unwrap();
    let sparse = std::fs::File::create(work.join("root/usr/share/sparse")).unwrap();
    sparse.set_len(4 << 20).unwrap();
    run("tar", &["--sparse", "--format=pax", "-C", "root", "-czf", "root.tar.gz", "."], &work);

    run("umoci", &["init", "--layout", "layout"], &work);
    run("umoci", &["new", "--image", "layout:v1"], &work);
    run("umoci", &["unpack", "--image", "layout:v1", "bundle"], &work);
    run("cp", &["-a", "root/.", "bundle/rootfs/"], &work);
    run("umoci", &["repack", "--refresh-bundle", "--image", "layout:v1", "bundle"], &work);
    std::fs::write(work.join("bundle/rootfs/etc/motd"), "two\n").unwrap();
    std::fs::remove_file(work.join("bundle/rootfs/bin/ls")).unwrap();
    run("umoci", &["repack", "--refresh-bundle", "--image", "layout:v2", "bundle"], &work);
    run("umoci", &["config", "--image", "layout:v2", "--config.env", "A=B", "--config.workingdir", "/srv"], &work);
    let policy = ["--insecure-policy", "copy"];
    run("skopeo", &[&policy[..], &["oci:layout:v2", "docker-archive:saved.tar:thing:2"]].concat(), &work);
    run("skopeo", &[&policy[..], &["oci:layout:v2", "oci-archive:layout.tar:two"]].concat(), &work);
    run("tar", &["-C", "layout", "-cf", "folder.tar", "."], &work);

    let blobs = Blobs::open(&home.path("blobs")).unwrap();
    let look = |found: &Found, motd: &str, listed: bool| {
        let root = home.root();
        unpack(found, &blobs, &root, Owners::Keep, &UnpackLimits::default(), &mut ()).unwrap();
        assert_eq!(std::fs::read_to_string(root.join("etc/motd")).unwrap(), motd);
        assert_eq!(root.join("bin/ls").exists(), listed);
        assert_eq!(std::fs::read_to_string(root.join(long.strip_prefix("root/").unwrap())).unwrap(), "long");
        assert_eq!(root.join("usr/share/sparse").metadata().unwrap().len(), 4 << 20);
        assert_eq!(run("chroot", &[root.to_str().unwrap(), "/bin/sh", "-c", "/bin/busybox cat /etc/motd"], &work), "");
        std::fs::remove_dir_all(&root).unwrap();
    };
    let options = ImportOptions::default();
    let root = import_root(&work.join("root.tar.gz"), &blobs, &options, &mut ()).unwrap();
    look(&root, "one\n", true);
    let get = |file: &str, name: Option<&str>| import(&work.join(file), name, &blobs, &options, &mut ()).unwrap();
    look(&get("layout", Some("v1")), "one\n", true);
    let two = get("layout", Some("v2"));
    look(&two, "two\n", false);
    assert_eq!((two.layers.len(), two.config.working_dir.as_str()), (2, "/srv"));
    assert!(two.config.env.contains(&"A=B".to_owned()), "{:?}", two.config.env);
    assert_eq!(get("folder.tar", Some("v2")), two);
    let copied = get("layout.tar", None);
    assert_eq!((copied.config_digest, &copied.names[..]), (two.config_digest, &["two".to_owned()][..]));
    let saved = get("saved.tar", None);
    assert_eq!(
        (saved.config_digest, &saved.names[..]),
        (two.config_digest, &["docker.io/library/thing:2".to_owned()][..])
    );
    look(&saved, "two\n", false);
}
