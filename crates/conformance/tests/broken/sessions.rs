//! Sessions that are broken in one place.

use ringfence_fake::{Asked, Reply};
use serde_json::{Value, json};

use crate::{Breakage, answering, edited, faulty, twisted};

fn unknown(asked: &Asked, reply: &Reply) -> bool {
    asked.path.contains("never-leased") && reply.status == 404
}

fn unknown_at(method: &'static str, end: &'static str) -> impl Fn(&Asked, &Reply) -> bool {
    move |asked, reply| unknown(asked, reply) && asked.is(method, end)
}

pub(crate) fn breakages() -> Vec<Breakage> {
    let released = |asked: &Asked| asked.method == "DELETE" && asked.path.contains("/session-");
    vec![
        faulty("variables lost", "state.variables", |quirks| quirks.forgets_variables = true),
        faulty("files lost", "state.files", |quirks| quirks.forgets_files = true),
        edited(
            "a shell with a workspace of its own",
            "state.shared_workspace",
            |asked, _| asked.json()["input"]["command"] == "cat shared.txt",
            |envelope| envelope["result_block"]["content"]["stdout"] = Value::from(""),
        ),
        faulty("one interpreter for all", "state.variables_apart", |quirks| quirks.shares_variables = true),
        faulty("one workspace for all", "state.files_apart", |quirks| quirks.shares_files = true),
        answering(500, "an unknown session as 500", "gone.exec", unknown_at("POST", "/exec")),
        answering(500, "the release of an unknown session as 500", "gone.release", |asked, reply| {
            unknown(asked, reply) && asked.method == "DELETE"
        }),
        twisted("an empty listing for an unknown session", "gone.list", |asked, reply| {
            let wrong = unknown_at("GET", "/files/list")(asked, &reply);
            if wrong { Reply::json(200, &json!({"files": []})) } else { reply }
        }),
        answering(500, "a file of an unknown session as 500", "gone.read", unknown_at("GET", "/files")),
        answering(201, "an upload into an unknown session accepted", "gone.put", unknown_at("POST", "/files")),
        answering(200, "a release as 200", "release.status", move |asked, reply| {
            released(asked) && reply.status == 204
        }),
        twisted("a release with a body", "release.no_body", move |asked, reply| {
            let raw = b"HTTP/1.1 204 No Content\r\ncontent-length: 4\r\nconnection: close\r\n\r\ntrue".to_vec();
            Reply { raw: (released(asked) && reply.status == 204).then_some(raw), ..reply }
        }),
        faulty("alive after its release", "release.gone", |quirks| quirks.survives_release = true),
        answering(500, "a second release as 500", "release.twice", move |asked, reply| {
            released(asked) && reply.status == 404
        }),
    ]
}
