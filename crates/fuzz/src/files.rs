//! What becomes files: the editor, uploaded archives, layers of images.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ringfence_oci::UnpackLimits;
use ringfence_op::{Edit, EditCommand, WorkspacePath};
use ringfence_workspace::Workspace;
use tempfile::TempDir;

use crate::bytes::cut;
use crate::limits::{EDITS_MAX, UNPACKED_BYTES_MAX};

const SECRET: &str = "of another session";
const VIEW_BYTES_MAX: usize = 4096;

/// A folder to write to, and beside it what must stay as it is.
struct Place {
    held: TempDir,
    dir: PathBuf,
    secret: PathBuf,
}

impl Place {
    /// In memory, where the machine has such a folder.
    fn new() -> Option<Self> {
        let memory = Path::new("/dev/shm");
        let held = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.ok()?;
        let (dir, secret) = (held.path().join("workspace"), held.path().join("secret"));
        fs::create_dir(&dir).ok()?;
        fs::write(&secret, SECRET).ok()?;
        Some(Place { held, dir, secret })
    }

    fn workspace(&self) -> Option<Workspace> {
        let root = File::open(&self.dir).ok()?;
        Some(Workspace::new(root.into(), rustix::process::geteuid().as_raw(), VIEW_BYTES_MAX))
    }

    /// Nothing beside the folder was made, changed, linked or removed.
    fn check(&self) {
        let names = fs::read_dir(self.held.path()).map(Iterator::count).unwrap_or(0);
        assert_eq!(names, 2, "something lies beside the folder");
        assert_eq!(fs::read_to_string(&self.secret).ok().as_deref(), Some(SECRET));
        let described = fs::symlink_metadata(&self.secret).ok().map(|stat| (stat.is_file(), stat.nlink()));
        assert_eq!(described, Some((true, 1)), "the file beside the folder was linked or replaced");
    }
}

/// Edits of a file: its content up to the first NUL, then edits, each ended by a NUL: a byte for the command, then
/// texts that a byte 1 separates. An undo brings back what was, byte for byte.
pub(crate) fn editor(data: &[u8]) {
    let Some(place) = Place::new() else { return };
    let Some(workspace) = place.workspace() else { return };
    let (content, mut rest) = cut(data);
    let file = place.dir.join("a");
    let mut before = vec![content.to_vec()];
    if fs::write(&file, content).is_err() {
        return;
    }
    for _ in 0..EDITS_MAX {
        let (asked, after) = cut(rest);
        rest = after;
        let Some((kind, asked)) = asked.split_first() else { break };
        let text = String::from_utf8_lossy(asked);
        let (one, other) = text.split_once('\u{1}').unwrap_or((&text, ""));
        let command = match kind % 5 {
            0 => EditCommand::View { view_range: one.parse().ok().zip(other.parse().ok()) },
            1 => EditCommand::Create { file_text: one.to_owned() },
            2 => EditCommand::StrReplace { old_str: one.to_owned(), new_str: other.to_owned() },
            3 => EditCommand::Insert { insert_line: one.parse().unwrap_or(0), new_str: other.to_owned() },
            _ => EditCommand::UndoEdit,
        };
        step(&workspace, &file, &mut before, command);
    }
    let paths = String::from_utf8_lossy(data);
    let elsewhere = Edit { path: paths.into_owned(), command: EditCommand::Create { file_text: "x".to_owned() } };
    assert!(workspace.edit(&elsewhere).is_ok(), "a path that is refused is a result");
    place.check();
}

/// One edit, held against what the texts before it were.
fn step(workspace: &Workspace, file: &Path, before: &mut Vec<Vec<u8>>, command: EditCommand) {
    let was = fs::read(file).unwrap_or_default();
    let edit = Edit { path: "a".to_owned(), command };
    let report = match workspace.edit(&edit) {
        Ok(report) => report,
        Err(fault) => failed(&format!("{fault:?}")),
    };
    let now = fs::read(file).unwrap_or_default();
    assert!(report.stdout.len() <= 16 * VIEW_BYTES_MAX, "{} bytes are shown", report.stdout.len());
    match (report.return_code, &edit.command) {
        (0, EditCommand::View { .. }) => assert_eq!(now, was),
        (0, EditCommand::UndoEdit) => assert_eq!(Some(now), before.pop(), "an undo brings back another text"),
        (0, EditCommand::StrReplace { old_str, new_str }) => {
            let grown = was.len() + 2 * new_str.len();
            assert!(now.len() <= grown && was.len() <= now.len() + 2 * old_str.len());
            before.push(was);
        }
        (0, EditCommand::Insert { new_str, .. }) => {
            assert!(now.len() >= was.len() + new_str.len(), "an insertion takes nothing away");
            before.push(was);
        }
        (0, EditCommand::Create { .. }) => failed("an existing file was made anew"),
        (_, _) => assert_eq!(now, was, "a refused edit changes nothing"),
    }
}

#[expect(clippy::panic, reason = "this is how a target says what it found")]
fn failed(fault: &str) -> ! {
    panic!("{fault}")
}

/// An uploaded archive: what comes out is in the folder, within its bound, and goes into an archive again.
pub(crate) fn archive(data: &[u8]) {
    let Some(place) = Place::new() else { return };
    let Some(workspace) = place.workspace() else { return };
    let root = WorkspacePath::root();
    let done = workspace.unpack(&root, &mut { data }, UNPACKED_BYTES_MAX);
    if let Ok(done) = done {
        assert!(done.bytes <= UNPACKED_BYTES_MAX && done.bytes <= data.len() as u64);
        let mut again = Vec::new();
        let mut packed = workspace.archive(&root).ok();
        if let Some(packed) = &mut packed {
            assert!(packed.read_to_end(&mut again).is_ok());
        }
        let other = Place::new();
        if let Some((other, workspace)) = other.as_ref().and_then(|other| Some((other, other.workspace()?))) {
            let unpacked = workspace.unpack(&root, &mut again.as_slice(), u64::MAX);
            assert!(unpacked.is_ok(), "an archive of our own is refused: {unpacked:?}");
            other.check();
        }
    }
    place.check();
}

/// A tar archive as images have them: never more content than bytes.
pub(crate) fn tape(data: &[u8]) {
    if let Ok((entries, content)) = ringfence_oci::fuzzing::tape(data) {
        assert!(content <= data.len() as u64 && entries <= data.len() as u64 / 512);
    }
}

/// A layer: nothing outside of its folder, nothing but files, folders and links in it, within its bounds.
pub(crate) fn layer(data: &[u8]) {
    let Some(place) = Place::new() else { return };
    let mut limits = UnpackLimits::default();
    limits.bytes_max = UNPACKED_BYTES_MAX;
    limits.entries_max = 1000;
    if let Ok(done) = ringfence_oci::fuzzing::layer(data, &place.dir, &limits) {
        assert!(done.entries <= limits.entries_max && done.file_bytes <= limits.bytes_max);
    }
    harmless(&place.dir);
    place.check();
}

fn harmless(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(stat) = entry.path().symlink_metadata() else { continue };
        let kind = stat.file_type();
        assert!(kind.is_file() || kind.is_dir() || kind.is_symlink(), "{:?} is {kind:?}", entry.path());
        if kind.is_file() {
            assert_eq!(stat.mode() & 0o6000, 0, "{:?} has {:o}", entry.path(), stat.mode());
        }
        if kind.is_dir() {
            harmless(&entry.path());
        }
    }
}
