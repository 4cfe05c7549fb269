//! The document against the code.

use std::collections::BTreeSet;

use serde_json::Value;

#[test]
fn the_checked_in_document_is_what_the_code_says() {
    let checked_in = include_str!("../../openapi.json");
    let generated = ringfence_control::openapi::generated().unwrap();
    assert!(
        checked_in == generated,
        "`cargo run -p ringfence-control --example openapi > crates/control/openapi.json` makes it anew"
    );
}

/// Every route of the router stands in the document, and the other way round.
#[test]
fn the_document_has_every_route() {
    let source = include_str!("../../src/api/mod.rs");
    let routes: BTreeSet<&str> =
        source.lines().filter_map(|line| line.trim().strip_prefix(".route(\"")?.split('"').next()).collect();
    let document: Value = serde_json::from_str(include_str!("../../openapi.json")).unwrap();
    let paths: BTreeSet<&str> = document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(routes, paths);
    assert!(paths.len() > 10);
}
