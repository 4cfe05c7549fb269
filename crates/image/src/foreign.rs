//! What an image that was not made here is, found out without running anything of it: its Python, its C library, its
//! shell.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use crate::ImageError;
use crate::limits::{ELF_HEADERS_MAX, ELF_INTERPRETER_BYTES_MAX};
use crate::manifest::{Interpreter, Libc};

/// The oldest Python whose interpreter serves.
const OLDEST: u32 = 8;

/// The folder of an image, held: paths in it are walked as the image's programs would, and lead nowhere else.
pub(crate) struct Inside {
    folder: OwnedFd,
}

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) interpreter: Interpreter,
    pub(crate) libc: Libc,
    pub(crate) shell: Option<PathBuf>,
}

impl Inside {
    pub(crate) fn open(folder: &Path) -> Result<Self, ImageError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(folder, flags, Mode::empty());
        Ok(Inside { folder: opened.map_err(|e| ImageError::file("open", folder)(e.into()))? })
    }

    /// Opens what a path of the image leads to.
    pub(crate) fn at(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        openat2(&self.folder, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    }

    /// An ordinary file of the image, open, and the name that it has once links are followed.
    fn program(&self, path: &Path) -> Option<(File, String)> {
        // A FIFO would block, a device do worse: what it is is looked at first.
        let place = self.at(path, OFlags::PATH).ok()?;
        let is_file = rustix::fs::fstat(&place).ok()?;
        if rustix::fs::FileType::from_raw_mode(is_file.st_mode) != rustix::fs::FileType::RegularFile {
            return None;
        }
        let real = std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&place))).ok()?;
        let file = self.at(path, OFlags::RDONLY | OFlags::NONBLOCK).ok()?;
        Some((file.into(), real.file_name()?.to_string_lossy().into_owned()))
    }

    /// Looks for a shell and a Python in the folders of `path`, as a search for programs would.
    pub(crate) fn look(&self, path: &[&str]) -> Found {
        let folders = || path.iter().filter(|folder| folder.starts_with('/')).map(Path::new);
        let shell = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh", "/usr/bin/sh"];
        let shell = shell.iter().map(Path::new).find(|path| self.program(path).is_some());
        let mut interpreter = Interpreter::default();
        let mut libc = shell.and_then(|path| self.program(path)).and_then(|(file, _)| libc_of_file(&file));
        for candidate in folders().flat_map(|folder| ["python3", "python"].map(|name| folder.join(name))) {
            let Some((file, name)) = self.program(&candidate) else { continue };
            match self.judge(&file, &name, &candidate) {
                Ok(version) => {
                    libc = libc_of_file(&file).or(libc);
                    interpreter = Interpreter::Python { path: candidate, version };
                    break;
                }
                Err(why) => interpreter = Interpreter::None(why),
            }
        }
        Found { interpreter, libc: libc.unwrap_or_default(), shell: shell.map(Path::to_owned) }
    }

    /// The version of a Python, or why it does not serve.
    fn judge(&self, file: &File, name: &str, path: &Path) -> Result<String, String> {
        let shown = path.display();
        match machine_of(file) {
            None => return Err(format!("{shown} is no program but a script, or damaged")),
            Some(machine) if machine != this_machine() => return Err(format!("{shown} is for another processor")),
            Some(_) => {}
        }
        let minor = name.strip_prefix("python3.").and_then(|minor| minor.parse().ok());
        let minor = minor.or_else(|| self.library_minor(path)).ok_or(format!("the version of {shown} is not known"))?;
        if minor < OLDEST {
            return Err(format!("{shown} is Python 3.{minor}; 3.{OLDEST} or later is needed"));
        }
        Ok(format!("3.{minor}"))
    }

    /// `N` of the one folder `lib/python3.N` beside it.
    fn library_minor(&self, path: &Path) -> Option<u32> {
        let lib = path.parent()?.parent()?.join("lib");
        let folder = self.at(&lib, OFlags::RDONLY | OFlags::DIRECTORY).ok()?;
        let names = rustix::fs::Dir::read_from(&folder).ok()?.flatten();
        let minors = names.filter_map(|entry| entry.file_name().to_str().ok()?.strip_prefix("python3.")?.parse().ok());
        minors.max()
    }
}

/// The C library that a program of the machine is linked to.
pub(crate) fn libc_of(program: &Path) -> Option<Libc> {
    libc_of_file(&File::open(program).ok()?)
}

