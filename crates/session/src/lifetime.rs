//! When a session ends by itself. Pure: the time is handed in, as the span since some fixed moment.

use std::time::Duration;

use crate::limits::LIFE_MIN;

/// The idle and lifetime clocks of one session.
///
/// The idle clock stands still while anything holds the session: a call that runs or waits, a transfer that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lifetimes {
    idle: Duration,
    created: Duration,
    lifetime: Duration,
    last_activity: Duration,
    holds: u32,
}

/// Which clock ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// Nothing happened in it for its idle timeout.
    Idle,
    /// It is as old as it may become.
    Lifetime,
}

impl Lifetimes {
    /// A session that was created `now`.
    pub(crate) fn new(idle: Duration, lifetime: Duration, now: Duration) -> Self {
        Lifetimes { idle, created: now, lifetime, last_activity: now, holds: 0 }
    }

    /// Something happened in it.
    pub(crate) fn touch(&mut self, now: Duration) {
        self.last_activity = self.last_activity.max(now);
    }

    /// Something that takes time begins.
    pub(crate) fn hold(&mut self, now: Duration) {
        self.touch(now);
        self.holds = self.holds.saturating_add(1);
    }

    /// It is over; the idle clock starts anew.
    pub(crate) fn release(&mut self, now: Duration) {
        self.touch(now);
        self.holds = self.holds.saturating_sub(1);
    }

    /// Whether it is over now.
    pub(crate) fn expired(&self, now: Duration) -> Option<Expiry> {
        if now >= self.created.saturating_add(self.lifetime) {
            Some(Expiry::Lifetime)
        } else if self.holds == 0 && now >= self.last_activity.saturating_add(self.idle) {
            Some(Expiry::Idle)
        } else {
            None
        }
    }

    /// The next moment at which to look again. Never later than the session can end: what holds it now may let go
    /// in this moment, and then it lasts for the idle timeout still. So activity never needs to wake whoever waits.
    pub(crate) fn look_again(&self, now: Duration) -> Duration {
        let last = if self.holds == 0 { self.last_activity } else { now };
        last.saturating_add(self.idle).min(self.created.saturating_add(self.lifetime))
    }
}

/// A hint within what the server allows.
pub(crate) fn clamp(hint: Option<Duration>, default: Duration, max: Duration) -> Duration {
    hint.unwrap_or(default).min(max).max(LIFE_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_idle_session_ends_and_activity_puts_that_off() {
        let mut life = Lifetimes::new(s(10), s(100), s(0));
        assert_eq!(life.expired(s(9)), None);
        assert_eq!(life.expired(s(10)), Some(Expiry::Idle));
        life.touch(s(9));
        assert_eq!(life.expired(s(18)), None);
        assert_eq!(life.look_again(s(9)), s(19));
        assert_eq!(life.expired(s(19)), Some(Expiry::Idle));
    }

    #[test]
    fn the_idle_clock_stands_still_while_it_is_held() {
        let mut life = Lifetimes::new(s(2), s(100), s(0));
        life.hold(s(1));
        life.hold(s(2));
        assert_eq!(life.expired(s(50)), None);
        life.release(s(50));
        assert_eq!(life.expired(s(60)), None, "one still holds it");
        assert_eq!(life.look_again(s(60)), s(62));
        life.release(s(60));
        assert_eq!(life.expired(s(61)), None);
        assert_eq!(life.expired(s(62)), Some(Expiry::Idle));
    }

    #[test]
    fn the_lifetime_ends_whatever_holds_it() {
        let mut life = Lifetimes::new(s(10), s(20), s(5));
        life.hold(s(6));
        assert_eq!(life.look_again(s(24)), s(25));
        assert_eq!(life.expired(s(24)), None);
        assert_eq!(life.expired(s(25)), Some(Expiry::Lifetime));
    }

    #[test]
    fn a_look_is_never_later_than_the_end() {
        let mut life = Lifetimes::new(s(3), s(40), s(0));
        for step in 0..60u64 {
            let look = life.look_again(s(step));
            if step % 7 == 0 {
                life.hold(s(step));
            }
            if step % 7 == 4 {
                life.release(s(step));
            }
            let end = (step..200).find(|at| life.expired(s(*at)).is_some()).map(s);
            assert!(end.is_none_or(|end| look <= end), "step {step}: {look:?} {end:?}");
        }
    }

    #[test]
    fn hints_are_clamped() {
        assert_eq!(clamp(None, s(300), s(3600)), s(300));
        assert_eq!(clamp(Some(s(37)), s(300), s(3600)), s(37));
        assert_eq!(clamp(Some(s(1_000_000_000)), s(300), s(3600)), s(3600));
        assert_eq!(clamp(Some(s(0)), s(300), s(3600)), s(1));
        assert_eq!(clamp(None, s(300), s(60)), s(60));
    }
}
