//! What the pool decides. Pure: a message in, effects out.
//!
//! Each image is a line of its own: cells that are ready, callers that wait, cells in the making. A cell that is
//! handed out never comes back. Callers are served in the order in which they came.
//!
//! The first image's line is always awake. Another one wakes with its first lease, and falls asleep when a whole rest
//! went by without one: it then keeps nothing ready, and its zygote ends.

use std::collections::VecDeque;
use std::time::Duration;

use crate::limits::{IMAGE_REST_AFTER, MAKE_BACKOFF_MAX, MAKE_BACKOFF_MIN, MAKES_IN_FLIGHT_MAX};

/// A caller's number.
pub(crate) type Ticket = u64;
/// A cell's number.
pub(crate) type CellId = u64;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// Begin to fill.
    Start,
    /// A caller wants a cell of the image.
    Lease { image: usize, ticket: Ticket },
    /// The caller no longer waits.
    Cancel { image: usize, ticket: Ticket },
    /// A cell is ready.
    Made { image: usize, cell: CellId },
    /// A cell could not be made.
    Failed { image: usize },
    /// A ready cell turned out to be dead when it was to be handed out.
    Spoiled { image: usize, cell: CellId },
    /// The wait that [`Effect::Sleep`] asked for is over.
    Woke,
    /// The wait that [`Effect::Watch`] asked for is over.
    Looked { image: usize },
    /// No more leases: everything that is ready is given up.
    Close,
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Make a cell.
    Make { image: usize },
    /// Give the cell to the caller.
    Hand { ticket: Ticket, cell: CellId },
    /// Tell the caller that there is none: the last attempt failed, or the pool is closed.
    Refuse { ticket: Ticket },
    /// Destroy the cell.
    Destroy { cell: CellId },
    /// Send [`Message::Woke`] after this long.
    Sleep(Duration),
    /// Send [`Message::Looked`] after this long.
    Watch { image: usize, wait: Duration },
    /// Nobody wants the image any more: its zygote can end.
    Rest { image: usize },
}

/// The pool's state.
#[derive(Debug)]
pub(crate) struct Brain {
    lines: Vec<Line>,
    /// Failures in a row, over all images.
    failures: u32,
    asleep: bool,
    closed: bool,
}

#[derive(Debug, Default)]
struct Line {
    target: usize,
    /// Whether cells are kept ready.
    awake: bool,
    /// Whether it ever falls asleep.
    rests: bool,
    /// There was a lease since the last look.
    wanted: bool,
    ready: VecDeque<CellId>,
    waiting: VecDeque<Ticket>,
    making: usize,
}

impl Brain {
    /// A pool with this many ready cells wanted of each image.
    pub(crate) fn new(targets: &[usize]) -> Self {
        let line = |(image, &target)| Line { target, awake: image == 0, rests: image > 0, ..Line::default() };
        let lines = targets.iter().enumerate().map(line).collect();
        Brain { lines, failures: 0, asleep: false, closed: false }
    }

    /// Takes a message.
    pub(crate) fn step(&mut self, message: Message) -> Vec<Effect> {
        let mut effects = Vec::new();
        match message {
            Message::Start => {}
            Message::Lease { image, ticket } => self.lease(image, ticket, &mut effects),
            Message::Cancel { image, ticket } => {
                if let Some(line) = self.lines.get_mut(image) {
                    line.waiting.retain(|waiting| *waiting != ticket);
                }
            }
            Message::Made { image, cell } => self.made(image, cell, &mut effects),
            Message::Failed { image } => self.failed(image, &mut effects),
            Message::Spoiled { image, cell } => {
                if let Some(line) = self.lines.get_mut(image) {
                    line.ready.retain(|ready| *ready != cell);
                }
                effects.push(Effect::Destroy { cell });
            }
            Message::Woke => self.asleep = false,
            Message::Looked { image } => self.look(image, &mut effects),
            Message::Close => self.close(&mut effects),
        }
        self.refill(&mut effects);
        effects
    }

