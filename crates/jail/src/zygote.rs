//! Starting an image's zygote: its Python, with our program, a link to the keeper and a configuration in its hands.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use ringfence_frame::PACKET_BYTES;
use ringfence_frame::zygote::FromZygote;
use ringfence_sys::namespace::Namespaces;
use ringfence_sys::packet;
use ringfence_sys::process::{Child, Single, Strings};

use crate::config::memfd;
use crate::exec::{self, Exec};
use crate::plan::{Step, c_string};
use crate::step::StepName;
use crate::steps::Failure;

/// Read from fd 3 and run: the source is too long for an argument, and no file of it is to lie in the image.
const BOOTSTRAP: &str = "import os;exec(compile(os.fdopen(3).read(),'<zygote>','exec'))";
/// Descriptors of `SpawnWorker`: frame socket, fd 1, fd 2.
pub(crate) const WORKER_FDS: usize = 3;

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
    let errors = rustix::stdio::stderr();
    let child = exec::start(
        single,
        &Exec {
            namespaces: start.namespaces,
            plan: start.plan,
            doors: &[],
            fds: &[null.as_fd(), errors, errors, source.as_fd(), link_of_zygote.as_fd(), start.config.as_fd()],
            program: &python,
            arguments: &arguments,
            environment: &start.environment,
            start: StepName::StartZygote,
            exec: StepName::ExecPython,
        },
    )?;
    Ok((child, link))
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
