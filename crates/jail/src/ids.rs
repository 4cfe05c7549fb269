//! Which ids sessions have. Pure.

use std::collections::VecDeque;

use crate::limits::CELL_IDS_MAX;

/// The ids that can be given. The one that was given back longest ago goes first.
pub(crate) struct Ids {
    first: u32,
    /// One session's each; `None` where all share the first.
    count: Option<u32>,
    /// How many of them were given at least once.
    used: u32,
    free: VecDeque<u32>,
    given: u32,
}

impl Ids {
    /// So many from `first` on, one for each session.
    pub(crate) fn own(first: u32, count: u32) -> Ids {
        Ids { first, count: Some(count), used: 0, free: VecDeque::new(), given: 0 }
    }

    /// One that all sessions share.
    pub(crate) fn shared(id: u32) -> Ids {
        Ids { first: id, count: None, used: 0, free: VecDeque::new(), given: 0 }
    }

    /// One that no session has, or that all share; `None` at the bound.
    pub(crate) fn take(&mut self) -> Option<u32> {
        if self.given >= CELL_IDS_MAX {
            return None;
        }
        let id = match self.count {
            None => self.first,
            Some(count) if self.used < count => {
                self.used += 1;
                self.first.saturating_add(self.used - 1)
            }
            Some(_) => self.free.pop_front()?,
        };
        self.given += 1;
        Some(id)
    }

    /// Nothing of the session is left.
    pub(crate) fn give_back(&mut self, id: u32) {
        self.given = self.given.saturating_sub(1);
        if self.count.is_some() {
            self.free.push_back(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_comes_again_as_late_as_can_be() {
        let mut ids = Ids::own(1, CELL_IDS_MAX);
        let first = ids.take().unwrap();
        assert_eq!(first, 1);
        ids.give_back(first);
        for wanted in 2..=CELL_IDS_MAX {
            assert_eq!(ids.take(), Some(wanted));
        }
        assert_eq!(ids.take(), Some(1));
        assert_eq!(ids.take(), None);
        ids.give_back(77);
        ids.give_back(5);
        assert_eq!((ids.take(), ids.take(), ids.take()), (Some(77), Some(5), None));
    }

    #[test]
    fn a_shared_id_is_given_up_to_the_bound() {
        let mut ids = Ids::shared(1000);
        for _ in 0..CELL_IDS_MAX {
            assert_eq!(ids.take(), Some(1000));
        }
        assert_eq!(ids.take(), None);
        ids.give_back(1000);
        assert_eq!(ids.take(), Some(1000));
    }
}
