//! Images that come while the server runs: the puller says what their roots are made of, and the keeper puts them
//! together in folders that were there from the start, since the daemon's Landlock rules name these.
//!
//! The puller reads what registries send, so it is not believed: whatever a root is made of lies in the store, or is
//! seen in the first image as well; and no name leads out of the root.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use ringfence_frame::puller::ToPuller;
use ringfence_op::RootSpec;
use ringfence_sys::packet;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

use super::{Image, Keeper, cells};
use crate::failure::{At, SetupFailure};
use crate::limits::PULLED_ROOT_BYTES_MAX;
use crate::step::StepName;
use crate::template;

/// What it takes to add an image.
pub(super) struct Pulls {
    link: OwnedFd,
    /// The store as the puller names it.
    store: PathBuf,
    /// Roots that wait for an image.
    rooms: VecDeque<PathBuf>,
}

impl Pulls {
    /// Shows the store to the keeper, and makes `most` empty roots after those of the images that are there already.
    pub(super) fn prepare(
        link: OwnedFd,
        tree: OwnedFd,
        store: PathBuf,
        first: usize,
        most: usize,
    ) -> Result<Pulls, SetupFailure> {
        template::show_store(tree)?;
        let rooms = (first..first + most).map(template::make_room).collect::<Result<_, _>>()?;
        Ok(Pulls { link, store, rooms })
    }

    pub(super) fn link(&self) -> &OwnedFd {
        &self.link
    }
}

impl Keeper {
    /// Takes one root and answers. A puller that is gone, or does not listen, is forgotten.
    pub(super) fn hear_puller(&mut self) {
        let Some(pulls) = &self.pulls else { return };
        let mut buffer = vec![0; PULLED_ROOT_BYTES_MAX];
        let received = packet::receive(pulls.link.as_fd(), &mut buffer);
        let added = match received {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => Err(refusal(libc::EMSGSIZE)),
            Err(_) | Ok((0, _)) => {
                self.pulls = None;
                return;
            }
            Ok((length, _)) => self.add_image(buffer.get(..length).unwrap_or_default()),
        };
        let answer = match added {
            Ok(image) => ToPuller::Added { image },
            Err(failure) => ToPuller::Refused { step: failure.step.number(), errno: failure.errno },
        };
        let Some(pulls) = &self.pulls else { return };
        if packet::send(pulls.link.as_fd(), &answer.encode(), &[]).is_err() {
            self.pulls = None;
        }
    }

    fn add_image(&mut self, bytes: &[u8]) -> Result<u32, SetupFailure> {
        let spec: RootSpec = serde_json::from_slice(bytes).map_err(|_| refusal(libc::EBADMSG))?;
        if !is_believable(&spec) {
            return Err(refusal(libc::EINVAL));
        }
        let program = cells::program(&spec).map_err(|_| refusal(libc::EINVAL))?;
        let trees = self.open(&spec)?;
        let number = u32::try_from(self.images.len()).map_err(|_| refusal(libc::EOVERFLOW))?;
        let full = || SetupFailure { step: StepName::PulledRoom, errno: libc::ENOSPC, detail: String::new() };
        let root = self.pulls.as_mut().and_then(|pulls| pulls.rooms.pop_front()).ok_or_else(full)?;
        // Where this fails the room is lost: what is half in it is seen by nobody.
        template::fill_room(&root, &spec, trees)?;
        let limits = spec.limits.within(&self.limits);
        self.images.push(Image { spec, root, limits, program });
        Ok(number)
    }

    /// Copies of what the root is made of, attached nowhere: the binds in order, then the devices.
    fn open(&self, spec: &RootSpec) -> Result<Vec<OwnedFd>, SetupFailure> {
        let (Some(pulls), Some(first)) = (&self.pulls, self.images.first()) else { return Err(refusal(libc::EINVAL)) };
        let mut trees = Vec::new();
        for bind in &spec.binds {
            let shown = first.spec.binds.iter().find(|shown| shown.source == bind.source);
            trees.push(match (bind.source.strip_prefix(&pulls.store), shown) {
                (Ok(name), _) => template::copy_of(open_beneath_store(name)?.as_fd(), &bind.source)?,
                // What every image sees, such as the wheelhouse, lies elsewhere: it is copied from the first image.
                (Err(_), Some(shown)) => template::copy_from_image(&first.root, &shown.target)?,
                (Err(_), None) => return Err(refusal(libc::EACCES)),
            });
        }
        trees.extend(template::devices_of(&first.root)?);
        Ok(trees)
    }
}

fn refusal(errno: i32) -> SetupFailure {
    SetupFailure { step: StepName::PulledRoot, errno, detail: String::new() }
}

/// Never through a link: one of an image's own could lead anywhere in the keeper's root.
fn open_beneath_store(name: &Path) -> Result<OwnedFd, SetupFailure> {
    let detail = || name.display().to_string();
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let plain = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let store = openat2(CWD, template::STORE, folder, Mode::empty(), plain).at(StepName::OpenBinds, detail)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let beneath = plain | ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
    openat2(&store, name, flags, Mode::empty(), beneath).at(StepName::OpenBinds, detail)
}

/// Whether every name in it is one that may be made in a root.
fn is_believable(spec: &RootSpec) -> bool {
    let targets = spec.binds.iter().map(|bind| &bind.target);
    let links = spec.symlinks.iter().chain(&spec.tmp_symlinks).map(|link| &link.link);
    targets.chain(links).chain(spec.files.iter().map(|file| &file.path)).all(|path| is_plain(path))
}

/// Absolute, of names alone, and not the root itself.
fn is_plain(path: &Path) -> bool {
    let mut parts = path.components();
    parts.next() == Some(Component::RootDir)
        && parts.clone().next().is_some()
        && parts.all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use ringfence_op::{Bind, RootFile, RootSymlink};

    use super::*;

    fn spec() -> RootSpec {
        RootSpec {
            binds: vec![Bind { source: "/store/x/root/usr".into(), target: "/usr".into() }],
            symlinks: vec![RootSymlink { link: "/bin".into(), target: "../../anywhere".into() }],
            files: vec![RootFile { path: "/etc/passwd".into(), content: String::new() }],
            ..RootSpec::empty("pulled")
        }
    }

    #[test]
    fn no_name_of_a_root_leads_out_of_it() {
        assert!(is_believable(&spec()), "where a link points is the image's own matter");
        for bad in ["", "/", "usr", "/usr/../../image/0", "..", "/.."] {
            let mut binds = spec();
            binds.binds[0].target = bad.into();
            let mut links = spec();
            links.symlinks[0].link = bad.into();
            let mut files = spec();
            files.files[0].path = bad.into();
            let mut tmp = spec();
            tmp.tmp_symlinks = vec![RootSymlink { link: bad.into(), target: "x".into() }];
            for wrong in [binds, links, files, tmp] {
                assert!(!is_believable(&wrong), "{bad:?}: {wrong:?}");
            }
        }
    }
}
