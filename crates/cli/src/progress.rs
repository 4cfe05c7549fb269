//! What an image build looks like to the person who started it: a bar on a terminal, lines on a pipe.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use ringfence_image::Progress;

/// How often the bar moves while nothing else happens.
const TICK: Duration = Duration::from_millis(120);

/// Tells on standard error.
pub(crate) struct Teller {
    /// `None` on a pipe, or where the terminal wants no decoration.
    bar: Option<ProgressBar>,
}

impl Teller {
    /// As standard error allows.
    pub(crate) fn new() -> Self {
        Teller { bar: decorated().then(ProgressBar::new_spinner) }
    }

    /// A line that stays.
    pub(crate) fn say(&self, text: &str) {
        if let Some(bar) = &self.bar {
            return bar.println(format!("ringfence: {text}"));
        }
        // Nobody reads where it cannot be written; the build goes on.
        let _ = writeln!(std::io::stderr(), "ringfence: {text}");
    }
}

/// Whether standard error is a terminal that wants colours and moving lines.
pub(crate) fn decorated() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

impl Progress for Teller {
    fn step(&mut self, what: &str) {
        let Some(bar) = &self.bar else { return self.say(what) };
        bar.set_length(0);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(TICK);
    }

    fn count(&mut self, done: usize, total: usize, unit: &str, what: &str) {
        let Some(bar) = &self.bar else { return self.say(&format!("{done} of {total} {unit}: {what}")) };
        if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos}/{len} {msg} ({elapsed})") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        bar.set_message(format!("{unit}: {what}"));
    }
}

impl ringfence_oci::Progress for Teller {
    fn step(&mut self, what: &str, total: Option<u64>) {
        let Some(bar) = &self.bar else { return self.say(what) };
        let template = match total {
            Some(_) => "[{bar:30}] {bytes}/{total_bytes} {msg} ({elapsed})",
            None => "{spinner} {bytes} {msg} ({elapsed})",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_position(0);
        bar.set_length(total.unwrap_or_default());
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(TICK);
    }

    fn bytes(&mut self, done: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
