//! Answers that are no success, made into errors.

use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::RETRY_AFTER;
use serde_json::Value;

use crate::ClientError;
use crate::limits::DETAIL_CHARS_MAX;

/// The error of a status that is no success.
pub(crate) fn refusal(operation: &'static str, status: u16, headers: &HeaderMap, body: &[u8]) -> ClientError {
    let detail = detail(body);
    match status {
        404 => ClientError::NotFound { operation, detail },
        503 => ClientError::Unavailable { operation, retry_after: retry_after(headers), detail },
        _ => ClientError::Refused { operation, status, detail },
    }
}

/// Delay-seconds of one to six ASCII digits; any other hint is dropped (contract, HTTP/JSON binding).
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    let digits = (1..=6).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok().map(Duration::from_secs)).flatten()
}

/// The backend's own words: `detail` where the body is JSON that has it, else the body's text. A backend may carry
/// any shape here, so nothing depends on it.
fn detail(body: &[u8]) -> String {
    let text = match serde_json::from_slice::<Value>(body) {
        Ok(Value::Object(fields)) => match fields.get("detail") {
            Some(Value::String(detail)) => detail.clone(),
            Some(other) => other.to_string(),
            None => String::from_utf8_lossy(body).into_owned(),
        },
        _ => String::from_utf8_lossy(body).into_owned(),
    };
    let shown: String = text.chars().take(DETAIL_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if shown.trim().is_empty() { "the backend gave no reason".to_owned() } else { shown }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn only_short_digits_are_a_delay() {
        for (text, wanted) in
            [("5", Some(5)), ("999999", Some(999_999)), ("1000000", None), ("1.5", None), ("-1", None), ("+1", None)]
        {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
            assert_eq!(retry_after(&headers), wanted.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn any_error_body_gives_a_text() {
        assert_eq!(detail(br#"{"detail": "no room"}"#), "no room");
        assert_eq!(detail(br#"{"detail": [1]}"#), "[1]");
        assert_eq!(detail(b"\x1b[31mred"), " [31mred");
        assert_eq!(detail(b""), "the backend gave no reason");
        assert_eq!(detail("x".repeat(5000).as_bytes()).len(), DETAIL_CHARS_MAX);
    }
}
