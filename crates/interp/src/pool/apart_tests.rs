//! Sets of zygotes that are one workspace's, by scripts.

use std::collections::HashMap;

use proptest::prelude::*;
use ringfence_op::WorkspaceId;

use super::brain::{Brain, Effect, Message, SetId, Target};
use super::renewal::Renewal;
use crate::keeper_link::Origin;
use crate::limits::{IMAGE_REST_AFTER, MAKES_OF_OTHERS_MAX};

const SIZE: Target = Target { least: 2, most: 9 };

/// A pool of one image, of which so many sets are at most, that has begun to fill.
fn apart(most: usize) -> Brain {
    let mut brain = Brain::new(Renewal::default(), Some(most));
    brain.add(SIZE, true);
    assert_eq!(brain.step(Message::Start), vec![make(0)]);
    brain
}

fn make(set: SetId) -> Effect {
    Effect::Make { image: 0, set }
}

fn made(set: SetId, cell: u64) -> Message {
    // Zygotes are numbered as they come: here, as the sets do.
    Message::Made { set, cell, origin: Origin { zygote: set + 1, forks: 1 } }
}

fn lease(workspace: &str, ticket: u64) -> Message {
    of_image(0, workspace, ticket)
}

fn of_image(image: usize, workspace: &str, ticket: u64) -> Message {
    Message::Lease { image, workspace: WorkspaceId::parse(workspace), ticket }
}

fn watch(set: SetId) -> Effect {
    Effect::Watch { set, wait: IMAGE_REST_AFTER }
}

#[test]
fn who_comes_new_takes_the_spare_over_and_another_is_begun() {
    let mut brain = apart(3);
    assert_eq!(brain.step(made(0, 1)), vec![], "one is ready of a spare");
    let effects = brain.step(lease("a", 1));
    assert_eq!(effects, vec![watch(0), Effect::Hand { ticket: 1, cell: 1 }, make(0), make(1)]);
    brain.step(made(0, 2));
    brain.step(made(1, 3));
    assert_eq!(brain.step(lease("b", 2))[..2], [watch(1), Effect::Hand { ticket: 2, cell: 3 }]);
    // Whoever has one gets what is ready of it.
    let effects = brain.step(lease("a", 3));
    assert_eq!(effects[0], Effect::Hand { ticket: 3, cell: 2 });
    assert!(effects.contains(&make(0)), "{effects:?}");
}

#[test]
fn no_more_than_so_many_and_one_that_is_idle_ends_for_who_comes_new() {
    let mut brain = apart(2);
    brain.step(made(0, 1));
    brain.step(lease("a", 1));
    brain.step(made(1, 2));
    let effects = brain.step(lease("b", 2));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Make { set: 2, .. })), "no room for a spare");
    assert_eq!(brain.step(lease("c", 3)), vec![Effect::RefuseFull { ticket: 3, sets: 1 }]);
    brain.step(made(0, 3));
    // A session of one that has another one is not its last.
    brain.step(lease("a", 4));
    brain.step(Message::Gone { set: 0, cell: 1 });
    assert_eq!(brain.step(lease("c", 5)), vec![Effect::RefuseFull { ticket: 5, sets: 1 }]);
    brain.step(Message::Gone { set: 1, cell: 2 });
    brain.step(Message::Gone { set: 0, cell: 3 });
    // Both are idle now, b's for longer.
    let effects = brain.step(lease("c", 6));
    assert_eq!(effects[..2], [Effect::End { set: 1 }, watch(2)]);
    assert!(effects.contains(&make(2)), "{effects:?}");
    // What was in the making for it goes, and whatever it woke.
    assert_eq!(brain.step(made(1, 4))[..2], [Effect::Destroy { cell: 4 }, Effect::End { set: 1 }]);
    assert!(brain.step(made(2, 5)).contains(&Effect::Hand { ticket: 6, cell: 5 }));
    // It comes back under another number.
    brain.step(made(0, 6));
    let effects = brain.step(lease("b", 7));
    assert_eq!(effects[..3], [Effect::Destroy { cell: 6 }, Effect::End { set: 0 }, watch(3)]);
    assert!(effects.contains(&make(3)), "{effects:?}");
}

