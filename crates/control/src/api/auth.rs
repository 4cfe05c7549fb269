//! Who asks.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, header};
use subtle::ConstantTimeEq;

use super::Shared;
use super::fault::Fault;
use crate::store::TokenRow;
use crate::token::{Kind, hash};

/// The admin.
pub(crate) struct Admin;

/// A gateway, by its own token.
pub(crate) struct Gateway(pub(crate) TokenRow);

/// A front door that delivers usage.
pub(crate) struct Gate(pub(crate) TokenRow);

impl FromRequestParts<Shared> for Admin {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, Fault> {
        let shown = hash(bearer(&parts.headers)?);
        // Hashes of equal length are compared, in constant time.
        if bool::from(shown.as_bytes().ct_eq(app.admin_hash.as_bytes())) {
            Ok(Admin)
        } else {
            Err(Fault::Unauthenticated)
        }
    }
}

impl FromRequestParts<Shared> for Gateway {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, Fault> {
        token(app, bearer(&parts.headers)?, Kind::Gateway).await.map(Gateway)
    }
}

impl FromRequestParts<Shared> for Gate {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, Fault> {
        token(app, bearer(&parts.headers)?, Kind::Gate).await.map(Gate)
    }
}

/// The token that was shown, if it is known, not revoked and of that kind. All else is 401: a token of another kind is
/// no credential here.
pub(crate) async fn token(app: &Shared, text: &str, kind: Kind) -> Result<TokenRow, Fault> {
    let row = app.store.token_by_hash(&hash(text)).await?;
    row.filter(|row| row.kind == kind).ok_or(Fault::Unauthenticated)
}

/// The one value of a header that may stand once.
pub(crate) fn once<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a str, Fault> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().map_err(|_| Fault::Unauthenticated),
        _ => Err(Fault::Unauthenticated),
    }
}

fn bearer(headers: &HeaderMap) -> Result<&str, Fault> {
    let value = once(headers, &header::AUTHORIZATION)?;
    let (scheme, token) = value.split_once(' ').ok_or(Fault::Unauthenticated)?;
    let good = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && !token.contains(' ');
    if good { Ok(token) } else { Err(Fault::Unauthenticated) }
}
