//! A call that ctrl-C interrupts.

use ringfence_client::{ClientError, ExecResult, Session, ToolCall};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::complain;

/// What to do where a backend cannot interrupt a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uninterrupted {
    /// Wait for its answer.
    Wait,
    /// Leave it running.
    Leave,
}

/// Runs a call. Ctrl-C interrupts it, as often as it is pressed, and its answer is still waited for; none where the call
/// cannot be interrupted and is left.
///
/// # Errors
/// Those of the call.
pub(crate) async fn interruptible(
    session: &Session,
    call: &ToolCall,
    otherwise: Uninterrupted,
) -> Result<Option<ExecResult>, ClientError> {
    let run = session.run(call);
    tokio::pin!(run);
    let mut presses = signal(SignalKind::interrupt()).ok();
    loop {
        tokio::select! {
            biased;
            done = &mut run => return done.map(Some),
            () = pressed(&mut presses) => {
                if let Err(error) = session.interrupt().await {
                    let error = anyhow::Error::new(error);
                    complain(&error.context("the call cannot be interrupted; it ends by its own time"));
                    if otherwise == Uninterrupted::Leave {
                        return Ok(None);
                    }
                }
            }
        }
    }
}

/// The next ctrl-C; never one where signals cannot be heard.
async fn pressed(presses: &mut Option<Signal>) {
    match presses {
        Some(presses) => {
            let _ = presses.recv().await;
        }
        None => std::future::pending().await,
    }
}
