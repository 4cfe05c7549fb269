//! The client: leases sessions, attaches to held ones, and carries every JSON operation.

use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method, Response};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::answers::SessionList;
use crate::limits::{
    ATTEMPTS_MAX, CAPACITY_PAUSE, ERROR_BYTES_MAX, JSON_BYTES_MAX, PATIENCE_DEFAULT, RETRY_PAUSE, TIMEOUT_DEFAULT,
};
use crate::raw::Raw;
use crate::refusal::refusal;
use crate::tls::Roots;
use crate::transport::{Bounded, Transport, read, within};
use crate::{
    BaseUrl, BearerToken, ClientError, Health, Lease, LeaseOptions, Session, SessionHandle, TransportError, body,
};

/// A client of one backend. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Client {
    pub(crate) transport: Transport,
    pub(crate) token: Option<BearerToken>,
    pub(crate) timeout: Duration,
    pub(crate) patience: Duration,
}

/// Sets up a [`Client`].
#[derive(Debug)]
pub struct ClientBuilder {
    base: BaseUrl,
    token: Option<BearerToken>,
    timeout: Duration,
    patience: Duration,
    roots: Roots,
}

impl ClientBuilder {
    /// Sends a bearer token with every operation.
    #[must_use]
    pub fn token(mut self, token: BearerToken) -> Self {
        self.token = Some(token);
        self
    }

    /// Believes servers whose certificates lead to one of these (PEM), besides those of the public authorities.
    ///
    /// # Errors
    /// [`ClientError::Certificates`] when the text is no PEM, or holds no certificate.
    pub fn root_certificates(mut self, pem: &[u8]) -> Result<Self, ClientError> {
        self.roots.add(pem)?;
        Ok(self)
    }

    /// The budget of calls that name none (default [`TIMEOUT_DEFAULT`]).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long an operation other than Execute and the streamed transfers may take (default [`PATIENCE_DEFAULT`]).
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The client. No connection is made yet.
    #[must_use]
    pub fn build(self) -> Client {
        let ClientBuilder { base, token, timeout, patience, roots } = self;
        Client { transport: Transport::new(base, roots), token, timeout, patience }
    }

    /// A pool that sends whatever it is given, in place of the client; its callers say how long each answer may take.
    #[must_use]
    pub fn raw(self) -> Raw {
        Raw::new(Transport::new(self.base, self.roots), self.token)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("base", &self.transport.base().to_string()).finish_non_exhaustive()
    }
}

impl Client {
    /// A client with the defaults and without a token.
    ///
    /// # Errors
    /// When the base URL cannot be used.
    pub fn new(base_url: &str) -> Result<Self, ClientError> {
        Ok(Client::builder(base_url)?.build())
    }

    /// A client that is set up step by step.
    ///
    /// # Errors
    /// When the base URL cannot be used.
    pub fn builder(base_url: &str) -> Result<ClientBuilder, ClientError> {
        let base = BaseUrl::parse(base_url)?;
        Ok(ClientBuilder {
            base,
            token: None,
            timeout: TIMEOUT_DEFAULT,
            patience: PATIENCE_DEFAULT,
            roots: Roots::default(),
        })
    }

    /// CreateSession. The lease releases its session when it is dropped; [`Lease::release`] does so and waits.
    ///
    /// # Errors
    /// [`ClientError::Unavailable`] at capacity; otherwise as every operation.
    pub async fn lease(&self, options: &LeaseOptions) -> Result<Lease, ClientError> {
        const OPERATION: &str = "CreateSession";
        let until = Instant::now() + options.wait;
        loop {
            let asked = Request::json(OPERATION, "/sessions".to_owned(), &options.body(), self.patience);
            match self.answer::<SessionHandle>(asked).await {
                Err(ClientError::Unavailable { retry_after, operation, detail }) => {
                    let pause = retry_after.unwrap_or(CAPACITY_PAUSE).max(RETRY_PAUSE);
                    if Instant::now() + pause > until {
                        return Err(ClientError::Unavailable { operation, retry_after, detail });
                    }
                    sleep(pause).await;
                }
                handle => return Ok(Lease::new(self.clone(), handle?)),
            }
        }
    }

    /// A session that is held elsewhere, by its id. Nothing is sent, and nothing is released on drop.
    #[must_use]
    pub fn attach(&self, session_id: impl Into<String>) -> Session {
        Session::new(self.clone(), session_id.into())
    }

