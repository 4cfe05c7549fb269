//! What a front door and a control plane say to each other of usage: the record of a lease or a call, and the batch that
//! records are delivered in. `docs/gate.md` says what each member means.
//!
//! For: one shape on both sides. May know: nothing. Never knows: where records are kept, how they are sent or summed up.
//!
//! **Invariants.**
//! - A record holds no code, no output, no path and no token.
//! - What a newer front door writes is taken and kept as it was written: unknown members are ignored, unknown kinds and
//!   outcomes are texts.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A lease, also one that came to nothing.
    Lease,
    /// A call that was sent on.
    Call,
    /// One that this build does not know.
    #[serde(untagged)]
    Other(String),
}

impl Kind {
    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Kind::Lease => "lease",
            Kind::Call => "call",
            Kind::Other(text) => text,
        }
    }
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A session was leased, or a program ran and succeeded.
    Ok,
    /// A program ran and failed.
    ProgramFailed,
    /// A program ran into a limit: its time, memory, processes, disk or CPU.
    LimitExceeded,
    /// The backend refused: the request was malformed, or the session was gone.
    Refused,
    /// No backend took it now; nothing ran.
    Unavailable,
    /// The backend's answer was none, broke off, came too late or broke the contract: it may have run.
    BackendFailed,
    /// The front door ended before the outcome was known: it may have run.
    Unknown,
    /// One that this build does not know: it may have run.
    #[serde(untagged)]
    Other(String),
}

impl Outcome {
    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Outcome::Ok => "ok",
            Outcome::ProgramFailed => "program_failed",
            Outcome::LimitExceeded => "limit_exceeded",
            Outcome::Refused => "refused",
            Outcome::Unavailable => "unavailable",
            Outcome::BackendFailed => "backend_failed",
            Outcome::Unknown => "unknown",
            Outcome::Other(text) => text,
        }
    }
}

/// One lease or call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = UsageRecord)]
pub struct Record {
    /// A record counts once, by this: a UUID.
    pub id: String,
    /// `lease`, `call`, or what is not known yet, which counts as a call.
    #[schema(value_type = String)]
    pub kind: Kind,
    /// When it began, POSIX milliseconds.
    pub at_ms: u64,
    /// Whose it is.
    pub workspace: String,
    /// The grant's `jti`.
    pub grant: String,
    /// The backend's name; null where none was found.
    pub backend: Option<String>,
    /// The backend's id of the session; null where none was leased.
    pub session: Option<String>,
    /// The tool kind of a call.
    pub tool: Option<String>,
    /// From the request's body to the backend's answer, as the front door saw it; null where it saw no end.
    pub wall_ms: Option<u64>,
    /// The backend's figure, where it gives one.
    pub cpu_ms: Option<u64>,
    /// The backend's figure, where it gives one.
    pub memory_peak_bytes: Option<u64>,
    /// The backend's figure, where it gives one.
    pub stdout_bytes: Option<u64>,
    /// The backend's figure, where it gives one.
    pub stderr_bytes: Option<u64>,
    /// What became of it.
    #[schema(value_type = String)]
    pub outcome: Outcome,
    /// The status that the client got; null where it got none.
    pub status: Option<u64>,
}

/// A batch of a front door; `docs/gate.md`. Members that are not known are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = UsageBatch)]
pub struct Batch {
    /// The batch's key, the same as `Idempotency-Key`.
    pub batch: String,
    /// What the front door calls itself.
    pub gate: String,
    /// 1 to 1000 records.
    pub records: Vec<Record>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_as_they_are_written_and_unknown_ones_are_kept() {
        let outcomes =
            ["ok", "program_failed", "limit_exceeded", "refused", "unavailable", "backend_failed", "unknown"];
        for text in outcomes.into_iter().chain(["eaten"]) {
            let json = format!("\"{text}\"");
            let outcome: Outcome = serde_json::from_str(&json).unwrap();
            assert_eq!((outcome.as_str(), serde_json::to_string(&outcome).unwrap()), (text, json));
            assert_eq!(matches!(outcome, Outcome::Other(_)), text == "eaten");
        }
        for text in ["lease", "call", "nap"] {
            let json = format!("\"{text}\"");
            let kind: Kind = serde_json::from_str(&json).unwrap();
            assert_eq!((kind.as_str(), serde_json::to_string(&kind).unwrap()), (text, json));
            assert_eq!(matches!(kind, Kind::Other(_)), text == "nap");
        }
        assert!(serde_json::from_str::<Kind>("1").is_err());
    }
}
