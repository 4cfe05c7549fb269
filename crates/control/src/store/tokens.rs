//! Tokens, known by their hash.

use serde_json::json;
use sqlx::any::AnyRow;

use super::audit::{self, NewLine};
use super::{Page, Store, commit, optional_number, optional_text, signed, text, unsigned};
use crate::error::ControlError;
use crate::token::{Fresh, Kind};

/// A token, without its secret.
#[derive(Debug, Clone)]
pub(crate) struct TokenRow {
    pub(crate) id: String,
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) prefix: String,
    /// The workspaces that it may name; `None` is every one.
    pub(crate) workspaces: Option<Vec<String>>,
    pub(crate) created_ms: u64,
    pub(crate) revoked_ms: Option<u64>,
}

/// A token to be kept.
pub(crate) struct NewToken<'a> {
    pub(crate) id: &'a str,
    pub(crate) kind: Kind,
    pub(crate) name: &'a str,
    pub(crate) workspaces: Option<&'a [String]>,
    pub(crate) fresh: &'a Fresh,
    pub(crate) now_ms: u64,
}

const COLUMNS: &str = "SELECT id, kind, name, prefix, workspaces, created_ms, revoked_ms FROM tokens";

fn read(row: &AnyRow) -> Result<TokenRow, ControlError> {
    let workspaces = optional_text(row, "workspaces")?;
    let workspaces = workspaces.map(|text| serde_json::from_str(&text)).transpose();
    let revoked_ms = optional_number(row, "revoked_ms")?;
    Ok(TokenRow {
        id: text(row, "id")?,
        kind: Kind::parse(&text(row, "kind")?).ok_or(ControlError::Row("kind of token"))?,
        name: text(row, "name")?,
        prefix: text(row, "prefix")?,
        workspaces: workspaces.map_err(|_| ControlError::Row("list of workspaces"))?,
        created_ms: unsigned(row, "created_ms")?,
        revoked_ms: revoked_ms.map(|at| u64::try_from(at).unwrap_or_default()),
    })
}

impl Store {
    /// Keeps a token.
    pub(crate) async fn create_token(&self, token: &NewToken<'_>) -> Result<TokenRow, ControlError> {
        let workspaces = token.workspaces.map(|list| json!(list).to_string());
        let insert = "INSERT INTO tokens (id, kind, name, prefix, hash, workspaces, created_ms) \
                      VALUES ($1, $2, $3, $4, $5, $6, $7)";
        let mut transaction = self.write().await?;
        sqlx::query(insert)
            .bind(token.id)
            .bind(token.kind.as_str())
            .bind(token.name)
            .bind(&token.fresh.prefix)
            .bind(&token.fresh.hash)
            .bind(workspaces)
            .bind(signed(token.now_ms))
            .execute(&mut *transaction)
            .await
            .map_err(ControlError::database("keeping a token"))?;
        let line = NewLine {
            at_ms: token.now_ms,
            actor: "admin",
            action: "token.created",
            workspace: token.workspaces.and_then(|list| if let [one] = list { Some(one.as_str()) } else { None }),
            subject: token.id,
            detail: json!({"kind": token.kind, "workspaces": token.workspaces}),
        };
        audit::write(&mut transaction, line).await?;
        commit(transaction).await?;
        Ok(TokenRow {
            id: token.id.to_owned(),
            kind: token.kind,
            name: token.name.to_owned(),
            prefix: token.fresh.prefix.clone(),
            workspaces: token.workspaces.map(<[String]>::to_vec),
            created_ms: token.now_ms,
            revoked_ms: None,
        })
    }

    /// The token of that hash, unless it was revoked.
    pub(crate) async fn token_by_hash(&self, hash: &str) -> Result<Option<TokenRow>, ControlError> {
        let query = format!("{COLUMNS} WHERE hash = $1 AND revoked_ms IS NULL");
        let row = sqlx::query(&query).bind(hash).fetch_optional(&self.pool).await;
        row.map_err(ControlError::database("reading a token"))?.as_ref().map(read).transpose()
    }

    /// Tokens in the order of their ids, revoked ones included.
    pub(crate) async fn tokens(&self, page: &Page) -> Result<Vec<TokenRow>, ControlError> {
        let query = format!("{COLUMNS} WHERE id > $1 ORDER BY id LIMIT $2");
        let rows = sqlx::query(&query).bind(&page.after).bind(page.limit).fetch_all(&self.pool).await;
        rows.map_err(ControlError::database("listing tokens"))?.iter().map(read).collect()
    }

    /// Revokes a token; it stays in the list. `false` where there is none that is not revoked.
    pub(crate) async fn revoke_token(&self, id: &str, now_ms: u64) -> Result<bool, ControlError> {
        let mut transaction = self.write().await?;
        let update = "UPDATE tokens SET revoked_ms = $1 WHERE id = $2 AND revoked_ms IS NULL";
        let done = sqlx::query(update).bind(signed(now_ms)).bind(id).execute(&mut *transaction).await;
        if done.map_err(ControlError::database("revoking a token"))?.rows_affected() == 0 {
            return Ok(false);
        }
        let (action, detail) = ("token.revoked", json!({}));
        let line = NewLine { at_ms: now_ms, actor: "admin", action, workspace: None, subject: id, detail };
        audit::write(&mut transaction, line).await?;
        commit(transaction).await?;
        Ok(true)
    }
}
