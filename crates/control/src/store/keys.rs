//! Signing keys: their public parts and their times.

use serde_json::json;
use sqlx::any::AnyRow;

use super::audit::{self, NewLine};
use super::{Store, Tx, commit, optional_number, signed, text, unsigned};
use crate::error::ControlError;

/// A signing key as the database knows it.
#[derive(Debug, Clone)]
pub(crate) struct KeyRow {
    pub(crate) kid: String,
    /// A key set of this key alone.
    pub(crate) jwks: String,
    pub(crate) created_ms: u64,
    /// From when on it signs, until the next one does.
    pub(crate) signs_from_ms: u64,
    /// When the last grant that it signed ends; 0 before the first.
    pub(crate) grants_end_ms: u64,
    pub(crate) revoked_ms: Option<u64>,
}

fn read(row: &AnyRow) -> Result<KeyRow, ControlError> {
    let revoked_ms = optional_number(row, "revoked_ms")?;
    Ok(KeyRow {
        kid: text(row, "kid")?,
        jwks: text(row, "jwks")?,
        created_ms: unsigned(row, "created_ms")?,
        signs_from_ms: unsigned(row, "signs_from_ms")?,
        grants_end_ms: unsigned(row, "grants_end_ms")?,
        revoked_ms: revoked_ms.map(|at| u64::try_from(at).unwrap_or_default()),
    })
}

const QUERY: &str = "SELECT kid, jwks, created_ms, signs_from_ms, grants_end_ms, revoked_ms FROM signing_keys \
                     ORDER BY signs_from_ms, created_ms, kid";

/// Every key, as this transaction sees it, in the order in which they sign.
pub(crate) async fn keys_in(transaction: &mut Tx) -> Result<Vec<KeyRow>, ControlError> {
    let rows = sqlx::query(QUERY).fetch_all(&mut **transaction).await;
    rows.map_err(ControlError::database("reading the keys"))?.iter().map(read).collect()
}

/// Writes down that a key signs a grant that ends then, in the transaction of the grant.
pub(crate) async fn signs_until(transaction: &mut Tx, kid: &str, ends_ms: u64) -> Result<(), ControlError> {
    let update = "UPDATE signing_keys SET grants_end_ms = $1 WHERE kid = $2 AND grants_end_ms < $1";
    let done = sqlx::query(update).bind(signed(ends_ms)).bind(kid).execute(&mut **transaction).await;
    done.map(|_| ()).map_err(ControlError::database("writing down the end of a grant"))
}

/// Adds a key, with its line of the audit.
pub(crate) async fn add_in(transaction: &mut Tx, key: &KeyRow, actor: &str) -> Result<(), ControlError> {
    let insert = "INSERT INTO signing_keys (kid, jwks, created_ms, signs_from_ms, grants_end_ms) \
                  VALUES ($1, $2, $3, $4, 0)";
    sqlx::query(insert)
        .bind(&key.kid)
        .bind(&key.jwks)
        .bind(signed(key.created_ms))
        .bind(signed(key.signs_from_ms))
        .execute(&mut **transaction)
        .await
        .map_err(ControlError::database("adding a key"))?;
    let line = NewLine {
        at_ms: key.created_ms,
        actor,
        action: "key.added",
        workspace: None,
        subject: &key.kid,
        detail: json!({"signs_from_ms": key.signs_from_ms}),
    };
    audit::write(transaction, line).await
}

impl Store {
    /// Every key, in the order in which they sign.
    pub(crate) async fn keys(&self) -> Result<Vec<KeyRow>, ControlError> {
        let rows = sqlx::query(QUERY).fetch_all(&self.pool).await;
        rows.map_err(ControlError::database("reading the keys"))?.iter().map(read).collect()
    }

    /// Takes a key out at once. `false` where there is none that is not revoked.
    pub(crate) async fn revoke_key(&self, kid: &str, now_ms: u64) -> Result<bool, ControlError> {
        let mut transaction = self.write().await?;
        let update = "UPDATE signing_keys SET revoked_ms = $1 WHERE kid = $2 AND revoked_ms IS NULL";
        let done = sqlx::query(update).bind(signed(now_ms)).bind(kid).execute(&mut *transaction).await;
        if done.map_err(ControlError::database("revoking a key"))?.rows_affected() == 0 {
            return Ok(false);
        }
        let (action, detail) = ("key.revoked", json!({}));
        let line = NewLine { at_ms: now_ms, actor: "admin", action, workspace: None, subject: kid, detail };
        audit::write(&mut transaction, line).await?;
        commit(transaction).await?;
        Ok(true)
    }
}
