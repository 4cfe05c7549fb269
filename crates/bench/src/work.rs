//! The works: what is done and timed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use ringfence_probe::Address;

use crate::BenchError;
use crate::backend::Backend;
use crate::limits::TRANSFER_BYTES;
use crate::machine::memory_used_bytes;
use crate::report::Figure;
use crate::rounds::latency;
use crate::{growth, soak};

/// How much of each.
pub(crate) struct Effort {
    pub(crate) samples: u64,
    pub(crate) seconds: u64,
    pub(crate) sessions: u64,
    pub(crate) soak: Soak,
}

/// How long a soak is.
#[derive(Debug, Clone, Copy)]
pub struct Soak {
    /// Calls.
    pub execs: u64,
    /// Sessions that they are spread over.
    pub leases: u64,
    /// Seconds after which it ends before that; 0 for none.
    pub seconds: u64,
}

/// One thing that is measured.
pub struct Work {
    /// Its name on the command line and in the report.
    pub name: &'static str,
    /// What is done and timed.
    pub about: &'static str,
    /// Left out unless it is asked for by name.
    pub long: bool,
    /// Run in one round only.
    pub once: bool,
    pub(crate) run: fn(&Address, &Effort) -> Result<Figure, BenchError>,
}

const fn work(
    name: &'static str,
    about: &'static str,
    run: fn(&Address, &Effort) -> Result<Figure, BenchError>,
) -> Work {
    Work { name, about, long: false, once: false, run }
}

/// Every work, in the order in which a run takes them.
pub fn works() -> impl Iterator<Item = &'static Work> {
    WORKS.iter().chain(growth::WORKS)
}

const WORKS: &[Work] = &[
    work("health", "GET /health", health),
    work("print", "print(1+1) in a session that has run before", print),
    work(
        "print_open_loop",
        "the same at 500 a second over four sessions, timed from when each was due",
        print_open_loop,
    ),
    work("lease", "CreateSession, one at a time, 20 ms apart", lease),
    work("first_print", "CreateSession and a print, together", first_print),
    work(
        "first_imports",
        "CreateSession, then import numpy, pandas, matplotlib.pyplot and a print, together",
        first_imports,
    ),
    work(
        "burst_imports",
        "the same for 50 sessions at once, 2 in parallel, none released before the end",
        burst_imports,
    ),
    work("bash_true", "bash `true`", bash_true),
    work("view", "editor view of a small file", view),
    work("destroy", "DestroySession of a session that ran", destroy),
    work("cycles", "create, import the stack, print, destroy, again and again by 8 clients", cycles),
    work("execs", "print(1+1) as often as 8 sessions can, one client each", execs),
    work("put_100mb", "PutFile of 100 MB", put_transfer),
    work("get_100mb", "GetFile of 100 MB", get_transfer),
    Work {
        name: "density",
        about: "many live sessions, each having run a pandas groupby: memory of the machine for each",
        long: true,
        once: true,
        run: density,
    },
    Work {
        name: "soak",
        about: "calls and leases in great numbers: what grew on the machine from the first tenth to the end",
        long: true,
        once: true,
        run: soak::soak,
    },
];

const IMPORTS: &str = "import numpy, pandas, matplotlib.pyplot\nprint('ready')";
pub(crate) const GROUPBY: &str = "import pandas as pd, numpy as np\n\
    d = pd.DataFrame({'k': np.arange(10_000) % 7, 'v': np.arange(10_000.0)})\n\
    print(len(d.groupby('k').v.mean()))";

/// A histogram of nanoseconds, up to two minutes, three digits.
#[expect(clippy::expect_used, reason = "the bounds are constants that the crate documents as valid")]
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 120_000_000_000, 3).expect("valid bounds")
}

