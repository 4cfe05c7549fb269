//! Cells, made and unmade by a real keeper: what is seen inside, what can be killed, what is left behind.
//!
//! The program plays the daemon, the keeper (`keeper SOCKET CONFIG`, as the product's hidden subcommand), and the same
//! tests as an ordinary user (`as-user`). `measure` prints how long things take and asserts nothing. It takes a part of a test's name as a filter, and `--list`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test program: what does not hold is to panic, and it prints its own results"
)]

mod confined;
mod driver;
mod kill;
mod lifecycle;
mod probe;
mod pulled;
mod renewal;
mod sets;
mod workers;

use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode};

use ringfence_sys::process::adopt;

type Test = (&'static str, fn());

fn tests() -> Vec<Test> {
    let all = [probe::TESTS, workers::TESTS, kill::TESTS, lifecycle::TESTS, confined::TESTS, pulled::TESTS];
    [all.concat().as_slice(), renewal::TESTS, sets::TESTS].concat()
}

/// The ordinary user: `nobody`, who owns nothing.
const ORDINARY: u32 = 65_534;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("keeper") => ringfence_jail::keeper_main(adopt(3).unwrap(), adopt(4).unwrap()),
        Some("enter-fleet") => lifecycle::inside_the_fleet(),
        Some("confine") => confined::inside(),
        Some("confine-puller") => pulled::held(),
        Some("confine-and-pull") => pulled::confined_daemon(),
        Some("hold-cells") => lifecycle::hold_cells(),
        Some("measure") => lifecycle::measure(),
        Some("--list") => {
            for (name, _) in tests() {
                println!("{name}: test");
            }
            ExitCode::SUCCESS
        }
        Some("as-user") => run("user", &arguments[1..]),
        _ => {
            let first = run(if driver::is_root() { "root" } else { "user" }, &arguments);
            if !driver::is_root() {
                println!("not root: the tests ran as this user only");
                return first;
            }
            let mut second = Command::new("/proc/self/exe");
            let second = second.arg("as-user").args(&arguments).uid(ORDINARY).gid(ORDINARY).status().unwrap();
            if first == ExitCode::SUCCESS && second.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}

fn run(who: &str, arguments: &[String]) -> ExitCode {
    let exact = arguments.iter().any(|argument| argument == "--exact");
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |name: &str| {
        filters.is_empty()
            || filters.iter().any(|filter| if exact { name == filter.as_str() } else { name.contains(filter.as_str()) })
    };
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in tests().into_iter().filter(|(name, _)| wanted(name)) {
        let held = catch_unwind(AssertUnwindSafe(test)).is_ok();
        println!("test {who}::{name} ... {}", if held { "ok" } else { "FAILED" });
        if held { passed += 1 } else { failed += 1 }
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out\n");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
