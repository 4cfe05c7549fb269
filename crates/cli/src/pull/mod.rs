//! Images that are pulled while the server runs, behind leases that are served by the default meanwhile.
//!
//! The daemon can neither connect to a registry nor write to the store. Where the setting `pull` allows any, a further
//! process is started while that is still possible, the *puller* ([`puller`]): it is held to the store and to connecting,
//! and gives the keeper what an image is made of. The daemon says names to it, one at a time, and hears numbers.
//!
//! What a name may be is judged here ([`allowed`]) and by the puller again; how often, here ([`asked`]).

pub(crate) mod allowed;
mod asked;
pub(crate) mod puller;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use ringfence_image::Store;
use ringfence_interp::Interp;
use ringfence_jail::Pulled;
use ringfence_op::{ImageLimits, Tier};
use ringfence_session::{Absent, Sessions};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::config::Config;
use crate::failure::{Failure, Kind};
use crate::limits::{
    IMAGES_PULLED_MAX, PULL_ANSWER_BYTES_MAX, PULL_NAME_BYTES_MAX, PULLER_END_POLL, PULLER_READY_MAX, PULLS_WAITING_MAX,
};
use crate::served::Served;
use allowed::Allowed;
use asked::{Answer, Asked};

/// The puller's first line: what it has to know.
#[derive(Debug, Serialize, Deserialize)]
struct Setup {
    /// Canonical.
    state_dir: PathBuf,
    /// The setting `pull`.
    allowed: String,
    cpu_millis: u64,
    wheelhouse: Option<PathBuf>,
    /// Images that are served already, by their ids.
    served: HashMap<String, u32>,
}

/// A line of the puller's.
#[derive(Debug, Serialize, Deserialize)]
enum Said {
    /// It is held, and waits for names.
    Ready,
    /// It cannot work here.
    Unfit { why: String },
    /// The image of the last name is the keeper's number so and so.
    Brought(Brought),
    /// It could not be had.
    Failed { why: String, for_good: bool },
}

#[derive(Debug, Serialize, Deserialize)]
struct Brought {
    image: u32,
    /// The keeper did not have it before.
    new: bool,
    has_python: bool,
    limits: ImageLimits,
    id: String,
    /// Of an OCI image.
    digest: Option<String>,
}

/// A puller that is ready.
#[derive(Debug)]
pub(crate) struct Started {
    child: Child,
    /// The daemon's end.
    link: UnixStream,
}

/// What the keeper gets of it.
#[derive(Debug)]
pub(crate) struct KeeperEnd {
    /// Of the link between the two.
    pub(crate) link: OwnedFd,
    /// Which images may come.
    pub(crate) pulled: Pulled,
}

/// Variables that the puller gets: proxies, certificates, and where the credentials of registries are.
const VARIABLES: [&str; 11] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "DOCKER_CONFIG",
    "HOME",
];

/// Starts the puller where the configuration allows any image to be pulled, as whoever started us.
///
/// # Errors
/// Where this tier shows no such image, or the puller cannot be held here.
pub(crate) fn start(config: &Config, tier: Tier, served: &Served) -> Result<Option<(Started, KeeperEnd)>, Failure> {
    if config.pull.is_empty() {
        return Ok(None);
    }
    if tier != Tier::Cell {
        let error = anyhow!("`pull` needs tier cell: in tier {tier} there are the images of the server's start alone");
        return Err(Failure::new(Kind::Configuration, error));
    }
    let started = start_puller(config, served).map_err(Failure::of(Kind::Isolation))?;
    Ok(Some(started))
}

