//! Zygotes that are replaced while they are in use.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use ringfence_frame::keeper::{FromKeeper, ToKeeper};
use ringfence_jail::{KeeperConfig, send};
use ringfence_op::Bind;
use ringfence_sys::signal;

use crate::Test;
use crate::driver::*;

pub(crate) const TESTS: &[Test] = &[
    ("a_zygote_is_replaced_and_what_it_has_forked_lives_on", a_zygote_is_replaced_and_what_it_has_forked_lives_on),
    ("nobody_waits_for_the_imports_of_the_next_zygote", nobody_waits_for_the_imports_of_the_next_zygote),
    (
        "a_next_zygote_that_fails_leaves_the_one_before_in_service",
        a_next_zygote_that_fails_leaves_the_one_before_in_service,
    ),
    ("when_the_zygote_dies_meanwhile_the_next_one_serves", when_the_zygote_dies_meanwhile_the_next_one_serves),
    ("nothing_is_left_of_many_zygotes", nothing_is_left_of_many_zygotes),
    ("an_image_without_a_zygote_has_none_to_replace", an_image_without_a_zygote_has_none_to_replace),
];

/// What a zygote does before it is ready: it waits as long as there is a file `hold`, and gives up where there is one
/// called `fail`.
const GATE: &str = "
import os, time
while os.path.exists('/gate/hold'):
    time.sleep(0.005)
if os.path.exists('/gate/fail'):
    os._exit(3)
";

/// Where the zygotes of a keeper find these files.
struct Gate {
    folder: tempfile::TempDir,
}

impl Gate {
    fn new() -> (Gate, KeeperConfig) {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut root = with_python(host_root());
        root.binds.push(Bind { source: folder.path().to_owned(), target: PathBuf::from("/gate") });
        let mut config = config(vec![root]);
        config.zygote_source = format!("{GATE}{}", config.zygote_source);
        (Gate { folder }, config)
    }

    fn shut(&self, how: &str) {
        fs::write(self.folder.path().join(how), "").unwrap();
    }

    fn open(&self, how: &str) {
        fs::remove_file(self.folder.path().join(how)).unwrap();
    }
}

fn renew(keeper: &Keeper) {
    send(keeper.socket(), ToKeeper::RenewZygote { set: 0 }, &[]).unwrap();
}

/// Waits until a zygote later than this one forks; its number.
fn took_over(keeper: &mut Keeper, before: u32) -> u32 {
    let news = |message: &FromKeeper| match *message {
        FromKeeper::ZygoteReady { set: 0, zygote } if zygote > before => Some(zygote),
        FromKeeper::ZygoteNotRenewed { errno, .. } => panic!("not renewed: errno {errno}"),
        _ => None,
    };
    keeper.hear(news).0
}

fn not_renewed(keeper: &mut Keeper) {
    keeper.hear(|message| matches!(message, FromKeeper::ZygoteNotRenewed { set: 0, .. }).then_some(()));
}

/// The process ids of the zygotes, the first one first: children of the keeper that are no init and no orphaned worker.
pub(crate) fn zygotes(keeper: &Keeper, workers: &[u32]) -> Vec<u32> {
    let inner = keeper.inner_pid();
    let mut found = children(inner);
    found.retain(|pid| lives(*pid) && name(*pid).starts_with("python") && !workers.contains(&fleet_pid(*pid)));
    found.sort_unstable();
    found
}

/// The id of a process as the keeper knows it.
fn fleet_pid(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    // The test's own, the fleet's, for a worker the cell's.
    line.split_whitespace().nth(1).and_then(|pid| pid.parse().ok()).unwrap_or(0)
}

/// Where the C library lies in an interpreter: the same in all forks of one zygote.
pub(crate) const LAYOUT: &str =
    "import ctypes; print(ctypes.cast(ctypes.CDLL('libc.so.6').malloc, ctypes.c_void_p).value)";

fn a_zygote_is_replaced_and_what_it_has_forked_lives_on() {
    let mut keeper = Keeper::start(&config(vec![with_python(host_root())]));
    let cells = [keeper.cell(0), keeper.cell(0), keeper.cell(0)];
    let [first, second, third] = &cells;
    let mut old = keeper.worker(first.number);
    let mut same = keeper.worker(second.number);
    assert_eq!((old.zygote, old.forks, same.zygote, same.forks), (1, 1, 1, 2));
    assert_eq!(old.run(LAYOUT), same.run(LAYOUT), "forks of one zygote");
    let [before] = zygotes(&keeper, &[old.pid, same.pid])[..] else { panic!("one zygote") };

    old.run("kept = 'kept'");
    renew(&keeper);
    let zygote = took_over(&mut keeper, old.zygote);
    let mut new = keeper.worker(third.number);
    assert_eq!((new.zygote, new.forks), (zygote, 1));
    assert_ne!(new.run(LAYOUT), old.run(LAYOUT), "another zygote has another layout");
    until("the end of the zygote before", || !lives(before));

    // What it has forked is there, also when its parent is not, and its end is told.
    assert_eq!(old.run("import os; print(os.getppid())"), "0\n");
    let pid = old.pid;
    drop(old);
    keeper.hear(|message| matches!(*message, FromKeeper::WorkerDied { pid: one, .. } if one == pid).then_some(()));
    let mut again = keeper.worker(first.number);
    assert_eq!((again.zygote, again.run(LAYOUT)), (zygote, new.run(LAYOUT)));
    let pid = again.pid;
    drop(again);
    keeper.hear(|message| matches!(*message, FromKeeper::WorkerDied { pid: one, .. } if one == pid).then_some(()));
    assert_eq!(same.run("print('on')"), "on\n");
    for cell in &cells {
        keeper.destroy(cell.number);
    }
    assert_eq!(keeper.end(), 0);
}

