//! What the pool decides, by scripts: messages in, the exact effects out.

use std::num::NonZeroU32;
use std::time::Duration;

use super::brain::{Brain, Effect, Message, Target};
use super::renewal::Renewal;
use crate::keeper_link::Origin;
use crate::limits::{
    DEMAND_LULL, IMAGE_REST_AFTER, MAKE_BACKOFF_MAX, MAKE_BACKOFF_MIN, MAKES_IN_FLIGHT_MAX, MAKES_OF_OTHERS_MAX,
    MEMORY_LOOK_AGAIN, RENEW_BACKOFF_MAX, RENEW_BACKOFF_MIN,
};

const MAKE: Effect = Effect::Make { image: 0, set: 0 };

/// A pool of these images, each with one set for all.
fn pool(renewal: Renewal, targets: &[Target]) -> Brain {
    let mut brain = Brain::new(renewal, None);
    targets.iter().for_each(|target| brain.add(*target, true));
    brain
}

fn fixed(sizes: &[usize]) -> Brain {
    pool(Renewal::default(), &sizes.iter().map(|&size| Target { least: size, most: size }).collect::<Vec<_>>())
}

fn lease(image: usize, ticket: u64) -> Message {
    Message::Lease { image, workspace: None, ticket }
}

/// A cell of the first zygote, which has forked so often.
fn made(set: u32, cell: u64) -> Message {
    Message::Made { set, cell, origin: Origin { zygote: 1, forks: 1 } }
}

fn filled(target: usize) -> Brain {
    let mut brain = fixed(&[target]);
    brain.step(Message::Start);
    for cell in 1..=target as u64 {
        brain.step(made(0, cell));
    }
    assert_eq!(brain.ready(), target);
    brain
}

#[test]
fn it_fills_itself_a_few_at_a_time() {
    let mut brain = fixed(&[6]);
    assert_eq!(brain.step(Message::Start), vec![MAKE; MAKES_IN_FLIGHT_MAX]);
    assert_eq!(brain.step(made(0, 1)), vec![MAKE]);
    assert_eq!(brain.step(made(0, 2)), vec![MAKE]);
    for cell in 3..=6 {
        assert_eq!(brain.step(made(0, cell)), vec![]);
    }
    assert_eq!(brain.ready(), 6);
}

#[test]
fn a_lease_takes_the_oldest_and_is_replaced() {
    let mut brain = filled(2);
    assert_eq!(brain.next_ready(0, None), Some((0, 1)));
    let effects = brain.step(lease(0, 9));
    assert_eq!(effects, vec![Effect::Hand { ticket: 9, cell: 1 }, MAKE]);
}

#[test]
fn a_lease_without_stock_waits_for_its_own_cell_in_order() {
    let mut brain = fixed(&[0]);
    assert_eq!(brain.step(Message::Start), vec![]);
    assert_eq!(brain.step(lease(0, 1)), vec![MAKE]);
    assert_eq!(brain.step(lease(0, 2)), vec![MAKE]);
    assert_eq!(brain.step(made(0, 7)), vec![Effect::Hand { ticket: 1, cell: 7 }]);
    assert_eq!(brain.step(made(0, 8)), vec![Effect::Hand { ticket: 2, cell: 8 }]);
    assert_eq!(brain.ready(), 0);
}

#[test]
fn images_are_lines_of_their_own() {
    let mut brain = fixed(&[1, 0]);
    brain.step(Message::Start);
    brain.step(made(0, 1));
    let watch = Effect::Watch { set: 1, wait: IMAGE_REST_AFTER };
    assert_eq!(brain.step(lease(1, 5)), vec![watch, Effect::Make { image: 1, set: 1 }]);
    assert_eq!(brain.step(made(1, 2)), vec![Effect::Hand { ticket: 5, cell: 2 }]);
    assert_eq!(brain.step(lease(9, 6)), vec![Effect::Refuse { ticket: 6 }]);
}

