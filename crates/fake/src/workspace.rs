//! Files, folders and links in memory: the workspace, and a little of what is outside.

use std::collections::{BTreeMap, BTreeSet};

pub(crate) const ROOT: &str = "/workspace";
const LINKS_MAX: usize = 40;

/// What a cell's programs see, by absolute paths.
pub(crate) struct Disk {
    files: BTreeMap<String, File>,
    folders: BTreeSet<String>,
    links: BTreeMap<String, String>,
    ticks: u32,
}

/// One file.
pub(crate) struct File {
    pub(crate) content: Vec<u8>,
    pub(crate) modified_at: f64,
}

impl Default for Disk {
    fn default() -> Self {
        let folders = ["/", ROOT, "/etc", "/tmp"].map(str::to_owned).into();
        let mut disk = Disk { files: BTreeMap::new(), folders, links: BTreeMap::new(), ticks: 0 };
        disk.write("/etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n".to_vec());
        disk
    }
}

impl Disk {
    /// Where a path leads, as an absolute path without links; `None` for a loop of links.
    pub(crate) fn resolve(&self, path: &str) -> Option<String> {
        let mut at: Vec<String> = if path.starts_with('/') { Vec::new() } else { vec!["workspace".to_owned()] };
        let mut todo: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut links = 0;
        while let Some(name) = todo.pop() {
            match name.as_str() {
                "" | "." => continue,
                ".." => drop(at.pop()),
                _ => at.push(name),
            }
            if let Some(target) = self.links.get(&absolute(&at)) {
                links += 1;
                if links > LINKS_MAX {
                    return None;
                }
                at.pop();
                if target.starts_with('/') {
                    at.clear();
                }
                todo.extend(target.split('/').rev().map(str::to_owned));
            }
        }
        Some(absolute(&at))
    }

    pub(crate) fn file(&self, absolute: &str) -> Option<&File> {
        self.files.get(absolute)
    }

    pub(crate) fn is_folder(&self, absolute: &str) -> bool {
        self.folders.contains(absolute)
    }

    pub(crate) fn exists(&self, absolute: &str) -> bool {
        self.is_folder(absolute) || self.files.contains_key(absolute)
    }

    /// Writes a file, and the folders above it.
    pub(crate) fn write(&mut self, absolute: &str, content: Vec<u8>) {
        self.ticks += 1;
        let modified_at = 1_786_000_000.0 + f64::from(self.ticks) / 64.0;
        let mut folder = absolute;
        while let Some((parent, _)) = folder.rsplit_once('/') {
            self.folders.insert(if parent.is_empty() { "/".to_owned() } else { parent.to_owned() });
            folder = parent;
        }
        self.files.insert(absolute.to_owned(), File { content, modified_at });
    }

    pub(crate) fn remove(&mut self, absolute: &str) -> bool {
        self.files.remove(absolute).is_some()
    }

    pub(crate) fn link(&mut self, target: &str, path: &str) {
        self.links.insert(format!("{ROOT}/{path}"), target.to_owned());
    }

    pub(crate) fn make_folder(&mut self, absolute: &str) {
        self.folders.insert(absolute.to_owned());
    }

    /// The files of a folder, and below it where wanted.
    pub(crate) fn list<'a>(&'a self, folder: &str, deep: bool) -> impl Iterator<Item = (&'a String, &'a File)> {
        let prefix = if folder == "/" { "/".to_owned() } else { format!("{folder}/") };
        let within = move |path: &str| path.strip_prefix(&prefix).is_some_and(|rest| deep || !rest.contains('/'));
        self.files.iter().filter(move |(path, _)| within(path))
    }
}

pub(crate) fn is_inside(absolute: &str) -> bool {
    absolute.strip_prefix(ROOT).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The path as the API names it.
pub(crate) fn relative(absolute: &str) -> &str {
    absolute.strip_prefix(ROOT).map_or(absolute, |rest| rest.trim_start_matches('/'))
}

fn absolute(parts: &[String]) -> String {
    format!("/{}", parts.join("/"))
}