fn start_puller(config: &Config, served: &Served) -> anyhow::Result<(Started, KeeperEnd)> {
    let state_dir = config.state_dir.canonicalize().context("cannot resolve the state folder")?;
    let store = Store::at(&state_dir);
    // Made before the puller is held to it.
    store.blobs()?;
    // What the puller says of an image's root is believed where it lies in there by this very name.
    let store = store.resolved()?;
    let (link, theirs) = UnixStream::pair().context("cannot make the puller's sockets")?;
    let (keeper, of_puller) = ringfence_jail::packet::pair().context("cannot make the puller's sockets")?;
    let mut command = Command::new("/proc/self/exe");
    command.arg("puller").stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::from(of_puller));
    command.env_clear().envs(VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    // A terminal's interrupt is the daemon's to hear; the puller ends with its link.
    command.process_group(0);
    let child = command.spawn().context("cannot start the process that pulls images")?;
    drop(command);
    let setup = Setup {
        state_dir,
        allowed: config.pull_text.clone(),
        cpu_millis: config.cell.cpu_millis,
        wheelhouse: config.wheelhouse.clone(),
        served: served.ids(),
    };
    greet(&link, &setup)?;
    let pulled = Pulled { store: store.folder().to_owned(), most: IMAGES_PULLED_MAX };
    Ok((Started { child, link }, KeeperEnd { link: keeper, pulled }))
}

/// Tells the puller what it has to know, and waits until it is ready.
fn greet(mut link: &UnixStream, setup: &Setup) -> anyhow::Result<()> {
    let doing = "cannot speak with the process that pulls images";
    link.write_all(format!("{}\n", serde_json::to_string(setup)?).as_bytes()).context(doing)?;
    link.set_read_timeout(Some(PULLER_READY_MAX)).context(doing)?;
    let mut line = String::new();
    BufReader::new(link.take(PULL_ANSWER_BYTES_MAX)).read_line(&mut line).context(doing)?;
    link.set_read_timeout(None).context(doing)?;
    match serde_json::from_str(&line) {
        Ok(Said::Ready) => Ok(()),
        Ok(Said::Unfit { why }) => bail!("{why}"),
        Ok(_) | Err(_) => bail!("the process that pulls images ended, or said what it should not"),
    }
}

impl Started {
    /// Its process, a child of ours.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What leases are answered with, and what follows the link once sessions are there.
    pub(crate) fn pulls(self, allowed: Allowed) -> (Arc<Pulls>, Link) {
        let (queue, names) = mpsc::channel(PULLS_WAITING_MAX);
        let pulls = Arc::new(Pulls { allowed, asked: Mutex::default(), queue });
        (pulls, Link { stream: self.link, child: self.child, names })
    }
}

/// Hears what leases ask for and is not there.
#[derive(Debug)]
pub(crate) struct Pulls {
    allowed: Allowed,
    asked: Mutex<Asked>,
    queue: mpsc::Sender<String>,
}

impl Absent for Pulls {
    fn is_coming(&self, name: &str) -> bool {
        if name.len() > PULL_NAME_BYTES_MAX || self.queue.is_closed() || self.allowed.reference(name).is_none() {
            return false;
        }
        // A digest alone says which: any number of tags beside it are one name.
        let bare = without_tag(name).filter(|bare| self.allowed.reference(bare).is_some());
        let name = bare.as_deref().unwrap_or(name);
        let mut asked = self.asked();
        match asked.ask(name, Instant::now()) {
            Answer::Coming => true,
            Answer::Nothing => false,
            Answer::Full => {
                tracing::warn!(image = ?name, "is not pulled: so many names have failed lately that no more are tried");
                false
            }
            Answer::Pull if self.queue.try_send(name.to_owned()).is_ok() => {
                tracing::info!(image = ?name, "is pulled: its sessions get the default image until it is there");
                true
            }
            Answer::Pull => {
                asked.failed(name, false, Instant::now());
                false
            }
        }
    }
}

/// A name with tag and digest, without the tag.
fn without_tag(name: &str) -> Option<String> {
    let (rest, digest) = name.split_once('@')?;
    // A colon before the last slash is that of a port.
    let (bare, tag) = rest.rsplit_once(':')?;
    (!tag.contains('/')).then(|| format!("{bare}@{digest}"))
}

