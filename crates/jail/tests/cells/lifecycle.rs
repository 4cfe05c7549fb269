//! What is there before, during and after; what goes wrong, and how that is said.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use ringfence_frame::keeper::{FromKeeper, ToKeeper};
use ringfence_jail::{JailError, KeeperConfig, StepName, enter_fleet, launch, send};
use ringfence_op::Bind;
use ringfence_sys::signal;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, chownat, openat};

use crate::Test;
use crate::driver::*;

pub(crate) const TESTS: &[Test] = &[
    ("fifty_cells_leave_nothing", fifty_cells_leave_nothing),
    ("the_end_of_the_link_ends_everything", the_end_of_the_link_ends_everything),
    ("a_killed_keeper_takes_everything_along", a_killed_keeper_takes_everything_along),
    ("a_killed_warden_is_swept_after", a_killed_warden_is_swept_after),
    ("a_killed_daemon_leaves_nothing", a_killed_daemon_leaves_nothing),
    ("the_daemon_enters_the_fleet", the_daemon_enters_the_fleet),
    ("a_cell_that_dies_is_told", a_cell_that_dies_is_told),
    ("requests_that_make_no_sense_are_answered", requests_that_make_no_sense_are_answered),
    ("a_dead_zygote_is_replaced", a_dead_zygote_is_replaced),
    ("failed_starts_say_why", failed_starts_say_why),
];

fn python() -> KeeperConfig {
    config(vec![with_python(host_root())])
}

fn fifty_cells_leave_nothing() {
    let mut keeper = Keeper::start(&python());
    let baseline = |keeper: &Keeper| {
        let inner = keeper.inner_pid();
        let mounts = fs::read_to_string(format!("/proc/{inner}/mountinfo")).unwrap().lines().count();
        let fds = fs::read_dir(format!("/proc/{inner}/fd")).map_or(0, Iterator::count);
        let groups: usize = keeper.cgroups().iter().map(|folder| fs::read_dir(folder).unwrap().count()).sum();
        (descendants(keeper.launched.pid).len(), mounts, fds, groups)
    };
    // One cell first: the keeper lets go of what it sent with `Ready` only after that was heard.
    let first = keeper.cell(0);
    keeper.destroy(first.number);
    let before = baseline(&keeper);
    for round in 0..10 {
        let mut cells: Vec<Cell> = (0..5).map(|_| keeper.cell(0)).collect();
        for cell in &mut cells {
            assert_eq!(cell.print("sleep 1000 >/dev/null 2>&1 & echo hi"), "hi\n");
            if round % 2 == 0 {
                keeper.worker(cell.number).run("import os; os.fork() or os.execvp('sleep', ['sleep', '1000'])");
            }
        }
        for cell in cells {
            keeper.destroy(cell.number);
        }
    }
    until(&format!("the baseline {before:?}"), || baseline(&keeper) == before);
    let processes = descendants(keeper.launched.pid);
    assert_eq!(keeper.end(), 0);
    assert!(processes.iter().all(|pid| !lives(*pid)));
}

/// A keeper with three busy cells, the interpreters in them, and all processes below it.
fn busy() -> (Keeper, Vec<Worker>, Vec<u32>) {
    let mut keeper = Keeper::start(&python());
    let mut workers = Vec::new();
    for _ in 0..3 {
        let mut cell = keeper.cell(0);
        cell.print("sleep 1000 >/dev/null 2>&1 & echo");
        workers.push(keeper.worker(cell.number));
    }
    let processes = descendants(keeper.launched.pid);
    assert!(processes.len() >= 11, "{processes:?}");
    (keeper, workers, processes)
}

fn the_end_of_the_link_ends_everything() {
    let (keeper, _workers, processes) = busy();
    let groups = keeper.cgroups();
    assert_eq!(keeper.end(), 0);
    assert!(processes.iter().all(|pid| !lives(*pid)));
    assert!(groups.iter().all(|folder| !folder.exists()), "{groups:?}");
}

fn a_killed_keeper_takes_everything_along() {
    let (mut keeper, _workers, processes) = busy();
    let groups = keeper.cgroups();
    signal::send(keeper.inner_pid().cast_signed(), libc::SIGKILL).unwrap();
    assert!(keeper.hear_end(), "the link ends");
    // The warden has removed the cgroups, and says that its keeper did not end well.
    assert_ne!(keeper.end(), 0);
    assert!(processes.iter().all(|pid| !lives(*pid)));
    assert!(groups.iter().all(|folder| !folder.exists()), "{groups:?}");
}

fn a_killed_warden_is_swept_after() {
    let (mut keeper, _workers, processes) = busy();
    let groups = keeper.cgroups();
    signal::send(keeper.launched.pid.cast_signed(), libc::SIGKILL).unwrap();
    assert!(keeper.hear_end(), "the link ends");
    assert_eq!(keeper.end(), libc::SIGKILL);
    until("the end of all", || processes.iter().all(|pid| !lives(*pid)));
    // Nobody was left to remove them but the next start.
    assert!(groups.iter().all(|folder| folder.exists()));
    let next = Keeper::start(&config(vec![host_root()]));
    assert!(groups.iter().all(|folder| !folder.exists()), "{groups:?}");
    next.end();
}

