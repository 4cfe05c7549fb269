//! Connections, made within their time: TCP, and TLS over it for `https`. Not by `hyper-rustls`, whose handshakes have no
//! end.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use ringfence_tls::{ClientStream, ClientTls};
use tokio::net::TcpStream;
use tower_service::Service;

use crate::limits::CONNECT_WAIT;

/// Makes connections to `http` URLs, and with authorities to `https` URLs.
#[derive(Clone)]
pub(super) struct Connector {
    plain: HttpConnector,
    tls: Option<ClientTls>,
}

impl Connector {
    pub(super) fn new(tls: Option<ClientTls>) -> Self {
        let mut plain = HttpConnector::new();
        plain.set_connect_timeout(Some(CONNECT_WAIT));
        plain.set_nodelay(true);
        plain.enforce_http(false);
        Connector { plain, tls }
    }
}

/// Why a connection was not made: nothing of a request was sent.
type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, Failure>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.plain.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let secure = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default().to_owned();
        let (connecting, tls) = (self.plain.call(uri), self.tls.clone());
        Box::pin(async move {
            let stream = connecting.await?;
            if !secure {
                return Ok(Stream::Plain(stream));
            }
            let tls = tls.ok_or("no authorities are set for TLS")?;
            let stream = tls.connect(&host, stream.into_inner()).await?;
            Ok(Stream::Tls(Box::new(TokioIo::new(stream))))
        })
    }
}

/// A connection.
pub(super) enum Stream {
    Plain(TokioIo<TcpStream>),
    Tls(Box<TokioIo<ClientStream<TcpStream>>>),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

macro_rules! of_either {
    ($self:ident, $stream:ident => $what:expr) => {
        match $self.get_mut() {
            Stream::Plain(stream) => {
                let $stream = Pin::new(stream);
                $what
            }
            Stream::Tls(stream) => {
                let $stream = Pin::new(&mut **stream);
                $what
            }
        }
    };
}

impl Read for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        of_either!(self, stream => stream.poll_read(cx, buffer))
    }
}

impl Write for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        of_either!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        of_either!(self, stream => stream.poll_write_vectored(cx, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_either!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_either!(self, stream => stream.poll_shutdown(cx))
    }
}
