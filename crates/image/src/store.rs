//! `images/` under the state directory: find, hold, lock, sweep, put in place, take away.
//!
//! ```text
//! images/.lock                 flock(2): one writer at a time
//! images/names.json            which image a name means; replaced whole
//! images/<id>/                 an image; its manifest.json is written last, before the folder gets its name
//! images/.building-<pid>/      an image on its way; swept by whoever holds the lock next
//! images/.removing-<id>/       an image on its way out; swept likewise
//! images/.blobs/               compressed layers of OCI images, each once
//! images/.wheels-<platform>/   fetched wheels, kept until the image stands: a broken download goes on from here
//! ```
//!
//! Readers take no lock: a folder with its own name is whole, and is never changed. Whoever uses an image for longer
//! holds a shared lock on its manifest, and nobody takes away what is held.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::digest::content_of;
use crate::limits::{IMAGES_MAX, OTHER_BUILD_POLL, OTHER_BUILD_WAIT_MAX};
use crate::manifest::{MANIFEST, Manifest, Source};
use crate::names::{Names, looks_like_id};
use crate::{ImageError, Progress};

/// The folder of compressed layers.
const BLOBS: &str = ".blobs";

/// The images of a state directory.
#[derive(Debug, Clone)]
pub struct Store {
    images: PathBuf,
}

/// An image in the store.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its names, in order.
    pub names: Vec<String>,
    /// Its manifest.
    pub manifest: Manifest,
    /// Its folder.
    pub folder: PathBuf,
}

/// A folder of the store.
#[derive(Debug)]
pub enum Listed {
    /// An image.
    Image(Box<Entry>),
    /// Something else under the name of an image: another version's, or damaged.
    Foreign {
        /// The folder's name.
        id: String,
        /// Why it is no image.
        why: ImageError,
    },
}

/// An image that nobody takes away while this lives.
#[derive(Debug)]
pub struct Held {
    /// The image.
    pub entry: Entry,
    _manifest: File,
}

impl Store {
    /// The store of a state directory. Nothing is looked at yet.
    #[must_use]
    pub fn at(state_dir: &Path) -> Self {
        Store { images: state_dir.join("images") }
    }

    /// The same, without links on the way: the folder of all images may be one.
    ///
    /// # Errors
    /// When it is not there.
    pub fn resolved(&self) -> Result<Self, ImageError> {
        Ok(Store { images: self.images.canonicalize().map_err(ImageError::file("resolve", &self.images))? })
    }

