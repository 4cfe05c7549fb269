//! What is parsed behind a signature, for the targets of `ringfence-fuzz`; nothing else calls this.

use crate::grant::Grant;
use crate::{claims, json};

/// Reads claims as if a signature held over them; `None` where they are refused.
#[must_use]
pub fn claims(bytes: &[u8], audience: &str) -> Option<Grant> {
    claims::read(&json::object(bytes)?, audience).ok()
}

/// The claims of a grant, as they are signed.
#[must_use]
pub fn written(grant: &Grant) -> Option<String> {
    claims::write(grant).ok()
}
