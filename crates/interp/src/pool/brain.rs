//! What the pool decides. Pure: a message in, effects out.
//!
//! Each image is a line of its own: cells that are ready, callers that wait, cells in the making. A cell that is
//! handed out never comes back. Callers are served in the order in which they came.
//!
//! The first image's line is always awake. Another one wakes with its first lease, and falls asleep when a whole rest
//! went by without one: it then keeps nothing ready, and its zygote ends.
//!
//! A line's zygote is replaced when it has forked so often, or has been in use for so long ([`renewal`](super::renewal)).
//! Cells of the one before are handed out as before, and as long as any wait, one after the other is replaced.
//!
//! How many cells a line keeps ready follows demand: each lease that found none adds one, up to the line's ceiling, and
//! each lull without such a lease takes half of what was added away. While memory is short nothing is made and
//! nothing is handed out but to those who wait for a cell that is in the making already.

use std::collections::VecDeque;
use std::time::Duration;

use super::renewal::{Current, Renewal};
use crate::keeper_link::Origin;
use crate::limits::{
    DEMAND_LULL, IMAGE_REST_AFTER, MAKE_BACKOFF_MAX, MAKE_BACKOFF_MIN, MAKES_IN_FLIGHT_MAX, MEMORY_LOOK_AGAIN,
    RENEWALS_IN_FLIGHT_MAX, STALE_REPLACED_AT_ONCE_MAX,
};

/// A caller's number: greater than that of whoever came before.
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
    /// A cell is ready, whose interpreter was forked from this zygote.
    Made { image: usize, cell: CellId, origin: Origin },
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
    /// From now on this zygote forks.
    TookOver { image: usize, zygote: u32 },
    /// The zygote that [`Effect::Renew`] asked for did not come up.
    NotRenewed { image: usize, errno: i32 },
    /// The wait that [`Effect::RenewLater`] asked for is over.
    RenewAgain { image: usize },
    /// The wait that [`Effect::Age`] asked for is over.
    Aged { image: usize, zygote: u32 },
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
    /// Have the image's zygote replaced.
    Renew { image: usize },
    /// It could not be replaced: send [`Message::RenewAgain`] after this long. `first` is whether it is the first time in
    /// a row.
    RenewLater { image: usize, errno: i32, wait: Duration, first: bool },
    /// Send [`Message::Aged`] after this long; nobody waits for an earlier one of the image any more.
    Age { image: usize, zygote: u32, wait: Duration },
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
    renewal: Renewal,
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
    /// How many of those that are ready, from the front, are of a zygote that was replaced.
    stale: usize,
    waiting: VecDeque<Ticket>,
    making: usize,
    /// The zygote that forks.
    current: Current,
}

impl Line {
    /// How many are to be ready.
    fn target(&self) -> usize {
        self.least + self.extra
    }

    /// The next one that is ready goes to a caller.
    fn take_ready(&mut self) -> Option<CellId> {
        let cell = self.ready.pop_front()?;
        match self.stale.checked_sub(1) {
            Some(left) => self.stale = left,
            None => self.current.exposed(),
        }
        Some(cell)
    }

    /// One that is ready and not needed, those of a zygote that was replaced first.
    fn give_up(&mut self) -> Option<CellId> {
        match self.stale.checked_sub(1) {
            Some(left) => {
                self.stale = left;
                self.ready.pop_front()
            }
            None => self.ready.pop_back(),
        }
    }

    /// Gives up what is of a zygote that was replaced, as far as there is enough without it.
    fn give_up_stale(&mut self, effects: &mut Vec<Effect>) {
        while self.stale > 0
            && self.ready.len() > self.target()
            && let Some(cell) = self.give_up()
        {
            effects.push(Effect::Destroy { cell });
        }
    }
}

