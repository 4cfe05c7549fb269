//! Images that are pulled while the server runs.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;

use ringfence_oci::Digest;
use ringfence_testkit::{Client, User, descendants, eventually};
use serde_json::json;

use crate::registry::{Content, Response, Server};
use crate::roots::{debian_root, static_root};
use crate::{House, fixtures, lease, options};

/// A registry with one image of one plain layer, `some/thing:1`.
fn registry(root: fn(&Path)) -> (Server, String) {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("root.tar");
    root(&archive);
    let image = fixtures::image(fs::read(&archive).unwrap());
    let digest = Digest::of(&image.manifest).to_string();
    let content = Content::default().image("1", &image);
    (Server::start(move |request| content.answer(request)), digest)
}

fn manifests_asked(registry: &Server, name: &str) -> usize {
    registry.asked().iter().filter(|path| path.ends_with(&format!("/manifests/{name}"))).count()
}

#[test]
fn an_image_is_pulled_behind_its_leases_and_served_without_a_restart() {
    let (registry, digest) = registry(debian_root);
    let house = House::new();
    let thing = format!("{}/some/thing:1", registry.host());
    let pull = format!("{}/some/*", registry.host());
    let mut server = options().state_dir(house.folder()).args(["--pull", &pull]).start();
    let mut client = server.client();
    assert_eq!(leased(&mut client, &thing), "bare", "the default serves meanwhile");
    eventually("the image", || (leased(&mut client, &thing) == thing).then_some(()));
    let mut session = client.lease(&json!({"image": thing}));
    assert_eq!(session.python("import sys; print(sys.executable, sys.prefix); x = 6"), "/usr/bin/python3 /usr\n");
    assert_eq!(session.python("open('f', 'w').write('kept'); print(x * 7)"), "42\n");
    assert_eq!(session.bash("cat f; touch /usr/x 2>&1 | tail -c 22"), "keptRead-only file system\n");
    assert_eq!(session.put("up/loaded", b"bytes").status, 201);
    assert_eq!(session.get("f").body, b"kept");
    session.release();
    let by_digest = format!("anything@{digest}");
    assert_eq!(leased(&mut client, &by_digest), thing);
    assert_eq!(manifests_asked(&registry, "1"), 1, "once for all leases");

    let listed = house.image(&["list", "--json"]).json();
    assert!(listed.as_array().unwrap().iter().any(|image| image["names"] == json!([thing])), "{listed}");
    let removed = house.image(&["remove", &thing]);
    assert!(removed.status == 1 && removed.err.contains("in use"), "{removed:?}");
    assert!(server.stop().success());
    let log = server.log();
    assert_eq!(log.matches("is pulled").count(), 1, "{log}");
    assert_eq!(log.matches("has been pulled").count(), 1, "{log}");
    assert!(!log.contains("no image is called so"), "{log}");
    assert_eq!(house.image(&["remove", &thing]).status, 0);
}

#[test]
fn an_ordinary_user_pulls_as_well_into_a_store_behind_a_link() {
    let (registry, _) = registry(static_root);
    let house = House::new();
    // On another disk, say.
    let disk = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(disk.path(), house.folder().join("images")).unwrap();
    let user = if rustix::process::geteuid().is_root() { User::Other(43_212) } else { User::Same };
    if let User::Other(id) = user {
        chown(house.folder(), Some(id), Some(id)).unwrap();
        chown(disk.path(), Some(id), Some(id)).unwrap();
    }
    let thing = format!("{}/some/thing:1", registry.host());
    let server = options().state_dir(house.folder()).user(user).args(["--pull", &thing]).start();
    let mut client = server.client();
    eventually("the image", || (leased(&mut client, &thing) == thing).then_some(()));
    assert_eq!(client.lease(&json!({"image": thing})).bash("ls /bin/busybox; id -u"), "/bin/busybox\n1000\n");
}

#[test]
fn what_is_not_allowed_is_never_asked_for_and_what_fails_is_asked_for_once() {
    let (registry, digest) = registry(static_root);
    let host = registry.host();
    let pull = format!("{host}/some/thing");
    let mut server = options().args(["--pull", &pull]).start();
    let mut client = server.client();
    let missing = format!("{host}/some/thing:missing");
    let elsewhere = [format!("{host}/some/other:1"), format!("{host}/some/thing/more:1"), "some/thing:1".to_owned()];
    for _ in 0..3 {
        for name in elsewhere.iter().chain([&missing]) {
            assert_eq!(leased(&mut client, name), "bare", "{name}");
        }
    }
    eventually("the question for the missing one", || (manifests_asked(&registry, "missing") > 0).then_some(()));
    // One that is there is pulled after it, by its digest: so the other is done with.
    let there = format!("{host}/some/thing@{digest}");
    eventually("the image", || {
        assert_eq!(leased(&mut client, &missing), "bare");
        (leased(&mut client, &there) == there).then_some(())
    });
    assert_eq!(manifests_asked(&registry, "missing"), 1);
    let asked = registry.asked();
    assert!(asked.iter().all(|path| path.starts_with("/v2/some/thing/") && !path.contains("more")), "{asked:?}");
    assert!(server.stop().success());
    let log = server.log();
    assert_eq!(log.matches("could not be pulled").count(), 1, "{log}");
}

