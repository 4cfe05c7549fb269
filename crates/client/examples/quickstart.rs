//! Leases a session, runs Python and bash in it, and releases it.
//!
//! `cargo run -p ringfence-client --example quickstart -- http://127.0.0.1:8080`

use ringfence_client::{Client, ClientError, LeaseOptions, ToolCall};

/// The walk itself; returns what the programs printed.
pub(crate) async fn walk(url: &str) -> Result<String, ClientError> {
    let client = Client::new(url)?;
    let lease = client.lease(&LeaseOptions::default()).await?;
    lease.run(&ToolCall::python("answer = 6 * 7")).await?;
    let python = lease.run(&ToolCall::python("print(answer)")).await?;
    let bash = lease.run(&ToolCall::bash("echo hello; exit 3")).await?;
    lease.release().await?;
    Ok(format!("{}{}ended with {}\n", python.stdout, bash.stdout, bash.return_code))
}

#[allow(dead_code, reason = "the test that runs this example calls walk")]
#[allow(clippy::print_stdout, reason = "an example shows its result")]
#[tokio::main]
async fn main() -> Result<(), ClientError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:8080".to_owned());
    print!("{}", walk(&url).await?);
    Ok(())
}
