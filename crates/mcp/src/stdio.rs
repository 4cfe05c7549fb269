//! One conversation over a pair of streams: standard input and output of the process, as a rule.

use std::sync::Arc;

use rmcp::service::{QuitReason, ServerInitializeError, serve_server_with_ct};
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::backend::Backend;
use crate::conversation::Conversation;
use crate::limits::LINE_BYTES_MAX;
use crate::service::Service;

/// Why a conversation over streams did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum StdioError {
    /// What came first was no beginning of a conversation. What it was is not told: it is the peer's.
    #[error("what came first on standard input is no beginning of a conversation")]
    NoBeginning,
    /// The handshake failed.
    #[error("the conversation did not begin")]
    Begin(#[source] Box<ServerInitializeError>),
    /// The task that serves it failed.
    #[error("the conversation broke off")]
    Task(#[source] tokio::task::JoinError),
}

/// Serves one conversation over standard input and output, which then carry nothing else.
///
/// # Errors
/// As [`serve_streams`].
pub async fn serve_stdio(backend: Backend, stop: CancellationToken) -> Result<(), StdioError> {
    let (read, write) = rmcp::transport::io::stdio_pipes();
    serve_streams(backend, read, write, stop).await
}

/// Serves one conversation until its peer is gone or `stop` is cancelled, and releases its session.
///
/// # Errors
/// As [`StdioError`] has it; the session is released in any case.
pub async fn serve_streams(
    backend: Backend,
    read: impl AsyncRead + Send + Unpin + 'static,
    write: impl AsyncWrite + Send + Unpin + 'static,
    stop: CancellationToken,
) -> Result<(), StdioError> {
    let conversation = Arc::new(Conversation::new(backend));
    let transport = AsyncRwTransport::new_server(read, write).with_max_line_length(LINE_BYTES_MAX);
    let served = converse(Service::new(Arc::clone(&conversation)), transport, stop).await;
    conversation.release().await;
    served
}

async fn converse<R, W>(
    service: Service,
    transport: AsyncRwTransport<rmcp::RoleServer, R, W>,
    stop: CancellationToken,
) -> Result<(), StdioError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    match serve_server_with_ct(service, transport, stop).await {
        // A peer that leaves before it has said anything has ended its conversation, and so have we.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
        Err(ServerInitializeError::ExpectedInitializeRequest(_)) => Err(StdioError::NoBeginning),
        Err(error) => Err(StdioError::Begin(Box::new(error))),
        Ok(running) => match running.waiting().await {
            Ok(QuitReason::JoinError(error)) | Err(error) => Err(StdioError::Task(error)),
            Ok(_) => Ok(()),
        },
    }
}