#[test]
fn sets_of_slow_images_that_end_while_they_come_up_hold_up_no_lease_of_the_first() {
    for fails in [false, true] {
        let mut brain = apart(2);
        brain.add(SIZE, true);
        brain.step(made(0, 1));
        // Each of these leaves before its cell is made, and its set ends for the next one's.
        let mut in_the_making = Vec::new();
        for ticket in 1..9 {
            let effects = brain.step(of_image(1, &format!("w{ticket}"), ticket));
            in_the_making.extend(effects.into_iter().filter_map(|effect| match effect {
                Effect::Make { image: 1, set } => Some(set),
                _ => None,
            }));
            brain.step(Message::Cancel { ticket });
        }
        assert_eq!(in_the_making.len(), MAKES_OF_OTHERS_MAX, "{in_the_making:?}");
        let effects = brain.step(lease("a", 9));
        assert!(effects.iter().any(|effect| matches!(effect, Effect::Make { image: 0, .. })), "{effects:?}");
        // One that has come up, or has failed, makes room for another.
        let waits = brain.step(of_image(1, "w9", 10));
        assert!(!waits.iter().any(|effect| matches!(effect, Effect::Make { .. })), "{waits:?}");
        let set = in_the_making[0];
        let effects = brain.step(if fails { Message::Failed { set } } else { made(set, 2) });
        assert!(effects.iter().any(|effect| matches!(effect, Effect::Make { image: 1, .. })), "{effects:?}");
    }
}

#[test]
fn one_that_is_not_used_ends_and_with_sessions_only_with_its_last() {
    let mut brain = apart(3);
    brain.step(made(0, 1));
    brain.step(lease("a", 1));
    brain.step(made(0, 2));
    brain.step(made(1, 3));
    brain.step(lease("b", 2));
    brain.step(made(1, 4));
    brain.step(Message::Gone { set: 1, cell: 3 });
    for set in [0, 1] {
        assert_eq!(brain.step(Message::Looked { set }), vec![watch(set)], "it was wanted meanwhile");
    }
    assert_eq!(brain.step(Message::Looked { set: 1 })[..2], [Effect::Destroy { cell: 4 }, Effect::End { set: 1 }]);
    assert_eq!(brain.step(Message::Looked { set: 0 })[..2], [Effect::Destroy { cell: 2 }, Effect::Rest { set: 0 }]);
    // Its session may still need an interpreter: the set is known until it ends.
    assert_eq!(brain.step(Message::Gone { set: 0, cell: 9 }), vec![]);
    assert_eq!(brain.step(Message::Gone { set: 0, cell: 1 })[0], Effect::End { set: 0 });
    let effects = brain.step(Message::Looked { set: 0 });
    assert_eq!(effects, vec![], "it is forgotten");
}

#[test]
fn one_that_sleeps_wakes_with_the_same_set_while_it_has_a_session() {
    let mut brain = apart(3);
    brain.step(made(0, 1));
    brain.step(lease("a", 1));
    brain.step(made(0, 2));
    brain.step(Message::Looked { set: 0 });
    brain.step(Message::Looked { set: 0 });
    let effects = brain.step(lease("a", 2));
    assert_eq!(effects[0], watch(0));
    assert!(effects.contains(&make(0)), "{effects:?}");
}

#[test]
fn a_workspace_that_has_one_leaves_the_last_for_others() {
    let mut brain = Brain::new(Renewal::default(), Some(3));
    for _ in 0..3 {
        brain.add(SIZE, true);
    }
    brain.step(Message::Start);
    brain.step(made(0, 1));
    brain.step(of_image(0, "a", 1));
    assert!(brain.step(of_image(1, "a", 2)).contains(&Effect::Make { image: 1, set: 2 }));
    assert_eq!(brain.step(of_image(2, "a", 3)), vec![Effect::RefuseFull { ticket: 3, sets: 1 }]);
    // What would be left is one that is idle: the spare, of which nobody has anything, ends first.
    brain.step(Message::Gone { set: 0, cell: 1 });
    assert_eq!(brain.step(of_image(2, "a", 4))[..2], [Effect::End { set: 1 }, watch(3)]);
    assert_eq!(brain.step(of_image(2, "b", 5))[..2], [Effect::End { set: 0 }, watch(4)]);
    assert_eq!(brain.step(of_image(2, "c", 6)), vec![Effect::RefuseFull { ticket: 6, sets: 1 }]);
    // Where it would be the last, its own that is idle ends for it.
    brain.step(Message::Made { set: 2, cell: 2, origin: Origin { zygote: 3, forks: 1 } });
    brain.step(Message::Gone { set: 2, cell: 2 });
    let effects = brain.step(of_image(0, "a", 7));
    assert!(effects.contains(&Effect::End { set: 2 }) && effects.contains(&watch(5)), "{effects:?}");
}

#[test]
fn what_forks_nothing_is_everybodys_and_counts_for_nothing() {
    let mut brain = Brain::new(Renewal::default(), Some(1));
    brain.add(SIZE, true);
    brain.add(Target { least: 1, most: 1 }, false);
    brain.step(Message::Start);
    let without = Message::Made { set: 1, cell: 7, origin: Origin::default() };
    assert!(brain.step(of_image(1, "a", 1)).contains(&Effect::Make { image: 1, set: 1 }));
    brain.step(without);
    assert!(brain.step(of_image(1, "b", 2)).contains(&Effect::Make { image: 1, set: 1 }));
    brain.step(made(0, 1));
    assert!(brain.step(lease("c", 3)).contains(&Effect::Hand { ticket: 3, cell: 1 }));
}

