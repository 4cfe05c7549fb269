//! The text editor: `view`, `create`, `str_replace`, `insert`, `undo_edit`.
//!
//! Files are bytes here. An edit reads the whole file, changes one place of it and puts the new file in the old one's
//! place in one step; a refusal has written nothing. Every refusal is the result of the call: return code 1 and one
//! line on stderr that names the path as the caller gave it.

mod text;
mod undo;
mod view;

use ringfence_op::{Edit, EditCommand, Fault, ProducedFile, WorkspacePath};
use rustix::fs::{AtFlags, Mode, ResolveFlags, unlinkat};
use std::io::Write;
use std::os::fd::AsFd;

use crate::changes::is_visible;
use crate::error::{FileError, shown};
use crate::limits::EDIT_BYTES_MAX;
use crate::opened::OpenedFile;
use crate::root::{Last, Place, READ, open_at, regular, stat_of};
use crate::temp::Temp;
use crate::workspace::Inner;
use text::Splice;
use undo::Back;
pub(crate) use undo::UndoLog;

/// What an editor call came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EditReport {
    /// The view, or a line that says what was done.
    pub stdout: String,
    /// One line where the call was refused.
    pub stderr: String,
    /// 0, or 1 where the call was refused.
    pub return_code: i32,
    /// The file that the edit made or changed, unless it is hidden or was taken back whole.
    pub files: Vec<ProducedFile>,
}

/// Why an edit ends early.
#[derive(Debug)]
enum Stop {
    Refused(String),
    File(FileError),
}

impl Stop {
    fn refused(text: impl Into<String>) -> Self {
        Stop::Refused(text.into())
    }
}

impl From<FileError> for Stop {
    fn from(error: FileError) -> Self {
        Stop::File(error)
    }
}

/// What was done, and the plain path of the file that there is now.
type Done = (String, Option<Vec<u8>>);

pub(crate) fn edit(inner: &Inner, edit: &Edit) -> Result<EditReport, Fault> {
    let name = shown(&edit.path);
    let done = WorkspacePath::parse(&edit.path)
        .map_err(|refusal| Stop::File(FileError::from_refusal(refusal)))
        .and_then(|path| carry_out(inner, &path, &name, &edit.command));
    let why = match done {
        Ok((stdout, plain)) => {
            let files = plain.and_then(|plain| produced(inner, &plain)).into_iter().collect();
            return Ok(EditReport { stdout, files, ..EditReport::default() });
        }
        Err(Stop::Refused(text)) => text,
        Err(Stop::File(error @ FileError::House { .. })) => return Err(error.fault(&edit.path)),
        Err(Stop::File(error)) => error.to_string(),
    };
    Ok(EditReport { stderr: format!("{name}: {why}\n"), return_code: 1, ..EditReport::default() })
}

fn carry_out(inner: &Inner, path: &WorkspacePath, name: &str, command: &EditCommand) -> Result<Done, Stop> {
    let raw = path.as_str().as_bytes();
    match command {
        EditCommand::View { view_range } => Ok((view::view(inner, path, *view_range)?, None)),
        EditCommand::Create { file_text } => {
            create(inner, raw, file_text).map(|plain| (format!("created {name}\n"), Some(plain)))
        }
        EditCommand::StrReplace { old_str, new_str } => {
            let (plain, line) = change(inner, raw, |text| text::replace(text, old_str, new_str))?;
            Ok((format!("replaced the text at line {line} of {name}\n"), Some(plain)))
        }
        EditCommand::Insert { insert_line, new_str } => {
            let (plain, _) = change(inner, raw, |text| text::insert(text, *insert_line, new_str))?;
            Ok((format!("inserted the text after line {insert_line} of {name}\n"), Some(plain)))
        }
        EditCommand::UndoEdit => {
            let left = take_back(inner, raw)?;
            Ok((format!("took back the last edit of {name}\n"), left))
        }
    }
}

fn create(inner: &Inner, path: &[u8], text: &str) -> Result<Vec<u8>, Stop> {
    let mut log = inner.undo();
    if text.len() as u64 > EDIT_BYTES_MAX {
        return Err(Stop::refused(format!("file_text is larger than {EDIT_BYTES_MAX} bytes; upload the file instead")));
    }
    let temp = filled(inner, text.as_bytes())?;
    let place = inner.root.place_making_folders(path, Last::Follow)?;
    let written = match &place.found {
        Some(_) => Err(FileError::Exists),
        None => publish(inner, temp, &place, false),
    };
    if let Err(error) = written {
        inner.root.unmake(&place.made);
        return Err(error.into());
    }
    log.push(&place.plain, Back::Remove { made: place.made }, text.as_bytes());
    Ok(place.plain)
}

