//! The attacks of `security/` against the real server: every one is held, as root, as an ordinary user,
//! and in a container.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Mutex, PoisonError};

use ringfence_attack::catalogue;
use ringfence_probe::Address;
use ringfence_testkit::{Container, ServerOptions, User};

/// The id of `nobody`, an ordinary user of every machine.
const NOBODY: u32 = 65_534;

/// Each takes the machine's processors to their limit, and both judge by time that a second session is not kept waiting.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What the daemon may take at its worst, bytes: some tens of megabytes at rest, and the bounds of what it buffers.
const DAEMON_BYTES_MAX: u64 = 512 << 20;

/// The most memory that a process has held so far.
fn memory_most(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn every_attack_is_held(options: ServerOptions) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let server = options.start();
    let address = Address::parse(&format!("http://{}", server.address()), None).unwrap();
    let report = ringfence_attack::run(&address, &catalogue().unwrap(), |_| ());
    assert!(report.all_held(), "{}", report.to_text());
    let most = memory_most(server.pid());
    assert!(most < DAEMON_BYTES_MAX, "the daemon took {most} bytes at its worst");
}

#[test]
fn every_attack_is_held_as_whoever_runs_the_tests() {
    every_attack_is_held(ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")));
}

/// Without cgroups: memory is bounded for each process and CPU is not, and yet nobody else suffers.
#[test]
fn every_attack_is_held_as_an_ordinary_user() {
    let options = ServerOptions::new(env!("CARGO_BIN_EXE_ringfence"));
    let root = rustix::process::geteuid().is_root();
    every_attack_is_held(if root { options.user(User::Other(NOBODY)) } else { options });
}

/// With a masked `/proc` and without `pivot_root`: cells there hold as they do elsewhere.
#[test]
fn every_attack_is_held_in_a_container_with_sys_admin() {
    let container = Container::new().capability("SYS_ADMIN");
    every_attack_is_held(ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).container(container));
}
