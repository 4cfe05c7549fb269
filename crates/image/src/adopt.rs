//! Images that were made elsewhere: their root comes from whoever knows their format, their facts are found out here.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::digest::digest_of;
use crate::foreign::Inside;
use crate::limits::LIST_MAX;
use crate::manifest::{FORMAT, Facts, Interpreter, Manifest, Root, Source};
use crate::root::USER_BASE;
use crate::store::{Held, Listed, Locked, Store};
use crate::{ImageError, Progress, folder, root, tree};

/// An image that was made elsewhere.
#[derive(Debug, Clone)]
pub struct Foreign {
    /// Where it was found: a path, or a reference of a registry.
    pub reference: String,
    /// The digest of its manifest, `sha256:...`: the same digest is the same image.
    pub digest: String,
    /// Its variables, `NAME=value` each; what is not so is left out.
    pub environment: Vec<String>,
    /// An image that is there and has so many names gets no further one.
    pub names_max: usize,
}

/// Why a root could not be filled.
pub type Unfilled = Box<dyn Error + Send + Sync>;

/// What is made of an image that was made elsewhere is digested with the store's format.
#[derive(Serialize)]
struct Inputs<'a> {
    format: u32,
    oci: &'a str,
}

/// Takes an image into the store, under `name`. `fill` makes the folder that it is given, which is not there yet, the
/// image's root. It is not called where the image is in the store already.
///
/// # Errors
/// When the root cannot be filled, or what was filled in is no root.
pub fn adopt(
    store: &Store,
    foreign: &Foreign,
    name: &str,
    fill: impl FnOnce(&Path) -> Result<(), Unfilled>,
    progress: &mut dyn Progress,
) -> Result<Held, ImageError> {
    let inputs = Inputs { format: FORMAT, oci: &foreign.digest };
    let text = serde_json::to_vec(&inputs).map_err(|e| ImageError::file("digest", Path::new("inputs"))(e.into()))?;
    let id = digest_of(text);
    let locked = store.lock(progress)?;
    if let Some(held) = locked.found(&id, name, foreign.names_max)? {
        return Ok(held);
    }
    let entry = locked.make(name, |building| {
        let facts = take_in(&locked, building, foreign, fill, progress)?;
        Ok(manifest(id, foreign, facts))
    })?;
    locked.store.hold(entry)
}

fn take_in(
    locked: &Locked,
    building: &Path,
    foreign: &Foreign,
    fill: impl FnOnce(&Path) -> Result<(), Unfilled>,
    progress: &mut dyn Progress,
) -> Result<Facts, ImageError> {
    let folder = building.join("root");
    fill(&folder).map_err(|source| ImageError::Fill { reference: foreign.reference.clone(), source })?;
    root::top_entries(&folder)?;
    folder::prepare(&folder)?;
    for path in [&folder, building] {
        // By a descriptor: what pulls images may not change modes by name.
        fs::File::open(path)
            .and_then(|folder| folder.set_permissions(fs::Permissions::from_mode(0o755)))
            .map_err(ImageError::file("make readable", path))?;
    }
    progress.step("looking for files that another image has as well");
    for other in locked.store.list()?.into_iter().filter_map(Listed::image) {
        if other.manifest.root == Root::Folder {
            tree::share(&folder, &other.folder.join("root"))?;
        }
    }
    facts(&folder, &foreign.environment)
}

fn facts(folder: &Path, environment: &[String]) -> Result<Facts, ImageError> {
    let mut environment = variables(environment);
    let usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let path = environment.get("PATH").map_or(usual, String::as_str).to_owned();
    let found = Inside::open(folder)?.look(&path.split(':').collect::<Vec<_>>());
    environment.insert("PATH".to_owned(), format!("{USER_BASE}/bin:{path}"));
    let python = matches!(found.interpreter, Interpreter::Python { .. }).then_some("python");
    let languages = python.into_iter().chain(found.shell.is_some().then_some("bash"));
    Ok(Facts {
        interpreter: found.interpreter,
        libc: found.libc,
        languages: languages.map(str::to_owned).collect(),
        preloads: Vec::new(),
        environment,
        shell: found.shell.unwrap_or_else(|| PathBuf::from("/bin/sh")),
        limits: Default::default(),
    })
}

