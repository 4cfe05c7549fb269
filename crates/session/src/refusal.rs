//! Why there is no session now, in words for the caller.

use std::collections::HashMap;
use std::time::Duration;

use ringfence_interp::LeaseError;
use ringfence_op::{Fault, FaultKind, WorkspaceId};

use crate::fair::Refused;
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
    after_ends(1, None, "no session is free; try again later", table, clock)
}

/// Memory is short: it is not once a session has ended, at the latest, unless something else takes it.
pub(crate) fn no_memory(table: &Table, clock: Clock) -> Fault {
    after_ends(1, None, "the host is short of memory; try again later", table, clock)
}

/// No room for this workspace.
pub(crate) fn no_share(refused: Refused, workspace: &WorkspaceId, table: &Table, clock: Clock) -> Fault {
    match refused {
        Refused::Full => no_room(table, clock),
        Refused::Ceiling { ends } => {
            after_ends(ends, Some(workspace), "the workspace has as many sessions as it may", table, clock)
        }
        Refused::Share { ends } => {
            let detail = "the workspace has its share of the sessions, and the few that are free are kept for others";
            after_ends(ends, None, detail, table, clock)
        }
    }
}

/// Workspaces do not share zygotes, and those that there may be have sessions of other workspaces: one more is free when
/// all sessions of one of these have ended.
pub(crate) fn no_zygote(sets: usize, table: &Table, clock: Clock) -> Fault {
    let now = clock.now();
    let mut ends: HashMap<(Option<&WorkspaceId>, &str), Duration> = HashMap::new();
    for session in table.sessions.values() {
        let end = ends.entry((session.terms.owner.as_ref(), &session.terms.image)).or_default();
        *end = (*end).max(session.look_again().saturating_sub(now));
    }
    let detail =
        "as many workspaces have sessions as may have an interpreter of their own to start from; try again later";
    after_waits(sets, ends.into_values().collect(), detail)
}

/// To be tried again when so many sessions, of one workspace or of all, end at the latest if nobody uses them.
fn after_ends(ends: usize, of: Option<&WorkspaceId>, detail: &str, table: &Table, clock: Clock) -> Fault {
    let now = clock.now();
    let counted = table.sessions.values().filter(|session| of.is_none() || session.terms.owner.as_ref() == of);
    after_waits(ends, counted.map(|session| session.look_again().saturating_sub(now)).collect(), detail)
}

/// To be tried again after the so many-eth of these waits.
fn after_waits(nth: usize, mut waits: Vec<Duration>, detail: &str) -> Fault {
    waits.sort_unstable();
    let seconds = waits.get(nth.saturating_sub(1)).map_or(RETRY_AFTER_SECONDS_DEFAULT, |wait| {
        u32::try_from(wait.as_secs().saturating_add(1)).unwrap_or(u32::MAX).min(RETRY_AFTER_SECONDS_MAX)
    });
    Fault::new(FaultKind::Capacity { retry_after_seconds: seconds }, detail)
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
