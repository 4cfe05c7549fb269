//! How a caller's wish to interrupt reaches the call that runs.

use std::sync::Arc;

use tokio::sync::watch;

/// Interrupts the running call of a cell, as ctrl-C at a terminal does.
///
/// The first interrupt of a call is SIGINT, to the interpreter or to the shell and to what the call has started in
/// their process group: what the program makes of it is its own affair, and the call ends when the program does. A
/// second one ends the call as its timeout would.
#[derive(Debug, Clone)]
pub struct InterruptHandle {
    asked: Arc<watch::Sender<Asked>>,
}

/// What was asked of the calls of one cell.
#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    /// A program runs, or is about to.
    running: bool,
    /// Interrupts of the running call.
    times: u32,
}

impl Default for InterruptHandle {
    fn default() -> Self {
        InterruptHandle { asked: Arc::new(watch::Sender::new(Asked::default())) }
    }
}

impl InterruptHandle {
    /// Interrupts the running call; `false` where none runs, and nothing happens.
    pub fn interrupt(&self) -> bool {
        self.asked.send_if_modified(|asked| {
            asked.times = asked.times.saturating_add(u32::from(asked.running));
            asked.running
        })
    }

    /// A call begins: what was asked before was not meant for it.
    pub(crate) fn begin(&self) -> Interrupts {
        self.asked.send_replace(Asked { running: true, times: 0 });
        Interrupts { asked: self.asked.subscribe(), heard: 0 }
    }

    /// The call has ended.
    pub(crate) fn end(&self) {
        self.asked.send_replace(Asked::default());
    }
}

/// The interrupts of one call.
#[derive(Debug)]
pub(crate) struct Interrupts {
    asked: watch::Receiver<Asked>,
    heard: u32,
}

impl Interrupts {
    /// Resolves at the next interrupt. Dropping the future loses none.
    pub(crate) async fn next(&mut self) {
        let heard = self.heard;
        match self.asked.wait_for(|asked| asked.times > heard).await.map(|_| ()) {
            Ok(()) => self.heard += 1,
            // The cell is gone, and so is whoever waits.
            Err(_) => std::future::pending().await,
        }
    }

    /// Takes an interrupt that has come already.
    pub(crate) fn take(&mut self) -> bool {
        let come = self.asked.borrow().times > self.heard;
        self.heard += u32::from(come);
        come
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_interrupt_is_heard_once_by_the_call_that_runs() {
        let handle = InterruptHandle::default();
        assert!(!handle.interrupt());
        let mut call = handle.begin();
        assert!(!call.take());
        assert!(handle.interrupt() && handle.interrupt());
        call.next().await;
        assert!(call.take());
        assert!(!call.take());
        handle.end();
        assert!(!handle.interrupt());
        assert!(!handle.begin().take());
    }
}
