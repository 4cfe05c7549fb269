//! The sets of zygotes, by the daemon's number: each is the zygotes of one image, one after the other (`generations`).
//!
//! Where nothing else is asked for, the daemon names one set for each image. It may name several of one image: what
//! their zygotes fork has nothing of its layout in common, and a cell belongs to one of them for good. Which is whose
//! the keeper does not know: it hears numbers.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::time::Instant;

use ringfence_sys::signal;

use crate::generations::{Generations, Zygote};
use crate::limits::ZYGOTE_SETS_MAX;
use crate::step::StepName;
use crate::steps::Failure;
use crate::zygote;

/// All sets. `P` and `W` as in [`Generations`].
pub(crate) struct Sets<P, W>(BTreeMap<u32, Set<P, W>>);

/// A zygote that runs.
pub(crate) trait Process {
    /// Its number among the processes that the keeper sees.
    fn pid(&self) -> u32;
    /// The keeper's link to it.
    fn link(&self) -> &OwnedFd;
}

/// One of them.
pub(crate) struct Set<P, W> {
    /// Index of its image.
    pub(crate) image: usize,
    pub(crate) zygotes: Generations<P, W>,
}

impl<P, W> Sets<P, W> {
    /// None runs.
    pub(crate) fn new() -> Sets<P, W> {
        Sets(BTreeMap::new())
    }

    /// A cell of the set is asked for: whether its zygote is to be started. Refused where the set is of another image, and
    /// where there are too many.
    pub(crate) fn wake(&mut self, number: u32, image: usize) -> Result<bool, Failure> {
        let refused = |errno| Failure { step: StepName::ZygoteSet, errno };
        let full = self.0.len() >= ZYGOTE_SETS_MAX;
        match self.0.get_mut(&number) {
            Some(set) if set.image != image => Err(refused(libc::EINVAL)),
            Some(set) => Ok(set.zygotes.wake()),
            None if full => Err(refused(libc::EAGAIN)),
            None => {
                let mut zygotes = Generations::resting();
                let start = zygotes.wake();
                self.0.insert(number, Set { image, zygotes });
                Ok(start)
            }
        }
    }

    /// Nobody has wanted the set for a while.
    pub(crate) fn tire(&mut self, number: u32) {
        if let Some(zygotes) = self.get_mut(number) {
            zygotes.tire();
        }
    }

    /// No cell of the set lives: all of its zygotes, to be ended, and what waits for them in vain, where it is to rest. It
    /// is then forgotten.
    pub(crate) fn rest(&mut self, number: u32) -> Option<(Vec<Zygote<P>>, VecDeque<W>)> {
        let rested = self.get_mut(number)?.rest()?;
        self.0.remove(&number);
        Some(rested)
    }

    /// The zygotes of a set, where it is known.
    pub(crate) fn get(&self, number: u32) -> Option<&Generations<P, W>> {
        self.0.get(&number).map(|set| &set.zygotes)
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Generations<P, W>> {
        self.0.get_mut(&number).map(|set| &mut set.zygotes)
    }

    /// Index of the set's image.
    pub(crate) fn image_of(&self, number: u32) -> Option<usize> {
        self.0.get(&number).map(|set| set.image)
    }

    /// All that are known.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Set<P, W>)> {
        self.0.iter().map(|(number, set)| (*number, set))
    }

    /// Their numbers, to change them one by one.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.0.keys().copied().collect()
    }

    /// The zygotes that fork, each as the number of its set and its own.
    pub(crate) fn forking(&self) -> impl Iterator<Item = (u32, u32)> {
        self.iter().filter_map(|(number, set)| Some((number, set.zygotes.forking_serial()?)))
    }

    /// All zygotes, each with the number of its set.
    pub(crate) fn zygotes(&self) -> impl Iterator<Item = (u32, &Zygote<P>)> {
        self.iter().flat_map(|(number, set)| set.zygotes.iter().map(move |zygote| (number, zygote)))
    }
}

impl<P: Process, W> Sets<P, W> {
    /// Whose zygote a process is: the set, and its number.
    pub(crate) fn of_process(&self, pid: u32) -> Option<(u32, u32)> {
        let found = self.zygotes().find(|(_, zygote)| zygote.process.pid() == pid);
        found.map(|(set, zygote)| (set, zygote.serial))
    }

    /// Tells zygotes that are not needed any more to leave, and ends those that import or leave for too long. The sets of
    /// which one is to be started now that its pause is over. Before the keeper is `ready` none is ended: the first set with
    /// one that takes too long is the error.
    pub(crate) fn tend(&mut self, now: Instant, ready: bool) -> Result<Vec<u32>, u32> {
        let mut due = Vec::new();
        for (&number, Set { zygotes, .. }) in &mut self.0 {
            for process in zygotes.dismiss() {
                zygote::dismiss(process.link());
            }
            for zygote in zygotes.overdue(now) {
                if !ready {
                    return Err(number);
                }
                let _ = signal::send(zygote.process.pid().cast_signed(), libc::SIGKILL);
            }
            if zygotes.is_due(now) {
                due.push(number);
            }
        }
        Ok(due)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn wake(sets: &mut Sets<char, u64>, number: u32, image: usize) -> Result<bool, i32> {
        sets.wake(number, image).map_err(|failure| failure.errno)
    }

    #[test]
    fn a_set_is_of_one_image_until_it_rests() {
        let mut sets = Sets::<char, u64>::new();
        assert_eq!((wake(&mut sets, 7, 1), sets.image_of(7)), (Ok(true), Some(1)));
        sets.get_mut(7).unwrap().started(1, Some('a'), Instant::now());
        assert_eq!(wake(&mut sets, 7, 1), Ok(false), "it runs");
        assert_eq!(wake(&mut sets, 7, 0), Err(libc::EINVAL));
        assert!(sets.rest(7).is_none(), "it is wanted");
        sets.get_mut(7).unwrap().tire();
        let (ended, _) = sets.rest(7).unwrap();
        assert_eq!(ended.iter().map(|zygote| zygote.process).collect::<String>(), "a");
        assert_eq!((sets.image_of(7), wake(&mut sets, 7, 0)), (None, Ok(true)));
    }

    #[test]
    fn there_are_so_many_and_no_more() {
        let mut sets = Sets::<char, u64>::new();
        for number in 0..2 * ZYGOTE_SETS_MAX as u32 {
            let room = number < ZYGOTE_SETS_MAX as u32;
            assert_eq!(wake(&mut sets, number, 0), if room { Ok(true) } else { Err(libc::EAGAIN) });
        }
        assert!(wake(&mut sets, 0, 0).is_ok(), "one that is known is no further one");
        assert_eq!(sets.numbers().len(), ZYGOTE_SETS_MAX);
    }
}
