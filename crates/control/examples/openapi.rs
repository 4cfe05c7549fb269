//! Prints the OpenAPI document as the code says it: `cargo run -p ringfence-control --example openapi > crates/control/openapi.json`.
#![expect(clippy::print_stdout, reason = "it is what this does")]

fn main() -> Result<(), serde_json::Error> {
    print!("{}", ringfence_control::openapi::generated()?);
    Ok(())
}
