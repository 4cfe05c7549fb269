//! Usage: records that count once, and their sums.

use ringfence_usage::Record;
use serde::Serialize;
use utoipa::ToSchema;

use super::{Store, commit, optional_text, signed, text, unsigned};
use crate::date;
use crate::error::ControlError;
use crate::limits::REPORT_ROWS_MAX;

/// What sums are made for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Group {
    pub(crate) workspace: bool,
    pub(crate) day: bool,
    pub(crate) tool: bool,
}

/// Which records are summed up, from one day to another, both included.
pub(crate) struct Report<'a> {
    pub(crate) workspace: Option<&'a str>,
    pub(crate) from_day: u64,
    pub(crate) to_day: u64,
    pub(crate) group: Group,
}

/// Sums over the records of one workspace, day and tool, as far as these are told apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct ReportRow {
    /// Absent where workspaces are not told apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workspace: Option<String>,
    /// `YYYY-MM-DD` in UTC, by when a call began; absent where days are not told apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) day: Option<String>,
    /// The tool kind; empty for leases; absent where tools are not told apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<String>,
    /// Leases, also ones that came to nothing.
    pub(crate) leases: u64,
    /// Calls.
    pub(crate) calls: u64,
    /// Leases and calls with the outcome `ok`.
    pub(crate) ok: u64,
    /// Calls that ran and failed, or ran into a limit.
    pub(crate) failed: u64,
    /// Refused or unavailable: nothing ran.
    pub(crate) not_run: u64,
    /// `backend_failed`, `unknown`, and outcomes that this build does not know: it may have run.
    pub(crate) uncertain: u64,
    /// Milliseconds, as the front door saw them.
    pub(crate) wall_ms: u64,
    /// Milliseconds of CPU.
    pub(crate) cpu_ms: u64,
    /// The largest of all.
    pub(crate) memory_peak_bytes: u64,
    /// Bytes.
    pub(crate) stdout_bytes: u64,
    /// Bytes.
    pub(crate) stderr_bytes: u64,
}

const INSERT: &str = "INSERT INTO usage_records (id, kind, at_ms, day, workspace, grant_id, backend, session, tool, \
    wall_ms, cpu_ms, memory_peak_bytes, stdout_bytes, stderr_bytes, outcome, status, gate, token, received_ms) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19) \
    ON CONFLICT (id) DO NOTHING";

/// The sums are cast, since PostgreSQL makes numerics of them.
const SUMS: &str = "\
    CAST(SUM(CASE WHEN kind = 'lease' THEN 1 ELSE 0 END) AS BIGINT) AS leases, \
    CAST(SUM(CASE WHEN kind = 'lease' THEN 0 ELSE 1 END) AS BIGINT) AS calls, \
    CAST(SUM(CASE WHEN outcome = 'ok' THEN 1 ELSE 0 END) AS BIGINT) AS ok, \
    CAST(SUM(CASE WHEN outcome IN ('program_failed', 'limit_exceeded') THEN 1 ELSE 0 END) AS BIGINT) AS failed, \
    CAST(SUM(CASE WHEN outcome IN ('refused', 'unavailable') THEN 1 ELSE 0 END) AS BIGINT) AS not_run, \
    CAST(SUM(CASE WHEN outcome IN ('ok', 'program_failed', 'limit_exceeded', 'refused', 'unavailable') \
        THEN 0 ELSE 1 END) AS BIGINT) AS uncertain, \
    CAST(SUM(COALESCE(wall_ms, 0)) AS BIGINT) AS wall_ms, \
    CAST(SUM(COALESCE(cpu_ms, 0)) AS BIGINT) AS cpu_ms, \
    CAST(MAX(COALESCE(memory_peak_bytes, 0)) AS BIGINT) AS memory_peak_bytes, \
    CAST(SUM(COALESCE(stdout_bytes, 0)) AS BIGINT) AS stdout_bytes, \
    CAST(SUM(COALESCE(stderr_bytes, 0)) AS BIGINT) AS stderr_bytes";