fn nobody_waits_for_the_imports_of_the_next_zygote() {
    let (gate, config) = Gate::new();
    let mut keeper = Keeper::start(&config);
    let cell = keeper.cell(0);
    gate.shut("hold");
    renew(&keeper);
    renew(&keeper);
    for forks in 1..=20 {
        let worker = keeper.worker(cell.number);
        assert_eq!((worker.zygote, worker.forks), (1, forks), "the next one has yet to come");
    }
    assert_eq!(zygotes(&keeper, &[]).len(), 2, "one next, however often it is asked for");
    gate.open("hold");
    let zygote = took_over(&mut keeper, 1);
    assert_eq!(keeper.worker(cell.number).zygote, zygote);
    keeper.destroy(cell.number);
    assert_eq!(keeper.end(), 0);
}

fn a_next_zygote_that_fails_leaves_the_one_before_in_service() {
    let (gate, config) = Gate::new();
    let mut keeper = Keeper::start(&config);
    let cell = keeper.cell(0);
    gate.shut("fail");
    for _ in 0..3 {
        renew(&keeper);
        not_renewed(&mut keeper);
        assert_eq!(keeper.worker(cell.number).zygote, 1);
    }
    gate.open("fail");
    // Killed while it imports.
    gate.shut("hold");
    let [before] = zygotes(&keeper, &[])[..] else { panic!("one zygote") };
    renew(&keeper);
    let mut next = 0;
    until("the next zygote", || {
        next = zygotes(&keeper, &[]).into_iter().find(|pid| *pid != before).unwrap_or(0);
        next != 0
    });
    signal::send(next.cast_signed(), libc::SIGKILL).unwrap();
    not_renewed(&mut keeper);
    assert_eq!(keeper.worker(cell.number).zygote, 1);
    gate.open("hold");
    renew(&keeper);
    took_over(&mut keeper, 1);
    keeper.destroy(cell.number);
    assert_eq!(keeper.end(), 0);
}

fn when_the_zygote_dies_meanwhile_the_next_one_serves() {
    let (gate, config) = Gate::new();
    let mut keeper = Keeper::start(&config);
    let cell = keeper.cell(0);
    let mut worker = keeper.worker(cell.number);
    let [before] = zygotes(&keeper, &[worker.pid])[..] else { panic!("one zygote") };
    gate.shut("hold");
    renew(&keeper);
    until("the next zygote", || zygotes(&keeper, &[worker.pid]).len() == 2);
    signal::send(before.cast_signed(), libc::SIGKILL).unwrap();
    until("the zygote's end", || !lives(before));
    assert_eq!(worker.run("print('on')"), "on\n");
    gate.open("hold");
    let zygote = took_over(&mut keeper, 1);
    assert_eq!(zygote, 2, "none but the next one was started");
    assert_eq!(keeper.worker(cell.number).zygote, zygote);
    keeper.destroy(cell.number);
    assert_eq!(keeper.end(), 0);
}

fn nothing_is_left_of_many_zygotes() {
    let mut keeper = Keeper::start(&config(vec![with_python(host_root())]));
    let (inner, me) = (keeper.inner_pid(), std::process::id());
    // Whose descriptors an ordinary user may not list.
    let descriptors = |pid: u32| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    let held = || (descendants(inner).len(), if is_root() { descriptors(inner) } else { 0 }, descriptors(me));
    let mut zygote = 1;
    let mut rounds = |keeper: &mut Keeper, count: usize| {
        for _ in 0..count {
            let cell = keeper.cell(0);
            let worker = keeper.worker(cell.number);
            renew(keeper);
            zygote = took_over(keeper, zygote);
            // In one cell a worker of the zygote before, and one of the zygote that is.
            drop(keeper.worker(cell.number));
            drop(worker);
            keeper.destroy(cell.number);
        }
        until("one zygote and nothing else", || descendants(inner).len() == 1);
        held()
    };
    let before = rounds(&mut keeper, 2);
    assert_eq!(rounds(&mut keeper, 25), before, "processes, the keeper's descriptors, our own");
    assert_eq!(before.1 > 0, is_root(), "the keeper's descriptors were counted");
    assert_eq!(keeper.end(), 0);
}

fn an_image_without_a_zygote_has_none_to_replace() {
    let mut keeper = Keeper::start(&config(vec![host_root()]));
    renew(&keeper);
    not_renewed(&mut keeper);
    send(keeper.socket(), ToKeeper::RenewZygote { set: 9 }, &[]).unwrap();
    keeper.hear(|message| matches!(message, FromKeeper::ZygoteNotRenewed { set: 9, .. }).then_some(()));
    let mut cell = keeper.cell(0);
    assert_eq!(cell.print("echo on"), "on\n");
    keeper.destroy(cell.number);
    assert_eq!(keeper.end(), 0);
}
