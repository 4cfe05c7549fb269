//! Which tier these facts allow. Pure.

use std::fmt::Write;

use ringfence_op::Tier;
use serde::Serialize;

use crate::cell;
use crate::confined;
use crate::facts::Facts;
use crate::gvisor;

/// The tiers that this build can hold sessions with, weakest first; [`can`] has an answer for each.
pub const BUILT: &[Tier] = &[Tier::Confined, Tier::Cell, Tier::Gvisor];

/// The order in which `auto` takes what is strong enough: `cell` is preferred to the stronger `gvisor`, which costs
/// speed that only its operator can decide to pay; [`Tier::None`] is never taken.
const AUTO: [Tier; 3] = [Tier::Cell, Tier::Gvisor, Tier::Confined];

/// One thing that a tier needs and this host does not give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// What, as a short sentence without a full stop.
    pub what: String,
    /// The command or the setting that lifts it.
    pub lift: String,
}

impl Missing {
    /// From both texts.
    #[must_use]
    pub fn new(what: impl Into<String>, lift: impl Into<String>) -> Missing {
        Missing { what: what.into(), lift: lift.into() }
    }
}

/// Whether this host can hold sessions by `tier`.
///
/// A tier's own question is asked here, by a function that looks at the facts alone.
///
/// # Errors
/// Everything that is missing, at least one thing.
pub fn can(tier: Tier, facts: &Facts) -> Result<(), Vec<Missing>> {
    match tier {
        Tier::Cell => cell::missing(facts),
        Tier::Confined => confined::missing(facts),
        // It needs nothing, and is taken by its name alone.
        Tier::None => Ok(()),
        Tier::Gvisor => gvisor::missing(facts),
    }
}

/// What the operator asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The best that the host offers and that is strong enough.
    Auto,
    /// This one or none.
    Named(Tier),
}

/// No tier that is strong enough can be had here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this host offers no tier that is wanted here ({})", wanted(.tried, .least))]
pub struct NoTier {
    /// The weakest that would have done.
    pub least: Tier,
    /// The tiers that would have done, and what each misses.
    pub tried: Vec<(Tier, Vec<Missing>)>,
}

impl NoTier {
    /// What lifts it, a line for each thing that is missing.
    #[must_use]
    pub fn help(&self) -> String {
        let mut text = String::new();
        for (tier, missing) in &self.tried {
            for one in missing {
                // Writing to a String cannot fail.
                let _ = write!(text, "\n    {tier}: {}: {}", one.what, one.lift);
            }
        }
        text.push_str("\n    `ringfence doctor` shows what this host offers");
        text
    }
}

fn wanted(tried: &[(Tier, Vec<Missing>)], least: &Tier) -> String {
    match tried {
        [(tier, _)] => format!("`{tier}`"),
        _ => format!("at least `{least}`"),
    }
}

/// The tier to run with: the one that was named, or the best of those that are at least as strong as `least`.
///
/// # Errors
/// What is missing for each tier that would have done.
pub fn choose(choice: Choice, least: Tier, facts: &Facts) -> Result<Tier, NoTier> {
    let candidates: Vec<Tier> = match choice {
        Choice::Named(tier) => vec![tier],
        Choice::Auto => AUTO.into_iter().filter(|tier| BUILT.contains(tier)).collect(),
    };
    let mut tried = Vec::new();
    for tier in candidates.into_iter().filter(|tier| *tier >= least) {
        match can(tier, facts) {
            Ok(()) => return Ok(tier),
            Err(missing) => tried.push((tier, missing)),
        }
    }
    Err(NoTier { least, tried })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{CellTrial, Limits};
    use crate::gvisor::GvisorTrial;
    use crate::runsc::Runsc;

    fn facts(cell: CellTrial) -> Facts {
        Facts { cell, ..Facts::default() }
    }

    fn works() -> Facts {
        facts(CellTrial::Works { limits: Limits::CgroupV2, id_per_session: true })
    }

    fn refused() -> CellTrial {
        CellTrial::Failed(Missing::new("cannot make the fleet's namespaces", "sysctl x=1"))
    }

    #[test]
    fn auto_takes_the_cell_where_it_can_be_had() {
        assert_eq!(choose(Choice::Auto, Tier::Confined, &works()), Ok(Tier::Cell));
        assert_eq!(choose(Choice::Named(Tier::Cell), Tier::Cell, &works()), Ok(Tier::Cell));
    }

    #[test]
    fn below_the_least_there_is_nothing_but_what_is_missing() {
        let none = choose(Choice::Auto, Tier::Cell, &facts(refused())).unwrap_err();
        assert_eq!(none.tried.iter().map(|(tier, _)| *tier).collect::<Vec<_>>(), [Tier::Cell, Tier::Gvisor]);
        assert!(none.help().contains("sysctl x=1"), "{}", none.help());
        assert!(none.to_string().contains("`cell`"), "{none}");
    }

    #[test]
    fn auto_takes_sandboxes_only_where_cells_cannot_be_had_or_do_not_suffice() {
        let runsc = Some(Runsc { path: "/usr/bin/runsc".into(), ..Runsc::default() });
        let sandboxes = Facts { runsc, gvisor: GvisorTrial::Works, ..works() };
        assert_eq!(choose(Choice::Auto, Tier::Confined, &sandboxes), Ok(Tier::Cell));
        assert_eq!(choose(Choice::Auto, Tier::Gvisor, &sandboxes), Ok(Tier::Gvisor));
        assert_eq!(choose(Choice::Named(Tier::Gvisor), Tier::Gvisor, &sandboxes), Ok(Tier::Gvisor));
        let without_cells = Facts { cell: refused(), ..sandboxes };
        assert_eq!(choose(Choice::Auto, Tier::Cell, &without_cells), Ok(Tier::Gvisor));
        let none = choose(Choice::Named(Tier::Gvisor), Tier::Gvisor, &works()).unwrap_err();
        assert!(none.help().contains("runsc"), "{}", none.help());
    }

    #[test]
    fn each_tier_is_built_but_the_one_that_holds_nothing() {
        assert!(BUILT.is_sorted() && !BUILT.contains(&Tier::None));
    }
}
