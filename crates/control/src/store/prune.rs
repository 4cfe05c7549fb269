//! What is kept for a while: records of usage, until they are rolled up into the totals of their day, and lines of the
//! audit.
//!
//! A record counts once because its id is remembered. So a day is *closed* before its records go: from then on no record
//! of it is taken, for nobody can tell any more whether it has been counted.

use serde_json::json;
use sqlx::Row;

use super::audit::{self, NewLine};
use super::usage::{FIGURES, of_records};
use super::{Store, Tx, commit, signed, unsigned};
use crate::date;
use crate::error::ControlError;
use crate::limits::PRUNE_PORTION_ROWS;

/// Orders those that take usage and those that close or roll it up, over all replicas: any number of the first, or one
/// of the second.
pub(super) const USAGE_LOCK: i64 = 0x7573_6167_6563_6c6f;

/// The lines of the audit that pruning writes.
const CLOSED: &str = "usage.closed";
const PRUNED: &str = "audit.pruned";

/// What is not taken any more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closed {
    /// Records of days before this one, counted from 1970-01-01.
    pub(crate) before_day: u64,
    /// How many of them came nevertheless.
    pub(crate) late_records: u64,
}

/// What is closed, as this transaction sees it.
pub(super) async fn closed_in(transaction: &mut Tx) -> Result<Closed, ControlError> {
    let row = sqlx::query("SELECT before_day, late_records FROM usage_closed").fetch_one(&mut **transaction).await;
    let row = row.map_err(ControlError::database("reading what usage is closed"))?;
    Ok(Closed { before_day: unsigned(&row, "before_day")?, late_records: unsigned(&row, "late_records")? })
}

impl Store {
    /// What is closed.
    pub(crate) async fn closed(&self) -> Result<Closed, ControlError> {
        let row = sqlx::query("SELECT before_day, late_records FROM usage_closed").fetch_one(&self.pool).await;
        let row = row.map_err(ControlError::database("reading what usage is closed"))?;
        Ok(Closed { before_day: unsigned(&row, "before_day")?, late_records: unsigned(&row, "late_records")? })
    }

    /// When the newest record came, or the newest line of the audit was written, by the clocks of control planes; `None`
    /// where there is neither. Anything from `enough_ms` on will do. What pruning itself writes does not count: a clock
    /// that is ahead would bear itself out.
    pub(crate) async fn newest_ms(&self, enough_ms: u64) -> Result<Option<u64>, ControlError> {
        let line = format!(
            "SELECT at_ms AS newest_ms FROM audit WHERE action NOT IN ('{CLOSED}', '{PRUNED}') ORDER BY at_ms DESC LIMIT 1"
        );
        // No index is for it: it is read where the audit alone does not tell.
        let record = "SELECT received_ms AS newest_ms FROM usage_records ORDER BY received_ms DESC LIMIT 1";
        let mut newest_ms = None;
        for query in [line.as_str(), record] {
            if newest_ms.is_some_and(|newest_ms| newest_ms >= enough_ms) {
                break;
            }
            let row = sqlx::query(query).fetch_optional(&self.pool).await;
            let row = row.map_err(ControlError::database("looking for the newest record"))?;
            newest_ms = newest_ms.max(row.map(|row| unsigned(&row, "newest_ms")).transpose()?);
        }
        Ok(newest_ms)
    }

    /// Takes no record any more of days before this one. What is closed stays so.
    pub(crate) async fn close_usage(&self, before_day: u64, actor: &str, now_ms: u64) -> Result<(), ControlError> {
        let mut transaction = self.write_alone(USAGE_LOCK).await?;
        let update = "UPDATE usage_closed SET before_day = $1 WHERE before_day < $1";
        let done = sqlx::query(update).bind(signed(before_day)).execute(&mut *transaction).await;
        if done.map_err(ControlError::database("closing usage"))?.rows_affected() == 0 {
            return Ok(());
        }
        let (action, detail) = (CLOSED, json!({"before": date::text(before_day)}));
        let line = NewLine { at_ms: now_ms, actor, action, workspace: None, subject: "usage", detail };
        audit::write(&mut transaction, line).await?;
        commit(transaction).await
    }

    /// Rolls a portion of closed records up into the totals of their day. How many; 0 when there are no more.
    pub(crate) async fn roll_up(&self) -> Result<u64, ControlError> {
        let doing = || ControlError::database("rolling usage up");
        let mut transaction = self.write_alone(USAGE_LOCK).await?;
        let before = closed_in(&mut transaction).await?.before_day;
        let oldest = "SELECT day FROM usage_records WHERE day < $1 ORDER BY day LIMIT 1";
        let oldest =
            sqlx::query(oldest).bind(signed(before)).fetch_optional(&mut *transaction).await.map_err(doing())?;
        let Some(row) = oldest else { return Ok(0) };
        let day: i64 = row.try_get("day").map_err(doing())?;
        // The first that is left for the next portion, where the day has more.
        let next = "SELECT id FROM usage_records WHERE day = $1 ORDER BY id LIMIT 1 OFFSET $2";
        let next = sqlx::query(next).bind(day).bind(PRUNE_PORTION_ROWS);
        let next = next.fetch_optional(&mut *transaction).await.map_err(doing())?;
        let next = next.map(|row| row.try_get::<String, _>("id")).transpose().map_err(doing())?;
        let portion = if next.is_some() { "day = $1 AND id < $2" } else { "day = $1" };
        let mut added = Vec::new();
        let mut gone = 0;
        let columns: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        for figure in FIGURES {
            let name = figure.name;
            added.push(match figure.largest {
                false => format!("{name} = usage_days.{name} + excluded.{name}"),
                true => format!(
                    "{name} = CASE WHEN excluded.{name} > usage_days.{name} THEN excluded.{name} \
                     ELSE usage_days.{name} END"
                ),
            });
        }
        let insert = format!(
            "INSERT INTO usage_days (day, workspace, tool, {}) {} \
             ON CONFLICT (day, workspace, tool) DO UPDATE SET {}",
            columns.join(", "),
            of_records(portion),
            added.join(", ")
        );
        for statement in [insert, format!("DELETE FROM usage_records WHERE {portion}")] {
            let mut query = sqlx::query(&statement).bind(day);
            if let Some(next) = &next {
                query = query.bind(next);
            }
            gone = query.execute(&mut *transaction).await.map_err(doing())?.rows_affected();
        }
        commit(transaction).await?;
        Ok(gone)
    }

    /// Removes a portion of the lines that are older than that. How many; 0 when there are no more.
    pub(crate) async fn prune_audit(&self, before_ms: u64, actor: &str, now_ms: u64) -> Result<u64, ControlError> {
        let mut transaction = self.write().await?;
        let delete =
            "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE at_ms < $1 ORDER BY at_ms, id LIMIT $2)";
        let done = sqlx::query(delete).bind(signed(before_ms)).bind(PRUNE_PORTION_ROWS);
        let done = done.execute(&mut *transaction).await.map_err(ControlError::database("pruning the audit"))?;
        let gone = done.rows_affected();
        if gone == 0 {
            return Ok(0);
        }
        let (action, detail) = (PRUNED, json!({"before_ms": before_ms, "lines": gone}));
        let line = NewLine { at_ms: now_ms, actor, action, workspace: None, subject: "audit", detail };
        audit::write(&mut transaction, line).await?;
        commit(transaction).await?;
        Ok(gone)
    }
}
