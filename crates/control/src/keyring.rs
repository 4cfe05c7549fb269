//! Signing keys: which one signs, which ones are published, and their private parts in files.
//!
//! Theory of operation. The database holds, for each key, from when it signs and when the last grant that it signed
//! ends. Which key signs at a moment, and which keys are published then, follows from these rows and the clock alone
//! ([`schedule`]), so every replica says the same and a restart changes nothing. A new key is published at once and
//! signs after a lead time, within which every front door has fetched the set. An old key stays published until its
//! last grant has ended; the end of a grant is written down before the grant is handed out.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use ringfence_grant::limits::SKEW_SECONDS_MAX;
use ringfence_grant::{Algorithm, KeySet, PublicKey, SigningKey};

use crate::error::ControlError;
use crate::limits::KEYS_PUBLISHED_MAX;
use crate::store::{self, KeyRow, Store, Tx};

/// What a key does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Published, and will sign later.
    Next,
    /// Signs.
    Signing,
    /// Published until its last grant has ended.
    Old,
    /// Not published any more.
    Ended,
    /// Taken out by the admin.
    Revoked,
}

/// The role of each key, in the order of the rows, which is the order in which they sign.
pub(crate) fn schedule(rows: &[KeyRow], now_ms: u64, lead_ms: u64) -> Vec<Role> {
    let live = |row: &KeyRow| row.revoked_ms.is_none();
    let signing = rows.iter().rposition(|row| live(row) && row.signs_from_ms <= now_ms);
    let role = |(index, row): (usize, &KeyRow)| {
        if !live(row) {
            return Role::Revoked;
        }
        match signing {
            Some(signing) if index == signing => Role::Signing,
            Some(signing) if index < signing => {
                // Its successor's time counts too: a replica whose clock is late may sign with this one for a while.
                let after = rows.iter().skip(index + 1).filter(|row| live(row)).map(|row| row.signs_from_ms).min();
                let kept = row.grants_end_ms.saturating_add(SKEW_SECONDS_MAX * 1000);
                let kept = kept.max(after.unwrap_or_default().saturating_add(lead_ms));
                if now_ms <= kept { Role::Old } else { Role::Ended }
            }
            _ => Role::Next,
        }
    };
    rows.iter().enumerate().map(role).collect()
}

/// Whether a key of that role is in the key set.
pub(crate) fn is_published(role: Role) -> bool {
    matches!(role, Role::Next | Role::Signing | Role::Old)
}

/// What became of adding a key.
pub(crate) enum Added {
    Done(KeyRow),
    /// Why it was not.
    Conflict(&'static str),
}

/// The private keys.
pub(crate) struct Keyring {
    folder: PathBuf,
    lead_ms: u64,
    /// Keys that were read once; there are as many as are used in the life of the process.
    read: RwLock<HashMap<String, Arc<SigningKey>>>,
}

impl Keyring {
    pub(crate) fn new(folder: PathBuf, lead_seconds: u64) -> Self {
        Keyring { folder, lead_ms: lead_seconds.saturating_mul(1000), read: RwLock::default() }
    }

    pub(crate) fn schedule(&self, rows: &[KeyRow], now_ms: u64) -> Vec<Role> {
        schedule(rows, now_ms, self.lead_ms)
    }

    /// The key that signs now.
    pub(crate) fn signer(&self, rows: &[KeyRow], now_ms: u64) -> Result<Arc<SigningKey>, ControlError> {
        let roles = self.schedule(rows, now_ms);
        let signing = rows.iter().zip(roles).find(|(_, role)| *role == Role::Signing);
        let (row, _) = signing.ok_or(ControlError::NoKey)?;
        self.private(&row.kid)
    }

    /// The key set to publish; `None` where there is none.
    pub(crate) fn published(&self, rows: &[KeyRow], now_ms: u64) -> Result<Option<String>, ControlError> {
        let roles = self.schedule(rows, now_ms);
        let mut keys = Vec::new();
        for (row, _) in rows.iter().zip(roles).filter(|(_, role)| is_published(*role)) {
            keys.push(public(row)?);
        }
        if keys.is_empty() {
            return Ok(None);
        }
        KeySet::new(keys).map(|set| Some(set.to_json())).map_err(ControlError::Key)
    }

