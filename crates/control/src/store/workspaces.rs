//! Workspaces and their policies.

use serde_json::json;
use sqlx::any::AnyRow;

use super::audit::{self, NewLine};
use super::{Page, Store, Tx, commit, number, signed, text, unsigned};
use crate::error::ControlError;
use crate::policy::Policy;

/// A workspace that is there.
#[derive(Debug, Clone)]
pub(crate) struct Workspace {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) policy: Policy,
    /// Counts changes.
    pub(crate) version: i64,
    pub(crate) created_ms: u64,
    pub(crate) updated_ms: u64,
}

/// What became of a change.
#[derive(Debug)]
pub(crate) enum Written {
    Done(Box<Workspace>),
    /// There is no such workspace.
    Missing,
    /// It has another version than the writer saw, or the id is taken (also by one that was deleted).
    Conflict,
}

const COLUMNS: &str = "SELECT id, name, policy, version, created_ms, updated_ms FROM workspaces";

fn read(row: &AnyRow) -> Result<Workspace, ControlError> {
    Ok(Workspace {
        id: text(row, "id")?,
        name: text(row, "name")?,
        policy: serde_json::from_str(&text(row, "policy")?).map_err(|_| ControlError::Row("policy"))?,
        version: number(row, "version")?,
        created_ms: unsigned(row, "created_ms")?,
        updated_ms: unsigned(row, "updated_ms")?,
    })
}

fn written(policy: &Policy) -> Result<String, ControlError> {
    serde_json::to_string(policy).map_err(|_| ControlError::Row("policy"))
}

/// One workspace, as this transaction sees it.
pub(crate) async fn workspace_in(transaction: &mut Tx, id: &str) -> Result<Option<Workspace>, ControlError> {
    let query = format!("{COLUMNS} WHERE id = $1 AND deleted_ms IS NULL");
    let row = sqlx::query(&query).bind(id).fetch_optional(&mut **transaction).await;
    row.map_err(ControlError::database("reading a workspace"))?.as_ref().map(read).transpose()
}

impl Store {
    /// One workspace.
    pub(crate) async fn workspace(&self, id: &str) -> Result<Option<Workspace>, ControlError> {
        let query = format!("{COLUMNS} WHERE id = $1 AND deleted_ms IS NULL");
        let row = sqlx::query(&query).bind(id).fetch_optional(&self.pool).await;
        row.map_err(ControlError::database("reading a workspace"))?.as_ref().map(read).transpose()
    }

    /// Workspaces in the order of their ids.
    pub(crate) async fn workspaces(&self, page: &Page) -> Result<Vec<Workspace>, ControlError> {
        let query = format!("{COLUMNS} WHERE id > $1 AND deleted_ms IS NULL ORDER BY id LIMIT $2");
        let rows = sqlx::query(&query).bind(&page.after).bind(page.limit).fetch_all(&self.pool).await;
        rows.map_err(ControlError::database("listing workspaces"))?.iter().map(read).collect()
    }

    /// Makes a workspace. An id is never used twice, since usage and sessions are found by it.
    pub(crate) async fn create_workspace(
        &self,
        id: &str,
        name: &str,
        policy: &Policy,
        now_ms: u64,
    ) -> Result<Written, ControlError> {
        let insert = "INSERT INTO workspaces (id, name, policy, version, created_ms, updated_ms) \
                      VALUES ($1, $2, $3, 1, $4, $4) ON CONFLICT (id) DO NOTHING";
        let mut transaction = self.write().await?;
        let query = sqlx::query(insert).bind(id).bind(name).bind(written(policy)?).bind(signed(now_ms));
        let done = query.execute(&mut *transaction).await.map_err(ControlError::database("making a workspace"))?;
        if done.rows_affected() == 0 {
            return Ok(Written::Conflict);
        }
        let detail = json!({"enabled": policy.enabled, "version": 1});
        let line = NewLine {
            at_ms: now_ms,
            actor: "admin",
            action: "workspace.created",
            workspace: Some(id),
            subject: id,
            detail,
        };
        audit::write(&mut transaction, line).await?;
        commit(transaction).await?;
        let (id, name, policy) = (id.to_owned(), name.to_owned(), policy.clone());
        let made = Workspace { id, name, policy, version: 1, created_ms: now_ms, updated_ms: now_ms };
        Ok(Written::Done(Box::new(made)))
    }

    /// Replaces name and policy; of the version alone that the writer saw, where one is named.
    pub(crate) async fn replace_workspace(
        &self,
        id: &str,
        name: Option<&str>,
        policy: &Policy,
        version: Option<i64>,
        now_ms: u64,
    ) -> Result<Written, ControlError> {
        let mut transaction = self.write().await?;
        let Some(old) = workspace_in(&mut transaction, id).await? else { return Ok(Written::Missing) };
        if version.is_some_and(|version| version != old.version) {
            return Ok(Written::Conflict);
        }
        let name = name.unwrap_or(&old.name);
        // The version stands in the condition too: two writers at once of PostgreSQL do not overwrite each other.
        let update = "UPDATE workspaces SET name = $1, policy = $2, version = version + 1, updated_ms = $3 \
                      WHERE id = $4 AND version = $5 AND deleted_ms IS NULL";
        let query = sqlx::query(update).bind(name).bind(written(policy)?).bind(signed(now_ms)).bind(id);
        let done = query.bind(old.version).execute(&mut *transaction).await;
        if done.map_err(ControlError::database("changing a workspace"))?.rows_affected() == 0 {
            return Ok(Written::Conflict);
        }
        let mut changed = old.policy.differences(policy);
        if name != old.name {
            changed.push("name");
        }
        let line = NewLine {
            at_ms: now_ms,
            actor: "admin",
            action: "workspace.updated",
            workspace: Some(id),
            subject: id,
            detail: json!({"changed": changed, "enabled": policy.enabled, "version": old.version + 1}),
        };
        audit::write(&mut transaction, line).await?;
        commit(transaction).await?;
        let (name, policy) = (name.to_owned(), policy.clone());
        Ok(Written::Done(Box::new(Workspace { name, policy, version: old.version + 1, updated_ms: now_ms, ..old })))
    }

    /// Deletes a workspace: it gets no more grants. Its usage and its audit stay. `false` where there is none.
    pub(crate) async fn delete_workspace(&self, id: &str, now_ms: u64) -> Result<bool, ControlError> {
        let mut transaction = self.write().await?;
        let update = "UPDATE workspaces SET deleted_ms = $1 WHERE id = $2 AND deleted_ms IS NULL";
        let done = sqlx::query(update).bind(signed(now_ms)).bind(id).execute(&mut *transaction).await;
        if done.map_err(ControlError::database("deleting a workspace"))?.rows_affected() == 0 {
            return Ok(false);
        }
        let (action, detail) = ("workspace.deleted", json!({}));
        let line = NewLine { at_ms: now_ms, actor: "admin", action, workspace: Some(id), subject: id, detail };
        audit::write(&mut transaction, line).await?;
        commit(transaction).await?;
        Ok(true)
    }
}
