//! Tokens that the control plane gives out: made, shown once, and known by their hash from then on.
//!
//! A token is 256 random bits, so a plain SHA-256 is the right hash for it: there is no dictionary of such secrets to
//! try, and the slow hashes that passwords need would only slow down every request.

use std::path::Path;

use ringfence_secret::create_private;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;
use zeroize::Zeroizing;

use crate::error::ControlError;
use crate::random;

/// Who shows a token, and so what it may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// An LLM gateway: asks for grants, resolves policies.
    Gateway,
    /// A user of a gateway, whose requests belong to one workspace: named beside the gateway's own token, alone worth
    /// nothing.
    User,
    /// A front door: delivers usage, and nothing else.
    Gate,
}

impl Kind {
    /// What its tokens begin with, so that a scanner for leaked secrets can find them.
    fn prefix(self) -> &'static str {
        match self {
            Kind::Gateway => "rfgw_",
            Kind::User => "rfus_",
            Kind::Gate => "rfgt_",
        }
    }

    /// As it stands in the database.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::Gateway => "gateway",
            Kind::User => "user",
            Kind::Gate => "gate",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Kind::Gateway, Kind::User, Kind::Gate].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A fresh token.
pub(crate) struct Fresh {
    /// The secret, to be shown once.
    pub(crate) text: Zeroizing<String>,
    /// Its first characters, by which a person finds it again.
    pub(crate) prefix: String,
    /// What is stored.
    pub(crate) hash: String,
}

impl Fresh {
    pub(crate) fn new(kind: Kind) -> Result<Self, ControlError> {
        let text = random::secret(kind.prefix())?;
        let prefix = text.chars().take(kind.prefix().len() + 4).collect();
        let hash = hash(&text);
        Ok(Fresh { text, prefix, hash })
    }
}

/// SHA-256 in hexadecimal digits.
pub(crate) fn hash(token: &str) -> String {
    Sha256::digest(token.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes the file of an admin's token: 256 random bits.
///
/// # Errors
/// When the file is there already or cannot be written, or there are no random bytes.
pub fn make_admin_token(path: &Path) -> Result<(), ControlError> {
    let token = random::secret("rfad_")?;
    Ok(create_private(path, Zeroizing::new(format!("{}\n", token.as_str())).as_bytes())?)
}
