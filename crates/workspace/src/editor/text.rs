//! Edits of a text as bytes: what is asked for is found or placed exactly, and nothing else moves.
//!
//! A line ends at `\n` and nowhere else; a `\r` before it belongs to the line. Nothing here does I/O.

use memchr::memmem;

use crate::limits::MATCH_LINES_SHOWN_MAX;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// One change: at a place, so many bytes are taken out and others put in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Splice {
    pub(crate) at: usize,
    pub(crate) removed: usize,
    pub(crate) added: Vec<u8>,
}

impl Splice {
    /// The text after the change; `None` where the place is not in the text.
    pub(crate) fn apply(&self, text: &[u8]) -> Option<Vec<u8>> {
        let (head, rest) = text.split_at_checked(self.at)?;
        let tail = rest.get(self.removed..)?;
        Some([head, &self.added, tail].concat())
    }

    /// The change that takes this one back, when this one is applied to `text`.
    pub(crate) fn inverse(&self, text: &[u8]) -> Option<Splice> {
        let removed = text.get(self.at..)?.get(..self.removed)?;
        Some(Splice { at: self.at, removed: self.added.len(), added: removed.to_vec() })
    }
}

/// How many lines a text has; a last line without its newline counts, a byte order mark alone does not.
pub(crate) fn line_count(text: &[u8]) -> usize {
    if text == BOM {
        return 0;
    }
    let ended = memchr::memchr_iter(b'\n', text).count();
    ended + usize::from(text.last().is_some_and(|last| *last != b'\n'))
}

/// The 1-based line that holds the byte at `at`.
pub(crate) fn line_at(text: &[u8], at: usize) -> usize {
    1 + memchr::memchr_iter(b'\n', text.get(..at).unwrap_or(text)).count()
}

/// The bytes of the lines `first..=last`, 1-based, their newlines included.
pub(crate) fn lines(text: &[u8], first: usize, last: usize) -> &[u8] {
    let start = line_start(text, first.saturating_sub(1));
    let end = line_start(text, last);
    text.get(start..end).unwrap_or_default()
}

/// The change that replaces the one occurrence of `old`.
///
/// An exact match comes first. Where there is none, and every line of the text ends in CRLF and `old` has newlines but
/// no CR, `old` and `new` are taken to mean lines of that text: their `\n` stand for `\r\n`.
///
/// # Errors
/// Why it is refused, in words.
pub(crate) fn replace(text: &[u8], old: &str, new: &str) -> Result<Splice, String> {
    if old.is_empty() {
        return Err("old_str is empty".to_owned());
    }
    let one = |old: &[u8], new: Vec<u8>| match matches(text, old).as_slice() {
        [] => Ok(None),
        [at] => Ok(Some(Splice { at: *at, removed: old.len(), added: new })),
        several => Err(ambiguous(text, several)),
    };
    if let Some(splice) = one(old.as_bytes(), new.as_bytes().to_vec())? {
        return Ok(splice);
    }
    if old.contains('\n')
        && !old.contains('\r')
        && ends_in_crlf(text)
        && let Some(splice) = one(&to_crlf(old), to_crlf(new))?
    {
        return Ok(splice);
    }
    Err("old_str is not in the file; nothing was changed".to_owned())
}

/// The change that puts `new` after line `line`, 0 being before the first.
///
/// It is ended with a newline where it has none, of the text's own kind, and a last line without newline gets one
/// first. Where every line of the text ends in CRLF and `new` has no CR, its newlines are written as CRLF. A byte
/// order mark stays at the very start.
///
/// # Errors
/// Why it is refused, in words.
pub(crate) fn insert(text: &[u8], line: i64, new: &str) -> Result<Splice, String> {
    let count = line_count(text);
    let line = usize::try_from(line).ok().filter(|line| *line <= count).ok_or_else(|| {
        format!("insert_line is {line}, but the file has {count} lines: it must be from 0 to {count}")
    })?;
    let crlf = ends_in_crlf(text);
    let newline: &[u8] = if crlf { b"\r\n" } else { b"\n" };
    let at = match line {
        0 if text.starts_with(BOM) => BOM.len(),
        line => line_start(text, line),
    };
    let mut added = Vec::new();
    let after_open_line = line > 0 && text.get(..at).is_some_and(|head| !head.ends_with(b"\n"));
    if after_open_line {
        added.extend_from_slice(newline);
    }
    if crlf && !new.contains('\r') {
        added.extend_from_slice(&to_crlf(new));
    } else {
        added.extend_from_slice(new.as_bytes());
    }
    if !new.ends_with('\n') {
        added.extend_from_slice(newline);
    }
    Ok(Splice { at, removed: 0, added })
}

