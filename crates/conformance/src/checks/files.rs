//! ListFiles and GetFile.

use serde_json::Value;

use super::must;
use crate::bench::Bench;
use crate::check::FileOperation::{List, Read};
use crate::check::{Check, Stop};
use crate::exchange::Exchange;
use crate::held::Held;
use crate::shape::{Kind, Shape};

const SECTION: &str = "ListFiles, GetFile, and PutFile";
const BINDING: &str = "HTTP/JSON binding";
const TEXT: &str = "written by a program";

pub(crate) const CHECKS: &[Check] = &[
    must(
        "files.list_shape",
        "a listing has its shape",
        SECTION,
        "an object with a list of files; each has a path and a size in bytes, and may have a media type and a time",
        &[List],
        |bench| Box::pin(list_shape(bench)),
    ),
    must(
        "files.list_size",
        "a listing shows a program's file with its size",
        SECTION,
        "ListFiles enumerates the workspace, so that a client finds what the code produced",
        &[List],
        |bench| Box::pin(list_size(bench)),
    ),
    must(
        "files.list_folder",
        "a folder's files are listed by paths from the workspace's root",
        SECTION,
        "the path of an entry is relative to the workspace's root",
        &[List],
        |bench| Box::pin(list_folder(bench)),
    ),
    must(
        "files.list_missing",
        "a folder that is not there is a 404",
        BINDING,
        "what does not exist is a 404",
        &[List],
        |bench| Box::pin(list_missing(bench)),
    ),
    must(
        "files.read_program_file",
        "a program's file is served, byte for byte",
        SECTION,
        "GetFile reads one file of the workspace, so that a client retrieves what the code produced",
        &[Read],
        |bench| Box::pin(read_program_file(bench)),
    ),
    must(
        "files.read_missing",
        "a file that is not there is a 404",
        BINDING,
        "an unknown file is a 404",
        &[Read],
        |bench| Box::pin(read_missing(bench)),
    ),
    must(
        "files.read_folder",
        "a folder is no file: 400",
        SECTION,
        "GetFile of a folder is refused with 400",
        &[Read],
        |bench| Box::pin(read_folder(bench)),
    ),
];

/// A session in which a program has written one file.
async fn with_file<'a>(bench: &'a Bench, path: &str) -> Result<Held<'a>, Stop> {
    let held = bench.lease().await?;
    held.python(&format!("open('{path}', 'w').write('{TEXT}')")).await?.need_success()?;
    Ok(held)
}

async fn list_shape(bench: &Bench) -> Result<(), Stop> {
    let list = with_file(bench, "listed.txt").await?.list(None).await?;
    list.want_status(&[200], "for the workspace itself")?;
    let Some(files) = list.json.get("files").and_then(Value::as_array) else {
        return Err(Stop::Fail(list.finding("an object whose files is a list")));
    };
    for file in files {
        let faults = Shape::of(file)
            .required("path", Kind::Text)
            .required("size_bytes", Kind::Count)
            .optional("mime_type", Kind::TextOrNull)
            .optional("modified_at", Kind::Number)
            .faults();
        list.want(faults.is_none(), faults.unwrap_or_default())?;
    }
    Ok(())
}

/// The entry of a path; where nothing can be read at all, that is the shape's finding.
fn entry<'a>(list: &'a Exchange, path: &str) -> Result<Option<&'a Value>, Stop> {
    match list.json.get("files").and_then(Value::as_array) {
        Some(files) if files.iter().all(|file| file.get("path").is_some_and(Value::is_string)) => {
            Ok(files.iter().find(|file| file.get("path").and_then(Value::as_str) == Some(path)))
        }
        _ => Err(Stop::Unjudged(list.finding("a listing that can be read"))),
    }
}

async fn list_size(bench: &Bench) -> Result<(), Stop> {
    let list = with_file(bench, "sized.txt").await?.list(None).await?;
    let Some(file) = entry(&list, "sized.txt")? else {
        return Err(Stop::Fail(list.finding("\"sized.txt\" among the files, which a program has just written")));
    };
    let size = file.get("size_bytes").and_then(Value::as_f64).filter(|size| size.fract() == 0.0 && *size >= 0.0);
    let Some(size) = size else { return Err(Stop::Unjudged(list.finding("a size that can be read"))) };
    list.want(size == TEXT.len() as f64, format!("size_bytes {} for \"sized.txt\"", TEXT.len()))
}

async fn list_folder(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let program = format!("import os\nos.mkdir('folder')\nopen('folder/inner.txt', 'w').write('{TEXT}')");
    held.python(&program).await?.need_success()?;
    let list = held.list(Some("folder")).await?;
    list.want_status(&[200], "for a folder of the workspace")?;
    let found = entry(&list, "folder/inner.txt")?.is_some();
    list.want(found, "\"folder/inner.txt\" among the files of \"folder\"")
}

async fn list_missing(bench: &Bench) -> Result<(), Stop> {
    bench.lease().await?.list(Some("no-such-folder")).await?.want_status(&[404], "for a folder that is not there")
}

async fn read_program_file(bench: &Bench) -> Result<(), Stop> {
    let file = with_file(bench, "served.txt").await?.read("served.txt").await?;
    file.want_status(&[200], "for a file that a program has just written")?;
    file.want(file.body == TEXT, format!("{TEXT:?} as the whole body"))
}

async fn read_missing(bench: &Bench) -> Result<(), Stop> {
    bench.lease().await?.read("no-such-file.txt").await?.want_status(&[404], "for a file that is not there")
}

async fn read_folder(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.python("import os\nos.mkdir('only-a-folder')").await?.need_success()?;
    held.read("only-a-folder").await?.want_status(&[400], "for a folder")
}