/// Changes one place of a file; answers its plain path and the line of the change.
fn change(
    inner: &Inner,
    path: &[u8],
    how: impl FnOnce(&[u8]) -> Result<Splice, String>,
) -> Result<(Vec<u8>, usize), Stop> {
    let mut log = inner.undo();
    let place = inner.root.place(path, Last::Follow)?;
    let before = read_place(&place)?;
    let splice = how(&before).map_err(Stop::Refused)?;
    let lost = || Stop::refused("the place of the change is not in the file");
    let after = splice.apply(&before).ok_or_else(lost)?;
    if after.len() as u64 > EDIT_BYTES_MAX {
        return Err(Stop::refused(format!(
            "the file would be larger than {EDIT_BYTES_MAX} bytes, the most that is edited"
        )));
    }
    let back = splice.inverse(&before).ok_or_else(lost)?;
    publish(inner, filled(inner, &after)?, &place, true)?;
    log.push(&place.plain, Back::Change(back), &after);
    Ok((place.plain, text::line_at(&before, splice.at)))
}

/// Takes the last edit of a file back; answers the plain path where a file is left.
fn take_back(inner: &Inner, path: &[u8]) -> Result<Option<Vec<u8>>, Stop> {
    let mut log = inner.undo();
    let place = inner.root.place(path, Last::Follow)?;
    if !log.knows(&place.plain) {
        return Err(Stop::refused("there is no edit of this file to take back"));
    }
    let content = read_place(&place)?;
    let back = match log.last(&place.plain, &content) {
        Some((back, true)) => back.clone(),
        _ => {
            return Err(Stop::refused(
                "the file was changed by something else since its last edit; nothing was undone",
            ));
        }
    };
    let left = match back {
        Back::Change(splice) => {
            let before = splice.apply(&content).ok_or_else(|| Stop::refused("the edit is not in the file any more"))?;
            publish(inner, filled(inner, &before)?, &place, true)?;
            Some(place.plain.clone())
        }
        Back::Remove { made } => {
            unlinkat(&place.dir, place.name.as_slice(), AtFlags::empty())
                .map_err(|errno| FileError::from_errno(errno, "removing a file"))?;
            inner.root.unmake(&made);
            None
        }
    };
    log.pop(&place.plain);
    Ok(left)
}

/// The content of the regular file at a place.
fn read_place(place: &Place) -> Result<Vec<u8>, Stop> {
    place.file_or_nothing()?;
    let fd = open_at(place.dir.as_fd(), &place.name, READ, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        .map_err(|errno| FileError::from_errno(errno, "opening a file of a workspace"))?;
    let stat = stat_of(fd.as_fd())?;
    regular(&stat)?;
    read_whole(&OpenedFile::new(fd, &stat))
}

/// The whole content, where it is not too large to be edited.
fn read_whole(opened: &OpenedFile) -> Result<Vec<u8>, Stop> {
    let size = opened.size();
    if size > EDIT_BYTES_MAX {
        return Err(Stop::refused(format!(
            "it has {size} bytes, and lines are looked at in files of {EDIT_BYTES_MAX} bytes at most; use the shell"
        )));
    }
    view::read_piece(opened, 0, usize::try_from(size).unwrap_or(usize::MAX))
}

fn filled(inner: &Inner, content: &[u8]) -> Result<Temp, FileError> {
    let temp = Temp::new(&inner.root)?;
    temp.file().write_all(content).map_err(|error| FileError::from_io(error, "writing an edited file"))?;
    Ok(temp)
}

fn publish(inner: &Inner, temp: Temp, place: &Place, replace: bool) -> Result<(), FileError> {
    if let Some(stat) = temp.publish(&inner.root, place, place.mode(), replace)? {
        inner.changes().note(&place.plain, &stat);
    }
    Ok(())
}

fn produced(inner: &Inner, plain: &[u8]) -> Option<ProducedFile> {
    let path = WorkspacePath::parse(std::str::from_utf8(plain).ok()?).ok()?;
    is_visible(plain).then(|| inner.changes().produced(path))
}
