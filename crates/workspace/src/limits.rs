//! Every bound of this room, by name. Units come last in a name.

/// Tries of an `openat2` that lost a race against a rename (`EAGAIN`, openat2(2)).
pub const OPEN_TRIES_MAX: u32 = 32;
/// Symbolic links followed on one path (the kernel's own `MAXSYMLINKS`).
pub const LINKS_FOLLOWED_MAX: u32 = 40;
/// Components looked at while one path is walked, those of links included.
pub const WALK_STEPS_MAX: u32 = 4096;
/// How deep a folder may lie that an upload, an edit or an archive makes.
pub const FOLDER_DEPTH_MAX: usize = 128;
/// Tries to find a free temporary name (64 random bits each).
pub const TEMP_NAME_TRIES_MAX: u32 = 8;

/// Files in one listing; more are left out and the listing says so.
pub const LIST_ENTRIES_MAX: usize = 50_000;
/// Bytes of all paths in one listing.
pub const LIST_PATH_BYTES_MAX: usize = 16 << 20;
/// Entries of folders looked at for one listing (files, folders and what cannot be listed).
pub const LIST_VISITED_MAX: usize = 200_000;
/// Symbolic links resolved for one listing; the links beyond are left out and the listing says so.
pub const LIST_LINKS_MAX: usize = 1_000;

/// Entries looked at by one scan for changes.
pub const SCAN_ENTRIES_MAX: usize = 200_000;
/// Folders watched in one workspace; a workspace with more is scanned after each call.
pub const WATCHED_FOLDERS_MAX: usize = 1_024;
/// Events taken from the shared inotify queue at one call's end.
pub const DRAIN_EVENTS_MAX: usize = 65_536;
/// File ids that one workspace remembers; the oldest are forgotten first.
pub const FILE_IDS_MAX: usize = 4_096;
/// Bytes of the paths behind the remembered file ids.
pub const FILE_ID_PATH_BYTES_MAX: usize = 1 << 20;

/// The largest file that the editor changes, or views by a range of lines.
pub const EDIT_BYTES_MAX: u64 = 16 << 20;
/// Entries of a folder's view.
pub const VIEW_ENTRIES_MAX: usize = 1_000;
/// Edits that one workspace can take back.
pub const UNDO_STEPS_MAX: usize = 256;
/// Bytes of replaced text kept for them.
pub const UNDO_BYTES_MAX: usize = 4 << 20;
/// Line numbers named in the refusal of an ambiguous replacement.
pub const MATCH_LINES_SHOWN_MAX: usize = 10;

/// Entries of one archive, in either direction.
pub const ARCHIVE_ENTRIES_MAX: usize = 200_000;
/// Bytes of one extended header or long name in an archive that is unpacked.
pub const ARCHIVE_HEADER_BYTES_MAX: usize = 64 << 10;
/// Bytes moved at once between an archive and a file.
pub const ARCHIVE_CHUNK_BYTES: usize = 64 << 10;

/// Characters of a caller's path that are repeated in a text.
pub const SHOWN_PATH_CHARS_MAX: usize = 200;