#[test]
fn an_image_wakes_with_its_first_lease_and_falls_asleep_after_a_rest_without_one() {
    let watch = Effect::Watch { set: 1, wait: IMAGE_REST_AFTER };
    let make = Effect::Make { image: 1, set: 1 };
    let mut brain = fixed(&[0, 1]);
    assert_eq!(brain.step(Message::Start), vec![], "nothing is kept ready of an image that nobody asked for");
    let effects = brain.step(lease(1, 1));
    assert_eq!(effects, vec![watch.clone(), make.clone(), make.clone()]);
    brain.step(made(1, 7));
    brain.step(made(1, 8));
    assert_eq!(brain.step(Message::Looked { set: 1 }), vec![watch.clone()], "it was wanted meanwhile");
    assert_eq!(brain.step(Message::Looked { set: 1 }), vec![Effect::Destroy { cell: 8 }, Effect::Rest { set: 1 }]);
    assert_eq!(brain.step(Message::Looked { set: 1 }), vec![]);
    let effects = brain.step(lease(1, 2));
    assert_eq!(effects, vec![watch, make.clone(), make], "it comes back on demand");
}

#[test]
fn a_cell_that_comes_to_a_sleeping_line_is_destroyed_and_one_who_waits_keeps_it_awake() {
    let mut brain = fixed(&[0, 1]);
    brain.step(lease(1, 1));
    brain.step(Message::Looked { set: 1 });
    let effects = brain.step(Message::Looked { set: 1 });
    assert_eq!(effects, vec![Effect::Watch { set: 1, wait: IMAGE_REST_AFTER }]);
    brain.step(made(1, 7));
    assert_eq!(brain.step(Message::Looked { set: 1 }), vec![Effect::Rest { set: 1 }]);
    let effects = brain.step(made(1, 8));
    assert_eq!(effects, vec![Effect::Destroy { cell: 8 }, Effect::Rest { set: 1 }], "it may have woken its zygote");
}

#[test]
fn the_first_image_never_sleeps() {
    let mut brain = filled(1);
    assert_eq!(brain.step(Message::Looked { set: 0 }), vec![]);
    assert_eq!(brain.ready(), 1);
}

#[test]
fn one_who_left_is_not_served() {
    let mut brain = fixed(&[0]);
    brain.step(lease(0, 1));
    brain.step(Message::Cancel { ticket: 1 });
    assert_eq!(brain.step(made(0, 7)), vec![]);
    assert_eq!(brain.step(lease(0, 2)), vec![Effect::Hand { ticket: 2, cell: 7 }]);
}

#[test]
fn failures_are_told_to_one_caller_each_and_slow_the_stock_down() {
    let mut brain = fixed(&[1]);
    brain.step(Message::Start);
    brain.step(lease(0, 1));
    let effects = brain.step(Message::Failed { set: 0 });
    assert_eq!(effects, vec![Effect::Refuse { ticket: 1 }, Effect::Sleep(MAKE_BACKOFF_MIN)]);
    brain.step(Message::Failed { set: 0 });
    assert_eq!(brain.step(Message::Woke), vec![MAKE]);
    assert_eq!(brain.step(Message::Failed { set: 0 }), vec![Effect::Sleep(MAKE_BACKOFF_MIN * 2)]);
    assert_eq!(brain.step(lease(0, 2)), vec![MAKE], "a caller does not wait out the backoff");
    assert_eq!(brain.step(made(0, 3)), vec![Effect::Hand { ticket: 2, cell: 3 }]);
}

