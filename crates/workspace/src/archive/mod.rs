//! Folders as tar archives, in both directions.

mod header;
mod read;
mod write;

pub use read::Unpacked;
pub(crate) use read::unpack;
pub use write::Archive;

/// Whether a symbolic link at `path` (from the archive's folder) with this target leads nowhere but into that folder,
/// by its text alone.
fn stays_inside(path: &[u8], target: &[u8]) -> bool {
    if target.is_empty() || target.first() == Some(&b'/') || target.contains(&0) {
        return false;
    }
    let mut depth = path.iter().filter(|byte| **byte == b'/').count();
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if depth == 0 => return false,
            b".." => depth -= 1,
            _ => depth += 1,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::stays_inside;

    #[test]
    fn links_are_judged_by_their_text() {
        for (path, target, inside) in [
            ("a", "b", true),
            ("a/b", "../c", true),
            ("a/b", "../../c", false),
            ("a", "..", false),
            ("a", "/b", false),
            ("a/b/c", "../../d/./e", true),
            ("a", "b/../../c", false),
        ] {
            assert_eq!(stays_inside(path.as_bytes(), target.as_bytes()), inside, "{path} -> {target}");
        }
    }
}
