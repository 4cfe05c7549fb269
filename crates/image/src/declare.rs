//! A declared image: the TOML that says what it is made from, read and checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use ringfence_op::ImageLimits;
use serde::Deserialize;

use crate::ImageError;
use crate::limited::WrittenLimits;
use crate::limits::{DECLARATION_BYTES_MAX, FILE_BYTES_MAX, FILES_MAX, LIST_MAX};
use crate::lock;
use crate::names;
use crate::python::Version;

/// What an image is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    /// The name that the image gets.
    pub name: String,
    pub(crate) base: Base,
    pub(crate) python: Option<PythonWanted>,
    /// Packages as a person names them, for the lock.
    pub(crate) requirements: Vec<String>,
    /// The lock file, beside the declaration.
    pub(crate) lock_file: Option<PathBuf>,
    /// Its text.
    pub(crate) lock: Option<String>,
    pub(crate) preloads: Vec<String>,
    pub(crate) languages: Vec<String>,
    pub(crate) programs: Vec<String>,
    pub(crate) folders: Vec<PathBuf>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) limits: ImageLimits,
    pub(crate) files: Vec<DeclaredFile>,
}

/// What it stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Base {
    /// The machine's own programs, and a Python of it.
    Host,
    /// An image of the store.
    Image(String),
}

/// Which Python of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PythonWanted {
    /// This one.
    Path(PathBuf),
    /// The one that the server or the command names, or `python3` of `PATH`, if its version is in this range.
    Between((u32, u32), (u32, u32)),
    /// `python3.N` of `PATH`.
    Minor(u32),
}

/// A file that is put into the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeclaredFile {
    /// Absolute, in the image.
    pub(crate) target: PathBuf,
    pub(crate) content: Vec<u8>,
    pub(crate) executable: bool,
}

/// The TOML as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Written {
    name: Option<String>,
    base: String,
    python: Option<String>,
    #[serde(default)]
    requirements: Vec<String>,
    lock: Option<PathBuf>,
    #[serde(default)]
    preloads: Vec<String>,
    #[serde(default)]
    languages: Vec<String>,
    #[serde(default)]
    programs: Vec<String>,
    #[serde(default)]
    folders: Vec<PathBuf>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    limits: WrittenLimits,
    #[serde(default)]
    files: BTreeMap<PathBuf, PathBuf>,
}

/// The declarations that this program brings along: name, text, lock.
const SHIPPED: [(&str, &str, Option<&str>); 3] = [
    ("scientific", include_str!("../images/scientific.toml"), Some(include_str!("../images/scientific.lock"))),
    ("bare", include_str!("../images/bare.toml"), None),
    ("node", include_str!("../images/node.toml"), None),
];

impl Declaration {
    /// The names of the declarations that this program brings along.
    pub fn shipped_names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, ..)| *name)
    }

    /// The shipped declaration of that name.
    #[must_use]
    pub fn shipped(name: &str) -> Option<Result<Self, ImageError>> {
        let (name, text, lock) = SHIPPED.iter().find(|(known, ..)| *known == name)?;
        let path = PathBuf::from(format!("{name}.toml"));
        let read = |_: &Path| Ok((lock.unwrap_or_default().as_bytes().to_vec(), false));
        Some(check(&path, text, &read))
    }

    /// Reads a declaration and the files that it names, beside it.
    ///
    /// # Errors
    /// When a file cannot be read, or says what cannot be.
    pub fn read(path: &Path) -> Result<Self, ImageError> {
        let (text, _) = read_file(path, DECLARATION_BYTES_MAX)?;
        let text = String::from_utf8(text).map_err(|_| wrong(path, "it is not UTF-8"))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let declaration = check(path, &text, &|file| read_file(&folder.join(file), FILE_BYTES_MAX))?;
        if Self::shipped_names().any(|name| name == declaration.name) {
            let why = format!("the name `{}` is that of an image that comes with this program", declaration.name);
            return Err(wrong(path, why));
        }
        Ok(declaration)
    }
}

