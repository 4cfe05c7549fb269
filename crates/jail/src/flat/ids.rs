//! Which ids sessions run as.

use std::fs;

use ringfence_sys::caps;
use ringfence_weaken::{Mitigation, holds};

use crate::failure::{At, SetupFailure};
use crate::ids::Ids;
use crate::limits::CELL_IDS_MAX;
use crate::step::StepName;

/// Sessions at most where the ids of a small user namespace have to do, as of a container engine that remaps ids.
const CELL_IDS_FEW: u32 = 40_000;
/// First id of those.
const ID_BASE_LOW: u32 = 20_000;
/// What a keeper needs to give each session an id: to change ids, to give files away and to remove them, to kill.
const NEEDED: u64 =
    caps::CHOWN | caps::DAC_OVERRIDE | caps::FOWNER | caps::KILL | caps::SETGID | caps::SETUID | caps::SETPCAP;

/// Who is who.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Who {
    /// The keeper's own id.
    pub(in crate::flat) keeper: u32,
    /// First id of the sessions, and how many; `None` where all have the keeper's.
    pub(crate) sessions: Option<(u32, u32)>,
    /// The daemon's id.
    pub(crate) daemon: u32,
}

impl Who {
    /// By what this process may do. Root has to have the capabilities to give ids away: sessions never run as root.
    pub(crate) fn find(id_base: u32) -> Result<Who, SetupFailure> {
        let nothing = String::new;
        let keeper = rustix::process::geteuid().as_raw();
        if keeper != 0 {
            return Ok(Who { keeper, sessions: None, daemon: keeper });
        }
        let held = caps::effective().at(StepName::KeeperSelf, nothing)?;
        if held & NEEDED != NEEDED {
            let detail = "root without CAP_SETUID, CAP_SETGID, CAP_SETPCAP, CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER or \
                          CAP_KILL";
            return Err(SetupFailure { step: StepName::FleetIds, errno: libc::EPERM, detail: detail.to_owned() });
        }
        let maps = ["/proc/self/uid_map", "/proc/self/gid_map"];
        let maps = maps.map(|path| fs::read_to_string(path).at(StepName::FleetMap, || path.to_owned()));
        let maps = maps.into_iter().collect::<Result<Vec<_>, _>>()?;
        let fits = |(base, count): (u32, u32)| maps.iter().all(|map| covers(map, base, count.saturating_add(2)));
        let choices = [(id_base, CELL_IDS_MAX), (ID_BASE_LOW, CELL_IDS_FEW)];
        let range = choices.into_iter().find(|range| fits(*range)).ok_or_else(|| SetupFailure {
            step: StepName::FleetMap,
            errno: libc::EINVAL,
            detail: format!("{CELL_IDS_MAX} ids from {id_base} or {CELL_IDS_FEW} from {ID_BASE_LOW}"),
        })?;
        Ok(Who { keeper, sessions: Some(range), daemon: range.0.saturating_add(range.1).saturating_add(1) })
    }

    /// Those of sessions.
    pub(super) fn ids(self) -> Ids {
        match self.sessions {
            None => Ids::shared(self.keeper),
            Some((base, _)) if !holds(Mitigation::SessionsIds) => Ids::shared(base.saturating_add(1)),
            Some((base, count)) => Ids::own(base.saturating_add(1), count),
        }
    }

    /// What the keeper keeps of root's powers.
    pub(super) fn capabilities(self) -> u64 {
        if self.sessions.is_some() { NEEDED } else { 0 }
    }
}

/// Whether a line of a map of ids covers `count` ids from `base`.
fn covers(map: &str, base: u32, count: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_ascii_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
        let (first, _, length) = (numbers.next(), numbers.next(), numbers.next().unwrap_or(0));
        first.is_some_and(|first| {
            u64::from(base) >= first && u64::from(base) + u64::from(count) <= first.saturating_add(length)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_have_ids_of_their_own_that_are_never_roots() {
        let who = Who { keeper: 0, sessions: Some((100, 3)), daemon: 104 };
        let mut ids = who.ids();
        assert_eq!([ids.take(), ids.take(), ids.take(), ids.take()], [Some(101), Some(102), Some(103), None]);
        let mut shared = Who { keeper: 1000, sessions: None, daemon: 1000 }.ids();
        assert_eq!([shared.take(), shared.take()], [Some(1000), Some(1000)]);
    }

    #[test]
    fn a_map_is_read_as_the_kernel_writes_it() {
        let whole = "         0          0 4294967295\n";
        assert!(covers(whole, 1_000_000_000, 60_002));
        let small = "         0     100000      65536\n";
        assert!(!covers(small, 1_000_000_000, 60_002) && covers(small, 20_000, 40_002));
        assert!(!covers("", 0, 1) && !covers("x y z\n", 0, 1));
    }
}
