//! The text editor changes what it was asked to change.

use serde_json::json;

use super::should;
use crate::bench::Bench;
use crate::check::FileOperation::{Put, Read};
use crate::check::{Check, Stop};

const SECTION: &str = "Text editor";

pub(crate) const CHECKS: &[Check] = &[
    should(
        "editor.confined",
        "the editor keeps to the workspace",
        SECTION,
        "its paths are relative to the workspace's root, as those of the file operations",
        &[],
        |bench| Box::pin(confined(bench)),
    ),
    should(
        "editor.missing",
        "viewing a file that is not there is a failed call",
        SECTION,
        "the failure is in the result, and names the file",
        &[],
        |bench| Box::pin(missing(bench)),
    ),
    should(
        "editor.range",
        "a range shows its lines, both ends included",
        SECTION,
        "lines count from 1, and -1 is the last",
        &[],
        |bench| Box::pin(range(bench)),
    ),
    should(
        "editor.refusals",
        "an edit that cannot be done changes nothing",
        SECTION,
        "creating what exists, replacing what is not there once, inserting where no line is",
        &[Read],
        |bench| Box::pin(refusals(bench)),
    ),
    should(
        "editor.bytes",
        "an edit keeps every other byte",
        SECTION,
        "carriage returns, tabs, form feeds, a byte order mark, a last line without an end",
        &[Put, Read],
        |bench| Box::pin(bytes(bench)),
    ),
];

async fn confined(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let name = Bench::mark();
    let ran = held.edit(json!({"command": "view", "path": "../../../../etc/passwd"})).await?;
    ran.want(ran.failed() && !ran.stdout.contains("root:"), "a failed call")?;
    let ran = held.edit(json!({"command": "create", "path": format!("../{name}"), "file_text": "x"})).await?;
    ran.want(ran.failed(), "a failed call")?;
    held.python(&format!("import os\nprint(os.path.exists('../{name}'))")).await?.want_said("False")
}

async fn missing(bench: &Bench) -> Result<(), Stop> {
    let ran = bench.lease().await?.edit(json!({"command": "view", "path": "not-there.txt"})).await?;
    ran.want(
        ran.return_code != 0 && ran.stderr.contains("not-there.txt"),
        "a failed call that names the file on stderr",
    )
}

async fn range(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.edit(json!({"command": "create", "path": "ranged.txt", "file_text": "first\nsecond\nthird\nfourth\n"}))
        .await?;
    for (range, shown) in [([2, 3], "second\nthird"), ([3, -1], "third\nfourth"), ([1, 1], "first")] {
        let ran = held.edit(json!({"command": "view", "path": "ranged.txt", "view_range": range})).await?;
        ran.want(ran.stdout.trim_end_matches('\n') == shown, format!("{shown:?} on stdout"))?;
    }
    Ok(())
}

async fn refusals(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    held.edit(json!({"command": "create", "path": "same.txt", "file_text": "again\nagain\n"})).await?;
    for input in [
        json!({"command": "create", "path": "same.txt", "file_text": "other"}),
        json!({"command": "str_replace", "path": "same.txt", "old_str": "again", "new_str": "once"}),
        json!({"command": "str_replace", "path": "same.txt", "old_str": "never", "new_str": "once"}),
        json!({"command": "insert", "path": "same.txt", "insert_line": 40, "new_str": "x"}),
        json!({"command": "undo_edit", "path": "never-edited.txt"}),
    ] {
        let ran = held.edit(input).await?;
        ran.want(ran.return_code != 0 && !ran.stderr.trim().is_empty(), "a failed call with a reason on stderr")?;
    }
    let file = held.read("same.txt").await?;
    file.want(file.body == "again\nagain\n", "the file as it was")
}

async fn bytes(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let before: &[u8] = b"\xef\xbb\xbfhead\r\n\tmiddle\r\nform\x0cfeed\r\ntail";
    let after: &[u8] = b"\xef\xbb\xbfhead\r\n\tMIDDLE\r\nform\x0cfeed\r\ntail";
    held.put("mixed.txt", Some("mixed.txt"), before).await?;
    held.edit(json!({"command": "str_replace", "path": "mixed.txt", "old_str": "middle", "new_str": "MIDDLE"})).await?;
    let file = held.read("mixed.txt").await?;
    file.want(file.body == after, "one word changed and every other byte kept")
}
