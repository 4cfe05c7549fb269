//! Messages with descriptors over SEQPACKET sockets.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// The most descriptors that travel with one message, either way.
pub const FDS_MAX: usize = 16;
const CONTROL_BYTES: usize = rustix::cmsg_space!(ScmRights(FDS_MAX));

/// A connected pair of non-blocking SEQPACKET sockets.
///
/// # Errors
/// As `socketpair(2)`.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Sends one message, without waiting and without SIGPIPE.
///
/// # Errors
/// EAGAIN while the peer's queue is full, EPIPE where it is gone, E2BIG for more than [`FDS_MAX`] descriptors.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    if fds.len() > FDS_MAX {
        return Err(Errno::TOOBIG.into());
    }
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::TOOBIG.into());
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Err(Errno::INTR) => {}
            other => return Ok(other.map(drop)?),
        }
    }
}

/// Takes one message, without waiting: its length in `buffer`, 0 at the end, and its descriptors (close-on-exec; what
/// is beyond [`FDS_MAX`] the kernel has dropped).
///
/// # Errors
/// EAGAIN where there is none; EMSGSIZE for one that is longer than `buffer`, which is lost with its descriptors.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut fds = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            fds.extend(rights);
        }
    }
    if message.flags.contains(ReturnFlags::TRUNC) {
        return Err(Errno::MSGSIZE.into());
    }
    Ok((message.bytes, fds))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn descriptors_travel_in_order() {
        let (left, right) = pair().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        send(left.as_fd(), b"hello", &[write.as_fd(), read.as_fd()]).unwrap();
        let mut buffer = [0; 16];
        let (length, fds) = receive(right.as_fd(), &mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"hello");
        rustix::io::write(&fds[0], b"x").unwrap();
        assert_eq!(rustix::io::read(&fds[1], &mut buffer), Ok(1));
        assert!(rustix::io::fcntl_getfd(&fds[0]).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn what_is_too_long_is_refused_and_the_next_one_is_read() {
        let (left, right) = pair().unwrap();
        send(left.as_fd(), &[7; 100], &[left.as_fd()]).unwrap();
        send(left.as_fd(), b"next", &[]).unwrap();
        let mut buffer = [0; 8];
        let error = receive(right.as_fd(), &mut buffer).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
        assert_eq!(receive(right.as_fd(), &mut buffer).unwrap().0, 4);
        let error = receive(right.as_fd(), &mut buffer).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(left);
        assert_eq!(receive(right.as_fd(), &mut buffer).unwrap().0, 0);
    }

    #[test]
    fn too_many_descriptors_are_not_sent() {
        let (left, _right) = pair().unwrap();
        let many = [left.as_fd(); FDS_MAX + 1];
        assert_eq!(send(left.as_fd(), b"x", &many).unwrap_err().raw_os_error(), Some(libc::E2BIG));
    }
}