#[test]
fn the_backoff_is_bounded() {
    let mut brain = fixed(&[1]);
    brain.step(Message::Start);
    let mut longest = Duration::ZERO;
    for _ in 0..100 {
        for effect in brain.step(Message::Failed { set: 0 }) {
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
    assert_eq!(brain.step(Message::Spoiled { set: 0, cell: 1 }), vec![Effect::Destroy { cell: 1 }, MAKE]);
    assert_eq!(brain.ready(), 0);
}

#[test]
fn a_closed_pool_keeps_nothing_and_makes_nothing() {
    let mut brain = filled(1);
    brain.step(lease(0, 1));
    brain.step(lease(0, 2));
    assert_eq!(brain.step(Message::Close), vec![Effect::Refuse { ticket: 2 }]);
    assert_eq!(brain.step(made(0, 5)), vec![Effect::Destroy { cell: 5 }]);
    assert_eq!(brain.step(lease(0, 3)), vec![Effect::Refuse { ticket: 3 }]);
    assert_eq!(brain.step(Message::Failed { set: 0 }), vec![]);
}

/// The numbers of cells that the effects ask to be made.
fn makes(effects: &[Effect]) -> usize {
    effects.iter().filter(|effect| **effect == MAKE).count()
}

#[test]
fn leases_that_find_nothing_raise_the_stock_up_to_its_ceiling_and_lulls_lower_it() {
    let mut brain = pool(Renewal::default(), &[Target { least: 1, most: 4 }]);
    brain.step(Message::Start);
    let mut cell = 0;
    let mut wanted = 1;
    for ticket in 1..=10 {
        wanted += makes(&brain.step(lease(0, ticket)));
    }
    // Every caller gets a cell, and then the stock is filled to the ceiling.
    while cell < wanted {
        cell += 1;
        wanted += makes(&brain.step(made(0, cell as u64)));
    }
    assert_eq!((wanted, brain.ready()), (14, 4));
    let lull = Effect::Lull { set: 0, wait: DEMAND_LULL };
    assert_eq!(brain.step(Message::Lulled { set: 0 }), vec![lull.clone()], "the misses were in this one");
    let effects = brain.step(Message::Lulled { set: 0 });
    assert_eq!(effects.iter().filter(|effect| matches!(effect, Effect::Destroy { .. })).count(), 2);
    assert_eq!((brain.ready(), effects.last()), (2, Some(&lull)));
    let effects = brain.step(Message::Lulled { set: 0 });
    assert_eq!((brain.ready(), effects.len()), (1, 1), "at its least again, and no timer runs");
}

#[test]
fn a_line_that_keeps_nothing_does_not_begin_with_it() {
    let mut brain = pool(Renewal::default(), &[Target { least: 0, most: 4 }]);
    assert_eq!(brain.step(lease(0, 1)), vec![MAKE]);
    assert_eq!(brain.step(made(0, 1)), vec![Effect::Hand { ticket: 1, cell: 1 }]);
}

#[test]
fn short_memory_makes_nothing_and_keeps_nobody_waiting() {
    let look = Effect::LookAtMemory(MEMORY_LOOK_AGAIN);
    let mut brain = filled(1);
    assert_eq!(brain.step(Message::Memory { short: true }), vec![look.clone()]);
    assert_eq!(brain.step(lease(0, 1)), vec![Effect::RefuseShort { ticket: 1 }]);
    assert_eq!(brain.step(Message::Spoiled { set: 0, cell: 1 }), vec![Effect::Destroy { cell: 1 }]);
    assert_eq!(brain.step(Message::Memory { short: true }), vec![look]);
    assert_eq!(brain.step(Message::Memory { short: false }), vec![MAKE]);
}

#[test]
fn when_memory_runs_short_only_cells_in_the_making_are_waited_for() {
    let mut brain = fixed(&[0]);
    for ticket in 1..=6 {
        brain.step(lease(0, ticket));
    }
    let effects = brain.step(Message::Memory { short: true });
    let refused: Vec<_> = effects.iter().filter(|effect| matches!(effect, Effect::RefuseShort { .. })).collect();
    assert_eq!(refused, [&Effect::RefuseShort { ticket: 6 }, &Effect::RefuseShort { ticket: 5 }]);
    assert_eq!(brain.step(made(0, 1)), vec![Effect::Hand { ticket: 1, cell: 1 }]);
}

#[test]
fn a_closed_pool_has_no_timers() {
    let mut brain = pool(Renewal::default(), &[Target { least: 1, most: 9 }]);
    brain.step(lease(0, 1));
    brain.step(lease(0, 2));
    brain.step(Message::Close);
    assert_eq!(brain.step(Message::Lulled { set: 0 }), vec![]);
    assert_eq!(brain.step(Message::Memory { short: true }), vec![]);
}

const AGE: Duration = Duration::from_secs(3600);

fn renewed_after(forks: u32, targets: &[Target]) -> Brain {
    pool(Renewal { forks_max: NonZeroU32::new(forks), age_max: Some(AGE) }, targets)
}

/// A cell of a zygote that has forked so often.
fn of(cell: u64, zygote: u32, forks: u32) -> Message {
    Message::Made { set: 0, cell, origin: Origin { zygote, forks } }
}

fn age(zygote: u32) -> Effect {
    Effect::Age { set: 0, zygote, wait: AGE }
}

const RENEW: Effect = Effect::Renew { set: 0 };
const ONE: Target = Target { least: 1, most: 1 };

/// A pool of one cell whose zygote is being replaced: cell 2 is ready.
fn renewing() -> Brain {
    let mut brain = renewed_after(2, &[ONE]);
    assert_eq!(brain.step(Message::Start), vec![MAKE]);
    assert_eq!(brain.step(of(1, 1, 1)), vec![age(1)]);
    assert_eq!(brain.step(lease(0, 1)), vec![Effect::Hand { ticket: 1, cell: 1 }, MAKE]);
    assert_eq!(brain.step(of(2, 1, 2)), vec![RENEW]);
    brain
}

#[test]
fn a_zygote_that_has_forked_often_is_replaced_and_then_what_is_ready_of_it() {
    let mut brain = renewing();
    // It is asked for once, and forks go on meanwhile.
    assert_eq!(brain.step(lease(0, 2)), vec![Effect::Hand { ticket: 2, cell: 2 }, MAKE]);
    assert_eq!(brain.step(of(3, 1, 3)), vec![]);
    // The next cell is there before the last one of the old zygote goes.
    assert_eq!(brain.step(Message::TookOver { set: 0, zygote: 2 }), vec![age(2), MAKE]);
    assert_eq!((brain.ready(), brain.next_ready(0, None)), (1, Some((0, 3))));
    assert_eq!(brain.step(of(4, 2, 1)), vec![Effect::Destroy { cell: 3 }]);
    assert_eq!((brain.ready(), brain.next_ready(0, None)), (1, Some((0, 4))));
    assert_eq!(brain.step(Message::TookOver { set: 0, zygote: 2 }), vec![], "that was known");
}

#[test]
fn what_is_ready_of_an_old_zygote_is_handed_out_first_and_replaced_one_by_one() {
    let mut brain = renewed_after(100, &[Target { least: 4, most: 4 }]);
    brain.step(Message::Start);
    for cell in 1..=4 {
        brain.step(of(cell, 1, 1));
    }
    let makes = |effects: &[Effect]| effects.iter().filter(|effect| **effect == MAKE).count();
    assert_eq!(makes(&brain.step(Message::TookOver { set: 0, zygote: 2 })), 1, "one at a time");
    let effects = brain.step(lease(0, 1));
    assert_eq!(effects, vec![Effect::Hand { ticket: 1, cell: 1 }, MAKE]);
    assert_eq!(brain.step(of(5, 2, 1)), vec![]);
    assert_eq!(brain.step(of(6, 2, 2)), vec![Effect::Destroy { cell: 2 }, MAKE]);
    assert_eq!(brain.step(of(7, 2, 3)), vec![Effect::Destroy { cell: 3 }, MAKE]);
    assert_eq!(brain.step(of(8, 2, 4)), vec![Effect::Destroy { cell: 4 }]);
    assert_eq!((brain.ready(), brain.next_ready(0, None)), (4, Some((0, 5))));
}

#[test]
fn a_cell_of_an_old_zygote_that_comes_late_serves_whoever_waits_and_else_goes_first() {
    let mut brain = renewed_after(100, &[ONE]);
    brain.step(Message::Start);
    brain.step(lease(0, 1));
    brain.step(of(1, 2, 1));
    // Of two that were asked for, the other one was forked by the zygote before.
    assert_eq!(brain.step(of(2, 1, 9)), vec![MAKE]);
    assert_eq!(brain.step(of(3, 2, 2)), vec![Effect::Destroy { cell: 2 }]);
    brain.step(lease(0, 2));
    brain.step(lease(0, 3));
    assert_eq!(brain.step(of(4, 1, 10)), vec![Effect::Hand { ticket: 3, cell: 4 }]);
}

#[test]
fn a_spoiled_cell_of_an_old_zygote_is_not_looked_for_later() {
    let mut brain = renewed_after(100, &[Target { least: 2, most: 2 }]);
    brain.step(Message::Start);
    brain.step(of(1, 1, 1));
    brain.step(of(2, 1, 2));
    brain.step(Message::TookOver { set: 0, zygote: 2 });
    brain.step(Message::Spoiled { set: 0, cell: 1 });
    brain.step(of(3, 2, 1));
    assert_eq!(brain.step(of(4, 2, 2)), vec![Effect::Destroy { cell: 2 }]);
    assert_eq!((brain.ready(), brain.next_ready(0, None)), (2, Some((0, 3))));
}

#[test]
fn the_time_of_a_zygote_counts_once_somebody_has_a_cell_of_it() {
    let mut brain = renewed_after(100, &[ONE]);
    brain.step(Message::Start);
    brain.step(of(1, 1, 1));
    assert_eq!(brain.step(Message::Aged { set: 0, zygote: 1 }), vec![age(1)], "nobody has, and it begins anew");
    brain.step(lease(0, 1));
    assert_eq!(brain.step(Message::Aged { set: 0, zygote: 1 }), vec![RENEW]);
    brain.step(Message::TookOver { set: 0, zygote: 2 });
    assert_eq!(brain.step(Message::Aged { set: 0, zygote: 1 }), vec![], "it is gone");
}

#[test]
fn without_limits_no_zygote_is_replaced() {
    let mut brain = pool(Renewal::default(), &[ONE]);
    brain.step(Message::Start);
    assert_eq!(brain.step(of(1, 1, u32::MAX)), vec![]);
    assert_eq!(brain.step(lease(0, 1)), vec![Effect::Hand { ticket: 1, cell: 1 }, MAKE]);
}

#[test]
fn a_zygote_that_cannot_be_replaced_is_tried_again_later_and_later() {
    let later = |wait, first| Effect::RenewLater { set: 0, errno: 12, wait, first };
    let failed = Message::NotRenewed { set: 0, errno: 12 };
    let again = Message::RenewAgain { set: 0 };
    let mut brain = renewing();
    assert_eq!(brain.step(failed.clone()), vec![later(RENEW_BACKOFF_MIN, true)]);
    // It serves on, and is not asked for before the time.
    assert_eq!(brain.step(lease(0, 2)), vec![Effect::Hand { ticket: 2, cell: 2 }, MAKE]);
    assert_eq!(brain.step(of(3, 1, 3)), vec![]);
    assert_eq!(brain.step(again.clone()), vec![RENEW]);
    assert_eq!(brain.step(failed.clone()), vec![later(RENEW_BACKOFF_MIN * 2, false)]);
    for _ in 0..50 {
        assert_eq!(brain.step(again.clone()), vec![RENEW]);
        let effects = brain.step(failed.clone());
        assert!(matches!(effects[..], [Effect::RenewLater { wait, first: false, .. }] if wait <= RENEW_BACKOFF_MAX));
    }
    assert_eq!(brain.step(failed), vec![], "nothing was asked for");
    // The one that comes at last has no failures behind it.
    brain.step(Message::TookOver { set: 0, zygote: 2 });
    brain.step(of(4, 2, 1));
    brain.step(lease(0, 3));
    assert_eq!(brain.step(of(5, 2, 2)), vec![RENEW]);
    assert_eq!(brain.step(Message::NotRenewed { set: 0, errno: 12 }), vec![later(RENEW_BACKOFF_MIN, true)]);
}

#[test]
fn no_zygote_is_replaced_while_memory_is_short() {
    let mut brain = renewed_after(2, &[ONE]);
    brain.step(Message::Start);
    brain.step(of(1, 1, 1));
    brain.step(lease(0, 1));
    brain.step(Message::Memory { short: true });
    assert_eq!(brain.step(of(2, 1, 2)), vec![]);
    assert_eq!(brain.step(Message::Memory { short: false }), vec![RENEW]);
}

#[test]
fn one_zygote_is_replaced_at_a_time() {
    let mut brain = renewed_after(1, &[ONE, ONE]);
    brain.step(Message::Start);
    brain.step(lease(0, 1));
    brain.step(lease(1, 2));
    let effects = brain.step(of(1, 1, 1));
    assert!(effects.contains(&RENEW), "{effects:?}");
    let other = Message::Made { set: 1, cell: 2, origin: Origin { zygote: 2, forks: 1 } };
    let effects = brain.step(other);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Renew { .. })), "{effects:?}");
    let effects = brain.step(Message::TookOver { set: 0, zygote: 3 });
    assert!(effects.contains(&Effect::Renew { set: 1 }), "{effects:?}");
}

