//! A leased session in a check's hands, and what a call in it came to.

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use ringfence_client::{path_segment, query_value};
use serde_json::{Value, json};

use crate::bench::{Bench, JSON, asked};
use crate::check::{Finding, Stop};
use crate::exchange::{Exchange, excerpt};
use crate::limits::BUDGET_SECONDS;

/// A session.
pub(crate) struct Held<'a> {
    bench: &'a Bench,
    pub(crate) id: String,
}

impl<'a> Held<'a> {
    pub(crate) fn new(bench: &'a Bench, id: String) -> Self {
        Held { bench, id }
    }

    fn path(&self, rest: &str) -> String {
        format!("/sessions/{}{rest}", path_segment(&self.id))
    }

    /// Execute with a body as given.
    pub(crate) async fn exec(&self, body: &Value) -> Result<Exchange, Stop> {
        self.exec_bytes(body.to_string().into(), BUDGET_SECONDS).await
    }

    /// Execute with any bytes as its body; waits for the budget and the headroom.
    pub(crate) async fn exec_bytes(&self, body: Bytes, budget_seconds: u64) -> Result<Exchange, Stop> {
        let asked = asked(Method::POST, self.path("/exec"), Some(JSON), body);
        let patience = Duration::from_secs(budget_seconds).saturating_add(self.bench.headroom);
        self.bench.send(&asked, patience).await
    }

    /// Execute of a tool, with a budget.
    pub(crate) async fn call(&self, tool: &str, input: Value, budget_seconds: u64) -> Result<Exchange, Stop> {
        let body = json!({"tool": tool, "input": input, "timeout_seconds": budget_seconds});
        self.exec_bytes(body.to_string().into(), budget_seconds).await
    }

    /// A Python program, read leniently.
    pub(crate) async fn python(&self, code: &str) -> Result<Ran, Stop> {
        self.python_for(code, BUDGET_SECONDS).await
    }

    /// A Python program with a budget of its own.
    pub(crate) async fn python_for(&self, code: &str, budget_seconds: u64) -> Result<Ran, Stop> {
        Ran::read(self.call("code_execution", json!({"code": code}), budget_seconds).await?)
    }

    /// A shell command, read leniently.
    pub(crate) async fn bash(&self, command: &str) -> Result<Ran, Stop> {
        self.bash_for(command, BUDGET_SECONDS).await
    }

    /// A shell command with a budget of its own.
    pub(crate) async fn bash_for(&self, command: &str, budget_seconds: u64) -> Result<Ran, Stop> {
        Ran::read(self.call("bash_code_execution", json!({"command": command}), budget_seconds).await?)
    }

    /// A text editor's command, read leniently.
    pub(crate) async fn edit(&self, input: Value) -> Result<Ran, Stop> {
        Ran::read(self.call("text_editor_code_execution", input, BUDGET_SECONDS).await?)
    }

    /// ListFiles of a folder, or without one.
    pub(crate) async fn list(&self, folder: Option<&str>) -> Result<Exchange, Stop> {
        let query = folder.map(|folder| format!("?path={}", query_value(folder))).unwrap_or_default();
        self.bench.plain(Method::GET, self.path(&format!("/files/list{query}"))).await
    }

    /// GetFile.
    pub(crate) async fn read(&self, path: &str) -> Result<Exchange, Stop> {
        self.bench.plain(Method::GET, self.path(&format!("/files?path={}", query_value(path)))).await
    }

    /// PutFile; without a path the backend takes the upload's name.
    pub(crate) async fn put(&self, name: &str, path: Option<&str>, content: &[u8]) -> Result<Exchange, Stop> {
        self.put_within(name, path, content, self.bench.patience).await
    }

