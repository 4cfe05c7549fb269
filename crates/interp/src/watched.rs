//! Descriptors that the runtime watches.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor of ours, registered with the runtime.
pub(crate) type Watched = AsyncFd<OwnedFd>;

/// A descriptor that others hold too, registered with the runtime.
pub(crate) type Shared = AsyncFd<Arc<OwnedFd>>;

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

/// Registers a descriptor that others hold too, to be read from alone. Where one that is about to be dropped is
/// registered still, a copy is.
pub(crate) fn watch_shared(fd: &Arc<OwnedFd>) -> io::Result<Shared> {
    match register_shared(Arc::clone(fd)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => register_shared(Arc::new(fd.try_clone()?)),
        other => other,
    }
}

#[expect(deprecated, reason = "as below: what is shared cannot change its descriptor either")]
fn register_shared(fd: Arc<OwnedFd>) -> io::Result<Shared> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}

#[expect(
    deprecated,
    reason = "the successor is unsafe because a type of the caller's may change its descriptor; an OwnedFd cannot, \
              and this room holds no unsafe code"
)]
fn register(fd: OwnedFd, interest: Interest) -> io::Result<Watched> {
    AsyncFd::with_interest(fd, interest)
}
