//! Landlock: rules about files, TCP ports, signals and abstract sockets that a process puts on itself and on all that
//! it starts, without any privilege.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::check;

/// Rights over files and folders (`LANDLOCK_ACCESS_FS_*`), up to ABI 5.
pub mod fs {
    /// Start a program.
    pub const EXECUTE: u64 = 1;
    /// Open a file for writing.
    pub const WRITE_FILE: u64 = 1 << 1;
    /// Open a file for reading.
    pub const READ_FILE: u64 = 1 << 2;
    /// List a folder.
    pub const READ_DIR: u64 = 1 << 3;
    /// Remove an empty folder, or rename one.
    pub const REMOVE_DIR: u64 = 1 << 4;
    /// Unlink or rename a file.
    pub const REMOVE_FILE: u64 = 1 << 5;
    /// Make a character device.
    pub const MAKE_CHAR: u64 = 1 << 6;
    /// Make a folder.
    pub const MAKE_DIR: u64 = 1 << 7;
    /// Make a file.
    pub const MAKE_REG: u64 = 1 << 8;
    /// Bind a Unix socket to a path.
    pub const MAKE_SOCK: u64 = 1 << 9;
    /// Make a FIFO.
    pub const MAKE_FIFO: u64 = 1 << 10;
    /// Make a block device.
    pub const MAKE_BLOCK: u64 = 1 << 11;
    /// Make a symbolic link.
    pub const MAKE_SYM: u64 = 1 << 12;
    /// Link or rename from one folder to another (ABI 2).
    pub const REFER: u64 = 1 << 13;
    /// Shorten a file (ABI 3).
    pub const TRUNCATE: u64 = 1 << 14;
    /// `ioctl(2)` on a device (ABI 5).
    pub const IOCTL_DEV: u64 = 1 << 15;
    /// All of the above.
    pub const ALL: u64 = (1 << 16) - 1;
    /// Those that a rule about a single file may hold.
    pub const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
}

/// Rights over TCP ports (`LANDLOCK_ACCESS_NET_*`, ABI 4): bind, connect.
pub const NET_ALL: u64 = 0b11;
/// Connect to a port.
pub const NET_CONNECT: u64 = 0b10;
/// What stays inside the domain (`LANDLOCK_SCOPE_*`, ABI 6): connecting to abstract Unix sockets, sending signals.
pub const SCOPE_ALL: u64 = 0b11;

/// What a ruleset is about: whatever it names is refused but where a rule allows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handled {
    /// Rights over files.
    pub fs: u64,
    /// Rights over TCP ports.
    pub net: u64,
    /// What stays inside.
    pub scoped: u64,
}

/// `struct landlock_ruleset_attr`.
#[repr(C)]
struct RulesetAttribute {
    fs: u64,
    net: u64,
    scoped: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

/// The version of the interface that this kernel has.
///
/// # Errors
/// ENOSYS without Landlock, EOPNOTSUPP where it was switched off at boot; EPERM where a seccomp filter forbids it.
pub fn abi() -> io::Result<u32> {
    const VERSION: u32 = 1;
    let none = std::ptr::null::<RulesetAttribute>();
    // SAFETY: asked for the version, the kernel looks at no attribute.
    let version = check(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0, VERSION) })?;
    u32::try_from(version).map_err(io::Error::other)
}

/// A new ruleset.
///
/// # Errors
/// As `landlock_create_ruleset(2)`: EINVAL or E2BIG for what this kernel does not know.
pub fn ruleset(handled: Handled) -> io::Result<OwnedFd> {
    let attribute = RulesetAttribute { fs: handled.fs, net: handled.net, scoped: handled.scoped };
    let size = size_of::<RulesetAttribute>();
    // SAFETY: a live value of the size given.
    let fd = check(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attribute, size, 0) })?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made it, and nobody else holds it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Allows `access` to what is open as `parent` and, if that is a folder, to all beneath it.
///
/// # Errors
/// As `landlock_add_rule(2)`: EINVAL for rights that the ruleset does not handle, or that a file cannot have.
pub fn allow(ruleset: BorrowedFd<'_>, parent: BorrowedFd<'_>, access: u64) -> io::Result<()> {
    const PATH_BENEATH: u32 = 1;
    let rule = PathBeneath { allowed: access, parent: parent.as_raw_fd() };
    let fd = ruleset.as_raw_fd();
    // SAFETY: a live value of the layout that this kind of rule has.
    check(unsafe { libc::syscall(libc::SYS_landlock_add_rule, fd, PATH_BENEATH, &raw const rule, 0) }).map(drop)
}

/// Puts the calling thread, and all that it will start, under the ruleset, for good. It must have given up new
/// privileges. Child-safe.
///
/// # Errors
/// As `landlock_restrict_self(2)`.
pub fn restrict_self(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a live descriptor and a number.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) }).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// Rulesets are put on a thread, and a test has one of its own.
    #[test]
    fn a_thread_is_held_to_its_rules() {
        let abi = abi().expect("a kernel with Landlock");
        assert!(abi >= 6, "these tests need Landlock ABI 6 (Linux 6.12), this kernel has {abi}");
        let folder = std::env::temp_dir();
        let inside = folder.join(format!("ringfence-landlock-{}", std::process::id()));
        let handled = Handled { fs: fs::ALL, net: NET_ALL, scoped: SCOPE_ALL };
        let rules = ruleset(handled).unwrap();
        let opened = std::fs::File::open(&folder).unwrap();
        allow(rules.as_fd(), opened.as_fd(), fs::MAKE_REG | fs::WRITE_FILE | fs::REMOVE_FILE).unwrap();
        let not_for_files = std::fs::File::open("/dev/null").unwrap();
        let refused = allow(rules.as_fd(), not_for_files.as_fd(), fs::READ_DIR).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
        let confined = std::thread::spawn(move || {
            crate::process::no_new_privileges().unwrap();
            restrict_self(rules.as_fd()).unwrap();
            std::fs::write(&inside, b"x").unwrap();
            let read = std::fs::read(&inside).unwrap_err().kind();
            std::fs::remove_file(&inside).unwrap();
            (
                read,
                std::fs::read("/etc/passwd").unwrap_err().kind(),
                std::net::TcpListener::bind("127.0.0.1:0").is_err(),
            )
        });
        let denied = io::ErrorKind::PermissionDenied;
        assert_eq!(confined.join().unwrap(), (denied, denied, true));
        assert!(std::fs::read("/etc/passwd").is_ok(), "other threads are free");
    }
}
