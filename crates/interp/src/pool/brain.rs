//! What the pool decides. Pure: a message in, effects out.
//!
//! Each image is a line of its own: cells that are ready, callers that wait, cells in the making. A cell that is
//! handed out never comes back. Callers are served in the order in which they came.
//!
//! The first image's line is always awake. Another one wakes with its first lease, and falls asleep when a whole rest
//! went by without one: it then keeps nothing ready, and its zygote ends.
//!
//! How many cells a line keeps ready follows demand: each lease that found none adds one, up to the line's ceiling, and
//! each lull without such a lease takes half of what was added away. While memory is short nothing is made and
//! nothing is handed out but to those who wait for a cell that is in the making already.

use std::collections::VecDeque;
use std::time::Duration;

use crate::limits::{
    DEMAND_LULL, IMAGE_REST_AFTER, MAKE_BACKOFF_MAX, MAKE_BACKOFF_MIN, MAKES_IN_FLIGHT_MAX, MEMORY_LOOK_AGAIN,
};

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
    /// The wait that [`Effect::Lull`] asked for is over.
    Lulled { image: usize },
    /// Memory was looked at: whether it is short.
    Memory { short: bool },
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
    /// Send [`Message::Lulled`] after this long.
    Lull { image: usize, wait: Duration },
    /// Look at memory again after this long, and send [`Message::Memory`].
    LookAtMemory(Duration),
    /// Memory is short: tell the caller so.
    RefuseShort { ticket: Ticket },
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
    /// Memory is short.
    short: bool,
    closed: bool,
}

/// How many ready cells of an image are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    /// Always.
    pub(crate) least: usize,
    /// At most, when demand is high.
    pub(crate) most: usize,
}

#[derive(Debug, Default)]
struct Line {
    least: usize,
    most: usize,
    /// What demand has added to `least`.
    extra: usize,
    /// A lease found nothing ready since the last lull.
    missed: bool,
    /// A lull is waited for.
    lulling: bool,
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
    pub(crate) fn new(targets: &[Target]) -> Self {
        let mut brain = Brain { lines: Vec::new(), failures: 0, asleep: false, short: false, closed: false };
        targets.iter().for_each(|target| brain.add(*target));
        brain
    }