    /// Cells that are ready, of all images.
    pub(crate) fn ready(&self) -> usize {
        self.lines.iter().map(|line| line.ready.len()).sum()
    }

    /// The cell that the next lease of this image gets.
    pub(crate) fn next_ready(&self, image: usize) -> Option<CellId> {
        self.lines.get(image).and_then(|line| line.ready.front().copied())
    }

    fn lease(&mut self, image: usize, ticket: Ticket, effects: &mut Vec<Effect>) {
        let Some(line) = self.lines.get_mut(image).filter(|_| !self.closed) else {
            effects.push(Effect::Refuse { ticket });
            return;
        };
        line.wanted = true;
        if !std::mem::replace(&mut line.awake, true) {
            effects.push(Effect::Watch { image, wait: IMAGE_REST_AFTER });
        }
        match line.ready.pop_front() {
            Some(cell) => effects.push(Effect::Hand { ticket, cell }),
            None => line.waiting.push_back(ticket),
        }
    }

    /// A rest is over: without a lease in it, and nobody waiting, the line falls asleep.
    fn look(&mut self, image: usize, effects: &mut Vec<Effect>) {
        let Some(line) = self.lines.get_mut(image).filter(|line| line.rests && line.awake && !self.closed) else {
            return;
        };
        if std::mem::take(&mut line.wanted) || !line.waiting.is_empty() {
            effects.push(Effect::Watch { image, wait: IMAGE_REST_AFTER });
            return;
        }
        line.awake = false;
        effects.extend(line.ready.drain(..).map(|cell| Effect::Destroy { cell }));
        effects.push(Effect::Rest { image });
    }

    fn made(&mut self, image: usize, cell: CellId, effects: &mut Vec<Effect>) {
        self.failures = 0;
        let Some(line) = self.lines.get_mut(image) else { return };
        line.making = line.making.saturating_sub(1);
        if let Some(ticket) = line.waiting.pop_front() {
            effects.push(Effect::Hand { ticket, cell });
        } else if self.closed || !line.awake {
            effects.push(Effect::Destroy { cell });
        } else {
            line.ready.push_back(cell);
        }
    }

    /// The caller who has waited longest is told; the others get attempts of their own.
    fn failed(&mut self, image: usize, effects: &mut Vec<Effect>) {
        let Some(line) = self.lines.get_mut(image) else { return };
        line.making = line.making.saturating_sub(1);
        if let Some(ticket) = line.waiting.pop_front() {
            effects.push(Effect::Refuse { ticket });
        }
        if !self.asleep && !self.closed {
            let wait = MAKE_BACKOFF_MIN.saturating_mul(1 << self.failures.min(16)).min(MAKE_BACKOFF_MAX);
            self.failures = self.failures.saturating_add(1);
            self.asleep = true;
            effects.push(Effect::Sleep(wait));
        }
    }

    fn close(&mut self, effects: &mut Vec<Effect>) {
        self.closed = true;
        for line in &mut self.lines {
            effects.extend(line.waiting.drain(..).map(|ticket| Effect::Refuse { ticket }));
            effects.extend(line.ready.drain(..).map(|cell| Effect::Destroy { cell }));
        }
    }

