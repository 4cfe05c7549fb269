//! What a root is put together from, for each kind of image.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ringfence_op::{Bind, RootFile, RootSpec, RootSymlink};

use crate::host::Pieces;
use crate::limits::TOP_ENTRIES_MAX;
use crate::manifest::{Interpreter, Root};
use crate::python::Python;
use crate::store::Entry;
use crate::{ImageError, folder, venv};

/// Where the virtual environment is in a cell.
pub(crate) const VENV: &str = "/opt/ringfence/venv";
/// Where chosen programs of the machine are in a cell.
const PROGRAMS: &str = "/opt/ringfence/bin";
/// Where what pip installs into a session goes: in the workspace, and within its bounds.
pub(crate) const USER_BASE: &str = "/workspace/.local";
/// Where the packages of a declaration on a folder are in a cell.
pub(crate) const PACKAGES: &str = "/.ringfence/packages";
/// Where the wheels of `--wheelhouse` are in a cell.
pub const WHEELHOUSE: &str = "/.ringfence/wheelhouse";
/// Where what matplotlib found at build time is in a cell.
const FONT_LISTS: &str = "/opt/ringfence/matplotlib";
/// Matplotlib's own folder in a cell. It wants one that it can write to, and takes the list of fonts from it.
const MPLCONFIGDIR: &str = "/tmp/.matplotlib";

pub(crate) const PASSWD: &str = "root:x:0:0:root:/root:/usr/sbin/nologin\n\
    sandbox:x:1000:1000:sandbox:/workspace:/bin/sh\n\
    nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
pub(crate) const GROUP: &str = "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n";
pub(crate) const HOSTS: &str = "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n";
pub(crate) const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n";

/// Modules of the standard library that programs of models begin with.
pub(crate) const STANDARD: [&str; 30] = [
    "argparse",
    "asyncio",
    "base64",
    "bisect",
    "collections",
    "contextlib",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "fractions",
    "functools",
    "glob",
    "hashlib",
    "heapq",
    "inspect",
    "io",
    "itertools",
    "json",
    "logging",
    "math",
    "os",
    "pathlib",
    "random",
    "re",
    "statistics",
    "subprocess",
    "typing",
];
/// The root of an image.
///
/// # Errors
/// When what it is made of cannot be read.
pub(crate) fn of(entry: &Entry, cpu_millis: u64) -> Result<RootSpec, ImageError> {
    let facts = &entry.manifest.facts;
    let cpu_millis = facts.limits.cpu_millis.map_or(cpu_millis, |own| own.min(cpu_millis));
    let mut spec = match &entry.manifest.root {
        Root::Host { python, programs, folders, files } => {
            on_host(entry, &Seen { python, programs, folders, files }, cpu_millis)?
        }
        Root::Folder => in_folder(entry, cpu_millis)?,
    };
    spec.image = entry.title();
    spec.limits = facts.limits;
    for (name, value) in &facts.environment {
        set(&mut spec.environment, name, value);
    }
    if spec.python.is_some() {
        spec.preloads = STANDARD.iter().map(|name| (*name).to_owned()).chain(facts.preloads.iter().cloned()).collect();
    }
    Ok(spec)
}

/// What of the machine an image shows.
pub(crate) struct Seen<'a> {
    pub(crate) python: &'a Python,
    pub(crate) programs: &'a BTreeMap<String, PathBuf>,
    pub(crate) folders: &'a [PathBuf],
    pub(crate) files: &'a [PathBuf],
}

impl Seen<'_> {
    /// The pieces of the machine, and an error for what cannot be among them.
    pub(crate) fn pieces(&self, folder: &Path) -> Result<Pieces, ImageError> {
        let mut pieces = Pieces::of_host();
        for folder in self.python.folders.iter().chain(self.folders) {
            pieces.add_folder(folder);
        }
        for (name, program) in self.programs {
            pieces.add_folder(program);
            pieces.link(format!("{PROGRAMS}/{name}"), program.clone());
        }
        for (number, target) in self.files.iter().enumerate() {
            // A bind on what is a bind already would have to change the machine's own folder.
            if pieces.binds.iter().any(|bind| target.starts_with(&bind.target)) {
                let why = "it lies in a folder of the machine's that every such image shows";
                return Err(ImageError::Place { path: target.clone(), why });
            }
            if pieces.symlinks.iter().any(|link| target.starts_with(&link.link)) {
                return Err(ImageError::Place { path: target.clone(), why: "it lies behind a link of the machine's" });
            }
            pieces.bind(&folder.join("files").join(number.to_string()), target);
        }
        Ok(pieces)
    }
}

