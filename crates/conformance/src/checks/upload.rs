//! PutFile.

use serde_json::Value;

use super::must;
use crate::bench::Bench;
use crate::check::FileOperation::{Put, Read};
use crate::check::{Check, Stop};
use crate::exchange::Exchange;
use crate::limits::UPLOAD_BYTES;
use crate::shape::{Kind, Shape};

const SECTION: &str = "ListFiles, GetFile, and PutFile";

pub(crate) const CHECKS: &[Check] = &[
    must(
        "upload.status",
        "an upload answers 201",
        "HTTP/JSON binding",
        "a file that was written is a 201",
        &[Put],
        |bench| Box::pin(status(bench)),
    ),
    must(
        "upload.shape",
        "the answer has path and size_bytes",
        "Operations",
        "PutFile answers the stored path and the size",
        &[Put],
        |bench| Box::pin(shape(bench)),
    ),
    must(
        "upload.path",
        "the answer's path is where the file was put, from the workspace's root",
        "Operations",
        "PutFile answers the stored path; paths are relative to the workspace's root",
        &[Put],
        |bench| Box::pin(path(bench)),
    ),
    must(
        "upload.size",
        "the answer's size is the number of bytes that were sent",
        "Operations",
        "PutFile answers the stored size",
        &[Put],
        |bench| Box::pin(size(bench)),
    ),
    must(
        "upload.default_name",
        "without a path the upload's own name is taken",
        "HTTP/JSON binding",
        "path is an optional part of the form; without it the backend derives one from the upload's name",
        &[Put],
        |bench| Box::pin(default_name(bench)),
    ),
    must(
        "upload.seen_by_programs",
        "a program sees what was uploaded",
        SECTION,
        "PutFile seeds inputs for later calls of the session",
        &[Put],
        |bench| Box::pin(seen_by_programs(bench)),
    ),
    must(
        "upload.round_trip",
        "every byte comes back as it was sent",
        SECTION,
        "GetFile answers the file's bytes",
        &[Put, Read],
        |bench| Box::pin(round_trip(bench)),
    ),
    must(
        "upload.whole",
        "a file is stored whole or refused, never cut",
        SECTION,
        "a backend may cap the size and must refuse what exceeds the cap rather than cut it",
        &[Put, Read],
        |bench| Box::pin(whole(bench)),
    ),
];

/// Uploads five bytes to a path.
async fn put(bench: &Bench, path: &str) -> Result<Exchange, Stop> {
    bench.lease().await?.put("sent.txt", Some(path), b"12345").await
}

/// The same, where it must succeed for the check to go on.
async fn stored(bench: &Bench, path: &str) -> Result<Exchange, Stop> {
    let answer = put(bench, path).await?;
    answer.need(answer.is_success(), "an upload that succeeds")?;
    Ok(answer)
}

async fn status(bench: &Bench) -> Result<(), Stop> {
    put(bench, "put.txt").await?.want_status(&[201], "for a file that was written")
}

async fn shape(bench: &Bench) -> Result<(), Stop> {
    let answer = stored(bench, "put.txt").await?;
    let faults = Shape::of(&answer.json).required("path", Kind::Text).required("size_bytes", Kind::Count).faults();
    answer.want(faults.is_none(), faults.unwrap_or_default())
}

async fn path(bench: &Bench) -> Result<(), Stop> {
    let answer = stored(bench, "some/folder/put.txt").await?;
    let Some(path) = answer.json.get("path").and_then(Value::as_str) else {
        return Err(Stop::Unjudged(answer.finding("a path that can be read")));
    };
    let plain = path.strip_prefix("./").unwrap_or(path);
    answer.want(plain == "some/folder/put.txt", "\"some/folder/put.txt\" as the path")
}

async fn size(bench: &Bench) -> Result<(), Stop> {
    let answer = stored(bench, "put.txt").await?;
    let size = answer.json.get("size_bytes").and_then(Value::as_f64).filter(|size| size.fract() == 0.0 && *size >= 0.0);
    let Some(size) = size else { return Err(Stop::Unjudged(answer.finding("a size that can be read"))) };
    answer.want(size == 5.0, "size_bytes 5")
}

async fn default_name(bench: &Bench) -> Result<(), Stop> {
    let answer = bench.lease().await?.put("own-name.txt", None, b"12345").await?;
    answer.want(answer.is_success(), "the file stored under a path made from \"own-name.txt\"")?;
    let named = match answer.json.get("path").and_then(Value::as_str) {
        Some(path) => !path.is_empty(),
        None => return Err(Stop::Unjudged(answer.finding("a path that can be read"))),
    };
    answer.want(named, "a path made from \"own-name.txt\"")
}

async fn seen_by_programs(bench: &Bench) -> Result<(), Stop> {
    let (held, mark) = (bench.lease().await?, Bench::mark());
    let answer = held.put("seed.txt", Some("seed.txt"), mark.as_bytes()).await?;
    answer.need(answer.is_success(), "an upload that succeeds")?;
    held.python("print(open('seed.txt').read())").await?.want_in_stdout(&mark)
}

async fn round_trip(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let bytes: Vec<u8> = (0..=255).collect();
    let answer = held.put("bytes.bin", Some("bytes.bin"), &bytes).await?;
    answer.need(answer.is_success(), "an upload that succeeds")?;
    let back = held.read("bytes.bin").await?;
    back.want_status(&[200], "for the file that was just uploaded")?;
    back.want(back.body == bytes, "the 256 bytes that were sent, in order")
}

async fn whole(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    // A pattern without a short period, so that a cut or a repeated block shows.
    let bytes: Vec<u8> = (0..UPLOAD_BYTES as u32).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    let answer = held.put("large.bin", Some("large.bin"), &bytes).await?;
    if answer.status == 413 {
        return Ok(());
    }
    answer.want(answer.is_success(), "201, or 413 where that is over the cap")?;
    let back = held.read("large.bin").await?;
    back.need(back.is_success(), "the file that was just uploaded")?;
    back.want(back.body == bytes, format!("the {UPLOAD_BYTES} bytes that were sent"))
}
