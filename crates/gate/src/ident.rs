//! Session ids as clients see them: sealed, so that any gate that holds the key routes by the id alone.
//!
//! An id is base64url of a random nonce (24 bytes) and of XChaCha20-Poly1305 over the backend's name and its own id of
//! the session; the workspace is authenticated with it. So an id of another workspace, of another deployment, a
//! made-up one and a changed one are all the same: no id. It names a backend, never an address.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use ringfence_op::WorkspaceId;
use ringfence_secret::read_private;
use zeroize::Zeroizing;

use crate::error::GateError;
use crate::limits::{BACKEND_SESSION_BYTES_MAX, ID_KEYS_MAX, SESSION_ID_BYTES_MAX};

const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;

/// Where a session is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The backend's name.
    pub(crate) backend: String,
    /// The backend's own id of the session: 1 to 128 characters that stand in a path as they are.
    pub(crate) session: String,
}

/// Whether a backend's id can be used in a path without escaping.
pub(crate) fn is_backend_session(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= BACKEND_SESSION_BYTES_MAX
        && !id.bytes().all(|byte| byte == b'.')
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~'))
}

/// The keys that seal and open session ids: the first seals, all open.
pub(crate) struct IdKeys(Vec<XChaCha20Poly1305>);

impl IdKeys {
    /// Reads the file: one key a line, 32 bytes in base64url without padding; lines that begin with `#` are comments.
    pub(crate) fn read(path: &Path) -> Result<Self, GateError> {
        let text = read_private(path)?;
        Self::parse(&text).map_err(|reason| GateError::Content { path: path.to_owned(), reason: reason.to_owned() })
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let mut keys = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let key = Zeroizing::new(URL_SAFE_NO_PAD.decode(line).unwrap_or_default());
            keys.push(
                XChaCha20Poly1305::new_from_slice(&key)
                    .map_err(|_| "each line must be 32 bytes in base64url without padding")?,
            );
        }
        match keys.len() {
            0 => Err("it holds no key: one line of 32 bytes in base64url without padding"),
            1..=ID_KEYS_MAX => Ok(IdKeys(keys)),
            _ => Err("it holds more than four keys"),
        }
    }

    /// The id of a session for this workspace's eyes; `None` where the kernel gives no random bytes.
    pub(crate) fn seal(&self, workspace: &WorkspaceId, place: &Place) -> Option<String> {
        let mut nonce = [0_u8; NONCE_BYTES];
        getrandom::fill(&mut nonce).ok()?;
        // Names of the list have 63 bytes at most, an address behind one 47.
        let name_bytes = u8::try_from(place.backend.len()).ok()?;
        let plain = [&[name_bytes][..], place.backend.as_bytes(), place.session.as_bytes()].concat();
        let bound = bound_to(workspace);
        let sealed = self.0.first()?.encrypt(XNonce::from_slice(&nonce), Payload { msg: &plain, aad: &bound }).ok()?;
        Some(URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat()))
    }

    /// What an id says, if it was sealed with one of the keys for this workspace.
    pub(crate) fn open(&self, workspace: &WorkspaceId, id: &str) -> Option<Place> {
        if id.len() > SESSION_ID_BYTES_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(id).ok().filter(|bytes| bytes.len() > NONCE_BYTES + TAG_BYTES)?;
        let (nonce, sealed) = bytes.split_at(NONCE_BYTES);
        let bound = bound_to(workspace);
        let open =
            |key: &XChaCha20Poly1305| key.decrypt(XNonce::from_slice(nonce), Payload { msg: sealed, aad: &bound }).ok();
        let plain = self.0.iter().find_map(open)?;
        let (name_bytes, rest) = plain.split_first()?;
        let (backend, session) = rest.split_at_checked(usize::from(*name_bytes))?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let place = Place { backend: text(backend)?, session: text(session)? };
        is_backend_session(&place.session).then_some(place)
    }
}

/// What is authenticated beside the place.
fn bound_to(workspace: &WorkspaceId) -> Vec<u8> {
    [b"ringfence session 1\0", workspace.as_str().as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(seeds: &[u8]) -> IdKeys {
        let lines: Vec<String> = seeds.iter().map(|seed| URL_SAFE_NO_PAD.encode([*seed; 32])).collect();
        IdKeys::parse(&lines.join("\n")).unwrap_or_else(|reason| panic!("{reason}"))
    }

    fn workspace(text: &str) -> WorkspaceId {
        WorkspaceId::parse(text).unwrap()
    }

    fn place() -> Place {
        Place { backend: "b1".to_owned(), session: "0123456789abcdef0123456789abcdef".to_owned() }
    }

    #[test]
    fn an_id_opens_at_every_gate_of_the_deployment_and_for_its_workspace_alone() {
        let id = keys(&[1]).seal(&workspace("a"), &place()).unwrap();
        assert_eq!(keys(&[1]).open(&workspace("a"), &id), Some(place()));
        assert_eq!(keys(&[1]).open(&workspace("b"), &id), None);
        assert_eq!(keys(&[2]).open(&workspace("a"), &id), None);
        assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')), "{id}");
    }

    #[test]
    fn keys_are_rotated_without_losing_sessions() {
        let id = keys(&[1]).seal(&workspace("a"), &place()).unwrap();
        assert_eq!(keys(&[2, 1]).open(&workspace("a"), &id), Some(place()));
        let new = keys(&[2, 1]).seal(&workspace("a"), &place()).unwrap();
        assert_eq!(keys(&[2]).open(&workspace("a"), &new), Some(place()));
    }

    #[test]
    fn a_changed_or_made_up_id_is_none() {
        let id = keys(&[1]).seal(&workspace("a"), &place()).unwrap();
        for at in 0..id.len() {
            let mut changed = id.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(keys(&[1]).open(&workspace("a"), std::str::from_utf8(&changed).unwrap()), None, "{at}");
        }
        for wrong in ["", "x", &"A".repeat(54), &"A".repeat(55), &"A".repeat(5000), "b1/0123", &id[..id.len() - 4]] {
            assert_eq!(keys(&[1]).open(&workspace("a"), wrong), None, "{wrong}");
        }
    }

    #[test]
    fn files_of_keys_are_read_strictly() {
        for wrong in ["", "# only a comment", "short", &"A".repeat(44), &format!("{}\nx", "A".repeat(43))] {
            assert!(IdKeys::parse(wrong).is_err(), "{wrong}");
        }
        assert!(IdKeys::parse(&vec!["A".repeat(43); 5].join("\n")).is_err());
        assert!(IdKeys::parse(&format!("# now\n{}\n\n", "A".repeat(43))).is_ok());
    }

    #[test]
    fn ids_of_backends_that_would_change_a_path_are_refused() {
        for wrong in ["", ".", "..", "a/b", "a?b", "a%2fb", "a b", "p\u{e4}", &"a".repeat(129)] {
            assert!(!is_backend_session(wrong), "{wrong}");
        }
        assert!(is_backend_session("a.b-c_d~0"));
    }
}
