//! Uploads a file, lets a program write another one, and streams that one back.
//!
//! `cargo run -p ringfence-client --example files -- http://127.0.0.1:8080`

use ringfence_client::{Client, ClientError, LeaseOptions, ToolCall};

/// The walk itself; returns the names of the files that the program produced, and the bytes of the first.
pub(crate) async fn walk(url: &str) -> Result<(Vec<String>, Vec<u8>), ClientError> {
    let client = Client::new(url)?;
    let lease = client.lease(&LeaseOptions::default()).await?;
    lease.put("data/in.txt", "from outside").await?;
    let done = lease.run(&ToolCall::python("open('out.txt', 'w').write(open('data/in.txt').read())")).await?;
    // Not every backend names what a call produced; a listing shows it anyhow.
    let mut names: Vec<String> = done.files.into_iter().map(|file| file.filename).collect();
    if names.is_empty() {
        names = lease.list("").await?.into_iter().map(|file| file.path).collect();
    }
    let mut content = Vec::new();
    if let Some(first) = names.first() {
        lease.open(first).await?.write_to(&mut content).await?;
    }
    lease.release().await?;
    Ok((names, content))
}

#[allow(dead_code, reason = "the test that runs this example calls walk")]
#[allow(clippy::print_stdout, reason = "an example shows its result")]
#[tokio::main]
async fn main() -> Result<(), ClientError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:8080".to_owned());
    let (names, content) = walk(&url).await?;
    println!("{names:?}: {} bytes", content.len());
    Ok(())
}
