//! Which header fields pass, and which are the gate's own.
//!
//! Both directions are lists of what passes: whatever is on neither list stays behind. So nothing that a client sends
//! can be taken for tenancy or proof, hop-by-hop fields end here, and `Connection` cannot name a field away.

use hyper::HeaderMap;
use hyper::header::{self, HeaderName, HeaderValue};
use ringfence_grant::Grant;
use ringfence_op::random_bytes;

use crate::limits::REQUEST_ID_BYTES_MAX;
use crate::secret::Bearer;

/// The workspace of the grant, set by the gate.
pub(crate) const WORKSPACE: HeaderName = HeaderName::from_static("x-ringfence-workspace");
/// The id of the grant, set by the gate.
pub(crate) const GRANT: HeaderName = HeaderName::from_static("x-ringfence-grant");
/// The ceiling of live sessions of the workspace, set by the gate where the grant has one.
pub(crate) const SESSIONS_MAX: HeaderName = HeaderName::from_static("x-ringfence-sessions-max");
/// Names a request across the systems that it passes.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACE_STATE: HeaderName = HeaderName::from_static("tracestate");
const TRACE_RESPONSE: HeaderName = HeaderName::from_static("traceresponse");

/// To the backend, with every operation.
const TO_BACKEND: [HeaderName; 5] =
    [header::CONTENT_TYPE, header::USER_AGENT, header::ACCEPT_LANGUAGE, TRACE_PARENT, TRACE_STATE];

/// To the backend as well, where the answer is passed on unread.
const TO_BACKEND_UNREAD: [HeaderName; 9] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::CONTENT_ENCODING,
    header::RANGE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
    header::IF_RANGE,
];

/// To the client.
const TO_CLIENT: [HeaderName; 15] = [
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CONTENT_DISPOSITION,
    header::CONTENT_LANGUAGE,
    header::CONTENT_RANGE,
    header::CONTENT_SECURITY_POLICY,
    header::ACCEPT_RANGES,
    header::ALLOW,
    header::CACHE_CONTROL,
    header::DATE,
    header::ETAG,
    header::LAST_MODIFIED,
    header::VARY,
    header::X_CONTENT_TYPE_OPTIONS,
    TRACE_RESPONSE,
];

/// As many fields as a call and its answer have. Room for more than six costs an allocation that no thread's cache holds.
const FIELDS_COMMON: usize = 6;

/// Fields that must stand at most once: two of them are two readings of one request.
const ONCE: [HeaderName; 9] = [
    header::HOST,
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONTENT_ENCODING,
    header::EXPECT,
    header::RANGE,
    REQUEST_ID,
    TRACE_PARENT,
];

/// The first field that stands twice and must not, or that is written so that a server may take it for the gate's own.
pub(crate) fn smuggled(headers: &HeaderMap) -> Option<&'static str> {
    if ONCE.iter().any(|name| headers.get_all(name).iter().nth(1).is_some()) {
        return Some("a header field that may stand once stands twice");
    }
    if headers.contains_key(header::UPGRADE) {
        return Some("the protocol cannot be changed here");
    }
    None
}

/// The request's own id where it is usable, else a fresh one.
pub(crate) fn request_id(headers: &HeaderMap) -> HeaderValue {
    let usable = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        (1..=REQUEST_ID_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    };
    if let Some(given) = headers.get(REQUEST_ID).filter(usable) {
        return given.clone();
    }
    // Without random bytes the id is zeros: it names the request less well, and nothing rests on it.
    let number = u64::from_be_bytes(random_bytes().unwrap_or_default());
    HeaderValue::from_str(&format!("{number:016x}")).unwrap_or(HeaderValue::from_static("0"))
}

/// What the backend gets: what passes of the client's fields, then the gate's own.
pub(crate) fn to_backend(
    client: &HeaderMap,
    unread: bool,
    request_id: &HeaderValue,
    grant: &Grant,
    proof: Option<&Bearer>,
) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(FIELDS_COMMON);
    let more: &[HeaderName] = if unread { &TO_BACKEND_UNREAD } else { &[] };
    for name in TO_BACKEND.iter().chain(more) {
        for value in client.get_all(name) {
            headers.append(name, value.clone());
        }
    }
    headers.insert(REQUEST_ID, request_id.clone());
    tenancy(&mut headers, grant, proof);
    headers
}

/// The gate's own fields: who the tenant is, and the proof that the gate says so.
pub(crate) fn tenancy(headers: &mut HeaderMap, grant: &Grant, proof: Option<&Bearer>) {
    // Ids are made of characters that any header value may hold.
    for (name, text) in [(WORKSPACE, grant.workspace.as_str()), (GRANT, grant.id.as_str())] {
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(name, value);
        }
    }
    if let Some(sessions) = grant.ceilings.sessions_max {
        headers.insert(SESSIONS_MAX, HeaderValue::from(sessions));
    }
    if let Some(proof) = proof {
        headers.insert(header::AUTHORIZATION, proof.header());
    }
}

/// What passes of a backend's fields.
pub(crate) fn to_client(backend: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(FIELDS_COMMON);
    for name in &TO_CLIENT {
        for value in backend.get_all(name) {
            headers.append(name, value.clone());
        }
    }
    headers
}

/// A `Retry-After` that the contract knows: one to six digits.
pub(crate) fn retry_after(backend: &HeaderMap) -> Option<u32> {
    let text = backend.get(header::RETRY_AFTER)?.to_str().ok()?;
    let good = (1..=6).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| good)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn twice_is_smuggled() {
        assert_eq!(smuggled(&map(&[("host", "a"), ("content-type", "x"), ("accept", "a"), ("accept", "b")])), None);
        for name in ["host", "content-type", "Content-Length", "transfer-encoding", "x-request-id", "range"] {
            assert!(smuggled(&map(&[(name, "1"), (name, "1")])).is_some(), "{name}");
        }
        assert!(smuggled(&map(&[("upgrade", "h2c")])).is_some());
    }

    #[test]
    fn request_ids_are_kept_where_they_are_harmless() {
        assert_eq!(request_id(&map(&[("x-request-id", "r-1")])), "r-1");
        for wrong in ["", "a b", &"a".repeat(129)] {
            let made = request_id(&map(&[("x-request-id", wrong)]));
            assert!(made.len() == 16 && made != *wrong, "{made:?}");
        }
    }

    #[test]
    fn only_short_numbers_are_retry_after() {
        for (text, seconds) in
            [("5", Some(5)), ("999999", Some(999_999)), ("1000000", None), ("-1", None), ("+1", None), ("soon", None)]
        {
            assert_eq!(retry_after(&map(&[("retry-after", text)])), seconds, "{text}");
        }
    }
}
