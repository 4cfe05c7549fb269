//! Files with strange names, of strange kinds, and in strange numbers.

use serde_json::Value;

use super::should;
use crate::bench::Bench;
use crate::check::FileOperation::{List, Put, Read};
use crate::check::{Check, Stop};
use crate::limits::{OVERSIZE_BYTES, OVERSIZE_PATIENCE};

const SECTION: &str = "Workspace";

pub(crate) const CHECKS: &[Check] = &[
    should(
        "workspace.owned",
        "programs may change what was uploaded",
        SECTION,
        "an upload belongs to the session's user: appended to, renamed, removed",
        &[Put],
        |bench| Box::pin(owned(bench)),
    ),
    should(
        "workspace.produced",
        "a result names the files that its call made or changed",
        SECTION,
        "by paths that GetFile serves, and no others",
        &[Read],
        |bench| Box::pin(produced(bench)),
    ),
    should(
        "workspace.files_only",
        "a listing holds files, not folders",
        SECTION,
        "a client fetches each path that it is shown",
        &[List],
        |bench| Box::pin(files_only(bench)),
    ),
    should(
        "workspace.names",
        "files with any name can be listed and fetched",
        SECTION,
        "whatever the file system allows and JSON can carry",
        &[List, Read],
        |bench| Box::pin(names(bench)),
    ),
    should(
        "workspace.bad_paths",
        "impossible paths are the caller's fault",
        SECTION,
        "a NUL, or a path longer than the file system knows, is a 4xx",
        &[Read, Put],
        |bench| Box::pin(bad_paths(bench)),
    ),
    should(
        "workspace.oversize",
        "a refused upload leaves what was there",
        SECTION,
        "an upload over the cap is a 413, and neither a part of it nor a hole is left",
        &[List, Read, Put],
        |bench| Box::pin(oversize(bench)),
    ),
];

async fn owned(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.put("given.txt", Some("in/given.txt"), b"given\n").await?;
    let command =
        "echo added >> in/given.txt && mv in/given.txt in/moved.txt && touch in/new && rm in/new && cat in/moved.txt";
    held.bash(command).await?.want_said("given\nadded")
}

async fn produced(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let program = "import os\nos.makedirs('made/deep', exist_ok=True)\nfor path in ('one.csv', 'made/deep/two.csv'):\n    with open(path, 'w') as file: file.write(path)";
    let ran = held.python(program).await?;
    let mut files = ran.files.clone();
    files.sort();
    ran.want(files == ["made/deep/two.csv", "one.csv"], "one.csv and made/deep/two.csv as the produced files")?;
    for path in &files {
        held.read(path).await?.want_status(&[200], "for a file that the result names")?;
    }
    let ran = held.python("print(open('one.csv').read())").await?;
    ran.want(ran.files.is_empty(), "no produced files for a call that only read")?;
    let ran = held.bash("echo more >> one.csv").await?;
    ran.want(ran.files == ["one.csv"], "one.csv as the produced file")
}

async fn files_only(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.bash("mkdir -p folder/inner && echo x > file.txt").await?;
    let list = held.list(None).await?;
    let paths: Vec<&str> = paths(&list.json);
    list.want(paths == ["file.txt"], "file.txt alone")
}

fn paths(list: &Value) -> Vec<&str> {
    let files = list.get("files").and_then(Value::as_array).into_iter().flatten();
    files.filter_map(|file| file.get("path").and_then(Value::as_str)).collect()
}

async fn names(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let names = [
        "\u{fc}ber \u{2603}.txt",
        " first blank",
        "-rf",
        "it's \"so\"",
        "two\nlines",
        "a?b=c&d#e",
        "%2e%2e%2f",
        "back\\slash",
    ];
    for name in names {
        let quoted = serde_json::Value::from(name).to_string();
        held.python(&format!("open({quoted}, 'w').write('named')")).await?;
    }
    held.python("open(b'\\xfe\\xff.txt', 'w').write('no text')").await?;
    let list = held.list(None).await?;
    list.want_status(&[200], "for a workspace with strange names")?;
    for name in names {
        list.want(paths(&list.json).contains(&name), format!("{name:?} among the files"))?;
        let file = held.read(name).await?;
        file.want(file.status == 200 && file.body == "named", "the file's five bytes")?;
    }
    Ok(())
}

async fn bad_paths(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    for path in ["nul\0nul".to_owned(), "n".repeat(6000), "d/".repeat(2500)] {
        let answer = held.read(&path).await?;
        answer.want((400..500).contains(&answer.status), "a 4xx for a path that cannot be")?;
        let answer = held.put("x", Some(&path), b"x").await?;
        answer.want((400..500).contains(&answer.status), "a 4xx for a path that cannot be")?;
    }
    Ok(())
}

async fn oversize(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.put("kept.bin", Some("kept.bin"), b"as it was").await?;
    let answer = held.put_within("kept.bin", Some("kept.bin"), &vec![0; OVERSIZE_BYTES], OVERSIZE_PATIENCE).await?;
    if answer.status == 201 {
        return Err(Stop::Skip(format!("the cap is above {} MiB", OVERSIZE_BYTES >> 20)));
    }
    answer.want_status(&[413], "for an upload over the cap")?;
    let kept = held.read("kept.bin").await?;
    kept.want(kept.body == "as it was", "the file as it was before")?;
    let list = held.list(None).await?;
    list.want(paths(&list.json) == ["kept.bin"], "kept.bin alone, and no part of the upload")
}
