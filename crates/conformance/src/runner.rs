//! A run: first contact, then one check after the other.

use std::fmt;
use std::time::{Duration, Instant};

use ringfence_client::raw::Raw;
use ringfence_client::{BearerToken, Client, ClientError, TransportError};
use thiserror::Error;
use tokio::time::timeout;

use crate::bench::Bench;
use crate::check::{Check, FileOperation, Finding, Stop};
use crate::exchange::Exchange;
use crate::limits::{CHECK_MAX, HEADROOM, PATIENCE, RUN_MAX};
use crate::report::{Outcome, Report, Row};
use crate::{advice, checks};

/// What to check, and how.
#[derive(Clone)]
pub struct Options {
    /// Where the backend is.
    pub base_url: String,
    /// The credential, where the deployment wants one.
    pub token: Option<BearerToken>,
    /// Over https, certificates of authorities that are believed besides the public ones, PEM.
    pub authorities: Option<Vec<u8>>,
    /// Ask for the behaviour beyond the contract too.
    pub strict: bool,
    /// Only checks whose id begins so; empty is all.
    pub only: Vec<String>,
    /// How long an operation other than Execute may take.
    pub patience: Duration,
    /// What is waited for an Execute's answer beyond its budget.
    pub headroom: Duration,
}

impl Options {
    /// The defaults for a base URL.
    #[must_use]
    pub fn new(base_url: impl Into<String>) -> Self {
        Options {
            base_url: base_url.into(),
            token: None,
            authorities: None,
            strict: false,
            only: Vec::new(),
            patience: PATIENCE,
            headroom: HEADROOM,
        }
    }
}

/// Why nothing could be checked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CannotRun {
    /// The base URL or the token cannot be used.
    #[error("the backend cannot be addressed")]
    Address(#[source] ClientError),
    /// Nobody is there.
    #[error("there is no backend at {base_url}")]
    Unreachable {
        /// Where it was looked for.
        base_url: String,
        /// Why.
        #[source]
        source: TransportError,
    },
    /// Over TLS it breaks every connection before an answer.
    #[error("the backend at {base_url} lets nobody in; it may ask for a certificate, and none is shown")]
    TurnedAway {
        /// Where it is.
        base_url: String,
        /// What came instead.
        #[source]
        source: TransportError,
    },
    /// The backend wants another credential.
    #[error("the backend refuses the credential, or its absence, with {status}")]
    Credential {
        /// What it answered.
        status: u16,
    },
    /// No session could be leased for lack of room.
    #[error("the backend has no room for a session now (503)")]
    NoRoom,
    /// The ids chosen match no check.
    #[error("no check has an id that begins with {0}")]
    NoSuchCheck(Chosen),
}

/// The ids that were chosen.
#[derive(Debug)]
pub struct Chosen(Vec<String>);

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" or "))
    }
}

/// All checks; those of [`Severity::Advice`](crate::Severity) last.
pub fn catalogue() -> impl Iterator<Item = &'static Check> {
    checks::GROUPS.iter().chain(advice::GROUPS).flat_map(|group| group.iter())
}

fn raw(options: &Options) -> Result<Raw, ClientError> {
    let mut builder = Client::builder(&options.base_url)?;
    if let Some(pem) = &options.authorities {
        builder = builder.root_certificates(pem)?;
    }
    if let Some(token) = &options.token {
        builder = builder.token(token.clone());
    }
    Ok(builder.raw())
}

/// Checks a backend, and tells of each check as it ends.
///
/// # Errors
/// When there is nothing to check: no such backend, no credential, no room.
pub async fn run(options: &Options, tell: &mut (dyn FnMut(&Row) + Send)) -> Result<Report, CannotRun> {
    let chosen: Vec<&'static Check> = catalogue().filter(|check| is_chosen(check, options)).collect();
    if chosen.is_empty() {
        return Err(CannotRun::NoSuchCheck(Chosen(options.only.clone())));
    }
    let raw = raw(options).map_err(CannotRun::Address)?;
    let base_url = raw.base().to_string();
    let mut bench = Bench::new(raw);
    (bench.patience, bench.headroom) = (options.patience, options.headroom);
    first_contact(&bench, &base_url).await?;
    let absent = absent(&bench).await;
    bench.release_all().await;
    let begun = Instant::now();
    let mut rows = Vec::with_capacity(chosen.len());
    for check in chosen {
        let outcome = match check.needs.iter().find_map(|need| absent.iter().find(|(absent, _)| absent == need)) {
            Some((operation, status)) => Outcome::Skip(format!("{} is not served here ({status})", operation.as_str())),
            None if begun.elapsed() > RUN_MAX => Outcome::Unjudged(late("the whole run", RUN_MAX)),
            None => judge(check, &bench).await,
        };
        let row = Row::new(check, outcome);
        tell(&row);
        rows.push(row);
        bench.release_all().await;
    }
    Ok(Report::new(base_url, options.strict, rows))
}

