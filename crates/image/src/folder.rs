//! An image that is a folder with a root of its own: what is put into it, without running anything of it.

use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, fchmod, mkdirat, openat, unlinkat};
use rustix::io::Errno;

use crate::foreign::Inside;
use crate::lock::Requirement;
use crate::manifest::Libc;
use crate::python::{Python, Version};
use crate::root::etc;
use crate::{ImageError, Progress, venv};

/// The folder of packages that a declaration added, in an image's folder.
pub(crate) const PACKAGES: &str = "packages";

/// Gives a root the files of `/etc` that a cell needs, whatever the image says there.
pub(crate) fn prepare(root: &Path) -> Result<(), ImageError> {
    for file in etc() {
        put(root, &file.path, file.content.as_bytes(), false)?;
    }
    Ok(())
}

/// Puts a new file into a root, in the place of what is there. Links on the way are followed as the image's own programs
/// would follow them, never out of the root.
pub(crate) fn put(root: &Path, path: &Path, content: &[u8], executable: bool) -> Result<(), ImageError> {
    let fail =
        |error: Errno| ImageError::file("write", &root.join(path.strip_prefix("/").unwrap_or(path)))(error.into());
    let inside = Inside::open(root)?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(fail(Errno::INVAL)) };
    let folder = make_folders(&inside, parent).map_err(fail)?;
    match unlinkat(&folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(fail(error)),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(if executable { 0o755 } else { 0o644 });
    let file = openat(&folder, name, flags, mode).map_err(fail)?;
    fchmod(&file, mode).map_err(fail)?;
    fs::File::from(file).write_all(content).map_err(|error| ImageError::file("write", path)(error))
}

fn make_folders(inside: &Inside, path: &Path) -> rustix::io::Result<OwnedFd> {
    const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);
    let mut place = PathBuf::from("/");
    let mut folder = inside.at(&place, FOLDER)?;
    for part in path.components() {
        let Component::Normal(name) = part else { continue };
        place.push(name);
        folder = match inside.at(&place, FOLDER) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => {
                let mode = Mode::from_raw_mode(0o755);
                mkdirat(&folder, name, mode)?;
                let made = inside.at(&place, FOLDER)?;
                // Whatever the umask is.
                fchmod(&made, mode)?;
                made
            }
            Err(error) => return Err(error),
        };
    }
    Ok(folder)
}

/// The machine's Python with the version of the image's: what a lock is judged by.
pub(crate) fn target(machine: &Python, version: &str) -> Result<Python, ImageError> {
    let minor = version.strip_prefix("3.").and_then(|rest| rest.split('.').next()).and_then(|minor| minor.parse().ok());
    let minor = minor.ok_or(ImageError::PythonVersion {
        python: machine.executable.clone(),
        version: version.to_owned(),
        needed: "3.8 or later".to_owned(),
    })?;
    Ok(Python { version: Version { major: 3, minor, micro: 0 }, ..machine.clone() })
}

/// Packages for an image whose Python is not run: the machine's pip unpacks their wheels.
pub(crate) struct Packages<'a> {
    /// The Python whose pip works.
    pub(crate) machine: &'a Python,
    /// The image's folder.
    pub(crate) building: &'a Path,
    /// The image's Python, `3.11`.
    pub(crate) version: &'a str,
    /// The image's C library.
    pub(crate) libc: Libc,
    /// Where wheels are kept until the image stands.
    pub(crate) wheels: &'a Path,
    /// What to install.
    pub(crate) wanted: &'a [Requirement],
}

/// Fetches the wheels, and unpacks them into the image's `packages`.
pub(crate) fn install(packages: &Packages<'_>, progress: &mut dyn Progress) -> Result<(), ImageError> {
    let fit = fit(packages.version, packages.libc);
    let plan = venv::Plan {
        python: packages.machine,
        folder: packages.building,
        wheels: packages.wheels,
        wanted: packages.wanted,
        on: None,
    };
    venv::install_apart(&plan, &fit, &packages.building.join(PACKAGES), progress)
}

/// pip's options that say for which Python wheels are.
pub(crate) fn fit(version: &str, libc: Libc) -> Vec<String> {
    let mut fit: Vec<String> =
        ["--only-binary", ":all:", "--implementation", "cp", "--python-version"].map(str::to_owned).into();
    fit.push(version.to_owned());
    for platform in platforms(libc) {
        fit.extend(["--platform".to_owned(), platform]);
    }
    fit
}

/// Tags of wheels that run on this processor with that C library, the newest first.
fn platforms(libc: Libc) -> Vec<String> {
    let machine = std::env::consts::ARCH;
    match libc {
        Libc::Musl => ["musllinux_1_2", "musllinux_1_1"].map(|tag| format!("{tag}_{machine}")).into(),
        // Those that Debian 11 and everything later can run.
        _ => ["manylinux_2_28", "manylinux_2_17", "manylinux2014"].map(|tag| format!("{tag}_{machine}")).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn files_are_put_behind_the_images_links_and_never_outside() {
        let outside = tempfile::tempdir().unwrap();
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("real")).unwrap();
        symlink("/real", root.path().join("etc")).unwrap();
        fs::write(outside.path().join("passwd"), "theirs").unwrap();
        symlink(outside.path().join("passwd"), root.path().join("real/passwd")).unwrap();
        prepare(root.path()).unwrap();
        assert!(fs::read_to_string(root.path().join("real/passwd")).unwrap().starts_with("root:"));
        assert_eq!(fs::read_to_string(outside.path().join("passwd")).unwrap(), "theirs");

        let root = tempfile::tempdir().unwrap();
        symlink(outside.path(), root.path().join("etc")).unwrap();
        assert!(prepare(root.path()).is_err(), "the image's own link leads to nothing in it");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);

        let root = tempfile::tempdir().unwrap();
        symlink("../../../../../..", root.path().join("up")).unwrap();
        put(root.path(), Path::new("/up/new/file"), b"x", true).unwrap();
        assert!(root.path().join("new/file").exists());
    }
}
