//! The counters, on a listener of their own.

use crate::support::gate::{TestGate, World};
use crate::support::{Backend, call};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_are_told_on_their_own_listener_and_no_tenant_is_in_them() {
    let world = World::new();
    let backend = Backend::start("b").await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = listener.local_addr().unwrap();
    let gate = TestGate::unready_with(world.config(&[&backend]), Some(listener));
    gate.until_ready().await;
    let grant = world.issuer.grant("team-canary");
    let id = gate.lease(&grant).await;
    assert_eq!(gate.execute(&grant, &id, "print(1)").await.status, 200);
    assert_eq!(gate.call("POST /sessions", "Bearer nonsense", "{}").await.status, 401);
    let answer = call(metrics, "GET /metrics", &[], b"").await;
    assert_eq!(answer.status, 200);
    assert!(answer.header("content-type").unwrap().starts_with("text/plain"));
    let text = answer.text();
    for wanted in [
        "ringfence_gate_requests_total{route=\"/sessions\",status=\"201\"} 1\n",
        "ringfence_gate_requests_total{route=\"/sessions\",status=\"401\"} 1\n",
        "ringfence_gate_requests_total{route=\"/sessions/{session_id}/exec\",status=\"200\"} 1\n",
        "ringfence_gate_backend_open{backend=\"b0\"} 1\n",
        "ringfence_gate_has_keys 1\n",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
    assert!(!text.contains("team-canary") && !text.contains(&id), "{text}");
    // Clients of the gate do not see them, and there is nothing else to see there.
    assert_eq!(gate.call("GET /metrics", &grant, "").await.status, 404);
    assert_eq!(call(metrics, "GET /health", &[], b"").await.status, 404);
    assert_eq!(call(metrics, "POST /metrics", &[], b"").await.status, 405);
}
