//! Where connections come from: a socket that somebody else bound.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// A bound, listening socket.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(std::net::TcpListener),
    /// A Unix stream socket.
    Unix(std::os::unix::net::UnixListener),
}

/// The same, known to the runtime.
pub(super) enum Acceptor {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Acceptor {
    pub(super) fn new(listener: Listener) -> io::Result<Self> {
        match listener {
            Listener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Ok(Acceptor::Tcp(TcpListener::from_std(listener)?))
            }
            Listener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Ok(Acceptor::Unix(UnixListener::from_std(listener)?))
            }
        }
    }

    pub(super) async fn accept(&self) -> io::Result<Stream> {
        match self {
            Acceptor::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // An answer is written at once and whole: nothing is gained by waiting for more of it.
                let _unsupported = stream.set_nodelay(true);
                Ok(Stream::Tcp(stream))
            }
            Acceptor::Unix(listener) => Ok(Stream::Unix(listener.accept().await?.0)),
        }
    }
}

/// A connection.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Writes an answer, as far as the kernel takes it at once, and closes.
    pub(super) fn refuse(self, answer: &[u8]) {
        let _written = match &self {
            Stream::Tcp(stream) => stream.try_write(answer),
            Stream::Unix(stream) => stream.try_write(answer),
        };
    }
}

macro_rules! of_either {
    ($self:ident, $stream:ident => $what:expr) => {
        match $self.get_mut() {
            Stream::Tcp(stream) => {
                let $stream = Pin::new(stream);
                $what
            }
            Stream::Unix(stream) => {
                let $stream = Pin::new(stream);
                $what
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        of_either!(self, stream => stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
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
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_either!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_either!(self, stream => stream.poll_shutdown(cx))
    }
}
