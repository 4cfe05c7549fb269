//! Interpreters, forked into cells by a zygote.

use ringfence_frame::init::ToInit;
use ringfence_frame::keeper::{FromKeeper, ToKeeper};
use ringfence_jail::{send, send_init};
use ringfence_op::RootSpec;
use std::os::fd::AsFd;

use crate::Test;
use crate::driver::*;

pub(crate) const TESTS: &[Test] = &[
    ("a_worker_lives_in_its_cell", a_worker_lives_in_its_cell),
    ("another_images_zygote_comes_on_demand_and_rests", another_images_zygote_comes_on_demand_and_rests),
    ("an_image_whose_python_does_not_start_harms_no_other", an_image_whose_python_does_not_start_harms_no_other),
];

fn another_images_zygote_comes_on_demand_and_rests() {
    let mut keeper = Keeper::start(&config(vec![with_python(host_root()), with_python(host_root())]));
    let inner = keeper.inner_pid();
    assert_eq!(children(inner).len(), 1, "the first image's zygote alone");
    for _ in 0..2 {
        let cell = keeper.cell(1);
        assert_eq!(keeper.worker(cell.number).run("print(1)"), "1\n");
        send(keeper.socket(), ToKeeper::RestZygote { set: 1 }, &[]).unwrap();
        assert_eq!(keeper.worker(cell.number).run("print(2)"), "2\n", "not while a cell of it lives");
        keeper.destroy(cell.number);
        while children(inner).len() > 1 {
            std::thread::yield_now();
        }
    }
    let cell = keeper.cell(0);
    assert_eq!(keeper.worker(cell.number).run("print(3)"), "3\n");
    keeper.destroy(cell.number);
    assert_eq!(keeper.end(), 0);
}

fn an_image_whose_python_does_not_start_harms_no_other() {
    let broken = RootSpec { python: Some("/bin/false".into()), ..host_root() };
    let mut keeper = Keeper::start(&config(vec![with_python(host_root()), broken]));
    let mut cell = keeper.cell(1);
    assert!(keeper.try_worker(cell.number).is_err());
    assert_eq!(cell.print("echo here"), "here\n", "the shell needs no interpreter");
    keeper.destroy(cell.number);
    let cell = keeper.cell(0);
    assert_eq!(keeper.worker(cell.number).run("print(1)"), "1\n");
    keeper.destroy(cell.number);
    assert_eq!(keeper.end(), 0);
}

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
