//! The OpenAPI document of what is served, generated from the types and routes.
//!
//! It is checked in as `crates/server/openapi.json`, which is what is served; a test fails when the two differ.

use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Ref, RefOr, ResponseBuilder, Schema};
use utoipa::{Modify, OpenApi};

use crate::routes::{
    create_session, delete_file, destroy_session, execute, get_archive, get_file, get_session, interrupt, list_files,
    list_sessions, put_archive, put_file, status, tenancy,
};

const CHECKED_IN: &str = include_str!("../openapi.json");

/// The document as it is checked in and served.
pub(crate) fn served() -> &'static str {
    CHECKED_IN
}

/// The document as the code says it, pretty-printed with a newline at its end: what `openapi.json` must hold.
///
/// # Errors
/// None in practice: the document is plain data.
pub fn generated() -> Result<String, serde_json::Error> {
    Document::openapi().to_pretty_json().map(|text| text + "\n")
}

/// Paths, schemas, and what all operations have in common.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "ringfence",
        description = "A code-execution backend: the code-execution protocol, contract version 1, and additions.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    paths(
        create_session::handle,
        list_sessions::handle,
        get_session::handle,
        destroy_session::handle,
        execute::handle,
        interrupt::handle,
        list_files::handle,
        get_file::handle,
        put_file::handle,
        delete_file::handle,
        get_archive::handle,
        put_archive::handle,
        tenancy::handle,
        status::health,
        status::ready,
        status::openapi,
        status::metrics,
    ),
    tags(
        (name = "sessions", description = "Leases and calls."),
        (name = "files", description = "Files of a session's workspace."),
        (name = "server", description = "The server itself."),
    ),
    modifiers(&Credential),
)]
struct Document;

/// Every operation that needs the credential, where one is set, says so and answers 401.
struct Credential;

impl Modify for Credential {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_default();
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("`Authorization: Bearer <token>`, where the server was given a token."))
            .build();
        components.add_security_scheme("bearerAuth", SecurityScheme::Http(bearer));
        let unauthorized = ResponseBuilder::new()
            .description("Credential missing or rejected, where the server wants one.")
            .content("application/json", utoipa::openapi::Content::new(Some(Ref::from_schema_name("Error"))))
            .build();
        components.responses.insert("Unauthorized".to_owned(), RefOr::T(unauthorized));
        let none = SecurityRequirement::default();
        let token = SecurityRequirement::new("bearerAuth", [""; 0]);
        openapi.security = Some(vec![none, token]);
        for operation in openapi.paths.paths.values_mut().flat_map(operations) {
            optional_body(operation);
            if operation.security.is_none() {
                let reference = RefOr::Ref(Ref::from_response_name("Unauthorized"));
                operation.responses.responses.insert("401".to_owned(), reference);
            }
        }
    }
}

/// An optional body is one that may be missing, not one that is null.
fn optional_body(operation: &mut Operation) {
    let Some(body) = operation.request_body.as_mut().filter(|body| body.required.is_none()) else { return };
    body.required = Some(utoipa::openapi::Required::False);
    for content in body.content.values_mut() {
        if let Some(RefOr::T(Schema::OneOf(either))) = &content.schema {
            content.schema = either.items.iter().find(|item| matches!(item, RefOr::Ref(_))).cloned();
        }
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.post, &mut item.put, &mut item.delete].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Run with `RINGFENCE_WRITE_OPENAPI=1` to write the file anew.
    #[test]
    fn the_checked_in_document_is_what_the_code_says() {
        let generated = generated().unwrap();
        if std::env::var_os("RINGFENCE_WRITE_OPENAPI").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json"), &generated).unwrap();
            return;
        }
        assert!(generated == CHECKED_IN, "openapi.json is out of date: run this test with RINGFENCE_WRITE_OPENAPI=1");
    }
}