fn this_machine() -> u16 {
    const X86_64: u16 = 62;
    const AARCH64: u16 = 183;
    const RISCV: u16 = 243;
    match std::env::consts::ARCH {
        "aarch64" => AARCH64,
        "riscv64" => RISCV,
        _ => X86_64,
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// The first bytes of an ELF file of 64 bits, little endian; `None` where it is none.
fn header(file: &File) -> Option<[u8; 64]> {
    let mut bytes = [0; 64];
    file.read_exact_at(&mut bytes, 0).ok()?;
    bytes.starts_with(b"\x7fELF\x02\x01").then_some(bytes)
}

fn machine_of(file: &File) -> Option<u16> {
    number(&header(file)?, 18).map(u16::from_le_bytes)
}

/// By the dynamic linker that it asks for (`PT_INTERP` of elf(5)).
fn libc_of_file(file: &File) -> Option<Libc> {
    const PT_INTERP: u32 = 3;
    let header = header(file)?;
    let table = u64::from_le_bytes(number(&header, 32)?);
    let size = u16::from_le_bytes(number(&header, 54)?);
    let count = u16::from_le_bytes(number(&header, 56)?).min(ELF_HEADERS_MAX);
    if size < 56 {
        return None;
    }
    for index in 0..count {
        let mut entry = [0; 56];
        file.read_exact_at(&mut entry, table.checked_add(u64::from(size) * u64::from(index))?).ok()?;
        if u32::from_le_bytes(number(&entry, 0)?) != PT_INTERP {
            continue;
        }
        let (at, length) = (u64::from_le_bytes(number(&entry, 8)?), u64::from_le_bytes(number(&entry, 32)?));
        let mut name = Vec::new();
        let mut rest = file.try_clone().ok()?;
        std::io::Seek::seek(&mut rest, std::io::SeekFrom::Start(at)).ok()?;
        rest.take(length.min(ELF_INTERPRETER_BYTES_MAX)).read_to_end(&mut name).ok()?;
        let name = String::from_utf8_lossy(&name).into_owned();
        return Some(if name.contains("ld-musl") { Libc::Musl } else { Libc::Glibc });
    }
    Some(Libc::None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    const PATH: [&str; 3] = ["relative", "/usr/bin", "/bin"];

    fn root() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("usr/bin")).unwrap();
        symlink("usr/bin", root.path().join("bin")).unwrap();
        root
    }

    fn look(root: &tempfile::TempDir) -> Found {
        Inside::open(root.path()).unwrap().look(&PATH)
    }

    #[test]
    fn a_python_is_found_behind_links_and_known_by_its_name() {
        let root = root();
        fs::copy("/usr/bin/env", root.path().join("usr/bin/python3.11")).unwrap();
        symlink("/usr/bin/python3.11", root.path().join("usr/bin/python3")).unwrap();
        fs::copy("/bin/sh", root.path().join("usr/bin/sh")).unwrap();
        let found = look(&root);
        let path = "/usr/bin/python3".into();
        assert_eq!(found.interpreter, Interpreter::Python { path, version: "3.11".into() });
        assert_eq!((found.libc, found.shell.as_deref()), (Libc::Glibc, Some(Path::new("/bin/sh"))));
    }

    #[test]
    fn what_does_not_serve_says_why() {
        let why = |root: &tempfile::TempDir| match look(root).interpreter {
            Interpreter::None(why) => why,
            other => panic!("{other:?}"),
        };
        let dir = root();
        assert_eq!(why(&dir), "it holds no Python");
        fs::write(dir.path().join("usr/bin/python3"), "#!/bin/sh\n").unwrap();
        assert!(why(&dir).contains("script"));
        let dir = root();
        fs::copy("/usr/bin/env", dir.path().join("usr/bin/python3.7")).unwrap();
        symlink("python3.7", dir.path().join("usr/bin/python3")).unwrap();
        assert!(why(&dir).contains("3.8 or later"));
        let dir = root();
        let mut other = fs::read("/usr/bin/env").unwrap();
        other[18] = 8;
        fs::write(dir.path().join("usr/bin/python3"), other).unwrap();
        assert!(why(&dir).contains("another processor"));
    }

    #[test]
    fn links_that_lead_out_loop_or_end_in_no_file_are_nothing() {
        let outside = tempfile::tempdir().unwrap();
        fs::copy("/usr/bin/env", outside.path().join("python3.11")).unwrap();
        let dir = root();
        symlink(outside.path().join("python3.11"), dir.path().join("usr/bin/python3")).unwrap();
        symlink("python", dir.path().join("usr/bin/python")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("usr/bin/sh"), 0o600.into()).unwrap();
        let found = look(&dir);
        assert_eq!((found.interpreter, found.shell), (Interpreter::default(), None));
    }

    #[test]
    fn damaged_programs_are_no_programs() {
        for bytes in [b"\x7fELF\x02\x01".to_vec(), [b"\x7fELF\x02\x01".as_slice(), &[0xff; 200]].concat(), vec![0; 64]]
        {
            let dir = root();
            fs::write(dir.path().join("usr/bin/sh"), &bytes).unwrap();
            fs::write(dir.path().join("usr/bin/python3"), &bytes).unwrap();
            let found = look(&dir);
            assert!(matches!(found.interpreter, Interpreter::None(_)));
            assert_eq!(found.libc, Libc::None);
        }
    }
}
