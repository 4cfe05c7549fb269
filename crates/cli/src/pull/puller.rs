//! The process that pulls: it reads what registries send and fills the store, and nothing else.
//!
//! Its standard input is the daemon's socket, its standard output the keeper's. It ends when the daemon's is closed, in
//! the middle of whatever it does: the store is made for that.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;

use ringfence_image::{Held, ImageError, Root, Source, Store, WHEELHOUSE};
use ringfence_jail::JailError;
use ringfence_oci::{Blobs, Credentials, OciError, PullOptions, Reference};

use super::allowed::Allowed;
use super::{Brought, Said, Setup, socket_of};
use crate::image::bring;
use crate::limits::{
    IMAGES_PULLED_MAX, PULL_ANSWER_BYTES_MAX, PULL_NAMES_EACH_MAX, PULL_SETUP_BYTES_MAX, PULL_TEXT_CHARS_MAX,
    PULL_WHILE_SERVING_MAX,
};

/// Runs until the daemon is gone.
pub(crate) fn run() -> ExitCode {
    // Nothing of ours is open yet but the two sockets, and what the log goes to.
    if ringfence_jail::close_inherited().is_err() {
        return ExitCode::FAILURE;
    }
    let (Ok(daemon), Ok(keeper)) = (socket_of(std::io::stdin()), socket_of(std::io::stdout())) else {
        return ExitCode::FAILURE;
    };
    let daemon = UnixStream::from(daemon);
    let mut heard = BufReader::new(&daemon);
    let mut line = String::new();
    let read = (&mut heard).take(PULL_SETUP_BYTES_MAX).read_line(&mut line);
    let Some(setup) = read.ok().and_then(|_| serde_json::from_str::<Setup>(&line).ok()) else {
        crate::failure::tell("ringfence: `puller` is started by `ringfence serve` alone\n");
        return crate::failure::Kind::Configuration.code();
    };
    let mut puller = match Puller::prepare(setup, keeper) {
        Ok(puller) => puller,
        Err(error) => {
            say(&daemon, &Said::Unfit { why: told(&*error) });
            return ExitCode::FAILURE;
        }
    };
    let (names, waiting) = sync_channel::<String>(1);
    let Ok(answers) = daemon.try_clone() else { return ExitCode::FAILURE };
    std::thread::spawn(move || {
        for name in waiting {
            say(&answers, &puller.bring(&name));
        }
    });
    say(&daemon, &Said::Ready);
    loop {
        let mut name = String::new();
        match (&mut heard).take(PULL_ANSWER_BYTES_MAX).read_line(&mut name) {
            Ok(length) if length > 0 && names.send(name.trim_end().to_owned()).is_ok() => {}
            // The end of the process is the end of the thread.
            _ => return ExitCode::SUCCESS,
        }
    }
}

/// A daemon that is gone needs no telling.
fn say(mut daemon: &UnixStream, said: &Said) {
    if let Ok(text) = serde_json::to_string(said) {
        let _ = daemon.write_all(format!("{text}\n").as_bytes());
    }
}

/// An error with its reasons, as much as is worth telling.
fn told(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(&format!(": {source}"));
        next = source.source();
    }
    text.chars().take(PULL_TEXT_CHARS_MAX).collect()
}

struct Puller {
    store: Store,
    credentials: Credentials,
    allowed: Allowed,
    keeper: OwnedFd,
    cpu_millis: u64,
    wheelhouse: Option<PathBuf>,
    /// Numbers of the images that the keeper has.
    served: HashMap<String, u32>,
    /// While the server runs, nobody takes them away.
    held: Vec<Held>,
}

/// Whether another image can be served: where not, nothing of one is fetched, and names of those that are there still
/// come.
struct Room {
    full: bool,
}

impl ringfence_oci::Progress for Room {
    fn cancelled(&mut self) -> bool {
        self.full
    }
}

impl Room {
    fn refusal(&self) -> Refused {
        let why =
            format!("{IMAGES_PULLED_MAX} images have come since the start, and no more can be served until the next");
        Refused { why, for_good: true }
    }
}

/// Why a name could not be brought.
struct Refused {
    why: String,
    for_good: bool,
}

impl Refused {
    fn for_now(error: impl std::error::Error + 'static) -> Refused {
        Refused { why: told(&error), for_good: false }
    }
}

impl Puller {
    /// Looks at what it needs while it may, and gives up the rest.
    fn prepare(setup: Setup, keeper: OwnedFd) -> Result<Puller, Box<dyn std::error::Error + Send + Sync>> {
        let store = Store::at(&setup.state_dir).resolved()?;
        let allowed = Allowed::parse(&setup.allowed).ok_or("the setting `pull` is not understood")?;
        ringfence_jail::confine_puller(store.folder(), &readable())?;
        Ok(Puller {
            store,
            credentials: Credentials::usual(),
            allowed,
            keeper,
            cpu_millis: setup.cpu_millis,
            wheelhouse: setup.wheelhouse,
            served: setup.served,
            held: Vec::new(),
        })
    }