/// Of what cannot be served nothing is fetched and kept: whoever leases could fill the disk with it.
#[test]
fn where_no_more_images_can_be_served_none_is_fetched() {
    const MOST: usize = 16;
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("root.tar");
    static_root(&archive);
    let root = fs::read(&archive).unwrap();
    // The same, and another image, with another end.
    let other = |number: usize| fixtures::image([root.clone(), vec![0; number * 512]].concat());
    let images: Vec<_> = (0..=MOST).map(other).collect();
    let mut content = Content::default().image("again", &images[0]);
    for (number, image) in images.iter().enumerate() {
        content = content.image(&number.to_string(), image);
    }
    let registry = Server::start(move |request| content.answer(request));
    let (house, thing) = (House::new(), format!("{}/some/thing", registry.host()));
    let mut server = options().state_dir(house.folder()).args(["--pull", &thing]).start();
    let mut client = server.client();
    let mut comes = |tag: &str| {
        let name = format!("{thing}:{tag}");
        eventually(tag, || (leased(&mut client, &name) != "bare").then_some(()));
    };
    (0..MOST).for_each(|number| comes(&number.to_string()));
    let last = format!("{thing}:{MOST}");
    assert_eq!(leased(&mut server.client(), &last), "bare");
    eventually("the question for the last", || (manifests_asked(&registry, &MOST.to_string()) > 0).then_some(()));
    // A further name of one that is there, answered after it.
    comes("again");
    let listed = house.image(&["list", "--json"]).json();
    assert_eq!(listed.as_array().unwrap().len(), MOST + 1, "those, and the default: {listed}");
    let layer = Digest::of(&images[MOST].layers[0]).to_string();
    assert!(!registry.asked().iter().any(|path| path.ends_with(&layer)), "{:?}", registry.asked());
    assert!(server.stop().success());
    let log = server.log();
    assert!(log.contains("16 images have come since the start"), "{log}");
}

#[test]
fn what_a_name_could_be_short_for_is_not_served_behind_the_settings() {
    let (registry, digest) = registry(static_root);
    let (host, house) = (registry.host(), House::new());
    let secret = format!("{host}/secret/thing:1");
    let pulled = house.image(&["pull", &format!("{host}/some/thing:1"), "--name", &secret]);
    assert_eq!(pulled.status, 0, "{pulled:?}");
    let id = house.image(&["inspect", &secret, "--json"]).json()["id"].as_str().unwrap().to_owned();
    let pull = format!("docker.io/*,{host}/allowed/*,{host}/some/thing");
    // Nothing is asked of registries elsewhere.
    let options = options().env("HTTPS_PROXY", "http://127.0.0.1:1").state_dir(house.folder());
    let server = options.args(["--images", "bare", "--pull", &pull]).start();
    let mut client = server.client();
    // What is asked for last is answered last: then all before it is done with.
    let last = format!("{host}/allowed/last:1");
    for name in [&id[..12], &format!("{host}/allowed/anything@{digest}"), &last] {
        assert_eq!(leased(&mut client, name), "bare", "{name}");
    }
    eventually("the question for the last", || {
        registry.asked().iter().any(|path| path.contains("allowed/last")).then_some(())
    });
    for name in [&id[..12], &format!("{host}/allowed/anything@{digest}")] {
        assert_eq!(leased(&mut client, name), "bare", "{name}");
    }
    // The repository that it was pulled from has it by its digest.
    let own = format!("{host}/some/thing@{digest}");
    eventually("the image", || (leased(&mut client, &own) == own).then_some(()));
    assert_eq!(manifests_asked(&registry, &digest), 1, "asked of the repository alone that nobody has pulled from");
}

