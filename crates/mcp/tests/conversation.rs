//! The SDK's own client as a peer, over streams in memory, against a backend in memory.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use ringfence_client::Client;
use ringfence_fake::{Fake, Rules};
use ringfence_mcp::{Backend, StdioError, serve_streams};
use rmcp::ServiceExt;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ContentBlock, ReadResourceRequestParams, ReadResourceResult,
    ResourceContents,
};
use rmcp::service::{RoleClient, RunningService};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A conversation, its backend, and its end.
struct Talk {
    fake: Fake,
    peer: RunningService<RoleClient, ()>,
    served: JoinHandle<Result<(), StdioError>>,
    stop: CancellationToken,
}

async fn talk() -> Talk {
    let fake = Fake::start(Rules::default()).await.unwrap();
    let backend = Backend::ready(Client::new(fake.url()).unwrap(), Some("fancy".to_owned()));
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let stop = CancellationToken::new();
    let (read, write) = tokio::io::split(theirs);
    let served = tokio::spawn(serve_streams(backend, read, write, stop.clone()));
    let peer = ().serve(ours).await.unwrap();
    Talk { fake, peer, served, stop }
}

impl Talk {
    async fn call(&self, name: &'static str, arguments: Value) -> CallToolResult {
        let arguments = arguments.as_object().cloned().unwrap();
        self.peer.call_tool(CallToolRequestParams::new(name).with_arguments(arguments)).await.unwrap()
    }

    async fn read(&self, uri: &str) -> ReadResourceResult {
        self.peer.read_resource(ReadResourceRequestParams::new(uri)).await.unwrap()
    }

    /// The peer leaves: what is left in the backend.
    async fn end(self) -> usize {
        self.peer.cancel().await.unwrap();
        self.served.await.unwrap().unwrap();
        self.fake.sessions()
    }
}

fn texts(result: &CallToolResult) -> Vec<&str> {
    result.content.iter().filter_map(ContentBlock::as_text).map(|text| text.text.as_str()).collect()
}

fn links(result: &CallToolResult) -> Vec<&str> {
    result.content.iter().filter_map(ContentBlock::as_resource_link).map(|link| link.uri.as_str()).collect()
}

#[tokio::test]
async fn a_conversation_has_one_session_and_releases_it() {
    let talk = talk().await;
    let about = talk.peer.peer_info().unwrap();
    assert!(about.instructions.as_deref().unwrap().contains("image fake"), "{about:?}");
    let tools = talk.peer.list_all_tools().await.unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["run_python", "run_bash", "edit_file", "upload_file", "download_file", "list_files"]);
    talk.call("run_python", json!({"code": "x = 41"})).await;
    let done = talk.call("run_python", json!({"code": "print(x + 1)", "timeout_seconds": 5})).await;
    assert_eq!((texts(&done), done.is_error), (vec!["42\n"], Some(false)));
    let failed = talk.call("run_bash", json!({"command": "exit 7"})).await;
    assert_eq!((texts(&failed), failed.is_error), (vec!["[exit status 7]"], Some(true)));
    let edited = talk.call("edit_file", json!({"command": "create", "path": "a.txt", "file_text": "one\n"})).await;
    assert_eq!(edited.is_error, Some(false), "{edited:?}");
    assert!(texts(&talk.call("edit_file", json!({"command": "view", "path": "a.txt"})).await)[0].contains("one"));
    assert_eq!(talk.fake.sessions(), 1);
    assert_eq!(talk.end().await, 0);
}

#[tokio::test]
async fn files_go_in_and_out_and_are_resources() {
    let talk = talk().await;
    let stored = talk.call("upload_file", json!({"path": "in/data.bin", "base64": "AP8="})).await;
    assert_eq!(
        (texts(&stored), links(&stored)),
        (vec!["stored in/data.bin (2 bytes)"], vec!["workspace:///in/data.bin"])
    );
    talk.call("upload_file", json!({"path": "a b.csv", "text": "x,y\n"})).await;
    let produced = talk.call("run_python", json!({"code": "open('out.txt', 'w').write('made')"})).await;
    assert_eq!(links(&produced), ["workspace:///out.txt"]);
    let read = talk.read("workspace:///out.txt").await;
    assert!(matches!(&read.contents[0], ResourceContents::TextResourceContents { text, .. } if text == "made"));
    let read = talk.read("workspace:///in/data.bin").await;
    assert!(matches!(&read.contents[0], ResourceContents::BlobResourceContents { blob, .. } if blob == "AP8="));
    let listed: Vec<String> =
        talk.peer.list_all_resources().await.unwrap().into_iter().map(|resource| resource.uri).collect();
    for uri in ["workspace:///in/data.bin", "workspace:///a%20b.csv", "workspace:///out.txt"] {
        assert!(listed.iter().any(|listed| listed == uri), "{uri}: {listed:?}");
    }
    let fetched = talk.call("download_file", json!({"path": "a b.csv"})).await;
    assert!(fetched.content[0].as_resource().is_some(), "{fetched:?}");
    let shown = talk.call("list_files", json!({"recursive": true})).await;
    assert!(texts(&shown)[0].contains("in/data.bin\t2 bytes\n"), "{shown:?}");
    assert_eq!(talk.end().await, 0);
}

