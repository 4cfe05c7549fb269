//! Which part of a file is asked for (RFC 9110, 13 and 14).

use std::time::{SystemTime, UNIX_EPOCH};

use hyper::HeaderMap;
use hyper::header::{HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE};

/// What of a file is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    /// All of it.
    Whole,
    /// From the first to the last byte, both counted.
    Part {
        /// The first byte.
        first: u64,
        /// The last byte, not before the first.
        last: u64,
    },
    /// Nothing: the client has it.
    Unchanged,
    /// Nothing: the range begins behind the end.
    OutOfRange,
}

impl Selection {
    /// What a request's headers select of a file. Ranges that are malformed, many or of other units are passed
    /// over, as are preconditions that cannot be read.
    pub(crate) fn of(headers: &HeaderMap, size: u64, etag: &str, modified: SystemTime) -> Self {
        let modified = seconds(modified);
        let unchanged = match (text(headers, IF_NONE_MATCH), text(headers, IF_MODIFIED_SINCE)) {
            (Some(tags), _) => tags.split(',').map(str::trim).any(|tag| {
                tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag.strip_prefix("W/").unwrap_or(etag)
            }),
            (None, Some(date)) => httpdate::parse_http_date(date).is_ok_and(|date| modified <= seconds(date)),
            (None, None) => false,
        };
        if unchanged {
            return Selection::Unchanged;
        }
        let Some(range) = text(headers, RANGE) else { return Selection::Whole };
        let fits = text(headers, IF_RANGE).is_none_or(|validator| match validator.starts_with('"') {
            true => validator == etag,
            false => httpdate::parse_http_date(validator).is_ok_and(|date| modified == seconds(date)),
        });
        match fits {
            true => part(range, size).unwrap_or(Selection::Whole),
            false => Selection::Whole,
        }
    }
}

/// A single range of bytes; `None` for whatever is to be passed over.
fn part(range: &str, size: u64) -> Option<Selection> {
    let (first, last) = range.trim().strip_prefix("bytes=")?.trim().split_once('-')?;
    let number = |digits: &str| -> Option<u64> {
        (!digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()))
            .then(|| digits.parse().unwrap_or(u64::MAX))
    };
    let (first, last) = match (number(first), last) {
        // The last so many bytes.
        (None, last) if first.is_empty() => match number(last)? {
            0 => return Some(Selection::OutOfRange),
            length => (size.saturating_sub(length), u64::MAX),
        },
        (Some(first), "") => (first, u64::MAX),
        (Some(first), last) => (first, number(last)?),
        (None, _) => return None,
    };
    if last < first {
        return None;
    }
    match first >= size {
        true => Some(Selection::OutOfRange),
        false => Some(Selection::Part { first, last: last.min(size - 1) }),
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// HTTP dates know whole seconds alone.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn select(headers: &[(HeaderName, &str)], size: u64) -> Selection {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.clone(), value.parse().unwrap());
        }
        // 1 January 2026 and a bit.
        Selection::of(&map, size, "\"tag\"", UNIX_EPOCH + Duration::from_millis(1_767_225_600_500))
    }

    #[test]
    fn ranges_are_read() {
        let cases = [
            ("bytes=0-9", Selection::Part { first: 0, last: 9 }),
            ("bytes=90-", Selection::Part { first: 90, last: 99 }),
            ("bytes=-10", Selection::Part { first: 90, last: 99 }),
            ("bytes=-1000", Selection::Part { first: 0, last: 99 }),
            ("bytes=50-99999999999999999999999", Selection::Part { first: 50, last: 99 }),
            ("bytes=100-", Selection::OutOfRange),
            ("bytes=-0", Selection::OutOfRange),
            ("bytes=9-0", Selection::Whole),
            ("bytes=0-1,5-6", Selection::Whole),
            ("bytes=a-b", Selection::Whole),
            ("bytes=+1-2", Selection::Whole),
            ("lines=0-1", Selection::Whole),
            ("bytes=-", Selection::Whole),
        ];
        for (range, wanted) in cases {
            assert_eq!(select(&[(RANGE, range)], 100), wanted, "{range}");
        }
        assert_eq!(select(&[(RANGE, "bytes=0-")], 0), Selection::OutOfRange);
    }

    #[test]
    fn preconditions_are_heard() {
        const NEW_YEAR: &str = "Thu, 01 Jan 2026 00:00:00 GMT";
        const EARLIER: &str = "Wed, 31 Dec 2025 00:00:00 GMT";
        let part = Selection::Part { first: 0, last: 0 };
        let first = (RANGE, "bytes=0-0");
        assert_eq!(select(&[(IF_NONE_MATCH, "\"x\", W/\"tag\"")], 9), Selection::Unchanged);
        assert_eq!(select(&[(IF_NONE_MATCH, "*"), first.clone()], 9), Selection::Unchanged);
        assert_eq!(select(&[(IF_NONE_MATCH, "\"x\""), (IF_MODIFIED_SINCE, NEW_YEAR)], 9), Selection::Whole);
        assert_eq!(select(&[(IF_MODIFIED_SINCE, NEW_YEAR)], 9), Selection::Unchanged);
        assert_eq!(select(&[(IF_MODIFIED_SINCE, EARLIER)], 9), Selection::Whole);
        assert_eq!(select(&[(IF_MODIFIED_SINCE, "yesterday")], 9), Selection::Whole);
        assert_eq!(select(&[first.clone(), (IF_RANGE, "\"tag\"")], 9), part);
        assert_eq!(select(&[first.clone(), (IF_RANGE, "W/\"tag\"")], 9), Selection::Whole);
        assert_eq!(select(&[first.clone(), (IF_RANGE, NEW_YEAR)], 9), part);
        assert_eq!(select(&[first, (IF_RANGE, EARLIER)], 9), Selection::Whole);
    }
}
