//! Why a request gets no result: a fault of an operation, or a reason of the door's own.

use ringfence_op::{Fault, FaultKind, PathRefusal, WorkspacePath};

/// What a handler answers instead of a reply.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The operation could not be done.
    Fault(Fault),
    /// Nothing is served under this path.
    NoRoute,
    /// Something is, by these methods.
    WrongMethod(&'static str),
    /// Sessions are not listed here.
    NoListing,
    /// Whose request it is is not told, or not as it must be.
    Tenancy(&'static str),
    /// The body came too slowly.
    SlowBody,
    /// The body broke off, or its framing is wrong.
    BrokenBody,
    /// The body is larger than it may be.
    BodyTooLarge {
        /// What it may be.
        bytes_max: u64,
    },
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Refusal::Fault(fault)
    }
}

impl From<ringfence_wire::Refusal> for Refusal {
    fn from(refusal: ringfence_wire::Refusal) -> Self {
        let (kind, detail) = match refusal {
            ringfence_wire::Refusal::UnknownTool(detail) => (FaultKind::UnknownTool, detail),
            ringfence_wire::Refusal::Malformed(detail) => (FaultKind::Malformed, detail),
        };
        Refusal::Fault(Fault::new(kind, detail))
    }
}

/// A malformed request.
pub(crate) fn malformed(detail: impl Into<String>) -> Refusal {
    Refusal::Fault(Fault::new(FaultKind::Malformed, detail))
}

/// A path of a request.
pub(crate) fn workspace_path(text: &str) -> Result<WorkspacePath, Refusal> {
    WorkspacePath::parse(text).map_err(|refusal| {
        let (kind, detail) = match refusal {
            PathRefusal::Escapes => (FaultKind::PathEscapes, "`path` leaves the workspace"),
            PathRefusal::Nul => (FaultKind::Malformed, "`path` holds a NUL character"),
            PathRefusal::TooLong => {
                (FaultKind::Malformed, "`path` is too long: it may have 4095 bytes, and each of its components 255")
            }
        };
        Refusal::Fault(Fault::new(kind, detail))
    })
}
