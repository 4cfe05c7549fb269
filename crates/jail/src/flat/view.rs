//! An image seen without mounts: where its paths are on the machine's own disk.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ringfence_op::{RootSpec, RootSymlink};

use crate::failure::{At, SetupFailure};
use crate::step::StepName;

/// Folders of a session, which the guard puts in their place.
const OF_SESSIONS: [&str; 2] = ["/workspace", "/tmp"];

/// Whether the image cannot be seen without mounts: it has no interpreter of its own to hold its sessions, or puts
/// something of its own in the place of the machine's.
#[must_use]
pub fn needs_mounts(spec: &RootSpec) -> bool {
    let hides = |source: &Path, target: &Path| {
        let top = target.components().count() <= 2;
        source != target
            && (top || fs::symlink_metadata(target).is_ok())
            && target.canonicalize().ok() != source.canonicalize().ok()
    };
    spec.python.is_none() || spec.binds.iter().any(|bind| hides(&bind.source, &bind.target))
}

/// An image as sessions without mounts see it.
pub(super) struct View {
    /// Holds the links and files that the image adds to the machine's.
    added: PathBuf,
    binds: Vec<(PathBuf, PathBuf)>,
    /// The environment, with real paths but for those of the session.
    pub(super) environment: Vec<(String, String)>,
    /// The shell.
    pub(super) shell: PathBuf,
    /// The interpreter.
    pub(super) python: Option<PathBuf>,
    /// Links in a session's temporary folder, relative to it, and what they lead to.
    pub(super) tmp_links: Vec<(PathBuf, PathBuf)>,
}

impl View {
    /// Makes the links and files of the image in the new folder `added`.
    pub(super) fn make(spec: &RootSpec, added: PathBuf) -> Result<View, SetupFailure> {
        fs::create_dir(&added).at(StepName::ImageRoot, || added.display().to_string())?;
        for link in spec.symlinks.iter().filter(|link| is_news(&link.link)) {
            make_link(&added, link).at(StepName::ImageRoot, || link.link.display().to_string())?;
        }
        for file in spec.files.iter().filter(|file| is_news(&file.path)) {
            let place = added.join(below_root(&file.path));
            let made = make_parent(&place).and_then(|()| fs::write(&place, &file.content));
            made.at(StepName::ImageRoot, || file.path.display().to_string())?;
        }
        let binds = spec.binds.iter().map(|bind| (bind.target.clone(), bind.source.clone())).collect();
        let mut view =
            View { added, binds, environment: Vec::new(), shell: PathBuf::new(), python: None, tmp_links: Vec::new() };
        view.shell = view.real(&spec.shell);
        view.python = spec.python.as_deref().map(|python| view.real(python));
        let value = |value: &str| value.split(':').map(|place| view.real_text(place)).collect::<Vec<_>>().join(":");
        view.environment = spec.environment.iter().map(|(name, text)| (name.clone(), value(text))).collect();
        let below_tmp = |path: &Path| path.strip_prefix("/tmp").ok().map(Path::to_path_buf);
        let links = spec.tmp_symlinks.iter().filter_map(|link| Some((below_tmp(&link.link)?, view.real(&link.target))));
        view.tmp_links = links.collect();
        Ok(view)
    }

    /// What of the machine's disk sessions may see.
    pub(super) fn seen(&self) -> Vec<PathBuf> {
        self.binds.iter().map(|(_, source)| source.clone()).chain([self.added.clone()]).collect()
    }

    /// Where a path of the image really is.
    fn real(&self, path: &Path) -> PathBuf {
        let added = self.added.join(below_root(path));
        if fs::symlink_metadata(&added).is_ok() {
            return added;
        }
        let holding = self.binds.iter().filter(|(target, _)| path.starts_with(target));
        let closest = holding.max_by_key(|(target, _)| target.as_os_str().len());
        closest.map_or_else(
            || path.to_path_buf(),
            |(target, source)| match path.strip_prefix(target) {
                Ok(rest) if rest.as_os_str().is_empty() => source.clone(),
                Ok(rest) => source.join(rest),
                Err(_) => path.to_path_buf(),
            },
        )
    }

