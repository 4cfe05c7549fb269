//! The keeper's own root, and in it the read-only root of each image, made once; cells get copies of the mounts.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use ringfence_op::{RootFile, RootSpec, RootSymlink};
use ringfence_sys::mount::{NODEV, NOEXEC, NOSUID, RDONLY, restrict};
use ringfence_weaken::{Mitigation, holds};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount, mount_change, move_mount, open_tree,
    unmount,
};
use rustix::process::{chdir, chroot, fchdir, pivot_root};

use crate::failure::{At, SetupFailure};
use crate::plan::Way;
use crate::step::StepName;

/// Files of `/dev` that a cell has, beside what it makes itself.
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
/// Folders that cells mount on.
const MOUNT_POINTS: [&str; 5] = ["proc", "tmp", "workspace", "dev/shm", "dev/pts"];
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("dev/fd", "/proc/self/fd"),
    ("dev/stdin", "/proc/self/fd/0"),
    ("dev/stdout", "/proc/self/fd/1"),
    ("dev/stderr", "/proc/self/fd/2"),
    ("dev/ptmx", "pts/ptmx"),
];
/// Holds the roots of the images, each by its number.
pub(crate) const ROOTS: &str = "/image";
/// Where the keeper sees the store, if images may come later.
pub(crate) const STORE: &str = "/store";
const COPY: OpenTreeFlags =
    OpenTreeFlags::OPEN_TREE_CLONE.union(OpenTreeFlags::OPEN_TREE_CLOEXEC).union(OpenTreeFlags::AT_RECURSIVE);
/// Bytes of the small tmpfs that holds a root together.
const ROOT_BYTES: &str = "16777216";

/// Copies of the host's folders and devices, read-only, attached nowhere: the binds in order, then the devices.
pub(crate) fn open_trees(spec: &RootSpec) -> Result<Vec<OwnedFd>, SetupFailure> {
    let binds = spec.binds.iter().map(|bind| (bind.source.clone(), of_a_root()));
    let attributes = (of_a_root() & !NODEV) | NOEXEC;
    let devices = devices().iter().map(|name| (Path::new("/dev").join(name), attributes));
    binds.chain(devices).map(|(source, attributes)| open_one(&source, attributes)).collect()
}

/// How all of a root is mounted, but its devices.
fn of_a_root() -> u64 {
    let of = |mitigation, attribute| if holds(mitigation) { attribute } else { 0 };
    of(Mitigation::ReadOnlyRoot, RDONLY) | of(Mitigation::NoSetUserId, NOSUID) | of(Mitigation::NoDeviceFiles, NODEV)
}

fn devices() -> &'static [&'static str] {
    if holds(Mitigation::FewDevices) { &DEVICES } else { &["null", "zero", "full", "random", "urandom", "kmsg"] }
}

fn open_one(source: &Path, attributes: u64) -> Result<OwnedFd, SetupFailure> {
    let detail = || format!("{} for the image", source.display());
    let tree = open_tree(CWD, source, COPY).at(StepName::OpenBinds, detail)?;
    restrict(tree.as_fd(), attributes, true).at(StepName::OpenBinds, detail)?;
    Ok(tree)
}

/// A read-only copy of the folder of the store.
pub(crate) fn open_store(store: &Path) -> Result<OwnedFd, SetupFailure> {
    open_one(store, RDONLY | NOSUID | NODEV)
}

/// Attaches it to the keeper's own root, of which cells see their image's root alone.
pub(crate) fn show_store(tree: OwnedFd) -> Result<(), SetupFailure> {
    let detail = || STORE.to_owned();
    fs::create_dir(STORE).at(StepName::KeeperRoot, detail)?;
    move_mount(&tree, "", CWD, STORE, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).at(StepName::KeeperRoot, detail)
}

/// A read-only copy of what is open.
pub(crate) fn copy_of(opened: BorrowedFd<'_>, source: &Path) -> Result<OwnedFd, SetupFailure> {
    let detail = || source.display().to_string();
    let tree = open_tree(opened, "", COPY | OpenTreeFlags::AT_EMPTY_PATH).at(StepName::OpenBinds, detail)?;
    restrict(tree.as_fd(), of_a_root(), true).at(StepName::OpenBinds, detail)?;
    Ok(tree)
}

/// A copy of what an image shows at `target`.
pub(crate) fn copy_from_image(root: &Path, target: &Path) -> Result<OwnedFd, SetupFailure> {
    open_one(&root.join(relative(target)), of_a_root())
}

/// Copies of an image's devices.
pub(crate) fn devices_of(root: &Path) -> Result<Vec<OwnedFd>, SetupFailure> {
    DEVICES.iter().map(|name| open_one(&root.join("dev").join(name), RDONLY | NOSUID | NOEXEC)).collect()
}

