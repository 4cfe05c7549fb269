//! The backend of all conversations: there already, or still starting.

use ringfence_client::Client;
use tokio::sync::watch;

use crate::limits::BACKEND_WAIT_MAX;

/// Where conversations lease their sessions. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Backend {
    state: watch::Receiver<State>,
    /// The image that sessions ask for.
    image: Option<String>,
}

/// Says what becomes of a backend that is starting. Dropped without a word, the start has failed.
#[derive(Debug)]
pub struct Starting(watch::Sender<State>);

#[derive(Debug, Clone)]
enum State {
    Starting,
    Ready(Box<Client>),
    Failed(String),
}

impl Backend {
    /// One that is there.
    #[must_use]
    pub fn ready(client: Client, image: Option<String>) -> Self {
        let (starting, backend) = Backend::starting(image);
        starting.ready(client);
        backend
    }

    /// One that is still starting.
    #[must_use]
    pub fn starting(image: Option<String>) -> (Starting, Self) {
        let (say, state) = watch::channel(State::Starting);
        (Starting(say), Backend { state, image })
    }

    /// The image that sessions ask for.
    pub(crate) fn image(&self) -> Option<&str> {
        self.image.as_deref()
    }

    /// A client of it, once it is there; else why it is not.
    pub(crate) async fn client(&self) -> Result<Client, String> {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| !matches!(state, State::Starting));
        match tokio::time::timeout(BACKEND_WAIT_MAX, settled).await {
            Ok(Ok(state)) => match &*state {
                State::Ready(client) => Ok(Client::clone(client)),
                State::Failed(why) => Err(why.clone()),
                State::Starting => Err("the backend is still starting".to_owned()),
            },
            Ok(Err(_)) => Err("the backend did not start".to_owned()),
            Err(_) => Err("the backend is still starting: try again later".to_owned()),
        }
    }
}

impl Starting {
    /// It is there.
    pub fn ready(self, client: Client) {
        self.0.send_replace(State::Ready(Box::new(client)));
    }

    /// It could not be started.
    pub fn failed(self, why: impl Into<String>) {
        self.0.send_replace(State::Failed(why.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_hears_what_became_of_it() {
        let (starting, backend) = Backend::starting(None);
        let waits = tokio::spawn({
            let backend = backend.clone();
            async move { backend.client().await }
        });
        starting.failed("no image");
        assert_eq!(waits.await.unwrap().unwrap_err(), "no image");
        let (starting, backend) = Backend::starting(None);
        drop(starting);
        assert_eq!(backend.client().await.unwrap_err(), "the backend did not start");
        let client = Client::new("http://127.0.0.1:1").unwrap();
        assert!(Backend::ready(client, None).client().await.is_ok());
    }
}
