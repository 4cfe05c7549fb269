//! The zygotes of one set, one after the other: which of them forks, which is to follow it, which are to leave; and
//! what waits until one forks.
//!
//! Pure: what happened goes in, what is to be done comes out. The keepers act on it, each in its own way (`keeper`,
//! `flat`).
//!
//! One zygote is the *current* one. Where another is asked for, it is started beside it as the *next*; only when that
//! one has said that it is ready does it take over, so nobody ever waits for its imports. The one before it then
//! *leaves*: it is told so once nothing that was asked of it is unanswered, and what it has forked lives on. A next one
//! that dies first changes nothing. When the current one dies, the next one, however far it has come, is the current
//! one; where there is none, one is started after a pause.
//!
//! What is asked for while none forks *waits*, in order and bounded, until one does, or until there is no hope of one.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::limits::{
    FORKS_QUEUED_MAX, ZYGOTE_FAILURES_MAX, ZYGOTE_LEAVE_WAIT_MAX, ZYGOTE_READY_WAIT_MAX, ZYGOTE_RESTART_PAUSE,
    ZYGOTE_RESTART_PAUSE_LONG,
};

/// All zygotes of one set. `P` is what their keeper holds of each, `W` what waits for them.
pub(crate) struct Generations<P, W> {
    current: Option<Zygote<P>>,
    next: Option<Zygote<P>>,
    leaving: Vec<Zygote<P>>,
    waiting: VecDeque<W>,
    /// Starts of a current one since one was last ready.
    failures: u32,
    /// When a current one was last started.
    started_at: Instant,
    /// One is to run; otherwise the set rests until a cell of it is asked for.
    wanted: bool,
    /// It is to rest as soon as no cell of it lives.
    tired: bool,
    /// One has been ready since one was last wanted.
    proven: bool,
    /// The daemon has asked for another one, and is not answered.
    asked: bool,
}

/// One of them.
pub(crate) struct Zygote<P> {
    pub(crate) process: P,
    /// Greater than that of every one before it, whatever its set; never 0.
    pub(crate) serial: u32,
    /// How often it has forked.
    pub(crate) forks: u32,
    /// Cells whose fork was asked of it and is not answered.
    pub(crate) in_flight: Vec<u64>,
    ready: bool,
    /// When it was started; once it leaves, when it began to.
    since: Instant,
    told_to_leave: bool,
}

/// What to do where another zygote is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// Start one beside the current one.
    Start,
    /// One is under way already.
    Wait,
    /// There is none that it could follow.
    Refuse,
}

impl<P> Zygote<P> {
    fn new(serial: u32, process: P, now: Instant) -> Zygote<P> {
        Zygote { process, serial, forks: 0, in_flight: Vec::new(), ready: false, since: now, told_to_leave: false }
    }
}

impl<P, W> Generations<P, W> {
    /// None runs, and none is to.
    pub(crate) fn resting() -> Generations<P, W> {
        Generations {
            current: None,
            next: None,
            leaving: Vec::new(),
            waiting: VecDeque::new(),
            failures: 0,
            started_at: Instant::now(),
            wanted: false,
            tired: false,
            proven: false,
            asked: false,
        }
    }

    /// The current one was started, or could not be.
    pub(crate) fn started(&mut self, serial: u32, process: Option<P>, now: Instant) {
        self.wanted = true;
        self.tired = false;
        self.failures = self.failures.saturating_add(1);
        self.started_at = now;
        self.current = process.map(|process| Zygote::new(serial, process, now));
    }

    /// Another one is asked for.
    pub(crate) fn renew(&mut self) -> Renewal {
        self.asked = true;
        match (&self.current, &self.next) {
            (Some(_), Some(_)) => Renewal::Wait,
            // It is new itself.
            (Some(current), None) if !current.ready => Renewal::Wait,
            (Some(_), None) => Renewal::Start,
            (None, _) => {
                self.asked = false;
                Renewal::Refuse
            }
        }
    }

    /// The next one was started.
    pub(crate) fn followed(&mut self, serial: u32, process: P, now: Instant) {
        self.next = Some(Zygote::new(serial, process, now));
    }

    /// The next one could not be started.
    pub(crate) fn not_followed(&mut self) {
        self.asked = false;
    }