    fn real_text(&self, text: &str) -> String {
        let path = Path::new(text);
        if !path.is_absolute() || OF_SESSIONS.iter().any(|own| path.starts_with(own)) {
            return text.to_owned();
        }
        self.real(path).to_str().unwrap_or(text).to_owned()
    }
}

/// An environment's value with the folders of one session, which lie in `root`, in the place of those that a cell sees.
pub(super) fn in_folders(value: &str, root: &Path) -> String {
    let real = |place: &str| {
        let path = Path::new(place);
        let own = OF_SESSIONS.iter().find(|own| path.starts_with(own));
        let real = own.map(|_| root.join(below_root(path)));
        real.and_then(|path| path.to_str().map(str::to_owned)).unwrap_or_else(|| place.to_owned())
    };
    value.split(':').map(real).collect::<Vec<_>>().join(":")
}

/// Whether it is the image's own, not the machine's under the same name.
fn is_news(path: &Path) -> bool {
    !path.starts_with("/etc") && fs::symlink_metadata(path).is_err()
}

fn make_link(added: &Path, link: &RootSymlink) -> io::Result<()> {
    let place = added.join(below_root(&link.link));
    make_parent(&place)?;
    std::os::unix::fs::symlink(&link.target, place)
}

fn make_parent(place: &Path) -> io::Result<()> {
    place.parent().map_or(Ok(()), fs::create_dir_all)
}

fn below_root(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_op::{Bind, RootFile};

    #[test]
    fn paths_of_an_image_lead_to_the_machines_own_or_to_what_the_image_adds() {
        let place = tempfile::tempdir().unwrap();
        let spec = RootSpec {
            image: "x".into(),
            binds: vec![
                Bind { source: "/usr".into(), target: "/usr".into() },
                Bind { source: "/var/images/venv".into(), target: "/opt/app/venv".into() },
            ],
            symlinks: vec![RootSymlink { link: "/opt/other/bin/python".into(), target: "/usr/bin/python3".into() }],
            files: vec![
                RootFile { path: "/opt/other/app.cfg".into(), content: "home = /usr\n".into() },
                RootFile { path: "/etc/passwd".into(), content: "not the machine's".into() },
            ],
            tmp_symlinks: vec![RootSymlink { link: "/tmp/.c/fonts".into(), target: "/opt/app/venv/fonts".into() }],
            environment: vec![
                ("PATH".into(), "/opt/app/venv/bin:/opt/other/bin:/usr/bin".into()),
                ("HOME".into(), "/workspace".into()),
                ("CACHE".into(), "/tmp/.c".into()),
                ("LANG".into(), "C.UTF-8".into()),
            ],
            shell: "/bin/sh".into(),
            python: Some("/opt/other/bin/python".into()),
            preloads: Vec::new(),
            limits: Default::default(),
        };
        let added = place.path().join("added");
        let view = View::make(&spec, added.clone()).unwrap();
        assert_eq!(view.python, Some(added.join("opt/other/bin/python")));
        assert_eq!(view.shell, Path::new("/bin/sh"));
        let own = added.join("opt/other/bin").display().to_string();
        let path = format!("/var/images/venv/bin:{own}:/usr/bin");
        let wanted = [("PATH", path.as_str()), ("HOME", "/workspace"), ("CACHE", "/tmp/.c"), ("LANG", "C.UTF-8")];
        assert_eq!(view.environment, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(view.tmp_links, [(PathBuf::from(".c/fonts"), PathBuf::from("/var/images/venv/fonts"))]);
        assert!(!needs_mounts(&spec));
        let mut other = spec.clone();
        other.binds.push(Bind { source: "/var/images/usr".into(), target: "/usr".into() });
        assert!(needs_mounts(&other) && needs_mounts(&RootSpec { python: None, ..spec.clone() }));
        assert!(!added.join("etc").exists(), "the machine's own stay what they are");
        assert!(view.seen().contains(&added));
        assert_eq!(in_folders("/workspace:/tmp/.c:/usr:x", Path::new("/s")), "/s/workspace:/s/tmp/.c:/usr:x");
    }
}
