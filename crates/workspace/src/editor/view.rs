//! What a view shows.

use std::ops::ControlFlow;
use std::os::fd::AsFd;

use ringfence_op::WorkspacePath;
use rustix::fs::FileType;

use super::{Stop, read_whole, text};
use crate::changes::is_visible;
use crate::error::{FileError, IS_DIRECTORY, shown};
use crate::limits::{LIST_ENTRIES_MAX, VIEW_ENTRIES_MAX};
use crate::opened::OpenedFile;
use crate::root::join;
use crate::tree::{each_entry, open_folder};
use crate::workspace::Inner;

pub(super) fn view(inner: &Inner, path: &WorkspacePath, range: Option<(i64, i64)>) -> Result<String, Stop> {
    let max = inner.view_bytes_max;
    let opened = match inner.root.open_file(path.as_str().as_bytes()) {
        Ok((fd, stat)) => OpenedFile::new(fd, &stat),
        Err(FileError::NotAFile(IS_DIRECTORY)) if range.is_none() => return view_folder(inner, path),
        Err(FileError::NotAFile(IS_DIRECTORY)) => return Err(Stop::refused("it is a directory: it has no view_range")),
        Err(error) => return Err(error.into()),
    };
    match range {
        None => view_file(&opened, max),
        Some((first, last)) => {
            let content = read_whole(&opened)?;
            let (first, last) = lines_of(&content, first, last)?;
            Ok(capped(text::lines(&content, first, last), max))
        }
    }
}

/// A whole file: what is more than may be shown is not even read.
fn view_file(opened: &OpenedFile, max: usize) -> Result<String, Stop> {
    let (head, tail) = (max / 2, max - max / 2);
    let size = opened.size();
    if size <= max as u64 {
        return Ok(capped(&read_piece(opened, 0, max)?, max));
    }
    let first = read_piece(opened, 0, head)?;
    let last = read_piece(opened, size - tail as u64, tail)?;
    Ok(head_and_tail(&first, &last, size))
}

pub(super) fn read_piece(opened: &OpenedFile, offset: u64, bytes: usize) -> Result<Vec<u8>, Stop> {
    let left = usize::try_from(opened.size().saturating_sub(offset)).unwrap_or(usize::MAX);
    let mut piece = vec![0; bytes.min(left)];
    let mut filled = 0;
    while let Some(rest) = piece.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match opened.read_at(offset + filled as u64, rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) => return Err(FileError::from_io(error, "reading a file").into()),
        }
    }
    piece.truncate(filled);
    Ok(piece)
}

/// The first and last line of a range, checked.
fn lines_of(content: &[u8], first: i64, last: i64) -> Result<(usize, usize), Stop> {
    let count = text::line_count(content);
    let wanted = usize::try_from(first).ok().zip(if last == -1 { Some(count) } else { usize::try_from(last).ok() });
    let whole_of_nothing = count == 0 && first == 1 && last == -1;
    wanted.filter(|(first, last)| whole_of_nothing || (*first >= 1 && first <= last && *last <= count)).ok_or_else(
        || {
            Stop::refused(format!(
                "view_range is [{first}, {last}], but the file has {count} lines: it must be [first, last] with \
                 1 <= first <= last <= {count}, or -1 as last for the end"
            ))
        },
    )
}

/// A text of at most `max` bytes: what is more loses its middle.
pub(super) fn capped(text: &[u8], max: usize) -> String {
    if text.len() <= max {
        return String::from_utf8_lossy(text).into_owned();
    }
    let (head, _) = text.split_at(max / 2);
    let (_, tail) = text.split_at(text.len() - (max - max / 2));
    head_and_tail(head, tail, text.len() as u64)
}

/// The beginning and the end of a text of `size` bytes, with one line between them that counts what is not shown.
fn head_and_tail(head: &[u8], tail: &[u8], size: u64) -> String {
    // A character that the cut went through is left out whole.
    let head = whole_head(head);
    let begun = tail.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    let tail = tail.get(begun..).unwrap_or_default();
    let dropped = size.saturating_sub((head.len() + tail.len()) as u64);
    let mut text = String::from_utf8_lossy(head).into_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&format!("[... {dropped} bytes not shown ...]\n"));
    text.push_str(&String::from_utf8_lossy(tail));
    text
}

