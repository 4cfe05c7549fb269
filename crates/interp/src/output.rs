//! What a call writes, kept in bounded memory: the head and the tail of a stream, and how much was between.

use std::collections::VecDeque;

/// The head and the tail of one output stream, at most `bytes_max` bytes of it, whatever was written.
#[derive(Debug)]
pub struct HeadTail {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_max: usize,
    tail_max: usize,
    total: u64,
}

impl HeadTail {
    /// An empty stream that keeps half of `bytes_max` from its head and half from its tail.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        let head_max = bytes_max / 2;
        HeadTail { head: Vec::new(), tail: VecDeque::new(), head_max, tail_max: bytes_max - head_max, total: 0 }
    }

    /// Takes what was written next.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total = self.total.saturating_add(bytes.len() as u64);
        let room = self.head_max.saturating_sub(self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        if rest.is_empty() {
            return;
        }
        let (_, last) = rest.split_at(rest.len().saturating_sub(self.tail_max));
        let surplus = (self.tail.len() + last.len()).saturating_sub(self.tail_max);
        self.tail.drain(..surplus);
        self.tail.extend(last);
    }

    /// Bytes written so far, kept or not.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Whether something had to be dropped.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.total > (self.head.len() + self.tail.len()) as u64
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The text: UTF-8, with U+FFFD for what is not, and, where something was dropped, one line between head and
    /// tail that gives the count of the bytes dropped. A cut never splits a character.
    #[must_use]
    pub fn into_text(mut self) -> String {
        if !self.is_cut() {
            let (front, back) = self.tail.as_slices();
            self.head.extend_from_slice(front);
            self.head.extend_from_slice(back);
            return into_lossy(self.head);
        }
        let kept = self.head.len() - open_end(&self.head);
        self.head.truncate(kept);
        let orphans = self.tail.iter().take(3).take_while(|byte| is_continuation(**byte)).count();
        self.tail.drain(..orphans);
        let dropped = self.total - (self.head.len() + self.tail.len()) as u64;
        let mut text = into_lossy(self.head);
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("[... output truncated: {dropped} bytes dropped ...]\n"));
        text.push_str(&String::from_utf8_lossy(self.tail.make_contiguous()));
        text
    }
}

/// Caps a text that is already whole (such as an editor's view) in the same way.
#[must_use]
pub fn cap_text(text: String, bytes_max: usize) -> (String, bool) {
    if text.len() <= bytes_max {
        return (text, false);
    }
    let mut kept = HeadTail::new(bytes_max);
    kept.push(text.as_bytes());
    (kept.into_text(), true)
}

fn into_lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// How many bytes at the end are the beginning of a character whose rest is missing.
fn open_end(bytes: &[u8]) -> usize {
    for (back, byte) in bytes.iter().rev().take(3).enumerate() {
        let wanted = match byte {
            0b1000_0000..=0b1011_1111 => continue,
            0b1100_0000..=0b1101_1111 => 2,
            0b1110_0000..=0b1110_1111 => 3,
            0b1111_0000..=0b1111_0111 => 4,
            _ => return 0,
        };
        return if back + 1 < wanted { back + 1 } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fed(bytes_max: usize, chunks: &[&[u8]]) -> HeadTail {
        let mut stream = HeadTail::new(bytes_max);
        for chunk in chunks {
            stream.push(chunk);
        }
        stream
    }

    #[test]
    fn what_fits_is_kept_to_the_byte() {
        assert_eq!(fed(8, &[b"abcd", b"efgh"]).into_text(), "abcdefgh");
        assert_eq!(fed(8, &[]).into_text(), "");
        assert!(!fed(8, &[b"abcdefgh"]).is_cut());
    }

    #[test]
    fn what_does_not_fit_leaves_one_line_with_the_count() {
        let stream = fed(8, &[b"abcdefg", b"hijkl"]);
        assert!(stream.is_cut());
        assert_eq!(stream.total(), 12);
        assert_eq!(stream.into_text(), "abcd\n[... output truncated: 4 bytes dropped ...]\nijkl");
        assert_eq!(fed(4, &[b"a\nxxxxxxcd"]).into_text(), "a\n[... output truncated: 6 bytes dropped ...]\ncd");
    }

    #[test]
    fn a_cut_falls_between_characters() {
        let text = "\u{2615}".repeat(10);
        let kept = fed(10, &[text.as_bytes()]).into_text();
        assert_eq!(kept, "\u{2615}\n[... output truncated: 24 bytes dropped ...]\n\u{2615}");
    }

    #[test]
    fn a_character_split_across_reads_is_one() {
        let [a, b, c] = [&b"\xe2"[..], &b"\x98"[..], &b"\x95"[..]];
        assert_eq!(fed(100, &[a, b, c]).into_text(), "\u{2615}");
        assert_eq!(fed(2, &[]).into_text(), "");
        assert_eq!(fed(100, &[b"\xe2\x98"]).into_text(), "\u{fffd}");
    }

    #[test]
    fn a_whole_text_is_capped_the_same_way() {
        assert_eq!(cap_text("abc".to_owned(), 3), ("abc".to_owned(), false));
        let (text, cut) = cap_text("abcdef".to_owned(), 4);
        assert!(cut);
        assert_eq!(text, "ab\n[... output truncated: 2 bytes dropped ...]\nef");
    }

    fn plain_text() -> impl Strategy<Value = String> {
        "\\PC{0,400}".prop_map(|text| text.replace(char::REPLACEMENT_CHARACTER, "\u{2615}"))
    }

    proptest! {
        #[test]
        fn memory_stays_bounded_and_counts_are_exact(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..40), max in 0usize..300,
        ) {
            let mut stream = HeadTail::new(max);
            let mut whole = Vec::new();
            for chunk in &chunks {
                stream.push(chunk);
                whole.extend_from_slice(chunk);
                prop_assert!(stream.head.len() + stream.tail.len() <= max);
                prop_assert!(stream.tail.capacity() <= 2 * max.max(64));
            }
            prop_assert_eq!(stream.total(), whole.len() as u64);
            prop_assert_eq!(stream.is_cut(), whole.len() > max);
            let text = stream.into_text();
            if whole.len() <= max {
                prop_assert_eq!(text, String::from_utf8_lossy(&whole).into_owned());
            } else {
                prop_assert!(text.contains("output truncated"));
            }
        }

        #[test]
        fn valid_text_never_gains_a_replacement_character(text in plain_text(), max in 0usize..500, step in 1usize..17) {
            let mut stream = HeadTail::new(max);
            for chunk in text.as_bytes().chunks(step) {
                stream.push(chunk);
            }
            let cut = stream.is_cut();
            let kept = stream.into_text();
            prop_assert!(!kept.contains(char::REPLACEMENT_CHARACTER));
            if cut {
                let (head, rest) = kept.split_once("[... output truncated: ").unwrap();
                let (count, tail) = rest.split_once(" bytes dropped ...]\n").unwrap();
                let head = head.strip_suffix('\n').unwrap_or(head);
                prop_assert!(text.starts_with(head) && text.ends_with(tail));
                prop_assert_eq!(head.len() + tail.len() + count.parse::<usize>().unwrap(), text.len());
            } else {
                prop_assert_eq!(kept, text);
            }
        }
    }
}
