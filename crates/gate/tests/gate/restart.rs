//! A gate that has just started.

use crate::support::Backend;
use crate::support::gate::{TestGate, World};

/// A session of a backend that a gate has not looked for yet is there: it must not be told that it is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_not_404_before_every_backend_was_looked_for() {
    let world = World::new();
    let backend = Backend::start("b").await;
    let grant = world.issuer.grant("team-a");
    let mut config = world.config(&[]);
    config.backends = vec![format!("pool=dns+http://localhost:{}", backend.address.port())];
    let id = TestGate::start(config.clone()).await.lease(&grant).await;

    // This one cannot find out what addresses the name has.
    let mut blind = config.clone();
    blind.backends = vec!["pool=dns+http://name.invalid:1".to_owned()];
    let blind = TestGate::unready(blind);
    for _ in 0..3 {
        let answer = blind.execute(&grant, &id, "print(1)").await;
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("5")), "{}", answer.text());
    }
    // An id that is none is 404 all the same.
    assert_eq!(blind.execute(&grant, "made-up", "print(1)").await.status, 404);

    // This one has looked, and the session's backend is none of its own.
    let other = Backend::start("other").await;
    let seeing = world.gate(&[&other]).await;
    assert_eq!(seeing.execute(&grant, &id, "print(1)").await.status, 404);
    // And one that starts anew with the same list finds it.
    let again = TestGate::start(config).await;
    assert_eq!(again.execute(&grant, &id, "print(1)").await.status, 200);
}
