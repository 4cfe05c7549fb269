//! Which names have been asked for, and what came of it. Pure: the time is said.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Instant;

use crate::limits::{PULL_AGAIN_AFTER, PULL_ALIASES_MAX, PULL_NAMES_MAX, PULLS_WAITING_MAX};

/// Names that leases have said and that may be pulled.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    names: HashMap<String, State>,
    /// Further names of images that are there, the oldest first, with what the sessions know them by.
    aliases: VecDeque<(String, String)>,
    /// What the sessions know images by that came under it: as many as images can come, and never forgotten.
    firsts: HashSet<String>,
    /// The log knows that there is no room.
    told: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It waits, or is being pulled.
    Coming,
    /// It is there.
    There,
    /// It could not be pulled: not again before `again_at`, or never.
    Failed { again_at: Instant, for_good: bool },
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
    /// As [`Self::Nothing`], and the first time that there was no room.
    Full,
}

impl Asked {
    /// A lease says this name.
    pub(crate) fn ask(&mut self, name: &str, now: Instant) -> Answer {
        match self.names.get(name) {
            Some(State::Coming | State::There) => return Answer::Coming,
            Some(State::Failed { again_at, for_good }) if *for_good || *again_at > now => return Answer::Nothing,
            Some(State::Failed { .. }) => {}
            None if self.names.len() >= PULL_NAMES_MAX => {
                // Room is made by what failed long ago: it may be tried again, or would fail again.
                self.names.retain(|_, state| !matches!(state, State::Failed { again_at, .. } if *again_at <= now));
                if self.names.len() >= PULL_NAMES_MAX {
                    return if std::mem::replace(&mut self.told, true) { Answer::Nothing } else { Answer::Full };
                }
                self.told = false;
            }
            None => {}
        }
        if self.names.values().filter(|state| **state == State::Coming).count() >= PULLS_WAITING_MAX {
            return Answer::Nothing;
        }
        self.names.insert(name.to_owned(), State::Coming);
        Answer::Pull
    }

    /// It is there, and the sessions know it by `alias`; `first` says that the image came with it. What they are to forget
    /// in its place.
    #[must_use]
    pub(crate) fn came(&mut self, name: &str, alias: &str, first: bool) -> Option<String> {
        if self.firsts.contains(alias) || self.aliases.iter().any(|(_, known)| known == alias) {
            self.was_known(name);
            return None;
        }
        self.names.insert(name.to_owned(), State::There);
        if first {
            self.firsts.insert(alias.to_owned());
            return None;
        }
        self.aliases.push_back((name.to_owned(), alias.to_owned()));
        if self.aliases.len() <= PULL_ALIASES_MAX {
            return None;
        }
        let (oldest, forgotten) = self.aliases.pop_front()?;
        self.names.remove(&oldest);
        Some(forgotten)
    }

    /// It is there, and the sessions know it by what they knew before: it needs no remembering.
    pub(crate) fn was_known(&mut self, name: &str) {
        self.names.remove(name);
    }

    /// It could not be had; `for_good` says that trying again is of no use.
    pub(crate) fn failed(&mut self, name: &str, for_good: bool, now: Instant) {
        self.names.insert(name.to_owned(), State::Failed { again_at: now + PULL_AGAIN_AFTER, for_good });
    }

    /// Nothing comes any more.
    pub(crate) fn give_up(&mut self) {
        self.names.retain(|_, state| *state != State::Coming);
    }
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
        assert_eq!(asked.came("a", "a", true), None);
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
            if matches!(asked.ask(&name, begun), Answer::Pull | Answer::Coming) {
                asked.failed(&name, false, begun);
            }
        }
        assert_eq!(asked.names.len(), PULL_NAMES_MAX);
        assert_eq!(asked.ask("late", begun), Answer::Nothing, "the log knows already");
        assert_eq!(asked.ask("late", begun + PULL_AGAIN_AFTER), Answer::Pull, "those that failed make room");
        assert_eq!(asked.names.len(), 1);
    }

    #[test]
    fn names_of_images_that_are_there_and_of_failures_never_use_up_the_room() {
        let mut asked = Asked::default();
        let begun = Instant::now();
        assert_eq!(asked.ask("first", begun), Answer::Pull);
        assert_eq!(asked.came("first", "first", true), None, "an image's first name is kept");
        let name = |number: usize| format!("tag{number}");
        for number in 0..3 * PULL_NAMES_MAX {
            assert_eq!(asked.ask(&name(number), begun), Answer::Pull, "{number}");
            let forgotten = asked.came(&name(number), &name(number), false);
            assert_eq!(forgotten, number.checked_sub(PULL_ALIASES_MAX).map(name));
        }
        assert_eq!((asked.names.len(), asked.aliases.len()), (PULL_ALIASES_MAX + 1, PULL_ALIASES_MAX));
        assert_eq!(asked.ask("other", begun), Answer::Pull);
        assert_eq!(asked.came("other", "first", false), None, "known by the same");
        assert_eq!((asked.names.len(), asked.aliases.len()), (PULL_ALIASES_MAX + 1, PULL_ALIASES_MAX));
        assert_eq!(asked.ask("first", begun), Answer::Coming);
        assert_eq!(asked.ask(&name(0), begun), Answer::Pull, "what is forgotten can come again");
        asked.was_known(&name(0));
        assert_eq!(asked.names.len(), PULL_ALIASES_MAX + 1);
        for number in 0..PULL_NAMES_MAX - PULL_ALIASES_MAX - 1 {
            assert_eq!(asked.ask(&number.to_string(), begun), Answer::Pull);
            asked.failed(&number.to_string(), true, begun);
        }
        assert_eq!([asked.ask("late", begun), asked.ask("late", begun)], [Answer::Full, Answer::Nothing], "told once");
        let later = begun + PULL_AGAIN_AFTER;
        assert_eq!(asked.ask("late", later), Answer::Pull);
        let fill = |number: usize| {
            let answer = asked.ask(&number.to_string(), later);
            if answer == Answer::Pull {
                asked.failed(&number.to_string(), true, later);
            }
            answer
        };
        let full = (0..PULL_NAMES_MAX).map(fill).filter(|answer| *answer == Answer::Full).count();
        assert_eq!(full, 1, "told once more, since there was room in between");
    }
}
