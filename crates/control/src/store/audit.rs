//! The audit: one line for each change and each grant.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{Store, Tx, number, optional_text, signed, text, unsigned};
use crate::error::ControlError;

/// A line to be written.
pub(crate) struct NewLine<'a> {
    pub(crate) at_ms: u64,
    /// `admin`, or the id of a token.
    pub(crate) actor: &'a str,
    pub(crate) action: &'static str,
    pub(crate) workspace: Option<&'a str>,
    /// The id of what was changed or made.
    pub(crate) subject: &'a str,
    /// Ids, names of members, numbers; no secret.
    pub(crate) detail: Value,
}

/// One line of the audit.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Line {
    /// Counts up.
    id: i64,
    /// POSIX milliseconds.
    at_ms: u64,
    /// `admin`, or the id of a token.
    actor: String,
    /// What was done, such as `grant.made` or `workspace.updated`.
    action: String,
    /// The workspace that it concerns, where it is one.
    workspace: Option<String>,
    /// The id of what was changed or made.
    subject: String,
    /// More: ids, names of members, numbers.
    #[schema(value_type = Object)]
    detail: Value,
}

/// Writes a line, in the transaction of what it tells.
pub(crate) async fn write(transaction: &mut Tx, line: NewLine<'_>) -> Result<(), ControlError> {
    let insert = "INSERT INTO audit (at_ms, actor, action, workspace, subject, detail) VALUES ($1, $2, $3, $4, $5, $6)";
    sqlx::query(insert)
        .bind(signed(line.at_ms))
        .bind(line.actor)
        .bind(line.action)
        .bind(line.workspace)
        .bind(line.subject)
        .bind(line.detail.to_string())
        .execute(&mut **transaction)
        .await
        .map_err(ControlError::database("writing the audit"))?;
    Ok(())
}

impl Store {
    /// Lines after the one of that id, the oldest first; of one workspace where it is named.
    pub(crate) async fn audit(
        &self,
        after: i64,
        limit: i64,
        workspace: Option<&str>,
    ) -> Result<Vec<Line>, ControlError> {
        let columns = "SELECT id, at_ms, actor, action, workspace, subject, detail FROM audit";
        let query = match workspace {
            None => format!("{columns} WHERE id > $1 ORDER BY id LIMIT $2"),
            Some(_) => format!("{columns} WHERE id > $1 AND workspace = $3 ORDER BY id LIMIT $2"),
        };
        let mut query = sqlx::query(&query).bind(after).bind(limit);
        if let Some(workspace) = workspace {
            query = query.bind(workspace);
        }
        let rows = query.fetch_all(&self.pool).await.map_err(ControlError::database("reading the audit"))?;
        rows.iter()
            .map(|row| {
                Ok(Line {
                    id: number(row, "id")?,
                    at_ms: unsigned(row, "at_ms")?,
                    actor: text(row, "actor")?,
                    action: text(row, "action")?,
                    workspace: optional_text(row, "workspace")?,
                    subject: text(row, "subject")?,
                    detail: serde_json::from_str(&text(row, "detail")?).map_err(|_| ControlError::Row("audit line"))?,
                })
            })
            .collect()
    }
}