pub(crate) fn record(histogram: &mut Histogram<u64>, begun: Instant) {
    histogram.saturating_record(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
}

/// Times `once` so many times; what it returns is dropped outside the clock.
pub(crate) fn timed<T>(samples: u64, mut once: impl FnMut() -> Result<T, BenchError>) -> Result<Figure, BenchError> {
    let mut times = histogram();
    for _ in 0..samples.max(1) {
        let begun = Instant::now();
        let kept = once()?;
        record(&mut times, begun);
        drop(kept);
    }
    Ok(latency(&times))
}

/// Runs `body` in a session of its own that has already printed once.
pub(crate) fn in_session<T>(
    address: &Address,
    body: impl FnOnce(&mut Backend, &str) -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let mut backend = Backend::new(address);
    let session = backend.lease()?;
    let outcome = backend.python(&session, "print(1+1)", "2").and_then(|()| body(&mut backend, &session));
    let released = backend.destroy(&session);
    let value = outcome?;
    released?;
    Ok(value)
}

fn health(address: &Address, effort: &Effort) -> Result<Figure, BenchError> {
    let mut backend = Backend::new(address);
    timed(effort.samples, || backend.health())
}

fn print(address: &Address, effort: &Effort) -> Result<Figure, BenchError> {
    in_session(address, |backend, session| timed(effort.samples, || backend.python(session, "print(1+1)", "2")))
}

fn bash_true(address: &Address, effort: &Effort) -> Result<Figure, BenchError> {
    in_session(address, |backend, session| timed(effort.samples / 4, || backend.bash(session, "true", "")))
}

fn view(address: &Address, effort: &Effort) -> Result<Figure, BenchError> {
    in_session(address, |backend, session| {
        backend.put(session, "small.txt", b"one\ntwo\nthree\n")?;
        timed(effort.samples, || backend.view(session, "small.txt", "one\ntwo\nthree"))
    })
}

/// Times `begin`, which leaves a session behind; the session is released outside the clock, then the backend rests.
fn fresh(
    address: &Address,
    samples: u64,
    begin: impl Fn(&mut Backend) -> Result<String, BenchError>,
) -> Result<Figure, BenchError> {
    let mut backend = Backend::new(address);
    let mut times = histogram();
    for _ in 0..samples.max(1) {
        let begun = Instant::now();
        let session = begin(&mut backend)?;
        record(&mut times, begun);
        backend.destroy(&session)?;
        thread::sleep(Duration::from_millis(20));
    }
    Ok(latency(&times))
}

fn lease(address: &Address, effort: &Effort) -> Result<Figure, BenchError> {
    fresh(address, effort.samples / 10, Backend::lease)
}

fn first_print(address: &Address, effort: &Effort) -> Result<Figure, BenchError> {
    fresh(address, effort.samples / 10, |backend| {
        let session = backend.lease()?;
        backend.python(&session, "print(1+1)", "2")?;
        Ok(session)
    })
}

fn lease_and_import(backend: &mut Backend) -> Result<String, BenchError> {
    let session = backend.lease()?;
    backend.python(&session, IMPORTS, "ready")?;
    Ok(session)
}

fn first_imports(address: &Address, effort: &Effort) -> Result<Figure, BenchError> {
    fresh(address, effort.samples / 25, lease_and_import)
}

fn burst_imports(address: &Address, _: &Effort) -> Result<Figure, BenchError> {
    let parts = parallel(2, |_| {
        let mut backend = Backend::new(address);
        let mut times = histogram();
        let mut sessions = Vec::new();
        let mut failed = None;
        for _ in 0..25 {
            let begun = Instant::now();
            match lease_and_import(&mut backend) {
                Ok(session) => sessions.push(session),
                Err(error) => failed = Some(error),
            }
            record(&mut times, begun);
        }
        for session in sessions {
            backend.destroy(&session)?;
        }
        failed.map_or(Ok(times), Err)
    })?;
    Ok(latency(&merged(parts)))
}

fn destroy(address: &Address, effort: &Effort) -> Result<Figure, BenchError> {
    let mut backend = Backend::new(address);
    let mut times = histogram();
    for _ in 0..(effort.samples / 10).max(1) {
        let session = backend.lease()?;
        backend.python(&session, "print(1+1)", "2")?;
        let begun = Instant::now();
        backend.destroy(&session)?;
        record(&mut times, begun);
        thread::sleep(Duration::from_millis(20));
    }
    Ok(latency(&times))
}

fn print_open_loop(address: &Address, effort: &Effort) -> Result<Figure, BenchError> {
    const CLIENTS: u32 = 4;
    const RATE: u32 = 500;
    let gap = Duration::from_secs(1) * CLIENTS / RATE;
    let parts = parallel(CLIENTS as usize, |client| {
        in_session(address, |backend, session| {
            let mut times = histogram();
            let begun = Instant::now() + gap * client as u32 / CLIENTS;
            let calls = effort.seconds.max(1) as u32 * RATE / CLIENTS;
            for call in 0..calls {
                let due = begun + gap * call;
                thread::sleep(due.saturating_duration_since(Instant::now()));
                backend.python(session, "print(1+1)", "2")?;
                record(&mut times, due);
            }
            Ok(times)
        })
    })?;
    Ok(latency(&merged(parts)))
}

fn cycles(address: &Address, effort: &Effort) -> Result<Figure, BenchError> {
    rate(8, effort, || {
        let mut backend = Backend::new(address);
        move || {
            let session = lease_and_import(&mut backend)?;
            backend.destroy(&session)
        }
    })
}

fn execs(address: &Address, effort: &Effort) -> Result<Figure, BenchError> {
    let done = AtomicU64::new(0);
    let parts = parallel(8, |_| {
        in_session(address, |backend, session| {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(effort.seconds.max(1)) {
                backend.python(session, "print(1+1)", "2")?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(begun.elapsed())
        })
    })?;
    let longest = parts.into_iter().max().unwrap_or_default();
    Ok(Figure::Rate { per_second: done.into_inner() as f64 / longest.as_secs_f64() })
}

/// How often a second so many clients together do one thing.
fn rate<F>(clients: usize, effort: &Effort, client: impl Fn() -> F + Sync) -> Result<Figure, BenchError>
where
    F: FnMut() -> Result<(), BenchError>,
{
    let done = AtomicU64::new(0);
    let begun = Instant::now();
    parallel(clients, |_| {
        let mut once = client();
        while begun.elapsed() < Duration::from_secs(effort.seconds.max(1)) {
            once()?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    })?;
    Ok(Figure::Rate { per_second: done.into_inner() as f64 / begun.elapsed().as_secs_f64() })
}

/// Runs `client` on so many threads; the first failure is the outcome.
fn parallel<T: Send>(
    clients: usize,
    client: impl Fn(usize) -> Result<T, BenchError> + Sync,
) -> Result<Vec<T>, BenchError> {
    let client = &client;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|number| scope.spawn(move || client(number))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or(Err(BenchError::Answer("a client of the bench panicked"))))
            .collect()
    })
}

