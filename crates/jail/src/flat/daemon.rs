//! The daemon's own way down where sessions have no namespaces.

use std::io;
use std::os::fd::AsFd;

use ringfence_op::Tier;
use ringfence_sys::process::{Single, no_new_privileges};
use ringfence_sys::{caps, ids, landlock};

use super::rules;
use crate::error::JailError;
use crate::launch::Launched;

/// Takes an id that nobody else has, where it may (the keeper is root), and keeps the three capabilities that it takes
/// to handle the sessions' files; then Landlock takes all other files away.
pub(crate) fn enter(launched: &Launched) -> Result<(), JailError> {
    let fail = |doing| move |source: io::Error| JailError::Enter { doing, source };
    Single::claim().map_err(fail("find the daemon with one thread"))?;
    let mut keep = 0;
    if launched.id_per_cell {
        keep = caps::DAC_OVERRIDE | caps::CHOWN | caps::FOWNER;
        let id = launched.daemon_id;
        caps::bound(keep).map_err(fail("drop the bounding set"))?;
        ids::leave_groups().map_err(fail("leave the supplementary groups"))?;
        ids::become_group(id).map_err(fail("change the group id"))?;
        ids::become_user_keeping(id).map_err(fail("change the user id"))?;
    }
    caps::keep(keep).map_err(fail("drop the capabilities"))?;
    no_new_privileges().map_err(fail("give up new privileges"))?;
    if launched.tier == Tier::Confined {
        let rules = rules::daemons(launched.fleet.as_fd()).map_err(fail("make the daemon's Landlock rules"))?;
        landlock::restrict_self(rules.as_fd()).map_err(fail("enter the daemon's Landlock rules"))?;
    }
    Ok(())
}