    fn bring(&mut self, name: &str) -> Said {
        match self.try_bring(name) {
            Ok(brought) => Said::Brought(brought),
            Err(Refused { why, for_good }) => Said::Failed { why, for_good },
        }
    }

    fn try_bring(&mut self, name: &str) -> Result<Brought, Refused> {
        let refused = |why: &str| Refused { why: why.to_owned(), for_good: true };
        let reference = self.allowed.reference(name).ok_or_else(|| refused("`pull` does not allow it"))?;
        // Nothing that the name could be short for, nor another repository's: `pull` and `images` allow this one alone.
        let repository = format!("{}/{}", reference.host(), reference.repository());
        let digest = reference.digest().map(|digest| digest.to_string());
        let found = self.store.find_exact(name, &repository, digest.as_deref());
        let held = match found.and_then(|entry| self.store.hold(entry)) {
            Ok(held) => held,
            Err(ImageError::Unknown { .. }) => self.pull(&reference, name)?,
            Err(error) => return Err(Refused::for_now(error)),
        };
        let manifest = &held.entry.manifest;
        if manifest.root != Root::Folder {
            return Err(refused("it stands on the machine itself: it is served from the next start on"));
        }
        let id = manifest.id.clone();
        let digest = match &manifest.source {
            Source::Oci { digest, .. } => Some(digest.clone()),
            Source::Declared { .. } => None,
        };
        let (has_python, limits) = (manifest.facts.interpreter.is_there(), manifest.facts.limits);
        let known = self.served.get(&id).copied();
        let image = match known {
            Some(image) => image,
            None => self.give(&held, name)?,
        };
        if known.is_none() {
            self.served.insert(id.clone(), image);
            self.held.push(held);
        }
        Ok(Brought { image, new: known.is_none(), has_python, limits, id, digest })
    }

    fn pull(&self, reference: &Reference, name: &str) -> Result<Held, Refused> {
        let mut options = PullOptions::default();
        options.total_max = PULL_WHILE_SERVING_MAX;
        let folder = self.store.blobs().map_err(Refused::for_now)?;
        let blobs = Blobs::open(folder.folder()).map_err(Refused::for_now)?;
        let mut room = Room { full: self.held.len() >= IMAGES_PULLED_MAX };
        let found = match ringfence_oci::pull(reference, &self.credentials, &blobs, &options, &mut room) {
            Err(OciError::Cancelled) => return Err(room.refusal()),
            found => found.map_err(Refused::for_now)?,
        };
        let place = bring::Place { store: &self.store, blobs: &blobs, name, names_max: PULL_NAMES_EACH_MAX };
        let (held, _) = place.take_in(&found, &reference.to_string(), &mut (), &mut ()).map_err(Refused::for_now)?;
        Ok(held)
    }

    /// Has the keeper put its root together.
    fn give(&self, held: &Held, name: &str) -> Result<u32, Refused> {
        let mut root = ringfence_image::root_of(&held.entry, self.cpu_millis).map_err(Refused::for_now)?;
        name.clone_into(&mut root.image);
        if let Some(folder) = &self.wheelhouse {
            ringfence_image::add_wheelhouse(&mut root, folder, Path::new(WHEELHOUSE));
        }
        ringfence_jail::add_image(self.keeper.as_fd(), &root).map_err(|error| {
            let for_good = matches!(error, JailError::Setup { .. });
            Refused { why: told(&error), for_good }
        })
    }
}

/// What resolving a host's name, trusting a registry and logging in to it take: no folder that holds others' secrets.
fn readable() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = [
        // The resolver of the C library, and the modules that it loads.
        "/etc/resolv.conf",
        "/etc/hosts",
        "/etc/host.conf",
        "/etc/nsswitch.conf",
        "/etc/gai.conf",
        "/etc/services",
        "/etc/protocols",
        "/etc/ld.so.cache",
        "/lib",
        "/lib64",
        "/usr/lib",
        "/usr/lib64",
        // Certificates.
        "/etc/ssl/certs",
        "/etc/ssl/ca-bundle.pem",
        "/etc/ssl/cert.pem",
        "/etc/pki/tls/certs",
        "/etc/pki/ca-trust/extracted",
        "/var/lib/ca-certificates",
        "/dev/null",
        "/dev/urandom",
    ]
    .map(PathBuf::from)
    .to_vec();
    // Services that write it write it anew, in a folder of their own.
    let resolver = Path::new("/etc/resolv.conf").canonicalize().ok();
    let of_service = resolver.as_deref().and_then(Path::parent).filter(|folder| *folder != Path::new("/etc"));
    paths.extend(of_service.map(Path::to_owned));
    paths.extend(std::env::var_os("SSL_CERT_FILE").map(PathBuf::from));
    let docker = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    paths.extend(docker.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".docker"))));
    paths
}
