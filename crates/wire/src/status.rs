//! Health, readiness and errors.

use serde::Serialize;
use utoipa::ToSchema;

/// How the server is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Health<'a> {
    /// `ok`, or `draining` while the server shuts down.
    pub status: &'a str,
    /// Sessions that exist.
    pub session_count: u64,
    /// Sessions that may exist.
    pub max_sessions: u64,
    /// Calls that run.
    pub running_calls: u64,
    /// Cells that are ready to be leased at once.
    pub warm_cells: u64,
    /// How strongly sessions are held: `cell`.
    pub tier: &'a str,
    /// The image that sessions run where the lease names none.
    pub image: &'a str,
    /// The server's version.
    pub version: &'a str,
}

/// Whether the server takes leases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Ready<'a> {
    /// `ready`.
    pub status: &'a str,
}

/// What a workspace has of a shared server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Tenancy<'a> {
    /// The workspace.
    pub workspace: &'a str,
    /// Its sessions.
    pub session_count: u64,
}

/// What went wrong. Informational: no client may depend on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Error<'a> {
    /// What went wrong, and what to change.
    pub detail: &'a str,
}
