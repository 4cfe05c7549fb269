//! How a call's cost grows: with the sessions that live beside its own, and with the files in its workspace.

use ringfence_probe::Address;

use crate::BenchError;
use crate::backend::Backend;
use crate::report::Figure;
use crate::work::{Effort, GROUPBY, Work, in_session, memory_of, timed, works};

/// The works of this file.
pub(crate) const WORKS: &[Work] = &[
    beside("print_beside_9", "print(1+1) while 9 other sessions live", print_beside::<9>),
    beside("print_beside_99", "print(1+1) while 99 other sessions live", print_beside::<99>),
    beside("print_beside_999", "print(1+1) while 999 other sessions live", print_beside::<999>),
    beside("print_files_1000", "print(1+1) with 1,000 files in the workspace", print_among::<1_000>),
    beside("print_files_50000", "print(1+1) with 50,000 files in the workspace", print_among::<50_000>),
    beside("write_files_0", "a call that writes one file into an empty workspace", write_among::<0>),
    beside("write_files_1000", "a call that writes one file among 1,000", write_among::<1_000>),
    beside("write_files_50000", "a call that writes one file among 50,000", write_among::<50_000>),
    single("memory_1", "memory of the machine for one session that ran a pandas groupby", memory_with::<1>),
    single("memory_10", "the same for each of 10", memory_with::<10>),
    single("memory_100", "the same for each of 100", memory_with::<100>),
    single("memory_1000", "the same for each of 1,000", memory_with::<1_000>),
    single("memory_files_0", "memory of the machine for each of 4 sessions that ran a print", memory_among::<0>),
    single("memory_files_1000", "the same with 1,000 empty files in each", memory_among::<1_000>),
    single("memory_files_50000", "the same with 50,000 empty files in each", memory_among::<50_000>),
];

/// The works that growth is drawn from: these, and the print that they begin with.
pub(crate) fn chosen() -> impl Iterator<Item = &'static Work> {
    works().filter(|work| work.name == "print").chain(WORKS)
}

const fn beside(
    name: &'static str,
    about: &'static str,
    run: fn(&Address, &Effort) -> Result<Figure, BenchError>,
) -> Work {
    Work { name, about, long: true, once: false, run }
}

const fn single(
    name: &'static str,
    about: &'static str,
    run: fn(&Address, &Effort) -> Result<Figure, BenchError>,
) -> Work {
    Work { name, about, long: true, once: true, run }
}

fn print_beside<const OTHERS: usize>(address: &Address, effort: &Effort) -> Result<Figure, BenchError> {
    let mut backend = Backend::new(address);
    let mut others = Vec::new();
    let leased = (0..OTHERS).try_for_each(|_| {
        others.push(backend.lease()?);
        Ok(())
    });
    let figure = leased.and_then(|()| {
        in_session(address, |own, session| timed(effort.samples, || own.python(session, "print(1+1)", "2")))
    });
    let released = others.iter().try_for_each(|session| backend.destroy(session));
    let figure = figure?;
    released?;
    Ok(figure)
}

fn memory_with<const SESSIONS: u64>(address: &Address, _: &Effort) -> Result<Figure, BenchError> {
    memory_of(address, SESSIONS, (GROUPBY, "7"), ("print(len(d))", "10000"))
}

fn memory_among<const FILES: usize>(address: &Address, _: &Effort) -> Result<Figure, BenchError> {
    memory_of(address, 4, (&filling(FILES), "filled"), ("print(1+1)", "2"))
}

/// Fills the workspace of a session.
fn filled<T>(
    address: &Address,
    files: usize,
    body: impl FnOnce(&mut Backend, &str) -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    in_session(address, |backend, session| {
        backend.python(session, &filling(files), "filled")?;
        body(backend, session)
    })
}

/// A program that makes so many empty files, a hundred to a folder.
fn filling(files: usize) -> String {
    format!(
        "import os\nfor i in range({files}):\n    f = f'd{{i // 100}}'\n    if i % 100 == 0: os.mkdir(f)\n    open(f'{{f}}/{{i}}', 'w').close()\n\
         print('filled')"
    )
}

fn print_among<const FILES: usize>(address: &Address, effort: &Effort) -> Result<Figure, BenchError> {
    filled(address, FILES, |own, session| timed(effort.samples, || own.python(session, "print(1+1)", "2")))
}

fn write_among<const FILES: usize>(address: &Address, effort: &Effort) -> Result<Figure, BenchError> {
    let mut number = 0u64;
    filled(address, FILES, |own, session| {
        timed(effort.samples / 20, || {
            number += 1;
            own.python(session, &format!("_ = open('one', 'w').write('{number}')\nprint(1+1)"), "2")
        })
    })
}
