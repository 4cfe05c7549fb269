//! Killing what a cell runs, and what cannot be killed.

use std::os::fd::AsFd;

use ringfence_frame::init::{FromInit, ToInit};
use ringfence_jail::send_init;

use crate::Test;
use crate::driver::*;

pub(crate) const TESTS: &[Test] = &[
    ("a_tree_that_forks_away_is_killed", a_tree_that_forks_away_is_killed),
    ("a_fork_bomb_is_killed_and_the_worker_spared", a_fork_bomb_is_killed_and_the_worker_spared),
    ("a_process_that_forks_and_ends_for_ever_is_found", a_process_that_forks_and_ends_for_ever_is_found),
    ("threads_whose_first_one_has_ended_are_killed", threads_whose_first_one_has_ended_are_killed),
    ("what_is_older_is_spared", what_is_older_is_spared),
    ("init_outlives_its_cell", init_outlives_its_cell),
    ("failures_to_start_are_told", failures_to_start_are_told),
    ("a_signal_reaches_one_process", a_signal_reaches_one_process),
    ("commands_end_though_their_children_live", commands_end_though_their_children_live),
];

fn keeper() -> Keeper {
    Keeper::start(&config(vec![with_python(host_root())]))
}

/// Processes of the cell but init and the ones that look.
fn count(cell: &mut Cell) -> usize {
    let listing = cell.run("cat /proc/[0-9]*/stat").out;
    let others = |line: &&str| !["(init)", "(sh)", "(cat)"].iter().any(|name| line.contains(name));
    listing.lines().filter(others).filter(|line| !line.contains(") Z ")).count()
}

fn a_tree_that_forks_away_is_killed() {
    let mut keeper = keeper();
    let mut cell = keeper.cell(0);
    let tree = "import os
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setpgid(0, 0)
            os.execvp('sleep', ['sleep', '1000'])
        os._exit(0)
print('made', flush=True)
os.execvp('sleep', ['sleep', '1000'])";
    let mut started = cell.start_python(tree);
    assert_eq!(started.line(), "made\n");
    until("the tree to be whole", || count(&mut cell) == 6);
    let (killed, all) = cell.kill_since(0, 0);
    assert!(killed >= 6 && !all, "{killed}");
    assert_eq!(count(&mut cell), 0);
    keeper.end();
}

fn a_fork_bomb_is_killed_and_the_worker_spared() {
    let mut keeper = keeper();
    let mut cell = keeper.cell(0);
    let mut worker = keeper.worker(cell.number);
    let pid: u32 = worker.run("import os; print(os.getpid())").trim().parse().unwrap();
    for _ in 0..3 {
        // Every process makes two and ends, for ever: whoever is listed is gone by the time that it is killed.
        let bomb = "import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('lit', flush=True)
while True:
    try:
        if os.fork() == 0:
            try: os.fork()
            except OSError: pass
            os.setsid() if os.getpid() != os.getsid(0) else 0
        else:
            try: os.waitpid(-1, os.WNOHANG)
            except OSError: pass
            if os.getppid() == 1: os._exit(0)
    except OSError: pass";
        let mut started = cell.start_python(bomb);
        assert_eq!(started.line(), "lit\n");
        let (killed, all) = cell.kill_since(0, pid);
        assert!(killed > 0 && !all, "{killed}");
        assert_eq!(count(&mut cell), 1, "the worker alone");
        assert_eq!(worker.run("print('lives')"), "lives\n");
    }
    keeper.end();
}

fn a_process_that_forks_and_ends_for_ever_is_found() {
    let mut keeper = keeper();
    let mut cell = keeper.cell(0);
    let mut worker = keeper.worker(cell.number);
    let pid: u32 = worker.run("import os; print(os.getpid())").trim().parse().unwrap();
    for round in 0..50 {
        // One process at a time, each the child of the one before. A fork fails where init, busy with killing, has yet to
        // reap those before: then it is tried again.
        let chain = "import os
print('off', flush=True)
while True:
    try:
        if os.fork(): os._exit(0)
    except OSError: pass";
        let mut started = cell.start_python(chain);
        assert_eq!(started.line(), "off\n");
        let (killed, all) = cell.kill_since(0, pid);
        assert!(killed > 0 && !all, "{round}: {killed}");
        assert_eq!(count(&mut cell), 1, "{round}: the worker alone");
    }
    keeper.end();
}

fn threads_whose_first_one_has_ended_are_killed() {
    let mut keeper = keeper();
    let mut cell = keeper.cell(0);
    let program = format!(
        "import ctypes, threading, time
def goes_on():
    while ' Z ' not in open('/proc/self/stat').read(): time.sleep(0.01)
    print('first one ended', flush=True)
    time.sleep(1000)
threading.Thread(target=goes_on).start()
ctypes.CDLL(None).syscall({}, 0)",
        libc::SYS_exit
    );
    let mut started = cell.start_python(&program);
    assert_eq!(started.line(), "first one ended\n");
    assert_eq!(cell.kill_since(0, 0), (1, false));
    let threads = cell.print("set -- /proc/[0-9]*/task/[0-9]*; echo $#");
    assert_eq!(threads, "2\n", "init, and the shell that counts");
    keeper.end();
}

