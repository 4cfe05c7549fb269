//! The database: SQLite or PostgreSQL behind the same queries.
//!
//! The two differ in how a connection is set up, how a writing transaction begins, and in two words of the schema; every
//! query is the same text for both, over texts and 64-bit integers alone. A writing transaction of SQLite takes the lock
//! at once (`BEGIN IMMEDIATE`), so that it waits for another writer instead of failing half-way.

mod audit;
mod keys;
mod prune;
mod schema;
mod tokens;
mod usage;
mod workspaces;

use std::path::Path;
use std::str::FromStr;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions, AnyRow};
use sqlx::{Any, AnyConnection, AnyPool, ConnectOptions, Connection, Executor, Row, Transaction};

use crate::config::{DatabaseUrl, Dialect};
use crate::error::ControlError;
use crate::limits::{DATABASE_CONNECTIONS_MAX, DATABASE_WAIT};

pub(crate) use audit::{Line, NewLine, write as write_audit};
pub(crate) use keys::{KeyRow, add_in as add_key_in, keys_in, signs_until};
pub(crate) use tokens::{NewToken, TokenRow};
pub(crate) use usage::{Group, Report, ReportRow, Taken};
pub(crate) use workspaces::{Workspace, Written, workspace_in};

/// A page of a list: at most `limit` entries after the one named `after`.
pub(crate) struct Page {
    pub(crate) after: String,
    pub(crate) limit: i64,
}

/// Any number: changes of the schema and of the keys, which replicas must not make at once, they make in turn by it.
pub(crate) const LOCK: i64 = 0x7269_6e67_6665_6e63;

/// The database.
pub(crate) struct Store {
    pool: AnyPool,
    sqlite: bool,
}

/// A transaction.
pub(crate) type Tx = Transaction<'static, Any>;

impl Store {
    /// Connects, and brings the schema up to date.
    pub(crate) async fn open(url: &DatabaseUrl) -> Result<Self, ControlError> {
        let sqlite = matches!(url.0, Dialect::Sqlite(_));
        let options = options(url)?;
        let pool = AnyPoolOptions::new()
            .max_connections(DATABASE_CONNECTIONS_MAX)
            .acquire_timeout(DATABASE_WAIT)
            .after_connect(move |connection, _| {
                Box::pin(async move { if sqlite { set_up_sqlite(connection).await } else { Ok(()) } })
            })
            .connect_with(options)
            .await
            .map_err(ControlError::database("connecting"))?;
        let store = Store { pool, sqlite };
        schema::bring_up(&store).await?;
        Ok(store)
    }

    /// Begins a transaction that writes.
    pub(crate) async fn write(&self) -> Result<Tx, ControlError> {
        let begun = match self.sqlite {
            true => self.pool.begin_with("BEGIN IMMEDIATE").await,
            false => self.pool.begin().await,
        };
        begun.map_err(ControlError::database("beginning a transaction"))
    }

    /// The same, one after the other over all replicas that name the same lock: for what is decided by what is there.
    pub(crate) async fn write_alone(&self, lock: i64) -> Result<Tx, ControlError> {
        self.write_under("SELECT CAST(pg_advisory_xact_lock($1) AS TEXT)", lock).await
    }

    /// The same beside others that do so too, and not beside [`Self::write_alone`].
    pub(crate) async fn write_beside(&self, lock: i64) -> Result<Tx, ControlError> {
        self.write_under("SELECT CAST(pg_advisory_xact_lock_shared($1) AS TEXT)", lock).await
    }

    /// SQLite has one writer at a time anyway.
    async fn write_under(&self, take: &str, lock: i64) -> Result<Tx, ControlError> {
        let mut transaction = self.write().await?;
        if !self.sqlite {
            let taken = sqlx::query(take).bind(lock).execute(&mut *transaction).await;
            taken.map_err(ControlError::database("waiting for its turn"))?;
        }
        Ok(transaction)
    }

    /// Whether the database answers.
    pub(crate) async fn ping(&self) -> Result<(), ControlError> {
        let asked = sqlx::query("SELECT version FROM schema_version").fetch_one(&self.pool).await;
        asked.map(|_| ()).map_err(ControlError::database("asking for a sign of life"))
    }