    /// The folder of all images.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.images
    }

    /// Where compressed layers are kept, for whoever knows their format; made if it is missing. It is not taken away
    /// while the answer lives.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn blobs(&self) -> Result<HeldBlobs, ImageError> {
        let folder = self.images.join(BLOBS);
        loop {
            self.make()?;
            match fs::DirBuilder::new().mode(0o700).create(&folder) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(ImageError::file("create", &folder)(error));
                }
                _ => {}
            }
            let opened = match File::open(&folder) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                opened => opened.map_err(ImageError::file("open", &folder))?,
            };
            flock(&opened, FlockOperation::LockShared).map_err(|e| ImageError::file("hold", &folder)(e.into()))?;
            // Meanwhile it may have been taken away.
            if is_at(&opened, &folder) {
                return Ok(HeldBlobs { folder, _lock: opened });
            }
        }
    }

    /// Everything in it, in the order of the folders' names.
    ///
    /// # Errors
    /// When the store cannot be read, or another version of this program keeps it.
    pub fn list(&self) -> Result<Vec<Listed>, ImageError> {
        let names = Names::read(&self.images)?;
        let mut listed = Vec::new();
        for id in self.ids()? {
            let folder = self.images.join(&id);
            listed.push(match Manifest::read(&folder).and_then(|manifest| own(manifest, &id, &folder)) {
                Ok(manifest) => Listed::Image(Box::new(Entry { names: names.of(&id), manifest, folder })),
                Err(why) => Listed::Foreign { id, why },
            });
        }
        Ok(listed)
    }

    /// The image of that name, id, beginning of an id (12 digits or more) or digest of an OCI image.
    ///
    /// # Errors
    /// [`ImageError::Unknown`] when there is none; otherwise as [`Self::list`].
    pub fn find(&self, image: &str) -> Result<Entry, ImageError> {
        let names = Names::read(&self.images)?;
        let by_name = names.id_of(image).map(str::to_owned);
        let id = match by_name {
            Some(id) => id,
            None => self.find_by_digest(image)?.ok_or_else(|| self.unknown(image))?,
        };
        self.entry(&names, id, image)
    }

    /// The image of that very name, or the one that was pulled by that digest from that repository (`HOST/PATH`): what
    /// is called so for certain, and not whatever the name could be short for.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn find_exact(&self, name: &str, repository: &str, digest: Option<&str>) -> Result<Entry, ImageError> {
        let names = Names::read(&self.images)?;
        if let Some(id) = names.id_of(name) {
            return self.entry(&names, id.to_owned(), name);
        }
        let is_it = |entry: &Entry| match (&entry.manifest.source, digest) {
            (Source::Oci { reference, digest: own }, Some(digest)) => {
                let rest = reference.strip_prefix(repository);
                own == digest && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '@']))
            }
            _ => false,
        };
        let found = match digest {
            Some(_) => self.list()?.into_iter().filter_map(Listed::image).find(is_it),
            None => None,
        };
        found.ok_or_else(|| self.unknown(name))
    }

    fn entry(&self, names: &Names, id: String, image: &str) -> Result<Entry, ImageError> {
        let folder = self.images.join(&id);
        match Manifest::read(&folder).and_then(|manifest| own(manifest, &id, &folder)) {
            Ok(manifest) => Ok(Entry { names: names.of(&id), manifest, folder }),
            // The name of an image that was taken away: no image has it.
            Err(ImageError::File { source, .. }) if source.kind() == ErrorKind::NotFound => Err(self.unknown(image)),
            Err(error) => Err(error),
        }
    }

    fn find_by_digest(&self, image: &str) -> Result<Option<String>, ImageError> {
        let digits = image.strip_prefix("sha256:").unwrap_or(image);
        if looks_like_id(digits) {
            let mut found = self.ids()?.into_iter().filter(|id| id.starts_with(digits));
            if let (Some(id), None) = (found.next(), found.next()) {
                return Ok(Some(id));
            }
        }
        let of_digest = |entry: &Entry| entry.manifest.goes_by(image);
        let images = self.list()?.into_iter().filter_map(Listed::image);
        Ok(images.into_iter().find(of_digest).map(|entry| entry.manifest.id))
    }

    /// Keeps the image from being taken away, for as long as the answer lives.
    ///
    /// # Errors
    /// When it is gone, or being taken away at this moment.
    pub fn hold(&self, entry: Entry) -> Result<Held, ImageError> {
        let path = entry.folder.join(MANIFEST);
        let manifest = File::open(&path).map_err(ImageError::file("open", &path))?;
        flock(&manifest, FlockOperation::NonBlockingLockShared)
            .map_err(|e| ImageError::file("hold", &path)(e.into()))?;
        // Between opening and holding it may have been taken away.
        if !is_at(&manifest, &path) {
            return Err(self.unknown(&entry.manifest.id));
        }
        Ok(Held { entry, _manifest: manifest })
    }

    /// The image of that id, if it is here and can be read, kept from being taken away.
    pub(crate) fn whole(&self, id: &str) -> Option<Held> {
        self.find(id).and_then(|entry| self.hold(entry)).ok()
    }

    /// Whether every file of the image is as it was when the image was made. Reads all of it.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn is_intact(&self, entry: &Entry) -> Result<bool, ImageError> {
        Ok(content_of(&entry.folder, MANIFEST)?.digest == entry.manifest.content)
    }

    fn ids(&self) -> Result<Vec<String>, ImageError> {
        let entries = match fs::read_dir(&self.images) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(ImageError::file("list", &self.images)(error)),
        };
        let mut ids = Vec::new();
        for entry in entries {
            let entry = entry.map_err(ImageError::file("list", &self.images))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if looks_like_id(&name) {
                ids.push(name);
            }
        }
        ids.sort();
        Ok(ids)
    }

    fn unknown(&self, image: &str) -> ImageError {
        ImageError::Unknown { image: image.to_owned(), images: self.images.clone() }
    }

    fn make(&self) -> Result<(), ImageError> {
        // Not to be listed by others: an image may hold files that everybody may read.
        let mut folder = fs::DirBuilder::new();
        folder.recursive(true).mode(0o711).create(&self.images).map_err(ImageError::file("create", &self.images))?;
        // Whatever the umask is, or was: what builds cells enters it under another id.
        let mode = fs::metadata(&self.images).map_err(ImageError::file("look at", &self.images))?.mode();
        if mode & 0o011 == 0o011 {
            return Ok(());
        }
        let opened = File::open(&self.images);
        let done = opened.and_then(|opened| opened.set_permissions(fs::Permissions::from_mode(mode & 0o7777 | 0o011)));
        done.map_err(ImageError::file("make enterable", &self.images))
    }

    /// Takes the lock, and sweeps what dead writers left.
    pub(crate) fn lock(&self, progress: &mut dyn Progress) -> Result<Locked, ImageError> {
        self.make()?;
        // Absolute, since the paths in it are used from other folders; what is seen in cells is at a place of its own.
        let store = self.resolved()?;
        let lock = take_lock(&store.images, progress)?;
        let locked = Locked { store, _lock: lock };
        locked.sweep()?;
        Ok(locked)
    }
}