    /// PutFile with a patience of its own.
    pub(crate) async fn put_within(
        &self,
        name: &str,
        path: Option<&str>,
        content: &[u8],
        patience: Duration,
    ) -> Result<Exchange, Stop> {
        let boundary = format!("check-{}", Bench::mark());
        let mut body = Vec::with_capacity(content.len() + 512);
        let quoted = name.replace('"', "%22");
        body.extend_from_slice(
            format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{quoted}\"\r\n\
                 Content-Type: application/octet-stream\r\n\r\n"
            )
            .as_bytes(),
        );
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
        if let Some(path) = path {
            let part = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\n{path}\r\n");
            body.extend_from_slice(part.as_bytes());
        }
        body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        let media = format!("multipart/form-data; boundary={boundary}");
        let asked = asked(Method::POST, self.path("/files"), Some(&media), body.into());
        self.bench.send(&asked, patience).await
    }

    /// A route that no backend has: what "there is no such route" looks like here.
    pub(crate) async fn nowhere(&self) -> Result<Exchange, Stop> {
        self.bench.plain(Method::GET, self.path(&format!("/{}", Bench::mark()))).await
    }

    /// DestroySession.
    pub(crate) async fn release(&self) -> Result<Exchange, Stop> {
        self.bench.release(&self.id).await
    }
}

/// What a call came to, from wherever in the answer it stands: the place is for the envelope's checks.
pub(crate) struct Ran {
    pub(crate) exchange: Exchange,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) return_code: i64,
    /// The names of the files that it produced.
    pub(crate) files: Vec<String>,
}

impl Ran {
    fn read(exchange: Exchange) -> Result<Self, Stop> {
        exchange.need(exchange.is_success(), "an Execute that succeeds, to look at what it came to")?;
        let Some(content) = content(&exchange.json) else {
            return Err(Stop::Unjudged(exchange.finding("a result block whose content can be read")));
        };
        let text = |name: &str| content.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let error = content.get("error_code").is_some();
        let names = content.get("content").and_then(Value::as_array).into_iter().flatten();
        let named = |entry: &Value| entry.get("filename").and_then(Value::as_str).map(str::to_owned);
        let files = names.filter_map(named).collect();
        let return_code = content.get("return_code").and_then(number).unwrap_or(i64::from(error));
        let (stdout, stderr) = (text("stdout"), text("stderr"));
        Ok(Ran { stdout, stderr, return_code, files, exchange })
    }

    /// Whether the program failed, by the contract's two signs.
    pub(crate) fn failed(&self) -> bool {
        self.return_code != 0 || !self.stderr.is_empty()
    }

    /// Passes on where it holds, and is a finding otherwise, which shows what the program came to.
    pub(crate) fn want(&self, holds: bool, wanted: impl Into<String>) -> Result<(), Stop> {
        if holds {
            return Ok(());
        }
        let stream = |text: &str| format!("({} bytes) \"{}\"", text.len(), excerpt(text.as_bytes()));
        let came = format!(
            "{}, return_code {}, stdout {}, stderr {}",
            self.exchange.status,
            self.return_code,
            stream(&self.stdout),
            stream(&self.stderr)
        );
        Err(Stop::Fail(Finding { came, ..self.exchange.finding(wanted) }))
    }

    /// Passes on where stdout is exactly this.
    pub(crate) fn want_stdout(&self, wanted: &str) -> Result<(), Stop> {
        self.want(self.stdout == wanted, format!("exactly {wanted:?} on stdout"))
    }

    /// Passes on where stdout is this line or these lines, whether or not the last one is ended.
    pub(crate) fn want_said(&self, wanted: &str) -> Result<(), Stop> {
        self.want(self.stdout.trim_end_matches('\n') == wanted, format!("{wanted:?} on stdout"))
    }

    /// Passes on where stdout holds this.
    pub(crate) fn want_in_stdout(&self, wanted: &str) -> Result<(), Stop> {
        self.want(self.stdout.contains(wanted), format!("{wanted:?} on stdout"))
    }

    /// Passes on where the program ended well, and leaves the check unjudged otherwise.
    pub(crate) fn need_success(&self) -> Result<(), Stop> {
        self.exchange.need(self.return_code == 0, "a program of the check's preparation that ends with 0")
    }
}

/// A number, also one that is written as a string.
fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str().and_then(|text| text.parse().ok()))
}

/// The payload: of a nested block or of a bare one, an object or the first of a list.
fn content(envelope: &Value) -> Option<&Value> {
    let block = envelope.get("result_block").filter(|block| block.is_object()).unwrap_or(envelope);
    match block.get("content")? {
        Value::Array(blocks) => blocks.iter().find(|block| block.is_object()),
        content @ Value::Object(_) => Some(content),
        _ => None,
    }
}
