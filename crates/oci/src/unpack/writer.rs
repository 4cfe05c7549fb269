//! The entries of one layer, one after the other.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{self, AtFlags, Gid, Mode, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::folder::{Folder, is_dir, look, names, new_file, set_mode, step};
use super::made::Made;
use super::place::{NoPlace, Parent, parts, walk};
use super::{Owners, UnpackLimits, Unpacked};
use crate::OciError;
use crate::error::shown;
use crate::limits::COPY_BYTES;
use crate::tape::{Entry, Kind, Tape};

/// How names begin that stand for what a layer removes.
const WHITEOUT: &[u8] = b".wh.";
/// Stands for everything in its folder.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// How the names of a storage driver's own files begin; they mean nothing here.
const DRIVER: &[u8] = b".wh..wh.";
/// Character devices that every `/dev` has, and a cell's own has too.
const USUAL_DEVICES: [(u64, u64); 8] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 1), (5, 2)];
/// Whose a file is whose owner has no id here.
const NOBODY: u32 = 65_534;

type Done = Result<(), Refused>;

/// Why an entry was not written; the entry's name is added by whoever has it.
enum Refused {
    Why(String),
    Failed(&'static str, std::io::Error),
    Whole(OciError),
}

impl Refused {
    fn named(self, entry: &[u8]) -> OciError {
        match self {
            Refused::Why(why) => OciError::entry(entry, why),
            Refused::Failed(what, source) => OciError::Write { entry: shown(entry), what, source },
            Refused::Whole(error) => error,
        }
    }
}

impl From<NoPlace> for Refused {
    fn from(place: NoPlace) -> Self {
        match place {
            NoPlace::Refused(why) => Refused::Why(why),
            NoPlace::Failed(what, error) => Refused::Failed(what, error.into()),
        }
    }
}

fn failed(what: &'static str) -> impl FnOnce(Errno) -> Refused {
    move |error| Refused::Failed(what, error.into())
}

fn why(text: &str) -> Refused {
    Refused::Why(text.to_owned())
}

/// Applies a layer.
pub(super) struct Writer<'a> {
    root: &'a Folder,
    owners: Owners,
    limits: &'a UnpackLimits,
    unpacked: &'a mut Unpacked,
    made: Made,
    /// When folders were modified, set at the end: what is written into them changes it.
    times: Vec<(Vec<u8>, (i64, u32))>,
    /// The folder of the last entry, with its name as entries have it.
    last: Option<(Vec<u8>, Parent)>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(root: &'a Folder, owners: Owners, limits: &'a UnpackLimits, unpacked: &'a mut Unpacked) -> Self {
        Writer { root, owners, limits, unpacked, made: Made::new(), times: Vec::new(), last: None }
    }

    /// What the root is unless a layer says otherwise.
    pub(super) fn root(&self) -> Result<(), OciError> {
        let described = self.ids(0, 0).and_then(|owner| describe_root(self.root.fd(), owner));
        described.map_err(|refused| refused.named(b"."))
    }

    pub(super) fn layer<R: Read>(&mut self, tape: &mut Tape<R>) -> Result<(), OciError> {
        while let Some(entry) = tape.next()? {
            self.unpacked.entries += 1;
            if self.unpacked.entries > self.limits.entries_max {
                let why = format!("with it the image has over {} entries", self.limits.entries_max);
                return Err(OciError::entry(&entry.name, why));
            }
            self.entry(tape, &entry).map_err(|refused| refused.named(&entry.name))?;
        }
        for (path, modified) in std::mem::take(&mut self.times) {
            // What a later entry removed has no time to be set.
            if let Ok(dir) = self.root.folder(&path) {
                set_time(dir.as_fd(), b".", modified).map_err(|refused| refused.named(&path))?;
            }
        }
        Ok(())
    }