impl Declaration {
    /// As [`Self::read`], of a declaration whose lock is still to be written, or written anew.
    pub(crate) fn read_to_lock(path: &Path) -> Result<Self, ImageError> {
        let (text, _) = read_file(path, DECLARATION_BYTES_MAX)?;
        let text = String::from_utf8(text).map_err(|_| wrong(path, "it is not UTF-8"))?;
        check(path, &text, &|_| Ok((Vec::new(), false)))
    }
}

/// A file's content, and whether it is executable.
type Read<'a> = &'a dyn Fn(&Path) -> Result<(Vec<u8>, bool), ImageError>;

fn check(path: &Path, text: &str, read: Read<'_>) -> Result<Declaration, ImageError> {
    let written: Written = toml::from_str(text).map_err(|error| wrong(path, error.to_string().trim_end()))?;
    let wrong = |why: String| wrong(path, why);
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let name = written.name.unwrap_or(stem);
    names::check(&name)?;
    let base = if written.base == "host" { Base::Host } else { Base::Image(written.base) };
    if base != Base::Host && written.python.is_some() {
        return Err(wrong(
            "`python` is for images on `host`: this one has the Python of the image it is made on".into(),
        ));
    }
    let python = written.python.map(|text| python_wanted(&text).ok_or(text)).transpose();
    let python = python.map_err(|text| wrong(format!("`python = \"{text}\"` is no version, range or path")))?;
    for (list, name) in
        [(&written.preloads, "preloads"), (&written.languages, "languages"), (&written.programs, "programs")]
    {
        if list.len() > LIST_MAX || !list.iter().all(|word| is_word(word)) {
            return Err(wrong(format!("`{name}` takes at most {LIST_MAX} words of letters, digits and `._+-`")));
        }
    }
    if let Some(variable) = written.environment.iter().find(|(name, value)| !is_variable(name) || value.contains('\0'))
    {
        return Err(wrong(format!("`{}` cannot be a variable", variable.0.escape_debug())));
    }
    if written.folders.len() > LIST_MAX || !written.folders.iter().all(|folder| is_plain(folder)) {
        return Err(wrong(format!("`folders` takes at most {LIST_MAX} absolute paths without `..`, and not `/`")));
    }
    let limits = written.limits.check().map_err(wrong)?;
    if written.files.len() > FILES_MAX {
        return Err(wrong(format!("`files` takes at most {FILES_MAX} files")));
    }
    if written.requirements.len() > LIST_MAX || !written.requirements.iter().all(|text| is_requirement(text)) {
        return Err(wrong(format!(
            "`requirements` takes at most {LIST_MAX} names of packages, with versions if need be, such as \"numpy>=2\""
        )));
    }
    if !written.requirements.is_empty() && written.lock.is_none() {
        let why = "`requirements` need `lock`: the name of a file that `ringfence image lock` writes";
        return Err(wrong(why.to_owned()));
    }
    let lock = written.lock.as_ref().map(|file| read(file)).transpose();
    let lock = match lock {
        Err(ImageError::File { source, .. })
            if source.kind() == std::io::ErrorKind::NotFound && !written.requirements.is_empty() =>
        {
            let why = "its lock is not there yet: `ringfence image lock`, with this file's name, writes it";
            return Err(wrong(why.to_owned()));
        }
        other => other?,
    };
    let lock = lock
        .map(|(text, _)| String::from_utf8(text))
        .transpose()
        .map_err(|_| wrong("the lock file is not UTF-8".into()))?;
    if lock
        .as_deref()
        .is_some_and(|lock| !written.requirements.is_empty() && lock::is_of_others(lock, &written.requirements))
    {
        let why =
            "its lock is one of other requirements: `ringfence image lock`, with this file's name, writes it anew";
        return Err(wrong(why.to_owned()));
    }
    let mut files = Vec::new();
    for (target, source) in written.files {
        if let Some(why) = refuse_target(&target) {
            return Err(wrong(format!("no file can be put at {}: {why}", target.display())));
        }
        let (content, executable) = read(&source)?;
        files.push(DeclaredFile { target, content, executable });
    }
    Ok(Declaration {
        name,
        base,
        python,
        requirements: written.requirements,
        lock_file: written.lock,
        lock,
        preloads: unique(written.preloads),
        languages: unique(written.languages),
        programs: unique(written.programs),
        folders: written.folders,
        environment: written.environment,
        limits,
        files,
    })
}

