//! Who may have one more session, where workspaces share a server. Pure.
//!
//! The fair share of a workspace is the capacity divided by the workspaces that have a session, one that is yet to come
//! counted in. Below its share a workspace is leased whatever is free. At or above it, it is leased only as long as the
//! reserve stays free. Nobody's session is taken away for another's; so what this promises is: a workspace at or above
//! its share never takes the last free places, and a place that becomes free when all are taken goes to one below.

use ringfence_op::Tenant;

use crate::config::Sharing;

/// The state of the server as a lease finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// Sessions, and leases under way.
    pub(crate) taken: usize,
    /// What there may be of them.
    pub(crate) max: usize,
    /// Those of the workspace that asks.
    pub(crate) own: usize,
    /// Workspaces that have at least one, the one that asks not counted.
    pub(crate) others: usize,
}

/// Why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is below its share, and all places are taken.
    Full,
    /// The workspace has as many as it may: so many of its own must end first.
    Ceiling {
        /// At least 1.
        ends: usize,
    },
    /// The workspace has its share, and what is free is kept for those below theirs: so many sessions must end first.
    Share {
        /// At least 1.
        ends: usize,
    },
}

/// Whether the workspace gets one more.
pub(crate) fn admit(room: Room, tenant: &Tenant, sharing: Sharing) -> Result<(), Refused> {
    let Room { taken, max, own, others } = room;
    let ceilings = [tenant.sessions_max, sharing.sessions_each_max];
    if let Some(ceiling) = ceilings.into_iter().flatten().min().filter(|ceiling| own >= *ceiling) {
        return Err(Refused::Ceiling { ends: own + 1 - ceiling });
    }
    let free = max.saturating_sub(taken);
    if own < share(max, others) {
        return if free > 0 { Ok(()) } else { Err(Refused::Full) };
    }
    let reserve = reserve(max, sharing);
    if free > reserve { Ok(()) } else { Err(Refused::Share { ends: reserve + 1 - free }) }
}

/// What a workspace may have whatever the others do: its part of all, the asking one and one that is yet to come
/// counted in; at least one.
fn share(max: usize, others: usize) -> usize {
    (max / (others + 2)).max(1)
}

/// Places kept for those below their share: never all of them.
fn reserve(max: usize, sharing: Sharing) -> usize {
    sharing.reserve.unwrap_or(max / 10).max(1).min(max.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use ringfence_op::WorkspaceId;

    use super::*;

    fn tenant(name: usize, sessions_max: Option<usize>) -> Tenant {
        Tenant { workspace: WorkspaceId::parse(&format!("w{name}")).unwrap(), sessions_max }
    }

    const FREELY: Sharing = Sharing { sessions_each_max: None, reserve: None };

    #[test]
    fn ceilings_are_the_lower_of_the_grants_and_the_servers() {
        let room = |own| Room { taken: own, max: 100, own, others: 0 };
        let each = Sharing { sessions_each_max: Some(3), reserve: None };
        for (own, claimed, sharing, wanted) in [
            (1, Some(2), FREELY, Ok(())),
            (2, Some(2), FREELY, Err(Refused::Ceiling { ends: 1 })),
            (2, None, each, Ok(())),
            (3, None, each, Err(Refused::Ceiling { ends: 1 })),
            (4, Some(9), each, Err(Refused::Ceiling { ends: 2 })),
            (3, Some(2), each, Err(Refused::Ceiling { ends: 2 })),
        ] {
            assert_eq!(admit(room(own), &tenant(0, claimed), sharing), wanted, "{own} {claimed:?} {sharing:?}");
        }
    }

    #[test]
    fn one_workspace_alone_leaves_the_reserve() {
        let room = |own| Room { taken: own, max: 20, own, others: 0 };
        let asker = tenant(0, None);
        assert_eq!(admit(room(17), &asker, FREELY), Ok(()));
        assert_eq!(admit(room(18), &asker, FREELY), Err(Refused::Share { ends: 1 }));
        assert_eq!(admit(room(18), &asker, Sharing { reserve: Some(5), ..FREELY }), Err(Refused::Share { ends: 4 }));
        assert_eq!(admit(room(20), &asker, FREELY), Err(Refused::Share { ends: 3 }));
        let below = Room { taken: 20, max: 20, own: 1, others: 3 };
        assert_eq!(admit(below, &asker, FREELY), Err(Refused::Full));
    }

    #[test]
    fn a_server_of_one_session_has_nothing_to_keep() {
        let room = Room { taken: 0, max: 1, own: 0, others: 0 };
        assert_eq!(admit(room, &tenant(0, None), FREELY), Ok(()));
    }

    /// A server with some workspaces that lease and release at random.
    #[derive(Debug, Clone)]
    struct Server {
        max: usize,
        sharing: Sharing,
        held: HashMap<usize, usize>,
    }

    impl Server {
        fn room(&self, name: usize) -> Room {
            let own = self.held.get(&name).copied().unwrap_or(0);
            let others = self.held.iter().filter(|(other, count)| **other != name && **count > 0).count();
            Room { taken: self.held.values().sum(), max: self.max, own, others }
        }

        fn lease(&mut self, name: usize) -> Result<(), Refused> {
            let done = admit(self.room(name), &tenant(name, None), self.sharing);
            if done.is_ok() {
                *self.held.entry(name).or_default() += 1;
            }
            done
        }
    }

    proptest! {
        #[test]
        fn whatever_happens_nobody_is_starved(
            max in 2_usize..40,
            reserve in proptest::option::of(0_usize..50),
            steps in proptest::collection::vec((0_usize..6, any::<bool>()), 0..300),
        ) {
            let sharing = Sharing { sessions_each_max: None, reserve };
            let mut server = Server { max, sharing, held: HashMap::new() };
            for (name, leases) in steps {
                if leases {
                    let before = server.room(name);
                    let done = server.lease(name);
                    let free = before.max - before.taken;
                    let above = before.own >= share(max, before.others);
                    // A place goes to one below its share wherever there is one.
                    prop_assert!(done.is_ok() || above || free == 0, "{before:?}");
                    // One above it leaves at least one.
                    prop_assert!(done.is_err() || !above || free > 1, "{before:?}");
                    if let Err(Refused::Share { ends }) = done {
                        // What is said is true: one end less would not do, so many do.
                        let after = |ended: usize| Room { taken: before.taken - ended, ..before };
                        let asker = tenant(name, None);
                        prop_assert!(admit(after(ends - 1), &asker, sharing).is_err());
                        prop_assert!(admit(after(ends), &asker, sharing).is_ok());
                    }
                } else if let Some(count) = server.held.get_mut(&name).filter(|count| **count > 0) {
                    *count -= 1;
                }
                prop_assert!(server.held.values().sum::<usize>() <= max);
            }
        }

        #[test]
        fn a_newcomer_gets_in_beside_any_one_that_takes_what_it_can(max in 2_usize..40, greed in 1_usize..200) {
            let mut server = Server { max, sharing: FREELY, held: HashMap::new() };
            for _ in 0..greed {
                let _refused = server.lease(0);
            }
            prop_assert_eq!(server.lease(1), Ok(()));
            // And when all is taken, what becomes free goes to it, however often the other asks first.
            while server.lease(1).is_ok() {}
            let share = share(max, 1);
            while server.held[&1] < share {
                *server.held.get_mut(&0).unwrap() -= 1;
                let _refused = server.lease(0);
                prop_assert_eq!(server.lease(1), Ok(()));
            }
        }
    }
}