    fn entry<R: Read>(&mut self, tape: &mut Tape<R>, entry: &Entry) -> Done {
        let parts = parts(&entry.name).map_err(Refused::Why)?;
        let Some((name, parents)) = parts.split_last() else {
            return match entry.kind {
                Kind::Directory => self.describe_folder(self.root.fd(), b".", Vec::new(), entry),
                _ => Err(why("it is the root and no folder")),
            };
        };
        if parents.iter().any(|part| part.starts_with(WHITEOUT)) {
            return Err(why("it lies in what the layer removes"));
        }
        if name.starts_with(WHITEOUT) {
            return self.whiteout(entry, parents, name);
        }
        match entry.kind {
            Kind::File => self.file(tape, entry, parents, name),
            Kind::Directory => self.folder(entry, parents, name),
            Kind::Symlink => self.symlink(entry, parents, name),
            Kind::HardLink => self.hard_link(entry, parents, name),
            Kind::Fifo => {
                self.unpacked.leave_out(&entry.name);
                Ok(())
            }
            Kind::Device { block: false, major, minor }
                if parts.first() == Some(&b"dev".as_slice()) && USUAL_DEVICES.contains(&(major, minor)) =>
            {
                self.unpacked.leave_out(&entry.name);
                Ok(())
            }
            Kind::Device { .. } => Err(why("it is a device")),
            Kind::Other(kind) => Err(Refused::Why(format!("it is of a type that no image needs (0x{kind:02x})"))),
        }
    }

    fn file<R: Read>(&mut self, tape: &mut Tape<R>, entry: &Entry, parents: &[&[u8]], name: &[u8]) -> Done {
        let total = self.unpacked.file_bytes.saturating_add(entry.bytes());
        if total > self.limits.bytes_max {
            return Err(Refused::Why(format!("with it the image's files are over {} bytes", self.limits.bytes_max)));
        }
        self.unpacked.file_bytes = total;
        let owner = self.owner(entry)?;
        let parent = self.place(parents, name)?;
        let mut file = new_file(parent.dir.as_fd(), name).map_err(failed("create the file"))?;
        self.last = Some((parents.join(&b'/'), parent));
        write(tape, entry, &mut file)?;
        if let Some((uid, gid)) = owner {
            fs::fchown(&file, Some(uid), Some(gid)).map_err(failed("give the file to its owner"))?;
        }
        let least = if self.owners == Owners::Drop { 0o400 } else { 0 };
        // Without set-user-ID and set-group-ID: on the host they would be what the image's maker wants.
        let mode = Mode::from_raw_mode(entry.mode & self.rights(0o777) | least);
        fs::fchmod(&file, mode).map_err(failed("set the mode of the file"))?;
        fs::futimens(&file, &times(entry.modified)).map_err(failed("set the time of the file"))
    }

    fn folder(&mut self, entry: &Entry, parents: &[&[u8]], name: &[u8]) -> Done {
        let parent = self.parent(parents)?;
        let path = parent.join(name);
        let dir = parent.dir.as_fd();
        let found = look(dir, name).map_err(failed("look for"))?;
        if !found.as_ref().is_some_and(is_dir) {
            self.clear(&parent, name)?;
            fs::mkdirat(dir, name, Mode::from_raw_mode(0o700)).map_err(failed("make the folder"))?;
        }
        // A folder may be there twice: archivers that append do so, and nothing is hidden by it.
        self.made.mark(&path);
        self.describe_folder(dir, name, path, entry)?;
        self.last = Some((parents.join(&b'/'), parent));
        Ok(())
    }

    /// Sets owner and mode of a folder now, its time later.
    fn describe_folder(&mut self, dir: BorrowedFd<'_>, name: &[u8], path: Vec<u8>, entry: &Entry) -> Done {
        let least = if self.owners == Owners::Drop { 0o700 } else { 0 };
        let folder = step(dir, name).map_err(failed("open the folder"))?;
        if let Some((uid, gid)) = self.owner(entry)? {
            fs::chownat(&folder, ".", Some(uid), Some(gid), AtFlags::empty())
                .map_err(failed("give the folder to its owner"))?;
        }
        let mode = Mode::from_raw_mode(entry.mode & self.rights(0o3777) | least);
        set_mode(folder.as_fd(), mode).map_err(failed("set the mode of the folder"))?;
        self.times.push((path, entry.modified));
        Ok(())
    }

