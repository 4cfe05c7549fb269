//! What the pool decides. Pure: a message in, effects out.
//!
//! Each set of zygotes ([`lines`](super::lines)) is a line of its own: cells that are ready, callers that wait, cells in the
//! making. A cell that is handed out never comes back. Callers are served in the order in which they came.
//!
//! The first image's line is always awake. Another one wakes with its first lease, and falls asleep when a whole rest
//! went by without one: it then keeps nothing ready, and its zygote ends with its last cell. One that is a workspace's is
//! forgotten with that; a new set is begun when the workspace comes again. While memory is short, idle ones end before.
//!
//! A line's zygote is replaced when it has forked so often, or has been in use for so long ([`renewal`](super::renewal)).
//! Cells of the one before are handed out as before, and as long as any wait, one after the other is replaced.
//!
//! How many cells a line keeps ready follows demand: each lease that found none adds one, up to the line's ceiling, and
//! each lull without such a lease takes half of what was added away. While memory is short nothing is made and
//! nothing is handed out but to those who wait for a cell that is in the making already.

use std::collections::BTreeMap;
use std::time::Duration;

use ringfence_op::WorkspaceId;

use super::lines::{Line, Lines, Place};
use super::renewal::{Current, Renewal};
use crate::keeper_link::Origin;
use crate::limits::{
    DEMAND_LULL, IMAGE_REST_AFTER, MAKE_BACKOFF_MAX, MAKE_BACKOFF_MIN, MAKES_IN_FLIGHT_MAX, MAKES_OF_OTHERS_MAX,
    MEMORY_LOOK_AGAIN, RENEWALS_IN_FLIGHT_MAX, STALE_REPLACED_AT_ONCE_MAX,
};

/// A caller's number: greater than that of whoever came before.
pub(crate) type Ticket = u64;
/// A cell's number.
pub(crate) type CellId = u64;
/// The number of a set of zygotes.
pub(crate) type SetId = u32;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// Begin to fill.
    Start,
    /// A caller wants a cell of the image, for this workspace.
    Lease { image: usize, workspace: Option<WorkspaceId>, ticket: Ticket },
    /// The caller no longer waits.
    Cancel { ticket: Ticket },
    /// A cell is ready, whose interpreter was forked from this zygote.
    Made { set: SetId, cell: CellId, origin: Origin },
    /// A cell could not be made.
    Failed { set: SetId },
    /// A ready cell turned out to be dead when it was to be handed out.
    Spoiled { set: SetId, cell: CellId },
    /// The wait that [`Effect::Sleep`] asked for is over.
    Woke,
    /// The wait that [`Effect::Watch`] asked for is over.
    Looked { set: SetId },
    /// The wait that [`Effect::Lull`] asked for is over.
    Lulled { set: SetId },
    /// From now on this zygote forks.
    TookOver { set: SetId, zygote: u32 },
    /// The zygote that [`Effect::Renew`] asked for did not come up.
    NotRenewed { set: SetId, errno: i32 },
    /// The wait that [`Effect::RenewLater`] asked for is over.
    RenewAgain { set: SetId },
    /// The wait that [`Effect::Age`] asked for is over.
    Aged { set: SetId, zygote: u32 },
    /// Memory was looked at: whether it is short.
    Memory { short: bool },
    /// Nothing is left of a cell.
    Gone { set: SetId, cell: CellId },
    /// No more leases: everything that is ready is given up.
    Close,
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Make a cell of the image, whose interpreters are of this set.
    Make { image: usize, set: SetId },
    /// Give the cell to the caller.
    Hand { ticket: Ticket, cell: CellId },
    /// Tell the caller that there is none: the last attempt failed, or the pool is closed.
    Refuse { ticket: Ticket },
    /// Destroy the cell.
    Destroy { cell: CellId },
    /// Send [`Message::Woke`] after this long.
    Sleep(Duration),
    /// Send [`Message::Looked`] after this long.
    Watch { set: SetId, wait: Duration },
    /// Send [`Message::Lulled`] after this long.
    Lull { set: SetId, wait: Duration },
    /// Have the set's zygote replaced.
    Renew { set: SetId },
    /// It could not be replaced: send [`Message::RenewAgain`] after this long. `first` is whether it is the first time in
    /// a row.
    RenewLater { set: SetId, errno: i32, wait: Duration, first: bool },
    /// Send [`Message::Aged`] after this long; nobody waits for an earlier one of the set any more.
    Age { set: SetId, zygote: u32, wait: Duration },
    /// Look at memory again after this long, and send [`Message::Memory`].
    LookAtMemory(Duration),
    /// Memory is short: tell the caller so.
    RefuseShort { ticket: Ticket },
    /// As many sets as there may be have cells in somebody's hands: tell the caller so.
    RefuseFull {
        /// Who waits.
        ticket: Ticket,
        /// So many must have none any more.
        sets: usize,
    },
    /// Nobody wants the set for now: its zygote can end.
    Rest { set: SetId },
    /// Nobody will ever want the set again: its zygote can end, and what waits for its time is off.
    End { set: SetId },
}

