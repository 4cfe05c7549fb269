//! Why `serve` ended, for a person and for a supervisor.

use std::io::Write;
use std::process::ExitCode;

/// What went wrong, as the exit status tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The configuration: nothing was started. The status of a wrong command line is the same.
    Configuration,
    /// The image could not be had.
    Image,
    /// This machine does not let cells be made.
    Isolation,
    /// The address cannot be listened on, or the server ended by an error.
    Serving,
    /// The keeper died while the server ran: every session was lost. Starting again is right.
    KeeperDied,
}

impl Kind {
    /// The exit status; 0 is a shutdown that was asked for.
    pub(crate) fn code(self) -> ExitCode {
        ExitCode::from(match self {
            Kind::Serving => 1,
            Kind::Configuration => 2,
            Kind::Image => 3,
            Kind::Isolation => 4,
            Kind::KeeperDied => 5,
        })
    }
}

/// A failure: what, why, and where known what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    error: anyhow::Error,
    help: Option<String>,
}

impl Failure {
    /// A failure of that kind.
    pub(crate) fn new(kind: Kind, error: impl Into<anyhow::Error>) -> Self {
        Failure { kind, error: error.into(), help: None }
    }

    /// The same with a way out.
    pub(crate) fn help(mut self, help: Option<String>) -> Self {
        self.help = help;
        self
    }

    /// For `map_err`.
    pub(crate) fn of<E: Into<anyhow::Error>>(kind: Kind) -> impl FnOnce(E) -> Failure {
        move |error| Failure::new(kind, error)
    }

    /// The text for standard error.
    fn text(&self) -> String {
        let mut text = format!("ringfence: error: {}\n", self.error);
        for cause in self.error.chain().skip(1) {
            text.push_str(&format!("  because: {cause}\n"));
        }
        if let Some(help) = &self.help {
            text.push_str(&format!("  what to do: {help}\n"));
        }
        text
    }
}

/// The exit status of what has ended; a failure is told.
pub(crate) fn ended(outcome: Result<ExitCode, Failure>) -> ExitCode {
    outcome.unwrap_or_else(|failure| {
        tell(&failure.text());
        failure.kind.code()
    })
}

/// Writes to standard error; where that is closed, nothing is left to do.
pub(crate) fn tell(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