impl Store {
    /// Takes records, each once by its id, in one transaction. How many were new.
    pub(crate) async fn take_usage(
        &self,
        mut records: Vec<Record>,
        gate: &str,
        token: &str,
        now_ms: u64,
    ) -> Result<u64, ControlError> {
        // In one order, so that two batches with the same records do not wait for each other crosswise.
        records.sort_by(|one, other| one.id.cmp(&other.id));
        let mut transaction = self.write().await?;
        let mut new = 0;
        for record in &records {
            let done = sqlx::query(INSERT)
                .bind(&record.id)
                .bind(record.kind.as_str())
                .bind(signed(record.at_ms))
                .bind(signed(date::day_of(record.at_ms)))
                .bind(&record.workspace)
                .bind(&record.grant)
                .bind(&record.backend)
                .bind(&record.session)
                .bind(&record.tool)
                .bind(record.wall_ms.map(signed))
                .bind(record.cpu_ms.map(signed))
                .bind(record.memory_peak_bytes.map(signed))
                .bind(record.stdout_bytes.map(signed))
                .bind(record.stderr_bytes.map(signed))
                .bind(record.outcome.as_str())
                .bind(record.status.map(signed))
                .bind(gate)
                .bind(token)
                .bind(signed(now_ms))
                .execute(&mut *transaction)
                .await
                .map_err(ControlError::database("taking usage"))?;
            new += done.rows_affected();
        }
        commit(transaction).await?;
        Ok(new)
    }

    /// Sums. One row more than [`REPORT_ROWS_MAX`] says that there are too many.
    pub(crate) async fn usage(&self, report: &Report<'_>) -> Result<Vec<ReportRow>, ControlError> {
        let group = report.group;
        let columns: Vec<&str> = [
            (group.workspace, "workspace"),
            (group.day, "day"),
            // A lease has no tool.
            (group.tool, "COALESCE(tool, '')"),
        ]
        .into_iter()
        .filter_map(|(wanted, column)| wanted.then_some(column))
        .collect();
        let list = columns.join(", ");
        let shown = if list.is_empty() { String::new() } else { format!("{}, ", list.replace("'')", "'') AS tool")) };
        let ending = if list.is_empty() { String::new() } else { format!("GROUP BY {list} ORDER BY {list} ") };
        let of_workspace = if report.workspace.is_some() { "AND workspace = $4 " } else { "" };
        // Without a group an empty table has one row of sums that are NULL.
        let query = format!(
            "SELECT {shown}{SUMS} FROM usage_records WHERE day >= $1 AND day <= $2 {of_workspace}{ending}\
             {} LIMIT $3",
            if list.is_empty() { "HAVING COUNT(*) > 0" } else { "" }
        );
        let limit = i64::from(REPORT_ROWS_MAX) + 1;
        let mut query = sqlx::query(&query).bind(signed(report.from_day)).bind(signed(report.to_day)).bind(limit);
        if let Some(workspace) = report.workspace {
            query = query.bind(workspace);
        }
        let rows = query.fetch_all(&self.pool).await.map_err(ControlError::database("summing usage up"))?;
        rows.iter()
            .map(|row| {
                Ok(ReportRow {
                    workspace: if group.workspace { Some(text(row, "workspace")?) } else { None },
                    day: if group.day { Some(date::text(unsigned(row, "day")?)) } else { None },
                    tool: if group.tool { optional_text(row, "tool")? } else { None },
                    leases: unsigned(row, "leases")?,
                    calls: unsigned(row, "calls")?,
                    ok: unsigned(row, "ok")?,
                    failed: unsigned(row, "failed")?,
                    not_run: unsigned(row, "not_run")?,
                    uncertain: unsigned(row, "uncertain")?,
                    wall_ms: unsigned(row, "wall_ms")?,
                    cpu_ms: unsigned(row, "cpu_ms")?,
                    memory_peak_bytes: unsigned(row, "memory_peak_bytes")?,
                    stdout_bytes: unsigned(row, "stdout_bytes")?,
                    stderr_bytes: unsigned(row, "stderr_bytes")?,
                })
            })
            .collect()
    }
}
