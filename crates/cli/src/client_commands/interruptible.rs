//! A call that ctrl-C interrupts.

use ringfence_client::{ClientError, ExecResult, Session, ToolCall};
use tokio::signal::unix::SignalKind;

use super::complain;
use super::ends::{hear, next_of};

/// What to do where a backend cannot interrupt a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uninterrupted {
    /// Wait for its answer.
    Wait,
    /// Leave it running.
    Leave,
}

/// Runs a call. Ctrl-C interrupts it, as often as it is pressed, and its answer is still waited for; none where the call
/// cannot be interrupted and is left, as also where ctrl-C is pressed again before the backend has answered the first time.
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
    let mut presses = hear(SignalKind::interrupt()).ok().flatten();
    loop {
        tokio::select! {
            biased;
            done = &mut run => return done.map(Some),
            () = next_of(&mut presses) => {
                let interrupted = tokio::select! {
                    biased;
                    done = &mut run => return done.map(Some),
                    interrupted = session.interrupt() => interrupted.map(|_| ()).map_err(anyhow::Error::new),
                    () = next_of(&mut presses), if otherwise == Uninterrupted::Leave => {
                        Err(anyhow::anyhow!("pressed again before the backend has answered"))
                    }
                };
                if let Err(error) = interrupted {
                    complain(&error.context("the call cannot be interrupted; it ends by its own time"));
                    if otherwise == Uninterrupted::Leave {
                        return Ok(None);
                    }
                }
            }
        }
    }
}
