//! Requests of any shape and answers as they come, for whoever looks at a backend from outside: no status is an
//! error here, nothing is tried twice, and nothing is read past its bound.

use std::time::Duration;

use bytes::Bytes;
use hyper::{HeaderMap, Method};

use crate::transport::{Transport, read, within};
use crate::{BaseUrl, BearerToken, TransportError, body};

/// A connection pool that sends whatever it is given.
#[derive(Clone)]
pub struct Raw {
    transport: Transport,
    token: Option<BearerToken>,
}

/// One request.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The method.
    pub method: Method,
    /// Path and query, escaped, from the base URL on.
    pub path_and_query: String,
    /// Headers besides the ones that HTTP itself needs.
    pub headers: HeaderMap,
    /// The body; empty sends none.
    pub body: Bytes,
    /// Whether the token, where there is one, goes along.
    pub with_token: bool,
}

/// One answer.
#[derive(Debug, Clone)]
pub struct Answered {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body up to the bound.
    pub body: Bytes,
    /// The body went on past the bound.
    pub cut: bool,
}

impl Raw {
    pub(crate) fn new(transport: Transport, token: Option<BearerToken>) -> Self {
        Raw { transport, token }
    }

    /// Where the backend is.
    #[must_use]
    pub fn base(&self) -> &BaseUrl {
        self.transport.base()
    }

    /// Whether there is a token.
    #[must_use]
    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Sends one request, once, and reads at most `bytes_max` bytes of its answer, all of it within `patience`.
    ///
    /// # Errors
    /// When no whole answer came.
    pub async fn send(&self, asked: &Asked, patience: Duration, bytes_max: usize) -> Result<Answered, TransportError> {
        let token = self.token.as_ref().filter(|_| asked.with_token);
        let body = body::whole(asked.body.clone());
        let headers = asked.headers.clone();
        let request = self.transport.request(asked.method.clone(), &asked.path_and_query, headers, token, body)?;
        within(patience, async {
            let (head, body) = self.transport.send(request).await?.into_parts();
            let body = read(body, bytes_max).await?;
            Ok(Answered { status: head.status.as_u16(), headers: head.headers, body: body.bytes, cut: body.cut })
        })
        .await
    }
}
