//! When an entry of the shell is whole. Pure.
//!
//! A simple rule, near to that of Python's own prompt, decided without Python:
//!
//! - An open bracket, an open string of three quotes, or a backslash at the end of a line: the entry goes on.
//! - A block, which is an entry with a line that ends with `:`, is indented, or begins with `@`: it goes on until an
//!   empty line.
//! - Anything else is whole at its first line.

/// What the scan of a text left open.
#[derive(Debug, Default)]
struct Open {
    brackets: usize,
    /// The quote of a string of three.
    text: Option<char>,
    backslash: bool,
    /// A line ended with `:` outside of brackets and strings, was indented, or began with `@`.
    block: bool,
}

/// Whether the text, lines with their newlines, can be run as it is.
pub(crate) fn is_whole(text: &str) -> bool {
    let open = scan(text);
    if open.brackets > 0 || open.text.is_some() || open.backslash {
        return false;
    }
    !open.block || text.lines().next_back().is_none_or(|last| last.trim().is_empty())
}

fn scan(text: &str) -> Open {
    let mut open = Open::default();
    for line in text.lines() {
        let begins = open.brackets == 0 && open.text.is_none() && !open.backslash;
        if begins && (line.starts_with([' ', '\t', '@']) && !line.trim().is_empty()) {
            open.block = true;
        }
        let ends_with = scan_line(line, &mut open);
        if ends_with == Some(':') && open.brackets == 0 && open.text.is_none() {
            open.block = true;
        }
    }
    open
}

/// Goes through one line; its last character that is code and no blank.
fn scan_line(line: &str, open: &mut Open) -> Option<char> {
    open.backslash = false;
    let (mut rest, mut last) = (line, None);
    while let Some(letter) = rest.chars().next() {
        let after = rest.get(letter.len_utf8()..).unwrap_or_default();
        if let Some(quote) = open.text {
            rest = match (letter, rest.strip_prefix(&quote.to_string().repeat(3))) {
                ('\\', _) => skip_one(after),
                (_, Some(end)) => {
                    open.text = None;
                    last = Some(quote);
                    end
                }
                _ => after,
            };
            continue;
        }
        rest = match letter {
            '#' => break,
            '\\' if after.is_empty() => {
                open.backslash = true;
                after
            }
            '"' | '\'' => match after.strip_prefix(&letter.to_string().repeat(2)) {
                Some(begun) => {
                    open.text = Some(letter);
                    begun
                }
                None => end_of_string(after, letter),
            },
            '(' | '[' | '{' => {
                open.brackets += 1;
                after
            }
            ')' | ']' | '}' => {
                open.brackets = open.brackets.saturating_sub(1);
                after
            }
            _ => after,
        };
        if !letter.is_whitespace() {
            last = Some(letter);
        }
    }
    last
}

/// What follows a string of one quote, which ends with its line at the latest.
fn end_of_string(mut rest: &str, quote: char) -> &str {
    while let Some(letter) = rest.chars().next() {
        rest = rest.get(letter.len_utf8()..).unwrap_or_default();
        if letter == quote {
            break;
        }
        if letter == '\\' {
            rest = skip_one(rest);
        }
    }
    rest
}

fn skip_one(text: &str) -> &str {
    text.chars().next().and_then(|letter| text.get(letter.len_utf8()..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_lines_are_whole_at_once() {
        for text in [
            "x = 1\n",
            "print('a:')\n",
            "'(' # [\n",
            "f(\n1)\n",
            "d = {'a': 1}\n",
            "x = '''a\nb'''\n",
            "\n",
            "s = \"it's\"\n",
            "'\\''\n",
            "# for x:\n",
            "x = 1 + \\\n2\n",
        ] {
            assert!(is_whole(text), "{text:?}");
        }
    }

    #[test]
    fn what_is_open_goes_on() {
        for text in [
            "f(\n",
            "x = [1,\n2,\n",
            "'''a\n\n",
            "\"\"\"\n'''\n",
            "x = 1 + \\\n",
            "{'a': (\n}\n",
            "f(':\n'\n",
            "'''\\'''\n",
        ] {
            assert!(!is_whole(text), "{text:?}");
        }
    }

    #[test]
    fn a_block_ends_with_an_empty_line() {
        for block in [
            "for i in x:\n",
            "if a:\n    b\n",
            "@cached\n",
            "class A:  # one\n",
            "if (a and\n        b):\n",
            "try:\n    a\nexcept E:\n    b\n",
        ] {
            assert!(!is_whole(block), "{block:?}");
            assert!(is_whole(&format!("{block}    pass\n\n")), "{block:?}");
        }
        assert!(is_whole("x = [\n    1,\n]\n"), "what is indented within brackets is no block");
    }
}
