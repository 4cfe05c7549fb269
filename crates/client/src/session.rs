//! One session: calls and files.

use std::path::Path;

use bytes::Bytes;
use hyper::Method;
use serde_json::json;
use tokio::io::AsyncRead;

use crate::answers::{FileList, Interrupted};
use crate::client::Request;
use crate::download::Download;
use crate::limits::{HEADROOM, JSON_BYTES_MAX};
use crate::{
    Client, ClientError, ExecResult, FileEntry, SessionHandle, StoredFile, ToolCall, path_segment, query_value, upload,
};

/// A session by its id. It says nothing about whether the session still exists.
#[derive(Debug, Clone)]
pub struct Session {
    pub(crate) client: Client,
    id: String,
}

impl Session {
    pub(crate) fn new(client: Client, id: String) -> Self {
        Session { client, id }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its handle now (`GET /sessions/{id}`). Outside the contract: a backend may not have it.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when the session is gone; otherwise as every operation.
    pub async fn handle(&self) -> Result<SessionHandle, ClientError> {
        self.client.answer(self.client.plain("session handle", Method::GET, self.path(""))).await
    }

    /// Execute: runs one call and returns what it came to. A program that fails is no error.
    ///
    /// Waits for the call's budget and [`HEADROOM`] on top, or for the call's own patience. Sent at most once.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when the session is gone; otherwise as every operation. After
    /// [`ClientError::Transport`] the call may have run, unless the connection was never made.
    pub async fn run(&self, call: &ToolCall) -> Result<ExecResult, ClientError> {
        const OPERATION: &str = "Execute";
        let timeout = call.timeout.unwrap_or(self.client.timeout);
        let patience = call.patience.unwrap_or_else(|| timeout.saturating_add(HEADROOM));
        let asked = Request::json(OPERATION, self.path("/exec"), &call.body(timeout), patience);
        let envelope = self.client.answer(asked).await?;
        ExecResult::read(envelope).map_err(|reason| ClientError::Answer { operation: OPERATION, reason })
    }

    /// Interrupts the call that runs, as ctrl-C does, and returns whether one ran (an addition of ringfence). The call
    /// ends when its program does, and its own answer says how; a second interrupt ends it as its timeout would.
    /// Answered at once, whatever runs or waits in the session; never sent twice.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when the session is gone, or the backend has no such operation; otherwise as every
    /// operation.
    pub async fn interrupt(&self) -> Result<bool, ClientError> {
        let asked = Request::json("interrupt", self.path("/interrupt"), &json!({}), self.client.patience);
        let Interrupted { interrupted } = self.client.answer(asked).await?;
        Ok(interrupted)
    }

    /// ListFiles: the files of one folder; `""` is the workspace itself.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when the session or the folder is not there; otherwise as every operation.
    pub async fn list(&self, folder: &str) -> Result<Vec<FileEntry>, ClientError> {
        self.listing(folder, "").await
    }

    /// The files of a folder and of all folders below it (an addition of ringfence; a backend without it lists the
    /// one folder).
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub async fn list_recursive(&self, folder: &str) -> Result<Vec<FileEntry>, ClientError> {
        self.listing(folder, "recursive=true").await
    }

    async fn listing(&self, folder: &str, more: &str) -> Result<Vec<FileEntry>, ClientError> {
        let path = if folder.is_empty() { String::new() } else { format!("path={}", query_value(folder)) };
        let query = [path.as_str(), more].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("&");
        let mark = if query.is_empty() { "" } else { "?" };
        let path = self.path(&format!("/files/list{mark}{query}"));
        let list: FileList = self.client.answer(self.client.plain("ListFiles", Method::GET, path)).await?;
        Ok(list.files)
    }

    /// GetFile as a stream, for files of any size.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when the session or the file is not there; otherwise as every operation.
    pub async fn open(&self, path: &str) -> Result<Download, ClientError> {
        let path = self.path(&format!("/files?path={}", query_value(path)));
        Download::open(&self.client, self.client.plain("GetFile", Method::GET, path)).await
    }

    /// GetFile into memory, up to [`JSON_BYTES_MAX`] bytes; [`open`](Self::open) has no such bound.
    ///
    /// # Errors
    /// As [`open`](Self::open), and when the file is larger.
    pub async fn read(&self, path: &str) -> Result<Bytes, ClientError> {
        self.open(path).await?.bytes(JSON_BYTES_MAX).await
    }

    /// PutFile from memory. Missing folders are the backend's to make.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with 413 when it is too large for the backend; otherwise as every operation.
    pub async fn put(&self, path: &str, content: impl Into<Bytes>) -> Result<StoredFile, ClientError> {
        let content = content.into();
        let length = content.len() as u64;
        upload::put(self, path, Box::pin(std::io::Cursor::new(content)), Some(length)).await
    }

    /// PutFile from a reader. With a length, exactly so many bytes are sent, and a reader that ends early fails the
    /// upload; without one, all of it is sent in chunks.
    ///
    /// # Errors
    /// As [`put`](Self::put), and when the reader fails.
    pub async fn put_reader(
        &self,
        path: &str,
        reader: impl AsyncRead + Send + 'static,
        length: Option<u64>,
    ) -> Result<StoredFile, ClientError> {
        upload::put(self, path, Box::pin(reader), length).await
    }

    /// PutFile from a file of this machine, streamed.
    ///
    /// # Errors
    /// As [`put`](Self::put), and when the local file cannot be read.
    pub async fn put_local(&self, path: &str, local: &Path) -> Result<StoredFile, ClientError> {
        let failed = |source| ClientError::Local { path: local.to_owned(), source };
        let file = tokio::fs::File::open(local).await.map_err(failed)?;
        let length = file.metadata().await.map_err(failed)?.len();
        upload::put(self, path, Box::pin(file), Some(length)).await
    }

    /// Removes a file (an addition of ringfence).
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when the session or the file is not there; otherwise as every operation.
    pub async fn remove(&self, path: &str) -> Result<(), ClientError> {
        let path = self.path(&format!("/files?path={}", query_value(path)));
        self.client.whole(self.client.plain("file removal", Method::DELETE, path)).await.map(drop)
    }

    /// DestroySession. A session that is gone already is as good as released.
    ///
    /// # Errors
    /// As every operation, but never [`ClientError::NotFound`].
    pub async fn destroy(&self) -> Result<(), ClientError> {
        match self.client.whole(self.client.plain("DestroySession", Method::DELETE, self.path(""))).await {
            Ok(_) | Err(ClientError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/sessions/{}{rest}", path_segment(&self.id))
    }
}