/// The pool's state.
#[derive(Debug)]
pub(crate) struct Brain {
    renewal: Renewal,
    lines: Lines,
    /// Cells in the making, of all sets.
    making: usize,
    /// Of sets that have ended, of images other than the first: cells that were in the making and still are.
    making_of_ended: BTreeMap<SetId, usize>,
    /// Messages so far.
    steps: u64,
    /// Failures in a row, over all sets.
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

impl Brain {
    /// A pool without images. `apart` is how many sets there may be at the same time that are one workspace's; where it is
    /// `None`, each image has one set for all.
    pub(crate) fn new(renewal: Renewal, apart: Option<usize>) -> Self {
        Brain {
            renewal,
            lines: Lines::new(apart),
            making: 0,
            making_of_ended: BTreeMap::new(),
            steps: 0,
            failures: 0,
            asleep: false,
            short: false,
            closed: false,
        }
    }

    /// A further image, asleep unless it is the first. `forks` is whether its cells are forked from a zygote.
    pub(crate) fn add(&mut self, target: Target, forks: bool) {
        self.lines.add(target, forks);
    }

    /// Takes a message.
    pub(crate) fn step(&mut self, message: Message) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.steps += 1;
        match message {
            Message::Start => {}
            Message::Lease { image, workspace, ticket } => self.lease(image, workspace, ticket, &mut effects),
            Message::Cancel { ticket } => {
                self.lines.iter_mut().for_each(|(_, line)| line.waiting.retain(|waiting| *waiting != ticket));
            }
            Message::Made { set, cell, origin } => self.made(set, cell, origin, &mut effects),
            Message::Failed { set } => self.failed(set, &mut effects),
            Message::Spoiled { set, cell } => {
                if let Some(line) = self.lines.get_mut(set)
                    && let Some(place) = line.ready.iter().position(|ready| *ready == cell)
                {
                    line.ready.remove(place);
                    line.stale -= usize::from(place < line.stale);
                }
                effects.push(Effect::Destroy { cell });
            }
            Message::Woke => self.asleep = false,
            Message::Looked { set } => self.look(set, &mut effects),
            Message::Lulled { set } => self.lull(set, &mut effects),
            Message::TookOver { set, zygote } => self.took_over(set, zygote, &mut effects),
            Message::NotRenewed { set, errno } => self.not_renewed(set, errno, &mut effects),
            Message::RenewAgain { set } => {
                if let Some(line) = self.lines.get_mut(set) {
                    line.current.try_again();
                }
            }
            Message::Aged { set, zygote } => self.aged(set, zygote, &mut effects),
            Message::Memory { short } => self.memory(short, &mut effects),
            Message::Gone { set, cell } => self.gone(set, cell, &mut effects),
            Message::Close => self.close(&mut effects),
        }
        self.refill(&mut effects);
        self.renew(&mut effects);
        effects
    }

