//! What the gate itself answers. The one place that picks statuses.

use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use ringfence_grant::Refusal;

use crate::body::{Body, BodyError};

/// Why an operation gets no answer of a backend.
#[derive(Debug)]
pub(crate) enum Denial {
    /// No grant, or credentials of another scheme.
    NoGrant,
    /// More than one credential, or one that is no `Bearer` with one token.
    BadCredential,
    /// A grant that is not to be acted on.
    Grant(Refusal),
    /// The gate has no key set, or one too old to trust.
    NoKeys,
    /// Nothing is served under this path.
    NoRoute,
    /// Something is, by these methods.
    WrongMethod(&'static str),
    /// A field twice, or another ambiguity.
    Ambiguous(&'static str),
    /// The client's body.
    Body(BodyError),
    /// The client's body says what it must not.
    Malformed(&'static str),
    /// The grant does not allow the tool kind.
    Tool,
    /// The id is none, or none of this workspace.
    UnknownSession,
    /// As many sessions of the workspace as its grant allows.
    SessionsMax,
    /// No backend takes a lease; what the last one said.
    NoBackend(Option<u32>),
    /// The session's backend cannot be reached, and nothing was sent.
    Unreachable,
    /// As many operations as the gate carries.
    Busy,
    /// Usage cannot be recorded.
    Unmetered,
    /// A backend's answer was none, broke off, or came too late: the outcome is not known.
    Broken(&'static str),
    /// A backend answered what the contract does not have.
    Lie(&'static str),
    /// The gate's own failure.
    House(&'static str),
}

impl Denial {
    /// Its status.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Denial::NoGrant | Denial::Grant(_) => StatusCode::UNAUTHORIZED,
            Denial::BadCredential | Denial::Ambiguous(_) | Denial::Tool => StatusCode::BAD_REQUEST,
            Denial::NoRoute | Denial::UnknownSession => StatusCode::NOT_FOUND,
            Denial::WrongMethod(_) => StatusCode::METHOD_NOT_ALLOWED,
            Denial::Body(BodyError::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Denial::Body(BodyError::Slow) => StatusCode::REQUEST_TIMEOUT,
            Denial::Body(BodyError::Broken(_)) => StatusCode::BAD_REQUEST,
            Denial::Malformed(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Denial::NoKeys
            | Denial::SessionsMax
            | Denial::NoBackend(_)
            | Denial::Unreachable
            | Denial::Busy
            | Denial::Body(BodyError::NoRoom)
            | Denial::Unmetered => StatusCode::SERVICE_UNAVAILABLE,
            Denial::Broken(_) | Denial::Lie(_) => StatusCode::BAD_GATEWAY,
            Denial::House(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// What it says, to the client and to the log alike: it holds no secret.
    pub(crate) fn text(&self) -> String {
        match self {
            Denial::NoGrant => "a grant is needed: `Authorization: Bearer <grant>`".to_owned(),
            Denial::BadCredential => "exactly one credential is taken: `Authorization: Bearer <grant>`".to_owned(),
            Denial::Grant(refusal) => refusal.to_string(),
            Denial::NoKeys => "grants cannot be checked now".to_owned(),
            Denial::NoRoute => "nothing is served here".to_owned(),
            Denial::WrongMethod(allowed) => format!("this path takes {allowed}"),
            Denial::Ambiguous(what) | Denial::Malformed(what) | Denial::House(what) => (*what).to_owned(),
            Denial::Body(error) => error.to_string(),
            Denial::Tool => "unknown tool kind: the grant does not name it".to_owned(),
            Denial::UnknownSession => "no such session: it never existed, was released, or has expired".to_owned(),
            Denial::SessionsMax => "the workspace has as many sessions as its grant allows".to_owned(),
            Denial::NoBackend(_) => "no backend takes a session now".to_owned(),
            Denial::Unreachable => "the session's backend cannot be reached now; nothing was run".to_owned(),
            Denial::Busy => "the gate carries as many operations as it may".to_owned(),
            Denial::Unmetered => "usage cannot be recorded now".to_owned(),
            Denial::Broken(what) => format!("the backend {what}: the outcome is not known"),
            Denial::Lie(what) => format!("the backend's answer does not follow the contract: {what}"),
        }
    }

    /// Delay-seconds, with every 503.
    fn retry_after(&self) -> Option<u32> {
        match self {
            Denial::NoBackend(told) => Some(told.unwrap_or(5)),
            Denial::NoKeys | Denial::Unreachable | Denial::Unmetered | Denial::SessionsMax => Some(5),
            Denial::Busy | Denial::Body(BodyError::NoRoom) => Some(1),
            _ => None,
        }
    }

    /// RFC 6750, 3: a challenge without an error where no credential came.
    fn challenge(&self) -> Option<String> {
        const REALM: &str = "Bearer realm=\"ringfence\"";
        match self {
            Denial::NoGrant => Some(REALM.to_owned()),
            Denial::BadCredential => Some(format!("{REALM}, error=\"invalid_request\"")),
            Denial::Grant(_) => Some(format!(
                "{REALM}, error=\"invalid_token\", error_description=\"{}\"",
                // The set of RFC 6750 has no quote and no backslash; some texts name a claim in back-quotes, which it has.
                self.text().replace(['"', '\\'], "'")
            )),
            _ => None,
        }
    }

    /// The answer.
    pub(crate) fn answer(&self) -> Response<Body> {
        let mut answer = json(self.status(), detail(&self.text()));
        let headers = answer.headers_mut();
        if let Some(seconds) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(value) = self.challenge().and_then(|text| HeaderValue::from_str(&text).ok()) {
            headers.insert(header::WWW_AUTHENTICATE, value);
        }
        if let Denial::WrongMethod(allowed) = self {
            headers.insert(header::ALLOW, HeaderValue::from_static(allowed));
        }
        answer
    }
}

/// An error body.
pub(crate) fn detail(text: &str) -> String {
    format!("{{\"detail\":{}}}", crate::members::quoted(text))
}

/// An answer of JSON.
pub(crate) fn json(status: StatusCode, text: String) -> Response<Body> {
    let mut answer = Response::new(Body::from(text));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
