//! The daemon's ends of the keeper's and init's sockets.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use ringfence_frame::PACKET_BYTES;
use ringfence_frame::init::{FromInit, ToInit};
use ringfence_frame::keeper::{FromKeeper, ToKeeper};
use ringfence_frame::puller::ToPuller;
use ringfence_op::RootSpec;
use ringfence_sys::packet;

use crate::error::JailError;
use crate::limits::{PULLED_ANSWER_MAX, PULLED_ROOT_BYTES_MAX};
use crate::step::StepName;
use crate::wait::readable;

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

/// Gives the keeper an image that was pulled, and waits for its number, by which cells of it are made.
///
/// # Errors
/// [`JailError::Setup`] where the keeper refuses it: it would again. [`JailError::Link`] where it does not answer.
pub fn add_image(socket: BorrowedFd<'_>, root: &RootSpec) -> Result<u32, JailError> {
    let link = |error: io::Error| JailError::Link(error);
    let refused = |step, errno| JailError::Setup {
        step,
        detail: root.image.clone(),
        source: io::Error::from_raw_os_error(errno),
    };
    let bytes = serde_json::to_vec(root).map_err(|error| link(error.into()))?;
    if bytes.len() > PULLED_ROOT_BYTES_MAX {
        return Err(refused(StepName::PulledRoot, libc::EMSGSIZE));
    }
    packet::send(socket, &bytes, &[]).map_err(link)?;
    let deadline = Instant::now() + PULLED_ANSWER_MAX;
    let mut buffer = [0; PACKET_BYTES];
    loop {
        if !readable(socket, deadline).map_err(link)? {
            return Err(link(io::ErrorKind::TimedOut.into()));
        }
        let length = match packet::receive(socket, &mut buffer) {
            Ok((0, _)) => return Err(link(io::ErrorKind::UnexpectedEof.into())),
            Ok((length, _)) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(link(error)),
        };
        let answer = ToPuller::decode(buffer.get(..length).unwrap_or_default());
        return match answer.map_err(|error| link(io::Error::new(io::ErrorKind::InvalidData, error)))? {
            ToPuller::Added { image } => Ok(image),
            ToPuller::Refused { step, errno } => {
                Err(refused(StepName::from_number(step).unwrap_or(StepName::PulledRoot), errno))
            }
        };
    }
}
