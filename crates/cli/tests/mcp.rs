//! `ringfence mcp` from outside: the SDK's own client as a peer, over pipes and over HTTP, with real sessions.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::process::Stdio;
use std::sync::{Arc, Mutex};

use ringfence_testkit::{Server, ServerOptions};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ContentBlock, NumberOrString,
    ProgressNotificationParam, ReadResourceRequestParams, ResourceContents,
};
use rmcp::service::{NotificationContext, PeerRequestOptions, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A peer that remembers the progress that it is told.
#[derive(Clone, Default)]
struct Peer {
    progress: Arc<Mutex<Vec<f64>>>,
}

impl ClientHandler for Peer {
    async fn on_progress(&self, told: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        self.progress.lock().unwrap().push(told.progress);
    }
}

type Talk = RunningService<RoleClient, Peer>;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    command.arg("mcp").args(arguments).kill_on_drop(true);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("RINGFENCE_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A conversation over the pipes of a child.
async fn over_pipes(arguments: &[&str]) -> (Child, Talk) {
    let mut child = command(arguments).spawn().unwrap();
    let pipes = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    let talk = Peer::default().serve(pipes).await.unwrap();
    (child, talk)
}

fn request(name: &'static str, arguments: Value) -> CallToolRequestParams {
    CallToolRequestParams::new(name).with_arguments(arguments.as_object().cloned().unwrap())
}

async fn call(talk: &Talk, name: &'static str, arguments: Value) -> CallToolResult {
    talk.call_tool(request(name, arguments)).await.unwrap()
}

fn text(result: &CallToolResult) -> String {
    result.content.iter().filter_map(ContentBlock::as_text).map(|text| text.text.as_str()).collect()
}

fn sessions(server: &Server) -> u64 {
    server.client().call("GET", "/health", None).json()["session_count"].as_u64().unwrap()
}

/// Waits until the server holds so many sessions: a release is answered before it is done.
async fn until_sessions(server: &Server, count: u64) {
    let waits = async {
        while sessions(server) != count {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), waits).await.unwrap();
}

/// The process ids of servers that were started for the child.
fn servers_of(child: &Child) -> Vec<u32> {
    let pid = child.id().unwrap();
    let children = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flat_map(|task| {
        let list = std::fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default();
        list.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>()
    });
    children.collect()
}

async fn until_gone(pids: &[u32]) {
    let is_gone = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z')
    };
    let waits = async {
        while !pids.iter().all(is_gone) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), waits).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_server_it_brings_its_own_and_takes_it_along() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_str().unwrap();
    let (mut child, talk) = over_pipes(&["--image", "bare", "--", "--state-dir", state, "--memory", "512MiB"]).await;
    let told = talk.peer_info().unwrap().instructions.clone().unwrap();
    assert!(told.contains("isolation tier cell") && told.contains("512 MiB of memory"), "{told}");
    let server = servers_of(&child);
    assert_eq!(server.len(), 1);
    call(&talk, "run_python", json!({"code": "x = 41"})).await;
    assert_eq!(text(&call(&talk, "run_python", json!({"code": "x + 1"})).await), "42\n");
    let shell = call(&talk, "run_bash", json!({"command": "env; cat /proc/*/environ 2>/dev/null"})).await;
    assert!(!text(&shell).contains("TOKEN"), "{shell:?}");
    talk.cancel().await.unwrap();
    assert!(child.wait().await.unwrap().success());
    until_gone(&server).await;

    // A command that is killed takes its server along, too.
    let (mut child, talk) = over_pipes(&["--image", "bare", "--", "--state-dir", state]).await;
    call(&talk, "run_python", json!({"code": "x = 41"})).await;
    let server = servers_of(&child);
    child.kill().await.unwrap();
    until_gone(&server).await;
    drop(talk);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_its_own_that_dies_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_str().unwrap();
    let (child, talk) = over_pipes(&["--image", "bare", "--", "--state-dir", state, "--memory", "512MiB"]).await;
    assert_eq!(text(&call(&talk, "run_python", json!({"code": "print(6 * 7)"})).await), "42\n");
    let pid = i32::try_from(servers_of(&child)[0]).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL).unwrap();
    let ended = child.wait_with_output().await.unwrap();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("the server of its own has died"), "{said}");
    drop(talk);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_call_is_interrupted_and_variables_are_kept() {
    let server = ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).start();
    let url = format!("http://{}", server.address());
    let (mut child, talk) = over_pipes(&["--url", &url]).await;
    call(&talk, "run_python", json!({"code": "x = 41"})).await;
    let sleep = "import time\nopen('ready', 'w').close()\ntime.sleep(600)";
    let asked = request("run_python", json!({"code": sleep, "timeout_seconds": 600}));
    let asked = ClientRequest::CallToolRequest(CallToolRequest::new(asked));
    let running = talk.send_cancellable_request(asked, PeerRequestOptions::no_options()).await.unwrap();
    while !text(&call(&talk, "list_files", json!({})).await).contains("ready") {}
    // One that waits behind it is given up without touching it.
    let waits = request("run_bash", json!({"command": "echo never > never"}));
    let waits = ClientRequest::CallToolRequest(CallToolRequest::new(waits));
    let waits = talk.send_cancellable_request(waits, PeerRequestOptions::no_options()).await.unwrap();
    // A cancellation that overtook its request would be nobody's: what is sent next comes later.
    call(&talk, "list_files", json!({})).await;
    waits.cancel(Some("changed my mind".to_owned())).await.unwrap();
    // Progress comes without a clock of ours: as long as the call runs, it is told.
    let heard = || talk.service().progress.lock().unwrap().clone();
    while heard().len() < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(heard()[0] < heard()[1], "{:?}", heard());
    running.cancel(Some("enough".to_owned())).await.unwrap();
    let next = call(&talk, "run_python", json!({"code": "import os\nprint(x, os.path.exists('never'))"})).await;
    assert_eq!(text(&next), "41 False\n");
    assert_eq!(sessions(&server), 1);
    talk.cancel().await.unwrap();
    assert!(child.wait().await.unwrap().success());
    assert_eq!(sessions(&server), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_dies_leaves_no_session() {
    let server = ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).start();
    let url = format!("http://{}", server.address());
    let (mut child, talk) = over_pipes(&["--url", &url]).await;
    let asked = request("run_bash", json!({"command": "touch ready; sleep 600", "timeout_seconds": 600}));
    let asked = ClientRequest::CallToolRequest(CallToolRequest::new(asked));
    let running = talk.send_cancellable_request(asked, PeerRequestOptions::no_options()).await.unwrap();
    while !text(&call(&talk, "list_files", json!({})).await).contains("ready") {}
    // Its ends of the pipes close, in the middle of a call and without a word, as when it is killed.
    drop(running);
    drop(talk);
    assert!(child.wait().await.unwrap().success());
    until_sessions(&server, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chart_comes_as_a_picture_and_a_table_as_a_resource() {
    let server = ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).scientific().start();
    let url = format!("http://{}", server.address());
    let (mut child, talk) = over_pipes(&["--url", &url]).await;
    let table = json!({"path": "sales.csv", "text": "month,sales\n1,3\n2,5\n3,4\n"});
    assert_eq!(call(&talk, "upload_file", table).await.is_error, Some(false));
    let code = "import pandas as pd, matplotlib.pyplot as plt\nsales = pd.read_csv('sales.csv')\n\
                sales.plot(x='month', y='sales')\nsales.describe().to_csv('out/summary.csv') if __import__('os').makedirs('out') \
                is None else None\nopen('lies.png', 'w').write('no picture')\nprint(sales.sales.sum())";
    let done = call(&talk, "run_python", json!({"code": code})).await;
    assert!(text(&done).contains("12\n"), "{done:?}");
    let pictures: Vec<_> = done.content.iter().filter_map(ContentBlock::as_image).collect();
    assert_eq!(pictures.len(), 1, "{done:?}");
    assert!(pictures[0].mime_type == "image/png" && pictures[0].data.starts_with("iVBORw0KGgo"), "{done:?}");
    let links: Vec<_> = done.content.iter().filter_map(ContentBlock::as_resource_link).collect();
    let summary = links.iter().find(|link| link.uri == "workspace:///out/summary.csv").unwrap();
    let read = talk.read_resource(ReadResourceRequestParams::new(&summary.uri)).await.unwrap();
    assert!(matches!(&read.contents[0], ResourceContents::TextResourceContents { text, .. } if text.contains("mean,")));
    assert!(links.iter().any(|link| link.uri == "workspace:///lies.png"));
    let chart = links.iter().find(|link| link.mime_type.as_deref() == Some("image/png") && link.name != "lies.png");
    let read = talk.read_resource(ReadResourceRequestParams::new(&chart.unwrap().uri)).await.unwrap();
    assert!(
        matches!(&read.contents[0], ResourceContents::BlobResourceContents { blob, .. } if *blob == pictures[0].data)
    );
    talk.cancel().await.unwrap();
    assert!(child.wait().await.unwrap().success());
    assert_eq!(sessions(&server), 0);
}

/// `ringfence mcp --http`, and where it is.
async fn over_http(arguments: &[&str]) -> (Child, String) {
    let mut child = command(&[&["--http", "127.0.0.1:0"], arguments].concat()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next_line().await.unwrap().unwrap();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
    let url = first.strip_prefix("mcp: ").unwrap().to_owned();
    (child, url)
}

async fn join(url: &str, token: Option<&str>) -> Talk {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    if let Some(token) = token {
        config = config.auth_header(token);
    }
    Peer::default().serve(StreamableHttpClientTransport::from_config(config)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversations_over_http_are_apart_and_end_with_their_sessions() {
    let server = ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).start();
    let backend = format!("http://{}", server.address());
    let (mut child, url) = over_http(&["--url", &backend]).await;
    let (one, other) = (join(&url, None).await, join(&url, None).await);
    call(&one, "run_python", json!({"code": "x = 1"})).await;
    let unknown = call(&other, "run_python", json!({"code": "print('x' in globals())"})).await;
    assert_eq!(text(&unknown), "False\n");
    assert_eq!(sessions(&server), 2);
    let sleep = "import time\nopen('ready', 'w').close()\ntime.sleep(600)";
    let asked = request("run_python", json!({"code": sleep, "timeout_seconds": 600}));
    let asked = ClientRequest::CallToolRequest(CallToolRequest::new(asked));
    let running = one.send_cancellable_request(asked, PeerRequestOptions::no_options()).await.unwrap();
    while !text(&call(&one, "list_files", json!({})).await).contains("ready") {}
    running.cancel(None).await.unwrap();
    assert_eq!(text(&call(&one, "run_python", json!({"code": "x"})).await), "1\n");
    one.cancel().await.unwrap();
    until_sessions(&server, 1).await;
    assert_eq!(text(&call(&other, "run_python", json!({"code": "2"})).await), "2\n");
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(child.id().unwrap().cast_signed()).unwrap(),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    assert!(child.wait().await.unwrap().success());
    assert_eq!(sessions(&server), 0);
}

/// The status of a first message with these headers.
async fn status(url: &str, headers: &[(&str, &str)]) -> u16 {
    let body = json!({"jsonrpc": "2.0", "id": NumberOrString::Number(1), "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    let address = url.strip_prefix("http://").and_then(|rest| rest.split('/').next()).unwrap().to_owned();
    let mut head = format!("POST /mcp HTTP/1.1\r\nContent-Length: {}\r\nConnection: close\r\n", body.to_string().len());
    head.push_str("Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        head.push_str(&format!("Host: {address}\r\n"));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let mut stream = BufReader::new(tokio::net::TcpStream::connect(address).await.unwrap());
    tokio::io::AsyncWriteExt::write_all(&mut stream, format!("{head}\r\n{body}").as_bytes()).await.unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_is_for_those_that_were_named() {
    let server = ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).start();
    let backend = format!("http://{}", server.address());
    let (_child, url) = over_http(&["--url", &backend, "--allow-origin", "https://app.example:443"]).await;
    assert_eq!(status(&url, &[]).await, 200);
    assert_eq!(status(&url, &[("Host", "evil.example")]).await, 403);
    assert_eq!(status(&url, &[("Origin", "https://evil.example")]).await, 403);
    assert_eq!(status(&url, &[("Origin", "null")]).await, 403);
    assert_eq!(status(&url, &[("Origin", "https://app.example")]).await, 200);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "s3cret\n").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let (_child, url) = over_http(&["--url", &backend, "--http-token-file", file.to_str().unwrap()]).await;
    assert_eq!(status(&url, &[]).await, 401);
    assert_eq!(status(&url, &[("Authorization", "Bearer s3cre")]).await, 401);
    let talk = join(&url, Some("s3cret")).await;
    assert_eq!(text(&call(&talk, "run_python", json!({"code": "1"})).await), "1\n");
    talk.cancel().await.unwrap();

    let open = command(&["--url", &backend, "--http", "0.0.0.0:0"]).output().await.unwrap();
    assert_eq!(open.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&open.stderr).contains("give a token"), "{open:?}");
}