#[test]
fn an_image_that_rests_needs_no_other_zygote() {
    let mut brain = renewed_after(1, &[ONE, ONE]);
    brain.step(lease(1, 1));
    let made = |cell, zygote| Message::Made { set: 1, cell, origin: Origin { zygote, forks: 1 } };
    assert!(brain.step(made(1, 1)).contains(&Effect::Renew { set: 1 }));
    brain.step(made(2, 1));
    brain.step(Message::Looked { set: 1 });
    assert!(brain.step(Message::Looked { set: 1 }).contains(&Effect::Rest { set: 1 }));
    assert_eq!(brain.step(Message::NotRenewed { set: 1, errno: 0 }), vec![], "it was given up with the rest");
    // The one that comes with the next lease counts from its beginning.
    brain.step(lease(1, 2));
    assert!(brain.step(made(3, 2)).contains(&Effect::Renew { set: 1 }));
}

#[test]
fn a_closed_pool_replaces_no_zygote() {
    let mut brain = renewing();
    brain.step(Message::Close);
    assert_eq!(brain.step(Message::NotRenewed { set: 0, errno: 12 }), vec![]);
    assert_eq!(brain.step(Message::TookOver { set: 0, zygote: 2 }), vec![]);
    assert_eq!(brain.step(Message::Aged { set: 0, zygote: 2 }), vec![]);
}