    /// Cells that are ready, of all images.
    pub(crate) fn ready(&self) -> usize {
        self.lines.iter().map(|(_, line)| line.ready.len()).sum()
    }

    /// Sets that are one workspace's, or are to be; none where workspaces are not apart.
    pub(crate) fn apart(&self) -> usize {
        self.lines.count()
    }

    /// Whether memory is short, as far as it was told.
    pub(crate) fn is_short(&self) -> bool {
        self.short
    }

    /// The cell that the next lease of this image for this workspace gets, and its set.
    pub(crate) fn next_ready(&self, image: usize, workspace: Option<&WorkspaceId>) -> Option<(SetId, CellId)> {
        let (Place::Set(set) | Place::Spare(set)) = self.lines.place(image, workspace) else { return None };
        Some((set, *self.lines.get(set)?.ready.front()?))
    }

    /// The image of a set.
    pub(crate) fn image_of(&self, set: SetId) -> Option<usize> {
        self.lines.get(set).map(|line| line.image)
    }

    fn lease(&mut self, image: usize, workspace: Option<WorkspaceId>, ticket: Ticket, effects: &mut Vec<Effect>) {
        let place = self.lines.place(image, workspace.as_ref());
        if self.closed || place == Place::Nowhere {
            effects.push(Effect::Refuse { ticket });
            return;
        }
        if self.short {
            effects.push(Effect::RefuseShort { ticket });
            return;
        }
        let set = match place {
            Place::Nowhere => None,
            Place::Full { sets } => {
                effects.push(Effect::RefuseFull { ticket, sets });
                return;
            }
            Place::Set(set) => Some(set),
            Place::Spare(set) => {
                self.lines.give(set, workspace);
                Some(set)
            }
            Place::InsteadOf(idle) => {
                self.end(idle, effects);
                self.lines.open(image, workspace)
            }
            Place::New => self.lines.open(image, workspace),
        };
        match set {
            Some(set) => self.serve(set, ticket, effects),
            None => effects.push(Effect::Refuse { ticket }),
        }
    }

    /// A caller gets a cell of this set, or waits for one.
    fn serve(&mut self, set: SetId, ticket: Ticket, effects: &mut Vec<Effect>) {
        let Some(line) = self.lines.get_mut(set) else { return };
        line.wanted = true;
        line.used = self.steps;
        if !std::mem::replace(&mut line.awake, true) {
            effects.push(Effect::Watch { set, wait: IMAGE_REST_AFTER });
        }
        match line.take_ready() {
            Some(cell) => {
                line.handed(cell);
                effects.push(Effect::Hand { ticket, cell });
            }
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
            effects.push(Effect::Lull { set, wait: DEMAND_LULL });
        }
    }

    /// A cell is gone: a set that sleeps and was a workspace's may be forgotten with its last.
    fn gone(&mut self, set: SetId, cell: CellId, effects: &mut Vec<Effect>) {
        let Some(line) = self.lines.get_mut(set).filter(|line| line.out.contains(&cell)) else { return };
        line.out.remove(&cell);
        line.used = self.steps;
        if !line.awake && line.is_idle() {
            self.end(set, effects);
        }
    }

    /// Nobody gets a cell of this set any more.
    fn end(&mut self, set: SetId, effects: &mut Vec<Effect>) {
        let Some(line) = self.lines.remove(set) else { return };
        if line.image > 0 && line.making > 0 {
            self.making_of_ended.insert(set, line.making);
        }
        effects.extend(line.ready.into_iter().map(|cell| Effect::Destroy { cell }));
        effects.push(Effect::End { set });
    }

