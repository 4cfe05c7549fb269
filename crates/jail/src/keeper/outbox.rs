//! Messages on their way to the daemon, which may be slow to take them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringfence_frame::keeper::FromKeeper;
use ringfence_sys::packet;

use crate::limits::OUTBOX_MESSAGES_MAX;

#[derive(Default)]
pub(crate) struct Outbox {
    socket: Option<OwnedFd>,
    waiting: VecDeque<(FromKeeper, Vec<OwnedFd>)>,
    /// The daemon has not taken anything for too long.
    overflowed: bool,
}

impl Outbox {
    pub(crate) fn connect(&mut self, socket: OwnedFd) {
        self.socket = Some(socket);
    }

    pub(crate) fn socket(&self) -> Option<&OwnedFd> {
        self.socket.as_ref()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn push(&mut self, message: FromKeeper, fds: Vec<OwnedFd>) {
        if self.waiting.len() >= OUTBOX_MESSAGES_MAX {
            self.overflowed = true;
            return;
        }
        self.waiting.push_back((message, fds));
    }

    /// Sends what can be sent; `false` where the daemon is gone or as good as gone.
    pub(crate) fn flush(&mut self) -> bool {
        let Some(socket) = &self.socket else { return true };
        while let Some((message, fds)) = self.waiting.front() {
            let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            match packet::send(socket.as_fd(), &message.encode(), &borrowed) {
                Ok(()) => {
                    self.waiting.pop_front();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Too many descriptors in flight: the daemon has to take some first.
                Err(error) if error.raw_os_error() == Some(libc::ETOOMANYREFS) => break,
                Err(_) => return false,
            }
        }
        !self.overflowed
    }
}