/// The text without a last character that is only begun.
fn whole_head(head: &[u8]) -> &[u8] {
    for back in 1..=3.min(head.len()) {
        let at = head.len() - back;
        let wanted = match head.get(at) {
            Some(0xc0..=0xdf) => 2,
            Some(0xe0..=0xef) => 3,
            Some(0xf0..=0xf7) => 4,
            Some(0x80..=0xbf) => continue,
            _ => return head,
        };
        return if back < wanted { head.get(..at).unwrap_or(head) } else { head };
    }
    head
}

/// A folder two levels deep, one path a line, folders with a slash at their end; hidden names and caches left out.
fn view_folder(inner: &Inner, path: &WorkspacePath) -> Result<String, Stop> {
    let start = inner.root.open_dir(path.as_str().as_bytes())?;
    let mut lines: Vec<String> = Vec::new();
    let mut more = 0;
    let mut line = |at: &[u8], folder: bool| {
        if lines.len() < VIEW_ENTRIES_MAX {
            let name = join(path.as_str().as_bytes(), at);
            lines.push(format!("{}{}", plain_text(&name), if folder { "/" } else { "" }));
        } else {
            more += 1;
        }
    };
    for (name, is_folder) in names_in(&start)? {
        line(&name, is_folder);
        if is_folder && let Ok(dir) = open_folder(start.as_fd(), &name) {
            for (below, is_folder) in names_in(&dir)? {
                line(&join(&name, &below), is_folder);
            }
        }
    }
    if more > 0 {
        lines.push(format!("[... {more} entries not shown ...]"));
    }
    let mut text = lines.join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    Ok(capped(text.as_bytes(), inner.view_bytes_max))
}

/// The visible names of a folder, sorted, and which of them are folders.
fn names_in(dir: &std::os::fd::OwnedFd) -> Result<Vec<(Vec<u8>, bool)>, Stop> {
    let mut names = Vec::new();
    let _ = each_entry(dir, |entry| {
        if is_visible(entry.name) {
            names.push((entry.name.to_vec(), entry.kind == FileType::Directory));
        }
        if names.len() < LIST_ENTRIES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    names.sort();
    Ok(names)
}

fn plain_text(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    if text.chars().count() < crate::limits::SHOWN_PATH_CHARS_MAX && !text.contains(char::is_control) {
        text.into_owned()
    } else {
        shown(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capped_text_keeps_head_and_tail_and_counts_the_rest() {
        assert_eq!(capped(b"0123456789", 10), "0123456789");
        assert_eq!(capped(b"0123456789a", 10), "01234\n[... 1 bytes not shown ...]\n6789a");
        let snow = "\u{2603}".repeat(10);
        for max in 0..snow.len() {
            let text = capped(snow.as_bytes(), max);
            assert!(!text.contains('\u{fffd}'), "{max}: {text}");
            let kept = text.matches('\u{2603}').count() * 3;
            assert!(text.contains(&format!("[... {} bytes not shown ...]", snow.len() - kept)), "{max}: {text}");
        }
    }

    #[test]
    fn ranges_are_checked_against_the_number_of_lines() {
        let three = b"1\n2\n3";
        for (first, last, wanted) in [(1, 3, (1, 3)), (2, -1, (2, 3)), (3, 3, (3, 3))] {
            assert_eq!(lines_of(three, first, last).ok(), Some(wanted));
        }
        for (first, last) in [(0, 1), (-1, 2), (3, 2), (1, 4), (4, -1), (1, -2), (i64::MIN, i64::MAX), (4, 4)] {
            let Err(Stop::Refused(text)) = lines_of(three, first, last) else { panic!("{first} {last}") };
            assert!(text.contains("3 lines"), "{text}");
        }
        assert!(lines_of(b"", 1, -1).is_ok());
        assert!(lines_of(b"", 1, 1).is_err());
    }
}
