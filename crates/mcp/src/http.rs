//! Conversations over streamable HTTP.
//!
//! Connections are the accept loop's (their number, how large a head is and how long it may take), the credential is ours; the protocol on them is the SDK's,
//! with its checks of `Host` and `Origin` always on.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{AUTHORIZATION, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use ringfence_listen::Bounds;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use crate::backend::Backend;
use crate::conversation::Conversation;
use crate::limits::{
    BODY_WAIT_MAX, CONNECTIONS_MAX, CONVERSATION_IDLE_MAX, CONVERSATIONS_MAX, DRAIN_WAIT_MAX, HEAD_BYTES_MAX,
    HEAD_WAIT_MAX, HEADERS_MAX, MESSAGE_BYTES_MAX, STALL_MAX,
};
use crate::service::Service;

/// The path that the protocol is served under.
const PATH: &str = "/mcp";
const SESSION_ID: &str = "mcp-session-id";

/// How the door is.
#[derive(Debug, Clone, Default)]
pub struct DoorOptions {
    /// Hosts that requests may name besides those of loopback, with or without a port.
    pub hosts: Vec<String>,
    /// Origins that web pages may have; none where it is empty.
    pub origins: Vec<String>,
    /// The bearer token that is asked for.
    pub token: Option<String>,
}

/// Why the door cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// The address cannot be had.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Other machines can reach it, and nothing keeps them out.
    #[error("{address} can be reached from other machines: give a token that callers must know")]
    Open {
        /// The address.
        address: SocketAddr,
    },
}

/// A bound door.
pub struct Door {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    service: StreamableHttpService<Service, LocalSessionManager>,
    places: Arc<Semaphore>,
    conversations: Arc<Conversations>,
    token: Option<String>,
    stop: CancellationToken,
}

/// Those that may still hold a session.
#[derive(Default)]
struct Conversations(Mutex<Vec<Weak<Conversation>>>);

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Door {
    /// Binds it.
    ///
    /// # Errors
    /// As [`DoorError`] has it.
    pub async fn open(backend: Backend, address: SocketAddr, options: DoorOptions) -> Result<Self, DoorError> {
        if !address.ip().is_loopback() && options.token.is_none() {
            return Err(DoorError::Open { address });
        }
        let listen = |source| DoorError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let stop = CancellationToken::new();
        let places = Arc::new(Semaphore::new(CONVERSATIONS_MAX));
        let conversations = Arc::new(Conversations::default());
        let factory = factory(backend, &places, &conversations);
        let mut manager = LocalSessionManager::default();
        manager.session_config.keep_alive = Some(CONVERSATION_IDLE_MAX);
        let service = StreamableHttpService::new(factory, Arc::new(manager), config(&options, &stop));
        let shared = Shared { service, places, conversations, token: options.token, stop };
        Ok(Door { listener, address, shared: Arc::new(shared) })
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    /// Serves until `stop` ends; then every conversation is over, and its session released.
    ///
    /// # Errors
    /// When the listening socket cannot be used.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let bounds = Bounds {
            connections_max: CONNECTIONS_MAX,
            head_bytes_max: HEAD_BYTES_MAX,
            headers_max: HEADERS_MAX,
            head_wait: HEAD_WAIT_MAX,
            stall_max: STALL_MAX,
        };
        let shared = Arc::clone(&self.shared);
        let service = service_fn(move |request: Request<Incoming>| {
            let shared = Arc::clone(&shared);
            async move { Ok::<_, Infallible>(answer(&shared, request).await) }
        });
        let open = ringfence_listen::serve(self.listener, None, bounds, service, stop).await?;
        self.shared.stop.cancel();
        self.shared.conversations.release().await;
        // Nothing runs any more that has an end of its own.
        let _in_time = tokio::time::timeout(DRAIN_WAIT_MAX, open.drain()).await;
        Ok(())
    }
}

