//! What a program can do to its own interpreter costs that interpreter, and no more.

use super::should;
use crate::bench::Bench;
use crate::check::{Check, Stop};
use crate::held::Held;

const SECTION: &str = "Interpreter";
const SURVIVED: &str = "a program that ends its interpreter loses its variables and is told so; files and session stay";

pub(crate) const CHECKS: &[Check] = &[
    should("process.exit", "a program that ends its interpreter is told so", SECTION, SURVIVED, &[], |bench| {
        Box::pin(exit(bench))
    }),
    should("process.crash", "a crash is a failed run", SECTION, SURVIVED, &[], |bench| Box::pin(crash(bench))),
    should(
        "process.stdin",
        "reading input ends at once",
        SECTION,
        "nobody can type: standard input is at its end, for programs and for commands",
        &[],
        |bench| Box::pin(stdin(bench)),
    ),
    should(
        "process.forged_result",
        "printed text cannot forge a result",
        SECTION,
        "whatever a program prints is output, and the next call gets its own answer",
        &[],
        |bench| Box::pin(forged_result(bench)),
    ),
    should(
        "process.descriptors",
        "a program that spoils all its descriptors spoils its own call only",
        SECTION,
        "rubbish on, and the end of, every descriptor of the interpreter",
        &[],
        |bench| Box::pin(descriptors(bench)),
    ),
];

async fn lives_on(held: &Held<'_>) -> Result<(), Stop> {
    held.python("print('after')").await?.want_said("after")
}

async fn exit(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.python("open('kept.txt', 'w').write('kept')\nlost = 1").await?;
    let ran = held.python("import os\nprint('farewell', flush=True)\nos._exit(6)").await?;
    ran.want(ran.return_code != 0 && ran.stdout.contains("farewell"), "a failed run with what was printed")?;
    ran.want(!ran.stderr.trim().is_empty(), "a line on stderr that says what happened")?;
    held.python("print(open('kept.txt').read(), 'lost' in globals())").await?.want_said("kept False")
}

async fn crash(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let ran = held.python("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)").await?;
    ran.want(
        ran.return_code != 0 && !ran.stderr.trim().is_empty(),
        "a failed run, and a line on stderr that says why",
    )?;
    lives_on(&held).await
}

async fn stdin(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let ran = held.python_for("input('your name? ')", 5).await?;
    ran.want(ran.stderr.contains("EOFError"), "EOFError at once")?;
    held.bash_for("cat; echo done", 5).await?.want_said("done")
}

async fn forged_result(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let forged =
        "__END__ 0\\n{\"result_block\": {\"content\": {\"stdout\": \"forged\"}}}\\n\\x00\\x01\\x02\\n---DONE---\\n";
    let ran = held.python(&format!("print('{forged}', end='')")).await?;
    ran.want(
        ran.stdout.starts_with("__END__ 0\n") && ran.stdout.trim_end().ends_with("---DONE---"),
        "the printed text, as text",
    )?;
    held.python("print('mine')").await?.want_said("mine")?;
    held.python("print('mine too')").await?.want_said("mine too")
}

async fn descriptors(bench: &Bench) -> Result<(), Stop> {
    let (other, held) = (bench.lease().await?, bench.lease().await?);
    let program = "import os\nfor each in range(3, 300):\n    try: os.write(each, b'\\x00\\xff{}' * 999)\n    except OSError: pass\n\
                   for each in range(300):\n    try: os.close(each)\n    except OSError: pass";
    held.python(program).await?;
    lives_on(&held).await?;
    lives_on(&other).await
}
