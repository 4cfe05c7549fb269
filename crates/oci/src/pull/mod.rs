//! Images from registries: the distribution API, version 2.
//!
//! A blob is asked for where the registry has it, and fetched from wherever the registry redirects to. It goes into a
//! file of its own as it comes, so that a broken connection, a restarted process or the next pull goes on from there.

mod auth;
mod download;
mod http;
mod origin;
mod roots;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::blobs::read_bounded;
use crate::document::{ACCEPTED, Descriptor};
use crate::limits::{DOCUMENT_BYTES_MAX, IMAGE_BYTES_MAX, PAUSE_MAX, PULL_MAX, RETRY_WAIT};
use crate::resolve::{self, Source, Wish};
use crate::{Blobs, Credentials, Digest, Found, OciError, Platform, Progress, Reference};
use auth::Access;
pub(crate) use auth::basic;
use http::{Asked, Http};
use origin::{Origin, Plain};

/// Bounds and wishes of a pull.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PullOptions {
    /// Of all blobs of the image together.
    pub bytes_max: u64,
    /// Which image of an index for several platforms is taken.
    pub platform: Platform,
    /// Hosts, as in references with their port, that are talked to over plain HTTP. All others have TLS, but for
    /// loopback addresses.
    pub plain_hosts: Vec<String>,
    /// Whether registries on loopback addresses are talked to over plain HTTP, as they usually are.
    pub plain_loopback: bool,
    /// A file of certificates (PEM) to be trusted instead of the system's.
    pub roots: Option<PathBuf>,
    /// How long all of it may take.
    pub total_max: Duration,
    /// How long a registry may send nothing, before an answer or in the middle of one.
    pub pause_max: Duration,
    /// The wait before a request is tried again; it doubles each time.
    pub retry_wait: Duration,
}

impl Default for PullOptions {
    fn default() -> Self {
        PullOptions {
            bytes_max: IMAGE_BYTES_MAX,
            platform: Platform::here(),
            plain_hosts: Vec::new(),
            plain_loopback: true,
            roots: None,
            total_max: PULL_MAX,
            pause_max: PAUSE_MAX,
            retry_wait: RETRY_WAIT,
        }
    }
}

/// Pulls an image. What `blobs` has already is not fetched again; what could not be fetched whole is kept for the
/// next try. The proxies of the environment (`HTTPS_PROXY`, `NO_PROXY`) are used, but not to loopback addresses.
///
/// # Errors
/// [`OciError::Denied`], [`OciError::Absent`], [`OciError::Transport`] and the like after bounded tries;
/// [`OciError::WrongDigest`] and [`OciError::WrongSize`] where something else came than was announced;
/// [`OciError::OtherPlatform`]; [`OciError::TooLarge`]; [`OciError::OutOfTime`].
pub fn pull(
    reference: &Reference,
    credentials: &Credentials,
    blobs: &Blobs,
    options: &PullOptions,
    progress: &mut dyn Progress,
) -> Result<Found, OciError> {
    let plain = Plain { hosts: options.plain_hosts.clone(), loopback: options.plain_loopback };
    let registry = Origin::of_host(reference.server(), &plain);
    let clock = Clock { deadline: Instant::now() + options.total_max, total: options.total_max };
    let http = Http::new(options, plain, clock)?;
    let access = Access::new(reference, credentials);
    let mut remote = Remote { reference, registry, http, access, blobs, first: None };
    progress.step(&format!("manifest of {reference}"), None);
    let root = remote.root(progress)?;
    let wish = Wish { platform: &options.platform, bytes_max: options.bytes_max };
    let found = resolve::image(&mut remote, &root, &wish, progress)?;
    let pinned = format!("{}/{}@{}", reference.host(), reference.repository(), root.digest);
    let mut names = vec![reference.to_string()];
    if !names.contains(&pinned) {
        names.push(pinned);
    }
    Ok(Found { names, ..found })
}

/// When all of it must be over.
#[derive(Debug, Clone, Copy)]
struct Clock {
    deadline: Instant,
    total: Duration,
}

impl Clock {
    /// What is left; an error where nothing is.
    fn left(&self) -> Result<Duration, OciError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(OciError::OutOfTime { seconds: self.total.as_secs() }) } else { Ok(left) }
    }
}

/// A repository of a registry, as a source of an image's parts.
struct Remote<'a> {
    reference: &'a Reference,
    registry: Origin,
    http: Http,
    access: Access<'a>,
    blobs: &'a Blobs,
    /// What the reference named: asked for once.
    first: Option<(Digest, Vec<u8>)>,
}

impl Remote<'_> {
    /// Asks what the reference names now.
    fn root(&mut self, progress: &mut dyn Progress) -> Result<Descriptor, OciError> {
        let target = self.reference.target();
        let (content, said) = self.fetch_manifest(&target, progress)?;
        let found = Digest::of(&content);
        for expected in [self.reference.digest(), said].into_iter().flatten() {
            if expected != found {
                let what = format!("the manifest of {}", self.reference);
                return Err(OciError::WrongDigest { what, expected, found });
            }
        }
        let size = content.len() as u64;
        self.first = Some((found, content));
        Ok(Descriptor { media_type: String::new(), digest: found, size, platform: None, annotations: None })
    }

    /// A manifest by tag or digest, with the digest that the registry says it has.
    fn fetch_manifest(
        &mut self,
        target: &str,
        progress: &mut dyn Progress,
    ) -> Result<(Vec<u8>, Option<Digest>), OciError> {
        let path = format!("/v2/{}/manifests/{target}", self.reference.repository());
        let what = format!("the manifest `{target}` of {}", self.reference.repository());
        let asked = Asked { url: self.registry.url(&path), what: &what, accept: Some(ACCEPTED), from: 0 };
        let mut answer = self.http.get(&asked, &mut self.access, progress)?;
        let said = answer.header("docker-content-digest").and_then(|text| text.parse().ok());
        let read = read_bounded(&mut answer.body(), DOCUMENT_BYTES_MAX, &what)?;
        Ok((read, said))
    }
}

impl Source for Remote<'_> {
    fn manifest(&mut self, descriptor: &Descriptor) -> Result<Vec<u8>, OciError> {
        let content = match self.first.take() {
            Some((digest, content)) if digest == descriptor.digest => content,
            _ => match self.blobs.read(&descriptor.digest, DOCUMENT_BYTES_MAX) {
                Ok(content) => content,
                Err(OciError::MissingBlob { .. }) => self.fetch_manifest(&descriptor.digest.to_string(), &mut ())?.0,
                Err(error) => return Err(error),
            },
        };
        let (what, found) = (format!("the manifest {}", descriptor.digest), Digest::of(&content));
        if found != descriptor.digest {
            return Err(OciError::WrongDigest { what, expected: descriptor.digest, found });
        }
        if content.len() as u64 != descriptor.size {
            let (expected, found) = (descriptor.size, content.len() as u64);
            return Err(OciError::WrongSize { what, expected, found });
        }
        Ok(content)
    }

    fn blob(
        &mut self,
        descriptor: &Descriptor,
        what: &'static str,
        progress: &mut dyn Progress,
    ) -> Result<(), OciError> {
        self.download(descriptor, what, progress)
    }

    fn content(&self, digest: &Digest) -> Result<Vec<u8>, OciError> {
        self.blobs.read(digest, DOCUMENT_BYTES_MAX)
    }

    fn keep(&mut self, mut content: &[u8]) -> Result<Digest, OciError> {
        Ok(self.blobs.put(&mut content, "a manifest", None, DOCUMENT_BYTES_MAX, &mut ())?.digest)
    }
}
