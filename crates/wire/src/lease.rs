//! CreateSession: the hints of a lease, and the handle.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::field::{self, Refusal};
use crate::limits::IMAGE_BYTES_MAX;

/// Lifetime and image hints, all optional. An empty body is the same as `{}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct CreateSessionRequest {
    /// The image this session should run. A hint: one that is not known here is ignored, and the handle says what
    /// runs instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Reclaim the session after this long without activity. Clamped to the server's ceiling.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub idle_timeout_seconds: Option<u64>,
    /// Reclaim the session this long after creation. Clamped to the server's ceiling.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub max_lifetime_seconds: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Raw<'a> {
    #[serde(borrow)]
    image: Option<&'a RawValue>,
    #[serde(borrow)]
    idle_timeout_seconds: Option<&'a RawValue>,
    #[serde(borrow)]
    max_lifetime_seconds: Option<&'a RawValue>,
}

impl CreateSessionRequest {
    /// Parses a body; an empty one and null ask for nothing. An image hint never fails the request (contract,
    /// CreateSession), so one that is no string, or is endless, is passed over.
    ///
    /// # Errors
    /// What is no JSON object, and a timeout that is no integer of at least 1.
    pub fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let text = field::utf8(body)?.trim_ascii();
        if text.is_empty() || text == "null" {
            return Ok(CreateSessionRequest::default());
        }
        let raw: Raw<'_> = field::object(text, "the body")?;
        let seconds = |value: Option<&RawValue>, name| value.map(|raw| field::seconds(raw, name)).transpose();
        Ok(CreateSessionRequest {
            image: raw
                .image
                .and_then(|raw| field::string(raw, "image").ok())
                .filter(|image| !image.is_empty() && image.len() <= IMAGE_BYTES_MAX),
            idle_timeout_seconds: seconds(raw.idle_timeout_seconds, "idle_timeout_seconds")?,
            max_lifetime_seconds: seconds(raw.max_lifetime_seconds, "max_lifetime_seconds")?,
        })
    }
}

/// A leased session.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct SessionHandle {
    /// Addresses this session in every later operation.
    #[schema(min_length = 1)]
    pub session_id: String,
    /// When the session was created, in POSIX seconds.
    pub created_at: f64,
    /// When the session was last used, in POSIX seconds.
    pub last_activity_at: f64,
    /// The idle timeout actually in force; absent where no idle reclaim will come.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub idle_timeout_seconds: Option<u64>,
    /// The maximum lifetime actually in force; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub max_lifetime_seconds: Option<u64>,
    /// The image that the session runs.
    pub image: String,
    /// How strongly the session is held: `cell`.
    pub tier: String,
    /// What a session and a call of it may use.
    pub limits: Limits,
}

/// The sessions that live.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct SessionList {
    /// Their handles, the oldest first.
    pub sessions: Vec<SessionHandle>,
}

/// What an interrupt met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct Interrupted {
    /// Whether a program was running, and was told; what it made of that is in the answer of its own call.
    pub interrupted: bool,
}

/// What a session, and a call of it, may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Limits {
    /// Memory of all processes of the session, bytes.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub processes: u64,
    /// CPU bandwidth in thousandths of one CPU.
    pub cpu_millis: u64,
    /// Bytes of the workspace.
    pub workspace_bytes: u64,
    /// Files and folders of the workspace.
    pub workspace_inodes: u64,
    /// Bytes of `/tmp`.
    pub tmp_bytes: u64,
    /// The timeout of a call that names none.
    pub timeout_seconds_default: u64,
    /// Larger timeouts are clamped to this.
    pub timeout_seconds_max: u64,
    /// Bytes kept of each output stream of a call.
    pub output_bytes_max: u64,
    /// Bytes of one uploaded file.
    pub upload_bytes_max: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_asked_for_is_fine_in_every_form() {
        for body in ["", "  \r\n", "{}", "null", r#"{"later": {"a": [1]}}"#, r#"{"idle_timeout_seconds": null}"#] {
            assert_eq!(CreateSessionRequest::parse(body.as_bytes()), Ok(CreateSessionRequest::default()), "{body}");
        }
    }

    #[test]
    fn hints_are_taken() {
        let body = br#"{"image": "x:1", "idle_timeout_seconds": 5, "max_lifetime_seconds": 99999999999999999999999}"#;
        let wanted = CreateSessionRequest {
            image: Some("x:1".to_owned()),
            idle_timeout_seconds: Some(5),
            max_lifetime_seconds: Some(u64::MAX),
        };
        assert_eq!(CreateSessionRequest::parse(body), Ok(wanted));
    }

    #[test]
    fn an_image_never_fails_the_request() {
        let long = format!(r#"{{"image": "{}"}}"#, "x".repeat(IMAGE_BYTES_MAX + 1));
        for body in [r#"{"image": 5}"#, r#"{"image": []}"#, r#"{"image": ""}"#, r#"{"image": null}"#, &long] {
            assert_eq!(CreateSessionRequest::parse(body.as_bytes()).unwrap().image, None, "{body}");
        }
    }

    #[test]
    fn wrong_timeouts_are_refused_by_name() {
        for name in ["idle_timeout_seconds", "max_lifetime_seconds"] {
            for value in ["0", "-1", "1.5", "1.0", "1e3", "true", "\"5\"", "[]", "{}", "-0"] {
                let refusal = CreateSessionRequest::parse(format!(r#"{{"{name}": {value}}}"#).as_bytes()).unwrap_err();
                assert!(refusal.detail().contains(name), "{refusal}");
            }
        }
        for body in [&b"[]"[..], b"5", b"{", b"\"x\"", b"\xff\xfe", br#"{"a":1} x"#] {
            assert!(CreateSessionRequest::parse(body).is_err(), "{body:?}");
        }
    }
}