#[tokio::test]
async fn what_goes_wrong_is_told_to_the_model() {
    let talk = talk().await;
    for (name, arguments, part) in [
        ("run_python", json!({}), "missing field `code`"),
        ("run_python", json!({"code": "1", "timeout_seconds": -1}), "timeout_seconds"),
        ("upload_file", json!({"path": "a"}), "one of the two"),
        ("download_file", json!({"path": "none.txt"}), "not found"),
        ("download_file", json!({"path": "../secret"}), "403"),
        ("edit_file", json!({"command": "view"}), "422"),
    ] {
        let failed = talk.call(name, arguments).await;
        assert_eq!(failed.is_error, Some(true), "{name}: {failed:?}");
        assert!(texts(&failed)[0].contains(part), "{name}: {failed:?}");
    }
    let arguments = serde_json::Map::new();
    let unknown = talk.peer.call_tool(CallToolRequestParams::new("no_such_tool").with_arguments(arguments)).await;
    assert!(unknown.unwrap_err().to_string().contains("no_such_tool"));
    for uri in ["workspace:///none.txt", "file:///etc/passwd"] {
        assert!(talk.peer.read_resource(ReadResourceRequestParams::new(uri)).await.is_err(), "{uri}");
    }
    assert_eq!(talk.end().await, 0);
}

#[tokio::test]
async fn a_session_that_is_lost_is_said_to_be_and_another_one_is_leased() {
    let talk = talk().await;
    talk.call("run_python", json!({"code": "x = 1"})).await;
    Client::new(talk.fake.url()).unwrap().attach("session-0001").destroy().await.unwrap();
    let lost = talk.call("run_python", json!({"code": "print(x)"})).await;
    assert!(texts(&lost)[0].contains("variables and files are lost"), "{lost:?}");
    let again = talk.call("run_python", json!({"code": "print(1)"})).await;
    assert_eq!(texts(&again), ["1\n"]);
    Client::new(talk.fake.url()).unwrap().attach("session-0002").destroy().await.unwrap();
    let lost = talk.call("download_file", json!({"path": "a"})).await;
    assert!(texts(&lost)[0].contains("variables and files are lost"), "{lost:?}");
    let runs = talk.fake.requests().iter().filter(|line| line.ends_with("/exec")).count();
    assert_eq!(runs, 3, "nothing is run twice");
    assert_eq!(talk.end().await, 0);
}

#[tokio::test]
async fn an_end_from_outside_releases_the_session_too() {
    let talk = talk().await;
    talk.call("run_python", json!({"code": "x = 1"})).await;
    assert_eq!(talk.fake.sessions(), 1);
    talk.stop.cancel();
    talk.served.await.unwrap().unwrap();
    assert_eq!(talk.fake.sessions(), 0);
}

#[tokio::test]
async fn without_a_backend_the_model_hears_why() {
    let (starting, backend) = Backend::starting(None);
    starting.failed("no image could be built");
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (read, write) = tokio::io::split(theirs);
    let served = tokio::spawn(serve_streams(backend, read, write, CancellationToken::new()));
    let peer = ().serve(ours).await.unwrap();
    let arguments = json!({"command": "true"}).as_object().cloned().unwrap();
    let failed = peer.call_tool(CallToolRequestParams::new("run_bash").with_arguments(arguments)).await.unwrap();
    assert!(texts(&failed)[0].contains("no image could be built"), "{failed:?}");
    peer.cancel().await.unwrap();
    served.await.unwrap().unwrap();
}
