//! The link to the daemon: messages on their way, which it may be slow to take, and what it asks.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringfence_frame::PACKET_BYTES;
use ringfence_frame::keeper::{FromKeeper, ToKeeper};
use ringfence_sys::packet;
use rustix::event::{PollFd, PollFlags};

use crate::limits::{MESSAGES_PER_TURN_MAX, OUTBOX_MESSAGES_MAX};

/// What came of looking for a request.
enum Heard {
    Request(ToKeeper, Vec<OwnedFd>),
    /// It comes from a broken daemon; it is dropped, with its descriptors.
    Nonsense,
    /// There is none now.
    Nothing,
    /// The daemon's end is closed.
    Gone,
}

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

    fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn push(&mut self, message: FromKeeper, fds: Vec<OwnedFd>) {
        if self.waiting.len() >= OUTBOX_MESSAGES_MAX {
            self.overflowed = true;
            return;
        }
        self.waiting.push_back((message, fds));
    }

    /// What to wait for: requests, and room for what is on its way.
    pub(crate) fn interest(&self) -> Option<PollFd<'_>> {
        let writing = if self.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        self.socket.as_ref().map(|socket| PollFd::new(socket, PollFlags::IN | writing))
    }

    /// Takes what the daemon asks, as much as one turn may; and whether its end is still open.
    pub(crate) fn requests(&self) -> (Vec<(ToKeeper, Vec<OwnedFd>)>, bool) {
        let mut requests = Vec::new();
        for _ in 0..MESSAGES_PER_TURN_MAX {
            match self.hear() {
                Heard::Request(message, fds) => requests.push((message, fds)),
                Heard::Nonsense => {}
                Heard::Nothing => break,
                Heard::Gone => return (requests, false),
            }
        }
        (requests, true)
    }

    /// Takes one request.
    fn hear(&self) -> Heard {
        let Some(socket) = &self.socket else { return Heard::Gone };
        let mut buffer = [0; PACKET_BYTES];
        match packet::receive(socket.as_fd(), &mut buffer) {
            Ok((0, _)) => Heard::Gone,
            Ok((length, fds)) => match ToKeeper::decode(buffer.get(..length).unwrap_or_default()) {
                Ok(message) => Heard::Request(message, fds),
                Err(_) => Heard::Nonsense,
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Heard::Nothing,
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => Heard::Nonsense,
            Err(_) => Heard::Gone,
        }
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