    /// A further image, asleep unless it is the first.
    pub(crate) fn add(&mut self, target: Target) {
        let first = self.lines.is_empty();
        let (least, most) = (target.least, target.most);
        self.lines.push(Line { least, most, awake: first, rests: !first, ..Line::default() });
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
            Message::Lulled { image } => self.lull(image, &mut effects),
            Message::Memory { short } => self.memory(short, &mut effects),
            Message::Close => self.close(&mut effects),
        }
        self.refill(&mut effects);
        effects
    }

    /// Cells that are ready, of all images.
    pub(crate) fn ready(&self) -> usize {
        self.lines.iter().map(|line| line.ready.len()).sum()
    }

    /// Whether memory is short, as far as it was told.
    pub(crate) fn is_short(&self) -> bool {
        self.short
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
        if self.short {
            effects.push(Effect::RefuseShort { ticket });
            return;
        }
        line.wanted = true;
        if !std::mem::replace(&mut line.awake, true) {
            effects.push(Effect::Watch { image, wait: IMAGE_REST_AFTER });
        }
        match line.ready.pop_front() {
            Some(cell) => effects.push(Effect::Hand { ticket, cell }),
            None => {
                line.waiting.push_back(ticket);
                line.missed = true;
                // A line that keeps nothing is not to begin with it.
                if line.least > 0 && line.least + line.extra < line.most {
                    line.extra += 1;
                }
            }
        }
        if line.extra > 0 && !std::mem::replace(&mut line.lulling, true) {
            effects.push(Effect::Lull { image, wait: DEMAND_LULL });
        }
    }

    /// A lull is over: without a lease that found nothing, half of what demand had added goes.
    fn lull(&mut self, image: usize, effects: &mut Vec<Effect>) {
        let Some(line) = self.lines.get_mut(image) else { return };
        if !std::mem::take(&mut line.missed) {
            line.extra /= 2;
            while line.ready.len() > line.least + line.extra
                && let Some(cell) = line.ready.pop_back()
            {
                effects.push(Effect::Destroy { cell });
            }
        }
        line.lulling = line.extra > 0 && !self.closed;
        if line.lulling {
            effects.push(Effect::Lull { image, wait: DEMAND_LULL });
        }
    }

    /// While memory is short it is looked at again and again, and nobody is kept waiting for it.
    fn memory(&mut self, short: bool, effects: &mut Vec<Effect>) {
        self.short = short && !self.closed;
        if !self.short {
            return;
        }
        for line in &mut self.lines {
            // Cells that are in the making are still handed out.
            while line.waiting.len() > line.making
                && let Some(ticket) = line.waiting.pop_back()
            {
                effects.push(Effect::RefuseShort { ticket });
            }
        }
        effects.push(Effect::LookAtMemory(MEMORY_LOOK_AGAIN));
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
        if self.closed || self.short {
            return;
        }
        let mut making: usize = self.lines.iter().map(|line| line.making).sum();
        for stock in [false, true] {
            if stock && self.asleep {
                return;
            }
            for (image, line) in self.lines.iter_mut().enumerate() {
                let wanted = line.waiting.len() + if stock && line.awake { line.least + line.extra } else { 0 };
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

    fn fixed(sizes: &[usize]) -> Brain {
        Brain::new(&sizes.iter().map(|&size| Target { least: size, most: size }).collect::<Vec<_>>())
    }

    fn filled(target: usize) -> Brain {
        let mut brain = fixed(&[target]);
        brain.step(Message::Start);
        for cell in 1..=target as u64 {
            brain.step(Message::Made { image: 0, cell });
        }
        assert_eq!(brain.ready(), target);
        brain
    }

    #[test]
    fn it_fills_itself_a_few_at_a_time() {
        let mut brain = fixed(&[6]);
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
        let mut brain = fixed(&[0]);
        assert_eq!(brain.step(Message::Start), vec![]);
        assert_eq!(brain.step(Message::Lease { image: 0, ticket: 1 }), vec![MAKE]);
        assert_eq!(brain.step(Message::Lease { image: 0, ticket: 2 }), vec![MAKE]);
        assert_eq!(brain.step(Message::Made { image: 0, cell: 7 }), vec![Effect::Hand { ticket: 1, cell: 7 }]);
        assert_eq!(brain.step(Message::Made { image: 0, cell: 8 }), vec![Effect::Hand { ticket: 2, cell: 8 }]);
        assert_eq!(brain.ready(), 0);
    }

    #[test]
    fn images_are_lines_of_their_own() {
        let mut brain = fixed(&[1, 0]);
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
        let mut brain = fixed(&[0, 1]);
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
        let mut brain = fixed(&[0, 1]);
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
        let mut brain = fixed(&[0]);
        brain.step(Message::Lease { image: 0, ticket: 1 });
        brain.step(Message::Cancel { image: 0, ticket: 1 });
        assert_eq!(brain.step(Message::Made { image: 0, cell: 7 }), vec![]);
        assert_eq!(brain.step(Message::Lease { image: 0, ticket: 2 }), vec![Effect::Hand { ticket: 2, cell: 7 }]);
    }

    #[test]
    fn failures_are_told_to_one_caller_each_and_slow_the_stock_down() {
        let mut brain = fixed(&[1]);
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
        let mut brain = fixed(&[1]);
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

    /// The numbers of cells that the effects ask to be made.
    fn makes(effects: &[Effect]) -> usize {
        effects.iter().filter(|effect| **effect == MAKE).count()
    }

    #[test]
    fn leases_that_find_nothing_raise_the_stock_up_to_its_ceiling_and_lulls_lower_it() {
        let mut brain = Brain::new(&[Target { least: 1, most: 4 }]);
        brain.step(Message::Start);
        let mut cell = 0;
        let mut wanted = 1;
        for ticket in 1..=10 {
            wanted += makes(&brain.step(Message::Lease { image: 0, ticket }));
        }
        // Every caller gets a cell, and then the stock is filled to the ceiling.
        while cell < wanted {
            cell += 1;
            wanted += makes(&brain.step(Message::Made { image: 0, cell: cell as u64 }));
        }
        assert_eq!((wanted, brain.ready()), (14, 4));
        let lull = Effect::Lull { image: 0, wait: DEMAND_LULL };
        assert_eq!(brain.step(Message::Lulled { image: 0 }), vec![lull.clone()], "the misses were in this one");
        let effects = brain.step(Message::Lulled { image: 0 });
        assert_eq!(effects.iter().filter(|effect| matches!(effect, Effect::Destroy { .. })).count(), 2);
        assert_eq!((brain.ready(), effects.last()), (2, Some(&lull)));
        let effects = brain.step(Message::Lulled { image: 0 });
        assert_eq!((brain.ready(), effects.len()), (1, 1), "at its least again, and no timer runs");
    }

    #[test]
    fn a_line_that_keeps_nothing_does_not_begin_with_it() {
        let mut brain = Brain::new(&[Target { least: 0, most: 4 }]);
        assert_eq!(brain.step(Message::Lease { image: 0, ticket: 1 }), vec![MAKE]);
        assert_eq!(brain.step(Message::Made { image: 0, cell: 1 }), vec![Effect::Hand { ticket: 1, cell: 1 }]);
    }

    #[test]
    fn short_memory_makes_nothing_and_keeps_nobody_waiting() {
        let look = Effect::LookAtMemory(MEMORY_LOOK_AGAIN);
        let mut brain = filled(1);
        assert_eq!(brain.step(Message::Memory { short: true }), vec![look.clone()]);
        assert_eq!(brain.step(Message::Lease { image: 0, ticket: 1 }), vec![Effect::RefuseShort { ticket: 1 }]);
        assert_eq!(brain.step(Message::Spoiled { image: 0, cell: 1 }), vec![Effect::Destroy { cell: 1 }]);
        assert_eq!(brain.step(Message::Memory { short: true }), vec![look]);
        assert_eq!(brain.step(Message::Memory { short: false }), vec![MAKE]);
    }

    #[test]
    fn when_memory_runs_short_only_cells_in_the_making_are_waited_for() {
        let mut brain = fixed(&[0]);
        for ticket in 1..=6 {
            brain.step(Message::Lease { image: 0, ticket });
        }
        let effects = brain.step(Message::Memory { short: true });
        let refused: Vec<_> = effects.iter().filter(|effect| matches!(effect, Effect::RefuseShort { .. })).collect();
        assert_eq!(refused, [&Effect::RefuseShort { ticket: 6 }, &Effect::RefuseShort { ticket: 5 }]);
        assert_eq!(brain.step(Message::Made { image: 0, cell: 1 }), vec![Effect::Hand { ticket: 1, cell: 1 }]);
    }

    #[test]
    fn a_closed_pool_has_no_timers() {
        let mut brain = Brain::new(&[Target { least: 1, most: 9 }]);
        brain.step(Message::Lease { image: 0, ticket: 1 });
        brain.step(Message::Lease { image: 0, ticket: 2 });
        brain.step(Message::Close);
        assert_eq!(brain.step(Message::Lulled { image: 0 }), vec![]);
        assert_eq!(brain.step(Message::Memory { short: true }), vec![]);
    }
}
