//! What a process of a cell is, sees and may do, held to what it must be.

use std::collections::BTreeSet;
use std::fs;

use ringfence_frame::init::FromInit;
use ringfence_frame::keeper::{Limiter, Meters};
use ringfence_jail::KeeperConfig;
use serde_json::{Value, json};

use crate::Test;
use crate::driver::*;

pub(crate) const TESTS: &[Test] = &[
    ("a_command_is_what_it_must_be", a_command_is_what_it_must_be),
    ("an_interpreter_is_what_it_must_be", an_interpreter_is_what_it_must_be),
    ("ordinary_work_is_unhindered", ordinary_work_is_unhindered),
    ("cells_do_not_see_each_other", cells_do_not_see_each_other),
    ("the_workspace_is_bounded", the_workspace_is_bounded),
    ("memory_is_bounded", memory_is_bounded),
    ("processes_are_bounded", processes_are_bounded),
    ("limits_reach_the_kernel", limits_reach_the_kernel),
    ("without_cgroups_rlimits_hold", without_cgroups_rlimits_hold),
];

const PROBE: &str = include_str!("probe.py");

fn keeper() -> Keeper {
    Keeper::start(&config(vec![with_python(host_root())]))
}

fn a_command_is_what_it_must_be() {
    let mut keeper = keeper();
    let mut cell = keeper.cell(0);
    let seen: Value = serde_json::from_str(&cell.python(PROBE)).unwrap();
    // Init, the shell or what it became, the prober.
    let processes = seen["processes"].as_array().unwrap();
    assert!(processes.len() <= 3 && processes[0] == 1, "{processes:?}");
    let descriptors: BTreeSet<&str> = seen["descriptors"].as_object().unwrap().keys().map(String::as_str).collect();
    // The fourth is the script's own descriptor.
    assert_eq!(descriptors, BTreeSet::from(["0", "1", "2", "3"]));
    assert_eq!(seen["environment"]["HOME"], "/workspace");
    for name in seen["environment"].as_object().unwrap().keys() {
        assert!(["HOME", "PATH", "PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"].contains(&name.as_str()), "{name}");
    }
    holds(&seen, &keeper);
    keeper.destroy(cell.number);
    keeper.end();
}

