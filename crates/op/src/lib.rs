//! What the rooms say to each other: ids, operations, outcomes, limits and faults.
//!
//! May know: nothing but `serde` derive. Never knows: I/O, HTTP statuses, JSON shapes of the wire.
//!
//! **Invariants.** A value of a type in here is valid by construction: a [`WorkspacePath`] holds no `..`, no NUL
//! and no absolute part; a [`SessionId`] is 32 lower-case hexadecimal digits. A program that fails is an
//! [`Outcome`], never a [`Fault`].

mod call;
mod fault;
mod id;
mod limits;
mod path;
mod random;
mod root;
mod tenant;

pub use call::{
    BackgroundOutput, Bash, Call, CallReport, Edit, EditCommand, LimitKind, Operation, Outcome, ProducedFile, Python,
    Usage,
};
pub use fault::{Fault, FaultKind};
pub use id::{SessionId, ToolUseId};
pub use limits::{CallLimits, CellLimits, ImageLimits, Tier, parse_bytes};
pub use path::{PathRefusal, WorkspacePath};
pub use random::random_bytes;
pub use root::{Bind, RootFile, RootSpec, RootSymlink};
pub use tenant::{Tenant, WorkspaceId};
