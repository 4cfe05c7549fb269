//! Which backends a lease is tried on, and in which order. Pure.

/// What is known of a backend.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// It answers its health poll, and takes sessions.
    pub(crate) open: bool,
    /// Sessions that it told of, and leases that it got since.
    pub(crate) sessions: u64,
    /// Sessions that it may have; 0 is not known.
    pub(crate) sessions_max: u64,
}

/// The places of the backends to try, best first: those with room before the full ones (what they told may be old),
/// the least loaded by share first, equals in turn.
pub(crate) fn order(loads: &[Load], turn: usize) -> Vec<usize> {
    let mut places: Vec<usize> =
        (0..loads.len()).filter(|place| loads.get(*place).is_some_and(|load| load.open)).collect();
    let length = places.len().max(1);
    places.rotate_left(turn % length);
    places.sort_by(|a, b| match (loads.get(*a), loads.get(*b)) {
        (Some(a), Some(b)) => is_full(a).cmp(&is_full(b)).then_with(|| compare_shares(a, b)),
        _ => std::cmp::Ordering::Equal,
    });
    places
}

fn is_full(load: &Load) -> bool {
    load.sessions_max > 0 && load.sessions >= load.sessions_max
}

/// `a.sessions / a.max` against `b.sessions / b.max`, without a division. An unknown bound counts as a large one.
fn compare_shares(a: &Load, b: &Load) -> std::cmp::Ordering {
    let bound = |load: &Load| u128::from(if load.sessions_max == 0 { 1 << 20 } else { load.sessions_max });
    (u128::from(a.sessions) * bound(b)).cmp(&(u128::from(b.sessions) * bound(a)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(open: bool, sessions: u64, sessions_max: u64) -> Load {
        Load { open, sessions, sessions_max }
    }

    #[test]
    fn the_least_loaded_comes_first_and_closed_ones_never() {
        let loads = [load(true, 5, 10), load(false, 0, 10), load(true, 10, 100), load(true, 9, 10)];
        assert_eq!(order(&loads, 0), [2, 0, 3]);
    }

    #[test]
    fn full_ones_come_last_but_are_tried() {
        assert_eq!(order(&[load(true, 10, 10), load(true, 999, 1000)], 0), [1, 0]);
        assert_eq!(order(&[load(true, 10, 10)], 0), [0]);
    }

    #[test]
    fn equals_take_turns() {
        let loads = [load(true, 0, 10), load(true, 0, 20), load(true, 0, 10)];
        let firsts: Vec<usize> = (0..4).map(|turn| order(&loads, turn)[0]).collect();
        assert_eq!(firsts, [0, 1, 2, 0]);
        assert!(order(&[], 7).is_empty());
    }

    #[test]
    fn hostile_figures_do_no_harm() {
        let loads = [load(true, u64::MAX, u64::MAX), load(true, u64::MAX, 1), load(true, 0, u64::MAX)];
        assert_eq!(order(&loads, 0), [2, 0, 1]);
    }
}
