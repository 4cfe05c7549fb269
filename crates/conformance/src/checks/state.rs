//! Sessions are stateful, and apart from each other.

use super::must;
use crate::bench::Bench;
use crate::check::{Check, Stop};
use crate::held::Held;

const SECTION: &str = "Execute";
const PERSISTS: &str = "variables, imports and the workspace persist across the calls of a session";
const ENDS: &str = "state belongs to a session and is destroyed with it";

pub(crate) const CHECKS: &[Check] = &[
    must("state.variables", "variables live from one call to the next", SECTION, PERSISTS, &[], |bench| {
        Box::pin(variables(bench))
    }),
    must("state.files", "files live from one call to the next", SECTION, PERSISTS, &[], |bench| Box::pin(files(bench))),
    must(
        "state.shared_workspace",
        "the tools of one session share its workspace",
        "Tool kinds",
        "the shell and the editor work in the session's workspace, where the interpreter works",
        &[],
        |bench| Box::pin(shared_workspace(bench)),
    ),
    must("state.variables_apart", "another session does not see the variables", SECTION, ENDS, &[], |bench| {
        Box::pin(variables_apart(bench))
    }),
    must("state.files_apart", "another session has a workspace of its own", SECTION, ENDS, &[], |bench| {
        Box::pin(files_apart(bench))
    }),
];

async fn variables(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.python("kept = 41").await?;
    held.python("print(kept + 1)").await?.want_in_stdout("42")
}

async fn files(bench: &Bench) -> Result<(), Stop> {
    let (held, mark) = (bench.lease().await?, Bench::mark());
    held.python(&format!("open('kept.txt', 'w').write('{mark}')")).await?;
    held.python("print(open('kept.txt').read())").await?.want_in_stdout(&mark)
}

async fn shared_workspace(bench: &Bench) -> Result<(), Stop> {
    let (held, mark) = (bench.lease().await?, Bench::mark());
    held.python(&format!("open('shared.txt', 'w').write('{mark}')")).await?.need_success()?;
    held.bash("cat shared.txt").await?.want_in_stdout(&mark)?;
    let view = serde_json::json!({"command": "view", "path": "shared.txt"});
    held.edit(view).await?.want_in_stdout(&mark)
}

/// Two sessions; where they are one, that is the lease's finding.
async fn two(bench: &Bench) -> Result<(Held<'_>, Held<'_>), Stop> {
    let one = bench.lease().await?;
    let answer = bench.lease_with(Some(serde_json::json!({}))).await?;
    let two = bench.held(&answer)?;
    answer.need(one.id != two.id, "a session of its own")?;
    Ok((one, two))
}

async fn variables_apart(bench: &Bench) -> Result<(), Stop> {
    let (one, two) = two(bench).await?;
    let mark = Bench::mark();
    one.python(&format!("{mark} = 1")).await?.need_success()?;
    two.python(&format!("print('{mark}' in globals())")).await?.want_in_stdout("False")
}

async fn files_apart(bench: &Bench) -> Result<(), Stop> {
    let (one, two) = two(bench).await?;
    let mark = Bench::mark();
    one.python(&format!("open('{mark}', 'w').write('x')")).await?.need_success()?;
    two.python(&format!("import os\nprint(os.path.exists('{mark}'))")).await?.want_in_stdout("False")
}
