//! The daemon's own way into the fleet's user namespace.

use std::io;
use std::os::fd::AsFd;

use ringfence_op::Tier;
use ringfence_sys::namespace::{Namespaces, enter};
use ringfence_sys::process::{Single, no_new_privileges};
use ringfence_sys::{caps, ids};
use ringfence_weaken::{Mitigation, holds};

use crate::error::JailError;
use crate::launch::Launched;

/// Takes the calling process into the fleet's user namespace, where it becomes `daemon_id` and keeps three
/// capabilities, which count inside the fleet only: CAP_DAC_OVERRIDE, CAP_CHOWN and CAP_FOWNER, to handle the files of
/// the cells. Over the host it has no power left. There is no way back.
///
/// In the other tiers there is no fleet: then the daemon takes an id of its own
/// where it may, and rules of its own.
///
/// # Errors
/// Where the process has more than one thread, or the kernel refuses. It may then be half-way, and must end.
pub fn enter_fleet(launched: &Launched) -> Result<(), JailError> {
    if launched.tier != Tier::Cell {
        return crate::flat::enter(launched);
    }
    let fail = |doing| move |source: io::Error| JailError::Enter { doing, source };
    Single::claim().map_err(fail("find the daemon with one thread"))?;
    if !holds(Mitigation::DaemonInTheFleet) {
        return Ok(());
    }
    enter(launched.fleet.as_fd(), Namespaces::USER).map_err(fail("enter the fleet's user namespace"))?;
    let id = launched.daemon_id;
    if launched.id_per_cell {
        // In a fleet of one id the kernel forbids it.
        ids::leave_groups().map_err(fail("leave the supplementary groups"))?;
    }
    ids::become_group(id).map_err(fail("change the group id"))?;
    ids::become_user(id).map_err(fail("change the user id"))?;
    let keep = caps::DAC_OVERRIDE | caps::CHOWN | caps::FOWNER;
    if holds(Mitigation::CapabilitiesOfTheDaemon) {
        caps::bound(keep).map_err(fail("drop the bounding set"))?;
        caps::keep(keep).map_err(fail("drop the capabilities"))?;
    }
    if !holds(Mitigation::NoNewPrivilegesOfTheDaemon) {
        return Ok(());
    }
    no_new_privileges().map_err(fail("give up new privileges"))
}
