//! Copies of folders by hard links: what two images have in common is kept once.

use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::ImageError;
use crate::limits::SHARE_READ_BYTES;

/// Makes `copy` a folder with the same files: hard links, so that nothing in it may be changed in its place.
pub(crate) fn link_tree(folder: &Path, copy: &Path) -> Result<(), ImageError> {
    let mut waiting = vec![folder.to_owned()];
    let mut folders = Vec::new();
    while let Some(path) = waiting.pop() {
        let place = copy.join(path.strip_prefix(folder).unwrap_or(&path));
        let metadata = fs::symlink_metadata(&path).map_err(ImageError::file("look at", &path))?;
        if !metadata.is_dir() {
            fs::hard_link(&path, &place).map_err(ImageError::file("link", &path))?;
            continue;
        }
        fs::create_dir(&place).map_err(ImageError::file("create", &place))?;
        for entry in fs::read_dir(&path).map_err(ImageError::file("list", &path))? {
            waiting.push(entry.map_err(ImageError::file("list", &path))?.path());
        }
        folders.push((place, metadata));
    }
    // Last, so that a folder that may not be written to could be filled.
    for (place, metadata) in folders.into_iter().rev() {
        if (metadata.uid(), metadata.gid()) != of(&place)? {
            std::os::unix::fs::chown(&place, Some(metadata.uid()), Some(metadata.gid()))
                .map_err(ImageError::file("give its owner to", &place))?;
        }
        let rights = fs::Permissions::from_mode(metadata.mode() & 0o7777);
        fs::set_permissions(&place, rights).map_err(ImageError::file("make readable", &place))?;
    }
    Ok(())
}

/// Replaces files of `folder` by those of `other` that have the same path, owner, mode, time and bytes: what two images
/// have from the same layer is kept once.
pub(crate) fn share(folder: &Path, other: &Path) -> Result<(), ImageError> {
    let mut waiting = vec![PathBuf::new()];
    while let Some(inside) = waiting.pop() {
        let here = folder.join(&inside);
        for entry in fs::read_dir(&here).map_err(ImageError::file("list", &here))? {
            let entry = entry.map_err(ImageError::file("list", &here))?;
            let place = inside.join(entry.file_name());
            let (mine, theirs) = (folder.join(&place), other.join(&place));
            let metadata = fs::symlink_metadata(&mine).map_err(ImageError::file("look at", &mine))?;
            let Ok(same) = fs::symlink_metadata(&theirs) else { continue };
            if metadata.is_dir() && same.is_dir() {
                waiting.push(place);
            } else if is_alike(&metadata, &same) && has_same_bytes(&mine, &theirs)? {
                let new = here.join(".ringfence-shared");
                fs::hard_link(&theirs, &new).map_err(ImageError::file("link", &theirs))?;
                fs::rename(&new, &mine).map_err(ImageError::file("put in place", &mine))?;
            }
        }
    }
    Ok(())
}

/// Two different files that differ in nothing but, perhaps, their bytes. A file with several names stays as it is.
fn is_alike(one: &Metadata, two: &Metadata) -> bool {
    let facts = |m: &Metadata| (m.mode(), m.uid(), m.gid(), m.len(), m.mtime(), m.mtime_nsec());
    one.is_file() && two.is_file() && one.ino() != two.ino() && one.nlink() == 1 && facts(one) == facts(two)
}

fn has_same_bytes(one: &Path, two: &Path) -> Result<bool, ImageError> {
    let open = |path: &Path| File::open(path).map_err(ImageError::file("open", path));
    let (mut one_file, mut two_file) = (open(one)?, open(two)?);
    let (mut left, mut right) = (vec![0; SHARE_READ_BYTES], vec![0; SHARE_READ_BYTES]);
    loop {
        let length = one_file.read(&mut left).map_err(ImageError::file("read", one))?;
        let (Some(left), Some(right)) = (left.get(..length), right.get_mut(..length)) else { return Ok(false) };
        if length == 0 {
            return Ok(true);
        }
        match two_file.read_exact(right) {
            Ok(()) if left == right => {}
            Ok(()) => return Ok(false),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(ImageError::file("read", two)(error)),
        }
    }
}

fn of(place: &Path) -> Result<(u32, u32), ImageError> {
    let metadata = fs::symlink_metadata(place).map_err(ImageError::file("look at", place))?;
    Ok((metadata.uid(), metadata.gid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_same_files_and_modes() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        fs::create_dir_all(one.join("sub")).unwrap();
        fs::write(one.join("sub/file"), "x").unwrap();
        std::os::unix::fs::symlink("/nowhere", one.join("sub/link")).unwrap();
        fs::set_permissions(one.join("sub"), fs::Permissions::from_mode(0o555)).unwrap();
        link_tree(&one, &two).unwrap();
        let inode = |path: &Path| fs::symlink_metadata(path).unwrap().ino();
        assert_eq!(inode(&one.join("sub/file")), inode(&two.join("sub/file")));
        assert_eq!(fs::read_link(two.join("sub/link")).unwrap(), Path::new("/nowhere"));
        assert_eq!(fs::metadata(two.join("sub")).unwrap().mode() & 0o777, 0o555);
        let content = |path: &Path| crate::digest::content_of(path, "-").unwrap().digest;
        assert_eq!(content(&one), content(&two));
    }
}