/// Where line `line + 1` begins: after `line` newlines, or at the end of the text.
fn line_start(text: &[u8], line: usize) -> usize {
    match line.checked_sub(1) {
        None => 0,
        Some(before) => memchr::memchr_iter(b'\n', text).nth(before).map_or(text.len(), |at| at + 1),
    }
}

/// Where `old` begins, overlapping matches included, one more than are shown at most.
fn matches(text: &[u8], old: &[u8]) -> Vec<usize> {
    let finder = memmem::Finder::new(old);
    let mut found = Vec::new();
    let mut from = 0;
    while found.len() <= MATCH_LINES_SHOWN_MAX {
        let Some(next) = text.get(from..).and_then(|rest| finder.find(rest)) else { break };
        found.push(from + next);
        from += next + 1;
    }
    found
}

fn ambiguous(text: &[u8], several: &[usize]) -> String {
    let more = several.len() > MATCH_LINES_SHOWN_MAX;
    let shown: Vec<String> =
        several.iter().take(MATCH_LINES_SHOWN_MAX).map(|at| line_at(text, *at).to_string()).collect();
    let count = if more { format!("more than {MATCH_LINES_SHOWN_MAX}") } else { several.len().to_string() };
    format!(
        "old_str is in the file {count} times, at lines {}{}; nothing was changed: give more of the text around it",
        shown.join(", "),
        if more { " and on" } else { "" }
    )
}

/// Whether the text has lines and each of them ends in CRLF.
fn ends_in_crlf(text: &[u8]) -> bool {
    let mut any = false;
    for at in memchr::memchr_iter(b'\n', text) {
        any = true;
        if at.checked_sub(1).and_then(|before| text.get(before)) != Some(&b'\r') {
            return false;
        }
    }
    any
}

