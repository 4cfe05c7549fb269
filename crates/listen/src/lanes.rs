//! Lanes: threads that carry connections, each with a runtime of its own.
//!
//! What a connection starts runs in its lane, one thing after the other: nothing is handed from thread to thread, and no
//! thread is woken to look for work that another one has. A lane that is busy makes its own connections wait, not those
//! of others.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Threads that carry connections. Dropped, they end, and what still runs in them is cut off.
pub struct Lanes(Vec<Lane>);

struct Lane {
    runtime: Handle,
    /// As often held as the lane has connections, and once more.
    load: Arc<()>,
    /// Dropped, it ends the lane.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lanes {
    /// Starts a lane for each core that this process may use.
    ///
    /// # Errors
    /// When a thread or its runtime cannot be started.
    pub fn start(name: &str) -> io::Result<Self> {
        let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        (0..count).map(|number| Lane::start(format!("{name}-{number}"))).collect::<io::Result<_>>().map(Lanes)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Starts a connection in the lane that has the fewest; it is made of that lane's number.
    pub(crate) fn spawn<F: Future<Output = ()> + Send + 'static>(&self, connection: impl FnOnce(usize) -> F) {
        let least = self.0.iter().enumerate().min_by_key(|(_, lane)| Arc::strong_count(&lane.load));
        let Some((number, lane)) = least else { return };
        let (load, connection) = (Arc::clone(&lane.load), connection(number));
        lane.runtime.spawn(async move {
            connection.await;
            drop(load);
        });
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for lane in &mut self.0 {
            lane.stop = None;
        }
        for thread in self.0.iter_mut().filter_map(|lane| lane.thread.take()) {
            // What panics in a lane is a task, and was told of already.
            let _ended = thread.join();
        }
    }
}

impl Lane {
    fn start(name: String) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || {
            let _stopped = runtime.block_on(stopped);
            // What blocks, such as a name that is looked up, is not waited for.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name(name).spawn(run)?;
        Ok(Lane { runtime: handle, load: Arc::default(), stop: Some(stop), thread: Some(thread) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn lanes(count: usize) -> Lanes {
        Lanes((0..count).map(|number| Lane::start(format!("lane-{number}")).unwrap()).collect())
    }

    #[test]
    fn connections_are_spread_and_an_ended_one_makes_room() {
        let lanes = lanes(3);
        let (told, hears) = mpsc::channel();
        let mut ends = Vec::new();
        for _ in 0..6 {
            let (end, ended) = oneshot::channel::<()>();
            let told = told.clone();
            lanes.spawn(|lane| async move {
                let _started = told.send((lane, std::thread::current().name().map(str::to_owned)));
                let _ended = ended.await;
            });
            ends.push(Some(end));
        }
        let mut started: Vec<_> = (0..6).map(|_| hears.recv_timeout(PATIENCE).unwrap()).collect();
        started.sort();
        let named = |lane| (lane, Some(format!("lane-{lane}")));
        assert_eq!(started, [0, 0, 1, 1, 2, 2].map(named), "two in each, each in the thread of its lane");
        // The second connection is lane 1's: there is room now.
        ends[1] = None;
        while Arc::strong_count(&lanes.0[1].load) > 2 {
            std::thread::yield_now();
        }
        lanes.spawn(|lane| async move {
            let _started = told.send((lane, None));
        });
        assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), (1, None));
    }

    #[test]
    fn what_runs_is_cut_off_at_the_end() {
        struct Dropped(mpsc::Sender<()>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                let _heard = self.0.send(());
            }
        }
        let (told, hears) = mpsc::channel();
        let (started, starts) = mpsc::channel();
        let lanes = lanes(1);
        let dropped = Dropped(told);
        lanes.spawn(|_| async move {
            let _started = started.send(());
            std::future::pending::<()>().await;
            drop(dropped);
        });
        starts.recv_timeout(PATIENCE).unwrap();
        drop(lanes);
        assert_eq!(hears.try_recv(), Ok(()), "it was dropped before the lanes were gone");
    }
}
