//! How long things are kept, and that the rest goes.

use std::sync::Arc;

use crate::api::App;
use crate::config::Keep;
use crate::date::{self, DAY_MS};
use crate::error::ControlError;
use crate::limits::{
    AUDIT_KEEP_DAYS_MIN, KEEP_DAYS_MAX, PRUNE_AHEAD_DAYS_MAX, PRUNE_PAUSE, PRUNE_REST, USAGE_KEEP_DAYS_MIN,
};

/// What went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Records that were rolled up into the totals of their day.
    pub records: u64,
    /// Lines of the audit.
    pub lines: u64,
    /// Whole days by which the clock is ahead of the newest record, where that is so much that the record was taken for
    /// the clock; else 0.
    pub ahead_days: u64,
}

/// Whether these times can be kept to.
pub(crate) fn check(keep: Keep) -> Result<(), ControlError> {
    if keep.usage_days.is_some_and(|days| !(USAGE_KEEP_DAYS_MIN..=KEEP_DAYS_MAX).contains(&days)) {
        return Err(ControlError::Setting("records of usage must be kept for 7 to 36500 days"));
    }
    if keep.audit_days.is_some_and(|days| !(AUDIT_KEEP_DAYS_MIN..=KEEP_DAYS_MAX).contains(&days)) {
        return Err(ControlError::Setting("lines of the audit must be kept for 1 to 36500 days"));
    }
    Ok(())
}

/// Lets go of what is older than it must be, in portions, between which others have their turn.
///
/// What is closed stays so, and a clock may be wrong for a moment. So time is counted to the newest record that the
/// database holds, and little beyond it: a clock that is further ahead closes nothing that it would not have closed
/// then. When records came counts, by this control plane's clock, and never what a front door says of them.
pub(crate) async fn prune(app: &App, keep: Keep, actor: &str) -> Result<Pruned, ControlError> {
    let mut pruned = Pruned::default();
    let now_ms = app.now_ms();
    let ahead_ms = PRUNE_AHEAD_DAYS_MAX * DAY_MS;
    let Some(newest_ms) = app.store.newest_ms(now_ms.saturating_sub(ahead_ms)).await? else { return Ok(pruned) };
    let until_ms = now_ms.min(newest_ms.saturating_add(ahead_ms));
    if until_ms < now_ms {
        pruned.ahead_days = (now_ms - newest_ms) / DAY_MS;
    }
    if let Some(days) = keep.usage_days {
        app.store.close_usage(date::day_of(until_ms).saturating_sub(days), actor, now_ms).await?;
        loop {
            match app.store.roll_up().await? {
                0 => break,
                gone => pruned.records += gone,
            }
            tokio::time::sleep(PRUNE_REST).await;
        }
    }
    if let Some(days) = keep.audit_days {
        let before_ms = until_ms.saturating_sub(days.saturating_mul(DAY_MS));
        loop {
            match app.store.prune_audit(before_ms, actor, now_ms).await? {
                0 => break,
                gone => pruned.lines += gone,
            }
            tokio::time::sleep(PRUNE_REST).await;
        }
    }
    Ok(pruned)
}

/// Does so now and every hour, for ever. What fails is tried again the next time.
pub(crate) async fn run(app: Arc<App>, keep: Keep) {
    let mut told = 0;
    loop {
        match prune(&app, keep, "schedule").await {
            Ok(Pruned { records, lines, ahead_days }) => {
                if ahead_days != told {
                    told = ahead_days;
                    if ahead_days > 0 {
                        tracing::warn!(ahead_days, "the clock is ahead of the newest record: pruning counts from that");
                    }
                }
                if (records, lines) != (0, 0) {
                    tracing::info!(records, lines, "pruned");
                }
            }
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(%error, cause, "pruning is put off");
            }
        }
        tokio::time::sleep(PRUNE_PAUSE).await;
    }
}