/// What says where a cell's own folders are is never the image's to say.
const OURS: [&str; 8] = ["HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "PWD", "HOSTNAME", "PYTHONUSERBASE"];

fn variables(lines: &[String]) -> BTreeMap<String, String> {
    let pairs = lines.iter().filter_map(|line| line.split_once('='));
    let fits = |(name, value): &(&str, &str)| {
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !name.is_empty();
        plain && !value.contains('\0') && !OURS.contains(name)
    };
    pairs.filter(fits).take(LIST_MAX).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn manifest(id: String, foreign: &Foreign, facts: Facts) -> Manifest {
    Manifest {
        format: FORMAT,
        id,
        source: Source::Oci { reference: foreign.reference.clone(), digest: foreign.digest.clone() },
        facts,
        root: Root::Folder,
        content: String::new(),
        bytes: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn foreign(digit: &str) -> Foreign {
        let environment = ["PATH=/usr/bin", "HOME=/root", "LANG=x", "nonsense", "A B=c", "N=\0"];
        Foreign {
            reference: "busybox.tar".to_owned(),
            digest: format!("sha256:{}", digit.repeat(64)),
            environment: environment.map(str::to_owned).into(),
            names_max: usize::MAX,
        }
    }

    fn fill(root: &Path) -> Result<(), Unfilled> {
        fs::create_dir_all(root.join("usr/bin"))?;
        fs::copy("/bin/sh", root.join("usr/bin/sh"))?;
        filetime(&root.join("usr/bin/sh"))?;
        Ok(())
    }

    fn filetime(path: &Path) -> std::io::Result<()> {
        fs::File::options().write(true).open(path)?.set_modified(std::time::UNIX_EPOCH)
    }

    #[test]
    fn an_image_is_taken_in_once_and_found_by_name_id_and_digest() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::at(state.path());
        let held = adopt(&store, &foreign("a"), "box:1", fill, &mut ()).unwrap();
        let again = |_: &Path| -> Result<(), Unfilled> { panic!("it is there") };
        let same = adopt(&store, &foreign("a"), "box:latest", again, &mut ()).unwrap();
        assert_eq!(same.entry.names, ["box:1", "box:latest"]);
        let id = held.entry.manifest.id.clone();
        let digest = foreign("a").digest;
        for image in ["box:1", "box:latest", &id, &format!("sha256:{id}"), &id[..12], &digest, &format!("box@{digest}")]
        {
            assert_eq!(store.find(image).unwrap().manifest.id, id, "{image}");
        }
        let facts = &held.entry.manifest.facts;
        assert_eq!(facts.environment.keys().collect::<Vec<_>>(), ["LANG", "PATH"]);
        assert_eq!(facts.environment["PATH"], "/workspace/.local/bin:/usr/bin");
        assert_eq!((facts.shell.as_path(), facts.languages.len()), (Path::new("/usr/bin/sh"), 1));
        let spec = crate::root_of(&held.entry, 1000).unwrap();
        assert!(spec.python.is_none() && spec.binds.iter().any(|bind| bind.target == Path::new("/etc")));
        assert!(store.is_intact(&held.entry).unwrap());
        fs::write(held.entry.folder.join("root/etc/passwd"), "x").unwrap();
        assert!(!store.is_intact(&held.entry).unwrap());
    }

    #[test]
    fn a_name_or_a_repositorys_own_digest_is_exact_and_an_image_gets_so_many_names() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::at(state.path());
        let mut foreign = Foreign { reference: "r.example/a/b:1".to_owned(), names_max: 2, ..foreign("a") };
        let held = adopt(&store, &foreign, "one", fill, &mut ()).unwrap();
        let (id, digest) = (held.entry.manifest.id.clone(), foreign.digest.clone());
        let find = |name: &str, repository: &str, digest: Option<&str>| {
            store.find_exact(name, repository, digest).map(|entry| entry.manifest.id).ok()
        };
        assert_eq!(find("one", "docker.io/library/one", None), Some(id.clone()));
        assert_eq!(find("x", "r.example/a/b", Some(&digest)), Some(id.clone()));
        for (name, repository) in
            [("x", "r.example/a"), ("x", "r.example/a/bb"), ("x", "s.example/a/b"), (&id[..12], "x")]
        {
            assert_eq!(find(name, repository, Some(&digest)), None, "{name} {repository}");
        }
        for name in [&id[..12], &id, &format!("sha256:{id}"), &digest, &format!("r.example/a/b@{digest}")] {
            assert_eq!(find(name, "r.example/a/b", None), None, "{name}");
        }
        for name in ["two", "three"] {
            adopt(&store, &foreign, name, fill, &mut ()).unwrap();
        }
        assert_eq!(store.find(&id).unwrap().names, ["one", "two"]);
        foreign.names_max = usize::MAX;
        adopt(&store, &foreign, "three", fill, &mut ()).unwrap();
        assert_eq!(store.find(&id).unwrap().names.len(), 3);
    }

    #[test]
    fn files_that_two_images_have_are_kept_once() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::at(state.path());
        let inode = |digit: &str| {
            let held = adopt(&store, &foreign(digit), digit, fill, &mut ()).unwrap();
            fs::metadata(held.entry.folder.join("root/usr/bin/sh")).unwrap().ino()
        };
        assert_eq!(inode("a"), inode("b"));
    }

    #[test]
    fn a_root_that_cannot_be_filled_leaves_nothing() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::at(state.path());
        let half = |root: &Path| -> Result<(), Unfilled> {
            fs::create_dir_all(root.join("usr"))?;
            Err("the entry `../x` is refused".into())
        };
        let error = adopt(&store, &foreign("a"), "box", half, &mut ()).unwrap_err();
        assert!(std::error::Error::source(&error).unwrap().to_string().contains("../x"), "{error}");
        assert!(store.list().unwrap().is_empty());
        let left: Vec<_> = fs::read_dir(store.folder()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, [".lock"]);
    }
}
