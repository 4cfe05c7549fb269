//! The daemon's end of a cell's control socket. No task of its own: init speaks only when asked, so whoever asked
//! reads, and skips answers to questions that nobody waits for any more.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::limits::SEND_WAIT_MAX;
use crate::watched::{Watched, watch_reads, watch_writes};
use ringfence_frame::init::{FromInit, ToInit};

/// The link is closed or broken: the cell is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InitGone;

/// The link.
#[derive(Debug)]
pub(crate) struct InitLink {
    socket: Watched,
    last_token: u64,
}

impl InitLink {
    /// Takes the socket over.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(InitLink { socket: watch_reads(socket)?, last_token: 0 })
    }

    /// A number for the next request.
    pub(crate) fn token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    /// Sends a request. An init that does not take it within [`SEND_WAIT_MAX`] is as good as gone.
    pub(crate) async fn send(&self, message: ToInit<'_>, descriptors: &[BorrowedFd<'_>]) -> Result<(), InitGone> {
        match self.try_send(message, descriptors) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other.map_err(|_| InitGone),
        }
        let sent = async {
            let room = watch_writes(self.socket.get_ref().try_clone()?)?;
            loop {
                room.writable().await?.clear_ready();
                match self.try_send(message, descriptors) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    other => return other,
                }
            }
        };
        tokio::time::timeout(SEND_WAIT_MAX, sent).await.map_err(|_| InitGone)?.map_err(|_| InitGone)
    }

    fn try_send(&self, message: ToInit<'_>, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        ringfence_jail::send_init(self.socket.as_fd(), message, descriptors)
    }

    /// The next message. Dropping the future loses nothing.
    pub(crate) async fn recv(&self) -> Result<FromInit, InitGone> {
        loop {
            let mut guard = self.socket.readable().await.map_err(|_| InitGone)?;
            match guard.try_io(|socket| ringfence_jail::recv_init(socket.as_fd())) {
                Ok(message) => return message.ok().flatten().ok_or(InitGone),
                Err(_would_block) => {}
            }
        }
    }

    /// Waits for the answer to a [`ToInit::KillSince`]: whether the spared process was killed as well.
    pub(crate) async fn killed(&self, wanted: u64) -> Result<bool, InitGone> {
        loop {
            if let FromInit::Killed { token, all, .. } = self.recv().await?
                && token == wanted
            {
                return Ok(all);
            }
        }
    }
}