#[test]
fn short_memory_begins_no_set_and_ends_idle_ones_one_by_one() {
    let mut brain = apart(4);
    let mut cell = 0;
    for (set, workspace) in [(0, "a"), (1, "b")] {
        cell += 1;
        brain.step(made(set, cell));
        brain.step(lease(workspace, cell));
        brain.step(Message::Gone { set, cell });
    }
    let effects = brain.step(Message::Memory { short: true });
    assert_eq!(effects[0], Effect::End { set: 0 });
    assert_eq!(brain.step(lease("c", 9)), vec![Effect::RefuseShort { ticket: 9 }]);
    assert_eq!(brain.step(Message::Memory { short: true })[0], Effect::End { set: 1 });
}

#[test]
fn without_a_stock_there_is_no_spare_but_the_first() {
    let mut brain = Brain::new(Renewal::default(), Some(3));
    brain.add(Target { least: 0, most: 0 }, true);
    assert_eq!(brain.step(Message::Start), vec![]);
    assert_eq!(brain.step(lease("a", 1)), vec![watch(0), make(0)]);
    assert_eq!(brain.step(lease("b", 2)), vec![watch(1), make(1)]);
}

#[test]
fn what_is_replaced_by_age_is_a_zygote_of_the_same_set() {
    let age = std::time::Duration::from_secs(60);
    let mut brain = Brain::new(Renewal { forks_max: None, age_max: Some(age) }, Some(3));
    brain.add(SIZE, true);
    brain.step(Message::Start);
    assert_eq!(brain.step(made(0, 1)), vec![Effect::Age { set: 0, zygote: 1, wait: age }]);
    brain.step(lease("a", 1));
    assert_eq!(brain.step(Message::Aged { set: 0, zygote: 1 }), vec![Effect::Renew { set: 0 }]);
    brain.step(Message::TookOver { set: 0, zygote: 5 });
    let effects = brain.step(lease("a", 2));
    assert!(effects.iter().all(|effect| !matches!(effect, Effect::Make { set, .. } if *set != 0 && *set != 1)));
}

/// Whoever plays the keeper and the callers: what is in the making, what is ready or handed out, and of which set.
#[derive(Default)]
struct World {
    making: Vec<SetId>,
    sets: HashMap<u64, SetId>,
    held: Vec<(u64, usize)>,
    tickets: HashMap<u64, usize>,
    /// The workspace that ever had a cell of a set.
    owners: HashMap<SetId, usize>,
    ended: Vec<u64>,
}

impl World {
    fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Make { set, .. } => self.making.push(set),
                Effect::Hand { ticket, cell } => {
                    let workspace = self.tickets.remove(&ticket).unwrap();
                    let owner = *self.owners.entry(self.sets[&cell]).or_insert(workspace);
                    assert_eq!(owner, workspace, "a set served two workspaces");
                    self.held.push((cell, workspace));
                }
                Effect::Refuse { ticket } | Effect::RefuseFull { ticket, .. } | Effect::RefuseShort { ticket } => {
                    self.tickets.remove(&ticket);
                }
                Effect::Destroy { cell } => self.ended.push(cell),
                _ => {}
            }
        }
    }

    /// Sets of which something is in use.
    fn in_use(&self) -> usize {
        let mut sets: Vec<SetId> = self.held.iter().map(|(cell, _)| self.sets[cell]).collect();
        sets.sort_unstable();
        sets.dedup();
        sets.len()
    }
}

proptest! {
    #[test]
    fn no_set_serves_two_workspaces(
        most in 1_usize..5,
        steps in proptest::collection::vec((0_u8..7, 0_usize..6, 0_usize..2), 0..400),
    ) {
        let mut brain = Brain::new(Renewal::default(), Some(most));
        brain.add(SIZE, true);
        brain.add(Target { least: 1, most: 1 }, true);
        let mut world = World::default();
        world.take(brain.step(Message::Start));
        let mut last = 0;
        for (kind, number, image) in steps {
            last += 1;
            let message = match kind {
                0..=2 => {
                    world.tickets.insert(last, number);
                    of_image(image, &format!("w{number}"), last)
                }
                3 | 4 if !world.making.is_empty() => {
                    let set = world.making.remove(number % world.making.len());
                    world.sets.insert(last, set);
                    made(set, last)
                }
                5 if !world.held.is_empty() => {
                    let (cell, _) = world.held.swap_remove(number % world.held.len());
                    Message::Gone { set: world.sets[&cell], cell }
                }
                6 => Message::Looked { set: number as SetId },
                _ => Message::Woke,
            };
            world.take(brain.step(message));
            prop_assert!(world.in_use() <= most);
        }
    }
}
