//! Which ids cells have. Pure.

use std::collections::VecDeque;

use ringfence_weaken::{Mitigation, holds};

use crate::limits::CELL_IDS_MAX;

/// The ids that can be given. The one that was given back longest ago goes first.
pub(super) struct Ids {
    /// The fleet has one id, which all cells share.
    single: bool,
    next: u32,
    free: VecDeque<u32>,
    given: u32,
}

impl Ids {
    pub(super) fn new(single: bool) -> Ids {
        Ids { single, next: 1, free: VecDeque::new(), given: 0 }
    }

    /// An id that no cell has; `None` at the bound.
    pub(super) fn take(&mut self) -> Option<u32> {
        if self.given >= CELL_IDS_MAX {
            return None;
        }
        let id = if self.single {
            0
        } else if !holds(Mitigation::HostIdPerSession) {
            1
        } else if self.next <= CELL_IDS_MAX {
            self.next += 1;
            self.next - 1
        } else {
            self.free.pop_front()?
        };
        self.given += 1;
        Some(id)
    }

    /// Nothing of the cell is left.
    pub(super) fn give_back(&mut self, id: u32) {
        self.given = self.given.saturating_sub(1);
        if !self.single {
            self.free.push_back(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_comes_again_as_late_as_can_be() {
        let mut ids = Ids::new(false);
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
    fn a_single_id_is_shared_up_to_the_bound() {
        let mut ids = Ids::new(true);
        for _ in 0..CELL_IDS_MAX {
            assert_eq!(ids.take(), Some(0));
        }
        assert_eq!(ids.take(), None);
        ids.give_back(0);
        assert_eq!(ids.take(), Some(0));
    }
}