/// Makes the handler of each conversation, as long as there is a place for one more.
fn factory(
    backend: Backend,
    places: &Arc<Semaphore>,
    conversations: &Arc<Conversations>,
) -> impl Fn() -> Result<Service, io::Error> + Send + Sync + 'static {
    let (places, conversations) = (Arc::clone(places), Arc::clone(conversations));
    move || {
        let place = Arc::clone(&places).try_acquire_owned().map_err(io::Error::other)?;
        let conversation = Arc::new(Conversation::new(backend.clone()));
        conversations.remember(&conversation);
        Ok(Service::with_handshake(conversation, place))
    }
}

fn config(options: &DoorOptions, stop: &CancellationToken) -> StreamableHttpServerConfig {
    let config = StreamableHttpServerConfig::default();
    let hosts: Vec<String> = config.allowed_hosts.iter().chain(&options.hosts).cloned().collect();
    config
        .with_allowed_hosts(hosts)
        .with_allowed_origins(options.origins.iter().cloned())
        .enforce_origin_validation()
        .with_max_request_body_bytes(MESSAGE_BYTES_MAX)
        .with_cancellation_token(stop.clone())
}

impl Conversations {
    fn remember(&self, conversation: &Arc<Conversation>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|conversation| conversation.strong_count() > 0);
        known.push(Arc::downgrade(conversation));
    }

    async fn release(&self) {
        let known = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut releasing = JoinSet::new();
        for conversation in known.iter().filter_map(Weak::upgrade) {
            releasing.spawn(async move { conversation.release().await });
        }
        while releasing.join_next().await.is_some() {}
    }
}

async fn answer(shared: &Shared, request: Request<Incoming>) -> Response<BoxBody<Bytes, Infallible>> {
    if let Some(token) = &shared.token
        && !admits(token, request.headers().get(AUTHORIZATION))
    {
        let mut refused = plain(StatusCode::UNAUTHORIZED, "a bearer token is wanted");
        refused.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return refused;
    }
    if request.uri().path() != PATH {
        return plain(StatusCode::NOT_FOUND, "the protocol is served under /mcp");
    }
    let begins = request.method() == Method::POST && !request.headers().contains_key(SESSION_ID);
    if begins && shared.places.available_permits() == 0 {
        let mut refused = plain(StatusCode::SERVICE_UNAVAILABLE, "there is no place for another conversation");
        refused.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
        return refused;
    }
    shared.service.handle(request.map(Timely::new)).await
}

/// A body that must have come within [`BODY_WAIT_MAX`].
struct Timely<B> {
    body: B,
    end: Pin<Box<Sleep>>,
}

impl<B> Timely<B> {
    fn new(body: B) -> Self {
        Timely { body, end: Box::pin(tokio::time::sleep(BODY_WAIT_MAX)) }
    }
}

impl<B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin> Body for Timely<B> {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        this.end.as_mut().poll(cx).map(|()| Some(Err("the body took too long to come".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn admits(token: &str, header: Option<&HeaderValue>) -> bool {
    let given = header.map(HeaderValue::as_bytes).and_then(|given| given.split_at_checked(b"Bearer ".len()));
    given.is_some_and(|(scheme, given)| {
        scheme.eq_ignore_ascii_case(b"Bearer ") && bool::from(given.ct_eq(token.as_bytes()))
    })
}

fn plain(status: StatusCode, text: &'static str) -> Response<BoxBody<Bytes, Infallible>> {
    let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body that never goes on.
    struct Stalled;

    impl Body for Stalled {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_ends_in_an_error() {
        let error = Timely::new(Stalled).collect().await.unwrap_err();
        assert!(error.to_string().contains("too long"), "{error}");
        let whole = Timely::new(Full::new(Bytes::from_static(b"whole"))).collect().await.unwrap();
        assert_eq!(whole.to_bytes(), "whole");
    }

    #[test]
    fn a_token_is_admitted_and_nothing_else() {
        let with = |text| admits("secret", Some(&HeaderValue::from_static(text)));
        assert!(with("Bearer secret") && with("bearer secret"));
        for wrong in ["secret", "Bearer", "Bearer ", "Bearer secre", "Bearer secrett", "Basic secret", ""] {
            assert!(!with(wrong), "{wrong}");
        }
        assert!(!admits("secret", None));
    }
}
