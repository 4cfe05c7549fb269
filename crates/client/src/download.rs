//! GetFile as a stream.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::CONTENT_TYPE;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::client::Request;
use crate::limits::{ERROR_BYTES_MAX, STALL_MAX};
use crate::refusal::refusal;
use crate::transport::{read, within};
use crate::{Client, ClientError, TransportError};

/// A file on its way here. Dropping it ends the transfer.
#[derive(Debug)]
pub struct Download {
    operation: &'static str,
    body: Incoming,
    media_type: Option<String>,
}

impl Download {
    pub(crate) async fn open(client: &Client, asked: Request) -> Result<Self, ClientError> {
        let operation = asked.operation;
        let transport = |source| ClientError::Transport { operation, source };
        let answered = within(asked.patience, client.attempts(&asked)).await.map_err(transport)?;
        let (head, body) = answered.into_parts();
        if !head.status.is_success() {
            let said = within(asked.patience, read(body, ERROR_BYTES_MAX)).await.map_err(transport)?;
            return Err(refusal(operation, head.status.as_u16(), &head.headers, &said.bytes));
        }
        let media_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Ok(Download { operation, body, media_type })
    }

    /// The file's size, where the backend said it.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// The media type that the backend derived.
    #[must_use]
    pub fn media_type(&self) -> Option<&str> {
        self.media_type.as_deref()
    }

    /// The next piece; `None` at the end. A transfer that stands still for [`STALL_MAX`] is an error, and so is one
    /// that ends before the length that was said.
    ///
    /// # Errors
    /// When the transfer breaks or stands still.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        let operation = self.operation;
        let next = within(STALL_MAX, async {
            while let Some(frame) = self.body.frame().await {
                let frame = frame.map_err(|source| TransportError::Broken { source: Box::new(source) })?;
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
            Ok(None)
        });
        next.await.map_err(|source| ClientError::Transport { operation, source })
    }

    /// All of it, up to a bound.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk), and when the file is larger than `bytes_max`.
    pub async fn bytes(mut self, bytes_max: usize) -> Result<Bytes, ClientError> {
        let mut all = BytesMut::new();
        while let Some(piece) = self.chunk().await? {
            if all.len().saturating_add(piece.len()) > bytes_max {
                let source = TransportError::TooLarge { bytes_max };
                return Err(ClientError::Transport { operation: self.operation, source });
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    }

    /// Writes all of it and returns how many bytes that were.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk), and [`ClientError::Output`] when the writer fails.
    pub async fn write_to(mut self, writer: &mut (dyn AsyncWrite + Unpin + Send)) -> Result<u64, ClientError> {
        let mut written: u64 = 0;
        while let Some(piece) = self.chunk().await? {
            writer.write_all(&piece).await.map_err(ClientError::Output)?;
            written = written.saturating_add(piece.len() as u64);
        }
        writer.flush().await.map_err(ClientError::Output)?;
        Ok(written)
    }
}
