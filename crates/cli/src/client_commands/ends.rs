//! The signals that end a command which has leased a session: it is released.

use std::io;
use std::sync::OnceLock;

use ringfence_client::{Client, ClientError, Lease, LeaseOptions};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

use super::complain;
use crate::limits::LEASE_AFTER_SIGNAL_MAX;

/// The signals that end a command: ctrl-C, SIGTERM, and SIGHUP, which says that the terminal is gone. They are heard from
/// the making of this on: what is leased afterwards is released.
pub(crate) struct Ends {
    interrupt: Option<Signal>,
    hangup: Option<Signal>,
    terminate: Option<Signal>,
}

impl Ends {
    /// Within a runtime.
    ///
    /// # Errors
    /// When signals cannot be listened to.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Ends {
            interrupt: hear(SignalKind::interrupt())?,
            hangup: hear(SignalKind::hangup())?,
            terminate: hear(SignalKind::terminate())?,
        })
    }

    /// From now on ctrl-C ends nothing: it interrupts calls.
    pub(crate) fn without_interrupt(&mut self) {
        self.interrupt = None;
    }

    /// From now on ctrl-C is an end as well, whatever was pressed before.
    pub(crate) fn with_interrupt(&mut self) {
        self.interrupt = hear(SignalKind::interrupt()).ok().flatten();
    }

    /// The number of the next one.
    pub(crate) async fn next(&mut self) -> i32 {
        tokio::select! {
            () = next_of(&mut self.interrupt) => SignalKind::interrupt().as_raw_value(),
            () = next_of(&mut self.hangup) => SignalKind::hangup().as_raw_value(),
            () = next_of(&mut self.terminate) => SignalKind::terminate().as_raw_value(),
        }
    }
}

/// Leases a session; the number of the signal that came first, if one did. A backend that is slow to answer may have
/// leased one by then: its answer is waited for a little, or until the next signal, and the session released.
///
/// # Errors
/// Those of the lease.
pub(crate) async fn lease(
    client: &Client,
    options: &LeaseOptions,
    ends: &mut Ends,
) -> Result<Result<Lease, i32>, ClientError> {
    let leasing = client.lease(options);
    tokio::pin!(leasing);
    let number = tokio::select! {
        biased;
        leased = &mut leasing => return leased.map(Ok),
        number = ends.next() => number,
    };
    tokio::select! {
        biased;
        leased = timeout(LEASE_AFTER_SIGNAL_MAX, leasing) => {
            if let Ok(Ok(leased)) = leased {
                release(leased, ends).await;
            }
        }
        _ = ends.next() => {}
    }
    Ok(Err(number))
}

/// Releases a session, unless a signal comes first. A failure is told: the backend reclaims the session by itself.
pub(crate) async fn release(lease: Lease, ends: &mut Ends) {
    tokio::select! {
        biased;
        released = lease.release() => if let Err(error) = released {
            complain(&anyhow::Error::new(error).context("the session was not released"));
        },
        _ = ends.next() => complain(&anyhow::anyhow!("the session was not released: told to end at once")),
    }
}

/// A signal, unless whoever started us has it ignored, as `nohup` does and shells do for what runs in the background.
///
/// # Errors
/// When signals cannot be listened to.
pub(crate) fn hear(kind: SignalKind) -> io::Result<Option<Signal>> {
    /// As it was before the first of them was listened to.
    static IGNORED: OnceLock<u64> = OnceLock::new();
    let ignored = IGNORED.get_or_init(|| ignored().unwrap_or_default());
    if ignored >> (kind.as_raw_value() - 1) & 1 == 1 { Ok(None) } else { signal(kind).map(Some) }
}

/// The signals that this process ignores, as the kernel tells: the first is the lowest bit.
fn ignored() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// The next one; never where it is not heard.
pub(crate) async fn next_of(heard: &mut Option<Signal>) {
    match heard {
        Some(heard) => {
            let _ = heard.recv().await;
        }
        None => std::future::pending().await,
    }
}