#[test]
fn whoever_came_first_is_made_a_cell_first_whatever_the_image() {
    let mut brain = fixed(&[0, 0, 0]);
    let mut made = Vec::new();
    for (ticket, image) in [2, 1, 0, 2, 0, 1, 0, 0].into_iter().enumerate() {
        let effects = brain.step(lease(image, ticket as u64));
        made.extend(effects.into_iter().filter(|effect| matches!(effect, Effect::Make { .. })));
    }
    let make = |image: usize| Effect::Make { image, set: image as u32 };
    assert_eq!(made, [make(2), make(1), make(0), make(2)], "as many as may be made at a time, in order");
    // Each that is ready makes room for who has waited longest: image 0, then 1, though others of image 0 wait.
    let effects = brain.step(Message::Made { set: 2, cell: 1, origin: Origin::default() });
    assert_eq!(effects, vec![Effect::Hand { ticket: 0, cell: 1 }, make(0)]);
    let effects = brain.step(Message::Made { set: 2, cell: 2, origin: Origin::default() });
    assert_eq!(effects, vec![Effect::Hand { ticket: 3, cell: 2 }, make(1)]);
    let effects = brain.step(Message::Made { set: 0, cell: 3, origin: Origin::default() });
    assert_eq!(effects, vec![Effect::Hand { ticket: 2, cell: 3 }, make(0)]);
}

#[test]
fn images_that_are_slow_to_come_up_hold_up_no_lease_of_the_first() {
    let mut brain = fixed(&[0, 0, 0]);
    let effects = (0..8).flat_map(|ticket| brain.step(lease(1 + ticket as usize % 2, ticket)));
    let made_of_others = effects.filter(|effect| matches!(effect, Effect::Make { .. })).count();
    assert_eq!(made_of_others, MAKES_OF_OTHERS_MAX);
    assert_eq!(brain.step(lease(0, 8)), vec![MAKE]);
    assert_eq!(brain.step(lease(0, 9)), vec![], "all are taken");
    assert_eq!(brain.step(made(0, 1)), vec![Effect::Hand { ticket: 8, cell: 1 }, MAKE]);
    let effects = brain.step(made(1, 2));
    assert_eq!(effects, vec![Effect::Hand { ticket: 0, cell: 2 }, Effect::Make { image: 2, set: 2 }], "its own again");
}
