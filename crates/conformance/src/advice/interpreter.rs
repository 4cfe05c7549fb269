//! The interpreter is one that its user would recognise.

use super::should;
use crate::bench::Bench;
use crate::check::{Check, Stop};

const SECTION: &str = "Interpreter";

pub(crate) const CHECKS: &[Check] = &[
    should(
        "interpreter.traceback",
        "a traceback shows the user's lines, and only those",
        SECTION,
        "a model mends what it sees: its own source line, and no frame of the backend",
        &[],
        |bench| Box::pin(traceback(bench)),
    ),
    should(
        "interpreter.syntax_error",
        "a syntax error is a failed run like any other",
        SECTION,
        "return_code 1, the error on stderr, and the session lives on",
        &[],
        |bench| Box::pin(syntax_error(bench)),
    ),
    should(
        "interpreter.exit",
        "sys.exit gives its status and keeps the session",
        SECTION,
        "a number is the return code, a text goes to stderr with code 1, nothing is 0; variables stay",
        &[],
        |bench| Box::pin(exit(bench)),
    ),
    should(
        "interpreter.main_module",
        "classes pickle and functions have their source",
        SECTION,
        "code runs in a real __main__, across calls",
        &[],
        |bench| Box::pin(main_module(bench)),
    ),
    should(
        "interpreter.pool",
        "multiprocessing can fork workers",
        SECTION,
        "a function of an earlier call runs in a forked worker",
        &[],
        |bench| Box::pin(pool(bench)),
    ),
    should(
        "interpreter.await",
        "await works at the top level, and asyncio.run after it",
        SECTION,
        "models write code as for a notebook",
        &[],
        |bench| Box::pin(top_level_await(bench)),
    ),
    should(
        "interpreter.own_modules",
        "a module written to the workspace can be imported",
        SECTION,
        "the workspace is where imports look first",
        &[],
        |bench| Box::pin(own_modules(bench)),
    ),
    should(
        "interpreter.randomness",
        "two sessions draw different random numbers",
        SECTION,
        "sessions that were made from one parent share no randomness",
        &[],
        |bench| Box::pin(randomness(bench)),
    ),
    should(
        "interpreter.late_output",
        "a late thread does not spoil the next call",
        SECTION,
        "what is written between two calls is not taken for the next call's own output",
        &[],
        |bench| Box::pin(late_output(bench)),
    ),
];

async fn traceback(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let ran = held.python("print('so far')\ndef inner(divisor):\n    return 10 // divisor\ninner(0)").await?;
    ran.want(ran.return_code == 1, "return_code 1")?;
    ran.want_said("so far")?;
    let shown = ran.stderr.contains("ZeroDivisionError") && ran.stderr.contains("return 10 // divisor");
    ran.want(shown, "ZeroDivisionError and the line \"return 10 // divisor\" on stderr")?;
    ran.want(ran.stderr.matches("File \"").count() == 2, "two frames, the user's own, on stderr")
}

async fn syntax_error(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let ran = held.python("for each in (1, 2\n    print(each)").await?;
    ran.want(ran.return_code == 1 && ran.stderr.contains("SyntaxError"), "return_code 1 and a SyntaxError on stderr")?;
    held.python("print('after')").await?.want_said("after")
}

async fn exit(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.python("kept = 'still here'").await?;
    let ran = held.python("import sys\nsys.exit(4)").await?;
    ran.want(ran.return_code == 4, "return_code 4")?;
    let ran = held.python("import sys\nsys.exit('no reason at all')").await?;
    ran.want(ran.return_code == 1 && ran.stderr.contains("no reason at all"), "return_code 1 and the text on stderr")?;
    let ran = held.python("exit()").await?;
    ran.want(ran.return_code == 0, "return_code 0")?;
    held.python("print(kept)").await?.want_said("still here")
}

async fn main_module(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.python(
        "class Pair:\n    def __init__(self, left): self.left = left\ndef twice(number):\n    return number * 2",
    )
    .await?;
    let ran = held.python("import pickle\nprint(pickle.loads(pickle.dumps(Pair(7))).left)").await?;
    ran.want_said("7")?;
    let ran = held.python("import inspect\nprint(inspect.getsource(twice).rstrip())").await?;
    ran.want_said("def twice(number):\n    return number * 2")
}

async fn pool(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.python("def twice(number):\n    return number * 2").await?;
    let program = "import multiprocessing\nwith multiprocessing.get_context('fork').Pool(2) as pool:\n    print(pool.map(twice, range(4)))";
    held.python(program).await?.want_said("[0, 2, 4, 6]")
}

async fn top_level_await(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.python("import asyncio\nprint(await asyncio.sleep(0, 'slept'))").await?.want_said("slept")?;
    held.python("async def later():\n    return 'run'\nprint(asyncio.run(later()))").await?.want_said("run")
}

async fn own_modules(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.python("open('helper_of_mine.py', 'w').write('def greet(): return \"imported\"\\n')").await?;
    held.python("import helper_of_mine\nprint(helper_of_mine.greet())").await?.want_said("imported")
}

async fn randomness(bench: &Bench) -> Result<(), Stop> {
    let (one, two) = (bench.lease().await?, bench.lease().await?);
    let program = "import random, uuid, os\nprint(random.getrandbits(64))\nprint(uuid.uuid4())\nprint(os.urandom(8).hex())\n\
                   try:\n    import numpy\n    print(numpy.random.randint(2**62))\nexcept ImportError: pass";
    let (first, second) = (one.python(program).await?, two.python(program).await?);
    second.want(second.stdout.lines().count() >= 3, "the numbers printed")?;
    let same = first.stdout.lines().zip(second.stdout.lines()).any(|(left, right)| left == right);
    second.want(!same, format!("no number of another session, which drew {:?}", first.stdout))
}

async fn late_output(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.python("import threading\nthreading.Timer(0.3, print, ['too late']).start()").await?;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let ran = held.python("print('mine')").await?;
    ran.want(ran.stdout.trim_end().ends_with("mine") && ran.return_code == 0, "the call's own output at the end")?;
    held.python("print('next')").await?.want_said("next")
}
