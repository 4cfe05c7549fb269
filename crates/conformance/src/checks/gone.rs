//! Sessions that do not exist.

use super::must;
use crate::bench::Bench;
use crate::check::FileOperation::{List, Put, Read};
use crate::check::{Check, Stop};

const BINDING: &str = "HTTP/JSON binding";
const SAYS: &str = "an unknown session is a 404";

pub(crate) const CHECKS: &[Check] = &[
    must("gone.exec", "Execute in an unknown session is a 404", BINDING, SAYS, &[], |bench| Box::pin(exec(bench))),
    must(
        "gone.release",
        "releasing an unknown session is a 204 or a 404",
        "DestroySession",
        "a session that does not exist is in the desired state already",
        &[],
        |bench| Box::pin(release(bench)),
    ),
    must(
        "gone.list",
        "ListFiles of an unknown session is a 404",
        "Sessions held across requests",
        "a client that resumes a session lists its files first, and reads a 404 as the session being gone",
        &[List],
        |bench| Box::pin(list(bench)),
    ),
    must("gone.read", "GetFile of an unknown session is a 404", BINDING, SAYS, &[Read], |bench| Box::pin(read(bench))),
    must("gone.put", "PutFile into an unknown session is a 404", BINDING, SAYS, &[Put], |bench| Box::pin(put(bench))),
];

const WHEN: &str = "for a session that was never leased";

async fn exec(bench: &Bench) -> Result<(), Stop> {
    let body = serde_json::json!({"tool": "code_execution", "input": {"code": "print(1)"}});
    bench.unknown().exec(&body).await?.want_status(&[404], WHEN)
}

async fn release(bench: &Bench) -> Result<(), Stop> {
    bench.unknown().release().await?.want_status(&[204, 404], WHEN)
}

async fn list(bench: &Bench) -> Result<(), Stop> {
    bench.unknown().list(None).await?.want_status(&[404], WHEN)
}

async fn read(bench: &Bench) -> Result<(), Stop> {
    bench.unknown().read("any.txt").await?.want_status(&[404], WHEN)
}

async fn put(bench: &Bench) -> Result<(), Stop> {
    bench.unknown().put("any.txt", Some("any.txt"), b"x").await?.want_status(&[404], WHEN)
}
