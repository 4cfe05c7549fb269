//! Backends that hang, lie, cut off, are full, go away and come back.

use std::time::Duration;

use crate::support::backend::{envelope, result};
use crate::support::{Backend, Issuer, Reply, TestGate, Then, World, call};

fn exec(seen: &crate::support::backend::Seen) -> bool {
    seen.path.ends_with("/exec")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_of_a_broken_backend_becomes_a_result() {
    let backend = Backend::start("one").await;
    let world = World::new();
    let gate = world.gate(&[&backend]).await;
    let grant = world.issuer.grant("team-a");
    let id = gate.lease(&grant).await;
    let good = result("x").0;
    let text = envelope("x");
    let json = "content-type: application/json\r\n";
    let chunked = format!("HTTP/1.1 200 OK\r\n{json}transfer-encoding: chunked\r\n\r\n{:x}\r\n{text}\r\n", text.len());
    let endless = format!("HTTP/1.1 200 OK\r\n{json}\r\n{text}");
    let error = text.replace("code_execution_result\"", "code_execution_tool_result_error\"");
    for (what, bytes, then) in [
        ("nothing at all", Vec::new(), Then::Close),
        ("half a head", good[..20].to_vec(), Then::Close),
        ("half a body", good[..good.len() - 10].to_vec(), Then::Close),
        ("half a body, then silence", good[..good.len() - 10].to_vec(), Then::Hang),
        ("chunks without an end", chunked.into_bytes(), Then::Close),
        ("a body whose end cannot be told", endless.into_bytes(), Then::Close),
        ("no HTTP", b"hello\r\n\r\n".to_vec(), Then::Close),
        ("no JSON", Reply::json("200 OK", "sure").0, Then::Keep),
        ("another type", Reply::with("200 OK", "content-type: text/html\r\n", text.as_bytes()).0, Then::Keep),
        ("packed", Reply::with("200 OK", &format!("{json}content-encoding: gzip\r\n"), text.as_bytes()).0, Then::Keep),
        ("no envelope", Reply::json("200 OK", r#"{"stdout":"x"}"#).0, Then::Keep),
        ("the error variant", Reply::json("200 OK", &error).0, Then::Keep),
        ("created", Reply::json("201 Created", &text).0, Then::Keep),
        ("no content", Reply::empty("204 No Content").0, Then::Keep),
        ("a redirect", Reply::with("307 Temporary Redirect", "location: http://127.0.0.1:1/\r\n", b"").0, Then::Keep),
        ("its own failure", Reply::json("500 Internal Server Error", r#"{"detail":"trace"}"#).0, Then::Keep),
        ("a gateway's failure", Reply::json("504 Gateway Timeout", "{}").0, Then::Keep),
        ("the gate is not accepted", Reply::json("401 Unauthorized", r#"{"detail":"who?"}"#).0, Then::Keep),
        ("two lengths", [b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n", &good[17..]].concat(), Then::Close),
    ] {
        backend.twist(move |seen| exec(seen).then(|| Reply(bytes.clone(), then)));
        let mut body = r#"{"tool":"code_execution","input":{"code":"x"},"timeout_seconds":1}"#;
        if then == Then::Hang {
            body = r#"{"tool":"code_execution","input":{"code":"x"},"timeout_seconds":0}"#;
        }
        let answer = gate.call(&format!("POST /sessions/{id}/exec"), &grant, body).await;
        assert_eq!(answer.status, 502, "{what}: {}", answer.text());
        assert!(answer.json()["detail"].as_str().unwrap().starts_with("the backend"), "{what}");
        assert!(!answer.text().contains("trace") && answer.header("www-authenticate").is_none(), "{what}");
    }
    let sent = backend.seen().iter().filter(|seen| exec(seen)).count();
    assert_eq!(sent, 19, "each call was sent once");
    backend.straight();
    assert_eq!(gate.execute(&grant, &id, "x").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_hangs_ends_after_its_timeout_and_the_headroom() {
    let backend = Backend::start("one").await;
    let world = World::new();
    let mut config = world.config(&[&backend]);
    config.policy.call_headroom = Duration::from_millis(50);
    let gate = TestGate::start(config).await;
    let grant = world.issuer.grant("team-a");
    let id = gate.lease(&grant).await;
    backend.twist(|seen| exec(seen).then(|| Reply(Vec::new(), Then::Hang)));
    let body = r#"{"tool":"code_execution","input":{"code":"x"},"timeout_seconds":0}"#;
    let answer = gate.call(&format!("POST /sessions/{id}/exec"), &grant, body).await;
    assert_eq!((answer.status, answer.header("retry-after")), (502, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_of_the_contract_pass_with_their_words() {
    let backend = Backend::start("one").await;
    let world = World::new();
    let gate = world.gate(&[&backend]).await;
    let grant = world.issuer.grant("team-a");
    let id = gate.lease(&grant).await;
    for status in ["400 Bad Request", "403 Forbidden", "404 Not Found", "409 Conflict", "422 Unprocessable Content"] {
        backend.twist(move |seen| exec(seen).then(|| Reply::json(status, r#"{"detail":[{"loc":"x"}]}"#)));
        let answer = gate.execute(&grant, &id, "x").await;
        assert_eq!(answer.status.to_string(), status[..3]);
        assert_eq!(answer.text(), r#"{"detail":[{"loc":"x"}]}"#);
    }
    for (told, passed) in [("9", Some("9")), ("soon", Some("1")), ("12345678", Some("1"))] {
        let head = format!("content-type: text/plain\r\nretry-after: {told}\r\n");
        backend.twist(move |seen| exec(seen).then(|| Reply::with("503 Service Unavailable", &head, b"<secret>")));
        let answer = gate.execute(&grant, &id, "x").await;
        assert_eq!((answer.status, answer.header("retry-after")), (503, passed));
        assert!(answer.json()["detail"].is_string() && !answer.text().contains("secret"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_lies_is_no_lease() {
    let backend = Backend::start("one").await;
    let world = World::new();
    let gate = world.gate(&[&backend]).await;
    let grant = world.issuer.grant("team-a");
    for (status, body) in [
        ("201 Created", "{}"),
        ("201 Created", r#"{"session_id":7}"#),
        ("201 Created", r#"{"session_id":""}"#),
        ("201 Created", r#"{"session_id":"../../health"}"#),
        ("201 Created", r#"{"session_id":"a?b"}"#),
        ("201 Created", r#"{"session_id":"a","session_id":"b"}"#),
        ("201 Created", r#"["a"]"#),
        ("201 Created", "<html>"),
        ("200 OK", r#"{"session_id":"a"}"#),
        ("500 Internal Server Error", "{}"),
    ] {
        backend.twist(move |seen| (seen.path == "/sessions").then(|| Reply::json(status, body)));
        let answer = gate.call("POST /sessions", &grant, "").await;
        assert_eq!(answer.status, 502, "{status} {body}: {}", answer.text());
    }
    backend.straight();
    let id = gate.lease(&grant).await;
    backend.twist(|seen| (seen.method == "GET").then(|| Reply::json("200 OK", r#"{"session_id":"another"}"#)));
    assert_eq!(gate.call(&format!("GET /sessions/{id}"), &grant, "").await.status, 502);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_download_that_is_cut_off_is_seen_to_be() {
    let backend = Backend::start("one").await;
    let world = World::new();
    let gate = world.gate(&[&backend]).await;
    let grant = world.issuer.grant("team-a");
    let id = gate.lease(&grant).await;
    let path = format!("GET /sessions/{id}/files?path=f");
    for head in [
        "content-length: 100\r\n\r\nhalf",
        "transfer-encoding: chunked\r\n\r\n64\r\nhalf",
        "transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ] {
        let bytes = format!("HTTP/1.1 200 OK\r\n{head}").into_bytes();
        backend.twist(move |seen| seen.path.contains("/files").then(|| Reply(bytes.clone(), Then::Close)));
        let answer = gate.call(&path, &grant, "").await;
        assert!(answer.status == 502 || !answer.whole, "{head:?}: {answer:?}");
    }
    let endless = b"HTTP/1.1 200 OK\r\n\r\nall or half, who knows".to_vec();
    backend.twist(move |seen| seen.path.contains("/files").then(|| Reply(endless.clone(), Then::Close)));
    assert_eq!(gate.call(&path, &grant, "").await.status, 502);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_go_to_the_least_loaded_backend_that_takes_them() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    *one.state.sessions_max.lock().unwrap() = 2;
    let world = World::new();
    let gate = world.gate(&[&one, &two]).await;
    gate.until(|health| health.json()["backends_open"] == 2, "/health").await;
    let grant = world.issuer.grant("team-a");
    for _ in 0..10 {
        gate.lease(&grant).await;
    }
    assert!(one.sessions() <= 2 && one.sessions() + two.sessions() == 10, "{} {}", one.sessions(), two.sessions());
    // Both full: what the backends say is passed on.
    *two.state.sessions_max.lock().unwrap() = 8;
    *one.state.sessions_max.lock().unwrap() = 1;
    let full = gate.call("POST /sessions", &grant, "").await;
    assert_eq!((full.status, full.header("retry-after")), (503, Some("7")));
    // One that is gone is passed over.
    *two.state.sessions_max.lock().unwrap() = 100;
    drop(one);
    for _ in 0..5 {
        gate.lease(&grant).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_that_is_down_is_503_and_its_sessions_come_back_with_it() {
    let one = Backend::start("one").await;
    let world = World::new();
    let gate = world.gate(&[&one]).await;
    let grant = world.issuer.grant("team-a");
    let id = gate.lease(&grant).await;
    let address = one.address;
    drop(one);
    gate.until(|ready| ready.status == 503, "/ready").await;
    let down = gate.execute(&grant, &id, "x").await;
    assert_eq!((down.status, down.header("retry-after")), (503, Some("5")));
    let none = gate.call("POST /sessions", &grant, "").await;
    assert_eq!((none.status, none.header("retry-after")), (503, Some("5")));
    let again = Backend::on("one", address).await;
    gate.until_ready().await;
    // It forgot its sessions: what it says counts.
    assert_eq!(gate.execute(&grant, &id, "x").await.status, 404);
    assert!(!again.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_backend_serves_its_sessions_and_gets_no_more() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let world = World::new();
    let list = |line: &str| world.file("backends", &format!("one {}{line}\ntwo {}\n", one.url(), two.url()));
    let mut config = world.config(&[]);
    config.backends_file = Some(list(""));
    let gate = TestGate::start(config).await;
    gate.until(|health| health.json()["backends_open"] == 2, "/health").await;
    let grant = world.issuer.grant("team-a");
    let mut ids = Vec::new();
    while one.sessions() == 0 {
        ids.push(gate.lease(&grant).await);
    }
    let before = one.sessions();
    let all_serve = async |what: &str| {
        for id in &ids {
            assert_eq!(gate.execute(&grant, id, "x").await.status, 200, "{what}");
        }
    };
    list(" draining");
    gate.until(|health| health.json()["backends_open"] == 1, "/health").await;
    for _ in 0..5 {
        gate.lease(&grant).await;
    }
    assert_eq!(one.sessions(), before);
    all_serve("draining by the list").await;
    list("");
    gate.until(|health| health.json()["backends_open"] == 2, "/health").await;
    *one.state.status.lock().unwrap() = "draining";
    gate.until(|health| health.json()["backends_open"] == 1, "/health").await;
    all_serve("draining by itself").await;
    // A list that cannot be read changes nothing; one without the backend takes it out.
    world.file("backends", "one nonsense\n");
    tokio::time::sleep(Duration::from_millis(60)).await;
    all_serve("a broken list").await;
    world.file("backends", &format!("two {}\n", two.url()));
    gate.until(|health| health.json()["backends"] == 1, "/health").await;
    let statuses: Vec<u16> = {
        let mut all = Vec::new();
        for id in &ids {
            all.push(gate.execute(&grant, id, "x").await.status);
        }
        all
    };
    assert!(statuses.contains(&404), "{statuses:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dns_name_is_every_address_that_it_has() {
    let one = Backend::start("one").await;
    let world = World::new();
    let list = vec![format!("pool=dns+http://localhost:{}", one.address.port())];
    let gate = TestGate::start(crate::support::gate::config(world.folder.path(), list)).await;
    let grant = world.issuer.grant("team-a");
    let id = gate.lease(&grant).await;
    assert_eq!(gate.execute(&grant, &id, "x").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ceiling_of_sessions_counts_over_all_backends() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let world = World::new();
    let gate = world.gate(&[&one, &two]).await;
    gate.until(|health| health.json()["backends_open"] == 2, "/health").await;
    let mut claims = Issuer::claims("team-a");
    claims.ceilings.sessions_max = Some(4);
    let grant = world.issuer.bearer(&claims);
    let other = world.issuer.grant("team-b");
    for _ in 0..4 {
        gate.lease(&grant).await;
        gate.lease(&other).await;
    }
    let over = gate.call("POST /sessions", &grant, "").await;
    assert_eq!((over.status, over.header("retry-after")), (503, Some("5")));
    gate.lease(&other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_whose_client_hung_up_is_released() {
    let one = Backend::start("one").await;
    let world = World::new();
    let gate = world.gate(&[&one]).await;
    let grant = world.issuer.grant("team-a");
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    one.twist(move |seen| {
        if seen.path == "/sessions" {
            // The reply waits until the client is gone.
            told.lock().unwrap().recv().unwrap();
        }
        None
    });
    // When the gate notices cannot be seen from outside: a busy machine gets more time.
    for pause in [50, 500, 5000].map(Duration::from_millis) {
        let (address, grant) = (gate.address, grant.clone());
        let asking =
            tokio::spawn(async move { call(address, "POST /sessions", &[("authorization", &grant)], b"").await });
        one.until(|seen| seen.path == "/sessions").await;
        asking.abort();
        assert!(asking.await.unwrap_err().is_cancelled());
        tokio::time::sleep(pause).await;
        tell.send(()).unwrap();
        let released = async {
            one.until(|seen| seen.method == "DELETE").await;
            while one.sessions() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(pause, released).await.is_ok() {
            return;
        }
        one.state.seen.lock().unwrap().clear();
    }
    panic!("the session was not released");
}