/// The machine's programs and Python, and what was built on them. Without packages the virtual environment is two links
/// and a file, so that what is installed beside the machine's Python cannot be imported.
fn on_host(entry: &Entry, seen: &Seen<'_>, cpu_millis: u64) -> Result<RootSpec, ImageError> {
    let python = seen.python;
    if !python.executable.exists() {
        return Err(ImageError::PythonGone { image: entry.title(), python: python.executable.clone() });
    }
    let mut pieces = seen.pieces(&entry.folder)?;
    let mut config = None;
    let built = entry.folder.join("venv");
    if built.is_dir() {
        pieces.bind(&built, Path::new(VENV));
    } else {
        let minor = format!("python3.{}", python.version.minor);
        for name in ["python", "python3", minor.as_str()] {
            pieces.link(format!("{VENV}/bin/{name}"), python.executable.clone());
        }
        let home = python.executable.parent().unwrap_or(Path::new("/usr/bin")).display();
        config = Some(format!("home = {home}\ninclude-system-site-packages = false\nversion = {}\n", python.version));
    }
    let font_lists = entry.folder.join(venv::FONT_LISTS);
    let has_fonts = font_lists.is_dir();
    if has_fonts {
        pieces.bind(&font_lists, Path::new(FONT_LISTS));
    }
    pieces.link("/etc/mtab", "/proc/self/mounts");
    let mut environment = environment(&[&format!("{VENV}/bin"), PROGRAMS], cpu_millis);
    set(&mut environment, "VIRTUAL_ENV", VENV);
    let packages = format!("{USER_BASE}/lib/python{}.{}/site-packages", python.version.major, python.version.minor);
    for (name, value) in [("PYTHONPATH", packages.as_str()), ("PIP_PREFIX", USER_BASE)] {
        set(&mut environment, name, value);
    }
    let mut spec = plain(pieces, environment);
    spec.python = Some(PathBuf::from(format!("{VENV}/bin/python")));
    spec.shell = host_shell();
    spec.files = etc();
    if let Some(content) = config {
        spec.files.push(RootFile { path: PathBuf::from(format!("{VENV}/pyvenv.cfg")), content });
    }
    if has_fonts {
        share_fonts(&font_lists, &mut spec)?;
    }
    Ok(spec)
}

/// The shell of images on the machine's own programs.
pub(crate) fn host_shell() -> PathBuf {
    PathBuf::from(if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" })
}

/// The folder `root` of the image, its top-level folders each seen at their place. What must be in its `/etc` was put
/// there when the image was made.
fn in_folder(entry: &Entry, cpu_millis: u64) -> Result<RootSpec, ImageError> {
    let folder = entry.folder.join("root");
    let mut pieces = Pieces::default();
    for name in top_entries(&folder)? {
        let (source, target) = (folder.join(&name), Path::new("/").join(&name));
        let metadata = fs::symlink_metadata(&source).map_err(ImageError::file("look at", &source))?;
        if metadata.is_symlink() {
            pieces.link(target, fs::read_link(&source).map_err(ImageError::file("read", &source))?);
        } else if metadata.is_dir() || metadata.is_file() {
            pieces.bind(&source, &target);
        }
    }
    let facts = &entry.manifest.facts;
    let mut environment = environment(&[], cpu_millis);
    let user = [("PYTHONUSERBASE", USER_BASE), ("PIP_USER", "1"), ("PIP_BREAK_SYSTEM_PACKAGES", "1")];
    for (name, value) in user {
        set(&mut environment, name, value);
    }
    let mut spec = plain(pieces, environment);
    spec.shell.clone_from(&facts.shell);
    if let Interpreter::Python { path, version } = &facts.interpreter {
        spec.python = Some(path.clone());
        let minor: String = version.split('.').take(2).collect::<Vec<_>>().join(".");
        let packages = format!("{USER_BASE}/lib/python{minor}/site-packages");
        let built = entry.folder.join(folder::PACKAGES);
        let mut path = packages;
        if built.is_dir() {
            spec.binds.push(Bind { source: built, target: PathBuf::from(PACKAGES) });
            path = format!("{path}:{PACKAGES}");
        }
        set(&mut spec.environment, "PYTHONPATH", &path);
    }
    Ok(spec)
}

/// Top-level folders that cells have of their own, or that are ours.
const OF_CELLS: [&str; 7] = ["proc", "dev", "sys", "tmp", "workspace", "run", ".ringfence"];

/// The names in an image's folder that its root shows.
pub(crate) fn top_entries(folder: &Path) -> Result<Vec<String>, ImageError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(ImageError::file("list", folder))? {
        let name = entry.map_err(ImageError::file("list", folder))?.file_name();
        // A name that is no text is no name of a program's folder.
        if let Some(name) = name.to_str().filter(|name| !OF_CELLS.contains(name)) {
            names.push(name.to_owned());
        }
    }
    if names.len() > TOP_ENTRIES_MAX {
        return Err(ImageError::TopEntries { folder: folder.to_owned(), most: TOP_ENTRIES_MAX });
    }
    names.sort();
    Ok(names)
}

