//! Media types, from names alone: contents are never looked at.

/// The media type that a path's extension suggests.
pub(crate) fn media_type(path: &str) -> Option<&'static str> {
    mime_guess::from_path(path).first_raw()
}

/// The `Content-Type` of a file. Texts are said to be UTF-8, which is what programs write.
pub(crate) fn content_type(path: &str) -> String {
    match media_type(path) {
        None => "application/octet-stream".to_owned(),
        Some(text) if text.starts_with("text/") || text == "application/json" || text == "image/svg+xml" => {
            format!("{text}; charset=utf-8")
        }
        Some(other) => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_suggest_types() {
        for (path, wanted) in [
            ("a/chart.png", "image/png"),
            ("t.csv", "text/csv; charset=utf-8"),
            ("x.html", "text/html; charset=utf-8"),
            ("no_extension", "application/octet-stream"),
            ("odd.\u{e9}", "application/octet-stream"),
        ] {
            assert_eq!(content_type(path), wanted, "{path}");
        }
    }
}