fn wrong(path: &Path, why: impl Into<String>) -> ImageError {
    ImageError::Declaration { path: path.to_owned(), why: why.into() }
}

fn read_file(path: &Path, bytes_max: u64) -> Result<(Vec<u8>, bool), ImageError> {
    let metadata = fs::metadata(path).map_err(ImageError::file("read", path))?;
    if !metadata.is_file() || metadata.len() > bytes_max {
        return Err(wrong(path, format!("it must be a file of at most {bytes_max} bytes")));
    }
    let content = fs::read(path).map_err(ImageError::file("read", path))?;
    Ok((content, metadata.permissions().mode() & 0o100 != 0))
}

/// `3.12`, `3.10-3.14`, or an absolute path.
fn python_wanted(text: &str) -> Option<PythonWanted> {
    let version = |text: &str| {
        let (major, minor) = text.split_once('.')?;
        Some((major.parse().ok()?, minor.parse::<u32>().ok()?))
    };
    if text.starts_with('/') {
        return Some(PythonWanted::Path(text.into()));
    }
    match text.split_once('-') {
        Some((first, last)) => Some(PythonWanted::Between(version(first)?, version(last)?)),
        None => version(text).filter(|(major, _)| *major == 3).map(|(_, minor)| PythonWanted::Minor(minor)),
    }
}

impl PythonWanted {
    /// Whether a Python of that version is one.
    pub(crate) fn takes(&self, version: Version) -> bool {
        let version = (version.major, version.minor);
        match self {
            PythonWanted::Path(_) => true,
            PythonWanted::Minor(minor) => version == (3, *minor),
            PythonWanted::Between(first, last) => (*first..=*last).contains(&version),
        }
    }
}

impl std::fmt::Display for PythonWanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PythonWanted::Path(path) => write!(f, "{}", path.display()),
            PythonWanted::Minor(minor) => write!(f, "3.{minor}"),
            PythonWanted::Between(first, last) => write!(f, "{}.{} to {}.{}", first.0, first.1, last.0, last.1),
        }
    }
}

