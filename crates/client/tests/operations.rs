//! Each operation against a correct backend, and against answers that are none.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use ringfence_client::{BearerToken, Client, ClientError, LeaseOptions, ToolCall};
use ringfence_fake::{Fake, Reply, Rules};
use serde_json::json;

async fn fake(rules: Rules) -> (Fake, Client) {
    let fake = Fake::start(rules).await.unwrap();
    let client = Client::new(fake.url()).unwrap();
    (fake, client)
}

/// A backend whose Execute answers what it is told.
async fn answering(reply: Reply) -> (Fake, Client) {
    let twist =
        Arc::new(move |asked: &ringfence_fake::Asked, right| if asked.is_exec() { reply.clone() } else { right });
    fake(Rules { twist: Some(twist), ..Rules::default() }).await
}

#[tokio::test]
async fn a_session_keeps_its_state_and_shows_failures_as_results() {
    let (_fake, client) = fake(Rules::default()).await;
    let lease = client.lease(&LeaseOptions::default().idle_timeout(Duration::from_secs(120))).await.unwrap();
    assert_eq!(lease.handle().idle_timeout_seconds, Some(120));
    lease.run(&ToolCall::python("x = 41")).await.unwrap();
    let done = lease.run(&ToolCall::python("print(x + 1)").tool_use_id("mine")).await.unwrap();
    assert_eq!((done.stdout.as_str(), done.tool_use_id.as_str()), ("42\n", "mine"));
    assert!(done.succeeded() && done.execution_time_ms.is_some());
    let failed = lease.run(&ToolCall::python("raise ValueError('no')")).await.unwrap();
    assert!(!failed.succeeded() && failed.stderr.contains("ValueError: no"));
    assert_eq!(lease.run(&ToolCall::bash("exit 7")).await.unwrap().return_code, 7);
    lease.run(&ToolCall::create("a.txt", "one\n")).await.unwrap();
    lease.run(&ToolCall::str_replace("a.txt", "one", "two")).await.unwrap();
    lease.run(&ToolCall::insert("a.txt", 0, "zero")).await.unwrap();
    assert_eq!(lease.run(&ToolCall::view("a.txt")).await.unwrap().stdout, "zero\ntwo\n");
    lease.run(&ToolCall::undo_edit("a.txt")).await.unwrap();
    assert_eq!(lease.read("a.txt").await.unwrap(), "two\n");
    lease.release().await.unwrap();
}

#[tokio::test]
async fn what_is_gone_is_told_apart() {
    let (_fake, client) = fake(Rules::default()).await;
    let lease = client.lease(&LeaseOptions::default()).await.unwrap();
    let session = lease.session().clone();
    assert_eq!(session.handle().await.unwrap().image.as_deref(), Some("fake"));
    lease.release().await.unwrap();
    let error = session.run(&ToolCall::python("pass")).await.unwrap_err();
    assert!(matches!(&error, ClientError::NotFound { operation: "Execute", .. }), "{error:?}");
    assert_eq!(error.status(), Some(404));
    assert!(matches!(session.list("").await, Err(ClientError::NotFound { .. })));
    session.destroy().await.unwrap();
    // An id that would leave its place in the path stays in it.
    let odd = client.attach("../sessions?x#y");
    assert!(matches!(odd.run(&ToolCall::python("pass")).await, Err(ClientError::NotFound { .. })));
}

#[tokio::test]
async fn a_dropped_lease_is_released_in_the_background() {
    let (fake, client) = fake(Rules::default()).await;
    let kept = client.lease(&LeaseOptions::default()).await.unwrap().keep();
    drop(client.lease(&LeaseOptions::default()).await.unwrap());
    // The release is another request to the same backend: ask until it has arrived.
    let released = async {
        while fake.sessions() != 1 {
            client.health().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(20), released).await.unwrap();
    assert!(kept.run(&ToolCall::python("pass")).await.is_ok());
}

#[test]
fn a_lease_may_outlive_its_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (fake, lease) = runtime.block_on(async {
        let (fake, client) = fake(Rules::default()).await;
        let lease = client.lease(&LeaseOptions::default()).await.unwrap();
        (fake, lease)
    });
    drop(runtime);
    drop(lease);
    drop(fake);
}

