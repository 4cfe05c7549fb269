//! A server of one command's own: on a free port of loopback, with a token that nobody else knows, ended with the
//! command.
//!
//! The server is this program again. It ends when its standard input does, and so also where the command is killed.

use std::ffi::OsString;
use std::process::Stdio;

use anyhow::{Context, anyhow, bail};
use ringfence_client::{BearerToken, Client};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::client_commands::SECRET_VARIABLES;
use crate::limits::{EMBEDDED_END_MAX, READY_LINE_BYTES_MAX};

/// A server that runs, or is about to.
#[derive(Debug)]
pub(crate) struct Embedded {
    child: Child,
    /// Its life.
    input: Option<ChildStdin>,
    /// Kept open: a server that says something to nobody would fail.
    _said: BufReader<ChildStdout>,
}

impl Embedded {
    /// Starts a server with further arguments of `serve`, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not come up; what it has said is on standard error.
    pub(crate) async fn start(arguments: &[OsString]) -> anyhow::Result<(Self, Client)> {
        let folder = tempfile::tempdir().context("a folder for the server's token")?;
        let file = folder.path().join("token");
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes).map_err(|error| anyhow!("no random bytes: {error}"))?;
        let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        ringfence_secret::create_private(&file, token.as_bytes())?;
        let mut command = Command::new(std::env::current_exe().context("the place of this program")?);
        command.args(["serve", "--until-stdin-ends", "--shutdown-grace", "1"]).args(arguments);
        command.args(["--listen", "127.0.0.1:0", "--auth-token-file"]).arg(&file);
        // What a terminal sends to the command is the command's.
        command.process_group(0).kill_on_drop(true);
        if std::env::var_os("RINGFENCE_LOG_LEVEL").is_none() {
            command.env("RINGFENCE_LOG_LEVEL", "warn");
        }
        for name in SECRET_VARIABLES {
            command.env_remove(name);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("a server of its own")?;
        let (Some(input), Some(said)) = (child.stdin.take(), child.stdout.take()) else { bail!("it has no pipes") };
        let mut server = Embedded { child, input: Some(input), _said: BufReader::new(said) };
        let address = server.ready().await?;
        let client = Client::builder(&address)?.token(BearerToken::new(&token)?).build();
        Ok((server, client))
    }

    /// Reads until it is ready: where it is.
    async fn ready(&mut self) -> anyhow::Result<String> {
        let mut address = None;
        loop {
            let mut line = String::new();
            let read = (&mut self._said).take(READY_LINE_BYTES_MAX).read_line(&mut line).await;
            if read.context("what the server says")? == 0 {
                let status = self.child.wait().await.context("the server's end")?;
                bail!("the server of its own did not start ({status}); why stands above");
            }
            match (line.trim_end(), &address) {
                ("ready", Some(address)) => return Ok(String::clone(address)),
                (line, _) => {
                    if let Some(said) = line.strip_prefix("address: ") {
                        address = Some(said.to_owned());
                    }
                }
            }
        }
    }

    /// Waits until it has ended by itself, which it should not: how it ended. Can be given up.
    pub(crate) async fn died(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Ends it, and waits until it is gone.
    pub(crate) async fn end(mut self) {
        drop(self.input.take());
        match tokio::time::timeout(EMBEDDED_END_MAX, self.child.wait()).await {
            Ok(Ok(_)) => {}
            // Dropped, it is killed, and its cells with it.
            Ok(Err(error)) => tracing::warn!(%error, "the server of its own could not be waited for"),
            Err(_) => tracing::warn!("the server of its own did not end in time"),
        }
    }
}
