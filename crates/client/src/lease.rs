//! A session that is released when its owner is done with it.

use std::ops::Deref;

use tokio::runtime::Handle;

use crate::limits::RELEASE_MAX;
use crate::{Client, ClientError, Session, SessionHandle};

/// A leased session. Dropping it releases the session in the background, as well as that can be done: on the
/// runtime that it was leased on, without waiting, for at most [`RELEASE_MAX`]. A runtime that ends first leaves the
/// session to the backend's own idle reclaim; [`release`](Lease::release) waits and tells.
#[derive(Debug)]
pub struct Lease {
    session: Session,
    handle: SessionHandle,
    runtime: Handle,
    held: bool,
}

impl Lease {
    /// Called on a runtime, since it follows an answered request.
    pub(crate) fn new(client: Client, handle: SessionHandle) -> Self {
        let session = Session::new(client, handle.session_id.clone());
        Lease { session, handle, runtime: Handle::current(), held: true }
    }

    /// What CreateSession answered.
    #[must_use]
    pub fn handle(&self) -> &SessionHandle {
        &self.handle
    }

    /// The session.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// DestroySession, and waits for it.
    ///
    /// # Errors
    /// As every operation; the session is then left to the backend's idle reclaim.
    pub async fn release(mut self) -> Result<(), ClientError> {
        self.held = false;
        self.session.destroy().await
    }

    /// Keeps the session alive past this lease; its idle timeout ends it.
    #[must_use]
    pub fn keep(mut self) -> Session {
        self.held = false;
        self.session.clone()
    }
}

impl Deref for Lease {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.held {
            let session = self.session.clone();
            // Spawning on a runtime that has ended is no error: the task is dropped.
            self.runtime.spawn(async move { tokio::time::timeout(RELEASE_MAX, session.destroy()).await });
        }
    }
}
