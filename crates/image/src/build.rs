//! From a declaration to an image: found where the same inputs have made it before, else built.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ringfence_op::ImageLimits;
use serde::Serialize;

use crate::declare::{Base, Declaration, DeclaredFile, PythonWanted, unique};
use crate::digest::digest_of;
use crate::lock::{self, Requirement};
use crate::manifest::{FORMAT, Facts, Interpreter, Libc, Manifest, Root, Source};
use crate::python::Python;
use crate::root::Seen;
use crate::store::{Entry, Held, Locked, Store};
use crate::tree::link_tree;
use crate::{ImageError, Progress, folder, foreign, root, venv};

/// Everything that an image is made from. Its digest is the image's id.
#[derive(Serialize)]
struct Inputs<'a> {
    format: u32,
    /// The image that it is made on.
    base: Option<&'a str>,
    /// The machine's Python, where it stands on the machine.
    python: Option<&'a Python>,
    programs: &'a BTreeMap<String, PathBuf>,
    folders: &'a [PathBuf],
    lock: Option<&'a str>,
    preloads: &'a [String],
    languages: &'a [String],
    environment: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "ImageLimits::is_empty")]
    limits: ImageLimits,
    /// Place, digest, executable.
    files: Vec<(&'a Path, String, bool)>,
}

/// What a build stands on.
pub(crate) enum Ground {
    Host(Python),
    Image(Box<Held>),
}

/// Finds the declared image, or builds it; either way it has the declared name afterwards.
///
/// # Errors
/// When it could not be built; [`ImageError::help`] says what to do.
pub fn build(
    store: &Store,
    declaration: &Declaration,
    python: Option<&Path>,
    progress: &mut dyn Progress,
) -> Result<Held, ImageError> {
    let ground = ground(store, declaration, python)?;
    let programs = programs(declaration)?;
    let (base, host) = match &ground {
        Ground::Host(python) => (None, Some(python)),
        Ground::Image(held) => (Some(held.entry.manifest.id.as_str()), None),
    };
    let inputs = Inputs {
        format: FORMAT,
        base,
        python: host,
        programs: &programs,
        folders: &declaration.folders,
        lock: declaration.lock.as_deref(),
        preloads: &declaration.preloads,
        languages: &declaration.languages,
        environment: &declaration.environment,
        limits: declaration.limits,
        files: declaration.files.iter().map(|f| (f.target.as_path(), digest_of(&f.content), f.executable)).collect(),
    };
    let text = serde_json::to_vec(&inputs).map_err(|e| ImageError::file("digest", Path::new("inputs"))(e.into()))?;
    let id = digest_of(text);
    if let Some(held) = store.whole(&id)
        && held.entry.names.contains(&declaration.name)
    {
        return Ok(held);
    }
    let locked = store.lock(progress)?;
    if let Some(held) = locked.found(&id, &declaration.name, usize::MAX)? {
        return Ok(held);
    }
    let work = Work { locked: &locked, declaration, programs, id, python };
    let entry = match &ground {
        Ground::Host(python) => work.on_host(python.clone(), None, progress)?,
        Ground::Image(held) => match &held.entry.manifest.root {
            Root::Host { python, .. } => work.on_host(python.clone(), Some(&held.entry), progress)?,
            Root::Folder => work.in_folder(&held.entry, progress)?,
        },
    };
    locked.store.hold(entry)
}

pub(crate) fn ground(store: &Store, declaration: &Declaration, python: Option<&Path>) -> Result<Ground, ImageError> {
    if let Base::Image(name) = &declaration.base {
        let held = store.hold(store.find(name)?)?;
        if matches!(held.entry.manifest.root, Root::Folder) && !declaration.programs.is_empty() {
            return Err(ImageError::NotOnFolder { what: "programs", base: name.clone() });
        }
        if matches!(held.entry.manifest.root, Root::Folder) && !declaration.folders.is_empty() {
            return Err(ImageError::NotOnFolder { what: "folders", base: name.clone() });
        }
        return Ok(Ground::Image(Box::new(held)));
    }
    let named = match &declaration.python {
        Some(PythonWanted::Path(path)) => Some(path.clone()),
        Some(PythonWanted::Minor(minor)) if python.is_none() => Some(PathBuf::from(format!("python3.{minor}"))),
        _ => python.map(Path::to_owned),
    };
    let found = Python::find(named.as_deref())?;
    match &declaration.python {
        Some(wanted) if !wanted.takes(found.version) => Err(ImageError::PythonVersion {
            python: found.executable.clone(),
            version: found.version.to_string(),
            needed: wanted.to_string(),
        }),
        _ => Ok(Ground::Host(found)),
    }
}

