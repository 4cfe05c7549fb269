//! One conversation: its session, whose turn it is in it, and the end of both.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ringfence_client::{ClientError, ExecResult, Lease, LeaseOptions, Session, SessionHandle, ToolCall};
use tokio::sync::Mutex as Turn;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::backend::Backend;
use crate::limits::{
    CANCEL_GRACE, CANCEL_PAUSE, CANCEL_TRIES_MAX, PROGRESS_PERIOD, RELEASE_WAIT_MAX, SESSION_IDLE, SESSION_LIFETIME,
};

/// A conversation with one model. Dropping it releases its session in the background.
#[derive(Debug)]
pub struct Conversation {
    backend: Backend,
    lease: Turn<Option<Lease>>,
    turn: Turn<()>,
    handle: Mutex<Option<SessionHandle>>,
    over: CancellationToken,
}

/// Why an operation of a conversation came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// There is no backend.
    #[error("there is no backend: {0}")]
    Backend(String),
    /// The session is gone; the next operation gets another one.
    #[error(
        "the session had ended (it was idle for too long, too old, or the backend was restarted): variables and files \
         are lost, and this call has no result. The next call gets a new session"
    )]
    SessionGone,
    /// The client has cancelled the request.
    #[error("cancelled")]
    Cancelled,
    /// The backend refused, or could not be reached.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl Conversation {
    /// A conversation whose session is leased when it is first needed.
    #[must_use]
    pub fn new(backend: Backend) -> Self {
        Conversation {
            backend,
            lease: Turn::default(),
            turn: Turn::default(),
            handle: Mutex::default(),
            over: CancellationToken::new(),
        }
    }

    /// The handle of its last session, if it ever had one.
    pub(crate) fn handle(&self) -> Option<SessionHandle> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its session, leased now where it has none.
    ///
    /// # Errors
    /// Where there is no backend, or it leases none.
    pub async fn session(&self) -> Result<Session, Trouble> {
        let mut held = self.lease.lock().await;
        if let Some(lease) = &*held {
            return Ok(lease.session().clone());
        }
        if self.over.is_cancelled() {
            return Err(Trouble::Cancelled);
        }
        let client = self.backend.client().await.map_err(Trouble::Backend)?;
        let mut options = LeaseOptions::default().idle_timeout(SESSION_IDLE).max_lifetime(SESSION_LIFETIME);
        if let Some(image) = self.backend.image() {
            options = options.image(image);
        }
        let lease = client.lease(&options).await?;
        *self.handle.lock().unwrap_or_else(PoisonError::into_inner) = Some(lease.handle().clone());
        let session = lease.session().clone();
        *held = Some(lease);
        Ok(session)
    }

    /// Runs a call when the calls before it are over; returns the session that it ran in as well. Cancelled, it is interrupted, twice if it must be; `told` hears
    /// every [`PROGRESS_PERIOD`] how long it has been running.
    ///
    /// # Errors
    /// As [`Trouble`] has it. A program that fails is no error.
    pub async fn run(
        &self,
        call: &ToolCall,
        cancelled: &CancellationToken,
        told: impl Fn(Duration) + Send,
    ) -> Result<(Session, ExecResult), Trouble> {
        let _turn = tokio::select! {
            biased;
            () = cancelled.cancelled() => return Err(Trouble::Cancelled),
            turn = self.turn.lock() => turn,
        };
        let session = self.session().await?;
        let begun = Instant::now();
        let mut progress = begun + PROGRESS_PERIOD;
        let mut cancel = Cancel::default();
        let run = session.run(call);
        tokio::pin!(run);
        loop {
            tokio::select! {
                biased;
                done = &mut run => {
                    let done = self.settled(&session, done).await?;
                    return Ok((session.clone(), done));
                }
                () = cancel.due(cancelled) => cancel.interrupt(&session).await,
                () = sleep_until(progress) => {
                    told(begun.elapsed());
                    progress += PROGRESS_PERIOD;
                }
            }
        }
    }

    /// Does something with the session's files.
    ///
    /// # Errors
    /// As [`Trouble`] has it.
    pub(crate) async fn with_files<T>(
        &self,
        work: impl AsyncFnOnce(&Session) -> Result<T, ClientError>,
    ) -> Result<T, Trouble> {
        let session = self.session().await?;
        match work(&session).await {
            // A file that is missing and a session that is are told apart by asking for the session.
            Err(ClientError::NotFound { operation, detail }) => match session.list("").await {
                Err(gone @ ClientError::NotFound { .. }) => self.settled(&session, Err(gone)).await,
                _ => Err(ClientError::NotFound { operation, detail }.into()),
            },
            done => Ok(done?),
        }
    }

    /// What an operation on a session came to; a session that is gone is let go of. Another operation may have seen the
    /// same before, and a new session be leased already: that one stays.
    async fn settled<T>(&self, session: &Session, done: Result<T, ClientError>) -> Result<T, Trouble> {
        match done {
            Err(ClientError::NotFound { .. }) => {
                let gone = self.lease.lock().await.take_if(|lease| lease.id() == session.id());
                if let Some(lease) = gone {
                    drop(lease.keep());
                }
                Err(Trouble::SessionGone)
            }
            done => Ok(done?),
        }
    }

    /// Ends it: no session is leased any more, and the one that it has is released, whatever runs in it.
    pub async fn release(&self) {
        self.over.cancel();
        let released = async {
            if let Some(lease) = self.lease.lock().await.take()
                && let Err(error) = lease.session().destroy().await
            {
                tracing::warn!(%error, "a session was not released; the backend reclaims it");
            }
        };
        if tokio::time::timeout(RELEASE_WAIT_MAX, released).await.is_err() {
            tracing::warn!("a session was not released in time; the backend reclaims it");
        }
    }
}