fn merged(parts: Vec<Histogram<u64>>) -> Histogram<u64> {
    let mut whole = histogram();
    for part in parts {
        // Same bounds everywhere: adding cannot fail.
        let _ = whole.add(part);
    }
    whole
}

fn throughput(bytes: usize, took: Duration) -> Figure {
    Figure::Throughput { mib_per_second: bytes as f64 / f64::from(1 << 20) / took.as_secs_f64() }
}

fn put_transfer(address: &Address, _: &Effort) -> Result<Figure, BenchError> {
    let content = vec![b'x'; TRANSFER_BYTES];
    in_session(address, |backend, session| {
        let begun = Instant::now();
        backend.put(session, "big.bin", &content)?;
        Ok(throughput(TRANSFER_BYTES, begun.elapsed()))
    })
}

fn get_transfer(address: &Address, _: &Effort) -> Result<Figure, BenchError> {
    let content = vec![b'x'; TRANSFER_BYTES];
    in_session(address, |backend, session| {
        backend.put(session, "big.bin", &content)?;
        let begun = Instant::now();
        backend.get(session, "big.bin", TRANSFER_BYTES as u64)?;
        Ok(throughput(TRANSFER_BYTES, begun.elapsed()))
    })
}

fn density(address: &Address, effort: &Effort) -> Result<Figure, BenchError> {
    memory_of(address, effort.sessions.max(1), (GROUPBY, "7"), ("print(len(d))", "10000"))
}

/// Memory of the machine for each of so many sessions that all live and have run `first`; then each of them runs
/// `again`. Both are a program and what it prints.
pub(crate) fn memory_of(
    address: &Address,
    count: u64,
    first: (&str, &str),
    again: (&str, &str),
) -> Result<Figure, BenchError> {
    let unknown = BenchError::Answer("this machine does not tell its memory");
    let before = memory_used_bytes().ok_or(unknown)?;
    let mut backend = Backend::new(address);
    let mut sessions = Vec::new();
    let outcome = (0..count).try_for_each(|_| {
        let session = backend.lease()?;
        sessions.push(session.clone());
        backend.python(&session, first.0, first.1)
    });
    let answered =
        outcome.and_then(|()| sessions.iter().try_for_each(|session| backend.python(session, again.0, again.1)));
    let after = memory_used_bytes();
    for session in &sessions {
        backend.destroy(session)?;
    }
    answered?;
    let used = after.unwrap_or(before).saturating_sub(before);
    let each = used as f64 / f64::from(1 << 20) / count as f64;
    Ok(Figure::Memory { mib_each: each, sessions: count })
}
