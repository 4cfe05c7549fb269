//! What a session says, shown on a person's terminal. Pure.
//!
//! A terminal obeys what it is shown: it can be told to set the clipboard, to retitle itself, to report back as if somebody
//! had typed. What a session says is hostile, so on a terminal it gets letters, lines and colours, and nothing else.

use std::borrow::Cow;
use std::fmt::Write;
use std::iter::Peekable;
use std::str::CharIndices;

/// Longer than any colour.
const COLOUR_BYTES_MAX: usize = 64;
/// Ends all colours.
const PLAIN: &str = "\x1b[0m";

/// The text with newlines, tabs, carriage returns and colours (SGR) as they are; colours end with the text. Any other
/// control character stands as its escape, so that it can be seen: `\u{1b}`.
pub(crate) fn tamed(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_control) {
        return Cow::Borrowed(text);
    }
    let (mut tame, mut coloured) = (String::with_capacity(text.len() + PLAIN.len()), false);
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        if !is_control(letter) {
            tame.push(letter);
            continue;
        }
        match colour(text.get(at..).unwrap_or_default()) {
            Some(colour) => {
                tame.push_str(colour);
                coloured = true;
                skip_to(&mut letters, at + colour.len());
            }
            None => tame.extend(letter.escape_unicode()),
        }
    }
    if coloured {
        tame.push_str(PLAIN);
    }
    Cow::Owned(tame)
}

fn is_control(letter: char) -> bool {
    letter.is_control() && !matches!(letter, '\n' | '\t' | '\r')
}

/// The colour that a text begins with: `ESC [`, digits with `;` or `:` between them, `m`.
fn colour(text: &str) -> Option<&str> {
    let parameters = text.strip_prefix("\x1b[")?;
    let end = parameters.bytes().position(|byte| !matches!(byte, b'0'..=b'9' | b';' | b':'))?;
    let is_colour = end <= COLOUR_BYTES_MAX && parameters.as_bytes().get(end) == Some(&b'm');
    text.get(..end + "\x1b[m".len()).filter(|_| is_colour)
}

fn skip_to(letters: &mut Peekable<CharIndices<'_>>, end: usize) {
    while letters.next_if(|(at, _)| *at < end).is_some() {}
}

/// The value as a line of JSON, in which a control character stands as its escape: JSON itself lets those above ASCII's
/// first 32 through.
pub(crate) fn json_line(value: &serde_json::Value) -> String {
    let mut line = String::new();
    for letter in value.to_string().chars() {
        match letter.is_control() {
            true => {
                // A string takes all of it.
                let _ = write!(line, "\\u{:04x}", u32::from(letter));
            }
            false => line.push(letter),
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_the_same_value_without_control_characters() {
        let value = serde_json::json!({"a\u{9b}6n": ["\x1b]0;x\x07", "\u{7f}\u{9d}\n ä \u{1f600}"]});
        let line = json_line(&value);
        assert!(line.ends_with('\n') && line.chars().filter(|letter| letter.is_control()).count() == 1, "{line:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), value);
    }

    #[test]
    fn letters_lines_and_colours_are_shown() {
        for plain in ["", "a\tb\r\nä 漢 \u{1f600}\n"] {
            assert!(matches!(tamed(plain), Cow::Borrowed(same) if same == plain));
        }
        assert_eq!(tamed("\x1b[31mred\x1b[m, \x1b[38:5:1;1mbold"), "\x1b[31mred\x1b[m, \x1b[38:5:1;1mbold\x1b[0m");
    }

    #[test]
    fn what_a_terminal_would_obey_is_seen_instead() {
        for (hostile, shown) in [
            // The clipboard, the title, a report that comes back as if typed.
            ("\x1b]52;c;cm0=\x07", "\\u{1b}]52;c;cm0=\\u{7}"),
            ("\x1b]0;root\x1b\\", "\\u{1b}]0;root\\u{1b}\\"),
            ("\x1b[6n\x1b[c", "\\u{1b}[6n\\u{1b}[c"),
            ("\x1bP+q\x1b\\", "\\u{1b}P+q\\u{1b}\\"),
            // The screen, the cursor, another screen.
            ("\x1b[2J\x1b[A\x1b[?1049h", "\\u{1b}[2J\\u{1b}[A\\u{1b}[?1049h"),
            // What is no colour, or is none to its end.
            ("\x1b[>4;2m\x1b[?1m", "\\u{1b}[>4;2m\\u{1b}[?1m"),
            ("\x1b[1\x1b[2", "\\u{1b}[1\\u{1b}[2"),
            ("\x1b", "\\u{1b}"),
            // The same of one character, and what erases.
            ("\u{9b}6n\u{9d}0;x\u{9c}", "\\u{9b}6n\\u{9d}0;x\\u{9c}"),
            ("a\x08\x7f\0\x0e\x0b", "a\\u{8}\\u{7f}\\u{0}\\u{e}\\u{b}"),
        ] {
            assert_eq!(tamed(hostile), shown, "{hostile:?}");
        }
        let long = format!("\x1b[{}m", "1".repeat(COLOUR_BYTES_MAX + 1));
        assert!(!tamed(&long).contains('\x1b'));
    }

    #[test]
    fn whatever_comes_nothing_but_colours_is_left() {
        let letters = ['\x1b', '[', 'm', ';', '1', '\u{9b}', 'ä', '\n'];
        for number in 0..letters.len().pow(6) {
            let digit = |place: u32| letters[number / letters.len().pow(place) % letters.len()];
            let text: String = (0..6).map(digit).collect();
            let tame = tamed(&text).into_owned();
            let mut rest = tame.as_str();
            while let Some(at) = rest.find(is_control) {
                let colour = colour(&rest[at..]).unwrap_or_else(|| panic!("{text:?} -> {tame:?}"));
                rest = &rest[at + colour.len()..];
            }
            assert_eq!(rest.is_empty(), tame.contains('\x1b') || tame.is_empty(), "{text:?} -> {tame:?}");
        }
    }
}
