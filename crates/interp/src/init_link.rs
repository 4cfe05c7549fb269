//! The daemon's end of a cell's control socket. No task of its own: init speaks only when asked, so whoever asked
//! reads, and skips answers to questions that nobody waits for any more.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::watched::{Watched, watch as watch_fd};
use ringfence_frame::PACKET_BYTES;
use ringfence_frame::init::{FromInit, ToInit};

use ringfence_sys::packet;

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
        Ok(InitLink { socket: watch_fd(socket)?, last_token: 0 })
    }

    /// A number for the next request.
    pub(crate) fn token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    /// Sends a request.
    pub(crate) async fn send(&self, message: ToInit<'_>, descriptors: &[BorrowedFd<'_>]) -> Result<(), InitGone> {
        let mut bytes = Vec::with_capacity(PACKET_BYTES);
        message.encode(&mut bytes);
        loop {
            match packet::send(self.socket.as_fd(), &bytes, descriptors) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.socket.writable().await.map_err(|_| InitGone)?.clear_ready();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(InitGone),
            }
        }
    }

    /// The next message. Dropping the future loses nothing.
    pub(crate) async fn recv(&self) -> Result<FromInit, InitGone> {
        let mut buffer = [0; PACKET_BYTES + 1];
        loop {
            let mut guard = self.socket.readable().await.map_err(|_| InitGone)?;
            match guard.try_io(|socket| packet::receive(socket.as_fd(), &mut buffer)) {
                Ok(Ok((length, _))) => {
                    return FromInit::decode(buffer.get(..length).unwrap_or_default()).map_err(|_| InitGone);
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(_)) => return Err(InitGone),
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
