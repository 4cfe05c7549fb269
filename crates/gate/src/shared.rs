//! What every operation of a gate uses.

use std::sync::Arc;
use std::time::Instant;

use hyper::header::HeaderValue;
use hyper::{HeaderMap, Method, Request};
use ringfence_grant::Grant;
use ringfence_usage::{Kind, Outcome, Record};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::admit::Admission;
use crate::answer::Denial;
use crate::backends::{Backend, Backends};
use crate::body::{Body, Room};
use crate::config::Policy;
use crate::headers;
use crate::ident::{IdKeys, Place};
use crate::metrics::Metrics;
use crate::secret::Bearer;
use crate::upstream::Upstream;
use crate::usage::{Spool, Ticket, now_ms, uuid};

/// A gate's parts, all lanes' but the last.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) admission: Arc<Admission>,
    pub(crate) id_keys: Arc<IdKeys>,
    pub(crate) backends: Arc<Backends>,
    pub(crate) room: Room,
    pub(crate) operations: Arc<Semaphore>,
    pub(crate) spool: Option<Arc<Spool>>,
    pub(crate) proof: Option<Bearer>,
    pub(crate) policy: Policy,
    pub(crate) metrics: Arc<Metrics>,
    /// The lane's own: a connection to a backend is used again in the lane that made it.
    pub(crate) upstream: Upstream,
}

/// What a request asks, without its body.
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) query: Option<String>,
    pub(crate) request_id: HeaderValue,
    pub(crate) grant: Arc<Grant>,
}

impl Shared {
    /// Where a session of the grant's workspace is.
    pub(crate) fn place(&self, grant: &Grant, id: &str) -> Result<(Place, Arc<Backend>), Denial> {
        let place = self.id_keys.open(&grant.workspace, id).ok_or(Denial::UnknownSession)?;
        // Whether every backend has been looked for is asked first: one may join between the two questions.
        let complete = self.backends.are_complete();
        let unknown = || if complete { Denial::UnknownSession } else { Denial::Unreachable };
        let backend = self.backends.backend(&place.backend).ok_or_else(unknown)?;
        Ok((place, backend))
    }

    /// The right to one more operation.
    pub(crate) fn permit(&self) -> Result<OwnedSemaphorePermit, Denial> {
        Arc::clone(&self.operations).try_acquire_owned().map_err(|_| Denial::Busy)
    }

    /// A request to a backend. `unread` says that the answer is passed on as it comes.
    pub(crate) fn request(
        &self,
        asked: &Asked,
        backend: &Backend,
        path: &str,
        unread: bool,
        body: Body,
    ) -> Result<Request<Body>, Denial> {
        let mut request = Request::new(body);
        *request.method_mut() = asked.method.clone();
        *request.uri_mut() = backend.url.join(path).ok_or(Denial::Ambiguous("the path and its query are too long"))?;
        let proof = self.proof.as_ref();
        *request.headers_mut() = headers::to_backend(&asked.headers, unread, &asked.request_id, &asked.grant, proof);
        Ok(request)
    }

    /// Records that a lease or a call begins.
    pub(crate) fn meter(
        &self,
        kind: Kind,
        grant: &Grant,
        place: Option<&Place>,
        tool: Option<&str>,
    ) -> Result<Meter, Denial> {
        let Some(spool) = &self.spool else { return Ok(Meter(None)) };
        let record = Record {
            id: uuid().map_err(|_| Denial::House("no random bytes"))?,
            kind,
            at_ms: now_ms(),
            workspace: grant.workspace.as_str().to_owned(),
            grant: grant.id.as_str().to_owned(),
            backend: place.map(|place| place.backend.clone()),
            session: place.map(|place| place.session.clone()),
            tool: tool.map(str::to_owned),
            wall_ms: None,
            cpu_ms: None,
            memory_peak_bytes: None,
            stdout_bytes: None,
            stderr_bytes: None,
            outcome: Outcome::Unknown,
            status: None,
        };
        let ticket = spool.begin(&record).map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::error!(%error, cause, "usage cannot be recorded");
            Denial::Unmetered
        })?;
        Ok(Meter(Some(Running { spool: Arc::clone(spool), ticket, record, began: Instant::now() })))
    }
}

/// A lease or a call that began.
pub(crate) struct Meter(Option<Running>);

struct Running {
    spool: Arc<Spool>,
    ticket: Ticket,
    record: Record,
    began: Instant,
}

impl Meter {
    /// Records how it ended; `fill` adds what is known of it.
    pub(crate) fn end(self, fill: impl FnOnce(&mut Record)) {
        let Some(mut running) = self.0 else { return };
        running.record.wall_ms = u64::try_from(running.began.elapsed().as_millis()).ok();
        fill(&mut running.record);
        running.spool.end(running.ticket, &running.record);
    }
}

/// What a denial is in a record.
pub(crate) fn outcome_of(denial: &Denial) -> Outcome {
    match denial {
        Denial::NoBackend(_) | Denial::Unreachable | Denial::SessionsMax => Outcome::Unavailable,
        _ => Outcome::BackendFailed,
    }
}
