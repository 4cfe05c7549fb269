//! One call in its session: its turn, its run, the files that it made.

use std::time::Duration;

use ringfence_interp::{Cell, cap_text};
use ringfence_op::{Call, CallReport, Edit, Fault, FaultKind, LimitKind, Operation, Outcome, ProducedFile, Usage};
use ringfence_workspace::{Changed, Workspace};
use tokio::time::Instant;

use crate::refusal::crowded;
use crate::session::{Place, Session, Turn};

/// What a call has made besides its report.
pub(crate) struct Ran {
    report: CallReport,
    files: Vec<ProducedFile>,
    elapsed: Duration,
}

/// The session ended while the call ran or waited: for the caller it is as gone as any.
pub(crate) fn ended_meanwhile() -> Fault {
    Fault::new(FaultKind::UnknownSession, "the session was released or has expired; the call was ended with it")
}

/// Waits for the turn, at most `wait_max`.
pub(crate) async fn turn(session: &Session, place: Place, wait_max: Duration) -> Result<Turn, Fault> {
    let waiting = match place {
        Place::Turn(turn) => return Ok(turn),
        Place::Line(waiting) => waiting,
    };
    tokio::select! {
        biased;
        () = session.ended() => Err(ended_meanwhile()),
        turn = tokio::time::timeout(wait_max, waiting.turn()) => turn.map_err(|_| {
            crowded("the call waited too long for the calls before it in its session")
        }),
    }
}

/// Carries the operation out, to its end.
pub(crate) async fn operate(
    workspace: &Workspace,
    cell: &mut Cell,
    call: &Call,
    output_bytes_max: usize,
) -> Result<Ran, Fault> {
    let started = Instant::now();
    let (report, files) = match &call.operation {
        Operation::Python(python) => (cell.run_python(python, call.timeout).await, Vec::new()),
        Operation::Bash(bash) => (cell.run_bash(bash, call.timeout).await, Vec::new()),
        Operation::Edit(edit) => self::edit(workspace.clone(), edit.clone(), output_bytes_max).await?,
    };
    Ok(Ran { report, files, elapsed: started.elapsed() })
}

/// Looks at what changed, and puts the outcome together.
pub(crate) async fn conclude(workspace: &Workspace, ran: Ran, call: &Call, files_max: usize) -> Outcome {
    let changed = changed(workspace, files_max).await;
    let (files, files_omitted) = merge(ran.files, changed, files_max);
    Outcome {
        report: ran.report,
        files,
        files_omitted,
        execution_time_ms: u64::try_from(ran.elapsed.as_millis()).unwrap_or(u64::MAX),
        timeout: call.timeout,
    }
}

async fn edit(
    workspace: Workspace,
    edit: Edit,
    output_bytes_max: usize,
) -> Result<(CallReport, Vec<ProducedFile>), Fault> {
    let done = tokio::task::spawn_blocking(move || workspace.edit(&edit)).await.map_err(Fault::house)??;
    let usage =
        Usage { stdout_bytes: done.stdout.len() as u64, stderr_bytes: done.stderr.len() as u64, ..Usage::default() };
    let (stdout, cut) = cap_text(done.stdout, output_bytes_max);
    let report = CallReport {
        stdout,
        stderr: done.stderr,
        return_code: done.return_code,
        limit_exceeded: cut.then_some(LimitKind::Output),
        usage,
        ..CallReport::default()
    };
    Ok((report, done.files))
}

/// What changed; on a thread that may block only where something did.
async fn changed(workspace: &Workspace, files_max: usize) -> Changed {
    if workspace.is_quiet() {
        return Changed::default();
    }
    let workspace = workspace.clone();
    match tokio::task::spawn_blocking(move || workspace.changed_since_last(files_max)).await {
        Ok(changed) => changed,
        Err(error) => {
            tracing::error!(%error, "the look at a workspace failed");
            Changed::default()
        }
    }
}

/// What the editor says it changed, then what else changed, each file once, at most `files_max`.
fn merge(edited: Vec<ProducedFile>, changed: Changed, files_max: usize) -> (Vec<ProducedFile>, u64) {
    let mut files = edited;
    for file in changed.files {
        if !files.iter().any(|known| known.path == file.path) {
            files.push(file);
        }
    }
    let surplus = files.len().saturating_sub(files_max);
    files.truncate(files_max);
    (files, changed.omitted + surplus as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_op::WorkspacePath;

    fn file(path: &str) -> ProducedFile {
        ProducedFile { file_id: format!("id of {path}"), path: WorkspacePath::parse(path).unwrap() }
    }

    #[test]
    fn files_are_named_once_and_bounded() {
        let changed = Changed { files: vec![file("a"), file("b"), file("c")], omitted: 4 };
        let (files, omitted) = merge(vec![file("b")], changed, 2);
        assert_eq!(files, vec![file("b"), file("a")]);
        assert_eq!(omitted, 5);
    }
}
