//! How a call's cost grows: with the sessions that live beside its own, and with the files in its workspace.

use ringfence_probe::Address;

use crate::BenchError;
use crate::backend::Backend;
use crate::report::Figure;
use crate::work::{Effort, Work, in_session, timed};

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
];

const fn beside(
    name: &'static str,
    about: &'static str,
    run: fn(&Address, &Effort) -> Result<Figure, BenchError>,
) -> Work {
    Work { name, about, long: true, once: false, run }
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

/// Fills the workspace of a session, a hundred files to a folder.
fn filled<T>(
    address: &Address,
    files: usize,
    body: impl FnOnce(&mut Backend, &str) -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let code = format!(
        "import os\nfor i in range({files}):\n    f = f'd{{i // 100}}'\n    if i % 100 == 0: os.mkdir(f)\n    open(f'{{f}}/{{i}}', 'w').close()\n\
         print('filled')"
    );
    in_session(address, |backend, session| {
        backend.python(session, &code, "filled")?;
        body(backend, session)
    })
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
