//! The backends: which there are, how they are, which takes the next lease.

mod choose;
mod health;
mod list;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use choose::Load;
pub(crate) use health::Polled;
pub(crate) use list::Listed;
use ringfence_secret::read_regular;

use crate::error::GateError;
use crate::limits::{BACKENDS_BYTES_MAX, BACKENDS_MAX, HEALTH_FAILURES_MAX, LEAVING_DOWN_MAX, RESOLVE_WAIT};
use crate::secret::Bearer;
use crate::upstream::Upstream;
use crate::url::Url;

/// One backend.
pub(crate) struct Backend {
    /// What session ids call it: its name in the list, with the address where it is one of several of a DNS name.
    pub(crate) name: String,
    pub(crate) url: Url,
    state: Mutex<State>,
}

/// What is known of a backend.
#[derive(Debug, Clone)]
struct State {
    /// The list or DNS says that it goes away.
    draining: bool,
    /// It says so itself.
    draining_itself: bool,
    /// It answered its last poll.
    up: bool,
    failures: u32,
    session_count: u64,
    sessions_max: u64,
    leased_since: u64,
    alive: Instant,
}

impl Backend {
    fn new(name: String, url: Url, draining: bool) -> Self {
        let state = State {
            draining,
            draining_itself: false,
            up: false,
            // One failed poll is enough for one that never answered.
            failures: HEALTH_FAILURES_MAX,
            session_count: 0,
            sessions_max: 0,
            leased_since: 0,
            alive: Instant::now(),
        };
        Backend { name, url, state: Mutex::new(state) }
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// It got a lease: until its next poll it counts as having one session more.
    pub(crate) fn leased(&self) {
        self.with(|state| state.leased_since += 1);
    }

    /// Whether it takes leases, its sessions, and what it may have, as it said last.
    pub(crate) fn figures(&self) -> (bool, u64, u64) {
        let load = self.load();
        (load.open, load.sessions, load.sessions_max)
    }

    /// A connection to it could not be made: no more leases until it answers a poll.
    pub(crate) fn unreachable(&self) {
        self.with(|state| {
            state.up = false;
            state.failures = HEALTH_FAILURES_MAX;
        });
    }

    pub(crate) fn is_up(&self) -> bool {
        self.with(|state| state.up)
    }

    /// Takes what a poll came to; returns whether the backend changed between up and down.
    fn polled(&self, polled: Option<Polled>) -> bool {
        self.with(|state| {
            let was = state.up;
            match polled {
                Some(polled) => {
                    *state = State {
                        draining: state.draining,
                        draining_itself: polled.draining,
                        up: true,
                        failures: 0,
                        session_count: polled.session_count,
                        sessions_max: polled.sessions_max,
                        leased_since: 0,
                        alive: Instant::now(),
                    };
                }
                None => {
                    state.failures = state.failures.saturating_add(1);
                    state.up = state.up && state.failures < HEALTH_FAILURES_MAX;
                }
            }
            was != state.up
        })
    }

    fn load(&self) -> Load {
        self.with(|state| Load {
            open: state.up && !state.draining && !state.draining_itself,
            sessions: state.session_count.saturating_add(state.leased_since),
            sessions_max: state.sessions_max,
        })
    }
}

/// All backends of a gate.
pub(crate) struct Backends {
    by_name: RwLock<BTreeMap<String, Arc<Backend>>>,
    /// The list has been taken, and every DNS name in it answered, at least once.
    complete: AtomicBool,
    turn: AtomicUsize,
    fixed: Vec<Listed>,
    file: Option<PathBuf>,
    upstream: Upstream,
    proof: Option<Bearer>,
    health_every: Duration,
}

/// What the gate tells of its backends.
pub(crate) struct Totals {
    pub(crate) backends: u64,
    pub(crate) open: u64,
    pub(crate) session_count: u64,
    pub(crate) sessions_max: u64,
}

impl Backends {
    /// Reads the list; nothing is asked yet.
    pub(crate) fn new(
        options: &[String],
        file: Option<PathBuf>,
        upstream: Upstream,
        proof: Option<Bearer>,
        health_every: Duration,
    ) -> Result<Arc<Self>, GateError> {
        let fixed = options.iter().map(|text| list::from_option(text)).collect::<Result<Vec<_>, _>>()?;
        let (by_name, complete, turn) = (RwLock::default(), AtomicBool::new(false), AtomicUsize::new(0));
        let backends = Arc::new(Backends { by_name, complete, turn, fixed, file, upstream, proof, health_every });
        if backends.listed()?.is_empty() {
            let reason = "there is none: give at least one";
            return Err(GateError::Value { what: "backend", value: String::new(), reason });
        }
        Ok(backends)
    }

    /// The backend of a name.
    pub(crate) fn backend(&self, name: &str) -> Option<Arc<Backend>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Whether a name that is not known is nobody's: just after a start, a backend may not have been looked for yet.
    pub(crate) fn are_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Backend>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The backends that may take a lease, best first.
    pub(crate) fn for_lease(&self) -> Vec<Arc<Backend>> {
        let all = self.all();
        let loads: Vec<Load> = all.iter().map(|backend| backend.load()).collect();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        choose::order(&loads, turn).into_iter().filter_map(|place| all.get(place).cloned()).collect()
    }

    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals { backends: 0, open: 0, session_count: 0, sessions_max: 0 };
        for backend in self.all() {
            let load = backend.load();
            totals.backends += 1;
            totals.open += u64::from(load.open);
            if backend.is_up() {
                totals.session_count = totals.session_count.saturating_add(load.sessions);
                totals.sessions_max = totals.sessions_max.saturating_add(load.sessions_max);
            }
        }
        totals
    }

