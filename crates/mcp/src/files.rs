//! Files of the session, as resources and as content.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use ringfence_client::{ClientError, FileEntry, Session};
use rmcp::model::{ContentBlock, Resource, ResourceContents};

use crate::describe::size;
use crate::limits::FILES_LISTED_MAX;

/// What the address of every file begins with; its path follows, percent-encoded.
pub(crate) const PREFIX: &str = "workspace:///";

/// What stands for itself in a path.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The address of a file.
pub(crate) fn uri(path: &str) -> String {
    format!("{PREFIX}{}", utf8_percent_encode(path, PLAIN))
}

/// The path that an address names; `None` where it is none of ours.
pub(crate) fn path_of(uri: &str) -> Option<String> {
    let path = percent_decode_str(uri.strip_prefix(PREFIX)?).decode_utf8().ok()?;
    (!path.is_empty()).then(|| path.into_owned())
}

/// A file as a link.
pub(crate) fn link(path: &str) -> Resource {
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut link = Resource::new(uri(path), name).with_title(path);
    if let Some(kind) = mime_guess::from_path(path).first_raw() {
        link = link.with_mime_type(kind);
    }
    link
}

/// One page of a listing, and what the next page begins with.
pub(crate) fn page(files: &[FileEntry], cursor: Option<&str>) -> (Vec<Resource>, Option<String>) {
    let first = cursor.and_then(|cursor| cursor.parse::<usize>().ok()).unwrap_or(0);
    let rest = files.get(first..).unwrap_or_default();
    let shown = rest.iter().take(FILES_LISTED_MAX);
    let links = shown.map(|file| link(&file.path).with_size(file.size_bytes)).collect();
    (links, (rest.len() > FILES_LISTED_MAX).then(|| (first + FILES_LISTED_MAX).to_string()))
}

/// A listing as a text.
pub(crate) fn table(files: &[FileEntry]) -> String {
    if files.is_empty() {
        return "[no files]".to_owned();
    }
    let line = |file: &FileEntry| format!("{}\t{}\n", file.path.escape_debug(), size(file.size_bytes));
    let mut text: String = files.iter().take(FILES_LISTED_MAX).map(line).collect();
    if files.len() > FILES_LISTED_MAX {
        text.push_str(&format!("[and {} more]", files.len() - FILES_LISTED_MAX));
    }
    text
}

/// A file's content, up to a bound.
pub(crate) async fn fetch(session: &Session, path: &str, bytes_max: usize) -> Result<Bytes, ClientError> {
    session.open(path).await?.bytes(bytes_max).await
}

/// A file's content as a resource: text where it is text by its bytes, else base64.
pub(crate) fn contents(path: &str, bytes: &Bytes) -> ResourceContents {
    let guessed = mime_guess::from_path(path).first_raw();
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => {
            ResourceContents::text(text, uri(path)).with_mime_type(guessed.unwrap_or("text/plain"))
        }
        _ => {
            let kind = picture_kind(bytes).or(guessed).unwrap_or("application/octet-stream");
            ResourceContents::blob(BASE64.encode(bytes), uri(path)).with_mime_type(kind)
        }
    }
}

/// A file's content for a model: a picture, or a resource.
pub(crate) fn content(path: &str, bytes: &Bytes, image_bytes_max: usize) -> ContentBlock {
    match picture_kind(bytes) {
        Some(kind) if bytes.len() <= image_bytes_max => ContentBlock::image(BASE64.encode(bytes), kind),
        _ => ContentBlock::resource(contents(path, bytes)),
    }
}

/// Whether a name promises a picture of a kind that models are shown.
pub(crate) fn is_named_picture(path: &str) -> bool {
    matches!(mime_guess::from_path(path).first_raw(), Some("image/png" | "image/jpeg" | "image/gif" | "image/webp"))
}

/// The kind of picture that these bytes begin as. A name is not believed: what is no picture, and is shown as one, can
/// make a whole conversation unreadable to the model.
pub(crate) fn picture_kind(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_back_to_their_paths() {
        for path in ["a.txt", "deep/b c.txt", "ä%41?#.csv", "../x"] {
            assert_eq!(path_of(&uri(path)).as_deref(), Some(path));
        }
        assert_eq!(uri("a b/c.txt"), "workspace:///a%20b/c.txt");
        for wrong in ["workspace:///", "file:///a", "workspace:///%ff", ""] {
            assert_eq!(path_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_name_makes_no_picture() {
        assert!(is_named_picture("a/B.PNG") && !is_named_picture("a.svg") && !is_named_picture("png"));
        assert_eq!(picture_kind(b"\x89PNG\r\n\x1a\n..."), Some("image/png"));
        assert_eq!(picture_kind(b"RIFF....WEBPVP8 "), Some("image/webp"));
        assert_eq!(picture_kind(b"<svg>"), None);
        let text = contents("lies.png", &Bytes::from_static(b"no picture"));
        assert!(matches!(text, ResourceContents::TextResourceContents { .. }));
        assert!(content("x", &Bytes::from_static(b"GIF89a"), 100).as_image().is_some());
        assert!(content("x", &Bytes::from_static(b"GIF89a"), 5).as_resource().is_some());
    }

    #[test]
    fn a_long_listing_comes_in_pages() {
        let file = |index| FileEntry { path: format!("{index}"), size_bytes: 1, mime_type: None, modified_at: None };
        let files: Vec<FileEntry> = (0..FILES_LISTED_MAX + 2).map(file).collect();
        let (first, next) = page(&files, None);
        assert_eq!((first.len(), next.as_deref()), (FILES_LISTED_MAX, Some("500")));
        let (second, next) = page(&files, next.as_deref());
        assert_eq!((second.len(), next), (2, None));
        assert_eq!(page(&files, Some("x")).0.len(), FILES_LISTED_MAX);
        assert!(page(&files, Some("99999")).0.is_empty());
        assert!(table(&files).ends_with("[and 2 more]"));
    }
}
