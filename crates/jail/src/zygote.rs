//! Starting an image's zygote: its Python, with our program, a link to the keeper and a configuration in its hands.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use ringfence_frame::PACKET_BYTES;
use ringfence_frame::zygote::FromZygote;
use ringfence_sys::namespace::Namespaces;
use ringfence_sys::process::{self, Child, Forked, Single, Strings};
use ringfence_sys::{packet, signal};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::config::memfd;
use crate::keeper::cells::{end, read_report};
use crate::limits::CELL_STEPS_WAIT_MAX;
use crate::plan::{Step, c_string};
use crate::step::StepName;
use crate::steps::{self, Failure, Hands, REPORT_BYTES};

/// Read from fd 3 and run: the source is too long for an argument, and no file of it is to lie in the image.
const BOOTSTRAP: &str = "import os;exec(compile(os.fdopen(3).read(),'<zygote>','exec'))";
/// Descriptors of `SpawnWorker`: frame socket, fd 1, fd 2.
pub(crate) const WORKER_FDS: usize = 3;
/// Where the report pipe is until exec.
const REPORT: i32 = 6;

/// What a zygote is started with.
pub(crate) struct Start<'a> {
    /// The image's interpreter, as it is found after the steps; `None` where the image has none.
    pub(crate) python: Option<&'a Path>,
    /// `NAME=value`.
    pub(crate) environment: Strings,
    /// The zygote's program.
    pub(crate) source: &'a str,
    /// What the program reads from fd 5.
    pub(crate) config: OwnedFd,
    /// Of its own, beside those that it shares with the keeper.
    pub(crate) namespaces: Namespaces,
    /// What is done before the program runs.
    pub(crate) plan: &'a [Step],
}

/// Starts it, and waits until its program runs or a step has failed: the process, and our end of the link, which never
/// blocks.
pub(crate) fn start(single: &Single, null: &OwnedFd, start: Start<'_>) -> Result<(Child, OwnedFd), Failure> {
    let at = |error: io::Error| Failure::new(StepName::StartZygote, &error);
    let python = start.python.ok_or(Failure { step: StepName::Image, errno: libc::ENOENT })?;
    let python = c_string(python).map_err(|error| at(error.into()))?;
    let bootstrap = CString::new(BOOTSTRAP).map_err(|error| at(error.into()))?;
    let arguments = Strings::new(vec![python.clone(), c"-u".to_owned(), c"-c".to_owned(), bootstrap]);
    let source = memfd("zygote", start.source.as_bytes()).map_err(at)?;
    let (link, link_of_zygote) = blocking_pair().map_err(at)?;
    let (report, report_of_zygote) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from).map_err(at)?;
    let errors = rustix::stdio::stderr();
    let hands = Hands {
        doors: &[],
        stay: &[
            (null.as_fd(), false),
            (errors, false),
            (errors, false),
            (source.as_fd(), false),
            (link_of_zygote.as_fd(), false),
            (start.config.as_fd(), false),
            (report_of_zygote.as_fd(), true),
        ],
        report_number: REPORT,
        report: report_of_zygote.as_fd(),
        filter: None,
    };
    match process::fork(single, start.namespaces).map_err(at)? {
        Forked::Child => {
            steps::run_or_exit(start.plan, &hands);
            // The keeper's mask would be inherited; that it cannot be set is not known to happen.
            let _ = signal::unblock_all();
            let error = process::exec(&python, &arguments, &start.environment);
            steps::fail(Failure::new(StepName::ExecPython, &error), None, REPORT)
        }
        Forked::Parent(child) => {
            drop(report_of_zygote);
            let mut bytes = [0; REPORT_BYTES];
            let outcome = match read_report(report.as_fd(), &mut bytes, CELL_STEPS_WAIT_MAX) {
                // Closed by exec.
                Ok(0) => Ok(()),
                Ok(_) => Failure::from_report(bytes),
                Err(error) => Err(at(error)),
            };
            outcome.inspect_err(|_| end(&child))?;
            Ok((child, link))
        }
    }
}

/// The other end blocks, as a program of one thread that waits for orders wants it; ours never does.
pub(crate) fn blocking_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = packet::pair()?;
    rustix::fs::fcntl_setfl(&theirs, rustix::fs::OFlags::empty())?;
    Ok((ours, theirs))
}

/// Tells a zygote to leave: it reads the end of its link, ends, and what it has said until then can still be heard.
pub(crate) fn dismiss(link: &OwnedFd) {
    // One that is dead already needs to be told nothing.
    let _ = rustix::net::shutdown(link, rustix::net::Shutdown::Write);
}

/// One message of a zygote or a guard; `None` where there is none now. The end of the link, and nonsense, are errors.
pub(crate) fn hear(link: &OwnedFd) -> io::Result<Option<FromZygote>> {
    let mut buffer = [0; PACKET_BYTES];
    match packet::receive(link.as_fd(), &mut buffer) {
        Ok((0, _)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok((length, _)) => FromZygote::decode(buffer.get(..length).unwrap_or_default())
            .map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