impl Listed {
    /// The image, if it is one.
    #[must_use]
    pub fn image(self) -> Option<Entry> {
        match self {
            Listed::Image(entry) => Some(*entry),
            Listed::Foreign { .. } => None,
        }
    }
}

impl Entry {
    /// What to call it: its first name, or its digest.
    #[must_use]
    pub fn title(&self) -> String {
        self.names.first().cloned().unwrap_or_else(|| format!("sha256:{}", self.manifest.id))
    }
}

/// The folder of compressed layers.
#[derive(Debug)]
pub struct HeldBlobs {
    folder: PathBuf,
    _lock: File,
}

impl HeldBlobs {
    /// Its path.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Whether what is open is what the path names now.
fn is_at(opened: &File, path: &Path) -> bool {
    match (opened.metadata(), fs::metadata(path)) {
        (Ok(held), Ok(here)) => (held.dev(), held.ino()) == (here.dev(), here.ino()),
        _ => false,
    }
}

/// A manifest in a folder of another name is none of that folder.
fn own(manifest: Manifest, id: &str, folder: &Path) -> Result<Manifest, ImageError> {
    if manifest.id == id { Ok(manifest) } else { Err(ImageError::Misplaced { folder: folder.to_owned() }) }
}

/// The store, locked: only its holder writes.
pub(crate) struct Locked {
    pub(crate) store: Store,
    _lock: File,
}

/// What was taken away.
#[derive(Debug, Default)]
pub struct Pruned {
    /// Ids of images.
    pub images: Vec<String>,
    /// What else: caches of unfinished builds.
    pub others: Vec<String>,
    /// Ids of images without a name that are in use, and the compressed layers where they are.
    pub held: Vec<String>,
}

impl Locked {
    /// A new folder for an image on its way.
    fn begin(&self) -> Result<PathBuf, ImageError> {
        let entries = self.store.ids()?.len();
        if entries >= IMAGES_MAX {
            return Err(ImageError::Full { most: IMAGES_MAX, images: self.store.images.clone() });
        }
        let folder = self.store.images.join(format!(".building-{}", std::process::id()));
        fs::create_dir(&folder).map_err(ImageError::file("create", &folder))?;
        Ok(folder)
    }

    /// The image, if it is here already; it has the name then, unless it has so many already.
    pub(crate) fn found(&self, id: &str, name: &str, names_max: usize) -> Result<Option<Held>, ImageError> {
        let Some(mut held) = self.store.whole(id) else { return Ok(None) };
        if held.entry.names.len() >= names_max {
            return Ok(Some(held));
        }
        self.name(name, id)?;
        held.entry.names = self.store.find(id)?.names;
        Ok(Some(held))
    }

    /// A folder for work that leaves nothing in the store.
    pub(crate) fn scratch<T>(&self, work: impl FnOnce(&Path) -> Result<T, ImageError>) -> Result<T, ImageError> {
        let folder = self.begin()?;
        let done = work(&folder);
        // What cannot be removed now is swept by the next writer.
        let _ = remove_tree(&folder);
        done
    }

