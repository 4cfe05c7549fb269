//! Images that a running keeper is given, and what holds the process that pulls them.

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use ringfence_jail::{
    JailError, KeeperConfig, Pulled, StepName, add_image, confine, confine_puller, enter_fleet, packet,
};
use ringfence_op::{Bind, RootSpec};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use crate::Test;
use crate::driver::*;

pub(crate) const TESTS: &[Test] = &[
    ("a_pulled_image_is_as_good_as_any", a_pulled_image_is_as_good_as_any),
    (
        "roots_of_pulled_images_that_are_not_in_the_store_are_refused",
        roots_of_pulled_images_that_are_not_in_the_store_are_refused,
    ),
    ("a_puller_that_is_gone_or_floods_hurts_nobody", a_puller_that_is_gone_or_floods_hurts_nobody),
    ("what_pulls_is_held_to_its_store", what_pulls_is_held_to_its_store),
    ("the_confined_daemon_handles_files_of_a_pulled_image", from_the_confined_daemon),
];

/// A store with one image in it, `x`, which has a file that says so.
struct Store {
    folder: tempfile::TempDir,
}

impl Store {
    fn new() -> Store {
        let folder = tempfile::tempdir().unwrap();
        // As the image room makes it: to be walked through, not to be listed.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let store = Store { folder };
        fs::create_dir_all(store.path().join("x/root/opt")).unwrap();
        fs::write(store.path().join("x/root/opt/which"), "pulled\n").unwrap();
        store
    }

    fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    /// The machine's programs, as the first image shows them, and the file of the store.
    fn root(&self) -> RootSpec {
        let mut root = host_root();
        root.image = "pulled".into();
        root.binds.push(Bind { source: self.path().join("x/root/opt"), target: "/opt".into() });
        root
    }

    fn with(&self, bind: impl AsRef<Path>) -> RootSpec {
        let mut root = self.root();
        root.binds.push(Bind { source: bind.as_ref().to_owned(), target: "/mnt/more".into() });
        root
    }

    fn config(&self, first: RootSpec) -> KeeperConfig {
        let mut config = config(vec![first]);
        config.pulled = Some(Pulled { store: self.path(), most: 2 });
        config
    }

    fn start(&self) -> (Keeper, OwnedFd) {
        let (ours, theirs) = packet::pair().unwrap();
        (Keeper::start_with_puller(&self.config(with_python(host_root())), theirs), ours)
    }
}

fn refusal(result: Result<u32, JailError>) -> (StepName, i32) {
    match result {
        Err(JailError::Setup { step, source, .. }) => (step, source.raw_os_error().unwrap()),
        other => panic!("{other:?}"),
    }
}

fn a_pulled_image_is_as_good_as_any() {
    let store = Store::new();
    let (mut keeper, puller) = store.start();
    let mut first = keeper.cell(0);
    assert_eq!(add_image(puller.as_fd(), &store.root()).unwrap(), 1);
    assert_eq!(add_image(puller.as_fd(), &with_python(store.root())).unwrap(), 2);
    for image in [1, 2] {
        let mut cell = keeper.cell(image);
        assert_eq!(cell.print("cat /opt/which; echo x > file; touch /made 2>&1 | grep -c Read-only"), "pulled\n1\n");
        assert_eq!(
            cell.print("rm -f /opt/which 2> /dev/null; touch /opt/which 2> /dev/null; cat /opt/which"),
            "pulled\n"
        );
        assert_eq!(cell.print("ls -d /store /image 2> /dev/null; head -c 1 /dev/zero | wc -c"), "1\n");
    }
    let cell = keeper.cell(2);
    assert_eq!(keeper.worker(cell.number).run("print(open('/opt/which').read(), end='')"), "pulled\n");
    assert_eq!(first.print("cat /opt/which 2> /dev/null || echo none"), "none\n", "the other image is as it was");
    assert_eq!(keeper.end(), 0);
}

fn roots_of_pulled_images_that_are_not_in_the_store_are_refused() {
    let store = Store::new();
    symlink("/etc", store.path().join("x/root/link")).unwrap();
    symlink("../../../..", store.path().join("x/root/up")).unwrap();
    let (mut keeper, puller) = store.start();
    let add = |root: &RootSpec| add_image(puller.as_fd(), root);
    for outside in ["/etc", "/", "/image/0", "/store"] {
        assert_eq!(refusal(add(&store.with(outside))), (StepName::PulledRoot, libc::EACCES), "{outside}");
    }
    let beneath = |name: &str| store.with(store.path().join(name));
    assert_eq!(refusal(add(&beneath("x/root/link/passwd"))), (StepName::OpenBinds, libc::ELOOP));
    assert_eq!(refusal(add(&beneath("x/root/up/etc"))), (StepName::OpenBinds, libc::ELOOP));
    assert_eq!(refusal(add(&beneath("x/../../../etc"))), (StepName::OpenBinds, libc::EXDEV));
    assert_eq!(refusal(add(&beneath("y"))), (StepName::OpenBinds, libc::ENOENT));
    let mut out = store.root();
    out.binds[0].target = "/../0/opt".into();
    assert_eq!(refusal(add(&out)), (StepName::PulledRoot, libc::EINVAL));
    let mut long = store.root();
    long.environment.push(("LONG".into(), "x".repeat(1 << 20)));
    assert_eq!(refusal(add(&long)), (StepName::PulledRoot, libc::EMSGSIZE));
    // None of them took anything away: there is room for two, and no more.
    assert_eq!([add(&store.root()).unwrap(), add(&store.root()).unwrap()], [1, 2]);
    assert_eq!(refusal(add(&store.root())), (StepName::PulledRoom, libc::ENOSPC));
    assert_eq!(keeper.cell(2).print("cat /opt/which"), "pulled\n");
    assert_eq!(keeper.end(), 0);
}