/// Where the machine's programs of these names really are.
fn programs(declaration: &Declaration) -> Result<BTreeMap<String, PathBuf>, ImageError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find = |name: &String| {
        let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| {
            fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
        });
        let real = found.and_then(|file| file.canonicalize().ok());
        real.map(|real| (name.clone(), real)).ok_or_else(|| ImageError::NoProgram { program: name.clone() })
    };
    declaration.programs.iter().map(find).collect()
}

/// A build that is under way.
struct Work<'a> {
    locked: &'a Locked,
    declaration: &'a Declaration,
    programs: BTreeMap<String, PathBuf>,
    id: String,
    /// The Python whose pip fetches, where the image's own is not run.
    python: Option<&'a Path>,
}

impl Work<'_> {
    fn on_host(&self, python: Python, base: Option<&Entry>, progress: &mut dyn Progress) -> Result<Entry, ImageError> {
        let declaration = self.declaration;
        let (mut programs, mut folders, mut files) = (BTreeMap::new(), Vec::new(), Vec::new());
        if let Some(Root::Host { programs: p, folders: d, files: f, .. }) = base.map(|base| &base.manifest.root) {
            (programs, folders, files) = (p.clone(), d.clone(), f.clone());
        }
        let base_files = files.clone();
        programs.extend(self.programs.clone());
        folders.extend(declaration.folders.iter().cloned());
        files.extend(declaration.files.iter().map(|file| file.target.clone()));
        let wanted = self.wanted(&python)?;
        let seen = Seen { python: &python, programs: &programs, folders: &folders, files: &files };
        seen.pieces(Path::new("/nonexistent"))?;
        let wheels = self.wheels(&wanted, &python.platform)?;
        self.finish(wheels.as_deref(), |building| {
            let contents = base_files.iter().enumerate().map(|(number, _)| Content::Of(number));
            let contents = contents.chain(declaration.files.iter().map(Content::New));
            put_files(building, base, contents)?;
            let has_venv = base.is_some_and(|base| base.folder.join("venv").is_dir());
            if let Some(wheels) = &wheels {
                let on = base.filter(|_| has_venv).map(|base| base.folder.as_path());
                let plan = venv::Plan { python: &python, folder: building, wheels, wanted: &wanted, on };
                venv::build(&plan, progress)?;
            } else if let Some(base) = base.filter(|_| has_venv) {
                venv::take_over(&base.folder, building)?;
            }
            let interpreter = Interpreter::Python {
                path: PathBuf::from(root::VENV).join("bin/python"),
                version: python.version.to_string(),
            };
            let libc = foreign::libc_of(&python.executable).unwrap_or(Libc::None);
            let facts = self.facts(base, Facts { interpreter, libc, shell: root::host_shell(), ..Facts::default() });
            let root = Root::Host { python: python.clone(), programs, folders, files };
            Ok(self.manifest(base, &wanted, facts, root))
        })
    }

    fn in_folder(&self, base: &Entry, progress: &mut dyn Progress) -> Result<Entry, ImageError> {
        let version = match &base.manifest.facts.interpreter {
            Interpreter::Python { version, .. } => Some(version.clone()),
            Interpreter::None(_) => None,
        };
        if self.declaration.lock.is_some() && version.is_none() {
            return Err(ImageError::NoInterpreter { image: base.title() });
        }
        let machine = Python::find(self.python)?;
        let wanted = match &version {
            Some(version) => self.wanted(&folder::target(&machine, version)?)?,
            None => Vec::new(),
        };
        let libc = base.manifest.facts.libc;
        let wheels = self.wheels(&wanted, &format!("{libc}-{}", version.as_deref().unwrap_or_default()))?;
        self.finish(wheels.as_deref(), |building| {
            progress.step("taking over the image that it is made on");
            let root = building.join("root");
            link_tree(&base.folder.join("root"), &root)?;
            for file in &self.declaration.files {
                folder::put(&root, &file.target, &file.content, file.executable)?;
            }
            if let (Some(version), Some(wheels)) = (&version, &wheels) {
                let (machine, wanted) = (&machine, wanted.as_slice());
                folder::install(&folder::Packages { machine, building, version, libc, wheels, wanted }, progress)?;
            }
            let facts = self.facts(Some(base), base.manifest.facts.clone());
            Ok(self.manifest(Some(base), &wanted, facts, Root::Folder))
        })
    }

    /// Makes the folder, has it filled, and puts it in place; wheels are kept until then.
    fn finish(
        &self,
        wheels: Option<&Path>,
        fill: impl FnOnce(&Path) -> Result<Manifest, ImageError>,
    ) -> Result<Entry, ImageError> {
        let made = self.locked.make(&self.declaration.name, fill)?;
        if let Some(wheels) = wheels {
            fs::remove_dir_all(wheels).map_err(ImageError::file("remove", wheels))?;
        }
        Ok(made)
    }

    fn wanted(&self, python: &Python) -> Result<Vec<Requirement>, ImageError> {
        self.declaration.lock.as_deref().map_or(Ok(Vec::new()), |text| lock::requirements(text, python.version))
    }

    /// Where wheels for it are kept, if it has packages.
    fn wheels(&self, wanted: &[Requirement], of: &str) -> Result<Option<PathBuf>, ImageError> {
        if wanted.is_empty() {
            return Ok(None);
        }
        let wheels = self.locked.store.folder().join(format!(".wheels-{of}"));
        fs::create_dir_all(&wheels).map_err(ImageError::file("create", &wheels))?;
        Ok(Some(wheels))
    }

    /// The base's facts with what the declaration adds.
    fn facts(&self, base: Option<&Entry>, mut facts: Facts) -> Facts {
        let declaration = self.declaration;
        if let Some(base) = base.map(|base| &base.manifest.facts) {
            facts.preloads.clone_from(&base.preloads);
            facts.languages.clone_from(&base.languages);
            facts.environment.clone_from(&base.environment);
            facts.limits = base.limits;
        }
        facts.limits = declaration.limits.or(facts.limits);
        facts.preloads = unique([facts.preloads, declaration.preloads.clone()].concat());
        facts.languages = unique([facts.languages, declaration.languages.clone()].concat());
        facts.environment.extend(declaration.environment.clone());
        facts
    }

    fn manifest(&self, base: Option<&Entry>, wanted: &[Requirement], facts: Facts, root: Root) -> Manifest {
        Manifest {
            format: FORMAT,
            id: self.id.clone(),
            source: Source::Declared {
                base: base.map(|base| base.manifest.id.clone()),
                packages: wanted.iter().map(|requirement| requirement.pin.clone()).collect(),
            },
            facts,
            root,
            content: String::new(),
            bytes: 0,
        }
    }
}