    /// Makes an image: `fill` puts into a new folder what it is made of, and tells of it.
    pub(crate) fn make(
        &self,
        name: &str,
        fill: impl FnOnce(&Path) -> Result<Manifest, ImageError>,
    ) -> Result<Entry, ImageError> {
        let building = self.begin()?;
        let made = fill(&building).and_then(|manifest| self.place(&building, manifest, name));
        if made.is_err() {
            // The error tells what matters; what cannot be removed now is swept by the next writer.
            let _ = remove_tree(&building);
        }
        made
    }

    /// Gives a finished folder its manifest and its place, and the image its name.
    fn place(&self, building: &Path, mut manifest: Manifest, name: &str) -> Result<Entry, ImageError> {
        let content = content_of(building, MANIFEST)?;
        (manifest.content, manifest.bytes) = (content.digest, content.bytes);
        let path = building.join(MANIFEST);
        let text = serde_json::to_vec_pretty(&manifest).map_err(|e| ImageError::file("write", &path)(e.into()))?;
        let mut file = File::create(&path).map_err(ImageError::file("create", &path))?;
        file.write_all(&text).map_err(ImageError::file("write", &path))?;
        // One call for the thousands of files before it: the name must not outlive a power cut without them.
        rustix::fs::syncfs(&file).map_err(|e| ImageError::file("sync", building)(e.into()))?;
        // As the folder of all images.
        let opened = File::open(building);
        opened
            .and_then(|opened| opened.set_permissions(fs::Permissions::from_mode(0o755)))
            .map_err(ImageError::file("make enterable", building))?;
        let folder = self.store.images.join(&manifest.id);
        if folder.exists() {
            // No image, or it would have been found: damaged, or another version's.
            self.take_away(&manifest.id)?;
        }
        fs::rename(building, &folder).map_err(ImageError::file("put in place", &folder))?;
        sync(&self.store.images)?;
        self.name(name, &manifest.id)?;
        self.store.find(&manifest.id)
    }

    /// Makes a name mean an image.
    pub(crate) fn name(&self, name: &str, id: &str) -> Result<(), ImageError> {
        let mut names = Names::read(&self.store.images)?;
        if names.set(name, id)? { names.write(&self.store.images) } else { Ok(()) }
    }

    /// Takes a name away; with its last name, or by its id, the image itself.
    pub(crate) fn remove(&self, image: &str) -> Result<Removed, ImageError> {
        let mut names = Names::read(&self.store.images)?;
        let named = names.id_of(image).map(str::to_owned);
        if let Some(id) = &named
            && names.of(id).len() > 1
        {
            names.unset(image);
            names.write(&self.store.images)?;
            return Ok(Removed::Name { name: image.to_owned() });
        }
        let id = named.map_or_else(|| self.id_of_folder(image), Ok)?;
        let exclusive = self.exclusive(&id)?;
        names.unset_all(&id);
        names.write(&self.store.images)?;
        drop(exclusive);
        self.take_away(&id)?;
        Ok(Removed::Image { id })
    }

    /// By its folder's name, what is no image can be removed as well.
    fn id_of_folder(&self, image: &str) -> Result<String, ImageError> {
        let digits = image.strip_prefix("sha256:").unwrap_or(image);
        let foreign = self.store.ids()?.into_iter().find(|id| id == digits);
        foreign.map_or_else(|| self.store.find(image).map(|entry| entry.manifest.id), Ok)
    }

    /// Takes away every image without a name that is not in use, and what unfinished builds have fetched.
    pub(crate) fn prune(&self) -> Result<Pruned, ImageError> {
        let names = Names::read(&self.store.images)?;
        let mut pruned = Pruned::default();
        for id in self.store.ids()? {
            if !names.of(&id).is_empty() {
                continue;
            }
            match self.take_away(&id) {
                Ok(()) => pruned.images.push(id),
                Err(ImageError::InUse { .. }) => pruned.held.push(id),
                Err(error) => return Err(error),
            }
        }
        for path in self.hidden(&[".wheels-", BLOBS])? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name == BLOBS && !self.take_blobs(&path)? {
                pruned.held.push(name);
                continue;
            }
            if name != BLOBS {
                fs::remove_dir_all(&path).map_err(ImageError::file("remove", &path))?;
            }
            pruned.others.push(name);
        }
        Ok(pruned)
    }

