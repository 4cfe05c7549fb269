//! `multipart/form-data` as a stream (RFC 7578, RFC 2046).
//!
//! Own parser: the contents of a part pass through it as slices of what the connection read, without a copy, and
//! the search for the boundary is memchr's. It is fed pieces and asked for events, so that it knows no I/O and its
//! tests can cut its input anywhere.
//!
//! **Invariants.** What is kept between two pieces is bounded: how much of a delimiter was seen, and the headers of
//! one part. Every byte of a part's content comes out once, in order; nothing else does.

mod disposition;

use bytes::{Buf, Bytes};
use memchr::memmem::Finder;
use ringfence_weaken::{Mitigation, holds};

use crate::limits::{BOUNDARY_BYTES_MAX, FORM_PARTS_MAX, PART_HEADER_BYTES_MAX};

pub(crate) use disposition::Disposition;

/// Why a form cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FormError {
    #[error("the Content-Type must be multipart/form-data with a boundary")]
    NoForm,
    #[error("the form has a boundary that is longer than 70 bytes or holds forbidden characters")]
    BadBoundary,
    #[error("the form has a boundary line that goes on where it should end")]
    BadDelimiter,
    #[error("the form has a part whose headers are too long")]
    HeadersTooLong,
    #[error("the form has a part without a readable `Content-Disposition: form-data; name=\"...\"`")]
    BadDisposition,
    #[error("the form has too many parts")]
    TooManyParts,
    #[error("the form ends before its closing boundary")]
    Truncated,
}

/// What comes out of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A part begins.
    Part(Disposition),
    /// Some of its content.
    Data(Bytes),
    /// It ends.
    PartEnd,
    /// The form ends; what comes after it is passed over.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In front of the first delimiter.
    Preamble,
    /// Behind a delimiter: a line end, or the two dashes of the last one.
    AfterDelimiter,
    /// In the headers of a part.
    Headers,
    /// In the content of a part.
    Content,
    /// Behind the last delimiter.
    Epilogue,
}

/// A form that is being read.
pub(crate) struct Form {
    /// CR LF `--` boundary.
    delimiter: Bytes,
    finder: Finder<'static>,
    state: State,
    /// How many bytes of the delimiter ended the last piece: they are content only if the next piece does not go on
    /// with it. CR is in the delimiter once, at its front, so there is one way to go on.
    matched: usize,
    /// What was read of a line end or of headers.
    held: Vec<u8>,
    input: Bytes,
    parts: usize,
}

impl Form {
    /// A form as its `Content-Type` announces it.
    ///
    /// # Errors
    /// When it announces none, or one with a boundary that is none.
    pub(crate) fn new(content_type: Option<&[u8]>) -> Result<Self, FormError> {
        let boundary = disposition::boundary(content_type.ok_or(FormError::NoForm)?)?;
        // RFC 2046, 5.1.1, and a little more that clients use; no CR, LF or other control.
        let fine = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
        if boundary.is_empty() || boundary.len() > BOUNDARY_BYTES_MAX || !boundary.iter().all(fine) {
            return Err(FormError::BadBoundary);
        }
        let delimiter = Bytes::from([b"\r\n--", boundary.as_slice()].concat());
        Ok(Form {
            finder: Finder::new(&delimiter).into_owned(),
            delimiter,
            state: State::Preamble,
            // The first delimiter may stand at the very front, without the line end that belongs to the others.
            matched: 2,
            held: Vec::new(),
            input: Bytes::new(),
            parts: 0,
        })
    }

    /// Takes the next piece. The one before must be used up: [`next`](Self::next) has said `None`.
    pub(crate) fn feed(&mut self, piece: Bytes) {
        self.input = piece;
    }

    /// The body has ended.
    ///
    /// # Errors
    /// `Truncated` when the form has not.
    pub(crate) fn finish(&self) -> Result<(), FormError> {
        match self.state {
            State::Epilogue => Ok(()),
            _ => Err(FormError::Truncated),
        }
    }

