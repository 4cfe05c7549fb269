//! One request and its answer, and how they are shown.

use bytes::Bytes;
use hyper::HeaderMap;
use ringfence_client::TransportError;
use ringfence_client::raw::{Answered, Asked};
use serde_json::Value;

use crate::check::{Finding, Stop};
use crate::limits::EXCERPT_CHARS;

/// One request and its answer.
pub(crate) struct Exchange {
    sent: String,
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    cut: bool,
    /// The body as JSON; null where it is none.
    pub(crate) json: Value,
}

impl Exchange {
    pub(crate) fn new(asked: &Asked, answered: Answered) -> Self {
        let Answered { status, headers, body, cut } = answered;
        let json = if cut { Value::Null } else { serde_json::from_slice(&body).unwrap_or(Value::Null) };
        Exchange { sent: sent(asked), status, headers, body, cut, json }
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Passes on where it holds, and is a finding otherwise.
    pub(crate) fn want(&self, holds: bool, wanted: impl Into<String>) -> Result<(), Stop> {
        if holds { Ok(()) } else { Err(Stop::Fail(self.finding(wanted))) }
    }

    /// Passes on where the status is one of these.
    pub(crate) fn want_status(&self, statuses: &[u16], when: &str) -> Result<(), Stop> {
        let listed: Vec<String> = statuses.iter().map(u16::to_string).collect();
        self.want(statuses.contains(&self.status), format!("{} {when}", listed.join(" or ")))
    }

    /// Passes on where the check can go on, and leaves it unjudged otherwise.
    pub(crate) fn need(&self, holds: bool, wanted: impl Into<String>) -> Result<(), Stop> {
        if holds { Ok(()) } else { Err(Stop::Unjudged(self.finding(wanted))) }
    }

    /// The result block, nested or bare; where there is neither, that is the envelope's finding.
    pub(crate) fn block(&self) -> Result<&Value, Stop> {
        let nested = self.json.get("result_block").filter(|block| block.is_object());
        let bare = Some(&self.json).filter(|bare| bare.get("type").is_some() && bare.get("content").is_some());
        nested.or(bare).ok_or_else(|| Stop::Unjudged(self.finding("a result block to look into")))
    }

    pub(crate) fn finding(&self, wanted: impl Into<String>) -> Finding {
        Finding { sent: self.sent.clone(), came: self.came(), wanted: wanted.into() }
    }

    fn came(&self) -> String {
        let media = self.headers.get(hyper::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media = media.map(|media| format!(" ({})", excerpt(media.as_bytes()))).unwrap_or_default();
        let cut = if self.cut { ", cut off where the checker's bound is" } else { "" };
        if self.body.is_empty() {
            return format!("{}{media}, no body", self.status);
        }
        format!("{}{media}, {} bytes{cut}: {}", self.status, self.body.len(), excerpt(&self.body))
    }
}

/// The finding of a request that got no answer.
pub(crate) fn unanswered(asked: &Asked, error: &TransportError) -> Finding {
    let mut came = format!("no answer: {error}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        came.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    Finding { sent: sent(asked), came: excerpt(came.as_bytes()), wanted: "an HTTP answer in time".to_owned() }
}

fn sent(asked: &Asked) -> String {
    let place = excerpt(asked.path_and_query.as_bytes());
    if asked.body.is_empty() {
        return format!("{} {place}", asked.method);
    }
    format!("{} {place} {}", asked.method, excerpt(&asked.body))
}

/// The beginning of a text that someone else wrote, with nothing in it that a terminal would obey.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    // A character has at most four bytes: no more than that is decoded, however long the text is.
    let head = bytes.get(..EXCERPT_CHARS * 4).unwrap_or(bytes);
    let text = String::from_utf8_lossy(head);
    let mut shown = String::new();
    for (count, letter) in text.chars().enumerate() {
        if count == EXCERPT_CHARS {
            shown.push_str(" ...");
            return shown;
        }
        if letter.is_control() || is_invisible(letter) {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    if head.len() < bytes.len() {
        shown.push_str(" ...");
    }
    shown
}

/// Letters that change how their neighbours are shown, or are no letters in XML.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_short_and_tame() {
        assert_eq!(excerpt(b"\x1b[31mred\n\0"), "\\u{1b}[31mred\\n\\u{0}");
        assert_eq!(excerpt("a\u{202e}b".as_bytes()), "a\\u{202e}b");
        assert_eq!(excerpt(&vec![b'x'; 1 << 20]).len(), EXCERPT_CHARS + 4);
        assert!(excerpt(b"\xff\xfe").contains('\u{fffd}'));
    }
}
