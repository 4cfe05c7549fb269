//! The bounds of the control plane, each with its reason. `docs/limits.md` lists them.

use std::time::Duration;

/// Connections at once.
pub const CONNECTIONS_MAX: usize = 1024;

/// The largest head of a request, bytes.
pub const HEAD_BYTES_MAX: usize = 32 << 10;

/// The most header fields of a request.
pub const HEADERS_MAX: usize = 64;

/// How long a connection may be idle, or take to send a head.
pub const HEAD_WAIT: Duration = Duration::from_secs(30);

/// How long a body may take to come.
pub const BODY_WAIT: Duration = Duration::from_secs(30);

/// The largest body but a batch of usage, bytes: a policy and its texts.
pub const BODY_BYTES_MAX: usize = 64 << 10;

/// The largest batch of usage, bytes: twice what a gate sends.
pub const BATCH_BYTES_MAX: usize = 2 << 20;

/// The most records of a batch: twice what a gate sends.
pub const BATCH_RECORDS_MAX: usize = 1000;

/// The longest text of a usage record's member, bytes.
pub const RECORD_TEXT_BYTES_MAX: usize = 256;

/// The largest number of a usage record that is counted (34 years of milliseconds, a TiB): the sum of millions of them
/// fits into a column. A larger one counts as this.
pub const RECORD_NUMBER_MAX: u64 = 1 << 40;

/// How long running requests may go on after the end was asked for.
pub const DRAIN_WAIT: Duration = Duration::from_secs(10);

/// Connections to the database at once.
pub const DATABASE_CONNECTIONS_MAX: u32 = 8;

/// How long a request waits for one of them.
pub const DATABASE_WAIT: Duration = Duration::from_secs(10);

/// The longest `Retry-After` that is given, seconds.
pub const RETRY_AFTER_SECONDS: u32 = 5;

/// The longest name of a workspace or a token, bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// The longest purpose hint, bytes: it goes into the prompt of every request.
pub const PURPOSE_HINT_BYTES_MAX: usize = 2000;

/// The most iterations of a gateway's tool loop.
pub const ITERATIONS_MAX: u32 = 1000;

/// The most workspaces that a gateway's token can be bound to by name.
pub const TOKEN_WORKSPACES_MAX: usize = 256;

/// Entries of a page unless the request says otherwise.
pub const PAGE_DEFAULT: u32 = 100;

/// The most entries of a page.
pub const PAGE_MAX: u32 = 1000;

/// The most rows of a usage report; a longer one is refused, since a cut-off sum is wrong.
pub const REPORT_ROWS_MAX: u32 = 100_000;

/// The longest time that a usage report spans, days.
pub const REPORT_DAYS_MAX: u64 = 400;

/// The shortest time that records of usage are kept, days: their ids must outlive whatever keeps a front door from the
/// control plane, or what it sends again is refused.
pub const USAGE_KEEP_DAYS_MIN: u64 = 7;

/// The shortest time that lines of the audit are kept, days.
pub const AUDIT_KEEP_DAYS_MIN: u64 = 1;

/// The longest of both, days: a hundred years.
pub const KEEP_DAYS_MAX: u64 = 36_500;

/// How far pruning believes a clock that is ahead of the newest record, days.
pub const PRUNE_AHEAD_DAYS_MAX: u64 = 1;

/// Rows that are pruned in one transaction: it lasts a part of a second, and others wait for it.
pub const PRUNE_PORTION_ROWS: i64 = 5000;

/// How long others have their turn between two such transactions.
pub const PRUNE_REST: Duration = Duration::from_millis(50);

/// How often a control plane that runs prunes.
pub const PRUNE_PAUSE: Duration = Duration::from_secs(3600);

/// How long a grant is valid unless the request asks for less, seconds.
pub const GRANT_SECONDS_DEFAULT: u64 = 900;

/// How long the next key is published before it signs, seconds: five times what a gate takes to see it.
pub const KEY_LEAD_SECONDS_DEFAULT: u64 = 300;

/// The longest such time, seconds.
pub const KEY_LEAD_SECONDS_MAX: u64 = 7 * 86_400;

/// Keys that are published at once: a set holds at most sixteen, and a rotation needs two.
pub const KEYS_PUBLISHED_MAX: usize = 8;

/// The shortest admin token, bytes: it is chosen by a person or a program, and guards everything.
pub const ADMIN_TOKEN_BYTES_MIN: usize = 16;

/// The longest detail of an error, characters.
pub const DETAIL_CHARS_MAX: usize = 300;