    /// One says that it is ready: whether it forks from now on.
    pub(crate) fn ready(&mut self, serial: u32, now: Instant) -> bool {
        if let Some(mut next) = self.next.take_if(|next| next.serial == serial) {
            next.ready = true;
            if let Some(mut before) = self.current.replace(next) {
                before.since = now;
                self.leaving.push(before);
            }
        } else {
            let Some(current) = self.current.as_mut().filter(|current| current.serial == serial) else { return false };
            current.ready = true;
        }
        (self.failures, self.proven, self.asked) = (0, true, false);
        true
    }

    /// Those that are to be told to leave now; each is named once.
    pub(crate) fn dismiss(&mut self) -> impl Iterator<Item = &P> {
        let idle = self.leaving.iter_mut().filter(|one| !one.told_to_leave && one.in_flight.is_empty());
        idle.map(|one| {
            one.told_to_leave = true;
            &one.process
        })
    }

    /// One is dead, and all that it said was heard.
    pub(crate) fn ended(&mut self, serial: u32) -> Option<Zygote<P>> {
        let of = |one: &mut Zygote<P>| one.serial == serial;
        if let Some(ended) = self.current.take_if(of) {
            self.current = self.next.take();
            return Some(ended);
        }
        let leaving = self.leaving.iter().position(|one| one.serial == serial);
        self.next.take_if(of).or_else(|| leaving.map(|place| self.leaving.remove(place)))
    }

    /// Whether the daemon is to be told that the one that it asked for does not come.
    pub(crate) fn take_refusal(&mut self) -> bool {
        let comes = self.next.is_some() || self.current.as_ref().is_some_and(|current| !current.ready);
        !comes && std::mem::take(&mut self.asked)
    }

    /// The set is not wanted any more, for as long as no cell of it is asked for.
    pub(crate) fn tire(&mut self) {
        self.tired = true;
    }

    /// A cell of it is asked for: whether the current one is to be started.
    pub(crate) fn wake(&mut self) -> bool {
        self.tired = false;
        if !self.wanted {
            self.proven = false;
        }
        !self.wanted
    }

    /// No cell of the set lives: all of its zygotes, to be ended, and what waits for them in vain, where it is to rest.
    pub(crate) fn rest(&mut self) -> Option<(Vec<Zygote<P>>, VecDeque<W>)> {
        if !self.tired {
            return None;
        }
        let Generations { current, next, leaving, waiting, .. } = std::mem::replace(self, Generations::resting());
        Some((current.into_iter().chain(next).chain(leaving).collect(), waiting))
    }

    /// This is to wait until one forks; it comes back where too much waits already.
    pub(crate) fn wait(&mut self, one: W) -> Result<(), W> {
        if self.waiting.len() >= FORKS_QUEUED_MAX {
            return Err(one);
        }
        self.waiting.push_back(one);
        Ok(())
    }

    /// What waits longest, and the number of the zygote that is to fork for it; `None` while none forks.
    pub(crate) fn next_waiting(&mut self) -> Option<(u32, W)> {
        let serial = self.forking_serial()?;
        Some((serial, self.waiting.pop_front()?))
    }

    /// The zygote could not take it: it waits on, before all others.
    pub(crate) fn wait_on(&mut self, one: W) {
        self.waiting.push_front(one);
    }

    /// This waits no longer: whether it did.
    pub(crate) fn withdraw(&mut self, one: &W) -> bool
    where
        W: PartialEq,
    {
        let place = self.waiting.iter().position(|waits| waits == one);
        place.and_then(|place| self.waiting.remove(place)).is_some()
    }