impl Brain {
    /// A pool with this many ready cells wanted of each image.
    pub(crate) fn new(renewal: Renewal, targets: &[Target]) -> Self {
        let mut brain = Brain { renewal, lines: Vec::new(), failures: 0, asleep: false, short: false, closed: false };
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
            Message::Made { image, cell, origin } => self.made(image, cell, origin, &mut effects),
            Message::Failed { image } => self.failed(image, &mut effects),
            Message::Spoiled { image, cell } => {
                if let Some(line) = self.lines.get_mut(image)
                    && let Some(place) = line.ready.iter().position(|ready| *ready == cell)
                {
                    line.ready.remove(place);
                    line.stale -= usize::from(place < line.stale);
                }
                effects.push(Effect::Destroy { cell });
            }
            Message::Woke => self.asleep = false,
            Message::Looked { image } => self.look(image, &mut effects),
            Message::Lulled { image } => self.lull(image, &mut effects),
            Message::TookOver { image, zygote } => self.took_over(image, zygote, &mut effects),
            Message::NotRenewed { image, errno } => self.not_renewed(image, errno, &mut effects),
            Message::RenewAgain { image } => {
                if let Some(line) = self.lines.get_mut(image) {
                    line.current.try_again();
                }
            }
            Message::Aged { image, zygote } => self.aged(image, zygote, &mut effects),
            Message::Memory { short } => self.memory(short, &mut effects),
            Message::Close => self.close(&mut effects),
        }
        self.refill(&mut effects);
        self.renew(&mut effects);
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
        match line.take_ready() {
            Some(cell) => effects.push(Effect::Hand { ticket, cell }),
            None => {
                line.waiting.push_back(ticket);
                line.missed = true;
                // A line that keeps nothing is not to begin with it.
                if line.least > 0 && line.target() < line.most {
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
            while line.ready.len() > line.target()
                && let Some(cell) = line.give_up()
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
        line.stale = 0;
        line.current.rest();
        effects.extend(line.ready.drain(..).map(|cell| Effect::Destroy { cell }));
        effects.push(Effect::Rest { image });
    }

    fn made(&mut self, image: usize, cell: CellId, origin: Origin, effects: &mut Vec<Effect>) {
        self.failures = 0;
        // It may be known by this before it is by its own news.
        self.took_over(image, origin.zygote, effects);
        let Some(line) = self.lines.get_mut(image) else { return };
        line.making = line.making.saturating_sub(1);
        line.current.forked(origin, self.renewal);
        let fresh = line.current.is(origin.zygote);
        if let Some(ticket) = line.waiting.pop_front() {
            if fresh {
                line.current.exposed();
            }
            effects.push(Effect::Hand { ticket, cell });
        } else if self.closed || !line.awake {
            effects.push(Effect::Destroy { cell });
        } else if fresh {
            line.ready.push_back(cell);
        } else {
            line.ready.push_front(cell);
            line.stale += 1;
        }
        line.give_up_stale(effects);
    }

    /// What is ready was forked by another zygote than the one that forks now.
    fn took_over(&mut self, image: usize, zygote: u32, effects: &mut Vec<Effect>) {
        let Some(line) = self.lines.get_mut(image).filter(|line| line.current.is_before(zygote)) else { return };
        line.current = Current::new(zygote);
        line.stale = line.ready.len();
        line.give_up_stale(effects);
        if let Some(wait) = self.renewal.age_max.filter(|_| !self.closed) {
            effects.push(Effect::Age { image, zygote, wait });
        }
    }

    fn aged(&mut self, image: usize, zygote: u32, effects: &mut Vec<Effect>) {
        let Some(line) = self.lines.get_mut(image).filter(|line| line.current.is(zygote) && !self.closed) else {
            return;
        };
        // Of one of which nobody has had a cell, nobody knows anything: its time begins anew.
        if !line.current.aged()
            && let Some(wait) = self.renewal.age_max
        {
            effects.push(Effect::Age { image, zygote, wait });
        }
    }

    fn not_renewed(&mut self, image: usize, errno: i32, effects: &mut Vec<Effect>) {
        let Some(line) = self.lines.get_mut(image).filter(|_| !self.closed) else { return };
        if let Some((wait, first)) = line.current.not_renewed() {
            effects.push(Effect::RenewLater { image, errno, wait, first });
        }
    }

    /// Has zygotes replaced whose time has come, a few at a time, and none while memory is short: for a while there are
    /// two of an image.
    fn renew(&mut self, effects: &mut Vec<Effect>) {
        if self.closed || self.short {
            return;
        }
        let mut under_way = self.lines.iter().filter(|line| line.current.is_renewing()).count();
        for (image, line) in self.lines.iter_mut().enumerate().filter(|(_, line)| line.awake) {
            if under_way < RENEWALS_IN_FLIGHT_MAX && line.current.begin_renewal() {
                under_way += 1;
                effects.push(Effect::Renew { image });
            }
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
            line.stale = 0;
            effects.extend(line.waiting.drain(..).map(|ticket| Effect::Refuse { ticket }));
            effects.extend(line.ready.drain(..).map(|cell| Effect::Destroy { cell }));
        }
    }

    /// Starts what is missing: first for those who wait, in the order in which they came, whatever their image; then,
    /// unless failures hold it back, for the stock.
    fn refill(&mut self, effects: &mut Vec<Effect>) {
        if self.closed || self.short {
            return;
        }
        let mut free = MAKES_IN_FLIGHT_MAX.saturating_sub(self.lines.iter().map(|line| line.making).sum());
        let mut make = |image: usize, line: &mut Line| {
            line.making += 1;
            effects.push(Effect::Make { image });
        };
        while free > 0 {
            // The first of each line for whom nothing is in the making; nothing is ready where somebody waits.
            let next = |(image, line): (usize, &Line)| line.waiting.get(line.making).map(|ticket| (*ticket, image));
            let longest = self.lines.iter().enumerate().filter_map(next).min();
            let Some((image, line)) = longest.and_then(|(_, image)| Some((image, self.lines.get_mut(image)?))) else {
                break;
            };
            make(image, line);
            free -= 1;
        }
        if self.asleep {
            return;
        }
        for (image, line) in self.lines.iter_mut().enumerate().filter(|(_, line)| line.awake) {
            let wanted = line.waiting.len() + line.target() + line.stale.min(STALE_REPLACED_AT_ONCE_MAX);
            while line.ready.len() + line.making < wanted && free > 0 {
                make(image, line);
                free -= 1;
            }
        }
    }
}
