//! For tests only: a backend of contract version 1 in memory, on a port of its own, that runs no code.
//!
//! Its "programs" are a few statements that it knows by heart ([`programs`](self)); what it does not know fails as a
//! program fails. Whoever tests a client, the checker or the command line starts a [`Fake`], and breaks it in one
//! place with [`Rules`].
//!
//! May know: the contract. Never knows: any room of the product, so that nothing is tested against itself.
//!
//! **Invariants.** With [`Rules::default`] it follows the contract. It keeps everything in memory, and ends with the
//! [`Fake`].

mod editor;
mod http;
mod multipart;
mod programs;
mod routes;
mod shell;
mod state;
mod workspace;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub use http::{Asked, Reply};
use state::State;

/// Changes an answer before it is sent.
pub type Twist = Arc<dyn Fn(&Asked, Reply) -> Reply + Send + Sync>;

/// How a fake behaves.
#[derive(Clone, Default)]
pub struct Rules {
    /// Refuses what does not carry this bearer token.
    pub token: Option<String>,
    /// Serves no file operations.
    pub without_files: bool,
    /// The most sessions at once; 0 is no bound.
    pub sessions_max: usize,
    /// Its own faults.
    pub quirks: Quirks,
    /// What it does to its answers.
    pub twist: Option<Twist>,
}

/// Faults that no change of an answer can play.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quirks {
    /// GetFile serves what is outside of the workspace, but follows no link there.
    pub reads_outside: bool,
    /// GetFile follows links out of the workspace, and refuses plain ways out.
    pub reads_through_links: bool,
    /// PutFile writes outside of the workspace, but follows no link there.
    pub writes_outside: bool,
    /// PutFile says 403 and writes outside of the workspace all the same.
    pub writes_outside_and_denies: bool,
    /// PutFile follows links out of the workspace.
    pub writes_through_links: bool,
    /// ListFiles lists what is outside of the workspace.
    pub lists_outside: bool,
    /// Variables are lost between two calls.
    pub forgets_variables: bool,
    /// What a program wrote is lost at the next one.
    pub forgets_files: bool,
    /// Uploads are cut at so many bytes (0: they are not).
    pub truncates_at: usize,
    /// A released session lives on.
    pub survives_release: bool,
    /// All sessions share one interpreter.
    pub shares_variables: bool,
    /// All sessions share one workspace.
    pub shares_files: bool,
    /// Session ids are numbers.
    pub numeric_ids: bool,
    /// A second lease gets the session of the first.
    pub repeats_ids: bool,
    /// Uploads are stored where no program sees them.
    pub hides_uploads: bool,
}

/// A running fake. Dropping it ends it.
pub struct Fake {
    url: String,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Fake {
    /// Starts one on a free port of loopback.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(rules: Rules) -> io::Result<Self> {
        let state = Arc::new(Mutex::new(State::new(rules)));
        let shared = Arc::clone(&state);
        let (url, task) = listen(move |stream| http::serve(stream, Arc::clone(&shared))).await?;
        Ok(Fake { url, state, task })
    }

    /// Where it is, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// How many sessions it holds.
    #[must_use]
    pub fn sessions(&self) -> usize {
        locked(&self.state).sessions()
    }

    /// `METHOD target` of every request so far.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        locked(&self.state).requests.clone()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A server that does with each connection what it is told, HTTP or not.
pub struct RawServer {
    url: String,
    task: JoinHandle<()>,
}

impl RawServer {
    /// Starts one on a free port of loopback.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start<F, D>(each: F) -> io::Result<Self>
    where
        F: Fn(TcpStream) -> D + Send + 'static,
        D: Future<Output = io::Result<()>> + Send + 'static,
    {
        let (url, task) = listen(each).await?;
        Ok(RawServer { url, task })
    }

    /// Where it is, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen<F, D>(each: F) -> io::Result<(String, JoinHandle<()>)>
where
    F: Fn(TcpStream) -> D + Send + 'static,
    D: Future<Output = io::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let task = tokio::spawn(async move {
        // Ends the connections with the server: dropping the set aborts what is in it.
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(each(stream));
            while connections.try_join_next().is_some() {}
        }
    });
    Ok((url, task))
}

pub(crate) fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