    /// Ends every connection; SQLite then folds its log into the file.
    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }
}

/// Commits.
pub(crate) async fn commit(transaction: Tx) -> Result<(), ControlError> {
    transaction.commit().await.map_err(ControlError::database("committing"))
}

fn options(url: &DatabaseUrl) -> Result<AnyConnectOptions, ControlError> {
    sqlx::any::install_default_drivers();
    let text = match &url.0 {
        Dialect::Sqlite(path) => {
            // Nobody else may read it; its log takes over the mode.
            ringfence_secret::ensure_private(path)?;
            zeroize::Zeroizing::new(sqlite_url(path, "rw")?)
        }
        Dialect::Postgres(text) => text.clone(),
    };
    // The reason may show a part of the URL.
    let options = AnyConnectOptions::from_str(&text).map_err(|_| ControlError::DatabaseUrl("it cannot be read"))?;
    Ok(options.disable_statement_logging())
}

fn sqlite_url(path: &Path, mode: &str) -> Result<String, ControlError> {
    let wrong = ControlError::DatabaseUrl("the path of an SQLite database must be text without ?, # and %");
    let Some(text) = path.to_str().filter(|text| !text.contains(['?', '#', '%'])) else { return Err(wrong) };
    Ok(format!("sqlite:{text}?mode={mode}"))
}

/// `synchronous = FULL`: what was answered outlives a power failure too. A writer waits ten seconds for another.
const SQLITE_SETTINGS: &str = "PRAGMA busy_timeout = 10000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
    PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;";

async fn set_up_sqlite(connection: &mut AnyConnection) -> sqlx::Result<()> {
    connection.execute(SQLITE_SETTINGS).await.map(|_| ())
}

/// Copies an SQLite database, also one in use, to a file that is not there yet (mode 0600).
///
/// # Errors
/// When the database is PostgreSQL's, does not exist, or the copy cannot be written.
pub async fn backup(url: &DatabaseUrl, target: &Path) -> Result<(), ControlError> {
    let Dialect::Sqlite(path) = &url.0 else { return Err(ControlError::BackupOfPostgres) };
    if let Err(source) = std::fs::metadata(path) {
        return Err(ControlError::File { path: path.clone(), source });
    }
    sqlx::any::install_default_drivers();
    let read = sqlite_url(path, "rw")?;
    let text = target.to_str().ok_or(ControlError::Setting("the backup's path must be text"))?;
    let doing = || ControlError::database("copying itself");
    let options = AnyConnectOptions::from_str(&read).map_err(|_| ControlError::DatabaseUrl("it cannot be read"))?;
    let mut connection = options.disable_statement_logging().connect().await.map_err(doing())?;
    set_up_sqlite(&mut connection).await.map_err(doing())?;
    // An empty file is taken by SQLite as a new one, and keeps its mode.
    ringfence_secret::create_private(target, b"")?;
    let copied = sqlx::query("VACUUM INTO $1").bind(text).execute(&mut connection).await.map(|_| ());
    let synced = copied.map_err(doing()).and_then(|()| {
        let file = std::fs::File::open(target).and_then(|file| file.sync_all());
        file.map_err(|source| ControlError::File { path: target.to_owned(), source })
    });
    if synced.is_err() {
        let _ = std::fs::remove_file(target);
    }
    let _ = connection.close().await;
    synced
}

/// A column of a row.
fn text(row: &AnyRow, column: &str) -> Result<String, ControlError> {
    row.try_get(column).map_err(ControlError::database("reading a text"))
}

fn optional_text(row: &AnyRow, column: &str) -> Result<Option<String>, ControlError> {
    row.try_get(column).map_err(ControlError::database("reading a text"))
}

fn number(row: &AnyRow, column: &str) -> Result<i64, ControlError> {
    row.try_get(column).map_err(ControlError::database("reading a number"))
}

fn optional_number(row: &AnyRow, column: &str) -> Result<Option<i64>, ControlError> {
    row.try_get(column).map_err(ControlError::database("reading a number"))
}

/// A time or a count, which is never negative.
fn unsigned(row: &AnyRow, column: &str) -> Result<u64, ControlError> {
    Ok(u64::try_from(number(row, column)?).unwrap_or_default())
}

/// A number for the database; what is larger than any column is the largest.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
