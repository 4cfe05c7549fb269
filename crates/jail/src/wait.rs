//! Waiting until a moment.

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// The time left until then, as poll takes it.
pub(crate) fn until(deadline: Instant) -> Timespec {
    let left = deadline.saturating_duration_since(Instant::now());
    Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
}

/// Waits until there is something to read, be it the end; `false` where the time is up first.
pub(crate) fn readable(fd: impl AsFd, deadline: Instant) -> io::Result<bool> {
    loop {
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&until(deadline))) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_moment_that_is_over_leaves_no_time() {
        let now = Instant::now();
        assert_eq!(until(now), Timespec { tv_sec: 0, tv_nsec: 0 });
        let left = until(now + Duration::from_hours(1));
        assert!((1..=3600).contains(&left.tv_sec) && (0..1_000_000_000).contains(&left.tv_nsec), "{left:?}");
    }

    #[test]
    fn what_can_be_read_is_told_from_a_time_that_is_up() {
        let (reader, writer) = io::pipe().unwrap();
        assert!(!readable(&reader, Instant::now()).unwrap());
        drop(writer);
        assert!(readable(&reader, Instant::now()).unwrap(), "the end can be read");
    }
}
