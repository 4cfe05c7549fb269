//! The OpenAPI document of the control plane, generated from the types and routes.
//!
//! It is checked in as `crates/control/openapi.json`, which is what is served; a test fails when the two differ.

use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::{audit, grants, keys, resolve, status, tokens, usage, workspaces};

/// The document as it is checked in and served.
pub(crate) fn served() -> &'static str {
    include_str!("../../openapi.json")
}

/// The document as the code says it, pretty-printed with a newline at its end: what `openapi.json` must hold.
///
/// # Errors
/// None in practice: the document is plain data.
pub fn generated() -> Result<String, serde_json::Error> {
    Document::openapi().to_pretty_json().map(|text| text + "\n")
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "ringfence control",
        description = "The control plane: workspaces, policy, tokens, grants, signing keys, usage, audit.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    paths(
        workspaces::create,
        workspaces::list,
        workspaces::get,
        workspaces::replace,
        workspaces::delete,
        tokens::create,
        tokens::list,
        tokens::revoke,
        grants::make,
        resolve::resolve,
        keys::published,
        keys::list,
        keys::add,
        keys::revoke,
        usage::take,
        usage::report,
        usage::export,
        audit::list,
        status::health,
        status::ready,
        status::document,
    ),
    tags(
        (name = "workspaces", description = "Workspaces and their policies; for the admin."),
        (name = "tokens", description = "Tokens of gateways, users and front doors; for the admin."),
        (name = "grants", description = "What gateways ask for."),
        (name = "keys", description = "Signing keys."),
        (name = "usage", description = "Delivered by front doors, read by the admin."),
        (name = "audit", description = "Every change and every grant; for the admin."),
        (name = "status", description = "The control plane itself."),
    ),
    modifiers(&Credential),
)]
struct Document;

/// One scheme for all: whose token it is decides what may be done.
struct Credential;

impl Modify for Credential {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("The admin's token, or one of `/v1/tokens` of the kind that an operation is for"))
            .build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(scheme));
        let none: [&str; 0] = [];
        document.security = Some(vec![SecurityRequirement::new("bearer", none)]);
    }
}
