//! Groups of sandboxes that have ended. The last process of one goes a moment after it was reaped, or, should the kernel
//! not let go of it, never: they are tried again after pauses that grow.

use std::time::{Duration, Instant};

use crate::limits::{SANDBOX_GROUP_PAUSE, SANDBOX_GROUP_PAUSE_MAX};

#[derive(Default)]
pub(super) struct OldGroups {
    names: Vec<String>,
    pause: Duration,
    /// When they are tried again; `None` where there are none.
    again_at: Option<Instant>,
}

impl OldGroups {
    /// Takes another, to be tried at once, with those that wait.
    pub(super) fn add(&mut self, name: String, now: Instant) {
        self.names.push(name);
        self.pause = SANDBOX_GROUP_PAUSE;
        self.again_at = Some(now);
    }

    pub(super) fn again_at(&self) -> Option<Instant> {
        self.again_at
    }

    /// Tries to remove them, if it is time to; `remove` says whether one is gone.
    pub(super) fn try_again(&mut self, now: Instant, mut remove: impl FnMut(&str) -> bool) {
        if self.again_at.is_none_or(|at| at > now) {
            return;
        }
        self.names.retain(|name| !remove(name));
        self.again_at = (!self.names.is_empty()).then(|| now + self.pause);
        self.pause = (self.pause * 2).min(SANDBOX_GROUP_PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often they are tried in so long, by a keeper with nothing else to do.
    fn tries(groups: &mut OldGroups, from: Instant, time: Duration, mut remove: impl FnMut(&str) -> bool) -> u32 {
        let mut count = 0;
        while let Some(at) = groups.again_at().filter(|at| *at <= from + time) {
            groups.try_again(at, &mut remove);
            count += 1;
        }
        count
    }

    #[test]
    fn a_group_that_stays_is_tried_ever_more_rarely() {
        let (mut groups, start) = (OldGroups::default(), Instant::now());
        groups.add("stays".to_owned(), start);
        let hour = Duration::from_hours(1);
        let most = hour.as_secs() / SANDBOX_GROUP_PAUSE_MAX.as_secs() + 10;
        let count = u64::from(tries(&mut groups, start, hour, |_| false));
        assert!((most - 10..most).contains(&count), "{count} tries in an hour");
        // Never so rarely that it is forgotten.
        assert!(groups.again_at().unwrap() <= start + hour + SANDBOX_GROUP_PAUSE_MAX);
    }

    #[test]
    fn the_first_tries_come_soon_and_the_last_is_the_one_that_succeeds() {
        let (mut groups, start) = (OldGroups::default(), Instant::now());
        groups.add("goes".to_owned(), start);
        let mut left = 4;
        let all = tries(&mut groups, start, SANDBOX_GROUP_PAUSE * 7, |_| {
            left -= 1;
            left == 0
        });
        assert_eq!((all, groups.again_at()), (4, None));
    }

    #[test]
    fn another_group_is_tried_at_once_and_nothing_before_its_time() {
        let (mut groups, start) = (OldGroups::default(), Instant::now());
        groups.add("stays".to_owned(), start);
        let later = start + Duration::from_secs(600);
        tries(&mut groups, start, Duration::from_secs(600), |_| false);
        groups.try_again(later, |name| panic!("{name} is tried before its time"));
        groups.add("goes".to_owned(), later);
        let mut tried = Vec::new();
        groups.try_again(later, |name| {
            tried.push(name.to_owned());
            name == "goes"
        });
        assert_eq!(tried, ["stays", "goes"]);
        assert_eq!(groups.again_at(), Some(later + SANDBOX_GROUP_PAUSE));
    }
}