fn an_interpreter_is_what_it_must_be() {
    let mut keeper = keeper();
    let cell = keeper.cell(0);
    let seen: Value = serde_json::from_str(&keeper.worker(cell.number).run(PROBE)).unwrap();
    assert_eq!(seen["processes"], json!([1, seen["pid"]]));
    let descriptors: BTreeSet<&str> = seen["descriptors"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(descriptors, BTreeSet::from(["0", "1", "2", "3"]));
    holds(&seen, &keeper);
    keeper.end();
}

/// What holds for every process of a cell.
fn holds(seen: &Value, keeper: &Keeper) {
    assert_eq!(seen["users"], json!([1000, 1000, 1000]));
    assert_eq!(seen["groups"], json!([1000, 1000, 1000]));
    assert_eq!(seen["supplementary"], 0);
    for (name, mask) in seen["capabilities"].as_object().unwrap() {
        assert_eq!(mask, "0000000000000000", "{name}");
    }
    assert_eq!((&seen["no_new_privileges"], &seen["seccomp"]), (&json!("1"), &json!("2")));
    for (kind, name) in seen["namespaces"].as_object().unwrap() {
        let ours = fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
        assert_ne!(ours.to_str(), name.as_str(), "the host's {kind} namespace");
        let keepers = fs::read_link(format!("/proc/{}/ns/{kind}", keeper.inner_pid())).unwrap();
        assert_ne!(keepers.to_str(), name.as_str(), "the keeper's {kind} namespace");
    }
    for map in ["uid_map", "gid_map"] {
        assert_eq!((&seen[map][0], &seen[map][2]), (&json!("1000"), &json!("1")), "{map}");
    }
    assert_eq!(seen["cgroups"], json!(["/"]));
    assert_eq!(seen["host_name"], "sandbox");
    assert_eq!(seen["folder"], "/workspace");
    assert_eq!(seen["interfaces"], json!({ "lo": true }));
    assert_eq!(seen["outside"], "ENETUNREACH");
    mounts_hold(&seen["mounts"]);
    limits_hold(&seen["limits"], keeper.launched.limiter);
    refusals_hold(seen);
}

fn mounts_hold(mounts: &Value) {
    let spec = host_root();
    let mut points: BTreeSet<String> =
        ["/", "/workspace", "/tmp", "/dev/shm", "/dev/pts", "/proc"].map(str::to_owned).into();
    points.extend(["null", "zero", "full", "random", "urandom"].map(|name| format!("/dev/{name}")));
    points.extend(spec.binds.iter().map(|bind| bind.target.to_str().unwrap().to_owned()));
    for (point, options) in mounts.as_object().unwrap() {
        // Masks of /proc, and what the host has mounted below a folder that is bound.
        let below = spec.binds.iter().any(|bind| point.starts_with(bind.target.to_str().unwrap()));
        assert!(points.contains(point) || below || point.starts_with("/proc/"), "{point} is mounted");
        let has = |option: &str| options.as_array().unwrap().contains(&json!(option));
        let writable = ["/workspace", "/tmp", "/dev/shm", "/dev/pts"].contains(&point.as_str());
        assert_eq!(has("rw"), writable, "{point}");
        assert!(has("nosuid"), "{point}");
        assert!(has("nodev") || point.starts_with("/dev/") || point.starts_with("/proc/"), "{point}");
        points.remove(point);
    }
    assert!(points.is_empty(), "not mounted: {points:?}");
}

fn limits_hold(limits: &Value, limiter: Limiter) {
    assert_eq!(limits["RLIMIT_CORE"], json!([0, 0]));
    assert_eq!(limits["RLIMIT_NOFILE"], json!([1024, 1024]));
    if limiter == Limiter::Rlimits {
        assert_eq!(limits["RLIMIT_AS"], json!([2u64 << 30, 2u64 << 30]));
        assert_eq!(limits["RLIMIT_NPROC"], json!([101, 101]));
    }
}

fn refusals_hold(seen: &Value) {
    for (name, outcome) in seen["refused"].as_object().unwrap() {
        assert!(["EPERM", "EINVAL"].contains(&outcome.as_str().unwrap()), "{name}: {outcome}");
        // An id that is not mapped cannot even be named; everything else is refused as such.
        assert!(outcome == "EPERM" || ["setuid"].contains(&name.as_str()), "{name}: {outcome}");
    }
    assert!(seen["refused"].as_object().unwrap().len() > 15);
    for (name, outcome) in seen["absent"].as_object().unwrap() {
        assert_eq!(outcome, "ENOSYS", "{name}");
    }
    for (name, outcome) in seen["init"].as_object().unwrap() {
        assert!(["EACCES", "EPERM"].contains(&outcome.as_str().unwrap()), "init's {name}: {outcome}");
    }
    for (name, size) in seen["masked"].as_object().unwrap() {
        assert!(*size == json!(0) || *size == json!("unreadable"), "{name}: {size}");
    }
    for (path, outcome) in seen["writes"].as_object().unwrap() {
        assert!(["EROFS", "EACCES", "EPERM", "ENOENT"].contains(&outcome.as_str().unwrap()), "{path}: {outcome}");
    }
    for (folder, outcome) in seen["makes"].as_object().unwrap() {
        let open = ["/workspace", "/tmp", "/dev/shm"].contains(&folder.as_str());
        let refused = ["EROFS", "EACCES", "ENOENT"].contains(&outcome.as_str().unwrap());
        assert_eq!((open, refused), (outcome == "works", !open), "{folder}: {outcome}");
    }
    let mut root: BTreeSet<String> = ["dev", "etc", "proc", "tmp", "workspace"].map(str::to_owned).into();
    let spec = host_root();
    let links = spec.symlinks.iter().map(|link| &link.link);
    for path in spec.binds.iter().map(|bind| &bind.target).chain(links) {
        root.insert(path.iter().nth(1).unwrap().to_str().unwrap().to_owned());
    }
    assert_eq!(seen["root"], json!(root.into_iter().collect::<Vec<_>>()));
    let devices =
        ["fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"];
    assert_eq!(seen["devices"], json!(devices));
}

fn ordinary_work_is_unhindered() {
    let mut keeper = keeper();
    let mut cell = keeper.cell(0);
    assert_eq!(cell.python(include_str!("work.py")), "done\n");
    assert_eq!(cell.print("yes | head -n 2; ls /tmp/link >/dev/null && sh -c 'echo $((6*7))'"), "y\ny\n42\n");
    keeper.end();
}

fn cells_do_not_see_each_other() {
    let mut keeper = keeper();
    let (mut one, mut other) = (keeper.cell(0), keeper.cell(0));
    if keeper.launched.id_per_cell {
        assert_ne!(one.owner_id, other.owner_id);
    } else {
        assert_eq!((one.owner_id, other.owner_id), (0, 0));
    }
    let hide = "import socket, os
s = socket.socket(socket.AF_UNIX); s.bind('\\0name'); s.listen()
t = socket.socket(); t.bind(('127.0.0.1', 4242)); t.listen()
for folder in ('/workspace', '/tmp', '/dev/shm'): open(folder + '/secret', 'w').write('x')
print('hidden', flush=True)
os.execvp('sleep', ['sleep', '1000'])";
    let mut hidden = one.start_python(hide);
    assert_eq!(hidden.line(), "hidden\n");
    let seek = "import socket, os
found = [folder for folder in ('/workspace', '/tmp', '/dev/shm') if os.path.exists(folder + '/secret')]
for family, address in ((socket.AF_UNIX, '\\0name'), (socket.AF_INET, ('127.0.0.1', 4242))):
    try:
        socket.socket(family).connect(address); found.append(address)
    except ConnectionRefusedError: pass
print(found, sum('sleep' in open(f'/proc/{pid}/comm').read() for pid in os.listdir('/proc') if pid.isdigit()))";
    assert_eq!(other.python(seek), "[] 0\n");
    keeper.end();
}

fn the_workspace_is_bounded() {
    let mut keeper = keeper();
    let mut cell = keeper.cell(0);
    let fill = "import os, errno
def fill(action):
    try:
        while True: action()
    except OSError as error: return errno.errorcode[error.errno]
big = open('big', 'wb', buffering=0)
print(fill(lambda: big.write(bytes(1 << 16))), os.path.getsize('big') <= 8 << 20)
big.close(); os.unlink('big')
number = iter(range(10**6))
print(fill(lambda: open(str(next(number)), 'x').close()), len(os.listdir('.')) < 100)
print(fill(lambda: os.write(tmp, bytes(1 << 20)))) if (tmp := os.open('/tmp/big', os.O_CREAT | os.O_WRONLY)) else 0
";
    assert_eq!(cell.python(fill), "ENOSPC True\nENOSPC True\nENOSPC\n");
    keeper.end();
}

fn memory_is_bounded() {
    memory_is_bounded_with(config(vec![host_root()]));
}

fn memory_is_bounded_with(mut config: KeeperConfig) {
    config.limits.memory_bytes = 256 << 20;
    let mut keeper = Keeper::start(&config);
    let mut cell = keeper.cell(0);
    let ran = cell.run_python("x = bytearray(b'1' * (1 << 20)) * 1000");
    if keeper.launched.limiter == Limiter::Rlimits {
        assert!(ran.err.contains("MemoryError"), "{} {}", ran.status, ran.err);
    } else {
        assert_eq!(ran.status, libc::SIGKILL, "{} {}", ran.out, ran.err);
        assert!(cell.meter(Meters::MEMORY_EVENTS).contains("oom_kill 1"));
        let peak: u64 = cell.meter(Meters::MEMORY_PEAK).trim().parse().unwrap();
        assert!(peak > 200 << 20 && peak <= 256 << 20, "{peak}");
    }
    // Init is not the one that was taken.
    assert_eq!(cell.print("echo lives"), "lives\n");
    keeper.end();
}

fn processes_are_bounded() {
    processes_are_bounded_with(&config(vec![host_root()]));
}

fn processes_are_bounded_with(config: &KeeperConfig) {
    let mut keeper = Keeper::start(config);
    let mut cell = keeper.cell(0);
    let many = "import os, errno
made = 0
try:
    while made < 1000:
        if os.fork() == 0: os.execvp('sleep', ['sleep', '1000'])
        made += 1
except OSError as error: print(errno.errorcode[error.errno], 80 < made <= 100)";
    let mut started = cell.start_python(many);
    assert_eq!(started.line(), "EAGAIN True\n");
    assert!(matches!(cell.hear(), FromInit::Exited { token, status: 0, .. } if token == started.token));
    if keeper.launched.limiter != Limiter::Rlimits {
        assert!(!cell.meter(Meters::PROCESS_EVENTS).contains("max 0"));
        let now: u64 = cell.meter(Meters::PROCESS_COUNT).trim().parse().unwrap();
        assert!(now > 80 && now <= 101, "{now}");
    }
    let (count, all) = cell.kill_since(0, 0);
    assert!(count > 80 && !all, "{count}");
    assert_eq!(cell.print("echo lives"), "lives\n");
    keeper.end();
}

fn without_cgroups_rlimits_hold() {
    let mut config = config(vec![with_python(host_root())]);
    config.cgroups = false;
    memory_is_bounded_with(config.clone());
    processes_are_bounded_with(&config);
    let mut keeper = Keeper::start(&config);
    assert_eq!(keeper.launched.limiter, Limiter::Rlimits);
    assert!(keeper.cgroups().is_empty());
    let cell = keeper.cell(0);
    let seen: Value = serde_json::from_str(&keeper.worker(cell.number).run(PROBE)).unwrap();
    holds(&seen, &keeper);
    keeper.end();
}

/// What the kernel was told, read from outside.
fn limits_reach_the_kernel() {
    let mut config = config(vec![host_root()]);
    config.limits.cpu_millis = 500;
    let mut keeper = Keeper::start(&config);
    let mut cell = keeper.cell(0);
    let cpu = cell.run("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done").cpu_us;
    assert!(cpu > 0);
    let folders = keeper.cgroups();
    let read = |file: &str| {
        let found = folders.iter().map(|folder| folder.join("cell-1").join(file)).find(|path| path.exists());
        fs::read_to_string(found.unwrap_or_else(|| panic!("no {file} in {folders:?}"))).unwrap().trim().to_owned()
    };
    match keeper.launched.limiter {
        Limiter::CgroupV1 => {
            assert_eq!(read("memory.limit_in_bytes"), (2u64 << 30).to_string());
            assert_eq!(read("pids.max"), "101");
            assert_eq!((read("cpu.cfs_quota_us"), read("cpu.cfs_period_us")), ("10000".into(), "20000".into()));
            assert!(cell.meter(Meters::CPU).trim().parse::<u64>().unwrap() > 0);
        }
        Limiter::CgroupV2 => {
            assert_eq!(read("memory.max"), (2u64 << 30).to_string());
            assert_eq!(read("pids.max"), "101");
            assert_eq!(read("cpu.max"), "10000 20000");
            assert!(cell.meter(Meters::CPU).contains("usage_usec"));
        }
        Limiter::Rlimits => {
            assert!(folders.is_empty());
            assert_eq!(cell.meters, Meters(0));
        }
    }
    keeper.end();
}
