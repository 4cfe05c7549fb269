//! Claims as JSON, both ways.

use ringfence_op::WorkspaceId;
use serde::Serialize;

use crate::error::Refusal;
use crate::grant::{Ceilings, Grant, GrantId, Tools};
use crate::json::{Json, Object};
use crate::limits::AUDIENCES_MAX;

/// The claims in the order that they are written.
#[derive(Serialize)]
struct Written<'a> {
    iss: &'a str,
    aud: &'a str,
    sub: &'a str,
    jti: &'a str,
    iat: u64,
    nbf: u64,
    exp: u64,
    tools: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sessions_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_seconds_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_timeout_seconds_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_lifetime_seconds_max: Option<u32>,
}

/// The JSON text of the claims.
pub(crate) fn write(grant: &Grant) -> Result<String, serde_json::Error> {
    serde_json::to_string(&Written {
        iss: &grant.issuer,
        aud: &grant.audience,
        sub: grant.workspace.as_str(),
        jti: grant.id.as_str(),
        iat: grant.issued_at,
        nbf: grant.not_before,
        exp: grant.expires_at,
        tools: grant.tools.names().collect(),
        image: grant.image.as_deref(),
        sessions_max: grant.ceilings.sessions_max,
        timeout_seconds_max: grant.ceilings.timeout_seconds_max,
        idle_timeout_seconds_max: grant.ceilings.idle_timeout_seconds_max,
        max_lifetime_seconds_max: grant.ceilings.max_lifetime_seconds_max,
    })
}

/// Reads the claims of a token whose signature holds. Claims that the format does not name are ignored (RFC 7519, 4).
/// `audience` is the reader's own: where the token is for several, it must be among them.
pub(crate) fn read(claims: &Object, audience: &str) -> Result<Grant, Refusal> {
    let grant = Grant {
        issuer: text(claims, "iss")?.to_owned(),
        audience: audience_of(claims, audience)?.to_owned(),
        workspace: WorkspaceId::parse(text(claims, "sub")?).ok_or(Refusal::Claim("sub"))?,
        id: GrantId::parse(text(claims, "jti")?).ok_or(Refusal::Claim("jti"))?,
        issued_at: date(claims, "iat")?,
        not_before: date(claims, "nbf")?,
        expires_at: date(claims, "exp")?,
        tools: tools(claims)?,
        image: optional_text(claims, "image")?,
        ceilings: Ceilings {
            sessions_max: ceiling(claims, "sessions_max")?,
            timeout_seconds_max: ceiling(claims, "timeout_seconds_max")?,
            idle_timeout_seconds_max: ceiling(claims, "idle_timeout_seconds_max")?,
            max_lifetime_seconds_max: ceiling(claims, "max_lifetime_seconds_max")?,
        },
    };
    match grant.check() {
        Ok(()) => Ok(grant),
        Err(crate::GrantError::Claim(name)) => Err(Refusal::Claim(name)),
        Err(_) => Err(Refusal::TooLarge),
    }
}

fn text<'a>(claims: &'a Object, name: &'static str) -> Result<&'a str, Refusal> {
    claims.text(name).ok_or(Refusal::Claim(name))
}

fn optional_text(claims: &Object, name: &'static str) -> Result<Option<String>, Refusal> {
    match claims.member(name) {
        None => Ok(None),
        Some(Json::Text(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Refusal::Claim(name)),
    }
}

fn date(claims: &Object, name: &'static str) -> Result<u64, Refusal> {
    match claims.member(name) {
        Some(Json::Integer(seconds)) => Ok(*seconds),
        _ => Err(Refusal::Claim(name)),
    }
}

fn ceiling(claims: &Object, name: &'static str) -> Result<Option<u32>, Refusal> {
    match claims.member(name) {
        None => Ok(None),
        Some(Json::Integer(value)) => u32::try_from(*value).map(Some).map_err(|_| Refusal::Claim(name)),
        Some(_) => Err(Refusal::Claim(name)),
    }
}

fn texts<'a>(list: &'a [Json], name: &'static str) -> Result<Vec<&'a str>, Refusal> {
    let text = |item: &'a Json| match item {
        Json::Text(text) => Ok(text.as_str()),
        _ => Err(Refusal::Claim(name)),
    };
    list.iter().map(text).collect()
}

fn tools(claims: &Object) -> Result<Tools, Refusal> {
    match claims.member("tools") {
        Some(Json::List(list)) => Tools::new(texts(list, "tools")?).ok_or(Refusal::Claim("tools")),
        _ => Err(Refusal::Claim("tools")),
    }
}

/// The audience to hold against the reader's: its own where it is among several, else the first.
fn audience_of<'a>(claims: &'a Object, own: &str) -> Result<&'a str, Refusal> {
    match claims.member("aud") {
        Some(Json::Text(one)) => Ok(one),
        Some(Json::List(list)) if (1..=AUDIENCES_MAX).contains(&list.len()) => {
            let several = texts(list, "aud")?;
            let matching = several.iter().find(|audience| **audience == own);
            matching.or(several.first()).copied().ok_or(Refusal::Claim("aud"))
        }
        _ => Err(Refusal::Claim("aud")),
    }
}
