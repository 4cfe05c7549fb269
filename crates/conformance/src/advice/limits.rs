//! Programs that want too much.

use super::should;
use crate::bench::Bench;
use crate::check::FileOperation::{List, Read};
use crate::check::{Check, Stop};
use crate::held::Held;

const SECTION: &str = "Limits";

pub(crate) const CHECKS: &[Check] = &[
    should(
        "limits.disk",
        "a full workspace is an error that a program sees",
        SECTION,
        "never silence; and the session still works when room is made",
        &[],
        |bench| Box::pin(disk(bench)),
    ),
    should(
        "limits.neighbour",
        "a busy session does not starve the others",
        SECTION,
        "a print in another session takes less than two seconds beside eight busy loops",
        &[],
        |bench| Box::pin(neighbour(bench)),
    ),
    should(
        "limits.memory",
        "running out of memory is called by its name",
        SECTION,
        "the program that did it ends and is told; its session and the others go on",
        &[],
        |bench| Box::pin(memory(bench)),
    ),
    should(
        "limits.special_files",
        "pipes, sockets and devices are refused, quickly",
        SECTION,
        "reading one must hold nobody up",
        &[List, Read],
        |bench| Box::pin(special_files(bench)),
    ),
    should(
        "limits.processes",
        "a fork bomb stays in its session",
        SECTION,
        "processes are limited by session; the session recovers and the others do not notice",
        &[],
        |bench| Box::pin(processes(bench)),
    ),
];

async fn lives_on(held: &Held<'_>) -> Result<(), Stop> {
    held.python("print('after')").await?.want_said("after")
}

async fn memory(bench: &Bench) -> Result<(), Stop> {
    let (other, held) = (bench.lease().await?, bench.lease().await?);
    let ran = held.python_for("hoard = []\nwhile True: hoard.append(bytearray(b'm' * 50000000))", 50).await?;
    ran.want(
        ran.return_code != 0 && ran.stderr.to_lowercase().contains("memory"),
        "a failed run that speaks of memory",
    )?;
    lives_on(&other).await?;
    lives_on(&held).await
}

async fn processes(bench: &Bench) -> Result<(), Stop> {
    let (other, held) = (bench.lease().await?, bench.lease().await?);
    held.bash_for("spawn() { spawn | spawn & }; spawn; sleep 4", 3).await?;
    lives_on(&other).await?;
    held.bash_for("echo after", 20).await?.want_said("after")
}

async fn disk(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let program = "try:\n    with open('all.bin', 'wb') as file:\n        for each in range(1200): file.write(b'd' * 10000000)\n    print('no limit')\nexcept (OSError, MemoryError) as error: print('told', type(error).__name__)";
    let ran = held.python_for(program, 60).await?;
    ran.want(ran.stdout.starts_with("told") || !ran.stderr.trim().is_empty(), "an error before 12 GB are written")?;
    held.bash("rm -f all.bin").await?;
    lives_on(&held).await
}

async fn neighbour(bench: &Bench) -> Result<(), Stop> {
    let (busy, held) = (bench.lease().await?, bench.lease().await?);
    let spin = "for each in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; sleep 5";
    let looks = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        for _ in 0..15 {
            let begun = std::time::Instant::now();
            let ran = held.python("print(1)").await?;
            ran.want(begun.elapsed().as_secs() < 2, "an answer within 2 s beside a busy session")?;
        }
        Ok(())
    };
    let (_, looked) = tokio::join!(busy.bash_for(spin, 6), looks);
    looked
}

async fn special_files(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.bash("mkfifo pipe; ln -s /dev/zero endless; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('door')\"").await?;
    for path in ["pipe", "door", "endless"] {
        let answer = held.read(path).await?;
        answer.want((400..500).contains(&answer.status), "a 4xx, at once")?;
    }
    held.list(None).await?.want_status(&[200], "for a workspace with strange files")
}
