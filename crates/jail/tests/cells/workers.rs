//! Interpreters, forked into cells by a zygote.

use ringfence_frame::init::ToInit;
use ringfence_frame::keeper::FromKeeper;
use ringfence_jail::send_init;
use std::os::fd::AsFd;

use crate::Test;
use crate::driver::*;

pub(crate) const TESTS: &[Test] = &[("a_worker_lives_in_its_cell", a_worker_lives_in_its_cell)];

fn a_worker_lives_in_its_cell() {
    let mut keeper = Keeper::start(&config(vec![with_python(host_root())]));
    let mut cell = keeper.cell(0);
    let mut worker = keeper.worker(cell.number);
    assert_eq!(
        worker.run("import os; print(os.getuid(), os.getcwd(), os.uname().nodename)"),
        "1000 /workspace sandbox\n"
    );
    worker.run("open('made', 'w').write('by the worker'); print(end='')");
    assert_eq!(cell.print("cat made"), "by the worker");
    let pid = worker.run("import os; print(os.getpid())").trim().parse().unwrap();
    assert_ne!(pid, worker.pid);
    send_init(cell.control.as_fd(), ToInit::Signal { pid, signal: libc::SIGKILL }, &[]).unwrap();
    let number = cell.number;
    let (died, _) = keeper.hear(|message| match *message {
        FromKeeper::WorkerDied { cell, pid, status } if cell == number => Some((pid, status)),
        _ => None,
    });
    assert_eq!(died, (worker.pid, libc::SIGKILL));
    let mut worker = keeper.worker(number);
    assert_eq!(worker.run("print(open('made').read(), end='')"), "by the worker");
    keeper.destroy(number);
    assert_eq!(keeper.end(), 0);
}
