//! Which names have been asked for, and what came of it. Pure: the time is said.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::limits::{PULL_AGAIN_AFTER, PULL_NAMES_MAX, PULLS_WAITING_MAX};

/// Names that leases have said and that may be pulled.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    names: HashMap<String, State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It waits, or is being pulled.
    Coming,
    /// It is there.
    There,
    /// It could not be pulled; not before then again.
    Failed { again_at: Option<Instant> },
}

/// What is to be done about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Pull it.
    Pull,
    /// It is on its way, or has just come.
    Coming,
    /// Nothing: it has failed, or too many names are known.
    Nothing,
}

impl Asked {
    /// A lease says this name.
    pub(crate) fn ask(&mut self, name: &str, now: Instant) -> Answer {
        match self.names.get(name) {
            Some(State::Coming | State::There) => return Answer::Coming,
            Some(State::Failed { again_at }) if again_at.is_none_or(|again_at| again_at > now) => {
                return Answer::Nothing;
            }
            Some(State::Failed { .. }) => {}
            None if self.names.len() >= PULL_NAMES_MAX => {
                // Room is made by names that may be tried again: such a one is as good as new.
                self.names.retain(
                    |_, state| !matches!(state, State::Failed { again_at: Some(again_at) } if *again_at <= now),
                );
                if self.names.len() >= PULL_NAMES_MAX {
                    return Answer::Nothing;
                }
            }
            None => {}
        }
        if self.names.values().filter(|state| **state == State::Coming).count() >= PULLS_WAITING_MAX {
            return Answer::Nothing;
        }
        self.names.insert(name.to_owned(), State::Coming);
        Answer::Pull
    }

    /// It is there.
    pub(crate) fn came(&mut self, name: &str) {
        self.names.insert(name.to_owned(), State::There);
    }

    /// It could not be had; `for_good` says that trying again is of no use.
    pub(crate) fn failed(&mut self, name: &str, for_good: bool, now: Instant) {
        let again_at = (!for_good).then(|| now + PULL_AGAIN_AFTER);
        self.names.insert(name.to_owned(), State::Failed { again_at });
    }

    /// Nothing comes any more.
    pub(crate) fn give_up(&mut self) {
        self.names.retain(|_, state| *state != State::Coming);
    }
}

/// How long a name that failed is left alone.
pub(crate) fn again_after() -> Duration {
    PULL_AGAIN_AFTER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_pulled_once_and_again_only_a_while_after_it_failed() {
        let mut asked = Asked::default();
        let begun = Instant::now();
        assert_eq!([asked.ask("a", begun), asked.ask("a", begun)], [Answer::Pull, Answer::Coming]);
        asked.failed("a", false, begun);
        assert_eq!(asked.ask("a", begun + PULL_AGAIN_AFTER / 2), Answer::Nothing);
        assert_eq!(asked.ask("a", begun + PULL_AGAIN_AFTER), Answer::Pull);
        asked.came("a");
        assert_eq!(asked.ask("a", begun + PULL_AGAIN_AFTER), Answer::Coming);
        assert_eq!(asked.ask("b", begun), Answer::Pull);
        asked.failed("b", true, begun);
        assert_eq!(asked.ask("b", begun + 1000 * PULL_AGAIN_AFTER), Answer::Nothing);
    }

    #[test]
    fn many_names_take_neither_the_memory_nor_the_queue() {
        let mut asked = Asked::default();
        let begun = Instant::now();
        let pulled = (0..10 * PULLS_WAITING_MAX).filter(|n| asked.ask(&n.to_string(), begun) == Answer::Pull).count();
        assert_eq!(pulled, PULLS_WAITING_MAX);
        for number in 0..10 * PULL_NAMES_MAX {
            let name = number.to_string();
            if asked.ask(&name, begun) != Answer::Nothing {
                asked.failed(&name, false, begun);
            }
        }
        assert_eq!(asked.names.len(), PULL_NAMES_MAX);
        assert_eq!(asked.ask("late", begun), Answer::Nothing);
        assert_eq!(asked.ask("late", begun + PULL_AGAIN_AFTER), Answer::Pull, "those that failed make room");
        assert_eq!(asked.names.len(), 1);
    }
}
