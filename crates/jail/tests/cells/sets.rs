//! Several sets of zygotes of one image.

use ringfence_frame::keeper::{FromKeeper, ToKeeper};
use ringfence_jail::{StepName, send};
use ringfence_sys::signal;

use crate::Test;
use crate::driver::*;
use crate::renewal::{LAYOUT, zygotes};

pub(crate) const TESTS: &[Test] = &[
    ("sets_of_one_image_have_no_layout_in_common", sets_of_one_image_have_no_layout_in_common),
    ("the_zygote_of_a_set_is_replaced_for_that_set_alone", the_zygote_of_a_set_is_replaced_for_that_set_alone),
    ("a_set_is_of_one_image_until_it_rests", a_set_is_of_one_image_until_it_rests),
];

fn sets_of_one_image_have_no_layout_in_common() {
    let mut keeper = Keeper::start(&config(vec![with_python(host_root())]));
    let cells = [0, 7, 8, 7].map(|set| keeper.cell_of(0, set));
    let mut workers = [0, 1, 2, 3].map(|place: usize| keeper.worker(cells[place].number));
    let layouts = [0, 1, 2, 3].map(|place: usize| workers[place].run(LAYOUT));
    assert_eq!(layouts[1], layouts[3], "of one set");
    assert!(layouts[0] != layouts[1] && layouts[1] != layouts[2] && layouts[0] != layouts[2], "{layouts:?}");
    assert_eq!((workers[1].zygote, workers[1].forks, workers[3].forks), (workers[3].zygote, 1, 2));
    // An interpreter that is forked anew is of its cell's set.
    assert_eq!(keeper.worker(cells[2].number).run(LAYOUT), layouts[2]);
    drop(workers);
    for cell in &cells {
        keeper.destroy(cell.number);
    }
    assert_eq!(keeper.end(), 0);
}

fn the_zygote_of_a_set_is_replaced_for_that_set_alone() {
    let mut keeper = Keeper::start(&config(vec![with_python(host_root())]));
    let [one, other] = [3, 4].map(|set| keeper.cell_of(0, set));
    let mut of_one = keeper.worker(one.number);
    let mut of_other = keeper.worker(other.number);
    let before = [of_one.run(LAYOUT), of_other.run(LAYOUT)];
    send(keeper.socket(), ToKeeper::RenewZygote { set: 3 }, &[]).unwrap();
    let since = of_other.zygote;
    keeper.hear(|message| match *message {
        FromKeeper::ZygoteReady { set: 3, zygote } => (zygote > since).then_some(()),
        _ => None,
    });
    assert_ne!(keeper.worker(one.number).run(LAYOUT), before[0]);
    assert_eq!(keeper.worker(other.number).run(LAYOUT), before[1]);

    // Killed, another one of the same set takes its place, and what was forked lives on.
    for pid in zygotes(&keeper, &[of_one.pid, of_other.pid]) {
        signal::send(pid.cast_signed(), libc::SIGKILL).unwrap();
        until("the zygote's end", || !lives(pid));
    }
    let [new_of_one, new_of_other] = [&one, &other].map(|cell| keeper.worker(cell.number).run(LAYOUT));
    assert!(new_of_one != new_of_other && new_of_other != before[1], "{new_of_one} {new_of_other} {before:?}");
    assert_eq!([of_one.run(LAYOUT), of_other.run(LAYOUT)], before);
    keeper.destroy(one.number);
    keeper.destroy(other.number);
    assert_eq!(keeper.end(), 0);
}

fn a_set_is_of_one_image_until_it_rests() {
    let mut keeper = Keeper::start(&config(vec![with_python(host_root()), with_python(host_root())]));
    let cell = keeper.cell_of(0, 9);
    let refused = keeper.ask_for_cell_of(1, 9);
    let (step, _) = keeper.hear(|message| match *message {
        FromKeeper::CellFailed { cell, step, errno } if cell == refused => Some((step, errno)),
        FromKeeper::CellMade { cell, .. } if cell == refused => panic!("a cell of another image's zygote"),
        _ => None,
    });
    assert_eq!(step, (StepName::ZygoteSet.number(), libc::EINVAL));
    assert_eq!(keeper.worker(cell.number).run("print(1)"), "1\n");
    send(keeper.socket(), ToKeeper::RestZygote { set: 9 }, &[]).unwrap();
    keeper.destroy(cell.number);
    until("the end of the set", || zygotes(&keeper, &[]).len() == 1);
    let cell = keeper.cell_of(1, 9);
    assert_eq!(keeper.worker(cell.number).run("print(2)"), "2\n");
    keeper.destroy(cell.number);
    assert_eq!(keeper.end(), 0);
}
