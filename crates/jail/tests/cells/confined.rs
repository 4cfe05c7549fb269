//! What the server's own processes can no longer do.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use ringfence_jail::{confine, enter_fleet};
use ringfence_sys::namespace::{Namespaces, unshare};
use ringfence_sys::{caps, process, signal};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, linkat, mkdirat, mknodat, openat, renameat_with, symlinkat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use crate::Test;
use crate::driver::*;

pub(crate) const TESTS: &[Test] = &[
    ("the_daemon_is_held_to_serving", the_daemon_is_held_to_serving),
    ("every_process_of_the_server_has_given_up_what_it_can", every_process_of_the_server_has_given_up_what_it_can),
];

fn the_daemon_is_held_to_serving() {
    // In a process of its own: there is no way back.
    let status = Command::new("/proc/self/exe").arg("confine").process_group(0).status().unwrap();
    assert!(status.success());
}

/// The body of `confine`.
pub(crate) fn inside() -> ExitCode {
    let mut keeper = Keeper::start(&config(vec![host_root(), with_python(host_root())]));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let before = File::open("/etc/passwd").unwrap();
    let (_socket_of_before, pair_of_before) = UnixDatagram::pair().unwrap();
    enter_fleet(&keeper.launched).unwrap();
    let confined = confine(&keeper.launched).unwrap();
    assert!(confined.landlock.is_some_and(|abi| abi >= 6), "this test needs Landlock ABI 6 (Linux 6.12): {confined:?}");
    // As threads of the runtime do: what holds the first holds those that it starts.
    std::thread::scope(|scope| {
        scope.spawn(|| cannot(address, &pair_of_before));
    });
    can(&mut keeper, &before);
    assert_eq!(keeper.end(), 0);
    ExitCode::SUCCESS
}

fn refused<T>(what: &str, result: io::Result<T>, errno: Errno) {
    let error = result.err().unwrap_or_else(|| panic!("{what}: allowed"));
    assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{what}: {error}");
}

fn cannot(address: std::net::SocketAddr, socket: &UnixDatagram) {
    refused("a new program", Command::new("/bin/true").spawn(), Errno::PERM);
    refused("another program", Err::<(), _>(Command::new("/bin/true").exec()), Errno::PERM);
    refused("a connection", TcpStream::connect(address), Errno::PERM);
    refused("a port", TcpListener::bind("127.0.0.1:0"), Errno::PERM);
    refused("a Unix socket", UnixStream::connect("/run/none"), Errno::PERM);
    refused("a socket by another's name", socket.connect("/run/none"), Errno::PERM);
    for kinds in [Namespaces::USER, Namespaces::MOUNT, Namespaces::NET] {
        refused("namespaces", unshare(kinds), Errno::PERM);
    }
    refused("a mount", mount("t", "/tmp", "tmpfs", MountFlags::empty(), None).map_err(Into::into), Errno::PERM);
    refused("a signal", signal::send(rustix::process::getppid().unwrap().as_raw_nonzero().get(), 0), Errno::PERM);
    refused("a capability", caps::keep(caps::DAC_OVERRIDE | caps::SYS_ADMIN), Errno::PERM);
    refused("being looked into", process::dumpable(true), Errno::PERM);
    for file in ["/etc/passwd", "/proc/self/environ", "/proc/1/status", "/dev/null"] {
        refused(file, File::open(file), Errno::ACCESS);
    }
    refused("listing /", fs::read_dir("/"), Errno::ACCESS);
    refused("a file in /tmp", File::create("/tmp/ringfence-confined"), Errno::ACCESS);
    let made = mkdirat(CWD, "/tmp/ringfence-confined", Mode::from_raw_mode(0o755));
    refused("a folder in /tmp", made.map_err(Into::into), Errno::ACCESS);
}

fn can(keeper: &mut Keeper, before: &File) {
    // What was open stays open.
    assert!(io::read_to_string(before).unwrap().contains("root"));
    // Cells are made as before, and their files are the daemon's to handle, in whatever image.
    for image in [0, 1] {
        let mut cell = keeper.cell(image);
        let workspace = &cell.workspace;
        let new = OFlags::CREATE | OFlags::WRONLY | OFlags::EXCL;
        let mut file = File::from(openat(workspace, "given", new, Mode::from_raw_mode(0o644)).unwrap());
        file.write_all(b"by the daemon").unwrap();
        mkdirat(workspace, "folder", Mode::from_raw_mode(0o755)).unwrap();
        linkat(workspace, "given", workspace, "folder/linked", AtFlags::empty()).unwrap();
        renameat_with(workspace, "given", workspace, "folder/moved", RenameFlags::empty()).unwrap();
        symlinkat("folder", workspace, "short").unwrap();
        assert_eq!(cell.print("cat short/moved; echo more > own"), "by the daemon");
        let own = File::from(openat(&cell.workspace, "own", OFlags::RDONLY, Mode::empty()).unwrap());
        assert_eq!(io::read_to_string(own).unwrap(), "more\n");
        for name in ["own", "folder/linked"] {
            unlinkat(&cell.workspace, name, AtFlags::empty()).unwrap();
        }
        // But nothing that is no file, folder or link.
        for kind in [FileType::Fifo, FileType::Socket, FileType::CharacterDevice] {
            let made = mknodat(&cell.workspace, "node", kind, Mode::from_raw_mode(0o666), 0);
            refused("a node", made.map_err(Into::into), Errno::PERM);
        }
        keeper.destroy(cell.number);
    }
}

fn every_process_of_the_server_has_given_up_what_it_can() {
    let mut keeper = Keeper::start(&config(vec![with_python(host_root())]));
    let cell = keeper.cell(0);
    let worker = keeper.worker(cell.number);
    let warden = keeper.launched.pid;
    let inner = keeper.inner_pid();
    let warden_keeps = if is_root() { caps::DAC_OVERRIDE } else { 0 };
    let building = 0x802c_11eb;
    assert_status(warden, "warden", warden_keeps);
    assert_status(inner, "keeper", building);
    let mut seen = Vec::new();
    for pid in descendants(inner) {
        match name(pid).as_str() {
            "init" => assert_status(pid, "init", 0),
            _ if children(inner).contains(&pid) => assert_status(pid, "zygote", 0x2c_00c0),
            _ => assert_status(pid, "worker", 0),
        }
        seen.push(name(pid));
    }
    // A zygote, an init and a worker at least.
    assert!(seen.len() >= 3, "{seen:?}");
    drop(worker);
    keeper.destroy(cell.number);
    keeper.end();
}

/// Seccomp and no_new_privs in force, and these capabilities alone.
fn assert_status(pid: u32, who: &str, capabilities: u64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{who}: no {name}")).trim().to_owned()
    };
    assert_eq!((field("Seccomp"), field("NoNewPrivs")), ("2".to_owned(), "1".to_owned()), "{who}");
    for set in ["CapPrm", "CapEff"] {
        assert_eq!(u64::from_str_radix(&field(set), 16), Ok(capabilities), "{who}: {set}");
    }
    for set in ["CapInh", "CapAmb"] {
        assert_eq!(u64::from_str_radix(&field(set), 16), Ok(0), "{who}: {set}");
    }
    // A warden without any privilege cannot change what it could be given, and no_new_privs gives it nothing.
    if who != "warden" || is_root() {
        assert_eq!(u64::from_str_radix(&field("CapBnd"), 16), Ok(capabilities), "{who}: CapBnd");
    }
}
