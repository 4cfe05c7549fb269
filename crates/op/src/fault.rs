//! Why an operation could not be done at all, and whose fault that is.

use std::error::Error;
use std::fmt;

/// Whose fault it is and what kind; only the server's `render` turns it into a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The request is malformed.
    Malformed,
    /// The tool kind is not one of contract version 1's.
    UnknownTool,
    /// The credential is missing or rejected.
    Unauthorized,
    /// The path leaves the workspace.
    PathEscapes,
    /// The path names something that is no regular file (directory, FIFO, socket, device).
    NotAFile,
    /// The session does not exist (any more).
    UnknownSession,
    /// The file or directory does not exist.
    UnknownFile,
    /// The upload is larger than the cap, or than what is left of the workspace.
    TooLarge,
    /// No room now; try again after so many whole seconds.
    Capacity {
        /// Delay-seconds for `Retry-After`, 1 to 999,999.
        retry_after_seconds: u32,
    },
    /// Our own failure.
    House,
}

/// A failed operation: the kind, a public text for the caller, and a private cause for the log.
pub struct Fault {
    kind: FaultKind,
    detail: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl Fault {
    /// A fault with a text that tells the caller what to change. The text must hold no path or secret of ours.
    pub fn new(kind: FaultKind, detail: impl Into<String>) -> Self {
        Fault { kind, detail: detail.into(), cause: None }
    }

    /// Our own failure: the caller sees only that it failed, the log sees `cause`.
    pub fn house(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Fault {
            kind: FaultKind::House,
            detail: "the backend failed to carry out the operation".to_owned(),
            cause: Some(cause.into()),
        }
    }

    /// The same fault with a cause for the log.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// The session is not there.
    #[must_use]
    pub fn unknown_session() -> Self {
        Fault::new(FaultKind::UnknownSession, "no such session: it never existed, was released, or has expired")
    }

    /// What kind it is.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        self.kind
    }

    /// The public text.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The private cause, for the log only.
    #[must_use]
    pub fn cause(&self) -> Option<&(dyn Error + Send + Sync)> {
        self.cause.as_deref()
    }
}

impl fmt::Debug for Fault {
    /// Kind and public text only: the cause is written by whoever logs it, on purpose.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault").field("kind", &self.kind).field("detail", &self.detail).finish_non_exhaustive()
    }
}
