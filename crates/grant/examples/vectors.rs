//! Writes the test vectors to standard output: `cargo run -p ringfence-grant --example vectors > tests/vectors.json`.

#[path = "../tests/support/mod.rs"]
#[expect(dead_code, reason = "the tests use more of it than this program does")]
#[expect(unreachable_pub, reason = "it is a module of several programs")]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test program may panic")]
mod support;

use std::io::Write;

fn main() -> std::io::Result<()> {
    let text = format!("{:#}\n", support::document());
    std::io::stdout().write_all(text.as_bytes())
}
