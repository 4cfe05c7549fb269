//! Why there is no session now, in words for the caller.

use ringfence_interp::LeaseError;
use ringfence_op::{Fault, FaultKind};

use crate::limits::{RETRY_AFTER_SECONDS_DEFAULT, RETRY_AFTER_SECONDS_DRAINING, RETRY_AFTER_SECONDS_MAX};
use crate::session::Clock;
use crate::sessions::Table;

/// No lease is taken any more.
pub(crate) fn draining() -> Fault {
    let kind = FaultKind::Capacity { retry_after_seconds: RETRY_AFTER_SECONDS_DRAINING };
    Fault::new(kind, "the server is shutting down")
}

/// No room: by the time that a session ends at the latest if nobody uses it, there is some.
pub(crate) fn no_room(table: &Table, clock: Clock) -> Fault {
    let now = clock.now();
    let wait = table.sessions.values().map(|session| session.look_again().saturating_sub(now)).min();
    let seconds = wait.map_or(RETRY_AFTER_SECONDS_DEFAULT, |wait| {
        u32::try_from(wait.as_secs().saturating_add(1)).unwrap_or(u32::MAX).min(RETRY_AFTER_SECONDS_MAX)
    });
    let kind = FaultKind::Capacity { retry_after_seconds: seconds };
    Fault::new(kind, "no session is free; try again later")
}

/// No cell could be had.
pub(crate) fn no_cell(error: LeaseError) -> Fault {
    match error {
        LeaseError::KeeperGone => Fault::house(error),
        LeaseError::Closed => draining(),
        error => {
            let kind = FaultKind::Capacity { retry_after_seconds: RETRY_AFTER_SECONDS_DEFAULT };
            Fault::new(kind, "no session could be made now; try again later").because(error)
        }
    }
}

/// Too many calls wait in one session, or one has waited too long.
pub(crate) fn crowded(detail: &str) -> Fault {
    Fault::new(FaultKind::Capacity { retry_after_seconds: RETRY_AFTER_SECONDS_DEFAULT }, detail)
}
