//! The bounds of the checker. A backend may be broken or hostile: none of these is left to it.

use std::time::Duration;

/// How long an operation other than Execute may take.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What is waited for an Execute's answer beyond the budget that was granted: a client must allow more than it grants
/// (contract, Execute), and the contract's main client allows this much.
pub const HEADROOM: Duration = Duration::from_secs(10);

/// The budget that is granted to ordinary calls, seconds.
pub const BUDGET_SECONDS: u64 = 10;

/// How long one check may take, its own waits included.
pub const CHECK_MAX: Duration = Duration::from_secs(180);

/// How long a whole run may take; what is left then counts as not judged.
pub const RUN_MAX: Duration = Duration::from_secs(30 * 60);

/// After so many requests in a row without an answer the rest is not asked any more.
pub const UNANSWERED_MAX: u32 = 4;

/// The most that is read of one answer.
pub const ANSWER_BYTES_MAX: usize = 32 << 20;

/// How much of a request or of an answer a finding shows, characters.
pub const EXCERPT_CHARS: usize = 300;

/// The size of the upload that must not be cut.
pub const UPLOAD_BYTES: usize = 3 << 19;

/// The size of the upload that common caps refuse (asked under advice only).
pub const OVERSIZE_BYTES: usize = 101 << 20;

/// How long an oversize upload may take.
pub const OVERSIZE_PATIENCE: Duration = Duration::from_secs(90);