/// The body of `hold-cells`: a daemon that will be killed.
pub(crate) fn hold_cells() -> ExitCode {
    let (keeper, _workers, _) = busy();
    println!("{}", keeper.launched.pid);
    io::stdout().flush().unwrap();
    loop {
        std::thread::park();
    }
}

fn a_killed_daemon_leaves_nothing() {
    let mut daemon = Command::new("/proc/self/exe").arg("hold-cells").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut out = io::BufReader::new(daemon.stdout.take().unwrap());
    io::BufRead::read_line(&mut out, &mut line).unwrap();
    let warden = line.trim().parse().unwrap();
    let mut processes = descendants(warden);
    processes.push(warden);
    let groups = cgroups_of(warden);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    until("the end of all", || processes.iter().all(|pid| !lives(*pid)));
    assert!(groups.iter().all(|folder| !folder.exists()), "{groups:?}");
}

fn the_daemon_enters_the_fleet() {
    // In a process of its own: there is no way back.
    let mut command = Command::new("/proc/self/exe");
    let status = command.arg("enter-fleet").process_group(0).status().unwrap();
    assert!(status.success());
}

/// The body of `enter-fleet`.
pub(crate) fn inside_the_fleet() -> ExitCode {
    let mut keeper = Keeper::start(&config(vec![host_root()]));
    enter_fleet(&keeper.launched).unwrap();
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_once(':').unwrap().1.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let three = "000000000000000b";
    for (name, wanted) in [("CapInh", "0000000000000000"), ("CapPrm", three), ("CapEff", three), ("CapBnd", three)] {
        assert_eq!(field(name), [wanted], "{name}");
    }
    assert_eq!(field("NoNewPrivs"), ["1"]);
    let id = keeper.launched.daemon_id;
    assert_eq!(rustix::process::getuid().as_raw(), id);
    assert_eq!(rustix::process::getgid().as_raw(), id);
    if keeper.launched.id_per_cell {
        assert_eq!(rustix::process::getgroups().unwrap(), []);
    }
    // Over the host it has no power.
    assert!(fs::write("/etc/ringfence-test", "x").is_err());
    // Over the files of a cell it has.
    let mut cell = keeper.cell(0);
    let (owner, group) = (Uid::from_raw(cell.owner_id), Gid::from_raw(cell.owner_id));
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::EXCL;
    let mut file = File::from(openat(&cell.workspace, "given", flags, Mode::from_raw_mode(0o600)).unwrap());
    file.write_all(b"by the daemon").unwrap();
    chownat(&cell.workspace, "given", Some(owner), Some(group), AtFlags::empty()).unwrap();
    assert_eq!(cell.print("stat -c '%u %g %a' given; cat given"), "1000 1000 600\nby the daemon");
    cell.print("echo private > own; chmod 0 own; mkdir dir; chmod 0 dir");
    let own = File::from(openat(&cell.workspace, "own", OFlags::RDONLY, Mode::empty()).unwrap());
    assert_eq!(io::read_to_string(own).unwrap(), "private\n");
    assert_eq!(keeper.end(), 0);
    ExitCode::SUCCESS
}

fn a_cell_that_dies_is_told() {
    let mut keeper = Keeper::start(&config(vec![host_root()]));
    let cell = keeper.cell(0);
    let inits: Vec<u32> = descendants(keeper.launched.pid).into_iter().filter(|pid| name(*pid) == "init").collect();
    assert_eq!(inits.len(), 1);
    signal::send(inits[0].cast_signed(), libc::SIGKILL).unwrap();
    let died = FromKeeper::CellDied { cell: cell.number, status: libc::SIGKILL };
    keeper.hear(|message| (*message == died).then_some(()));
    keeper.destroy(cell.number);
    assert_eq!(keeper.cell(0).print("echo on"), "on\n");
    keeper.end();
}

fn requests_that_make_no_sense_are_answered() {
    let mut keeper = Keeper::start(&config(vec![host_root()]));
    let failed = |keeper: &mut Keeper, number: u64| {
        keeper
            .hear(|message| match *message {
                FromKeeper::CellFailed { cell, step, errno } if cell == number => {
                    Some((StepName::from_number(step), errno))
                }
                _ => None,
            })
            .0
    };
    let number = keeper.ask_for_cell(7);
    assert_eq!(failed(&mut keeper, number), (Some(StepName::Image), libc::ENOENT));
    let cell = keeper.cell(0);
    send(keeper.socket(), ToKeeper::MakeCell { cell: cell.number, image: 0, set: 0 }, &[]).unwrap();
    assert_eq!(failed(&mut keeper, cell.number), (Some(StepName::Number), libc::EEXIST));
    // No Python in the image, no such cell.
    assert_eq!(keeper.try_worker(cell.number).err(), Some(0));
    assert_eq!(keeper.try_worker(99).err(), Some(0));
    // Never there, and twice.
    keeper.destroy(99);
    keeper.destroy(cell.number);
    keeper.destroy(cell.number);
    // Rubbish is dropped, with its descriptors.
    for bytes in [&[0xff; 64][..], &[1; 3], &[7; 100]] {
        ringfence_sys::packet::send(keeper.socket(), bytes, &[keeper.socket()]).unwrap();
    }
    assert_eq!(keeper.cell(0).print("echo on"), "on\n");
    assert_eq!(keeper.end(), 0);
}