fn a_puller_that_is_gone_or_floods_hurts_nobody() {
    let store = Store::new();
    let (mut keeper, puller) = store.start();
    packet::send(puller.as_fd(), b"no description", &[]).unwrap();
    let full = (0..100_000).find(|_| packet::send(puller.as_fd(), &[0; 4096], &[puller.as_fd()]).is_err());
    assert_eq!(keeper.cell(0).print("echo here"), "here\n", "{full:?}");
    drop(puller);
    for _ in 0..3 {
        assert_eq!(keeper.cell(0).print("echo still here"), "still here\n");
    }
    assert_eq!(keeper.end(), 0);
}

/// Runs a part of this program of its own: there is no way back from what it does to itself.
fn apart(name: &str) {
    assert!(Command::new("/proc/self/exe").arg(name).process_group(0).status().unwrap().success());
}

fn what_pulls_is_held_to_its_store() {
    apart("confine-puller");
}

/// The body of `confine-puller`.
pub(crate) fn held() -> ExitCode {
    let store = Store::new();
    let (secret, public) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for folder in [&secret, &public] {
        fs::write(folder.path().join("file"), "text").unwrap();
    }
    let file = store.path().join("x/made");
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let door = secret.path().join("door");
    let _listens = std::os::unix::net::UnixListener::bind(&door).unwrap();
    let resolver = ["/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/lib", "/usr/lib"].map(PathBuf::from);
    let readable = [vec![public.path().to_owned(), "/nonexistent".into()], resolver.to_vec()].concat();
    confine_puller(&store.path(), &readable).unwrap();
    fs::create_dir(store.path().join("y")).unwrap();
    fs::write(&file, "x").unwrap();
    fs::hard_link(&file, store.path().join("y/linked")).unwrap();
    fs::rename(&file, store.path().join("y/moved")).unwrap();
    assert_eq!(fs::read_to_string(public.path().join("file")).unwrap(), "text");
    let denied = std::io::ErrorKind::PermissionDenied;
    assert_eq!(fs::read(secret.path().join("file")).unwrap_err().kind(), denied);
    assert_eq!(fs::write(public.path().join("file"), "x").unwrap_err().kind(), denied);
    assert_eq!(fs::write(secret.path().join("new"), "x").unwrap_err().kind(), denied);
    // None of this is Landlock's matter: whoever owns a file may do it, wherever the file is.
    assert_eq!(std::os::unix::net::UnixStream::connect(&door).unwrap_err().kind(), denied);
    assert_eq!(std::os::unix::net::UnixDatagram::unbound().unwrap_err().kind(), denied);
    assert!(std::os::unix::net::UnixStream::pair().is_err());
    for file in [secret.path().join("file"), public.path().join("file"), store.path().join("y/moved")] {
        let mode = fs::metadata(&file).unwrap().permissions();
        assert_eq!(fs::set_permissions(&file, mode.clone()).unwrap_err().kind(), denied, "{file:?}");
        assert_eq!(std::os::unix::fs::chown(&file, None, None).unwrap_err().kind(), denied, "{file:?}");
        assert_eq!(rustix::fs::setxattr(&file, "user.x", b"x", rustix::fs::XattrFlags::empty()), Err(Errno::PERM));
    }
    let moved = File::open(store.path().join("y/moved")).unwrap();
    moved.set_permissions(fs::Permissions::from_mode(0o755)).unwrap();
    for mode in [0o4755, 0o2755, 0o777] {
        assert_eq!(moved.set_permissions(fs::Permissions::from_mode(mode)).unwrap_err().kind(), denied, "{mode:o}");
    }
    let program = fs::OpenOptions::new().write(true).create_new(true).mode(0o4755).open(store.path().join("y/program"));
    assert_eq!(program.unwrap_err().kind(), denied);
    // Names are resolved nevertheless, and threads started.
    assert!(std::net::ToSocketAddrs::to_socket_addrs("localhost:1").unwrap().next().is_some());
    assert_eq!(std::thread::spawn(|| 6 * 7).join().unwrap(), 42);
    assert!(Command::new("/bin/true").status().is_err());
    assert!(std::net::TcpListener::bind("127.0.0.1:0").is_err());
    assert!(std::net::TcpStream::connect(nobody.local_addr().unwrap()).is_ok(), "it may connect");
    assert!(fs::read("/proc/self/status").is_err());
    let namespace = ringfence_sys::namespace::unshare(ringfence_sys::namespace::Namespaces::USER);
    assert_eq!(namespace.unwrap_err().kind(), denied, "the filter");
    ExitCode::SUCCESS
}

fn from_the_confined_daemon() {
    apart("confine-and-pull");
}

/// The body of `confine-and-pull`: the daemon's rules were made before the image came.
pub(crate) fn confined_daemon() -> ExitCode {
    let store = Store::new();
    let (mut keeper, puller) = store.start();
    let root = store.root();
    enter_fleet(&keeper.launched).unwrap();
    confine(&keeper.launched).unwrap();
    assert_eq!(add_image(puller.as_fd(), &root).unwrap(), 1);
    let mut cell = keeper.cell(1);
    cell.print("echo text > file; mkdir folder");
    let read = |name: &str| openat(&cell.workspace, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    assert_eq!(std::io::read_to_string(File::from(read("file").unwrap())).unwrap(), "text\n");
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    openat(&cell.workspace, "folder/made", flags, Mode::from_raw_mode(0o600)).unwrap();
    assert_eq!(cell.print("ls folder; cat /opt/which"), "made\npulled\n");
    assert_eq!(keeper.end(), 0);
    ExitCode::SUCCESS
}