    /// The next event; `None` when another piece is needed.
    ///
    /// # Errors
    /// When it is no form; nothing more can be read then.
    pub(crate) fn next(&mut self) -> Result<Option<Event>, FormError> {
        loop {
            if self.input.is_empty() {
                return Ok(None);
            }
            match self.state {
                State::Preamble => {
                    // What comes out is no content of anything, and dropped.
                    if self.content().is_none() {
                        self.state = State::AfterDelimiter;
                    }
                }
                State::AfterDelimiter => {
                    if let Some(event) = self.after_delimiter()? {
                        return Ok(Some(event));
                    }
                }
                State::Headers => {
                    if let Some(event) = self.headers()? {
                        return Ok(Some(event));
                    }
                }
                State::Content => match self.content() {
                    None => {
                        self.state = State::AfterDelimiter;
                        return Ok(Some(Event::PartEnd));
                    }
                    Some(data) if data.is_empty() => {}
                    Some(data) => return Ok(Some(Event::Data(data))),
                },
                State::Epilogue => self.input.clear(),
            }
        }
    }

    /// Content up to a delimiter or to the end of the input; `None` when a delimiter was passed.
    fn content(&mut self) -> Option<Bytes> {
        if self.matched > 0 {
            let rest = self.delimiter.get(self.matched..).unwrap_or_default();
            let common = rest.iter().zip(&self.input).take_while(|(one, other)| one == other).count();
            if common == rest.len() {
                self.input.advance(common);
                self.matched = 0;
                return None;
            }
            if common == self.input.len() {
                self.input.clear();
                self.matched += common;
                return Some(Bytes::new());
            }
            // It was content after all: what the last piece ended with, and what this one began with.
            let held = self.delimiter.slice(..self.matched);
            self.matched = 0;
            return Some(held);
        }
        match self.finder.find(&self.input) {
            Some(0) => {
                self.input.advance(self.delimiter.len());
                None
            }
            Some(at) => Some(self.input.split_to(at)),
            None => {
                let kept = self.delimiter_begun();
                let data = self.input.split_to(self.input.len() - kept);
                self.matched = kept;
                self.input.clear();
                Some(data)
            }
        }
    }

    /// How many bytes at the end of the input are the beginning of a delimiter.
    fn delimiter_begun(&self) -> usize {
        let tail_at = self.input.len().saturating_sub(self.delimiter.len() - 1);
        let tail = self.input.get(tail_at..).unwrap_or_default();
        match memchr::memrchr(b'\r', tail) {
            Some(at) => {
                let begun = tail.get(at..).unwrap_or_default();
                if self.delimiter.starts_with(begun) { begun.len() } else { 0 }
            }
            None => 0,
        }
    }

    fn after_delimiter(&mut self) -> Result<Option<Event>, FormError> {
        while !self.input.is_empty() {
            let byte = self.input.get_u8();
            match (self.held.as_slice(), byte) {
                // Padding that a mail gateway may add (RFC 2046, 5.1.1).
                (b"", b' ' | b'\t') => {}
                (b"", b'\r' | b'-') => self.held.push(byte),
                (b"-", b'-') => {
                    self.held.clear();
                    self.state = State::Epilogue;
                    return Ok(Some(Event::End));
                }
                (b"\r", b'\n') => {
                    self.parts += 1;
                    if self.parts > FORM_PARTS_MAX && holds(Mitigation::FormParts) {
                        return Err(FormError::TooManyParts);
                    }
                    // The line end stays: with it, a part without headers ends in an empty line as well.
                    self.held.push(byte);
                    self.state = State::Headers;
                    return Ok(None);
                }
                _ => return Err(FormError::BadDelimiter),
            }
        }
        Ok(None)
    }

    fn headers(&mut self) -> Result<Option<Event>, FormError> {
        const END: &[u8] = b"\r\n\r\n";
        let before = self.held.len();
        let most = if holds(Mitigation::FormHeaders) { PART_HEADER_BYTES_MAX } else { usize::MAX };
        let room = most.saturating_sub(before);
        let taken = self.input.len().min(room);
        self.held.extend_from_slice(self.input.get(..taken).unwrap_or_default());
        let from = before.saturating_sub(END.len() - 1);
        match memchr::memmem::find(self.held.get(from..).unwrap_or_default(), END) {
            Some(at) => {
                let end = from + at + END.len();
                self.input.advance(end - before);
                self.held.truncate(end);
                let disposition = disposition::parse(&self.held)?;
                self.held.clear();
                self.state = State::Content;
                Ok(Some(Event::Part(disposition)))
            }
            None if self.held.len() >= most => Err(FormError::HeadersTooLong),
            None => {
                self.input.advance(taken);
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
#[path = "multipart/tests.rs"]
mod tests;
