//! All three file operations keep to the session's own workspace.

use super::must;
use crate::bench::Bench;
use crate::check::FileOperation::{List, Put, Read};
use crate::check::{Check, Stop};
use crate::exchange::Exchange;

const SECTION: &str = "ListFiles, GetFile, and PutFile";
const SAYS: &str = "a path that leaves the session's own workspace must be refused (403), not served or written";

pub(crate) const CHECKS: &[Check] = &[
    must("confine.list", "ListFiles does not leave the workspace", SECTION, SAYS, &[List], |bench| {
        Box::pin(list(bench))
    }),
    must("confine.read", "GetFile does not leave the workspace", SECTION, SAYS, &[Read], |bench| Box::pin(read(bench))),
    must("confine.read_link", "GetFile does not follow a link out", SECTION, SAYS, &[Read], |bench| {
        Box::pin(read_link(bench))
    }),
    must("confine.put", "PutFile does not leave the workspace", SECTION, SAYS, &[Put], |bench| Box::pin(put(bench))),
    must("confine.put_link", "PutFile does not follow a link out", SECTION, SAYS, &[Put], |bench| {
        Box::pin(put_link(bench))
    }),
];

/// A path that climbs out is a 403.
fn refused(answer: &Exchange) -> Result<(), Stop> {
    answer.want_status(&[403], "for a path outside of the workspace")
}

/// An absolute path may also be taken as one below the workspace's root, and then be missing there.
fn not_served(answer: &Exchange) -> Result<(), Stop> {
    answer.want((400..500).contains(&answer.status), "403, or 404 where it is looked for below the workspace's root")
}

async fn list(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    refused(&held.list(Some("../..")).await?)?;
    refused(&held.list(Some("a/../../..")).await?)?;
    not_served(&held.list(Some("/etc")).await?)
}

async fn read(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    refused(&held.read("../../../../../../etc/passwd").await?)?;
    not_served(&held.read("/etc/passwd").await?)
}

async fn read_link(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let made = held.python("import os\nos.symlink('/etc/passwd', 'way-out')").await?;
    if made.return_code != 0 {
        return Err(Stop::Skip("programs cannot make links here".to_owned()));
    }
    refused(&held.read("way-out").await?)
}

async fn put(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let name = Bench::mark();
    let path = format!("../{name}");
    refused(&held.put(&name, Some(&path), b"escaped").await?)?;
    not_served(&held.put(&name, Some(&format!("/tmp/{name}")), b"escaped").await?)?;
    // Refused is one thing; not written is another.
    let look = format!("import os\nprint(os.path.exists('../{name}'))\nprint(os.path.exists('/tmp/{name}'))");
    let ran = held.python(&look).await?;
    ran.want(!ran.stdout.contains("True"), "no file outside of the workspace after the refusal")
}

async fn put_link(bench: &Bench) -> Result<(), Stop> {
    let held = bench.lease().await?;
    let made = held.python("import os\nos.symlink('/tmp', 'way-out')").await?;
    if made.return_code != 0 {
        return Err(Stop::Skip("programs cannot make links here".to_owned()));
    }
    let name = Bench::mark();
    refused(&held.put(&name, Some(&format!("way-out/{name}")), b"escaped").await?)?;
    let ran = held.python(&format!("import os\nprint(os.path.exists('/tmp/{name}'))")).await?;
    ran.want(!ran.stdout.contains("True"), "no file outside of the workspace after the refusal")
}