    fn symlink(&mut self, entry: &Entry, parents: &[&[u8]], name: &[u8]) -> Done {
        if entry.link.is_empty() || entry.link.contains(&0) {
            return Err(why("it links to nothing"));
        }
        let owner = self.owner(entry)?;
        let parent = self.place(parents, name)?;
        let dir = parent.dir.as_fd();
        fs::symlinkat(entry.link.as_slice(), dir, name).map_err(failed("make the link"))?;
        if let Some((uid, gid)) = owner {
            fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(failed("give the link to its owner"))?;
        }
        set_time(dir, name, entry.modified)?;
        self.last = Some((parents.join(&b'/'), parent));
        Ok(())
    }

    fn hard_link(&mut self, entry: &Entry, parents: &[&[u8]], name: &[u8]) -> Done {
        let target = parts(&entry.link).map_err(|text| Refused::Why(format!("of what it links to, {text}")))?;
        let missing = || why("it links to what is not there");
        let (target_name, target_parents) = target.split_last().ok_or_else(missing)?;
        let parent = self.place(parents, name)?;
        let source = walk(self.root, target_parents, None)?.ok_or_else(missing)?;
        let found = look(source.dir.as_fd(), target_name).map_err(failed("look for what it links to"))?;
        if is_dir(&found.ok_or_else(missing)?) {
            return Err(why("it links to a folder"));
        }
        fs::linkat(&source.dir, *target_name, &parent.dir, name, AtFlags::empty()).map_err(failed("make the link"))?;
        self.last = Some((parents.join(&b'/'), parent));
        Ok(())
    }

    fn whiteout(&mut self, entry: &Entry, parents: &[&[u8]], name: &[u8]) -> Done {
        if entry.kind != Kind::File || entry.bytes() != 0 {
            return Err(why("it removes, and is no empty file"));
        }
        if name != OPAQUE && name.starts_with(DRIVER) {
            return Ok(());
        }
        let removed = name.strip_prefix(WHITEOUT).unwrap_or_default();
        if matches!(removed, b"" | b"." | b"..") {
            return Err(why("it removes nothing that has a name"));
        }
        // Nothing to be removed where there is not even the folder.
        let Some(parent) = walk(self.root, parents, None)? else { return Ok(()) };
        self.last = None;
        if name == OPAQUE { self.clear_below(&parent) } else { self.remove_lower(&parent, removed) }
    }

    /// The folder for an entry that is no folder, with nothing of its name in it any more.
    fn place(&mut self, parents: &[&[u8]], name: &[u8]) -> Result<Parent, Refused> {
        let parent = self.parent(parents)?;
        self.clear(&parent, name)?;
        self.made.mark(&parent.join(name));
        Ok(parent)
    }

    /// Removes what lower layers have of that name; what this layer has is not replaced.
    fn clear(&mut self, parent: &Parent, name: &[u8]) -> Done {
        let path = parent.join(name);
        if self.made.is_own(&path) {
            return Err(why("it is there twice"));
        }
        if self.made.is_above(&path) {
            return Err(why("it replaces a folder that its own layer has filled"));
        }
        if look(parent.dir.as_fd(), name).map_err(failed("look for"))?.is_some() {
            self.last = None;
            self.remove_lower(parent, name)?;
        }
        Ok(())
    }

    /// Removes a name with all beneath it, but for what this layer has made.
    fn remove_lower(&self, parent: &Parent, name: &[u8]) -> Done {
        let dir = parent.dir.as_fd();
        let Some(stat) = look(dir, name).map_err(failed("look for"))? else { return Ok(()) };
        let path = parent.join(name);
        let (own, above) = (self.made.is_own(&path), self.made.is_above(&path));
        if !is_dir(&stat) {
            if own {
                return Ok(());
            }
            return fs::unlinkat(dir, name, AtFlags::empty()).map_err(failed("remove what it replaces"));
        }
        let folder = step(dir, name).map_err(failed("open a folder"))?;
        self.clear_below(&Parent { dir: folder, path })?;
        if own || above {
            return Ok(());
        }
        fs::unlinkat(dir, name, AtFlags::REMOVEDIR).map_err(failed("remove what it replaces"))
    }

    fn clear_below(&self, folder: &Parent) -> Done {
        let names = names(folder.dir.as_fd()).map_err(failed("list a folder"))?;
        names.iter().try_for_each(|name| self.remove_lower(folder, name))
    }

