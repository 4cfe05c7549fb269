//! Usage: taken from front doors, summed up for the admin.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use ringfence_usage::{Batch, Record};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::auth::{Admin, Gate};
use super::extract::{Asked, Delivery};
use super::fault::{ErrorBody, Fault, uncached};
use super::{Done, Shared};
use crate::date;
use crate::limits::{BATCH_RECORDS_MAX, RECORD_NUMBER_MAX, RECORD_TEXT_BYTES_MAX, REPORT_DAYS_MAX, REPORT_ROWS_MAX};
use crate::store::{self, Group, Report, ReportRow};

/// That a batch is taken for good.
#[derive(Serialize, ToSchema)]
pub(crate) struct Taken {
    batch: String,
    /// Records of the batch.
    records: u64,
    /// Those among them that were not there before.
    new: u64,
    /// Those among them that began before the day up to which usage is closed. They were not taken: whether they have
    /// been counted before cannot be told any more.
    late: u64,
}

/// Which usage, and what is told apart.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct UsageQuery {
    /// Of this workspace alone.
    workspace: Option<String>,
    /// The first day, `YYYY-MM-DD` in UTC; 30 days before the last unless given.
    from: Option<String>,
    /// The last day, `YYYY-MM-DD` in UTC; today unless given.
    to: Option<String>,
    /// What is told apart, by commas: `workspace`, `day`, `tool`; all three unless given, nothing where it is empty.
    by: Option<String>,
}

/// Sums of usage.
#[derive(Serialize, ToSchema)]
pub(crate) struct UsageReport {
    /// `YYYY-MM-DD`.
    from: String,
    /// `YYYY-MM-DD`.
    to: String,
    /// `YYYY-MM-DD`: of the days before this one no record is taken any more. Absent where none is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    closed_before: Option<String>,
    /// Records that came too late for their day, over all batches and days, and were not taken.
    late_records: u64,
    rows: Vec<ReportRow>,
}

/// Takes a batch of usage. What is answered with 200 is on the disk; each record counts once, however often it comes.
/// Records of days that are closed are left out and told as `late`.
#[utoipa::path(post, path = "/v1/usage", tag = "usage", request_body = Batch,
    params(("Idempotency-Key" = String, Header, description = "The batch's key")), responses(
    (status = 200, body = Taken),
    (status = 400, body = ErrorBody, description = "`Idempotency-Key` is missing or not the batch's"),
    (status = 401, body = ErrorBody, description = "No token of a front door"),
    (status = 413, body = ErrorBody),
    (status = 422, body = ErrorBody, description = "Nothing of the batch was taken"),
    (status = 503, body = ErrorBody),
))]
pub(crate) async fn take(
    State(app): State<Shared>,
    Gate(gate): Gate,
    headers: HeaderMap,
    Delivery(batch): Delivery<Batch>,
) -> Done<Response> {
    let mut keys = headers.get_all("idempotency-key").iter();
    if !matches!((keys.next(), keys.next()), (Some(key), None) if key.as_bytes() == batch.batch.as_bytes()) {
        return Err(Fault::Query("`Idempotency-Key` must stand once and be the batch's key".to_owned()));
    }
    let count = batch.records.len();
    if !(1..=BATCH_RECORDS_MAX).contains(&count) {
        return Err(Fault::Body(format!("`records` must be 1 to {BATCH_RECORDS_MAX} records")));
    }
    check_text("batch", &batch.batch)?;
    check_text("gate", &batch.gate)?;
    let records = batch.records.into_iter().map(checked).collect::<Result<Vec<_>, _>>()?;
    let store::Taken { new, late } = app.store.take_usage(records, &batch.gate, &gate.id, app.now_ms()).await?;
    if late > 0 {
        tracing::warn!(gate = batch.gate, records = late, "usage came too late for its day, and is not counted");
    }
    let taken = Taken { batch: batch.batch, records: count as u64, new, late };
    Ok(uncached(Json(taken).into_response()))
}

fn check_text(member: &str, text: &str) -> Result<(), Fault> {
    let good = (1..=RECORD_TEXT_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    if good {
        Ok(())
    } else {
        Err(Fault::Body(format!("`{member}` must be 1 to {RECORD_TEXT_BYTES_MAX} bytes of text")))
    }
}

fn checked(record: Record) -> Result<Record, Fault> {
    for (member, text) in [
        ("id", Some(record.id.as_str())),
        ("kind", Some(record.kind.as_str())),
        ("workspace", Some(&record.workspace)),
        ("grant", Some(&record.grant)),
        ("backend", record.backend.as_deref()),
        ("session", record.session.as_deref()),
        ("tool", record.tool.as_deref()),
        ("outcome", Some(record.outcome.as_str())),
    ] {
        text.map_or(Ok(()), |text| check_text(member, text))?;
    }
    // Sums of them must fit into a column.
    let number = |value: Option<u64>| value.map(|value| value.min(RECORD_NUMBER_MAX));
    Ok(Record {
        at_ms: record.at_ms.min(date::LAST_MS),
        wall_ms: number(record.wall_ms),
        cpu_ms: number(record.cpu_ms),
        memory_peak_bytes: number(record.memory_peak_bytes),
        stdout_bytes: number(record.stdout_bytes),
        stderr_bytes: number(record.stderr_bytes),
        status: number(record.status),
        ..record
    })
}

/// Sums of usage by workspace, day and tool.
#[utoipa::path(get, path = "/v1/usage", tag = "usage", params(UsageQuery), responses(
    (status = 200, body = UsageReport),
    (status = 400, body = ErrorBody),
    (status = 401, body = ErrorBody),
))]
pub(crate) async fn report(State(app): State<Shared>, _: Admin, Asked(asked): Asked<UsageQuery>) -> Done<Response> {
    let report = sums(&app, asked).await?.0;
    Ok(uncached(Json(report).into_response()))
}