fn share_fonts(font_lists: &Path, spec: &mut RootSpec) -> Result<(), ImageError> {
    for entry in fs::read_dir(font_lists).map_err(ImageError::file("list", font_lists))? {
        let name = entry.map_err(ImageError::file("list", font_lists))?.file_name();
        if name.to_string_lossy().ends_with(".json") {
            let link = Path::new(MPLCONFIGDIR).join(&name);
            spec.tmp_symlinks.push(RootSymlink { link, target: Path::new(FONT_LISTS).join(&name) });
        }
    }
    for (name, value) in [("MPLBACKEND", "Agg"), ("MPLCONFIGDIR", MPLCONFIGDIR)] {
        set(&mut spec.environment, name, value);
    }
    Ok(())
}

/// The files of `/etc` that every cell has, whatever its image.
pub(crate) fn etc() -> Vec<RootFile> {
    let file = |path: &str, content: &str| RootFile { path: PathBuf::from(path), content: content.to_owned() };
    vec![
        file("/etc/passwd", PASSWD),
        file("/etc/group", GROUP),
        file("/etc/hosts", HOSTS),
        file("/etc/hostname", "sandbox\n"),
        file("/etc/nsswitch.conf", NSSWITCH),
        file("/etc/resolv.conf", ""),
    ]
}

fn plain(pieces: Pieces, environment: Vec<(String, String)>) -> RootSpec {
    RootSpec { binds: pieces.binds, symlinks: pieces.symlinks, environment, ..RootSpec::empty("") }
}

fn set(environment: &mut Vec<(String, String)>, name: &str, value: &str) {
    match environment.iter_mut().find(|(known, _)| known == name) {
        Some((_, old)) => value.clone_into(old),
        None => environment.push((name.to_owned(), value.to_owned())),
    }
}

/// The environment of interpreters and commands, whole. `first` is where programs are looked for first.
fn environment(first: &[&str], cpu_millis: u64) -> Vec<(String, String)> {
    let usual = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"];
    let user = format!("{USER_BASE}/bin");
    let path: Vec<&str> = [user.as_str()].iter().chain(first).chain(&usual).copied().collect();
    let path = path.join(":");
    // More threads than CPUs only wait for each other.
    let threads = cpu_millis.div_ceil(1000).max(1).to_string();
    let mut environment: Vec<(String, String)> = [
        ("PATH", path.as_str()),
        ("HOME", "/workspace"),
        ("USER", "sandbox"),
        ("LOGNAME", "sandbox"),
        ("SHELL", "/bin/sh"),
        ("TMPDIR", "/tmp"),
        ("LANG", "C.UTF-8"),
        ("TERM", "dumb"),
        // A module that is rewritten within a second is imported anew, and no caches lie between the user's files.
        ("PYTHONDONTWRITEBYTECODE", "1"),
        // There is no network: pip takes what is named, or what lies in the wheelhouse, and builds with what is there.
        ("PIP_NO_INDEX", "1"),
        ("PIP_NO_BUILD_ISOLATION", "0"),
        ("PIP_NO_CACHE_DIR", "1"),
        ("PIP_NO_INPUT", "1"),
        ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
        ("OMP_NUM_THREADS", &threads),
        ("OPENBLAS_NUM_THREADS", &threads),
        ("MKL_NUM_THREADS", &threads),
        ("NUMEXPR_NUM_THREADS", &threads),
        ("LOKY_MAX_CPU_COUNT", &threads),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec();
    // Which kernel the linear algebra takes is a fact of the machine: the operator may have to say it.
    if let Ok(core) = std::env::var("OPENBLAS_CORETYPE") {
        environment.push(("OPENBLAS_CORETYPE".to_owned(), core));
    }
    environment
}

/// Shows a folder of wheels at a place of the root, usually [`WHEELHOUSE`], and has pip look there.
pub fn add_wheelhouse(spec: &mut RootSpec, folder: &Path, place: &Path) {
    spec.binds.push(Bind { source: folder.to_owned(), target: place.to_owned() });
    set(&mut spec.environment, "PIP_FIND_LINKS", &place.to_string_lossy());
}