    /// The folder that an entry lies in; missing ones are made, as the image's root's.
    fn parent(&mut self, parents: &[&[u8]]) -> Result<Parent, Refused> {
        let name = parents.join(&b'/');
        if let Some((last, parent)) = self.last.take()
            && last == name
        {
            return Ok(parent);
        }
        let owner = self.ids(0, 0)?;
        let make = |dir: BorrowedFd<'_>, name: &[u8]| {
            let mode = Mode::from_raw_mode(0o755);
            fs::mkdirat(dir, name, mode)?;
            set_mode(step(dir, name)?.as_fd(), mode)?;
            owner.map_or(Ok(()), |(uid, gid)| fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW))
        };
        let parent = walk(self.root, parents, Some(&make))?;
        parent.ok_or_else(|| why("its folder is not there"))
    }

    /// Of these, what is kept of a mode. Where all is ours nobody else may write, nor is a group handed on.
    fn rights(&self, bits: u32) -> u32 {
        if self.owners == Owners::Drop { bits & !0o2022 } else { bits }
    }

    fn owner(&self, entry: &Entry) -> Result<Option<(Uid, Gid)>, Refused> {
        self.ids(entry.uid, entry.gid)
    }

    fn ids(&self, uid: u64, gid: u64) -> Result<Option<(Uid, Gid)>, Refused> {
        let id = |id: u64| -> Option<u32> {
            let id = u32::try_from(id).ok();
            match self.owners {
                Owners::Keep | Owners::Drop => id,
                Owners::Shift { base, count } => {
                    let within = id.filter(|id| *id < count);
                    base.checked_add(within.unwrap_or(NOBODY.min(count.saturating_sub(1))))
                }
            }
            // chown(2): -1 is "as it is".
            .filter(|id| *id != u32::MAX)
        };
        if self.owners == Owners::Drop {
            return Ok(None);
        }
        match (id(uid), id(gid)) {
            (Some(uid), Some(gid)) => Ok(Some((Uid::from_raw(uid), Gid::from_raw(gid)))),
            _ => Err(why("its owner is no id of this machine")),
        }
    }
}

fn describe_root(root: BorrowedFd<'_>, owner: Option<(Uid, Gid)>) -> Done {
    if let Some((uid, gid)) = owner {
        fs::fchown(root, Some(uid), Some(gid)).map_err(failed("give the folder to its owner"))?;
    }
    fs::fchmod(root, Mode::from_raw_mode(0o755)).map_err(failed("set the mode of the folder"))
}

/// Copies the content of an entry; what lies between the runs of a sparse file stays a hole.
fn write<R: Read>(tape: &mut Tape<R>, entry: &Entry, file: &mut File) -> Done {
    let write_failed = |source| Refused::Failed("write the file", source);
    let whole = [(0, entry.stored)];
    let runs = entry.sparse.as_ref().map_or(whole.as_slice(), |sparse| &sparse.runs);
    let most = usize::try_from(entry.stored).unwrap_or(usize::MAX).min(COPY_BYTES);
    let mut buffer = vec![0; most];
    for (offset, length) in runs {
        if entry.sparse.is_some() {
            file.seek(SeekFrom::Start(*offset)).map_err(write_failed)?;
        }
        let mut left = *length;
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let count = tape.read(buffer.get_mut(..wanted).unwrap_or_default()).map_err(Refused::Whole)?;
            if count == 0 {
                return Err(why("it ends before its end"));
            }
            file.write_all(buffer.get(..count).unwrap_or_default()).map_err(write_failed)?;
            left -= count as u64;
        }
    }
    if entry.sparse.is_some() {
        file.set_len(entry.bytes()).map_err(write_failed)?;
    }
    Ok(())
}

fn set_time(dir: BorrowedFd<'_>, name: &[u8], modified: (i64, u32)) -> Done {
    fs::utimensat(dir, name, &times(modified), AtFlags::SYMLINK_NOFOLLOW).map_err(failed("set the time"))
}

/// File systems keep less than 64 bits of seconds; what is out of the range of all of them is brought into it.
fn times((seconds, nanos): (i64, u32)) -> Timestamps {
    let time = Timespec { tv_sec: seconds.clamp(0, i64::from(u32::MAX)), tv_nsec: i64::from(nanos) };
    Timestamps { last_access: time, last_modification: time }
}