fn is_chosen(check: &Check, options: &Options) -> bool {
    let named =
        |id: &String| check.id == id || check.id.strip_prefix(id.as_str()).is_some_and(|rest| rest.starts_with('.'));
    let advice = check.severity == crate::Severity::Advice;
    (options.strict || !advice) && (options.only.is_empty() || options.only.iter().any(named))
}

async fn judge(check: &Check, bench: &Bench) -> Outcome {
    match timeout(CHECK_MAX, (check.run)(bench)).await {
        Ok(Ok(())) => Outcome::Pass,
        Ok(Err(Stop::Fail(finding))) => Outcome::Fail(finding),
        Ok(Err(Stop::Skip(reason))) => Outcome::Skip(reason),
        Ok(Err(Stop::Unjudged(finding))) => Outcome::Unjudged(finding),
        Err(_) => Outcome::Fail(late("this check", CHECK_MAX)),
    }
}

fn late(what: &str, bound: Duration) -> Finding {
    Finding {
        sent: format!("the requests of {what}"),
        came: format!("answers that took more than {} s in all", bound.as_secs()),
        wanted: "answers in time".to_owned(),
    }
}

/// One lease, to tell a backend that is broken from one that is not there.
async fn first_contact(bench: &Bench, base_url: &str) -> Result<(), CannotRun> {
    match bench.first_contact().await {
        Ok(answer) if matches!(answer.status, 401 | 403) => Err(CannotRun::Credential { status: answer.status }),
        Ok(answer) if answer.status == 503 => Err(CannotRun::NoRoom),
        Ok(_) => Ok(()),
        Err(source @ (TransportError::Connect { .. } | TransportError::Scheme { spoken: "https", .. })) => {
            Err(CannotRun::Unreachable { base_url: base_url.to_owned(), source })
        }
        // It is not the backend's fault, and the same for every check.
        Err(source @ TransportError::Broken { .. }) if base_url.starts_with("https://") => {
            Err(CannotRun::TurnedAway { base_url: base_url.to_owned(), source })
        }
        // Something is there that speaks no HTTP, or not in time: that is for the checks to say.
        Err(_) => Ok(()),
    }
}

/// The optional operations that the backend leaves out, each with the status that told.
async fn absent(bench: &Bench) -> Vec<(FileOperation, u16)> {
    let mut absent = Vec::new();
    let Ok(held) = bench.lease().await else { return absent };
    // On a session that is there, the workspace itself cannot be missing: it is the route that is.
    if let Ok(answer) = held.list(None).await
        && is_no_route(answer.status)
    {
        absent.push((FileOperation::List, answer.status));
    }
    let name = "first.txt";
    let put = held.put(name, Some(name), b"first").await;
    if let Ok(answer) = &put
        && is_no_route(answer.status)
    {
        absent.push((FileOperation::Put, answer.status));
    }
    if !put.is_ok_and(|answer| answer.is_success()) {
        // Whether that worked shows when the file is read.
        let _ = held.python(&format!("open('{name}', 'w').write('first')")).await;
    }
    if let (Ok(answer), Ok(nowhere)) = (held.read(name).await, held.nowhere().await)
        && is_no_route(answer.status)
        && (answer.status != 404 || is_same_refusal(&answer, &nowhere))
    {
        absent.push((FileOperation::Read, answer.status));
    }
    absent
}

fn is_no_route(status: u16) -> bool {
    matches!(status, 404 | 405 | 501)
}

/// A missing file and a missing route are both 404: they are told apart by what a made-up route gets.
fn is_same_refusal(one: &Exchange, other: &Exchange) -> bool {
    one.status == other.status && one.body == other.body
}
