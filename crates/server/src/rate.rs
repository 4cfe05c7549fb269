//! How often each workspace may ask. Pure: the time is handed in, as the span since some fixed moment.
//!
//! The generic cell rate algorithm: one moment is kept for each workspace, at which its bucket would be full again.

use std::collections::HashMap;
use std::time::Duration;

use ringfence_op::WorkspaceId;

use crate::limits::TENANTS_RATED_MAX;

/// A rate of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// The pause between two requests in the long run.
    pub interval: Duration,
    /// How many may come at once after a rest: at least 1.
    pub burst: u32,
}

/// The buckets of all workspaces that have asked lately.
#[derive(Debug)]
pub(crate) struct Rates {
    /// How far the moment may lie ahead.
    ahead_max: Duration,
    interval: Duration,
    full_at: HashMap<WorkspaceId, Duration>,
}

impl Rates {
    pub(crate) fn new(rate: Rate) -> Self {
        let ahead_max = rate.interval.saturating_mul(rate.burst.saturating_sub(1));
        Rates { ahead_max, interval: rate.interval, full_at: HashMap::new() }
    }

    /// Takes one request; else says how long it is until one would be taken.
    pub(crate) fn take(&mut self, workspace: &WorkspaceId, now: Duration) -> Result<(), Duration> {
        if let Some(full_at) = self.full_at.get_mut(workspace) {
            let from = (*full_at).max(now);
            let wait = from.saturating_sub(now).saturating_sub(self.ahead_max);
            if wait > Duration::ZERO {
                return Err(wait);
            }
            *full_at = from.saturating_add(self.interval);
            return Ok(());
        }
        self.make_room(now)?;
        self.full_at.insert(workspace.clone(), now.saturating_add(self.interval));
        Ok(())
    }

    /// Forgets those whose buckets are full: they are as good as new ones.
    fn make_room(&mut self, now: Duration) -> Result<(), Duration> {
        if self.full_at.len() < TENANTS_RATED_MAX {
            return Ok(());
        }
        self.full_at.retain(|_, full_at| *full_at > now);
        match self.full_at.values().min() {
            Some(first) if self.full_at.len() >= TENANTS_RATED_MAX => Err(first.saturating_sub(now)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(number: usize) -> WorkspaceId {
        WorkspaceId::parse(&format!("w{number}")).unwrap()
    }

    fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    #[test]
    fn a_burst_then_the_rate_and_each_workspace_for_itself() {
        let mut rates = Rates::new(Rate { interval: ms(100), burst: 3 });
        let (one, other) = (workspace(1), workspace(2));
        for _ in 0..3 {
            assert_eq!(rates.take(&one, ms(0)), Ok(()));
        }
        assert_eq!(rates.take(&one, ms(0)), Err(ms(100)));
        assert_eq!(rates.take(&one, ms(40)), Err(ms(60)));
        assert_eq!(rates.take(&other, ms(40)), Ok(()));
        // What was refused costs nothing, and what was said is true.
        assert_eq!(rates.take(&one, ms(100)), Ok(()));
        assert_eq!(rates.take(&one, ms(100)), Err(ms(100)));
        // After a rest there is a whole burst again, and no more.
        for _ in 0..3 {
            assert_eq!(rates.take(&one, ms(5000)), Ok(()));
        }
        assert!(rates.take(&one, ms(5000)).is_err());
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_gives_nothing_away() {
        let mut rates = Rates::new(Rate { interval: ms(100), burst: 1 });
        assert_eq!(rates.take(&workspace(1), ms(1000)), Ok(()));
        assert!(rates.take(&workspace(1), ms(0)).is_err());
    }

    #[test]
    fn strangers_without_number_are_bounded() {
        let mut rates = Rates::new(Rate { interval: ms(100), burst: 1 });
        for number in 0..TENANTS_RATED_MAX {
            assert_eq!(rates.take(&workspace(number), ms(0)), Ok(()));
        }
        assert_eq!(rates.take(&workspace(TENANTS_RATED_MAX), ms(40)), Err(ms(60)));
        assert_eq!(rates.take(&workspace(TENANTS_RATED_MAX), ms(101)), Ok(()));
        assert_eq!(rates.full_at.len(), 1);
    }
}