    /// Keeps the table as the list and DNS say, for ever. A list that is wrong changes nothing.
    pub(crate) async fn follow(self: &Arc<Self>, resolve_every: Duration) {
        let (mut in_force, mut seen): (Vec<Listed>, Option<Vec<Listed>>) = (Vec::new(), None);
        loop {
            let this = Arc::clone(self);
            match tokio::task::spawn_blocking(move || this.listed()).await {
                Ok(Ok(listed)) => {
                    // A file that is just being written may read as a shorter list: a change counts when it is seen
                    // twice, and a list of nothing never does.
                    let settled = seen.as_ref().is_none_or(|seen| *seen == listed) && !listed.is_empty();
                    seen = Some(listed.clone());
                    if settled {
                        in_force = listed;
                    }
                    self.apply(resolved(&in_force).await);
                }
                Ok(Err(error)) => tracing::error!(%error, "the list of backends is wrong: the last good one stays"),
                Err(_) => tracing::error!("the list of backends could not be read"),
            }
            tokio::time::sleep(resolve_every).await;
        }
    }

    fn listed(&self) -> Result<Vec<Listed>, GateError> {
        let mut all = self.fixed.clone();
        if let Some(path) = &self.file {
            all.extend(list::from_text(&read_list(path)?)?);
        }
        list::check(&all)?;
        for listed in &all {
            let reason = "needs `--backend-ca`: the authorities that its certificate is checked by";
            self.upstream.check("backend URL", &listed.url, reason)?;
        }
        Ok(all)
    }

    /// Takes the present members: `None` as addresses of a DNS name means that it could not be asked.
    fn apply(self: &Arc<Self>, members: Vec<Members>) {
        let mut table = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        let mut present: BTreeMap<String, bool> = BTreeMap::new();
        for Members { listed, addresses } in &members {
            match addresses {
                _ if !listed.dns => {
                    present.insert(listed.name.clone(), listed.draining);
                    self.enlist(&mut table, listed.name.clone(), &listed.url, listed.draining);
                }
                Some(addresses) => {
                    for address in addresses {
                        let name = format!("{}/{address}", listed.name);
                        present.insert(name.clone(), listed.draining);
                        self.enlist(&mut table, name, &listed.url.at(*address), listed.draining);
                    }
                }
                None => {
                    let prefix = format!("{}/", listed.name);
                    present.extend(
                        table
                            .keys()
                            .filter(|name| name.starts_with(&prefix))
                            .map(|name| (name.clone(), listed.draining)),
                    );
                }
            }
        }
        table.retain(|name, backend| {
            if present.contains_key(name) {
                return true;
            }
            // One that left its DNS name may still have sessions: it is kept while it answers. One that left the list
            // was taken out by the operator.
            let dns = name.split_once('/').is_some_and(|(list_name, _)| {
                members.iter().any(|members| members.listed.dns && members.listed.name == list_name)
            });
            let kept = dns
                && backend.with(|state| {
                    state.draining = true;
                    state.alive.elapsed() < LEAVING_DOWN_MAX
                });
            if !kept {
                tracing::info!(backend = name, "a backend left");
            }
            kept
        });
        if members.iter().all(|members| !members.listed.dns || members.addresses.is_some()) {
            self.complete.store(true, Ordering::Release);
        }
    }

    fn enlist(self: &Arc<Self>, table: &mut BTreeMap<String, Arc<Backend>>, name: String, url: &Url, draining: bool) {
        if let Some(known) = table.get(&name).filter(|known| known.url == *url) {
            known.with(|state| state.draining = draining);
            return;
        }
        if table.len() >= BACKENDS_MAX {
            tracing::error!(backend = name, "there are as many backends as there may be: left out");
            return;
        }
        tracing::info!(backend = name, "a backend joined");
        let backend = Arc::new(Backend::new(name.clone(), url.clone(), draining));
        let (upstream, proof) = (self.upstream.clone(), self.proof.clone());
        tokio::spawn(health::poll(Arc::downgrade(&backend), upstream, proof, self.health_every));
        table.insert(name, backend);
    }
}

/// A listed entry with the addresses of its name, where it is a DNS name that could be asked.
struct Members {
    listed: Listed,
    addresses: Option<Vec<std::net::SocketAddr>>,
}

async fn resolved(listed: &[Listed]) -> Vec<Members> {
    let mut all = Vec::with_capacity(listed.len());
    for listed in listed {
        let mut addresses = None;
        if listed.dns {
            let host = listed.url.host.trim_matches(['[', ']']).to_owned();
            let lookup = tokio::net::lookup_host((host, listed.url.port));
            match tokio::time::timeout(RESOLVE_WAIT, lookup).await {
                Ok(Ok(found)) => addresses = Some(found.take(BACKENDS_MAX).collect()),
                Ok(Err(error)) => tracing::warn!(backend = listed.name, %error, "the name could not be resolved"),
                Err(_) => tracing::warn!(backend = listed.name, "the name was not resolved in time"),
            }
        }
        all.push(Members { listed: listed.clone(), addresses });
    }
    all
}

fn read_list(path: &Path) -> Result<String, GateError> {
    String::from_utf8(read_regular(path, BACKENDS_BYTES_MAX)?)
        .map_err(|_| GateError::Content { path: path.to_owned(), reason: "it is no UTF-8 text".to_owned() })
}
