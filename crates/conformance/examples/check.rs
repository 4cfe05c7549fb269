//! Checks a backend from a program of one's own.
//!
//! `cargo run -p ringfence-conformance --example check -- http://127.0.0.1:8080 [--strict]`

use ringfence_conformance::{CannotRun, Options, run, text};

#[allow(clippy::print_stdout, reason = "an example shows its result")]
#[tokio::main]
async fn main() -> Result<(), CannotRun> {
    let mut options = Options::new("http://127.0.0.1:8080");
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--strict" => options.strict = true,
            url => options.base_url = url.to_owned(),
        }
    }
    let report = run(&options, &mut |row| print!("{}", text::row(row, false))).await?;
    print!("{}", text::summary(&report));
    Ok(())
}
