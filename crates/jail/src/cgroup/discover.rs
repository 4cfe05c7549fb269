//! Where the cgroup file systems are mounted, and where in them this process lives. Pure.

use std::path::{Path, PathBuf};

use super::Version;

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) version: Version,
    /// Which part of the hierarchy the mount shows.
    pub(super) root: PathBuf,
    /// Where.
    pub(super) point: PathBuf,
    /// v1: names of the controllers.
    pub(super) controllers: Vec<String>,
}

/// This process's group in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Own {
    /// v1: names of the controllers; v2: empty.
    pub(super) controllers: Vec<String>,
    pub(super) path: PathBuf,
}

/// Reads `/proc/self/mountinfo` (`proc(5)`).
pub(super) fn mounts(mountinfo: &str) -> Vec<Mount> {
    mountinfo.lines().filter_map(mount).collect()
}

fn mount(line: &str) -> Option<Mount> {
    let (place, kind) = line.split_once(" - ")?;
    let mut kind = kind.split(' ');
    let version = match kind.next()? {
        "cgroup" => Version::V1,
        "cgroup2" => Version::V2,
        _ => return None,
    };
    let controllers = match version {
        Version::V1 => kind.nth(1)?.split(',').map(str::to_owned).collect(),
        Version::V2 => Vec::new(),
    };
    let mut place = place.split(' ').skip(3);
    Some(Mount { version, root: unescape(place.next()?), point: unescape(place.next()?), controllers })
}

/// Blanks and the like are written as `\040` there.
fn unescape(field: &str) -> PathBuf {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_at_checked(3).map(|(code, rest)| (u8::from_str_radix(code, 8), rest)) {
            Some((Ok(code), rest)) => {
                text.push(char::from(code));
                text.push_str(rest);
            }
            _ => text.push_str(part),
        }
    }
    text.into()
}

/// Reads `/proc/self/cgroup` (`cgroups(7)`).
pub(super) fn own(text: &str) -> Vec<Own> {
    text.lines()
        .filter_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let controllers = controllers.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
            Some(Own { controllers, path: path.into() })
        })
        .collect()
}

impl Mount {
    /// Whether it has this v1 controller.
    pub(super) fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }

    /// The folder that shows the group `own`; the mount's own where it lies outside of what is shown.
    pub(super) fn folder(&self, own: &Path) -> PathBuf {
        let inside = own.strip_prefix(&self.root).unwrap_or(Path::new(""));
        if inside.components().any(|part| part.as_os_str() == "..") {
            return self.point.clone();
        }
        self.point.join(inside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &str = "\
        22 1 0:20 / /proc rw - proc proc rw\n\
        30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
        31 25 0:27 /docker/ab /sys/fs/cgroup/mem\\040ory rw - cgroup cgroup rw,memory\n\
        32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn hierarchies_are_found() {
        let found = mounts(MOUNTINFO);
        assert_eq!(found.len(), 3);
        assert!(found[0].has("cpu") && found[0].has("cpuacct") && !found[0].has("memory"));
        assert_eq!(found[1].point, Path::new("/sys/fs/cgroup/mem ory"));
        assert_eq!(found[1].folder(Path::new("/docker/ab/x")), Path::new("/sys/fs/cgroup/mem ory/x"));
        assert_eq!(found[1].folder(Path::new("/elsewhere")), Path::new("/sys/fs/cgroup/mem ory/"));
        assert_eq!(found[2].version, Version::V2);
        assert_eq!(found[2].folder(Path::new("/../up")), Path::new("/sys/fs/cgroup/unified"));
    }

    #[test]
    fn own_groups_are_read() {
        let own = own("8:cpu,cpuacct:/a\n4:memory:/a/b\n0::/user.slice/x:y\n");
        assert_eq!(own[0].controllers, ["cpu", "cpuacct"]);
        assert_eq!(own[1].path, Path::new("/a/b"));
        assert_eq!(own[2], Own { controllers: Vec::new(), path: "/user.slice/x:y".into() });
    }

    #[test]
    fn rubbish_is_skipped() {
        assert!(mounts("x\n - cgroup\n1 2 3 - cgroup2\n").is_empty());
        assert!(own("no colon\n1:two\n").is_empty());
    }
}
