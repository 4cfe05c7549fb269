//! Progress of a transfer: a bar on a terminal, nothing on a pipe.

use std::io::{self, IsTerminal};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::io::{AsyncRead, ReadBuf};

/// The bar of one transfer.
#[derive(Clone)]
pub(crate) struct Bar {
    /// `None` where nobody looks, or the terminal wants no decoration.
    bar: Option<ProgressBar>,
}

impl Bar {
    /// A bar for so many bytes, where that is known.
    pub(crate) fn new(what: &str, length: Option<u64>) -> Self {
        if !io::stderr().is_terminal() || std::env::var_os("NO_COLOR").is_some() {
            return Bar { bar: None };
        }
        let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        if let Ok(style) = ProgressStyle::with_template("{msg} {bytes}/{total_bytes} {bytes_per_sec} {wide_bar}") {
            bar.set_style(style);
        }
        // The name may come from a backend.
        bar.set_message(what.escape_debug().to_string());
        Bar { bar: Some(bar) }
    }

    /// So many bytes more.
    pub(crate) fn more(&self, bytes: usize) {
        if let Some(bar) = &self.bar {
            bar.inc(bytes as u64);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A reader that moves a bar.
pub(crate) struct Counted<R> {
    pub(crate) reader: R,
    pub(crate) bar: Bar,
}

impl<R: AsyncRead + Unpin> AsyncRead for Counted<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = space.filled().len();
        ready!(Pin::new(&mut self.reader).poll_read(cx, space))?;
        self.bar.more(space.filled().len().saturating_sub(before));
        Poll::Ready(Ok(()))
    }
}
