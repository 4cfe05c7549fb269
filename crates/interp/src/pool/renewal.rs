//! When a zygote is to be replaced. Pure, as [`brain`](super::brain), whose part it is.
//!
//! All cells of one zygote have the same address layout and the same hash seed. Whoever has a cell knows them, so what
//! counts is for how many forks, and for how long, since somebody had one.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::keeper_link::Origin;
use crate::limits::{RENEW_BACKOFF_MAX, RENEW_BACKOFF_MIN};

/// When the zygote of a set is replaced by a new one, which has another address layout. The default is never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Renewal {
    /// Once it has forked so many interpreters.
    pub forks_max: Option<NonZeroU32>,
    /// Once it has been in use for so long.
    pub age_max: Option<Duration>,
}

/// The zygote of a set that forks now.
#[derive(Debug, Default)]
pub(super) struct Current {
    /// Its number; 0 is none yet.
    zygote: u32,
    /// Somebody has got a cell of it.
    exposed: bool,
    /// It is to be replaced.
    due: bool,
    /// That was asked for, and is not answered.
    renewing: bool,
    /// It failed, and is not tried for a while.
    pausing: bool,
    /// Failures in a row.
    failures: u32,
}

impl Current {
    pub(super) fn new(zygote: u32) -> Self {
        Current { zygote, ..Current::default() }
    }

    /// Whether it is this one.
    pub(super) fn is(&self, zygote: u32) -> bool {
        self.zygote == zygote
    }

    /// Whether this one comes after it.
    pub(super) fn is_before(&self, zygote: u32) -> bool {
        self.zygote < zygote
    }

    /// Somebody gets a cell of it.
    pub(super) fn exposed(&mut self) {
        self.exposed = true;
    }

    /// A cell of this origin was made.
    pub(super) fn forked(&mut self, origin: Origin, renewal: Renewal) {
        let often = renewal.forks_max.is_some_and(|max| origin.forks >= max.get());
        self.due |= often && self.is(origin.zygote);
    }

    /// Its time is over; `false` where it begins anew.
    pub(super) fn aged(&mut self) -> bool {
        self.due |= self.exposed;
        self.exposed
    }

    pub(super) fn is_renewing(&self) -> bool {
        self.renewing
    }

    /// Whether it is to be replaced now; from then on it is being replaced.
    pub(super) fn begin_renewal(&mut self) -> bool {
        let now = self.due && self.exposed && !self.renewing && !self.pausing;
        self.renewing |= now;
        now
    }

    /// It could not be replaced: when to try again, and whether it is the first time in a row. `None` where that was not
    /// asked for.
    pub(super) fn not_renewed(&mut self) -> Option<(Duration, bool)> {
        if !std::mem::take(&mut self.renewing) {
            return None;
        }
        let wait = RENEW_BACKOFF_MIN.saturating_mul(1 << self.failures.min(16)).min(RENEW_BACKOFF_MAX);
        self.failures = self.failures.saturating_add(1);
        self.pausing = true;
        Some((wait, self.failures == 1))
    }

    /// The pause after a failure is over.
    pub(super) fn try_again(&mut self) {
        self.pausing = false;
    }

    /// The set is not wanted: whatever was asked for need not be answered.
    pub(super) fn rest(&mut self) {
        self.renewing = false;
    }
}
