//! Where the shell's lines come from: an editor on a terminal, or a pipe.

use std::io::{BufRead, IsTerminal, Read, Write};
use std::path::PathBuf;

use anyhow::Context;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};
use tokio::runtime::Runtime;
use tokio::signal::unix::SignalKind;
use tokio::sync::mpsc;

use crate::client_commands::ends::{Ends, hear, next_of};
use crate::limits::{HISTORY_LINES_MAX, PROGRAM_BYTES_MAX};

/// One line, or what came instead.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line, without its newline.
    Text(String),
    /// Ctrl-C at the prompt: what was typed so far is dropped.
    Dropped,
    /// The end of the input.
    End,
    /// A signal of this number on a pipe: ctrl-C there is of one who wants the shell to end.
    Signal(i32),
}

/// The source of lines.
pub(crate) enum Input {
    /// A person at a terminal.
    Terminal { editor: Box<Editor<(), FileHistory>>, history: Option<PathBuf> },
    /// A pipe or a file: no prompt, no history.
    Pipe { lines: mpsc::Receiver<std::io::Result<String>> },
}

impl Input {
    /// Of standard input. Earlier entries are taken from the history file where there is one.
    ///
    /// # Errors
    /// When the terminal cannot be used.
    pub(crate) fn open(keep_history: bool) -> anyhow::Result<Self> {
        if !std::io::stdin().is_terminal() {
            return Ok(Input::Pipe { lines: piped() });
        }
        let config = Config::builder().max_history_size(HISTORY_LINES_MAX)?.auto_add_history(false).build();
        let mut editor = Editor::with_config(config).context("the terminal")?;
        let history = history_file().filter(|_| keep_history);
        if let Some(path) = &history {
            // There is none at first.
            let _ = editor.load_history(path);
        }
        Ok(Input::Terminal { editor: Box::new(editor), history })
    }

    /// Whether a person is at the other end.
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self, Input::Terminal { .. })
    }

    /// The next line.
    ///
    /// # Errors
    /// When the input cannot be read.
    pub(crate) fn line(&mut self, prompt: &str, runtime: &Runtime, ends: &mut Ends) -> anyhow::Result<Line> {
        match self {
            Input::Terminal { editor, .. } => match editor.readline(prompt) {
                Ok(line) => Ok(Line::Text(line)),
                Err(ReadlineError::Interrupted) => Ok(Line::Dropped),
                Err(ReadlineError::Eof) => Ok(Line::End),
                Err(error) => Err(error).context("the terminal"),
            },
            Input::Pipe { lines } => runtime.block_on(async {
                let mut presses = hear(SignalKind::interrupt()).ok().flatten();
                tokio::select! {
                    biased;
                    line = lines.recv() => match line {
                        Some(line) => Ok(Line::Text(line.context("standard input")?)),
                        None => Ok(Line::End),
                    },
                    () = next_of(&mut presses) => Ok(Line::Signal(SignalKind::interrupt().as_raw_value())),
                    number = ends.next() => Ok(Line::Signal(number)),
                }
            }),
        }
    }

    /// Remembers an entry.
    pub(crate) fn remember(&mut self, entry: &str) {
        let Input::Terminal { editor, history } = self else { return };
        let added = editor.add_history_entry(entry.trim_end_matches('\n')).unwrap_or(false);
        if let (true, Some(path)) = (added, history.as_ref()) {
            if let Some(folder) = path.parent() {
                // Without the folder the history cannot be kept, and the shell goes on without it.
                let _ = std::fs::create_dir_all(folder);
            }
            if let Err(error) = editor.append_history(path) {
                let _ = writeln!(std::io::stderr(), "ringfence: {}: the history is not kept: {error}", path.display());
                *history = None;
            }
        }
    }
}

/// Lines of standard input, read on a thread of their own, since a read cannot be given up.
fn piped() -> mpsc::Receiver<std::io::Result<String>> {
    let (send, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        loop {
            let mut line = String::new();
            let read = (&mut input).take(PROGRAM_BYTES_MAX).read_line(&mut line);
            let next = match read {
                Ok(0) => return,
                Ok(_) => Ok(line.strip_suffix('\n').map(str::to_owned).unwrap_or(line)),
                Err(error) => Err(error),
            };
            let failed = next.is_err();
            if send.blocking_send(next).is_err() || failed {
                return;
            }
        }
    });
    lines
}

/// `ringfence/shell-history` in the user's folder for state.
fn history_file() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = folder("XDG_STATE_HOME").or_else(|| folder("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("ringfence/shell-history"))
}