#[test]
fn the_puller_has_no_descriptor_of_whoever_started_the_server() {
    let (registry, _) = registry(static_root);
    let folder = tempfile::tempdir().unwrap();
    let file = fs::File::create(folder.path().join("inherited")).unwrap();
    // For the server to inherit, as from a supervisor that does not look after its own.
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
    let server = options().args(["--pull", &format!("{}/some/*", registry.host())]).start();
    let open = |pid: u32| -> Vec<_> {
        let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        entries.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok()).collect()
    };
    let inherited = folder.path().canonicalize().unwrap().join("inherited");
    assert!(open(server.pid()).contains(&inherited), "the server has it: or this shows nothing");
    assert!(!open(puller_of(server.pid())).contains(&inherited));
}

#[test]
fn a_registry_that_holds_the_puller_up_holds_nobody_else_up() {
    let registry = Server::start(|_| Response { hold: true, cut: Some(0), ..Response::new(200, "x") });
    let thing = format!("{}/some/thing:1", registry.host());
    let mut server = options().args(["--pull", &thing]).start();
    let mut client = server.client();
    for _ in 0..3 {
        assert_eq!(leased(&mut client, &thing), "bare");
    }
    eventually("the question", || (manifests_asked(&registry, "1") > 0).then_some(()));
    assert_eq!(client.lease(&json!({"image": thing})).python("print(6 * 7)"), "42\n");
    let puller = puller_of(server.pid());
    assert!(server.stop().success(), "the server ends in the middle of a pull");
    eventually("the puller's end", || (!Path::new(&format!("/proc/{puller}")).exists()).then_some(()));
}

#[test]
fn without_its_puller_the_server_serves_what_it_has() {
    let (registry, _) = registry(static_root);
    let thing = format!("{}/some/thing:1", registry.host());
    let mut server = options().args(["--pull", &thing]).start();
    let puller = rustix::process::Pid::from_raw(puller_of(server.pid()).cast_signed()).unwrap();
    rustix::process::kill_process(puller, rustix::process::Signal::KILL).unwrap();
    let process = format!("/proc/{}", puller.as_raw_nonzero());
    eventually("the puller's end, which somebody has to see", || (!Path::new(&process).exists()).then_some(()));
    let mut client = server.client();
    assert_eq!(leased(&mut client, &thing), "bare");
    assert_eq!(client.lease(&json!({})).python("print(6 * 7)"), "42\n");
    assert!(server.stop().success());
    let log = server.log();
    assert_eq!(log.matches("no more images are pulled").count(), 1, "{log}");
}

#[test]
fn the_puller_has_no_power_and_reads_nothing_but_what_it_needs() {
    let (registry, _) = registry(static_root);
    let house = House::new();
    // Credentials behind a link: what they are is not in the folder that may be read.
    let (docker, secret) = (house.folder().join("docker"), house.folder().join("secret.json"));
    fs::create_dir(&docker).unwrap();
    fs::write(&secret, "{}").unwrap();
    std::os::unix::fs::symlink(&secret, docker.join("config.json")).unwrap();
    let host = registry.host();
    let wants = Server::start(|_| Response::new(401, "").with("www-authenticate", "Basic realm=\"x\""));
    let pull = format!("{host}/*,{}/*", wants.host());
    let mut server = options().env("DOCKER_CONFIG", &docker).args(["--pull", &pull]).start();
    let status = fs::read_to_string(format!("/proc/{}/status", puller_of(server.pid()))).unwrap();
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap().trim().to_owned()
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!((field("Seccomp"), field("NoNewPrivs")), ("2".to_owned(), "1".to_owned()));
    let mut client = server.client();
    let locked = format!("{}/some/thing:1", wants.host());
    eventually("the question", || {
        leased(&mut client, &locked);
        (!wants.requests().is_empty()).then_some(())
    });
    let open = format!("{host}/some/thing:1");
    eventually("the other image", || (leased(&mut client, &open) == open).then_some(()));
    assert!(server.stop().success());
    let log = server.log();
    assert!(log.contains("Permission denied"), "{log}");
}

#[test]
fn what_cannot_be_is_told_before_anything_serves() {
    let (status, _, said) = options().args(["--pull", "debian"]).run_to_end();
    assert!(status.code() == Some(2) && said.contains("`pull`"), "{said}");
    let (status, _, said) = options().args(["--pull", "r.example/*", "--tier", "confined"]).run_to_end();
    assert!(status.code() == Some(2) && said.contains("`pull` needs tier cell"), "{said}");
}

/// The image of a lease that says this name; it is let go at once.
fn leased(client: &mut Client, name: &str) -> String {
    let (id, image) = lease(client, &json!({"image": name}));
    client.call("DELETE", &format!("/sessions/{id}"), None);
    image
}

fn puller_of(server: u32) -> u32 {
    let is = |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(b"\0puller\0"));
    descendants(server).into_iter().find(is).unwrap()
}
