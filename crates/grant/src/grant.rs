//! What a grant says.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use ringfence_op::WorkspaceId;

use crate::error::GrantError;
use crate::limits::{CEILING_MAX, DATE_MAX, ID_BYTES_MAX, IMAGE_BYTES_MAX, LIFETIME_SECONDS_MAX, NAME_BYTES_MAX};
use crate::limits::{TOOL_BYTES_MAX, TOOLS_MAX};

/// One workspace may use these tools, through this front door, from then until then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// `iss`: the control plane; 1 to 256 visible ASCII characters.
    pub issuer: String,
    /// `aud`: the front door; 1 to 256 visible ASCII characters. After [`crate::Terms::verify`] the one that matched.
    pub audience: String,
    /// `sub`: the workspace.
    pub workspace: WorkspaceId,
    /// `jti`.
    pub id: GrantId,
    /// `iat`, POSIX seconds.
    pub issued_at: u64,
    /// `nbf`, POSIX seconds; not after `expires_at`.
    pub not_before: u64,
    /// `exp`, POSIX seconds; after `issued_at` by at most [`LIFETIME_SECONDS_MAX`].
    pub expires_at: u64,
    /// `tools`.
    pub tools: Tools,
    /// `image`: the one image that sessions run; 1 to 256 visible ASCII characters.
    pub image: Option<String>,
    /// The optional ceilings.
    pub ceilings: Ceilings,
}

/// Upper bounds that a grant sets, each optional and each 1 to [`CEILING_MAX`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ceilings {
    /// `sessions_max`: live sessions of the workspace.
    pub sessions_max: Option<u32>,
    /// `timeout_seconds_max`: an Execute's `timeout_seconds`.
    pub timeout_seconds_max: Option<u32>,
    /// `idle_timeout_seconds_max`: a lease's `idle_timeout_seconds`.
    pub idle_timeout_seconds_max: Option<u32>,
    /// `max_lifetime_seconds_max`: a lease's `max_lifetime_seconds`.
    pub max_lifetime_seconds_max: Option<u32>,
}

impl Grant {
    /// Holds every rule of the format that the types do not hold by themselves.
    pub(crate) fn check(&self) -> Result<(), GrantError> {
        let fail = |claim| Err(GrantError::Claim(claim));
        if !is_name(&self.issuer, NAME_BYTES_MAX) {
            return fail("iss");
        }
        if !is_name(&self.audience, NAME_BYTES_MAX) {
            return fail("aud");
        }
        if self.image.as_ref().is_some_and(|image| !is_name(image, IMAGE_BYTES_MAX)) {
            return fail("image");
        }
        if self.issued_at > DATE_MAX {
            return fail("iat");
        }
        let lifetime = self.expires_at.checked_sub(self.issued_at);
        if self.expires_at > DATE_MAX || !lifetime.is_some_and(|seconds| (1..=LIFETIME_SECONDS_MAX).contains(&seconds))
        {
            return fail("exp");
        }
        if self.not_before > self.expires_at {
            return fail("nbf");
        }
        for (name, value) in self.ceilings.named() {
            if value.is_some_and(|value| !(1..=CEILING_MAX).contains(&value)) {
                return fail(name);
            }
        }
        Ok(())
    }
}

impl Ceilings {
    /// The claims' names with their values.
    pub(crate) fn named(&self) -> [(&'static str, Option<u32>); 4] {
        [
            ("sessions_max", self.sessions_max),
            ("timeout_seconds_max", self.timeout_seconds_max),
            ("idle_timeout_seconds_max", self.idle_timeout_seconds_max),
            ("max_lifetime_seconds_max", self.max_lifetime_seconds_max),
        ]
    }
}

/// 1 to `bytes_max` visible ASCII characters.
pub(crate) fn is_name(text: &str, bytes_max: usize) -> bool {
    !text.is_empty() && text.len() <= bytes_max && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A grant's own id: 1 to 64 characters of `A-Z a-z 0-9 . _ -`. It may stand in logs and usage records.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GrantId(String);

impl GrantId {
    /// A fresh id: 128 random bits as 32 hexadecimal digits.
    ///
    /// # Errors
    /// When the kernel gives no random bytes.
    pub fn random() -> Result<Self, GrantError> {
        let mut bytes = [0_u8; 16];
        getrandom::fill(&mut bytes).map_err(|_| GrantError::Random)?;
        let mut text = String::with_capacity(32);
        for byte in bytes {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ok(GrantId(text))
    }

    /// Parses an id; `None` for whatever is not of the form above.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let good = !text.is_empty()
            && text.len() <= ID_BYTES_MAX
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
        good.then(|| GrantId(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The tool kinds that a grant allows: 1 to 16 names of 1 to 64 characters `a-z 0-9 _`. A name that this build does
/// not know is kept, since the contract may gain tool kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools(BTreeSet<String>);

impl Tools {
    /// Takes names; `None` when there is none, too many, one stands twice, or one is no tool's name.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut tools = BTreeSet::new();
        for name in names {
            let good = !name.is_empty()
                && name.len() <= TOOL_BYTES_MAX
                && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
            if !good || tools.len() == TOOLS_MAX || !tools.insert(name.to_owned()) {
                return None;
            }
        }
        (!tools.is_empty()).then_some(Tools(tools))
    }

    /// Whether a tool kind is allowed.
    #[must_use]
    pub fn allow(&self, tool: &str) -> bool {
        self.0.contains(tool)
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}