    /// A lull is over: without a lease that found nothing, half of what demand had added goes.
    fn lull(&mut self, set: SetId, effects: &mut Vec<Effect>) {
        let Some(line) = self.lines.get_mut(set) else { return };
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
            effects.push(Effect::Lull { set, wait: DEMAND_LULL });
        }
    }

    /// While memory is short it is looked at again and again, and nobody is kept waiting for it.
    fn memory(&mut self, short: bool, effects: &mut Vec<Effect>) {
        self.short = short && !self.closed;
        if !self.short {
            return;
        }
        for (_, line) in self.lines.iter_mut() {
            // Cells that are in the making are still handed out.
            while line.waiting.len() > line.making
                && let Some(ticket) = line.waiting.pop_back()
            {
                effects.push(Effect::RefuseShort { ticket });
            }
        }
        // One after the other: what the first gives back may be enough.
        if let Some(idle) = self.lines.longest_idle(|_| true) {
            self.end(idle, effects);
        }
        effects.push(Effect::LookAtMemory(MEMORY_LOOK_AGAIN));
    }

    /// A rest is over: without a lease in it, and nobody waiting, the line falls asleep.
    fn look(&mut self, set: SetId, effects: &mut Vec<Effect>) {
        let Some(line) = self.lines.get_mut(set).filter(|line| line.rests && line.awake && !self.closed) else {
            return;
        };
        if std::mem::take(&mut line.wanted) || !line.waiting.is_empty() {
            effects.push(Effect::Watch { set, wait: IMAGE_REST_AFTER });
            return;
        }
        line.awake = false;
        line.stale = 0;
        line.current.rest();
        effects.extend(line.ready.drain(..).map(|cell| Effect::Destroy { cell }));
        if line.is_idle() {
            self.end(set, effects);
        } else {
            effects.push(Effect::Rest { set });
        }
    }

    /// A cell of the set is not in the making any more.
    fn one_less_in_the_making(&mut self, set: SetId) {
        self.making = self.making.saturating_sub(1);
        if let Some(line) = self.lines.get_mut(set) {
            line.making = line.making.saturating_sub(1);
        } else if let Some(left) = self.making_of_ended.get_mut(&set) {
            *left -= 1;
            if *left == 0 {
                self.making_of_ended.remove(&set);
            }
        }
    }

    fn made(&mut self, set: SetId, cell: CellId, origin: Origin, effects: &mut Vec<Effect>) {
        self.failures = 0;
        self.one_less_in_the_making(set);
        // It may be known by this before it is by its own news.
        self.took_over(set, origin.zygote, effects);
        let Some(line) = self.lines.get_mut(set) else {
            // Its set was ended while it was made, and may have been started again for it.
            effects.extend([Effect::Destroy { cell }, Effect::End { set }]);
            return;
        };
        line.current.forked(origin, self.renewal);
        let fresh = line.current.is(origin.zygote);
        if let Some(ticket) = line.waiting.pop_front() {
            if fresh {
                line.current.exposed();
            }
            line.handed(cell);
            effects.push(Effect::Hand { ticket, cell });
        } else if self.closed {
            effects.push(Effect::Destroy { cell });
        } else if !line.awake {
            effects.extend([Effect::Destroy { cell }, Effect::Rest { set }]);
        } else if fresh {
            line.ready.push_back(cell);
        } else {
            line.ready.push_front(cell);
            line.stale += 1;
        }
        line.give_up_stale(effects);
    }

    /// What is ready was forked by another zygote than the one that forks now.
    fn took_over(&mut self, set: SetId, zygote: u32, effects: &mut Vec<Effect>) {
        let Some(line) = self.lines.get_mut(set).filter(|line| line.current.is_before(zygote)) else { return };
        line.current = Current::new(zygote);
        line.stale = line.ready.len();
        line.give_up_stale(effects);
        if let Some(wait) = self.renewal.age_max.filter(|_| !self.closed) {
            effects.push(Effect::Age { set, zygote, wait });
        }
    }

    fn aged(&mut self, set: SetId, zygote: u32, effects: &mut Vec<Effect>) {
        let Some(line) = self.lines.get_mut(set).filter(|line| line.current.is(zygote) && !self.closed) else {
            return;
        };
        // Of one of which nobody has had a cell, nobody knows anything: its time begins anew.
        if !line.current.aged()
            && let Some(wait) = self.renewal.age_max
        {
            effects.push(Effect::Age { set, zygote, wait });
        }
    }

    fn not_renewed(&mut self, set: SetId, errno: i32, effects: &mut Vec<Effect>) {
        let Some(line) = self.lines.get_mut(set).filter(|_| !self.closed) else { return };
        if let Some((wait, first)) = line.current.not_renewed() {
            effects.push(Effect::RenewLater { set, errno, wait, first });
        }
    }

    /// Has zygotes replaced whose time has come, a few at a time, and none while memory is short: for a while there are
    /// two of an image.
    fn renew(&mut self, effects: &mut Vec<Effect>) {
        if self.closed || self.short {
            return;
        }
        let mut under_way = self.lines.iter().filter(|(_, line)| line.current.is_renewing()).count();
        for (set, line) in self.lines.iter_mut().filter(|(_, line)| line.awake) {
            if under_way < RENEWALS_IN_FLIGHT_MAX && line.current.begin_renewal() {
                under_way += 1;
                effects.push(Effect::Renew { set });
            }
        }
    }

    /// The caller who has waited longest is told; the others get attempts of their own.
    fn failed(&mut self, set: SetId, effects: &mut Vec<Effect>) {
        self.one_less_in_the_making(set);
        match self.lines.get_mut(set) {
            Some(line) => {
                if let Some(ticket) = line.waiting.pop_front() {
                    effects.push(Effect::Refuse { ticket });
                }
            }
            None => effects.push(Effect::End { set }),
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
        for (_, line) in self.lines.iter_mut() {
            line.stale = 0;
            effects.extend(line.waiting.drain(..).map(|ticket| Effect::Refuse { ticket }));
            effects.extend(line.ready.drain(..).map(|cell| Effect::Destroy { cell }));
        }
    }

    /// Starts what is missing: first for those who wait, in the order in which they came, whatever their image; then,
    /// unless failures hold it back, for the stock. Those of images other than the first never take all of what is made
    /// at the same time: their zygotes may be slow to come up, or never do.
    fn refill(&mut self, effects: &mut Vec<Effect>) {
        if self.closed || self.short {
            return;
        }
        let of_others = self.lines.iter().filter(|(_, line)| line.image > 0).map(|(_, line)| line.making);
        let of_others = of_others.sum::<usize>() + self.making_of_ended.values().sum::<usize>();
        let mut free_of_others = MAKES_OF_OTHERS_MAX.saturating_sub(of_others);
        let mut free = MAKES_IN_FLIGHT_MAX.saturating_sub(self.making);
        let making = &mut self.making;
        let mut make = |set: SetId, line: &mut Line| {
            line.making += 1;
            *making += 1;
            effects.push(Effect::Make { image: line.image, set });
        };
        while free > 0 {
            // The first of each line for whom nothing is in the making; nothing is ready where somebody waits.
            let next = |(set, line): (SetId, &Line)| {
                let first = line.waiting.get(line.making).filter(|_| line.image == 0 || free_of_others > 0);
                first.map(|ticket| (*ticket, set))
            };
            let longest = self.lines.iter().filter_map(next).min();
            let Some((set, line)) = longest.and_then(|(_, set)| Some((set, self.lines.get_mut(set)?))) else {
                break;
            };
            make(set, line);
            free -= 1;
            free_of_others -= usize::from(line.image > 0);
        }
        if self.asleep {
            return;
        }
        self.lines.keep_a_spare();
        for (set, line) in self.lines.iter_mut().filter(|(_, line)| line.awake) {
            let wanted = line.waiting.len() + line.target() + line.stale.min(STALE_REPLACED_AT_ONCE_MAX);
            while line.ready.len() + line.making < wanted && free > 0 && (line.image == 0 || free_of_others > 0) {
                make(set, line);
                free -= 1;
                free_of_others -= usize::from(line.image > 0);
            }
        }
    }
}