    /// Makes a key that signs after the lead time, or at once: where there is none yet, or where that is asked for.
    pub(crate) async fn add(
        &self,
        store: &Store,
        algorithm: Algorithm,
        at_once: bool,
        now_ms: u64,
        actor: &str,
    ) -> Result<Added, ControlError> {
        let key = SigningKey::generate(algorithm).map_err(ControlError::Key)?;
        let kid = key.public().key_id().to_owned();
        let mut transaction = store.write_alone(store::LOCK).await?;
        let rows = store::keys_in(&mut transaction).await?;
        let roles = self.schedule(&rows, now_ms);
        if roles.iter().filter(|role| is_published(**role)).count() >= KEYS_PUBLISHED_MAX {
            return Ok(Added::Conflict(
                "too many keys are published: wait until the grants of the old ones have ended",
            ));
        }
        if roles.contains(&Role::Next) && !at_once {
            return Ok(Added::Conflict("a next key waits for its time already"));
        }
        let lead_ms = if at_once || !roles.contains(&Role::Signing) { 0 } else { self.lead_ms };
        let jwks = KeySet::new(vec![key.public().clone()]).map_err(ControlError::Key)?.to_json();
        let row = KeyRow {
            kid: kid.clone(),
            jwks,
            created_ms: now_ms,
            signs_from_ms: now_ms.saturating_add(lead_ms),
            grants_end_ms: 0,
            revoked_ms: None,
        };
        // The file first: a key that is published and cannot sign is a hole, a file that nobody knows is not.
        let path = self.path(&kid)?;
        ringfence_secret::create_private(&path, key.to_jwk().as_bytes())?;
        let added = add(transaction, &row, actor).await;
        if added.is_err() {
            let _ = std::fs::remove_file(&path);
        }
        added?;
        self.read.write().unwrap_or_else(PoisonError::into_inner).insert(kid, Arc::new(key));
        Ok(Added::Done(row))
    }

    /// Takes the private part of a key away.
    pub(crate) fn forget(&self, kid: &str) {
        self.read.write().unwrap_or_else(PoisonError::into_inner).remove(kid);
        if let Ok(path) = self.path(kid)
            && let Err(error) = std::fs::remove_file(&path)
        {
            tracing::warn!(path = %path.display(), %error, "the file of a revoked key could not be removed");
        }
    }

    fn private(&self, kid: &str) -> Result<Arc<SigningKey>, ControlError> {
        if let Some(key) = self.read.read().unwrap_or_else(PoisonError::into_inner).get(kid) {
            return Ok(Arc::clone(key));
        }
        // A small local file: not worth a thread of its own.
        let path = self.path(kid)?;
        let document = ringfence_secret::read_private(&path)?;
        let key = SigningKey::from_jwk(document.trim_end().as_bytes());
        let key = key.map_err(|source| ControlError::KeyFile { path: path.clone(), source })?;
        if key.public().key_id() != kid {
            return Err(ControlError::Content { path, reason: "it holds another key than its name says".to_owned() });
        }
        let key = Arc::new(key);
        self.read.write().unwrap_or_else(PoisonError::into_inner).insert(kid.to_owned(), Arc::clone(&key));
        Ok(key)
    }

    fn path(&self, kid: &str) -> Result<PathBuf, ControlError> {
        // A thumbprint; whatever else stands in the database names no file.
        let good = !kid.is_empty() && kid.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if good { Ok(self.folder.join(format!("{kid}.jwk"))) } else { Err(ControlError::Row("key id")) }
    }
}

async fn add(mut transaction: Tx, row: &KeyRow, actor: &str) -> Result<(), ControlError> {
    store::add_key_in(&mut transaction, row, actor).await?;
    store::commit(transaction).await
}

fn public(row: &KeyRow) -> Result<PublicKey, ControlError> {
    let set = KeySet::parse(row.jwks.as_bytes()).map_err(ControlError::Key)?;
    set.keys().first().cloned().ok_or(ControlError::Row("key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kid: &str, signs_from_ms: u64, grants_end_ms: u64) -> KeyRow {
        let (kid, jwks) = (kid.to_owned(), String::new());
        KeyRow { kid, jwks, created_ms: 0, signs_from_ms, grants_end_ms, revoked_ms: None }
    }

    #[test]
    fn a_rotation_has_no_hole() {
        let skew = SKEW_SECONDS_MAX * 1000;
        let rows = [row("a", 0, 5_000_000), row("b", 1_000_000, 0)];
        for (now, roles) in [
            (0, [Role::Signing, Role::Next]),
            (999_999, [Role::Signing, Role::Next]),
            (1_000_000, [Role::Old, Role::Signing]),
            (5_000_000 + skew, [Role::Old, Role::Signing]),
            (5_000_001 + skew, [Role::Ended, Role::Signing]),
        ] {
            assert_eq!(schedule(&rows, now, 300_000), roles, "{now}");
        }
        // One that never signed stays for the lead time, for a replica whose clock is late.
        let rows = [row("a", 0, 0), row("b", 1_000_000, 0)];
        assert_eq!(schedule(&rows, 1_300_000, 300_000), [Role::Old, Role::Signing]);
        assert_eq!(schedule(&rows, 1_300_001, 300_000), [Role::Ended, Role::Signing]);
    }

    #[test]
    fn a_revoked_key_is_gone_and_the_one_before_it_signs_again() {
        let mut rows = [row("a", 0, 0), row("b", 10, 0), row("c", 20_000_000, 0)];
        rows[1].revoked_ms = Some(15);
        assert_eq!(schedule(&rows, 16, 100), [Role::Signing, Role::Revoked, Role::Next]);
        rows[0].revoked_ms = Some(15);
        assert_eq!(schedule(&rows, 16, 100), [Role::Revoked, Role::Revoked, Role::Next]);
    }
}
