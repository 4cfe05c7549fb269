//! File operations that are broken in one place.

use ringfence_fake::{Asked, Reply};
use serde_json::{Value, json};

use crate::{Breakage, answering, edited, faulty, twisted};

fn listed(asked: &Asked, reply: &Reply) -> bool {
    asked.is("GET", "/files/list") && reply.status == 200
}

fn put(asked: &Asked, reply: &Reply) -> bool {
    asked.is("POST", "/files") && reply.status == 201
}

fn read(asked: &Asked, reply: &Reply) -> bool {
    asked.is("GET", "/files") && reply.status == 200
}

fn each(list: &mut Value, change: impl Fn(&mut Value)) {
    if let Some(files) = list["files"].as_array_mut() {
        files.iter_mut().for_each(change);
    }
}

pub(crate) fn breakages() -> Vec<Breakage> {
    [listings(), reads(), uploads(), escapes()].into_iter().flatten().collect()
}

fn listings() -> Vec<Breakage> {
    let in_folder = |asked: &Asked, reply: &Reply| listed(asked, reply) && asked.parameter("path") == Some("folder");
    let whole = |asked: &Asked, reply: &Reply| listed(asked, reply) && asked.parameter("path").is_none();
    vec![
        edited("a bare list", "files.list_shape", listed, |list| *list = list["files"].take()),
        edited("files as texts", "files.list_shape", listed, |list| each(list, |file| *file = file["path"].take())),
        edited("files without paths", "files.list_shape", listed, |list| each(list, |file| file["path"] = Value::Null)),
        edited("a fractional size", "files.list_shape", whole, |list| {
            each(list, |file| file["size_bytes"] = json!(20.5))
        }),
        edited("a negative size", "files.list_shape", whole, |list| each(list, |file| file["size_bytes"] = json!(-1))),
        edited("a time as a text", "files.list_shape", listed, |list| {
            each(list, |file| file["modified_at"] = json!("now"))
        }),
        edited("a wrong size", "files.list_size", whole, |list| each(list, |file| file["size_bytes"] = json!(7))),
        edited("programs' files not listed", "files.list_size", whole, |list| list["files"] = json!([])),
        edited("paths from the folder", "files.list_folder", in_folder, |list| {
            each(list, |file| file["path"] = json!("inner.txt"));
        }),
        twisted("an empty listing for a missing folder", "files.list_missing", |asked, reply| {
            let missing = asked.parameter("path") == Some("no-such-folder");
            if missing { Reply::json(200, &json!({"files": []})) } else { reply }
        }),
    ]
}

fn reads() -> Vec<Breakage> {
    let missing = |asked: &Asked, reply: &Reply| {
        asked.is("GET", "/files") && reply.status == 404 && reply.value()["detail"] == "there is no such file"
    };
    vec![
        twisted("a newline added", "files.read_program_file", |asked, mut reply| {
            if read(asked, &reply) && reply.body.starts_with(b"written") {
                reply.body.push(b'\n');
            }
            reply
        }),
        twisted("files in JSON", "files.read_program_file", |asked, reply| {
            if read(asked, &reply) && reply.body.starts_with(b"written") {
                return Reply::json(200, &json!({"content": String::from_utf8_lossy(&reply.body)}));
            }
            reply
        }),
        answering(500, "a missing file as 500", "files.read_missing", missing),
        answering(404, "a folder as a missing file", "files.read_folder", |asked, reply| {
            asked.is("GET", "/files") && reply.status == 400
        }),
    ]
}

fn uploads() -> Vec<Breakage> {
    vec![
        answering(200, "an upload as 200", "upload.status", put),
        edited("an upload without its size", "upload.shape", put, |stored| {
            stored.as_object_mut().unwrap().remove("size_bytes");
        }),
        edited("an upload without its path", "upload.shape", put, |stored| stored["path"] = Value::Null),
        edited("an upload with a fractional size", "upload.shape", put, |stored| stored["size_bytes"] = json!(5.5)),
        edited("an absolute path", "upload.path", put, |stored| {
            stored["path"] = json!(format!("/workspace/{}", stored["path"].as_str().unwrap_or_default()));
        }),
        edited("the name in place of the path", "upload.path", put, |stored| stored["path"] = json!("put.txt")),
        edited("a wrong size of an upload", "upload.size", put, |stored| stored["size_bytes"] = json!(6)),
        answering(422, "an upload that needs a path", "upload.default_name", |asked, _| {
            asked.is("POST", "/files") && !String::from_utf8_lossy(&asked.body).contains("name=\"path\"")
        }),
        faulty("uploads out of the programs' sight", "upload.seen_by_programs", |quirks| quirks.hides_uploads = true),
        twisted("the last byte dropped", "upload.round_trip", |asked, mut reply| {
            if read(asked, &reply) && reply.body.last() == Some(&255) {
                reply.body.pop();
            }
            reply
        }),
        faulty("a large upload cut", "upload.whole", |quirks| quirks.truncates_at = 1 << 20),
        answering(500, "a large upload as 500", "upload.whole", |asked, reply| {
            put(asked, reply) && asked.body.len() > 1 << 20
        }),
    ]
}

fn escapes() -> Vec<Breakage> {
    vec![
        faulty("listings of what is outside", "confine.list", |quirks| quirks.lists_outside = true),
        faulty("reads of what is outside", "confine.read", |quirks| quirks.reads_outside = true),
        faulty("reads through links", "confine.read_link", |quirks| quirks.reads_through_links = true),
        faulty("uploads to what is outside", "confine.put", |quirks| quirks.writes_outside = true),
        faulty("uploads to what is outside that claim otherwise", "confine.put", |quirks| {
            quirks.writes_outside_and_denies = true;
        }),
        faulty("uploads through links", "confine.put_link", |quirks| quirks.writes_through_links = true),
        answering(500, "an escape as 500", "confine.read", |asked, reply| {
            asked.is("GET", "/files")
                && reply.status == 403
                && asked.parameter("path").is_some_and(|path| path.contains(".."))
        }),
    ]
}