    /// Starts what is missing: first for those who wait, then, unless failures hold it back, for the stock.
    fn refill(&mut self, effects: &mut Vec<Effect>) {
        if self.closed {
            return;
        }
        let mut making: usize = self.lines.iter().map(|line| line.making).sum();
        for stock in [false, true] {
            if stock && self.asleep {
                return;
            }
            for (image, line) in self.lines.iter_mut().enumerate() {
                let wanted = line.waiting.len() + if stock && line.awake { line.target } else { 0 };
                while line.ready.len() + line.making < wanted && making < MAKES_IN_FLIGHT_MAX {
                    line.making += 1;
                    making += 1;
                    effects.push(Effect::Make { image });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAKE: Effect = Effect::Make { image: 0 };

    fn filled(target: usize) -> Brain {
        let mut brain = Brain::new(&[target]);
        brain.step(Message::Start);
        for cell in 1..=target as u64 {
            brain.step(Message::Made { image: 0, cell });
        }
        assert_eq!(brain.ready(), target);
        brain
    }

    #[test]
    fn it_fills_itself_a_few_at_a_time() {
        let mut brain = Brain::new(&[6]);
        assert_eq!(brain.step(Message::Start), vec![MAKE; MAKES_IN_FLIGHT_MAX]);
        assert_eq!(brain.step(Message::Made { image: 0, cell: 1 }), vec![MAKE]);
        assert_eq!(brain.step(Message::Made { image: 0, cell: 2 }), vec![MAKE]);
        for cell in 3..=6 {
            assert_eq!(brain.step(Message::Made { image: 0, cell }), vec![]);
        }
        assert_eq!(brain.ready(), 6);
    }

    #[test]
    fn a_lease_takes_the_oldest_and_is_replaced() {
        let mut brain = filled(2);
        assert_eq!(brain.next_ready(0), Some(1));
        let effects = brain.step(Message::Lease { image: 0, ticket: 9 });
        assert_eq!(effects, vec![Effect::Hand { ticket: 9, cell: 1 }, MAKE]);
    }

    #[test]
    fn a_lease_without_stock_waits_for_its_own_cell_in_order() {
        let mut brain = Brain::new(&[0]);
        assert_eq!(brain.step(Message::Start), vec![]);
        assert_eq!(brain.step(Message::Lease { image: 0, ticket: 1 }), vec![MAKE]);
        assert_eq!(brain.step(Message::Lease { image: 0, ticket: 2 }), vec![MAKE]);
        assert_eq!(brain.step(Message::Made { image: 0, cell: 7 }), vec![Effect::Hand { ticket: 1, cell: 7 }]);
        assert_eq!(brain.step(Message::Made { image: 0, cell: 8 }), vec![Effect::Hand { ticket: 2, cell: 8 }]);
        assert_eq!(brain.ready(), 0);
    }

    #[test]
    fn images_are_lines_of_their_own() {
        let mut brain = Brain::new(&[1, 0]);
        brain.step(Message::Start);
        brain.step(Message::Made { image: 0, cell: 1 });
        let watch = Effect::Watch { image: 1, wait: IMAGE_REST_AFTER };
        assert_eq!(brain.step(Message::Lease { image: 1, ticket: 5 }), vec![watch, Effect::Make { image: 1 }]);
        assert_eq!(brain.step(Message::Made { image: 1, cell: 2 }), vec![Effect::Hand { ticket: 5, cell: 2 }]);
        assert_eq!(brain.step(Message::Lease { image: 9, ticket: 6 }), vec![Effect::Refuse { ticket: 6 }]);
    }

    #[test]
    fn an_image_wakes_with_its_first_lease_and_falls_asleep_after_a_rest_without_one() {
        let watch = Effect::Watch { image: 1, wait: IMAGE_REST_AFTER };
        let make = Effect::Make { image: 1 };
        let mut brain = Brain::new(&[0, 1]);
        assert_eq!(brain.step(Message::Start), vec![], "nothing is kept ready of an image that nobody asked for");
        let effects = brain.step(Message::Lease { image: 1, ticket: 1 });
        assert_eq!(effects, vec![watch.clone(), make.clone(), make.clone()]);
        brain.step(Message::Made { image: 1, cell: 7 });
        brain.step(Message::Made { image: 1, cell: 8 });
        assert_eq!(brain.step(Message::Looked { image: 1 }), vec![watch.clone()], "it was wanted meanwhile");
        assert_eq!(
            brain.step(Message::Looked { image: 1 }),
            vec![Effect::Destroy { cell: 8 }, Effect::Rest { image: 1 }]
        );
        assert_eq!(brain.step(Message::Looked { image: 1 }), vec![]);
        let effects = brain.step(Message::Lease { image: 1, ticket: 2 });
        assert_eq!(effects, vec![watch, make.clone(), make], "it comes back on demand");
    }

    #[test]
    fn a_cell_that_comes_to_a_sleeping_line_is_destroyed_and_one_who_waits_keeps_it_awake() {
        let mut brain = Brain::new(&[0, 1]);
        brain.step(Message::Lease { image: 1, ticket: 1 });
        brain.step(Message::Looked { image: 1 });
        let effects = brain.step(Message::Looked { image: 1 });
        assert_eq!(effects, vec![Effect::Watch { image: 1, wait: IMAGE_REST_AFTER }]);
        brain.step(Message::Made { image: 1, cell: 7 });
        assert_eq!(brain.step(Message::Looked { image: 1 }), vec![Effect::Rest { image: 1 }]);
        assert_eq!(brain.step(Message::Made { image: 1, cell: 8 }), vec![Effect::Destroy { cell: 8 }]);
    }

    #[test]
    fn the_first_image_never_sleeps() {
        let mut brain = filled(1);
        assert_eq!(brain.step(Message::Looked { image: 0 }), vec![]);
        assert_eq!(brain.ready(), 1);
    }

    #[test]
    fn one_who_left_is_not_served() {
        let mut brain = Brain::new(&[0]);
        brain.step(Message::Lease { image: 0, ticket: 1 });
        brain.step(Message::Cancel { image: 0, ticket: 1 });
        assert_eq!(brain.step(Message::Made { image: 0, cell: 7 }), vec![]);
        assert_eq!(brain.step(Message::Lease { image: 0, ticket: 2 }), vec![Effect::Hand { ticket: 2, cell: 7 }]);
    }

    #[test]
    fn failures_are_told_to_one_caller_each_and_slow_the_stock_down() {
        let mut brain = Brain::new(&[1]);
        brain.step(Message::Start);
        brain.step(Message::Lease { image: 0, ticket: 1 });
        let effects = brain.step(Message::Failed { image: 0 });
        assert_eq!(effects, vec![Effect::Refuse { ticket: 1 }, Effect::Sleep(MAKE_BACKOFF_MIN)]);
        brain.step(Message::Failed { image: 0 });
        assert_eq!(brain.step(Message::Woke), vec![MAKE]);
        assert_eq!(brain.step(Message::Failed { image: 0 }), vec![Effect::Sleep(MAKE_BACKOFF_MIN * 2)]);
        assert_eq!(
            brain.step(Message::Lease { image: 0, ticket: 2 }),
            vec![MAKE],
            "a caller does not wait out the backoff"
        );
        assert_eq!(brain.step(Message::Made { image: 0, cell: 3 }), vec![Effect::Hand { ticket: 2, cell: 3 }]);
    }

    #[test]
    fn the_backoff_is_bounded() {
        let mut brain = Brain::new(&[1]);
        brain.step(Message::Start);
        let mut longest = Duration::ZERO;
        for _ in 0..100 {
            for effect in brain.step(Message::Failed { image: 0 }) {
                if let Effect::Sleep(wait) = effect {
                    longest = longest.max(wait);
                }
            }
            brain.step(Message::Woke);
        }
        assert_eq!(longest, MAKE_BACKOFF_MAX);
    }

    #[test]
    fn a_spoiled_cell_is_destroyed_and_replaced() {
        let mut brain = filled(1);
        assert_eq!(brain.step(Message::Spoiled { image: 0, cell: 1 }), vec![Effect::Destroy { cell: 1 }, MAKE]);
        assert_eq!(brain.ready(), 0);
    }

    #[test]
    fn a_closed_pool_keeps_nothing_and_makes_nothing() {
        let mut brain = filled(1);
        brain.step(Message::Lease { image: 0, ticket: 1 });
        brain.step(Message::Lease { image: 0, ticket: 2 });
        assert_eq!(brain.step(Message::Close), vec![Effect::Refuse { ticket: 2 }]);
        assert_eq!(brain.step(Message::Made { image: 0, cell: 5 }), vec![Effect::Destroy { cell: 5 }]);
        assert_eq!(brain.step(Message::Lease { image: 0, ticket: 3 }), vec![Effect::Refuse { ticket: 3 }]);
        assert_eq!(brain.step(Message::Failed { image: 0 }), vec![]);
    }
}
