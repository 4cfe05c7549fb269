//! How a good backend behaves beyond the contract: what users of sandboxes complain of most, as small programs.

use crate::check::Check;

/// The groups in the order in which they are run.
pub(crate) const GROUPS: &[&[Check]] = &[];