/// The interrupts of a cancelled call.
#[derive(Debug, Default)]
struct Cancel {
    /// Interrupts that met the call.
    hits: u32,
    tries: u32,
    next: Option<Instant>,
}

impl Cancel {
    /// Resolves when the call must be interrupted, and never where it must not.
    async fn due(&self, cancelled: &CancellationToken) {
        match self.next {
            None => cancelled.cancelled().await,
            Some(next) if self.hits < 2 && self.tries < CANCEL_TRIES_MAX => sleep_until(next).await,
            Some(_) => std::future::pending().await,
        }
    }

    async fn interrupt(&mut self, session: &Session) {
        self.tries += 1;
        let pause = match session.interrupt().await {
            Ok(true) => {
                self.hits += 1;
                CANCEL_GRACE
            }
            // It is on its way to the backend still, or on its way back.
            Ok(false) => CANCEL_PAUSE,
            Err(error) => {
                tracing::warn!(%error, "a cancelled call could not be interrupted; it ends by its own time");
                self.tries = CANCEL_TRIES_MAX;
                CANCEL_PAUSE
            }
        };
        self.next = Some(Instant::now() + pause);
    }
}

#[cfg(test)]
mod tests {
    use ringfence_client::Client;
    use ringfence_fake::{Fake, Rules};

    use super::*;

    #[tokio::test]
    async fn what_is_late_to_hear_that_a_session_is_gone_lets_go_of_no_other() {
        let fake = Fake::start(Rules::default()).await.unwrap();
        let conversation = Conversation::new(Backend::ready(Client::new(fake.url()).unwrap(), None));
        let gone = conversation.session().await.unwrap();
        gone.destroy().await.unwrap();
        for _ in 0..2 {
            let failed = gone.list("").await;
            assert!(matches!(conversation.settled(&gone, failed).await, Err(Trouble::SessionGone)));
            assert_ne!(conversation.session().await.unwrap().id(), gone.id());
        }
        assert_eq!(fake.sessions(), 1, "a second one was leased, and the first of them left behind");
        conversation.release().await;
        assert_eq!(fake.sessions(), 0);
    }
}