/// The same as CSV (RFC 4180), with a line of names.
#[utoipa::path(get, path = "/v1/usage.csv", tag = "usage", params(UsageQuery), responses(
    (status = 200, content_type = "text/csv", body = String),
    (status = 400, body = ErrorBody),
    (status = 401, body = ErrorBody),
))]
pub(crate) async fn export(State(app): State<Shared>, _: Admin, Asked(asked): Asked<UsageQuery>) -> Done<Response> {
    let (report, group) = sums(&app, asked).await?;
    let kind = HeaderValue::from_static("text/csv; charset=utf-8; header=present");
    Ok(uncached(([(header::CONTENT_TYPE, kind)], csv(&report.rows, group)).into_response()))
}

async fn sums(app: &Shared, asked: UsageQuery) -> Result<(UsageReport, Group), Fault> {
    let day = |name: &str, text: Option<String>| match text {
        None => Ok(None),
        Some(text) => match date::parse(&text) {
            Some(day) => Ok(Some(day)),
            None => Err(Fault::Query(format!("`{name}` must be a day, YYYY-MM-DD"))),
        },
    };
    let to_day = day("to", asked.to)?.unwrap_or_else(|| date::day_of(app.now_ms()));
    let from_day = day("from", asked.from)?.unwrap_or(to_day.saturating_sub(30));
    if to_day < from_day || to_day - from_day >= REPORT_DAYS_MAX {
        return Err(Fault::Query(format!("`from` to `to` must be 1 to {REPORT_DAYS_MAX} days")));
    }
    let group = group(asked.by.as_deref())?;
    let rows = app.store.usage(&Report { workspace: asked.workspace.as_deref(), from_day, to_day, group }).await?;
    if rows.len() > REPORT_ROWS_MAX as usize {
        return Err(Fault::Query(format!("that are more than {REPORT_ROWS_MAX} rows: ask for fewer days")));
    }
    let closed = app.store.closed().await?;
    let report = UsageReport {
        from: date::text(from_day),
        to: date::text(to_day),
        closed_before: (closed.before_day > 0).then(|| date::text(closed.before_day)),
        late_records: closed.late_records,
        rows,
    };
    Ok((report, group))
}

fn group(by: Option<&str>) -> Result<Group, Fault> {
    let Some(by) = by else { return Ok(Group { workspace: true, day: true, tool: true }) };
    let mut group = Group::default();
    for name in by.split(',').filter(|name| !name.is_empty()) {
        match name {
            "workspace" => group.workspace = true,
            "day" => group.day = true,
            "tool" => group.tool = true,
            _ => return Err(Fault::Query("`by` must be some of workspace, day, tool, by commas".to_owned())),
        }
    }
    Ok(group)
}

fn csv(rows: &[ReportRow], group: Group) -> String {
    let mut head: Vec<&str> = Vec::new();
    for (wanted, name) in [(group.workspace, "workspace"), (group.day, "day"), (group.tool, "tool")] {
        head.extend(wanted.then_some(name));
    }
    head.extend(["leases", "calls", "ok", "failed", "not_run", "uncertain", "wall_ms", "cpu_ms"]);
    head.extend(["memory_peak_bytes", "stdout_bytes", "stderr_bytes"]);
    let mut text = head.join(",") + "\r\n";
    for row in rows {
        let names = [&row.workspace, &row.day, &row.tool].into_iter().flatten().map(|name| quoted(name));
        let numbers = [row.leases, row.calls, row.ok, row.failed, row.not_run, row.uncertain, row.wall_ms, row.cpu_ms];
        let sizes = [row.memory_peak_bytes, row.stdout_bytes, row.stderr_bytes];
        let numbers = numbers.into_iter().chain(sizes).map(|number| number.to_string());
        text.push_str(&names.chain(numbers).collect::<Vec<_>>().join(","));
        text.push_str("\r\n");
    }
    text
}

/// A text that a spreadsheet takes for a text: quoted where it must be, and never a formula.
fn quoted(text: &str) -> String {
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    let formula = text.starts_with(['=', '+', '-', '@']);
    match (plain, formula) {
        (true, false) => text.to_owned(),
        (_, true) => format!("\"'{}\"", text.replace('"', "\"\"")),
        _ => format!("\"{}\"", text.replace('"', "\"\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out_of_their_column() {
        for (name, written) in [
            ("code_execution", "code_execution"),
            ("a,b", "\"a,b\""),
            ("a\"b", "\"a\"\"b\""),
            ("=cmd", "\"'=cmd\""),
            ("-1", "\"'-1\""),
            ("", ""),
        ] {
            assert_eq!(quoted(name), written);
        }
    }
}