impl Pulls {
    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, name: &str, said: Said, interp: &Interp, sessions: &Sessions) -> anyhow::Result<()> {
        match said {
            Said::Brought(brought) => {
                if brought.new && interp.add_image(name, brought.has_python, brought.limits) != brought.image {
                    bail!("its numbers are not the keeper's");
                }
                // A name with a digest is known by that: of an index, it is another than the image's own.
                let alias = name.split_once('@').map_or(name, |(_, digest)| digest);
                let is_own = brought.digest.as_deref() == Some(alias);
                let ids = [brought.id.clone(), format!("sha256:{}", brought.id)];
                sessions.learn(ids.into_iter().chain(brought.digest).chain([alias.to_owned()]), brought.image);
                if is_own {
                    self.asked().was_known(name);
                } else {
                    let forgotten = self.asked().came(name, alias, brought.new);
                    forgotten.iter().for_each(|alias| sessions.forget(alias));
                }
                tracing::info!(image = ?name, id = ?brought.id, "has been pulled: its sessions get it from now on");
            }
            Said::Failed { why, for_good } => {
                self.asked().failed(name, for_good, Instant::now());
                let again = if for_good { "never" } else { "ten minutes from now at the earliest" };
                tracing::warn!(image = ?name, ?why, again, "could not be pulled: its sessions get the default image");
            }
            Said::Ready | Said::Unfit { .. } => bail!("it says what it should not"),
        }
        Ok(())
    }
}

/// The daemon's end of the link, and the names that are to be pulled.
#[derive(Debug)]
pub(crate) struct Link {
    stream: UnixStream,
    child: Child,
    names: mpsc::Receiver<String>,
}

impl Link {
    /// Has one name after the other pulled, until the puller is gone or the server ends.
    pub(crate) async fn follow(mut self, pulls: Arc<Pulls>, interp: Interp, sessions: Sessions) {
        let ended = self.try_follow(&pulls, &interp, &sessions).await;
        self.names.close();
        pulls.asked().give_up();
        if let Err(error) = ended {
            tracing::error!(error = format!("{error:#}"), "no more images are pulled: the process that did so is lost");
            // It ends with its link, if it has not ended already; nobody else looks at it while the server runs.
            let Link { stream, mut child, .. } = self;
            drop(stream);
            while matches!(child.try_wait(), Ok(None)) {
                tokio::time::sleep(PULLER_END_POLL).await;
            }
        }
    }

    async fn try_follow(&mut self, pulls: &Pulls, interp: &Interp, sessions: &Sessions) -> anyhow::Result<()> {
        let stream = self.stream.try_clone()?;
        stream.set_nonblocking(true)?;
        let (read, mut write) = tokio::net::UnixStream::from_std(stream)?.into_split();
        let mut read = tokio::io::BufReader::new(read);
        loop {
            let name = tokio::select! {
                name = self.names.recv() => name,
                _ = read.fill_buf() => bail!("it ended, or spoke without being asked"),
            };
            let Some(name) = name else { return Ok(()) };
            write.write_all(format!("{name}\n").as_bytes()).await?;
            let mut line = String::new();
            (&mut read).take(PULL_ANSWER_BYTES_MAX).read_line(&mut line).await?;
            let said = serde_json::from_str(&line).context("it ended, or said what is no answer")?;
            pulls.take(&name, said, interp, sessions)?;
        }
    }
}

/// A descriptor of ours under another number, as a socket.
fn socket_of(fd: impl AsFd) -> std::io::Result<OwnedFd> {
    fd.as_fd().try_clone_to_owned()
}

#[cfg(test)]
mod tests {
    use super::without_tag;

    #[test]
    fn a_tag_beside_a_digest_is_no_part_of_the_name() {
        for (name, bare) in [
            ("r.example:5000/a/b:1@sha256:aa", Some("r.example:5000/a/b@sha256:aa")),
            ("python:3.12@sha256:aa", Some("python@sha256:aa")),
            ("r.example:5000/a/b@sha256:aa", None),
            ("python@sha256:aa", None),
            ("python:3.12", None),
        ] {
            assert_eq!(without_tag(name).as_deref(), bare, "{name}");
        }
    }
}
