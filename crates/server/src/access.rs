//! Who may ask for what: the proof that a peer gives of itself, and the tenancy that only a proven peer can tell.

use std::sync::{Mutex, PoisonError};

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use ringfence_op::{Fault, FaultKind, Tenant, WorkspaceId};
use ringfence_tls::ServerTls;
use tokio::time::Instant;

use crate::door::BearerToken;
use crate::limits::RETRY_AFTER_SECONDS_MAX;
use crate::rate::{Rate, Rates};
use crate::refusal::Refusal;

/// The workspace that an operation is for.
const WORKSPACE: HeaderName = HeaderName::from_static("x-ringfence-workspace");
/// The ceiling of its sessions.
const SESSIONS_MAX: HeaderName = HeaderName::from_static("x-ringfence-sessions-max");
/// The id of the grant behind it, for logs.
const GRANT: HeaderName = HeaderName::from_static("x-ringfence-grant");

/// What the door asks of its callers.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// The token that every request must carry.
    pub token: Option<BearerToken>,
    /// What connections are shown, and the certificates that they must have; `None` is plain HTTP.
    pub tls: Option<ServerTls>,
    /// The server is shared between workspaces, which whoever has proven itself names for each operation.
    pub tenancy: Option<Tenancy>,
}

/// How workspaces share the door.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tenancy {
    /// Requests of one workspace; `None` is as many as come.
    pub rate: Option<Rate>,
}

impl From<Option<BearerToken>> for Access {
    fn from(token: Option<BearerToken>) -> Self {
        Access { token, ..Access::default() }
    }
}

impl Access {
    /// Whether a caller that was let in has proven whose it is.
    pub(crate) fn is_proven(&self) -> bool {
        self.token.is_some() || self.tls.as_ref().is_some_and(ServerTls::proves_peers)
    }
}

/// The tenants of a shared door.
pub(crate) struct Tenants {
    begun: Instant,
    rates: Option<Mutex<Rates>>,
}

impl Tenants {
    pub(crate) fn new(tenancy: Tenancy) -> Self {
        Tenants { begun: Instant::now(), rates: tenancy.rate.map(|rate| Mutex::new(Rates::new(rate))) }
    }

    /// Counts a request of a workspace.
    ///
    /// # Errors
    /// `Capacity`, when it has asked too often; with the time after which it will not have.
    pub(crate) fn count(&self, workspace: &WorkspaceId) -> Result<(), Refusal> {
        let Some(rates) = &self.rates else { return Ok(()) };
        let now = self.begun.elapsed();
        rates.lock().unwrap_or_else(PoisonError::into_inner).take(workspace, now).map_err(|wait| {
            // Whole seconds, and never too few.
            let seconds = u32::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
            let kind = FaultKind::Capacity { retry_after_seconds: seconds.clamp(1, RETRY_AFTER_SECONDS_MAX) };
            Refusal::Fault(Fault::new(kind, "the workspace asks more often than it may"))
        })
    }
}

/// Who a request is for, told by a peer that has proven itself. There is no default.
///
/// # Errors
/// When it is not told, told twice, or not of its form.
pub(crate) fn tenant(headers: &HeaderMap) -> Result<Tenant, Refusal> {
    let workspace = once(headers, &WORKSPACE)?.ok_or(Refusal::Tenancy(
        "`X-Ringfence-Workspace` is missing: this server wants to know who a request is for",
    ))?;
    let workspace = workspace
        .to_str()
        .ok()
        .and_then(WorkspaceId::parse)
        .ok_or(Refusal::Tenancy("`X-Ringfence-Workspace` is no workspace's id"))?;
    let sessions_max = match once(headers, &SESSIONS_MAX)? {
        None => None,
        Some(value) => Some(
            ceiling(value).ok_or(Refusal::Tenancy("`X-Ringfence-Sessions-Max` must be a whole number of 1 or more"))?,
        ),
    };
    Ok(Tenant { workspace, sessions_max })
}

/// The grant behind a request, where it can stand in a log.
pub(crate) fn grant(headers: &HeaderMap) -> Option<&str> {
    let id = headers.get(GRANT)?.to_str().ok()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    (id.len() <= WorkspaceId::BYTES_MAX && id.bytes().all(plain)).then_some(id)
}

fn once<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, Refusal> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (first, None) => Ok(first),
        _ => Err(Refusal::Tenancy("a field of the tenancy stands twice")),
    }
}

/// Digits alone: no sign, no space. What is larger than any server is as good as no ceiling.
fn ceiling(value: &HeaderValue) -> Option<usize> {
    let text = value.to_str().ok()?;
    let digits = !text.is_empty() && text.len() <= 20 && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(usize::MAX)).filter(|number| *number >= 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    #[test]
    fn a_tenant_is_told_once_and_in_its_form_or_not_at_all() {
        const W: &str = "x-ringfence-workspace";
        const M: &str = "x-ringfence-sessions-max";
        let told = tenant(&headers(&[(W, "team-a"), (M, "3")])).unwrap();
        assert_eq!((told.workspace.as_str(), told.sessions_max), ("team-a", Some(3)));
        assert_eq!(tenant(&headers(&[(W, "team-a")])).unwrap().sessions_max, None);
        assert_eq!(tenant(&headers(&[(W, "a"), (M, "99999999999999999999")])).unwrap().sessions_max, Some(usize::MAX));
        for wrong in [
            &[][..],
            &[(M, "3")],
            &[(W, "")],
            &[(W, " ")],
            &[(W, "team a")],
            &[(W, "team-a,team-b")],
            &[(W, "../b")],
            &[(W, "p\u{e4}")],
            &[(W, "team-a"), (W, "team-a")],
            &[(W, "team-a"), (W, "team-b")],
            &[(W, "team-a"), (M, "0")],
            &[(W, "team-a"), (M, "-1")],
            &[(W, "team-a"), (M, "+1")],
            &[(W, "team-a"), (M, "1.0")],
            &[(W, "team-a"), (M, "")],
            &[(W, "team-a"), (M, "1"), (M, "2")],
        ] {
            assert!(matches!(tenant(&headers(wrong)), Err(Refusal::Tenancy(_))), "{wrong:?}");
        }
        assert!(tenant(&headers(&[(W, &"x".repeat(65))])).is_err());
    }

    #[test]
    fn a_grant_that_could_break_a_log_line_is_left_out() {
        assert_eq!(grant(&headers(&[("x-ringfence-grant", "grant-1")])), Some("grant-1"));
        for wrong in ["a b", "a\"b", &"x".repeat(65)] {
            assert_eq!(grant(&headers(&[("x-ringfence-grant", wrong)])), None, "{wrong}");
        }
    }
}
