//! Descriptors that the runtime watches.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor of ours, registered with the runtime.
pub(crate) type Watched = AsyncFd<OwnedFd>;

/// Registers a descriptor with the runtime, to be read from and written to.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<Watched> {
    register(fd, Interest::READABLE | Interest::WRITABLE)
}

/// Registers a descriptor to be read from alone: what its other end reads wakes nobody.
pub(crate) fn watch_reads(fd: OwnedFd) -> io::Result<Watched> {
    register(fd, Interest::READABLE)
}

/// Registers a descriptor to be written to alone.
pub(crate) fn watch_writes(fd: OwnedFd) -> io::Result<Watched> {
    register(fd, Interest::WRITABLE)
}

#[expect(
    deprecated,
    reason = "the successor is unsafe because a type of the caller's may change its descriptor; an OwnedFd cannot, \
              and this room holds no unsafe code"
)]
fn register(fd: OwnedFd, interest: Interest) -> io::Result<Watched> {
    AsyncFd::with_interest(fd, interest)
}