#[tokio::test]
async fn capacity_is_told_and_waited_for_where_asked() {
    let (_fake, client) = fake(Rules { sessions_max: 1, ..Rules::default() }).await;
    let first = client.lease(&LeaseOptions::default()).await.unwrap();
    let error = client.lease(&LeaseOptions::default()).await.unwrap_err();
    assert!(
        matches!(&error, ClientError::Unavailable { retry_after: Some(after), .. } if *after == Duration::from_secs(1)),
        "{error:?}"
    );
    let patient = LeaseOptions::default().wait_for_capacity(Duration::from_secs(30));
    let (second, released) = tokio::join!(client.lease(&patient), first.release());
    released.unwrap();
    second.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_token_is_sent_and_a_missing_one_is_a_401() {
    let (fake, client) = fake(Rules { token: Some("s3cret".to_owned()), ..Rules::default() }).await;
    assert_eq!(client.lease(&LeaseOptions::default()).await.unwrap_err().status(), Some(401));
    let client = Client::builder(fake.url()).unwrap().token(BearerToken::new("s3cret").unwrap()).build();
    assert!(!format!("{client:?}").contains("s3cret"));
    let lease = client.lease(&LeaseOptions::default()).await.unwrap();
    lease.put("x", "y").await.unwrap();
    lease.release().await.unwrap();
}

#[tokio::test]
async fn answers_that_follow_no_contract_are_errors_with_a_reason() {
    let block = json!({"tool_use_id": "t", "type": "code_execution_tool_result", "content": {"stdout": "x"}});
    for (reply, part) in [
        (Reply::json(200, &block), "no result_block"),
        (Reply::json(200, &json!([])), "invalid type"),
        (Reply { status: 200, body: b"<html>".to_vec(), ..Reply::default() }, "expected value"),
        (Reply { status: 200, body: "[".repeat(100_000).into_bytes(), ..Reply::default() }, "contract"),
    ] {
        let (_fake, client) = answering(reply).await;
        let lease = client.lease(&LeaseOptions::default()).await.unwrap();
        let error = lease.run(&ToolCall::python("pass")).await.unwrap_err();
        assert!(matches!(&error, ClientError::Answer { operation: "Execute", .. }), "{error:?}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn other_refusals_carry_status_and_reason() {
    let (_fake, client) = answering(Reply::refusal(422, "no good")).await;
    let lease = client.lease(&LeaseOptions::default()).await.unwrap();
    let error = lease.run(&ToolCall::python("pass")).await.unwrap_err();
    assert_eq!((error.status(), error.to_string()), (Some(422), "Execute: refused with 422: no good".to_owned()));
}

#[tokio::test]
async fn an_interrupt_that_meets_nothing_says_so() {
    let (fake, client) = fake(Rules::default()).await;
    let lease = client.lease(&LeaseOptions::default()).await.unwrap();
    assert!(!lease.interrupt().await.unwrap());
    let session = lease.session().clone();
    lease.release().await.unwrap();
    assert!(matches!(session.interrupt().await, Err(ClientError::NotFound { operation: "interrupt", .. })));
    assert_eq!(fake.requests().iter().filter(|line| line.ends_with("/interrupt")).count(), 2);
}

#[tokio::test]
async fn sessions_are_listed_where_there_is_a_token() {
    let (_fake, client) = fake(Rules::default()).await;
    assert_eq!(client.sessions().await.unwrap_err().status(), Some(403));
    let (fake, _) = fake(Rules { token: Some("t0ken".to_owned()), ..Rules::default() }).await;
    let client = Client::builder(fake.url()).unwrap().token(BearerToken::new("t0ken").unwrap()).build();
    let lease = client.lease(&LeaseOptions::default()).await.unwrap();
    let listed = client.sessions().await.unwrap();
    assert_eq!(listed.iter().map(|handle| handle.session_id.as_str()).collect::<Vec<_>>(), [lease.session().id()]);
}
