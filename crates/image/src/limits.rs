//! Bounds of this room.

use std::time::Duration;

/// Wheels that are fetched at the same time.
pub(crate) const DOWNLOADS_AT_ONCE: usize = 4;
/// How often pip may try one request again.
pub(crate) const PIP_RETRIES: u32 = 2;
/// The last lines of pip's output that an error carries.
pub(crate) const TAIL_LINES_MAX: usize = 12;
/// The most of a log that is read for them, bytes.
pub(crate) const TAIL_BYTES_MAX: u64 = 16 << 10;
/// How long one process waits for another that builds the same image.
pub(crate) const OTHER_BUILD_WAIT_MAX: Duration = Duration::from_secs(3600);
/// How often it looks.
pub(crate) const OTHER_BUILD_POLL: Duration = Duration::from_millis(200);
/// The largest manifest that is read, bytes.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// Images of one store.
pub(crate) const IMAGES_MAX: usize = 1024;
/// Names in one store.
pub(crate) const NAMES_MAX: usize = 4096;
/// The longest name, bytes: as much as a lease can say.
pub(crate) const NAME_BYTES_MAX: usize = 256;
/// The largest file of names that is read, bytes.
pub(crate) const NAMES_BYTES_MAX: u64 = 4 << 20;
/// The largest declaration that is read, bytes.
pub(crate) const DECLARATION_BYTES_MAX: u64 = 256 << 10;
/// The largest file that a declaration names, bytes: a lock, or a file of the image.
pub(crate) const FILE_BYTES_MAX: u64 = 64 << 20;
/// Files that a declaration puts into its image.
pub(crate) const FILES_MAX: usize = 256;
/// Entries of each other list of a declaration.
pub(crate) const LIST_MAX: usize = 256;
/// Entries at the top of an image that is a folder.
pub(crate) const TOP_ENTRIES_MAX: usize = 64;
/// Program headers of one ELF file that are looked at.
pub(crate) const ELF_HEADERS_MAX: u16 = 64;
/// The longest name of a dynamic linker that is read, bytes.
pub(crate) const ELF_INTERPRETER_BYTES_MAX: u64 = 4096;
/// Bytes that are read at a time where two files are compared.
pub(crate) const SHARE_READ_BYTES: usize = 128 << 10;
/// Packages of a lock file.
pub(crate) const PACKAGES_MAX: usize = 2000;
/// The longest name, and the longest version, of a package that pip found, bytes: both go into a file's name.
pub(crate) const PACKAGE_BYTES_MAX: usize = 120;
/// What is shown of one that is refused, characters.
pub(crate) const SHOWN_CHARS_MAX: usize = 100;
/// The largest start-up script whose first line is rewritten, bytes.
pub(crate) const SCRIPT_BYTES_MAX: u64 = 256 << 10;
/// The least memory that an image may name for its sessions, bytes; of a server's setting as well.
pub(crate) const MEMORY_BYTES_MIN: u64 = 64 << 20;
/// The fewest processes.
pub(crate) const PROCESSES_MIN: u64 = 8;
/// The least of a CPU.
pub(crate) const CPUS_MIN: f64 = 0.01;
/// The most CPUs.
pub(crate) const CPUS_MAX: f64 = 1024.0;
/// The smallest `/workspace`, and `/tmp`, bytes.
pub(crate) const WORKSPACE_BYTES_MIN: u64 = 1 << 20;
/// The fewest files of a workspace.
pub(crate) const WORKSPACE_FILES_MIN: u64 = 16;
/// The longest ceiling of a timeout, seconds: a year.
pub(crate) const TIMEOUT_SECONDS_MAX: u64 = 366 * 24 * 3600;
/// The largest report of pip's that is read, bytes: it carries the descriptions of all packages.
pub(crate) const REPORT_BYTES_MAX: u64 = 64 << 20;
