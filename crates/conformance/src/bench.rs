//! What checks work with: requests, leases, and the books about both.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method};
use ringfence_client::raw::{Asked, Raw};
use ringfence_client::{TransportError, path_segment};
use serde_json::{Value, json};

use crate::check::{Finding, Stop};
use crate::exchange::{Exchange, unanswered};
use crate::held::Held;
use crate::limits::{ANSWER_BYTES_MAX, HEADROOM, PATIENCE, UNANSWERED_MAX};

/// The backend under check.
pub(crate) struct Bench {
    raw: Raw,
    pub(crate) headroom: Duration,
    pub(crate) patience: Duration,
    /// Requests in a row that got no answer.
    unanswered: AtomicU32,
    /// Sessions that are leased and not released yet.
    open: Mutex<Vec<String>>,
}

impl Bench {
    pub(crate) fn new(raw: Raw) -> Self {
        let (unanswered, open) = (AtomicU32::new(0), Mutex::new(Vec::new()));
        Bench { raw, headroom: HEADROOM, patience: PATIENCE, unanswered, open }
    }

    pub(crate) fn has_token(&self) -> bool {
        self.raw.has_token()
    }

    pub(crate) fn authority(&self) -> &str {
        self.raw.base().authority()
    }

    /// A text that no other run and no other check uses.
    pub(crate) fn mark() -> String {
        let mut bytes = [0; 6];
        // Without random bytes marks are the same everywhere, which only makes the checks weaker.
        let _ = getrandom::fill(&mut bytes);
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("mark{digits}")
    }

    /// Sends a request. A backend that has stopped answering is not asked any more.
    pub(crate) async fn send(&self, asked: &Asked, patience: Duration) -> Result<Exchange, Stop> {
        if self.unanswered.load(Ordering::Relaxed) >= UNANSWERED_MAX {
            return Err(Stop::Unjudged(Finding {
                sent: "nothing".to_owned(),
                came: format!("no answer to the last {UNANSWERED_MAX} requests"),
                wanted: "a backend that answers".to_owned(),
            }));
        }
        match self.raw.send(asked, patience, ANSWER_BYTES_MAX).await {
            Ok(answered) => {
                self.unanswered.store(0, Ordering::Relaxed);
                Ok(Exchange::new(asked, answered))
            }
            Err(error) => {
                self.unanswered.fetch_add(1, Ordering::Relaxed);
                Err(Stop::Fail(unanswered(asked, &error)))
            }
        }
    }

    /// One lease, with what went wrong on the way if that did.
    pub(crate) async fn first_contact(&self) -> Result<Exchange, TransportError> {
        let asked = asked(Method::POST, "/sessions".to_owned(), Some(JSON), "{}".into());
        let answered = self.raw.send(&asked, self.patience, ANSWER_BYTES_MAX).await?;
        Ok(self.note(Exchange::new(&asked, answered)))
    }

    /// A request without a body.
    pub(crate) async fn plain(&self, method: Method, path_and_query: String) -> Result<Exchange, Stop> {
        self.send(&asked(method, path_and_query, None, Bytes::new()), self.patience).await
    }

    /// CreateSession with a body as given; `None` sends none. The session, if one came, is released in the end.
    pub(crate) async fn lease_with(&self, hints: Option<Value>) -> Result<Exchange, Stop> {
        let asked = match hints {
            Some(hints) => asked(Method::POST, "/sessions".to_owned(), Some(JSON), hints.to_string().into()),
            None => asked(Method::POST, "/sessions".to_owned(), None, Bytes::new()),
        };
        Ok(self.note(self.send(&asked, self.patience).await?))
    }

    /// CreateSession without the credential.
    pub(crate) async fn lease_without_token(&self) -> Result<Exchange, Stop> {
        let mut asked = asked(Method::POST, "/sessions".to_owned(), Some(JSON), "{}".into());
        asked.with_token = false;
        Ok(self.note(self.send(&asked, self.patience).await?))
    }

    /// Writes a leased session into the books.
    fn note(&self, exchange: Exchange) -> Exchange {
        if let Some(id) = session_id(&exchange) {
            self.open.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        }
        exchange
    }

    /// A session to work with, read leniently: whatever else is wrong with the handle is for other checks.
    pub(crate) async fn lease(&self) -> Result<Held<'_>, Stop> {
        let exchange = self.lease_with(Some(json!({}))).await?;
        self.held(&exchange)
    }

    /// The session of a CreateSession's answer.
    pub(crate) fn held(&self, exchange: &Exchange) -> Result<Held<'_>, Stop> {
        if exchange.status == 503 {
            return Err(Stop::Skip("the backend has no room for the sessions that this takes (503)".to_owned()));
        }
        match session_id(exchange) {
            Some(id) => Ok(Held::new(self, id)),
            None => Err(Stop::Unjudged(exchange.finding("a leased session to work with"))),
        }
    }

    /// A session id that was never leased.
    pub(crate) fn unknown(&self) -> Held<'_> {
        Held::new(self, format!("never-leased-{}", Bench::mark()))
    }

    /// DestroySession.
    pub(crate) async fn release(&self, id: &str) -> Result<Exchange, Stop> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).retain(|open| open != id);
        self.plain(Method::DELETE, format!("/sessions/{}", path_segment(id))).await
    }

    /// Releases what the last check left open.
    pub(crate) async fn release_all(&self) {
        let open = std::mem::take(&mut *self.open.lock().unwrap_or_else(PoisonError::into_inner));
        for id in open {
            // A release that fails is the release checks' business.
            let _ = self.release(&id).await;
        }
    }
}

pub(crate) const JSON: &str = "application/json";

pub(crate) fn asked(method: Method, path_and_query: String, media: Option<&str>, body: Bytes) -> Asked {
    let media = media.and_then(|media| HeaderValue::from_str(media).ok());
    let headers = HeaderMap::from_iter(media.map(|media| (CONTENT_TYPE, media)));
    Asked { method, path_and_query, headers, body, with_token: true }
}

/// The id of a leased session; a number counts here, since that it is no string is another check's finding.
pub(crate) fn session_id(exchange: &Exchange) -> Option<String> {
    if !exchange.is_success() {
        return None;
    }
    match exchange.json.get("session_id")? {
        Value::String(id) if !id.is_empty() => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}