    /// The sessions of the backend, the oldest first (an addition of ringfence; a server lists them only where it asks
    /// for a token).
    ///
    /// # Errors
    /// [`ClientError::Refused`] with 403 where the server has no token; otherwise as every operation.
    pub async fn sessions(&self) -> Result<Vec<SessionHandle>, ClientError> {
        let asked = self.plain("session list", Method::GET, "/sessions".to_owned());
        self.answer::<SessionList>(asked).await.map(|list| list.sessions)
    }

    /// What `/health` says. Outside the contract: a backend may not have it.
    ///
    /// # Errors
    /// As every operation.
    pub async fn health(&self) -> Result<Health, ClientError> {
        self.answer(self.plain("health", Method::GET, "/health".to_owned())).await
    }

    /// A request without a body.
    pub(crate) fn plain(&self, operation: &'static str, method: Method, path: String) -> Request {
        let safe = Safe::of(&method);
        Request {
            operation,
            method,
            path,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            patience: self.patience,
            safe,
        }
    }

    /// Sends a request and reads a JSON answer.
    pub(crate) async fn answer<T: DeserializeOwned>(&self, asked: Request) -> Result<T, ClientError> {
        let operation = asked.operation;
        let body = self.whole(asked).await?;
        serde_json::from_slice(&body).map_err(|error| ClientError::Answer { operation, reason: error.to_string() })
    }

    /// Sends a request, checks its status, and reads the whole answer.
    pub(crate) async fn whole(&self, asked: Request) -> Result<Bytes, ClientError> {
        let operation = asked.operation;
        let patience = asked.patience;
        let transport = |source| ClientError::Transport { operation, source };
        let answered = within(patience, async {
            let (head, body) = self.attempts(&asked).await?.into_parts();
            let bytes_max = if head.status.is_success() { JSON_BYTES_MAX } else { ERROR_BYTES_MAX };
            Ok((head, read(body, bytes_max).await?))
        });
        let (head, body) = answered.await.map_err(transport)?;
        if !head.status.is_success() {
            return Err(refusal(operation, head.status.as_u16(), &head.headers, &body.bytes));
        }
        match body {
            Bounded { cut: true, .. } => Err(transport(TransportError::TooLarge { bytes_max: JSON_BYTES_MAX })),
            Bounded { bytes, .. } => Ok(bytes),
        }
    }

    /// Sends a request and waits for the head of its answer, trying again where that is safe.
    pub(crate) async fn attempts(&self, asked: &Request) -> Result<Response<Incoming>, TransportError> {
        let mut pause = RETRY_PAUSE;
        for _ in 1..ATTEMPTS_MAX {
            match self.attempt(asked).await {
                Err(error) if asked.safe.to_retry(&error) => sleep(pause).await,
                outcome => return outcome,
            }
            pause *= 2;
        }
        self.attempt(asked).await
    }

    async fn attempt(&self, asked: &Request) -> Result<Response<Incoming>, TransportError> {
        let (method, headers) = (asked.method.clone(), asked.headers.clone());
        let body = body::whole(asked.body.clone());
        let request = self.transport.request(method, &asked.path, headers, self.token.as_ref(), body)?;
        self.transport.send(request).await
    }
}

/// One operation's request, kept so that it can be sent again.
pub(crate) struct Request {
    pub(crate) operation: &'static str,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) patience: Duration,
    pub(crate) safe: Safe,
}

impl Request {
    /// A POST with a JSON body. It is never sent twice: its outcome may be unknown.
    pub(crate) fn json(operation: &'static str, path: String, body: &Value, patience: Duration) -> Self {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let body = Bytes::from(body.to_string());
        Request { operation, method: Method::POST, path, headers, body, patience, safe: Safe::UntilSent }
    }
}

/// When an operation may be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Safe {
    /// Only while nothing of it was sent.
    UntilSent,
    /// Also after the connection broke: doing it twice is doing it once.
    Always,
}

impl Safe {
    fn of(method: &Method) -> Self {
        if *method == Method::GET || *method == Method::DELETE { Safe::Always } else { Safe::UntilSent }
    }

    fn to_retry(self, error: &TransportError) -> bool {
        match error {
            TransportError::Connect { .. } => true,
            TransportError::Broken { .. } => self == Safe::Always,
            _ => false,
        }
    }
}