fn what_is_older_is_spared() {
    let mut keeper = keeper();
    let mut cell = keeper.cell(0);
    let mut old = cell.start("echo up; exec sleep 1000").unwrap();
    assert_eq!(old.line(), "up\n");
    let ticks = |cell: &mut Cell, pid: u32| -> u64 {
        cell.print(&format!("cut -d' ' -f22 /proc/{pid}/stat")).trim().parse().unwrap()
    };
    let old_start = ticks(&mut cell, old.pid);
    let mut since = old_start;
    let mut young = None;
    until("a later tick", || {
        if let Some(pid) = young.take() {
            send_init(cell.control.as_fd(), ToInit::Signal { pid, signal: libc::SIGKILL }, &[]).unwrap();
            assert!(matches!(cell.hear(), FromInit::Exited { .. }));
        }
        let started = cell.start("exec sleep 1000").unwrap();
        since = ticks(&mut cell, started.pid);
        young = Some(started.pid);
        since > old_start
    });
    assert_eq!(cell.kill_since(since, 0), (1, false));
    until("the older one to be itself", || count(&mut cell) == 1);
    // Nothing that is new enough: nothing is done.
    assert_eq!(cell.kill_since(since, 0), (0, false));
    assert_eq!(cell.kill_since(0, 0), (1, false));
    keeper.end();
}

fn init_outlives_its_cell() {
    let mut keeper = keeper();
    let mut cell = keeper.cell(0);
    let ran = cell.run("for s in $(seq 1 64); do kill -$s 1 2>/dev/null; done; kill -9 -1 2>/dev/null; echo no");
    // It kills all but itself and init.
    assert_eq!((ran.status, ran.out.as_str()), (0, "no\n"));
    assert_eq!(cell.print("echo lives"), "lives\n");
    // Rubbish on its socket, too long, too short, with descriptors.
    for bytes in [&[0xff; 64][..], &[1; 3], &[7; 100]] {
        ringfence_sys::packet::send(cell.control.as_fd(), bytes, &[cell.control.as_fd()]).unwrap();
    }
    let long = vec![1; 150_000];
    let _ = ringfence_sys::packet::send(cell.control.as_fd(), &long, &[]);
    assert_eq!(cell.print("echo still"), "still\n");
    // Many orphans are reaped.
    cell.print("for i in $(seq 50); do (sleep 0 &) ; done");
    until("the orphans to be reaped", || count(&mut cell) == 0);
    keeper.end();
}

fn failures_to_start_are_told() {
    let mut spec = host_root();
    spec.shell = "/bin/no-such-shell".into();
    let mut keeper = Keeper::start(&config(vec![spec, host_root()]));
    let mut cell = keeper.cell(0);
    assert_eq!(cell.start("true").err(), Some(libc::ENOENT));
    let mut cell = keeper.cell(1);
    let full = "import os
try:
    while True:
        if os.fork() == 0: os.execvp('sleep', ['sleep', '1000'])
except OSError: print('full', flush=True)
os.execvp('sleep', ['sleep', '1000'])";
    let mut started = cell.start_python(full);
    assert_eq!(started.line(), "full\n");
    assert_eq!(cell.start("true").err(), Some(libc::EAGAIN));
    assert!(!cell.kill_since(0, 0).1);
    assert_eq!(cell.print("echo room"), "room\n");
    // A command needs its two descriptors.
    let token = cell.token();
    send_init(cell.control.as_fd(), ToInit::Spawn { token, command: b"true" }, &[]).unwrap();
    assert_eq!(cell.hear(), FromInit::SpawnFailed { token, errno: libc::EINVAL });
    keeper.end();
}

fn a_signal_reaches_one_process() {
    let mut keeper = keeper();
    let mut cell = keeper.cell(0);
    let mut started = cell.start("trap 'echo caught; exit 3' INT; echo up; while :; do sleep 0.01; done").unwrap();
    assert_eq!(started.line(), "up\n");
    send_init(cell.control.as_fd(), ToInit::Signal { pid: started.pid, signal: libc::SIGINT }, &[]).unwrap();
    let end = cell.hear();
    assert!(matches!(end, FromInit::Exited { token, status: 768, .. } if token == started.token), "{end:?}");
    assert_eq!(started.line(), "caught\n");
    // One that is gone is no error.
    send_init(cell.control.as_fd(), ToInit::Signal { pid: started.pid, signal: libc::SIGINT }, &[]).unwrap();
    assert_eq!(cell.print("echo on"), "on\n");
    keeper.end();
}

fn commands_end_though_their_children_live() {
    let mut keeper = keeper();
    let mut cell = keeper.cell(0);
    let started = cell.start("sleep 1000 & exit 5").unwrap();
    // The end is told though the pipe stays open.
    assert!(matches!(cell.hear(), FromInit::Exited { token, status: 1280, .. } if token == started.token));
    until("the child to be itself", || count(&mut cell) == 1);
    assert_eq!(cell.kill_since(0, 0), (1, false));
    keeper.end();
}