fn to_crlf(text: &str) -> Vec<u8> {
    let plain = text.replace("\r\n", "\n");
    plain.replace('\n', "\r\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn replaced(text: &[u8], old: &str, new: &str) -> Vec<u8> {
        replace(text, old, new).unwrap().apply(text).unwrap()
    }

    fn inserted(text: &[u8], line: i64, new: &str) -> Vec<u8> {
        insert(text, line, new).unwrap().apply(text).unwrap()
    }

    #[test]
    fn lines_end_at_newlines_only() {
        let text = "a\u{2028}b\x0cc\rd\ne".as_bytes();
        assert_eq!(line_count(text), 2);
        assert_eq!(lines(text, 2, 2), b"e");
        assert_eq!(lines(b"1\n2\n3\n", 2, 3), b"2\n3\n");
        assert_eq!((line_count(b""), line_count(b"\n"), line_count(b"a")), (0, 1, 1));
    }

    #[test]
    fn a_replacement_changes_what_was_asked() {
        let dos = b"\xef\xbb\xbfa\r\n\tb\r\nc\x0cd\r\nlast";
        assert_eq!(replaced(dos, "\tb", "\tB"), b"\xef\xbb\xbfa\r\n\tB\r\nc\x0cd\r\nlast");
        assert_eq!(replaced(dos, "a\n\tb", "x\ny"), b"\xef\xbb\xbfx\r\ny\r\nc\x0cd\r\nlast");
        assert_eq!(replaced(b"a\r\nb\nc", "b\nc", "d"), b"a\r\nd");
        assert_eq!(replaced(b"\xff\xfeold\x00", "old", ""), b"\xff\xfe\x00");
        assert!(replace(b"a\r\nb\nc", "a\nb", "x").is_err(), "mixed endings are matched exactly or not at all");
    }

    #[test]
    fn none_and_several_matches_are_refused_by_number_and_line() {
        assert!(replace(b"abc", "", "x").is_err());
        assert!(replace(b"abc", "d", "x").unwrap_err().contains("not in the file"));
        let several = replace(b"dup\n\ndup\n", "dup", "x").unwrap_err();
        assert!(several.contains("2 times, at lines 1, 3"), "{several}");
        assert!(replace(b"aaa", "aa", "x").unwrap_err().contains("2 times"), "overlapping matches count");
        let many = replace(&b"x\n".repeat(50), "x", "y").unwrap_err();
        assert!(many.contains("more than 10 times") && many.contains("and on"), "{many}");
    }

    #[test]
    fn an_insertion_keeps_lines_apart() {
        assert_eq!(inserted(b"a\nb", 2, "c"), b"a\nb\nc\n");
        assert_eq!(inserted(b"a\nb\n", 1, "x\n"), b"a\nx\nb\n");
        assert_eq!(inserted(b"a\nb\n", 0, "x"), b"x\na\nb\n");
        assert_eq!(inserted(b"", 0, "x"), b"x\n");
        assert_eq!(inserted(b"a\r\nb", 2, "c\nd"), b"a\r\nb\r\nc\r\nd\r\n");
        assert_eq!(inserted(b"a\r\n", 1, "c\r\nd"), b"a\r\nc\r\nd\r\n");
        assert_eq!(inserted(b"\xef\xbb\xbfa\n", 0, "x"), b"\xef\xbb\xbfx\na\n");
        assert_eq!(inserted(b"a\n", 1, ""), b"a\n\n");
        for wrong in [-1, 3, i64::MAX, i64::MIN] {
            assert!(insert(b"a\nb\n", wrong, "x").unwrap_err().contains("2 lines"));
        }
    }

    #[test]
    fn a_hostile_needle_takes_linear_time() {
        let text = vec![b'a'; 4 << 20];
        let old = format!("{}b", "a".repeat(2 << 20));
        assert!(replace(&text, &old, "x").is_err());
    }

    proptest! {
        #[test]
        fn replacing_touches_nothing_else(
            head in "[ab\r\n]{0,20}", old in "[ab\n]{1,4}", new in "[abc\r\n]{0,6}", tail in "[ab\r\n]{0,20}",
        ) {
            let text = format!("{head}{old}{tail}").into_bytes();
            let places = (0..text.len()).filter(|at| text[*at..].starts_with(old.as_bytes())).count();
            match replace(&text, &old, &new) {
                Ok(splice) => {
                    prop_assert_eq!(places, 1);
                    let after = splice.apply(&text).unwrap();
                    prop_assert_eq!(&after, &format!("{head}{new}{tail}").into_bytes());
                    prop_assert_eq!(splice.inverse(&text).unwrap().apply(&after).unwrap(), text);
                }
                Err(_) => prop_assert!(places > 1),
            }
        }

        #[test]
        fn inserting_adds_whole_lines(text in "[ab\r\n\u{feff}]{0,30}", line in 0i64..12, new in "[ab\r\n]{0,8}") {
            let text = text.into_bytes();
            match insert(&text, line, &new) {
                Ok(splice) => {
                    let after = splice.apply(&text).unwrap();
                    prop_assert!(line <= line_count(&text) as i64);
                    let whole = format!("{new}{}", if new.ends_with('\n') { "" } else { "\n" });
                    prop_assert_eq!(line_count(&after), line_count(&text) + line_count(whole.as_bytes()));
                    prop_assert_eq!(splice.removed, 0);
                    prop_assert_eq!(splice.inverse(&text).unwrap().apply(&after).unwrap(), text);
                }
                Err(_) => prop_assert!(line > line_count(&text) as i64),
            }
        }

        #[test]
        fn lines_put_together_are_the_text(text in prop::collection::vec(prop::sample::select(b"ab\r\n\x0c\xff".to_vec()), 0..40)) {
            let count = line_count(&text);
            let whole: Vec<u8> = (1..=count).flat_map(|n| lines(&text, n, n).to_vec()).collect();
            prop_assert_eq!(whole, text);
        }
    }
}
