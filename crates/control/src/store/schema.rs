//! The schema, in steps, brought up to date at every start.

use super::{LOCK, Store, commit};
use crate::error::ControlError;

/// Each step takes a database from its index to the next version. A step is never changed once it was released. `@int`
/// is a 64-bit integer, `@row` a number that counts up by itself, `@strict` what makes SQLite hold columns to their types.
const STEPS: &[&str] = &[include_str!("schema/1.sql"), include_str!("schema/2.sql")];

/// Brings the schema up to date, in one transaction.
pub(super) async fn bring_up(store: &Store) -> Result<(), ControlError> {
    let doing = || ControlError::database("bringing its schema up to date");
    let mut transaction = store.write_alone(LOCK).await?;
    let made = "CREATE TABLE IF NOT EXISTS schema_version (version @int NOT NULL) @strict";
    sqlx::raw_sql(&spelled(made, store.sqlite)).execute(&mut *transaction).await.map_err(doing())?;
    let found: Option<(i64,)> =
        sqlx::query_as("SELECT version FROM schema_version").fetch_optional(&mut *transaction).await.map_err(doing())?;
    let known = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    let at = match found {
        None => {
            let first = sqlx::query("INSERT INTO schema_version (version) VALUES (0)");
            first.execute(&mut *transaction).await.map_err(doing())?;
            0
        }
        Some((at,)) if at > known => return Err(ControlError::Newer { found: at, known }),
        Some((at,)) => at,
    };
    for step in STEPS.iter().skip(usize::try_from(at).unwrap_or_default()) {
        sqlx::raw_sql(&spelled(step, store.sqlite)).execute(&mut *transaction).await.map_err(doing())?;
    }
    let set = sqlx::query("UPDATE schema_version SET version = $1").bind(known);
    set.execute(&mut *transaction).await.map_err(doing())?;
    commit(transaction).await
}

fn spelled(step: &str, sqlite: bool) -> String {
    let (int, row, strict) = match sqlite {
        true => ("INTEGER", "INTEGER PRIMARY KEY AUTOINCREMENT", "STRICT"),
        false => ("BIGINT", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", ""),
    };
    step.replace("@int", int).replace("@row", row).replace("@strict", strict)
}
