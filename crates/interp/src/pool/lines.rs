//! The lines of the pool: one for each set of zygotes, and which of them serves whom. Pure.
//!
//! A set is the zygotes of one image, one after the other, and a cell is of one set. Where nothing else is asked for,
//! each image has one set, which serves everybody, and whose number is the image's. Where workspaces are kept *apart*, a
//! set serves one workspace, from its first cell to its last, and no number comes twice: what one has forked for a
//! workspace is never another's. One set of the first image is kept that is nobody's yet, the *spare*: whoever comes
//! new takes it over as it is, for good, and another one is started.
//!
//! Of sets that are apart there are never more than so many. One of which no cell is in anyone's hands, and none is waited for,
//! is *idle*: where there is no room for another, the one that was used longest ago ends for it. Where none is idle, there
//! is none for a workspace that has none. A workspace that has one does not take the last.

use std::collections::{BTreeMap, HashSet, VecDeque};

use ringfence_op::WorkspaceId;
use ringfence_weaken::{Mitigation, holds};

use super::brain::{CellId, Effect, SetId, Target, Ticket};
use super::renewal::Current;

/// Whose a set is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Owner {
    /// Everybody's.
    All,
    /// Nobody's yet.
    Spare,
    /// This workspace's; `None` is whoever has none.
    One(Option<WorkspaceId>),
}

/// One set.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) image: usize,
    pub(super) owner: Owner,
    pub(super) least: usize,
    pub(super) most: usize,
    /// What demand has added to `least`.
    pub(super) extra: usize,
    /// A lease found nothing ready since the last lull.
    pub(super) missed: bool,
    /// A lull is waited for.
    pub(super) lulling: bool,
    /// Whether cells are kept ready.
    pub(super) awake: bool,
    /// Whether it ever falls asleep.
    pub(super) rests: bool,
    /// There was a lease since the last look.
    pub(super) wanted: bool,
    pub(super) ready: VecDeque<CellId>,
    /// How many of those that are ready, from the front, are of a zygote that was replaced.
    pub(super) stale: usize,
    pub(super) waiting: VecDeque<Ticket>,
    pub(super) making: usize,
    /// The zygote that forks.
    pub(super) current: Current,
    /// Of a set that is one workspace's, the cells that were handed out and are not gone.
    pub(super) out: HashSet<CellId>,
    /// When a cell of it was last asked for, or was last gone: greater than for whatever was before.
    pub(super) used: u64,
}

impl Line {
    fn new(image: usize, owner: Owner, target: Target) -> Line {
        let first = image == 0 && !matches!(owner, Owner::One(_));
        Line {
            image,
            least: target.least,
            most: target.most,
            extra: 0,
            missed: false,
            lulling: false,
            awake: first,
            rests: !first,
            wanted: false,
            ready: VecDeque::new(),
            stale: 0,
            waiting: VecDeque::new(),
            making: 0,
            current: Current::default(),
            out: HashSet::new(),
            used: 0,
            owner,
        }
    }

    /// How many are to be ready.
    pub(super) fn target(&self) -> usize {
        self.least + self.extra
    }

    /// The next one that is ready goes to a caller.
    pub(super) fn take_ready(&mut self) -> Option<CellId> {
        let cell = self.ready.pop_front()?;
        match self.stale.checked_sub(1) {
            Some(left) => self.stale = left,
            None => self.current.exposed(),
        }
        Some(cell)
    }

    /// The cell is in a caller's hands.
    pub(super) fn handed(&mut self, cell: CellId) {
        if self.is_one_workspaces() {
            self.out.insert(cell);
        }
    }

    /// One that is ready and not needed, those of a zygote that was replaced first.
    pub(super) fn give_up(&mut self) -> Option<CellId> {
        match self.stale.checked_sub(1) {
            Some(left) => {
                self.stale = left;
                self.ready.pop_front()
            }
            None => self.ready.pop_back(),
        }
    }

    /// Gives up what is of a zygote that was replaced, as far as there is enough without it.
    pub(super) fn give_up_stale(&mut self, effects: &mut Vec<Effect>) {
        while self.stale > 0
            && self.ready.len() > self.target()
            && let Some(cell) = self.give_up()
        {
            effects.push(Effect::Destroy { cell });
        }
    }

    fn is_one_workspaces(&self) -> bool {
        matches!(self.owner, Owner::One(_))
    }

    /// One workspace's, of which no cell is in anyone's hands, and none is waited for.
    pub(super) fn is_idle(&self) -> bool {
        self.is_one_workspaces() && self.out.is_empty() && self.waiting.is_empty()
    }
}

/// Where a lease gets its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Of this set.
    Set(SetId),
    /// Of the spare, which is the workspace's from now on.
    Spare(SetId),
    /// Of a new set.
    New,
    /// Of a new set, once this one is ended for it.
    InsteadOf(SetId),
    /// So many sets have to become idle first.
    Full {
        /// At least 1.
        sets: usize,
    },
    /// There is no such image.
    Nowhere,
}

/// All lines.
#[derive(Debug)]
pub(super) struct Lines {
    all: BTreeMap<SetId, Line>,
    images: Vec<Image>,
    /// How many sets there may be that are one workspace's, or are to be; `None` is one set of each image for all.
    apart: Option<usize>,
    /// The number of the next set.
    next: SetId,
}

