//! Where an entry goes: its name, walked from the root of the image as a program in the image would.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::readlinkat;
use rustix::io::Errno;

use super::folder::{Folder, is_dir, is_link, look, step};
use crate::limits::{LINKS_FOLLOWED_MAX, PATH_BYTES_MAX, PATH_DEPTH_MAX};

/// The longest name of one file, bytes (NAME_MAX).
const NAME_BYTES_MAX: usize = 255;

/// A folder of the image, held, and its path from the root without links.
pub(super) struct Parent {
    pub(super) dir: OwnedFd,
    pub(super) path: Vec<u8>,
}

impl Parent {
    /// The path of a name in it.
    pub(super) fn join(&self, name: &[u8]) -> Vec<u8> {
        if self.path.is_empty() { name.to_vec() } else { [self.path.as_slice(), b"/", name].concat() }
    }
}

/// Makes one folder in another.
pub(super) type Make<'a> = &'a dyn Fn(BorrowedFd<'_>, &[u8]) -> Result<(), Errno>;

/// Why there is no such place.
pub(super) enum NoPlace {
    /// The entry is refused, in words.
    Refused(String),
    /// The kernel refused.
    Failed(&'static str, Errno),
}

/// The parts of an entry's name; empty for the root itself.
pub(super) fn parts(name: &[u8]) -> Result<Vec<&[u8]>, String> {
    if name.len() > PATH_BYTES_MAX {
        return Err(format!("its name is over {PATH_BYTES_MAX} bytes"));
    }
    if name.starts_with(b"/") {
        return Err("its name is absolute".to_owned());
    }
    if name.contains(&0) {
        return Err("its name has a NUL in it".to_owned());
    }
    let parts: Vec<&[u8]> = name.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
    if parts.contains(&b"..".as_slice()) {
        return Err("its name has `..` in it".to_owned());
    }
    if parts.len() > PATH_DEPTH_MAX {
        return Err(format!("it lies more than {PATH_DEPTH_MAX} folders deep"));
    }
    if parts.iter().any(|part| part.len() > NAME_BYTES_MAX) {
        return Err(format!("a part of its name is over {NAME_BYTES_MAX} bytes"));
    }
    Ok(parts)
}

/// The folder of these parts. Links on the way are followed as in the image: an absolute one from its root. One that
/// climbs out of the root is refused. Missing folders are made by `make`; without it the answer is `None` then.
pub(super) fn walk(root: &Folder, parts: &[&[u8]], make: Option<Make<'_>>) -> Result<Option<Parent>, NoPlace> {
    // Nearly always there is no link on the way: one call, and the kernel holds it beneath the root.
    let plain = parts.join(&b'/');
    match root.folder(&plain) {
        Ok(dir) => return Ok(Some(Parent { dir, path: plain })),
        Err(Errno::LOOP | Errno::NOENT | Errno::NOTDIR) => {}
        Err(error) => return Err(NoPlace::Failed("open the folder", error)),
    }
    let mut todo: Vec<Vec<u8>> = parts.iter().rev().map(|part| part.to_vec()).collect();
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut dir = open(root, &names)?;
    let mut links = 0;
    while let Some(part) = todo.pop() {
        if part == b".." {
            names.pop().ok_or_else(|| NoPlace::Refused("a link on its way leads out of the image".to_owned()))?;
            dir = open(root, &names)?;
            continue;
        }
        match look(dir.as_fd(), &part).map_err(|error| NoPlace::Failed("look at the folder", error))? {
            Some(stat) if is_link(&stat) => {
                links += 1;
                if links > LINKS_FOLLOWED_MAX {
                    return Err(NoPlace::Refused("there are too many links on its way".to_owned()));
                }
                let target = readlinkat(&dir, part.as_slice(), Vec::new())
                    .map_err(|error| NoPlace::Failed("read a link", error))?
                    .into_bytes();
                if target.starts_with(b"/") {
                    names.clear();
                    dir = open(root, &names)?;
                }
                let steps = target.split(|byte| *byte == b'/').rev().filter(|step| !matches!(*step, b"" | b"."));
                todo.extend(steps.map(<[u8]>::to_vec));
                continue;
            }
            Some(stat) if is_dir(&stat) => {}
            Some(_) => return Err(NoPlace::Refused("something on its way is no folder".to_owned())),
            None => match make {
                Some(make) => make(dir.as_fd(), &part).map_err(|error| NoPlace::Failed("make a folder", error))?,
                None => return Ok(None),
            },
        }
        dir = step(dir.as_fd(), &part).map_err(|error| NoPlace::Failed("open a folder", error))?;
        names.push(part);
        if names.len() > PATH_DEPTH_MAX {
            return Err(NoPlace::Refused(format!("it lies more than {PATH_DEPTH_MAX} folders deep")));
        }
    }
    Ok(Some(Parent { dir, path: names.join(&b'/') }))
}

fn open(root: &Folder, names: &[Vec<u8>]) -> Result<OwnedFd, NoPlace> {
    root.folder(&names.join(&b'/')).map_err(|error| NoPlace::Failed("open the folder", error))
}
