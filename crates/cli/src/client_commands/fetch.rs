//! Files from a session to this machine.

use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail};
use ringfence_client::Session;
use tokio::io::AsyncWriteExt;

use super::transfer::Bar;
use crate::limits::PART_NAMES_MAX;

/// Where a file of that name goes below a folder.
///
/// # Errors
/// When the name leaves the folder, also by a link in it: a backend says it, and a backend may be hostile.
pub(crate) fn place(folder: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    if name.is_empty() || !plain {
        bail!("the backend names a file {name:?}, which is outside of the folder {}", folder.display());
    }
    let place = folder.join(name);
    for between in place.ancestors().skip(1).take_while(|between| *between != folder) {
        if between.is_symlink() {
            bail!("{name:?} lies behind {}, which is a link: take another folder", between.display());
        }
    }
    Ok(place)
}

/// Fetches a file. What was at its place stays until the whole file is there.
///
/// # Errors
/// When the file is not there, the transfer breaks, the local file cannot be written, or its place is taken by something
/// other than a regular file: a device or a link would be replaced, not written to.
pub(crate) async fn fetch(session: &Session, path: &str, local: &Path) -> anyhow::Result<u64> {
    let about = || local.display().to_string();
    if local.file_name().is_none() {
        bail!("{} is no file's name", local.display());
    }
    if tokio::fs::symlink_metadata(local).await.is_ok_and(|there| !there.is_file()) {
        bail!("{} is there and is no regular file: choose another name, or - for standard output", local.display());
    }
    let mut download = session.open(path).await?;
    if let Some(folder) = local.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        tokio::fs::create_dir_all(folder).await.with_context(about)?;
    }
    let bar = Bar::new(path, download.length());
    let (part, mut file) = begin(local)?;
    let mut bytes: u64 = 0;
    while let Some(piece) = download.chunk().await? {
        file.write_all(&piece).await.with_context(about)?;
        bar.more(piece.len());
        bytes = bytes.saturating_add(piece.len() as u64);
    }
    file.flush().await.with_context(about)?;
    part.take_its_place(local).with_context(about)?;
    Ok(bytes)
}

/// The beginning of a transfer beside its place, removed unless all of it came: also where the transfer is given up.
struct Part(Option<PathBuf>);

/// A new file: what is there already, a link perhaps, is not ours to write to or to remove. What a transfer left that was
/// killed does not stand in the way of another one, not even of the same process id.
fn begin(local: &Path) -> anyhow::Result<(Part, tokio::fs::File)> {
    let mut tries = 0..PART_NAMES_MAX;
    loop {
        // Not of the file's own name: with more to it, it could be too long.
        let number = tries.next().unwrap_or_default();
        let part = local.with_file_name(format!(".ringfence-{}-{number}.part", std::process::id()));
        match std::fs::File::create_new(&part) {
            Ok(file) => return Ok((Part(Some(part)), tokio::fs::File::from_std(file))),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && !tries.is_empty() => {}
            Err(error) => return Err(error).with_context(|| part.display().to_string()),
        }
    }
}

impl Part {
    fn take_its_place(mut self, local: &Path) -> std::io::Result<()> {
        let Some(part) = self.0.take() else { return Ok(()) };
        std::fs::rename(&part, local).inspect_err(|_| self.0 = Some(part))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(part) = &self.0 {
            // The failure that is told is the one of the transfer.
            let _ = std::fs::remove_file(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_the_folder() {
        let folder = Path::new("out");
        assert_eq!(place(folder, "a/b.png").unwrap(), Path::new("out/a/b.png"));
        for name in ["", "../x", "a/../../x", "/etc/passwd", "./x", ".."] {
            assert!(place(folder, name).is_err(), "{name}");
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("plain")).unwrap();
        std::os::unix::fs::symlink("/tmp", folder.path().join("link")).unwrap();
        assert!(place(folder.path(), "plain/deep/x").is_ok());
        assert!(place(folder.path(), "link/x").is_err() && place(folder.path(), "link/deep/x").is_err());
    }
}