#[derive(Debug)]
struct Image {
    target: Target,
    /// Whether its cells are forked from a zygote; what has none shares none.
    forks: bool,
}

impl Lines {
    pub(super) fn new(apart: Option<usize>) -> Lines {
        let apart = apart.filter(|_| holds(Mitigation::ZygotesApart));
        Lines { all: BTreeMap::new(), images: Vec::new(), apart, next: 0 }
    }

    /// A further image.
    pub(super) fn add(&mut self, target: Target, forks: bool) {
        let image = self.images.len();
        self.images.push(Image { target, forks });
        if !self.is_apart(image) {
            self.insert(Line::new(image, Owner::All, target));
        } else if image == 0 {
            // The keeper has started the zygote of the first set already.
            self.insert(Line::new(image, Owner::Spare, for_one(target)));
        }
    }

    pub(super) fn get(&self, set: SetId) -> Option<&Line> {
        self.all.get(&set)
    }

    pub(super) fn get_mut(&mut self, set: SetId) -> Option<&mut Line> {
        self.all.get_mut(&set)
    }

    pub(super) fn remove(&mut self, set: SetId) -> Option<Line> {
        self.all.remove(&set)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SetId, &Line)> {
        self.all.iter().map(|(set, line)| (*set, line))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (SetId, &mut Line)> {
        self.all.iter_mut().map(|(set, line)| (*set, line))
    }

    /// Where a lease of this image for this workspace gets its cell.
    pub(super) fn place(&self, image: usize, workspace: Option<&WorkspaceId>) -> Place {
        if image >= self.images.len() {
            return Place::Nowhere;
        }
        let Some(most) = self.apart.filter(|_| self.is_apart(image)) else {
            return self
                .find(|line| line.image == image && line.owner == Owner::All)
                .map_or(Place::Nowhere, Place::Set);
        };
        let is_own = |line: &Line| matches!(&line.owner, Owner::One(one) if one.as_ref() == workspace);
        if let Some(set) = self.find(|line| line.image == image && is_own(line)) {
            return Place::Set(set);
        }
        let spare = self.find(|line| line.owner == Owner::Spare);
        let idle = self.iter().filter(|(_, line)| line.is_idle()).count();
        let room = most.saturating_sub(self.count()) + usize::from(spare.is_some()) + idle;
        let needed = if self.iter().any(|(_, line)| is_own(line)) { 2 } else { 1 };
        if room < needed {
            let own = self.longest_idle(is_own);
            return own.map_or(Place::Full { sets: needed - room }, Place::InsteadOf);
        }
        if let Some(set) = spare.filter(|set| self.get(*set).is_some_and(|line| line.image == image)) {
            return Place::Spare(set);
        }
        if self.count() < most {
            return Place::New;
        }
        spare.or_else(|| self.longest_idle(|_| true)).map_or(Place::Full { sets: needed }, Place::InsteadOf)
    }

    /// A new set of the workspace's; `None` where numbers have run out.
    pub(super) fn open(&mut self, image: usize, workspace: Option<WorkspaceId>) -> Option<SetId> {
        let target = for_one(self.images.get(image)?.target);
        self.insert(Line::new(image, Owner::One(workspace), target))
    }

    /// The spare is this workspace's from now on.
    pub(super) fn give(&mut self, spare: SetId, workspace: Option<WorkspaceId>) {
        if let Some(line) = self.all.get_mut(&spare).filter(|line| line.owner == Owner::Spare) {
            line.owner = Owner::One(workspace);
            line.rests = true;
            // It wakes with the lease.
            line.awake = false;
        }
    }

    /// Begins another spare, where there is to be one, there is none and there is room for it.
    pub(super) fn keep_a_spare(&mut self) {
        let Some(most) = self.apart.filter(|_| self.is_apart(0)) else { return };
        let Some(target) = self.images.first().map(|first| first.target).filter(|target| target.least > 0) else {
            return;
        };
        if self.count() < most && self.find(|line| line.owner == Owner::Spare).is_none() {
            self.insert(Line::new(0, Owner::Spare, for_one(target)));
        }
    }

    /// The idle set that was used longest ago, where workspaces are apart.
    pub(super) fn longest_idle(&self, of: impl Fn(&Line) -> bool) -> Option<SetId> {
        let idle = self.iter().filter(|(_, line)| line.is_idle() && of(line));
        idle.min_by_key(|(_, line)| line.used).map(|(set, _)| set)
    }

    fn insert(&mut self, line: Line) -> Option<SetId> {
        let set = self.next;
        self.next = self.next.checked_add(1)?;
        self.all.insert(set, line);
        Some(set)
    }

    fn find(&self, wanted: impl Fn(&Line) -> bool) -> Option<SetId> {
        self.iter().find(|(_, line)| wanted(line)).map(|(set, _)| set)
    }

    /// Sets that are one workspace's, or are to be.
    pub(super) fn count(&self) -> usize {
        self.iter().filter(|(_, line)| line.owner != Owner::All).count()
    }

    fn is_apart(&self, image: usize) -> bool {
        self.apart.is_some() && self.images.get(image).is_some_and(|image| image.forks)
    }
}

/// Of what one workspace alone is served, one is kept ready, and more where its leases find none.
fn for_one(target: Target) -> Target {
    Target { least: target.least.min(1), most: target.least }
}
