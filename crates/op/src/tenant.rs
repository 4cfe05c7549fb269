//! The workspace of a platform that a session belongs to: the tenant, not the directory of a session.

use std::fmt;

/// A tenant's id: 1 to 64 characters of `A-Z a-z 0-9 . _ -`, of which the first is a letter or a digit. It is a
/// grant's `sub`, the value of the tenancy header and a part of usage records; it is no secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkspaceId(String);

impl WorkspaceId {
    /// The longest id, bytes.
    pub const BYTES_MAX: usize = 64;

    /// Parses an id; `None` for whatever is not exactly of the form above.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let first = text.bytes().next()?;
        let good = first.is_ascii_alphanumeric()
            && text.len() <= Self::BYTES_MAX
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
        good.then(|| WorkspaceId(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkspaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who a lease is for, where a server is shared between workspaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// The workspace: the session is there for it alone.
    pub workspace: WorkspaceId,
    /// How many sessions it may have here, where its grant has a ceiling: at least 1.
    pub sessions_max: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_parsed_strictly() {
        for good in ["a", "7", "team-a.b_c", "0b1c5b2e-7d0c-4d0e-9a57-6f0f5f3f2b11", &"x".repeat(64)] {
            assert_eq!(WorkspaceId::parse(good).unwrap().as_str(), good);
        }
        for wrong in ["", ".", "-a", "_a", "a b", "a/b", "a\n", "p\u{e4}", "a,b", &"x".repeat(65)] {
            assert_eq!(WorkspaceId::parse(wrong), None, "{wrong}");
        }
    }
}
