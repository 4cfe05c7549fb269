//! PutFile: a multipart body that is read while it is sent.

use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http_body_util::BodyExt;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method};
use tokio::io::AsyncRead;
use tokio::time::sleep;

use crate::body::Streamed;
use crate::limits::{ERROR_BYTES_MAX, STALL_MAX};
use crate::refusal::refusal;
use crate::transport::{read, within};
use crate::{ClientError, Session, StoredFile, TransportError};

const OPERATION: &str = "PutFile";

/// Uploads a reader. Tried once: a reader cannot be read twice.
pub(crate) async fn put(
    session: &Session,
    path: &str,
    reader: Pin<Box<dyn AsyncRead + Send>>,
    length: Option<u64>,
) -> Result<StoredFile, ClientError> {
    let transport = |source| ClientError::Transport { operation: OPERATION, source };
    let boundary = boundary()?;
    let (head, tail) = around(path, &boundary);
    let body = Streamed::new(head.into(), reader, length, tail.into());
    let progress = body.progress();
    let media = HeaderValue::try_from(format!("multipart/form-data; boundary={boundary}"))
        .map_err(|source| transport(TransportError::Request { source: Box::new(source) }))?;
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, media)]);
    let client = &session.client;
    let request = client
        .transport
        .request(Method::POST, &session.path("/files"), headers, client.token.as_ref(), body.boxed_unsync())
        .map_err(transport)?;
    let answered = tokio::select! {
        answered = client.transport.send(request) => answered,
        error = stalled(progress) => Err(error),
    };
    let (head, body) = answered.map_err(transport)?.into_parts();
    let body = within(STALL_MAX, read(body, ERROR_BYTES_MAX)).await.map_err(transport)?;
    if !head.status.is_success() {
        return Err(refusal(OPERATION, head.status.as_u16(), &head.headers, &body.bytes));
    }
    serde_json::from_slice(&body.bytes)
        .map_err(|error| ClientError::Answer { operation: OPERATION, reason: error.to_string() })
}

/// Ends when the count has not grown for [`STALL_MAX`].
async fn stalled(progress: Arc<AtomicU64>) -> TransportError {
    let mut seen = progress.load(Ordering::Relaxed);
    loop {
        sleep(STALL_MAX).await;
        let now = progress.load(Ordering::Relaxed);
        if now == seen {
            return TransportError::Timeout { after: STALL_MAX };
        }
        seen = now;
    }
}

/// 128 random bits: a file that holds them by chance does not exist.
fn boundary() -> Result<String, ClientError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(ClientError::Random)?;
    let mut text = String::from("ringfence-");
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// What goes before and after the file: the path first, so that a backend that streams knows where to write.
fn around(path: &str, boundary: &str) -> (String, String) {
    let name = path.rsplit('/').next().unwrap_or(path);
    // As browsers do it (HTML, multipart/form-data encoding): only these three are escaped.
    let name = name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A");
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\n{path}\r\n\
         --{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    (head, format!("\r\n--{boundary}--\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_differ() {
        assert_ne!(boundary().unwrap(), boundary().unwrap());
    }

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        let (head, _) = around("a/b\"; x=\"\r\nc", "B");
        assert!(head.contains("filename=\"b%22; x=%22%0D%0Ac\""), "{head}");
    }
}