fn a_dead_zygote_is_replaced() {
    let mut keeper = Keeper::start(&python());
    let cell = keeper.cell(0);
    let mut worker = keeper.worker(cell.number);
    let inner = keeper.inner_pid();
    let zygote = |ignored: u32| {
        let children = children(inner).into_iter();
        children.filter(|pid| *pid != ignored && name(*pid).starts_with("python")).collect::<Vec<_>>()
    };
    let [first] = zygote(0)[..] else { panic!("one zygote: {:?}", zygote(0)) };
    signal::send(first.cast_signed(), libc::SIGKILL).unwrap();
    // The worker that it forked goes on, and its end is still told.
    assert_eq!(worker.run("print('on')"), "on\n");
    until("the zygote's death to be seen", || !lives(first));
    // What is asked meanwhile waits for the next one.
    let mut second = loop {
        match keeper.try_worker(cell.number) {
            Ok(worker) => break worker,
            // Sent to the old one before its death was seen.
            Err(0 | libc::EPIPE) => {}
            Err(errno) => panic!("{}", io::Error::from_raw_os_error(errno)),
        }
    };
    assert_eq!(second.run("print('again')"), "again\n");
    let pid = worker.pid;
    drop(worker);
    keeper.hear(|message| matches!(*message, FromKeeper::WorkerDied { pid: one, .. } if one == pid).then_some(()));
    keeper.destroy(cell.number);
    keeper.end();
}

fn failed_starts_say_why() {
    let before = children(std::process::id());
    let setup = |config: &KeeperConfig| match launch(config) {
        Err(JailError::Setup { step, detail, source }) => (step, detail, source.raw_os_error().unwrap()),
        other => panic!("{other:?}"),
    };
    let mut config = python();
    config.images[0].python = Some("/usr/bin/no-such-python".into());
    let (step, detail, errno) = setup(&config);
    assert_eq!((step, errno), (StepName::StartZygote, libc::ENOENT));
    assert!(detail.contains("/usr/bin/no-such-python"), "{detail}");

    let mut config = python();
    config.zygote_source = "raise SystemExit(3)".into();
    assert_eq!(setup(&config).0, StepName::ZygoteReady);

    let mut config = python();
    config.images[0].binds.push(Bind { source: "/no/such/folder".into(), target: "/x".into() });
    let (step, detail, errno) = setup(&config);
    assert_eq!((step, errno), (StepName::OpenBinds, libc::ENOENT));
    assert!(detail.contains("/no/such/folder"), "{detail}");

    if is_root() {
        for (base, count) in [(u32::MAX - 5, 65_536), (0, 65_536), (1_000_000_000, 1000)] {
            let mut config = python();
            (config.id_base, config.id_count) = (base, count);
            let (step, detail, _) = setup(&config);
            assert_eq!(step, StepName::FleetMap);
            assert!(detail.contains(&base.to_string()), "{detail}");
        }
    }
    assert_eq!(children(std::process::id()), before);
}

/// How long making, using and taking down a cell take here; for a person to read.
pub(crate) fn measure() -> ExitCode {
    const ROUNDS: usize = 200;
    let mut keeper = Keeper::start(&python());
    println!("{:?}, id per cell: {}", keeper.launched.limiter, keeper.launched.id_per_cell);
    let mut times: Vec<(&str, Vec<Duration>)> =
        ["make a cell", "start `true` and hear its end", "fork a worker and hear from it", "take a cell down"]
            .map(|name| (name, Vec::new()))
            .into();
    for _ in 0..ROUNDS {
        let mut steps = times.iter_mut().map(|(_, times)| times);
        let mut time = |begun: Instant| steps.next().unwrap().push(begun.elapsed());
        let begun = Instant::now();
        let mut cell = keeper.cell(0);
        time(begun);
        let begun = Instant::now();
        cell.run("true");
        time(begun);
        let begun = Instant::now();
        keeper.worker(cell.number).run("pass");
        time(begun);
        let begun = Instant::now();
        keeper.destroy(cell.number);
        time(begun);
    }
    for (name, mut times) in times {
        times.sort();
        let at = |part: usize| times[times.len() * part / 100].as_micros();
        println!("{name}: least {} us, p50 {} us, p90 {} us, p99 {} us", at(0), at(50), at(90), at(99));
    }
    assert_eq!(keeper.end(), 0);
    ExitCode::SUCCESS
}
