//! What is there before, during and after.

use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ringfence_frame::init::ToInit;
use ringfence_jail::send_init;

use crate::Test;
use crate::driver::*;

pub const TESTS: &[Test] = &[];

/// How long making, using and taking down a cell take here; for a person to read.
pub fn measure() -> ExitCode {
    const ROUNDS: usize = 200;
    let mut keeper = Keeper::start(&config(vec![with_python(host_root())]));
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
        drop(send_init(cell.control.as_fd(), ToInit::Signal { pid: 2, signal: 0 }, &[]));
    }
    for (name, mut times) in times {
        times.sort();
        let at = |part: usize| times[times.len() * part / 100].as_micros();
        println!("{name}: p50 {} us, p90 {} us, p99 {} us", at(50), at(90), at(99));
    }
    assert_eq!(keeper.end(), 0);
    ExitCode::SUCCESS
}

pub fn inside_the_fleet() -> ExitCode {
    ExitCode::FAILURE
}
pub fn hold_cells() -> ExitCode {
    ExitCode::FAILURE
}