/// Where a file of an image on the machine comes from.
enum Content<'a> {
    /// The base's file of that number.
    Of(usize),
    New(&'a DeclaredFile),
}

fn put_files<'a>(
    building: &Path,
    base: Option<&Entry>,
    contents: impl Iterator<Item = Content<'a>>,
) -> Result<(), ImageError> {
    let folder = building.join("files");
    for (number, content) in contents.enumerate() {
        fs::create_dir_all(&folder).map_err(ImageError::file("create", &folder))?;
        let path = folder.join(number.to_string());
        match (content, base) {
            (Content::New(file), _) => {
                fs::write(&path, &file.content).map_err(ImageError::file("write", &path))?;
                let mode = if file.executable { 0o755 } else { 0o644 };
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))
                    .map_err(ImageError::file("make readable", &path))?;
            }
            (Content::Of(number), Some(base)) => {
                let old = base.folder.join("files").join(number.to_string());
                fs::hard_link(&old, &path).map_err(ImageError::file("link", &old))?;
            }
            (Content::Of(_), None) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Removed, remove};

    struct House {
        state: tempfile::TempDir,
    }

    impl House {
        fn new() -> Self {
            House { state: tempfile::tempdir().unwrap() }
        }

        fn store(&self) -> Store {
            Store::at(&self.state.path().join("store"))
        }

        fn build(&self, name: &str, text: &str) -> Result<Held, ImageError> {
            let path = self.state.path().join(format!("{name}.toml"));
            fs::write(&path, text).unwrap();
            build(&self.store(), &Declaration::read(&path)?, None, &mut ())
        }
    }

    fn bare(store: &Store) -> Held {
        build(store, &Declaration::shipped("bare").unwrap().unwrap(), None, &mut ()).unwrap()
    }

    #[test]
    fn the_same_inputs_are_the_same_image_in_any_store() {
        let (one, two) = (House::new(), House::new());
        let id = |house: &House| bare(&house.store()).entry.manifest.id.clone();
        assert_eq!(id(&one), id(&one));
        assert_eq!(id(&one), id(&two));
        let text = "base = 'host'\npreloads = ['json']\n[environment]\nA = 'b'\n[files]\n'/opt/x' = 'x'\n";
        fs::write(one.state.path().join("x"), "1").unwrap();
        let held = one.build("mine", text).unwrap();
        let content = held.entry.manifest.content.clone();
        fs::write(two.state.path().join("x"), "1").unwrap();
        let other = two.build("other-name", text).unwrap();
        assert_eq!(held.entry.manifest.id, other.entry.manifest.id, "the name is no input");
        assert_eq!(content, other.entry.manifest.content);
        fs::write(two.state.path().join("x"), "2").unwrap();
        let changed = two.build("other-name", text).unwrap();
        assert_ne!(changed.entry.manifest.id, other.entry.manifest.id);
        assert_eq!(changed.entry.names, ["other-name"]);
        assert!(two.store().find(&other.entry.manifest.id).unwrap().names.is_empty(), "the name has moved on");
    }

    #[test]
    fn an_image_on_another_has_what_that_has_and_outlives_it() {
        let house = House::new();
        fs::write(house.state.path().join("x"), "1").unwrap();
        let base = "base = 'host'\npreloads = ['json']\n[environment]\nA = '1'\nB = '1'\n[files]\n'/opt/x' = 'x'\n";
        drop(house.build("lower", base).unwrap());
        fs::write(house.state.path().join("y"), "2").unwrap();
        let text = "base = 'lower'\npreloads = ['csv']\n[environment]\nB = '2'\n[files]\n'/opt/y' = 'y'\n";
        let upper = house.build("upper", text).unwrap();
        let removed = remove(&house.store(), "lower", &mut ()).unwrap();
        assert!(matches!(removed, Removed::Image { .. }));
        let facts = &upper.entry.manifest.facts;
        assert_eq!(facts.preloads, ["json", "csv"]);
        assert_eq!((facts.environment["A"].as_str(), facts.environment["B"].as_str()), ("1", "2"));
        let spec = crate::root_of(&upper.entry, 1000).unwrap();
        let content = |target: &str| {
            let bind = spec.binds.iter().find(|bind| bind.target == Path::new(target)).unwrap();
            fs::read_to_string(&bind.source).unwrap()
        };
        assert_eq!((content("/opt/x").as_str(), content("/opt/y").as_str()), ("1", "2"));
        assert!(house.store().is_intact(&upper.entry).unwrap());
    }

    #[test]
    fn what_cannot_be_built_is_told_and_leaves_nothing() {
        let house = House::new();
        fs::write(house.state.path().join("x"), "1").unwrap();
        for (text, word) in [
            ("base = 'nothing:1'", "nothing:1"),
            ("base = 'host'\nprograms = ['no-such-program']", "no-such-program"),
            ("base = 'host'\n[files]\n'/usr/share/x' = 'x'", "/usr/share/x"),
            ("base = 'host'\n[files]\n'/bin/x' = 'x'", "/bin/x"),
            ("base = 'host'\nlock = 'x'", "line 1"),
            ("base = 'host'\npython = '3.99'", "python3.99"),
            ("base = 'host'\npython = '3.98-3.99'", "3.98 to 3.99"),
        ] {
            let error = house.build("mine", text).unwrap_err();
            assert!(error.to_string().contains(word), "{text}: {error}");
        }
        assert!(house.store().list().unwrap().is_empty());
        let left = fs::read_dir(house.store().folder()).into_iter().flatten().flatten();
        assert!(left.map(|entry| entry.file_name()).all(|name| name == ".lock"));
    }

    #[test]
    fn an_image_in_use_is_not_taken_away() {
        let house = House::new();
        let (store, quiet) = (house.store(), &mut ());
        let held = bare(&store);
        assert!(matches!(remove(&store, "bare", quiet), Err(ImageError::InUse { .. })));
        assert_eq!(store.find("bare").unwrap().names, ["bare"]);
        assert!(matches!(remove(&store, &held.entry.manifest.id, quiet), Err(ImageError::InUse { .. })));
        let id = held.entry.manifest.id.clone();
        drop(held);
        assert_eq!(remove(&store, "bare", quiet).unwrap(), Removed::Image { id });
        assert!(matches!(store.find("bare"), Err(ImageError::Unknown { .. })));
        assert!(matches!(remove(&store, "bare", quiet), Err(ImageError::Unknown { .. })));
    }

    #[test]
    fn pruning_takes_what_has_no_name_and_is_not_in_use() {
        let house = House::new();
        let store = house.store();
        fs::write(house.state.path().join("x"), "1").unwrap();
        let text = "base = 'host'\n[files]\n'/opt/x' = 'x'\n";
        let old = house.build("mine", text).unwrap();
        fs::write(house.state.path().join("x"), "2").unwrap();
        drop(house.build("mine", text).unwrap());
        fs::create_dir_all(store.folder().join(".wheels-x")).unwrap();
        let blobs = store.blobs().unwrap();
        fs::write(blobs.folder().join("layer"), "x").unwrap();
        let pruned = crate::prune(&store, &mut ()).unwrap();
        assert_eq!((pruned.images.len(), pruned.held.len()), (0, 2));
        assert_eq!(pruned.others, [".wheels-x"]);
        assert!(blobs.folder().join("layer").exists(), "an import or a pull needs it");
        drop((old, blobs));
        let pruned = crate::prune(&store, &mut ()).unwrap();
        assert_eq!((pruned.images.len(), pruned.others), (1, vec![".blobs".to_owned()]));
        assert_eq!(store.list().unwrap().len(), 1);
    }

    #[test]
    fn what_another_version_or_an_accident_left_is_no_image_and_in_nobodys_way() {
        let house = House::new();
        let store = house.store();
        for (id, manifest) in
            [("a", "{\"format\": 1, \"id\": \"x\"}"), ("b", "{\"format\": 99}"), ("c", "not JSON"), ("d", "")]
        {
            let folder = store.folder().join(id.repeat(20));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("manifest.json"), manifest).unwrap();
        }
        fs::create_dir_all(store.folder().join("e".repeat(20)).join("venv")).unwrap();
        let held = bare(&store);
        let id = held.entry.manifest.id.clone();
        fs::create_dir_all(store.folder().join("f".repeat(64))).unwrap();
        fs::copy(held.entry.folder.join("manifest.json"), store.folder().join("f".repeat(64)).join("manifest.json"))
            .unwrap();
        let listed = store.list().unwrap();
        assert_eq!(listed.len(), 7);
        assert_eq!(listed.into_iter().filter_map(crate::Listed::image).count(), 1);
        assert!(matches!(store.find(&"b".repeat(20)), Err(ImageError::OtherFormat { format: 99, .. })));
        drop(held);
        remove(&store, &"c".repeat(20), &mut ()).unwrap();
        // A folder with the image's own name and no manifest that fits is damaged: it is made anew.
        fs::write(store.folder().join(&id).join("manifest.json"), "half").unwrap();
        assert_eq!(bare(&store).entry.manifest.id, id);
    }

    #[test]
    fn a_dead_build_is_swept_by_the_next_writer() {
        let house = House::new();
        let store = house.store();
        for name in [".building-1/root/deep", ".removing-aa/x"] {
            fs::create_dir_all(store.folder().join(name)).unwrap();
        }
        fs::set_permissions(store.folder().join(".building-1/root"), fs::Permissions::from_mode(0o555)).unwrap();
        drop(bare(&store));
        let hidden = fs::read_dir(store.folder()).unwrap().map(|e| e.unwrap().file_name());
        assert_eq!(hidden.filter(|name| name.to_string_lossy().starts_with('.')).collect::<Vec<_>>(), [".lock"]);
    }
}
