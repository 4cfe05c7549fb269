//! What a program wrote is what comes back.

use super::should;
use crate::bench::Bench;
use crate::check::{Check, Stop};

const SECTION: &str = "Output";
const CAP: &str = "past a cap, output is dropped and the loss is said; the program and the next call are left alone";

/// More than any cap that an answer can bear.
const TOO_LONG: usize = 16 << 20;

pub(crate) const CHECKS: &[Check] = &[
    should("output.exact", "streams come back unchanged", SECTION, "no newline is added or taken", &[], |bench| {
        Box::pin(exact(bench))
    }),
    should(
        "output.children",
        "what children write is output, in order",
        SECTION,
        "whatever reaches descriptors 1 and 2 is the call's output, whoever wrote it",
        &[],
        |bench| Box::pin(children(bench)),
    ),
    should(
        "output.split_characters",
        "long texts outside of ASCII stay whole",
        SECTION,
        "a character that is split between two reads is still one character",
        &[],
        |bench| Box::pin(split_characters(bench)),
    ),
    should(
        "output.odd_text",
        "bytes and code points that are no text break nothing",
        SECTION,
        "what cannot be carried by JSON is replaced, and the session lives on",
        &[],
        |bench| Box::pin(odd_text(bench)),
    ),
    should(
        "output.both_streams",
        "both streams can be filled at once",
        SECTION,
        "a program that fills one stream does not wait for the other",
        &[],
        |bench| Box::pin(both_streams(bench)),
    ),
    should("output.flood", "a flood is cut, with its head, its tail and a note", SECTION, CAP, &[], |bench| {
        Box::pin(flood(bench))
    }),
    should("output.line", "one very long line is cut", SECTION, CAP, &[], |bench| Box::pin(line(bench))),
    should("output.endless", "a flood without an end ends on time", SECTION, CAP, &[], |bench| {
        Box::pin(endless(bench))
    }),
];

async fn exact(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.python("print('one')\nprint('two')").await?.want_stdout("one\ntwo\n")?;
    held.python("print('no end', end='')").await?.want_stdout("no end")?;
    held.python("print('\\n\\n')").await?.want_stdout("\n\n\n")?;
    held.bash("printf '  x\\n\\n'").await?.want_stdout("  x\n\n")
}

async fn children(bench: &Bench) -> Result<(), Stop> {
    let program = "import os, subprocess\nprint('python', flush=True)\nos.system('echo shell')\n\
                   subprocess.run(['printf', 'child'])\nos.write(1, b' raw\\n')\nos.write(2, b'error\\n')";
    let ran = bench.lease().await?.python(program).await?;
    ran.want_stdout("python\nshell\nchild raw\n")?;
    ran.want(ran.stderr == "error\n", "exactly \"error\\n\" on stderr")
}

async fn split_characters(bench: &Bench) -> Result<(), Stop> {
    let ran = bench.lease().await?.python("print('\\u20ac' * 70001)").await?;
    let whole = ran.stdout.chars().filter(|letter| *letter == '\u{20ac}').count() == 70_001;
    ran.want(whole && !ran.stdout.contains('\u{fffd}'), "70001 euro signs and no replacement character")
}

async fn odd_text(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.python("print('\\udfff')").await?;
    let ran = held.python("import os\nos.write(1, b'left ' + bytes(range(128, 256)) + b' right')").await?;
    ran.want(
        ran.stdout.starts_with("left ") && ran.stdout.ends_with(" right"),
        "what is text kept around what is none",
    )?;
    held.python("print('after')").await?.want_said("after")
}

async fn both_streams(bench: &Bench) -> Result<(), Stop> {
    let command = "head -c 700000 /dev/zero | tr '\\0' e >&2; head -c 700000 /dev/zero | tr '\\0' o";
    let ran = bench.lease().await?.bash(command).await?;
    let filled = (ran.stdout.len(), ran.stderr.len(), ran.return_code) == (700_000, 700_000, 0);
    ran.want(filled, "700000 bytes on each stream and return_code 0")
}

async fn flood(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let program =
        "print('first line')\nfor number in range(400000): print('filler', number, '-' * 80)\nprint('last line')";
    let ran = held.python_for(program, 60).await?;
    ran.want(ran.return_code == 0, "return_code 0: the program is not ended for its output")?;
    ran.want(ran.stdout.len() < TOO_LONG, format!("less than {TOO_LONG} bytes"))?;
    let ends = ran.stdout.starts_with("first line\n") && ran.stdout.trim_end().ends_with("last line");
    ran.want(ends, "the head and the tail of the output")?;
    let said = ran.stdout.lines().any(|line| !line.starts_with("filler") && !line.ends_with(" line"));
    ran.want(said, "a line that says that output is missing")?;
    held.python("print('after')").await?.want_said("after")
}

async fn line(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let ran = held.python_for("print('z' * 24000000)", 60).await?;
    ran.want(
        ran.return_code == 0 && ran.stdout.len() < TOO_LONG,
        format!("return_code 0 and less than {TOO_LONG} bytes"),
    )?;
    held.python("print('after')").await?.want_said("after")
}

async fn endless(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let ran = held.python_for("while True: print('again' * 800)", 2).await?;
    ran.want(ran.failed() && ran.stdout.len() < TOO_LONG, format!("a failed run with less than {TOO_LONG} bytes"))?;
    held.python("print('after')").await?.want_said("after")
}