/// A name of a package, perhaps with extras, versions and a marker: no option of pip's, no path and no address.
fn is_requirement(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"._-[],<>=!~ ;'\"()*+".contains(&b);
    (1..=256).contains(&text.len()) && text.bytes().all(fits) && text.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// A name of a module, a program or a language.
fn is_word(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"._+-".contains(&b);
    (1..=128).contains(&text.len()) && text.bytes().all(fits) && !text.starts_with(['.', '-'])
}

fn is_variable(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    (1..=128).contains(&name.len()) && name.bytes().all(fits) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Absolute, with nothing but names in it, and not the root itself.
fn is_plain(path: &Path) -> bool {
    let mut parts = path.components();
    parts.next() == Some(Component::RootDir)
        && parts.clone().next().is_some()
        && parts.all(|part| matches!(part, Component::Normal(name) if name.to_str().is_some()))
}

/// Folders of a cell in which nothing of an image is seen.
const OF_CELLS: [&str; 8] = ["/workspace", "/tmp", "/proc", "/dev", "/sys", "/run", "/opt/ringfence", "/.ringfence"];

fn refuse_target(target: &Path) -> Option<String> {
    if !is_plain(target) {
        return Some("it must be an absolute path without `..`".to_owned());
    }
    let of_cells = OF_CELLS.iter().find(|folder| target.starts_with(folder))?;
    Some(format!("{of_cells} is the session's own"))
}

/// Each once, in the order of their first places.
pub(crate) fn unique(list: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    list.into_iter().filter(|word| seen.insert(word.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Declaration, ImageError> {
        check(Path::new("mine.toml"), text, &|_| Ok((b"content".to_vec(), false)))
    }

    #[test]
    fn every_shipped_declaration_is_right() {
        for name in Declaration::shipped_names() {
            let declaration = Declaration::shipped(name).unwrap().unwrap();
            assert_eq!(declaration.name, name);
            assert_eq!(declaration.base, Base::Host);
        }
        assert!(Declaration::shipped("scientific").unwrap().unwrap().lock.unwrap().contains("numpy=="));
        assert!(Declaration::shipped("gold").is_none());
    }

    #[test]
    fn everything_that_can_be_said_is_read() {
        let text = "name = 'team/tools:1'\nbase = 'debian:12'\nlock = 'l'\npreloads = ['json', 'json']\nlanguages = ['python']\n\
                    [environment]\nA = 'b'\n[files]\n'/opt/x' = 'x'\n";
        let declaration = read_text(text).unwrap();
        assert_eq!((declaration.name.as_str(), &declaration.base), ("team/tools:1", &Base::Image("debian:12".into())));
        assert_eq!(declaration.preloads, ["json"]);
        assert_eq!(declaration.files[0].target, Path::new("/opt/x"));
        assert_eq!(read_text("base = 'host'").unwrap().name, "mine");
        let python = |text: &str| read_text(&format!("base = 'host'\npython = '{text}'")).unwrap().python.unwrap();
        let version = |minor| Version { major: 3, minor, micro: 1 };
        assert!(python("3.12").takes(version(12)) && !python("3.12").takes(version(11)));
        assert!(python("3.10-3.14").takes(version(14)) && !python("3.10-3.14").takes(version(9)));
        assert_eq!(python("/opt/python"), PythonWanted::Path("/opt/python".into()));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (text, word) in [
            ("", "base"),
            ("base = 'host'\ncolour = 'red'", "colour"),
            ("base = 5", "base"),
            ("base = 'host", "TOML"),
            ("base = 'host'\npython = '2'", "python"),
            ("base = 'host'\npython = '../python'", "python"),
            ("base = 'x'\npython = '3.12'", "python"),
            ("base = 'host'\nname = 'a b'", "a b"),
            ("base = 'host'\npreloads = ['os; import x']", "preloads"),
            ("base = 'host'\nprograms = ['../../sh']", "programs"),
            ("base = 'host'\nprograms = ['.']", "programs"),
            ("base = 'host'\nfolders = ['/']", "folders"),
            ("base = 'host'\nfolders = ['/a/../..']", "folders"),
            ("base = 'host'\nfolders = ['relative']", "folders"),
            ("base = 'host'\n[environment]\n'A=B' = 'c'", "A=B"),
            ("base = 'host'\n[environment]\nA = \"\\u0000\"", "`A`"),
            ("base = 'host'\n[files]\n'/opt/../etc/x' = 'x'", "/opt/../etc/x"),
            ("base = 'host'\nrequirements = ['numpy']", "`lock`"),
            ("base = 'host'\nlock = 'l'\nrequirements = ['-r other']", "requirements"),
            ("base = 'host'\nlock = 'l'\nrequirements = ['a @ file:///x']", "requirements"),
            ("base = 'host'\nlock = 'l'\nrequirements = ['./a']", "requirements"),
            ("base = 'host'\n[limits]\nmemory = 'much'", "memory"),
            ("base = 'host'\n[limits]\nspeed = 5", "speed"),
            ("base = 'host'\n[files]\n'opt' = 'x'", "opt"),
            ("base = 'host'\n[files]\n'/workspace/x' = 'x'", "/workspace"),
        ] {
            let error = read_text(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn files_are_read_beside_the_declaration_and_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        fs::write(&path, "base = 'host'\n[files]\n'/opt/run' = 'run.sh'\n").unwrap();
        assert!(Declaration::read(&path).unwrap_err().to_string().contains("run.sh"));
        fs::write(folder.path().join("run.sh"), "echo").unwrap();
        fs::set_permissions(folder.path().join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        let declaration = Declaration::read(&path).unwrap();
        assert!(declaration.files[0].executable && declaration.files[0].content == b"echo");
        fs::write(&path, "base = 'host'\nname = 'bare'\n").unwrap();
        assert!(Declaration::read(&path).unwrap_err().to_string().contains("`bare`"));
        fs::File::create(&path).unwrap().set_len(DECLARATION_BYTES_MAX + 1).unwrap();
        assert!(Declaration::read(&path).is_err());
    }
}
