//! Usage: records that count once, and their sums.

use ringfence_usage::Record;
use serde::Serialize;
use utoipa::ToSchema;

use super::prune::{USAGE_LOCK, closed_in};
use super::{Store, commit, signed, text, unsigned};
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

/// A sum or a largest value over records.
pub(super) struct Figure {
    pub(super) name: &'static str,
    /// Of one record.
    of_record: &'static str,
    /// The largest counts, and not the sum.
    pub(super) largest: bool,
}

const fn sum(name: &'static str, of_record: &'static str) -> Figure {
    Figure { name, of_record, largest: false }
}

/// Every figure of a report, under the name of its column in `usage_days`.
pub(super) const FIGURES: &[Figure] = &[
    sum("leases", "CASE WHEN kind = 'lease' THEN 1 ELSE 0 END"),
    sum("calls", "CASE WHEN kind = 'lease' THEN 0 ELSE 1 END"),
    sum("ok", "CASE WHEN outcome = 'ok' THEN 1 ELSE 0 END"),
    sum("failed", "CASE WHEN outcome IN ('program_failed', 'limit_exceeded') THEN 1 ELSE 0 END"),
    sum("not_run", "CASE WHEN outcome IN ('refused', 'unavailable') THEN 1 ELSE 0 END"),
    sum(
        "uncertain",
        "CASE WHEN outcome IN ('ok', 'program_failed', 'limit_exceeded', 'refused', 'unavailable') THEN 0 ELSE 1 END",
    ),
    sum("wall_ms", "COALESCE(wall_ms, 0)"),
    sum("cpu_ms", "COALESCE(cpu_ms, 0)"),
    Figure { name: "memory_peak_bytes", of_record: "COALESCE(memory_peak_bytes, 0)", largest: true },
    sum("stdout_bytes", "COALESCE(stdout_bytes, 0)"),
    sum("stderr_bytes", "COALESCE(stderr_bytes, 0)"),
];

/// The figures over `of`; cast, since PostgreSQL makes numerics of sums.
fn figures(of: impl Fn(&Figure) -> &'static str) -> String {
    let one = |figure: &Figure| {
        let function = if figure.largest { "MAX" } else { "SUM" };
        format!("CAST({function}({}) AS BIGINT) AS {}", of(figure), figure.name)
    };
    FIGURES.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The totals of each day, workspace and tool over the records of that condition, in the order of `usage_days`.
pub(super) fn of_records(condition: &str) -> String {
    // A lease has no tool.
    format!(
        "SELECT day, workspace, COALESCE(tool, '') AS tool, {} FROM usage_records WHERE {condition} \
         GROUP BY day, workspace, COALESCE(tool, '')",
        figures(|figure| figure.of_record)
    )
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Records that were not there before.
    pub(crate) new: u64,
    /// Records of days that are closed: none of them was taken.
    pub(crate) late: u64,
}

impl Store {
    /// Takes records, each once by its id, in one transaction; none of a day that is closed.
    pub(crate) async fn take_usage(
        &self,
        mut records: Vec<Record>,
        gate: &str,
        token: &str,
        now_ms: u64,
    ) -> Result<Taken, ControlError> {
        // In one order, so that two batches with the same records do not wait for each other crosswise.
        records.sort_by(|one, other| one.id.cmp(&other.id));
        let mut transaction = self.write_beside(USAGE_LOCK).await?;
        let before_day = closed_in(&mut transaction).await?.before_day;
        let count = records.len();
        records.retain(|record| date::day_of(record.at_ms) >= before_day);
        let mut taken = Taken { new: 0, late: (count - records.len()) as u64 };
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
            taken.new += done.rows_affected();
        }
        if taken.late > 0 {
            // Last: whoever waits for this row waits for nothing else.
            let count = sqlx::query("UPDATE usage_closed SET late_records = late_records + $1");
            let counted = count.bind(signed(taken.late)).execute(&mut *transaction).await;
            counted.map_err(ControlError::database("counting late usage"))?;
        }
        commit(transaction).await?;
        Ok(taken)
    }

    /// Sums. One row more than [`REPORT_ROWS_MAX`] says that there are too many.
    pub(crate) async fn usage(&self, report: &Report<'_>) -> Result<Vec<ReportRow>, ControlError> {
        let group = report.group;
        let columns: Vec<&str> = [(group.workspace, "workspace"), (group.day, "day"), (group.tool, "tool")]
            .into_iter()
            .filter_map(|(wanted, column)| wanted.then_some(column))
            .collect();
        let list = columns.join(", ");
        let shown = if list.is_empty() { String::new() } else { format!("{list}, ") };
        // Without a group an empty table has one row of sums that are NULL.
        let ending = match list.as_str() {
            "" => "HAVING COUNT(*) > 0".to_owned(),
            list => format!("GROUP BY {list} ORDER BY {list}"),
        };
        let of_workspace = if report.workspace.is_some() { "AND workspace = $4" } else { "" };
        let chosen = format!("day >= $1 AND day <= $2 {of_workspace}");
        let names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        // A day has records, or totals, or for a while both.
        let query = format!(
            "SELECT {shown}{} FROM ({} UNION ALL SELECT day, workspace, tool, {} FROM usage_days WHERE {chosen}) \
             AS totals {ending} LIMIT $3",
            figures(|figure| figure.name),
            of_records(&chosen),
            names.join(", ")
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
                    tool: if group.tool { Some(text(row, "tool")?) } else { None },
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
