//! The daemon's ends of the keeper's and init's sockets.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use ringfence_frame::PACKET_BYTES;
use ringfence_frame::init::{FromInit, ToInit};
use ringfence_frame::keeper::{FromKeeper, ToKeeper};
use ringfence_sys::packet;

/// Takes one message of the keeper, with its descriptors; `None` once the keeper is gone.
///
/// # Errors
/// `WouldBlock` where there is none now; `InvalidData` for what is no message.
pub fn recv(socket: BorrowedFd<'_>) -> io::Result<Option<(FromKeeper, Vec<OwnedFd>)>> {
    let mut buffer = [0; PACKET_BYTES];
    match packet::receive(socket, &mut buffer)? {
        (0, _) => Ok(None),
        (length, fds) => {
            let bytes = buffer.get(..length).unwrap_or_default();
            let message =
                FromKeeper::decode(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            Ok(Some((message, fds)))
        }
    }
}

/// Sends one message to the keeper, with the descriptors that its documentation names.
///
/// # Errors
/// `WouldBlock` while the keeper's queue is full; `BrokenPipe` where it is gone.
pub fn send(socket: BorrowedFd<'_>, message: ToKeeper, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    packet::send(socket, &message.encode(), fds)
}

/// Takes one message of a cell's init; `None` once it is gone.
///
/// # Errors
/// `WouldBlock` where there is none now; `InvalidData` for what is no message.
pub fn recv_init(socket: BorrowedFd<'_>) -> io::Result<Option<FromInit>> {
    let mut buffer = [0; PACKET_BYTES];
    match packet::receive(socket, &mut buffer)? {
        (0, _) => Ok(None),
        (length, _) => {
            let bytes = buffer.get(..length).unwrap_or_default();
            FromInit::decode(bytes).map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
        }
    }
}

/// Sends one message to a cell's init, with the descriptors that its documentation names.
///
/// # Errors
/// `WouldBlock` while init's queue is full; `BrokenPipe` where it is gone.
pub fn send_init(socket: BorrowedFd<'_>, message: ToInit<'_>, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    packet::send(socket, &bytes, fds)
}
