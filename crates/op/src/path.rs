//! Paths inside a workspace, parsed once.

use std::fmt;

/// A path relative to the workspace's root: components joined by `/`, none of them empty, `.` or `..`.
///
/// The empty path is the root itself. A leading `/workspace` (the root's name inside the cell) is accepted and
/// taken off, since programs and models name files that way; every other absolute path is refused. `..` is
/// resolved by the text and refused where it would climb above the root.
///
/// The text says nothing about symbolic links: whoever opens the path must resolve it beneath a held directory
/// descriptor (`openat2`, `RESOLVE_BENEATH`).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkspacePath(String);

/// Why a text is no workspace path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathRefusal {
    /// It leaves the workspace.
    Escapes,
    /// It holds a NUL byte.
    Nul,
    /// It, or one of its components, is longer than the file system allows.
    TooLong,
}

impl WorkspacePath {
    /// Where the workspace is inside the cell.
    pub const ROOT_IN_CELL: &'static str = "/workspace";
    /// The longest path, bytes (`PATH_MAX` less the terminating NUL).
    pub const BYTES_MAX: usize = 4095;
    /// The longest component, bytes (`NAME_MAX`).
    pub const NAME_BYTES_MAX: usize = 255;

    /// Parses a caller's text.
    ///
    /// # Errors
    /// The refusal, when the text is no path inside the workspace.
    pub fn parse(text: &str) -> Result<Self, PathRefusal> {
        if text.contains('\0') {
            return Err(PathRefusal::Nul);
        }
        if text.len() > Self::BYTES_MAX {
            return Err(PathRefusal::TooLong);
        }
        let relative = match text.strip_prefix('/') {
            None => text,
            Some(_) => match text.strip_prefix(Self::ROOT_IN_CELL) {
                Some(rest) if rest.is_empty() || rest.starts_with('/') => rest,
                _ => return Err(PathRefusal::Escapes),
            },
        };
        let mut parts: Vec<&str> = Vec::new();
        for part in relative.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop().ok_or(PathRefusal::Escapes)?;
                }
                name if name.len() > Self::NAME_BYTES_MAX => return Err(PathRefusal::TooLong),
                name => parts.push(name),
            }
        }
        Ok(WorkspacePath(parts.join("/")))
    }

    /// The root.
    #[must_use]
    pub fn root() -> Self {
        WorkspacePath(String::new())
    }

    /// Whether it is the root itself.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The text, without a leading or trailing slash.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last component; `None` for the root.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.rsplit('/').next().filter(|name| !name.is_empty())
    }
}

impl fmt::Display for WorkspacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_plain() {
        for (text, plain) in [
            ("a", "a"),
            ("./a//b/", "a/b"),
            ("a/../b", "b"),
            ("/workspace/a", "a"),
            ("/workspace", ""),
            (".", ""),
            ("", ""),
        ] {
            assert_eq!(WorkspacePath::parse(text).unwrap().as_str(), plain, "{text}");
        }
    }

    #[test]
    fn what_leaves_is_refused() {
        for text in ["..", "../a", "a/../../b", "/", "/etc/passwd", "/workspaces/a", "/workspace/../etc"] {
            assert_eq!(WorkspacePath::parse(text), Err(PathRefusal::Escapes), "{text}");
        }
        assert_eq!(WorkspacePath::parse("a\0b"), Err(PathRefusal::Nul));
        assert_eq!(WorkspacePath::parse(&"x".repeat(256)), Err(PathRefusal::TooLong));
        assert_eq!(WorkspacePath::parse(&"a/".repeat(3000)), Err(PathRefusal::TooLong));
    }
}
