//! The loopback interface. Child-safe.

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::check;

/// Brings `lo` up in the caller's network namespace.
///
/// # Errors
/// As `netdevice(7)`: EPERM without CAP_NET_ADMIN over the namespace.
pub fn loopback_up() -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: an all-zero ifreq is a valid value: arrays of numbers and a union of plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(*b"lo") {
        *place = byte.cast_signed() as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which lives across the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    check(result.into()).map(drop)
}