/// Leaves the host's mounts for a root that holds a `/proc` and the images. Tells the way on which roots are changed
/// here.
pub(crate) fn make_keeper_root() -> Result<Way, SetupFailure> {
    let detail = String::new;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).at(StepName::KeeperRoot, detail)?;
    let root = small_tmpfs().at(StepName::KeeperRoot, detail)?;
    move_mount(&root, "", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).at(StepName::KeeperRoot, detail)?;
    fchdir(&root).at(StepName::KeeperRoot, detail)?;
    for folder in ["proc", "image"] {
        fs::create_dir(folder).at(StepName::KeeperRoot, || folder.to_owned())?;
    }
    // Before the host's /proc goes: a user namespace may mount one only while it sees one that hides nothing.
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "proc", "proc", flags, None).at(StepName::KeeperProc, detail)?;
    let way = match pivot_root(".", ".") {
        Ok(()) => {
            let leaving = || "leaving the host's root".to_owned();
            unmount(".", UnmountFlags::DETACH).at(StepName::KeeperRoot, leaving)?;
            Way::Pivot
        }
        // Container engines forbid this one call even where they allow all others that mount; the new root lies over
        // the old one already.
        Err(Errno::PERM | Errno::NOSYS) => {
            chroot(".").at(StepName::KeeperRoot, || "chroot".to_owned())?;
            Way::Cover
        }
        Err(error) => return Err(error).at(StepName::KeeperRoot, || "pivot_root".to_owned()),
    };
    chdir("/").at(StepName::KeeperRoot, detail)?;
    Ok(way)
}

fn small_tmpfs() -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", "tmpfs")?;
    fsconfig_set_string(&context, "size", ROOT_BYTES)?;
    fsconfig_set_string(&context, "mode", "0755")?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Puts the root of image number `index` together, and gives its path. `trees` are those of [`open_trees`].
pub(crate) fn make_image_root(index: usize, spec: &RootSpec, trees: Vec<OwnedFd>) -> Result<PathBuf, SetupFailure> {
    let root = make_room(index)?;
    fill_room(&root, spec, trees)?;
    Ok(root)
}

/// The folder of image number `index`, with nothing in it.
pub(crate) fn make_room(index: usize) -> Result<PathBuf, SetupFailure> {
    let root = PathBuf::from(format!("{ROOTS}/{index}"));
    make_room_at(&root)?;
    Ok(root)
}

/// The same as the new folder `root`.
pub(crate) fn make_room_at(root: &Path) -> Result<(), SetupFailure> {
    let detail = || root.display().to_string();
    fs::create_dir(root).at(StepName::ImageRoot, detail)?;
    let tmpfs = small_tmpfs().at(StepName::ImageRoot, detail)?;
    move_mount(&tmpfs, "", CWD, root, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).at(StepName::ImageRoot, detail)
}

/// Puts a root together in it, after which it is read-only.
pub(crate) fn fill_room(root: &Path, spec: &RootSpec, trees: Vec<OwnedFd>) -> Result<(), SetupFailure> {
    let detail = || spec.image.clone();
    for folder in MOUNT_POINTS {
        fs::create_dir_all(root.join(folder)).at(StepName::ImageRoot, || folder.to_owned())?;
    }
    let devices = devices().iter().map(|name| Path::new("/dev").join(name));
    let targets = spec.binds.iter().map(|bind| bind.target.clone()).chain(devices);
    for (target, tree) in targets.zip(trees) {
        attach(&root.join(relative(&target)), tree).at(StepName::ImageRoot, || target.display().to_string())?;
    }
    for (link, target) in DEVICE_LINKS {
        std::os::unix::fs::symlink(target, root.join(link)).at(StepName::ImageRoot, || link.to_owned())?;
    }
    for link in &spec.symlinks {
        make_link(root, link).at(StepName::ImageRoot, || link.link.display().to_string())?;
    }
    for file in &spec.files {
        make_file(root, file).at(StepName::ImageRoot, || file.path.display().to_string())?;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = open(root, flags, Mode::empty()).at(StepName::ImageRoot, detail)?;
    restrict(opened.as_fd(), of_a_root(), false).at(StepName::ImageRoot, detail)
}

fn attach(target: &Path, tree: OwnedFd) -> io::Result<()> {
    if FileType::from_raw_mode(fstat(&tree)?.st_mode) == FileType::Directory {
        fs::create_dir_all(target)?;
    } else {
        make_parent(target)?;
        fs::OpenOptions::new().create(true).append(true).open(target)?;
    }
    Ok(move_mount(&tree, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

fn make_link(root: &Path, link: &RootSymlink) -> io::Result<()> {
    let place = root.join(relative(&link.link));
    make_parent(&place)?;
    std::os::unix::fs::symlink(&link.target, place)
}

fn make_file(root: &Path, file: &RootFile) -> io::Result<()> {
    let place = root.join(relative(&file.path));
    make_parent(&place)?;
    fs::write(place, &file.content)
}

fn make_parent(place: &Path) -> io::Result<()> {
    place.parent().map_or(Ok(()), fs::create_dir_all)
}

/// Without the leading slash, so that it can be put below another root.
fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// Files of `/proc` that are masked in cells, where this kernel has them: what says something of the host.
pub(crate) fn masks() -> Vec<String> {
    const MASKED: [&str; 8] =
        ["kcore", "keys", "key-users", "kmsg", "latency_stats", "sched_debug", "timer_list", "vmallocinfo"];
    let there = MASKED.iter().filter(|name| Path::new("/proc").join(name).exists());
    there.map(|name| (*name).to_owned()).collect()
}
