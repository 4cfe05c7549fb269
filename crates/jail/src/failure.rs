//! A step of the keeper's start that failed, on its way to the daemon.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringfence_frame::keeper::FromKeeper;
use ringfence_sys::packet;

use crate::config::memfd;
use crate::error::JailError;
use crate::limits::DETAIL_BYTES_MAX;
use crate::step::StepName;

/// Which step, why, and with what.
#[derive(Debug)]
pub(crate) struct SetupFailure {
    pub(crate) step: StepName,
    pub(crate) errno: i32,
    /// The path or value concerned.
    pub(crate) detail: String,
}

/// Names the step that an error belongs to.
pub(crate) trait At<T> {
    fn at(self, step: StepName, detail: impl FnOnce() -> String) -> Result<T, SetupFailure>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, step: StepName, detail: impl FnOnce() -> String) -> Result<T, SetupFailure> {
        self.map_err(|error| {
            let error: io::Error = error.into();
            match error.raw_os_error() {
                Some(errno) => SetupFailure { step, errno, detail: detail() },
                None => SetupFailure { step, errno: libc::EINVAL, detail: format!("{}: {error}", detail()) },
            }
        })
    }
}

impl SetupFailure {
    /// Tells the daemon: the message, with the detail in a file of memory beside it.
    pub(crate) fn send(&self, socket: BorrowedFd<'_>) {
        let message = FromKeeper::SetupFailed { step: self.step.number(), errno: self.errno }.encode();
        // A daemon that is gone needs no telling.
        let _ = match memfd("detail", self.detail.as_bytes()) {
            Ok(detail) => packet::send(socket, &message, &[detail.as_fd()]),
            Err(_) => packet::send(socket, &message, &[]),
        };
    }
}

/// The error of a `SetupFailed`, with the detail that came along.
pub(crate) fn setup_error(step: u32, errno: i32, fds: Vec<OwnedFd>) -> JailError {
    let mut detail = String::new();
    if let Some(fd) = fds.into_iter().next() {
        // Without its detail the error still says which step.
        let _ = File::from(fd).take(DETAIL_BYTES_MAX as u64).read_to_string(&mut detail);
    }
    let step = StepName::from_number(step).unwrap_or(StepName::KeeperSelf);
    JailError::Setup { step, detail, source: io::Error::from_raw_os_error(errno) }
}
