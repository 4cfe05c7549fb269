//! Shell commands end as a shell ends.

use super::should;
use crate::bench::Bench;
use crate::check::{Check, Stop};

const SECTION: &str = "Shell";

pub(crate) const CHECKS: &[Check] = &[
    should(
        "shell.status",
        "the command's exit status is the return code",
        SECTION,
        "the status as it is; 127 for what is not found; 128 and the number for a signal",
        &[],
        |bench| Box::pin(status(bench)),
    ),
    should(
        "shell.heredoc",
        "here-documents work, and one without its end does not hang",
        SECTION,
        "models write files this way, and forget the end",
        &[],
        |bench| Box::pin(heredoc(bench)),
    ),
    should(
        "shell.many",
        "a hundred quick commands all end",
        SECTION,
        "a process that ends before anyone looks is still seen to end",
        &[],
        |bench| Box::pin(many(bench)),
    ),
];

async fn status(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    for (command, code) in [("exit 9", 9), ("true", 0), ("kill -9 $$", 137), ("no-such-command-here", 127)] {
        let ran = held.bash(command).await?;
        ran.want(ran.return_code == code, format!("return_code {code}"))?;
    }
    Ok(())
}

async fn heredoc(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.bash("cat <<'END' > doc.txt\nkeep $this\nEND\ncat doc.txt").await?.want_said("keep $this")?;
    held.bash("cat <<'END'\nno end").await?;
    held.bash("echo after").await?.want_said("after")
}

async fn many(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    for _ in 0..100 {
        let ran = held.bash("true").await?;
        ran.want(ran.return_code == 0, "return_code 0")?;
    }
    Ok(())
}
