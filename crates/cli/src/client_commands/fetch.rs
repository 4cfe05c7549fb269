//! Files from a session to this machine.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail};
use ringfence_client::Session;
use tokio::io::AsyncWriteExt;

use super::transfer::Bar;

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
    let (Some(name), about) = (local.file_name(), || local.display().to_string()) else {
        bail!("{} is no file's name", local.display());
    };
    if tokio::fs::symlink_metadata(local).await.is_ok_and(|there| !there.is_file()) {
        bail!("{} is there and is no regular file: choose another name, or - for standard output", local.display());
    }
    let mut download = session.open(path).await?;
    if let Some(folder) = local.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        tokio::fs::create_dir_all(folder).await.with_context(about)?;
    }
    let mut part = name.to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = local.with_file_name(part);
    let bar = Bar::new(path, download.length());
    // A new one: what is there already, a link perhaps, is not ours to write to or to remove.
    let mut file = tokio::fs::File::create_new(&part).await.with_context(|| part.display().to_string())?;
    let written = async {
        let mut bytes: u64 = 0;
        while let Some(piece) = download.chunk().await? {
            file.write_all(&piece).await.with_context(|| part.display().to_string())?;
            bar.more(piece.len());
            bytes = bytes.saturating_add(piece.len() as u64);
        }
        file.flush().await.with_context(|| part.display().to_string())?;
        tokio::fs::rename(&part, local).await.with_context(about)?;
        Ok(bytes)
    }
    .await;
    if written.is_err() {
        // The failure that is told is the one of the transfer.
        let _ = tokio::fs::remove_file(&part).await;
    }
    written
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
