//! The roots of the two images.

use std::fs;
use std::path::{Path, PathBuf};

use ringfence_op::{RootFile, RootSpec, RootSymlink};

use crate::host::Pieces;
use crate::python::Python;
use crate::store::Built;
use crate::{ImageError, ImageKind};

/// Where the virtual environment is in a cell.
pub(crate) const VENV: &str = "/opt/ringfence/venv";
/// Where what matplotlib found at build time is in a cell.
const FONT_LISTS: &str = "/opt/ringfence/matplotlib";
/// Matplotlib's own folder in a cell. It wants one that it can write to, and takes the list of fonts from it.
const MPLCONFIGDIR: &str = "/tmp/.matplotlib";

const PASSWD: &str = "root:x:0:0:root:/root:/usr/sbin/nologin\n\
    sandbox:x:1000:1000:sandbox:/workspace:/bin/sh\n\
    nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n";
const HOSTS: &str = "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n";
const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n";

/// Modules of the standard library that programs of models begin with.
const STANDARD: [&str; 30] = [
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
/// Packages worth their place in every forked interpreter, in the order of import. Each shared library costs every fork
/// a few microseconds, at its start and at its end: scipy.stats alone has as many as these three together.
const PACKAGES: [&str; 3] = ["numpy", "pandas", "matplotlib.pyplot"];

/// The image without packages: a virtual environment of two links and a file, so that what is installed beside the
/// machine's Python cannot be imported.
pub(crate) fn bare(python: &Python, cpu_millis: u64) -> RootSpec {
    let mut pieces = Pieces::of_host();
    for folder in &python.folders {
        pieces.add_folder(folder);
    }
    let minor = format!("python3.{}", python.version.minor);
    for name in ["python", "python3", minor.as_str()] {
        pieces.link(format!("{VENV}/bin/{name}"), python.executable.clone());
    }
    let mut spec = common(ImageKind::Bare, pieces, cpu_millis);
    let home = python.executable.parent().unwrap_or(Path::new("/usr/bin")).display();
    let config = format!("home = {home}\ninclude-system-site-packages = false\nversion = {}\n", python.version);
    spec.files.push(RootFile { path: PathBuf::from(format!("{VENV}/pyvenv.cfg")), content: config });
    spec
}

/// The image that was built.
pub(crate) fn scientific(built: &Built, python: &Python, cpu_millis: u64) -> Result<RootSpec, ImageError> {
    let mut pieces = Pieces::of_host();
    for folder in &python.folders {
        pieces.add_folder(folder);
    }
    pieces.bind(&built.folder.join("venv"), Path::new(VENV));
    let font_lists = built.folder.join("matplotlib");
    pieces.bind(&font_lists, Path::new(FONT_LISTS));
    let mut spec = common(ImageKind::Scientific, pieces, cpu_millis);
    for entry in fs::read_dir(&font_lists).map_err(ImageError::file("list", &font_lists))? {
        let name = entry.map_err(ImageError::file("list", &font_lists))?.file_name();
        if name.to_string_lossy().ends_with(".json") {
            let link = Path::new(MPLCONFIGDIR).join(&name);
            spec.tmp_symlinks.push(RootSymlink { link, target: Path::new(FONT_LISTS).join(&name) });
        }
    }
    for (name, value) in [("MPLBACKEND", "Agg"), ("MPLCONFIGDIR", MPLCONFIGDIR)] {
        spec.environment.push((name.to_owned(), value.to_owned()));
    }
    spec.preloads.extend(PACKAGES.map(str::to_owned));
    Ok(spec)
}

fn common(kind: ImageKind, mut pieces: Pieces, cpu_millis: u64) -> RootSpec {
    pieces.link("/etc/mtab", "/proc/self/mounts");
    let file = |path: &str, content: &str| RootFile { path: PathBuf::from(path), content: content.to_owned() };
    let shell = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
    RootSpec {
        image: kind.as_str().to_owned(),
        binds: pieces.binds,
        symlinks: pieces.symlinks,
        files: vec![
            file("/etc/passwd", PASSWD),
            file("/etc/group", GROUP),
            file("/etc/hosts", HOSTS),
            file("/etc/hostname", "sandbox\n"),
            file("/etc/nsswitch.conf", NSSWITCH),
            file("/etc/resolv.conf", ""),
        ],
        tmp_symlinks: Vec::new(),
        environment: environment(cpu_millis),
        shell: PathBuf::from(shell),
        python: Some(PathBuf::from(format!("{VENV}/bin/python"))),
        preloads: STANDARD.map(str::to_owned).to_vec(),
    }
}

/// The environment of interpreters and commands, whole.
fn environment(cpu_millis: u64) -> Vec<(String, String)> {
    let path = format!("{VENV}/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin");
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
        ("VIRTUAL_ENV", VENV),
        // A module that is rewritten within a second is imported anew, and no caches lie between the user's files.
        ("PYTHONDONTWRITEBYTECODE", "1"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bare_root_has_an_interpreter_and_nothing_of_ours() {
        let python = Python::find(None).unwrap();
        let spec = bare(&python, 1500);
        assert_eq!(spec.python, Some(PathBuf::from("/opt/ringfence/venv/bin/python")));
        let seen = |path: &Path| spec.binds.iter().any(|bind| path.starts_with(&bind.target));
        assert!(seen(&python.executable), "{}", python.executable.display());
        assert!(spec.environment.contains(&("OMP_NUM_THREADS".to_owned(), "2".to_owned())));
        let names: Vec<_> = spec.environment.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.iter().all(|name| !name.starts_with("RINGFENCE") && !name.starts_with("CARGO")), "{names:?}");
        assert!(spec.files.iter().all(|file| !file.path.starts_with("/usr")));
    }
}
