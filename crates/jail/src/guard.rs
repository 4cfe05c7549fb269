//! The keeper's link to the guard of a session, which forks that session's interpreters: without namespaces a process of
//! the machine's (`flat`), else one of a sandbox's (`sandbox`).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringfence_frame::keeper::FromKeeper;
use ringfence_frame::zygote::{FromZygote, ToZygote};
use ringfence_sys::packet;

use crate::keeper::outbox::Outbox;
use crate::limits::{FORKS_QUEUED_MAX, MESSAGES_PER_TURN_MAX};
use crate::zygote::{WORKER_FDS, hear};

/// Our end of it.
pub(crate) struct GuardLink {
    /// Its end ends the session.
    socket: Option<OwnedFd>,
    /// Interpreters asked of it and not answered.
    asked: usize,
}

/// What a guard said that its keeper has to see to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// Nothing more for now.
    Nothing,
    /// It can fork; more may have come behind it.
    Ready,
    /// The end of the link, which is closed now. Its death is seen by whoever reaps it.
    End,
}

impl GuardLink {
    pub(crate) fn new(socket: OwnedFd) -> GuardLink {
        GuardLink { socket: Some(socket), asked: 0 }
    }

    /// For what is waited for; `None` once it is closed.
    pub(crate) fn socket(&self) -> Option<&OwnedFd> {
        self.socket.as_ref()
    }

    /// Lets go of the guard, which ends its session.
    pub(crate) fn close(&mut self) {
        self.socket = None;
    }

    /// Asks it for an interpreter under `id`, with the descriptors of a `SpawnWorker`; else the error number.
    pub(crate) fn ask(&mut self, cell: u64, id: u32, fds: &[OwnedFd]) -> Result<(), i32> {
        if fds.len() != WORKER_FDS {
            return Err(libc::EINVAL);
        }
        if self.asked >= FORKS_QUEUED_MAX {
            return Err(libc::EAGAIN);
        }
        let socket = self.socket.as_ref().ok_or(0)?;
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        let order = ToZygote::Fork { cell, cgroups: 0, id }.encode();
        packet::send(socket.as_fd(), &order, &fds).map_err(|error| error.raw_os_error().unwrap_or(0))?;
        self.asked += 1;
        Ok(())
    }

    /// Takes what it says, as much as one turn may, and tells the daemon of interpreters. `forked_by` is the number of the
    /// zygote that forked the guard, and how often it had forked then.
    pub(crate) fn hear(&mut self, cell: u64, forked_by: (u32, u32), outbox: &mut Outbox) -> Said {
        for _ in 0..MESSAGES_PER_TURN_MAX {
            let Some(socket) = &self.socket else { return Said::Nothing };
            let told = match hear(socket) {
                Ok(None) => return Said::Nothing,
                Ok(Some(FromZygote::Ready)) => return Said::Ready,
                Ok(Some(FromZygote::Died { pid, status })) => FromKeeper::WorkerDied { cell, pid, status },
                Ok(Some(FromZygote::Forked { pid, .. })) => {
                    self.asked = self.asked.saturating_sub(1);
                    let (zygote, forks) = forked_by;
                    FromKeeper::WorkerStarted { cell, pid, zygote, forks }
                }
                Ok(Some(FromZygote::ForkFailed { errno, .. })) => {
                    self.asked = self.asked.saturating_sub(1);
                    FromKeeper::WorkerFailed { cell, errno }
                }
                Err(_) => {
                    self.close();
                    for _ in 0..std::mem::take(&mut self.asked) {
                        outbox.push(FromKeeper::WorkerFailed { cell, errno: 0 }, Vec::new());
                    }
                    return Said::End;
                }
            };
            outbox.push(told, Vec::new());
        }
        Said::Nothing
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use ringfence_frame::PACKET_BYTES;

    use super::*;

    const CELL: u64 = 7;

    fn fds() -> Vec<OwnedFd> {
        (0..WORKER_FDS).map(|_| File::open("/dev/null").unwrap().into()).collect()
    }

    /// What the daemon is sent.
    fn told(outbox: &mut Outbox) -> Vec<FromKeeper> {
        let (ours, theirs) = packet::pair().unwrap();
        outbox.connect(theirs);
        assert!(outbox.flush());
        let mut messages = Vec::new();
        while let Ok(Some((message, _))) = crate::link::recv(ours.as_fd()) {
            messages.push(message);
        }
        messages
    }

    #[test]
    fn a_guard_answers_in_order_and_its_end_answers_the_rest() {
        let (ours, guard) = packet::pair().unwrap();
        let (mut link, mut outbox) = (GuardLink::new(ours), Outbox::default());
        assert_eq!(link.ask(CELL, 1, &[]), Err(libc::EINVAL));
        for _ in 0..4 {
            link.ask(CELL, 1, &fds()).unwrap();
            let mut bytes = [0; PACKET_BYTES];
            let (length, fds) = packet::receive(guard.as_fd(), &mut bytes).unwrap();
            assert_eq!(bytes[..length], ToZygote::Fork { cell: CELL, cgroups: 0, id: 1 }.encode());
            assert_eq!(fds.len(), WORKER_FDS);
        }
        let died = FromZygote::Died { pid: 20, status: 9 };
        let failed = FromZygote::ForkFailed { cell: CELL, errno: libc::ENOMEM };
        for message in [FromZygote::Forked { cell: CELL, pid: 20 }, died, FromZygote::Ready, failed] {
            packet::send(guard.as_fd(), &message.encode(), &[]).unwrap();
        }
        assert_eq!(link.hear(CELL, (3, 5), &mut outbox), Said::Ready);
        assert_eq!(link.hear(CELL, (3, 5), &mut outbox), Said::Nothing);
        let failed = |errno| FromKeeper::WorkerFailed { cell: CELL, errno };
        let first = [
            FromKeeper::WorkerStarted { cell: CELL, pid: 20, zygote: 3, forks: 5 },
            FromKeeper::WorkerDied { cell: CELL, pid: 20, status: 9 },
            failed(libc::ENOMEM),
        ];
        assert_eq!(told(&mut outbox), first);

        drop(guard);
        assert_eq!(link.hear(CELL, (3, 5), &mut outbox), Said::End);
        assert_eq!(told(&mut outbox), [failed(0), failed(0)], "two were asked for and not answered");
        assert!(link.socket().is_none());
        assert_eq!(link.ask(CELL, 1, &fds()), Err(0));
    }

    #[test]
    fn no_more_is_asked_than_may_wait() {
        let (ours, _guard) = packet::pair().unwrap();
        let mut link = GuardLink { socket: Some(ours), asked: FORKS_QUEUED_MAX };
        assert_eq!(link.ask(CELL, 1, &fds()), Err(libc::EAGAIN));
    }
}
