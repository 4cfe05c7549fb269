//! The parts of a multipart body.

/// One part.
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) filename: Option<String>,
    pub(crate) content: Vec<u8>,
}

/// The parts, or `None` where the body is no multipart body.
pub(crate) fn parts(content_type: &str, body: &[u8]) -> Option<Vec<Part>> {
    let boundary = content_type.strip_prefix("multipart/form-data")?.split("boundary=").nth(1)?.trim_matches('"');
    let mark = format!("--{boundary}");
    let mut rest = body.strip_prefix(mark.as_bytes())?;
    let mark = format!("\r\n{mark}");
    let mut parts = Vec::new();
    while let Some(after) = rest.strip_prefix(b"\r\n") {
        let end = position(after, mark.as_bytes())?;
        let (part, more) = after.split_at(end);
        let (head, content) = part.split_at(position(part, b"\r\n\r\n")?);
        let head = String::from_utf8_lossy(head).into_owned();
        let content = content.get(4..)?.to_vec();
        parts.push(Part { name: attribute(&head, "name")?, filename: attribute(&head, "filename"), content });
        rest = more.get(mark.len()..)?;
    }
    rest.starts_with(b"--").then_some(parts)
}

fn attribute(head: &str, name: &str) -> Option<String> {
    let (_, rest) = head.split_once(&format!("; {name}=\""))?;
    rest.split('"').next().map(str::to_owned)
}

fn position(within: &[u8], wanted: &[u8]) -> Option<usize> {
    // A first-byte scan: a plain windows() search over an upload of megabytes takes seconds in a debug build.
    let first = *wanted.first()?;
    let mut from = 0;
    loop {
        let at = from + within.get(from..)?.iter().position(|byte| *byte == first)?;
        if within.get(at..)?.starts_with(wanted) {
            return Some(at);
        }
        from = at + 1;
    }
}
