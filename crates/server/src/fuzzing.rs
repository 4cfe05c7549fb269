//! Private parsers for the targets of `ringfence-fuzz`; nothing else calls this.

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE};

use crate::multipart::{Event, Form};
use crate::query::parameters;
use crate::range::Selection;

/// The parts of a form, each with its field, its file name and its content; why it is none, in words.
pub type Parts = Result<Vec<(String, Option<String>, Vec<u8>)>, String>;

/// Reads a form that arrives in these pieces.
///
/// # Errors
/// As [`Parts`] says.
pub fn form<'a>(content_type: &[u8], pieces: impl IntoIterator<Item = &'a [u8]>) -> Parts {
    let words = |error: crate::multipart::FormError| error.to_string();
    let mut form = Form::new(Some(content_type)).map_err(words)?;
    let mut parts: Vec<(String, Option<String>, Vec<u8>)> = Vec::new();
    for piece in pieces {
        form.feed(Bytes::copy_from_slice(piece));
        while let Some(event) = form.next().map_err(words)? {
            match event {
                Event::Part(found) => parts.push((found.name, found.filename, Vec::new())),
                Event::Data(data) => match parts.last_mut() {
                    Some((_, _, content)) => content.extend_from_slice(&data),
                    None => return Err("content before a part".to_owned()),
                },
                Event::PartEnd | Event::End => {}
            }
        }
    }
    form.finish().map_err(words)?;
    Ok(parts)
}

/// The parameters `path` and `recursive` of a query; `None` where it is refused.
#[must_use]
pub fn query(text: &str) -> Option<[Option<String>; 2]> {
    parameters(Some(text), ["path", "recursive"]).ok()
}

/// The part of a file of `size` bytes that headers select, first byte and the one after the last; `None` where they
/// select no part.
#[must_use]
pub fn range(values: [&[u8]; 4], size: u64) -> Option<(u64, u64)> {
    let mut headers = HeaderMap::new();
    for (name, value) in [RANGE, IF_RANGE, IF_NONE_MATCH, IF_MODIFIED_SINCE].into_iter().zip(values) {
        if let Ok(value) = HeaderValue::from_bytes(value)
            && !value.is_empty()
        {
            headers.append(name, value);
        }
    }
    match Selection::of(&headers, size, "\"tag\"", std::time::UNIX_EPOCH) {
        Selection::Part { first, last } => Some((first, last.saturating_add(1))),
        Selection::Whole | Selection::Unchanged | Selection::OutOfRange => None,
    }
}