    /// What waits.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &W> {
        self.waiting.iter()
    }

    /// Whether something waits that the current zygote can fork for.
    pub(crate) fn has_work(&self) -> bool {
        self.forking_serial().is_some() && !self.waiting.is_empty()
    }

    /// A zygote has ended, or could not be started: what waits, where it waits in vain.
    pub(crate) fn give_up(&mut self) -> VecDeque<W> {
        if self.is_hopeless() { std::mem::take(&mut self.waiting) } else { VecDeque::new() }
    }

    /// The one that forks.
    pub(crate) fn forking(&mut self) -> Option<&mut Zygote<P>> {
        self.current.as_mut().filter(|current| current.ready)
    }

    /// The number of the one that forks.
    pub(crate) fn forking_serial(&self) -> Option<u32> {
        self.current.as_ref().filter(|current| current.ready).map(|current| current.serial)
    }

    /// Ready, or at rest.
    pub(crate) fn is_settled(&self) -> bool {
        !self.wanted || self.current.as_ref().is_some_and(|current| current.ready)
    }

    /// Whether what waits for the current one, which is dead, waits in vain: none has come up since one was wanted, or
    /// not for many tries.
    fn is_hopeless(&self) -> bool {
        self.current.is_none() && (!self.proven || self.failures >= ZYGOTE_FAILURES_MAX)
    }

    /// All zygotes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Zygote<P>> {
        self.current.iter().chain(&self.next).chain(&self.leaving)
    }

    /// The one with this number.
    pub(crate) fn find(&mut self, serial: u32) -> Option<&mut Zygote<P>> {
        let mut all = self.current.iter_mut().chain(&mut self.next).chain(&mut self.leaving);
        all.find(|one| one.serial == serial)
    }

    /// Whether the current one, which is dead, is to be started again.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.restart_at().is_some_and(|at| at <= now)
    }

    /// Those that were to be ready, or gone, by now.
    pub(crate) fn overdue(&self, now: Instant) -> impl Iterator<Item = &Zygote<P>> {
        self.until().filter(move |(_, until)| *until <= now).map(|(one, _)| one)
    }

    /// When something is due or overdue.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.until().map(|(_, until)| until).chain(self.restart_at()).min()
    }

    fn until(&self) -> impl Iterator<Item = (&Zygote<P>, Instant)> {
        let starting = self.current.iter().chain(&self.next).filter(|one| !one.ready);
        let starting = starting.map(|one| (one, one.since + ZYGOTE_READY_WAIT_MAX));
        starting.chain(self.leaving.iter().map(|one| (one, one.since + ZYGOTE_LEAVE_WAIT_MAX)))
    }

    fn restart_at(&self) -> Option<Instant> {
        (self.wanted && self.current.is_none()).then(|| self.started_at + self.pause())
    }

    fn pause(&self) -> Duration {
        if self.failures >= ZYGOTE_FAILURES_MAX { ZYGOTE_RESTART_PAUSE_LONG } else { ZYGOTE_RESTART_PAUSE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(now: Instant) -> Generations<char, u64> {
        let mut line = Generations::resting();
        assert!(line.wake());
        line.started(1, Some('a'), now);
        assert!(line.ready(1, now));
        line
    }

    fn forks(line: &mut Generations<char, u64>) -> Option<char> {
        line.forking().map(|zygote| zygote.process)
    }

    #[test]
    fn the_next_one_takes_over_when_it_is_ready_and_the_one_before_leaves() {
        let now = Instant::now();
        let mut line = running(now);
        assert_eq!(line.renew(), Renewal::Start);
        line.followed(2, 'b', now);
        assert_eq!(line.renew(), Renewal::Wait, "one at a time");
        assert_eq!((forks(&mut line), line.dismiss().count()), (Some('a'), 0));
        assert!(line.ready(2, now));
        assert_eq!(forks(&mut line), Some('b'));
        assert_eq!(line.dismiss().copied().collect::<Vec<_>>(), ['a']);
        assert_eq!(line.dismiss().count(), 0, "it is told once");
        assert!(line.ended(1).is_some() && line.ended(1).is_none());
        assert_eq!((forks(&mut line), line.iter().count(), line.deadline()), (Some('b'), 1, None));
        assert!(!line.take_refusal(), "it was answered");
    }

    #[test]
    fn one_that_has_yet_to_answer_does_not_leave() {
        let now = Instant::now();
        let mut line = running(now);
        line.forking().unwrap().in_flight.push(7);
        line.renew();
        line.followed(2, 'b', now);
        line.ready(2, now);
        assert_eq!(line.dismiss().count(), 0);
        line.find(1).unwrap().in_flight.clear();
        assert_eq!(line.dismiss().copied().collect::<Vec<_>>(), ['a']);
        // One that does not go is ended.
        assert_eq!(line.deadline(), Some(now + ZYGOTE_LEAVE_WAIT_MAX));
        assert_eq!(line.overdue(now + ZYGOTE_LEAVE_WAIT_MAX).map(|one| one.serial).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_next_one_that_dies_leaves_the_current_one_in_service() {
        let now = Instant::now();
        let mut line = running(now);
        line.renew();
        line.followed(2, 'b', now);
        assert_eq!(line.deadline(), Some(now + ZYGOTE_READY_WAIT_MAX));
        assert!(!line.take_refusal());
        assert!(line.ended(2).is_some());
        assert!(line.take_refusal() && !line.take_refusal(), "told once");
        assert_eq!((forks(&mut line), line.deadline(), line.renew()), (Some('a'), None, Renewal::Start));
        line.not_followed();
        assert!(!line.take_refusal(), "whoever could not start it has told");
    }

    #[test]
    fn when_the_current_one_dies_the_next_one_is_in_its_place() {
        let now = Instant::now();
        let mut line = running(now);
        line.renew();
        line.followed(2, 'b', now);
        assert!(line.ended(1).is_some());
        assert_eq!((forks(&mut line), line.is_due(now + ZYGOTE_RESTART_PAUSE_LONG)), (None, false));
        assert!(!line.take_refusal() && !line.is_hopeless(), "it may still come");
        assert!(line.ready(2, now));
        assert_eq!((forks(&mut line), line.iter().count()), (Some('b'), 1));
    }

    #[test]
    fn when_both_die_one_is_started_after_a_pause() {
        let now = Instant::now();
        let mut line = running(now);
        line.renew();
        line.followed(2, 'b', now);
        line.ended(1);
        line.ended(2);
        assert!(line.take_refusal());
        assert_eq!(line.renew(), Renewal::Refuse);
        assert!(!line.is_due(now) && line.is_due(now + ZYGOTE_RESTART_PAUSE));
        line.started(3, Some('c'), now);
        assert_eq!(line.renew(), Renewal::Wait, "what is starting is new already");
        assert!(line.ready(3, now) && !line.take_refusal());
    }

    #[test]
    fn starts_that_fail_slow_down_and_end_the_hope_of_those_who_wait() {
        let now = Instant::now();
        let mut line = running(now);
        line.ended(1);
        for serial in 2.. {
            if line.is_hopeless() {
                break;
            }
            assert!(line.is_due(now + ZYGOTE_RESTART_PAUSE), "{serial}");
            line.started(serial, None, now);
        }
        assert_eq!(line.deadline(), Some(now + ZYGOTE_RESTART_PAUSE_LONG));
    }

    #[test]
    fn what_is_asked_for_while_none_forks_waits_in_order() {
        let now = Instant::now();
        let mut line = running(now);
        line.ended(1);
        let all = 0..FORKS_QUEUED_MAX as u64;
        assert!(all.clone().all(|one| line.wait(one).is_ok()));
        assert_eq!(line.wait(u64::MAX), Err(u64::MAX), "bounded");
        assert!(line.next_waiting().is_none() && !line.has_work() && line.give_up().is_empty(), "it is started again");
        line.started(2, Some('b'), now);
        assert!(line.next_waiting().is_none(), "it has yet to import");
        line.ready(2, now);
        assert!(line.has_work());
        assert_eq!(line.next_waiting(), Some((2, 0)));
        line.wait_on(0);
        let served: Vec<u64> = std::iter::from_fn(|| line.next_waiting().map(|(_, one)| one)).collect();
        assert_eq!(served, all.collect::<Vec<_>>());
    }

    #[test]
    fn what_waits_for_a_zygote_that_has_never_come_up_is_given_up_when_it_fails() {
        let now = Instant::now();
        for start in [Some('a'), None] {
            let mut line = Generations::resting();
            assert!(line.wake());
            assert_eq!(line.wait(7), Ok(()));
            line.started(1, start, now);
            line.ended(1);
            assert_eq!(line.give_up(), [7]);
            assert!(line.waiting().next().is_none() && line.give_up().is_empty());
        }
    }

    #[test]
    fn a_tired_set_gives_up_all_of_its_zygotes() {
        let now = Instant::now();
        let mut line = running(now);
        line.renew();
        line.followed(2, 'b', now);
        assert!(line.rest().is_none());
        line.tire();
        assert!(!line.wake() && line.rest().is_none(), "it was wanted again");
        line.tire();
        assert_eq!(line.wait(7), Ok(()));
        assert_eq!(line.rest().map(|(ended, waited)| (ended.len(), waited.into())), Some((2, vec![7])));
        assert_eq!((line.iter().count(), line.deadline(), line.is_settled()), (0, None, true));
        assert!(line.wake() && !line.ready(2, now));
    }
}