    /// Takes the compressed layers away, unless something that is on its way needs them.
    fn take_blobs(&self, path: &Path) -> Result<bool, ImageError> {
        let folder = File::open(path).map_err(ImageError::file("open", path))?;
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(ImageError::file("lock", path)(error.into())),
        }
        let removing = self.store.images.join(".removing-blobs");
        fs::rename(path, &removing).map_err(ImageError::file("take away", path))?;
        remove_tree(&removing)?;
        Ok(true)
    }

    /// Nobody holds the image while the answer lives; `None` where there is no manifest to hold.
    fn exclusive(&self, id: &str) -> Result<Option<File>, ImageError> {
        let path = self.store.images.join(id).join(MANIFEST);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ImageError::file("open", &path)(error)),
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Err(ImageError::InUse { image: id.to_owned() }),
            Err(error) => Err(ImageError::file("lock", &path)(error.into())),
        }
    }

    fn take_away(&self, id: &str) -> Result<(), ImageError> {
        let _exclusive = self.exclusive(id)?;
        let folder = self.store.images.join(id);
        let removing = self.store.images.join(format!(".removing-{id}"));
        match fs::rename(&folder, &removing) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(ImageError::file("take away", &folder)(error)),
        }
        remove_tree(&removing)
    }

    /// Removes what dead writers left.
    fn sweep(&self) -> Result<(), ImageError> {
        self.hidden(&[".building-", ".removing-"])?.iter().try_for_each(|path| remove_tree(path))
    }

    fn hidden(&self, beginnings: &[&str]) -> Result<Vec<PathBuf>, ImageError> {
        let images = &self.store.images;
        let mut found = Vec::new();
        for entry in fs::read_dir(images).map_err(ImageError::file("list", images))? {
            let entry = entry.map_err(ImageError::file("list", images))?;
            let name = entry.file_name();
            if beginnings.iter().any(|beginning| name.to_string_lossy().starts_with(beginning)) {
                found.push(entry.path());
            }
        }
        Ok(found)
    }
}

/// What [`crate::remove`] took away.
#[derive(Debug, PartialEq, Eq)]
pub enum Removed {
    /// One name of several: the image is still there.
    Name {
        /// The name.
        name: String,
    },
    /// The image, with all its names.
    Image {
        /// Its id.
        id: String,
    },
}

/// Removes a folder whatever its modes are: an image may hold folders that their owner may not write to.
pub(crate) fn remove_tree(path: &Path) -> Result<(), ImageError> {
    if fs::remove_dir_all(path).is_ok() {
        return Ok(());
    }
    open_up(path)?;
    fs::remove_dir_all(path).map_err(ImageError::file("remove", path))
}

fn open_up(folder: &Path) -> Result<(), ImageError> {
    let mut waiting = vec![folder.to_owned()];
    while let Some(folder) = waiting.pop() {
        let rights = fs::Permissions::from_mode(0o700);
        // By a descriptor, as what pulls images must; by name where its owner may not even read it.
        let done = match File::open(&folder) {
            Ok(open) => open.set_permissions(rights),
            Err(_) => fs::set_permissions(&folder, rights),
        };
        done.map_err(ImageError::file("make writable", &folder))?;
        for entry in fs::read_dir(&folder).map_err(ImageError::file("list", &folder))? {
            let entry = entry.map_err(ImageError::file("list", &folder))?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            }
        }
    }
    Ok(())
}

pub(crate) fn sync(folder: &Path) -> Result<(), ImageError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(ImageError::file("sync", folder))
}

/// Takes the store's lock, and tells when another process holds it. It is let go when the file is closed.
fn take_lock(images: &Path, progress: &mut dyn Progress) -> Result<File, ImageError> {
    let path = images.join(".lock");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o644);
    let file = options.open(&path).map_err(ImageError::file("open", &path))?;
    let begun = Instant::now();
    let mut told = false;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if begun.elapsed() < OTHER_BUILD_WAIT_MAX => {
                if !told {
                    progress.step("waiting for another process that works on the images here");
                    told = true;
                }
                std::thread::sleep(OTHER_BUILD_POLL);
            }
            Err(Errno::WOULDBLOCK) => return Err(ImageError::OtherBuild { images: images.to_owned() }),
            Err(Errno::INTR) => {}
            Err(error) => return Err(ImageError::file("lock", &path)(error.into())),
        }
    }
}
