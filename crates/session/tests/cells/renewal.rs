//! Zygotes that are replaced while sessions come and go.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use ringfence_op::{FaultKind, SessionId};
use ringfence_session::{Lease, Sessions};

use crate::{FORKS_MAX, GATE, SESSIONS_MAX, lease, python, release};

crate::cases![
    sessions_before_and_after_have_nothing_of_their_layout_in_common,
    no_lease_waits_for_the_next_zygote,
    leases_side_by_side_go_on_through_many_zygotes,
];

/// Where the C library and the first objects lie, and a hash: the same in all sessions of one zygote.
const LAYOUT: &str = "
import builtins, ctypes
print(ctypes.cast(ctypes.CDLL('libc.so.6').malloc, ctypes.c_void_p).value, id(builtins), hash('a'))
";

async fn layout(sessions: &Sessions, id: SessionId) -> Vec<String> {
    let outcome = python(sessions, id, LAYOUT).await;
    let parts: Vec<String> = outcome.report.stdout.split_whitespace().map(str::to_owned).collect();
    assert_eq!(parts.len(), 3, "{outcome:?}");
    parts
}

/// The layout of a session that comes and goes.
async fn another_layout(sessions: &Sessions) -> Vec<String> {
    let id = lease(sessions).await;
    let found = layout(sessions, id).await;
    release(sessions, id).await;
    found
}

async fn sessions_before_and_after_have_nothing_of_their_layout_in_common(sessions: Sessions) {
    let old = lease(&sessions).await;
    python(&sessions, old, "kept = 'kept'").await;
    let before = layout(&sessions, old).await;
    // Sooner or later; the case has its time.
    let mut after = another_layout(&sessions).await;
    while after == before {
        after = another_layout(&sessions).await;
    }
    for (one, other) in before.iter().zip(&after) {
        assert_ne!(one, other, "{before:?} {after:?}");
    }
    // The session goes on, and so does one whose interpreter has to be forked anew, by the zygote that is.
    assert_eq!(python(&sessions, old, "print(kept)").await.report.stdout, "kept\n");
    assert_eq!(layout(&sessions, old).await, before);
    assert!(python(&sessions, old, "import os; os._exit(3)").await.report.return_code == 3);
    assert_ne!(layout(&sessions, old).await, before);
    release(&sessions, old).await;
}

async fn no_lease_waits_for_the_next_zygote(sessions: Sessions) {
    let hold = GATE.get().expect("the gate").join("hold");
    fs::write(&hold, "").expect("a file");
    let mut layouts = Vec::new();
    // A zygote that had passed the gate before may still come; the one after it cannot.
    for _ in 0..6 * FORKS_MAX {
        layouts.push(another_layout(&sessions).await);
    }
    let late = layouts.iter().rev().take(3 * FORKS_MAX as usize).collect::<HashSet<_>>();
    assert_eq!(late.len(), 1, "all are served by the zygote that is there");
    fs::remove_file(&hold).expect("the file");
    while layouts.contains(&another_layout(&sessions).await) {}
}

/// A session, once there is room: those that have been released take theirs until their cells are gone.
async fn lease_when_free(sessions: &Sessions) -> SessionId {
    loop {
        match sessions.create(Lease::default()).await {
            Ok(leased) => return leased.id,
            Err(fault) => {
                assert!(matches!(fault.kind(), FaultKind::Capacity { .. }), "{fault:?}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

async fn leases_side_by_side_go_on_through_many_zygotes(sessions: Sessions) {
    let walk = |sessions: Sessions| async move {
        let mut found = HashSet::new();
        for round in 0..40 {
            let id = lease_when_free(&sessions).await;
            assert_eq!(python(&sessions, id, &format!("print({round})")).await.report.stdout, format!("{round}\n"));
            found.insert(layout(&sessions, id).await);
            sessions.destroy(id).expect("a session to release");
        }
        found
    };
    let walks: Vec<_> = (0..SESSIONS_MAX / 2).map(|_| tokio::spawn(walk(sessions.clone()))).collect();
    let mut found = HashSet::new();
    for walk in walks {
        found.extend(walk.await.expect("a walk"));
    }
    assert!(found.len() > 3, "{} zygotes", found.len());
    while sessions.counts().ending > 0 {
        tokio::task::yield_now().await;
    }
}
