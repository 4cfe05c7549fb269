//! Descriptors that the runtime watches.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;

/// A descriptor of ours, registered with the runtime.
pub(crate) type Watched = AsyncFd<OwnedFd>;

/// Registers a descriptor with the runtime.
#[expect(
    deprecated,
    reason = "the successor is unsafe because a type of the caller's may change its descriptor; an OwnedFd cannot, \
              and this room holds no unsafe code"
)]
pub(crate) fn watch(fd: OwnedFd) -> io::Result<Watched> {
    AsyncFd::new(fd)
}
