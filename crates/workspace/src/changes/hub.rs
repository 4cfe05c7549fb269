//! The one inotify instance of the process, shared by all workspaces.
//!
//! Each visible folder of a workspace has a watch that fires once (`IN_ONESHOT`) and is gone: from then on the folder is
//! known to be another than it was, and the look that follows watches it anew. So a program that writes a million times
//! costs two events, and cannot flood the queue that it shares with the other sessions.
//!
//! **Invariant.** A watch and its route are made under one lock with the reading of events: an event whose watch has
//! no route is one that nobody waits for any more.

use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::limits::DRAIN_EVENTS_MAX;

/// Bytes of the buffer that events are read through.
const EVENT_BUFFER_BYTES: usize = 16 << 10;

/// What makes a folder's content, or a file in it, different. Reading makes no event.
const SEEN: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::ONESHOT);

static HUB: LazyLock<Hub> = LazyLock::new(|| Hub {
    // None where the user's share of instances is used up: then every workspace is scanned after every call.
    fd: inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok(),
    routes: Mutex::new(HashMap::new()),
});

/// What may have changed in a workspace since the last look at it.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// It is not known where.
    pub(crate) anywhere: bool,
    /// In the folders of these watches, which have fired: never more than were made since the last look.
    pub(crate) folders: HashSet<i32>,
}

/// The news of one workspace.
pub(crate) type Dirty = Arc<Mutex<News>>;

impl News {
    /// Nothing has happened.
    pub(crate) fn is_none(&self) -> bool {
        !self.anywhere && self.folders.is_empty()
    }
}

/// Looks at the news, or changes them.
pub(crate) fn news(dirty: &Dirty) -> MutexGuard<'_, News> {
    dirty.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Hub {
    fd: Option<OwnedFd>,
    routes: Mutex<HashMap<i32, Dirty>>,
}

/// The hub of the process.
pub(crate) fn hub() -> &'static Hub {
    &HUB
}

impl Hub {
    /// Watches a folder until its first event.
    pub(crate) fn watch(&self, dir: BorrowedFd<'_>, dirty: &Dirty) -> Result<i32, Errno> {
        let fd = self.fd.as_ref().ok_or(Errno::MFILE)?;
        let mut routes = self.routes();
        let wd = inotify::add_watch(fd, format!("/proc/self/fd/{}", dir.as_raw_fd()), SEEN)?;
        routes.insert(wd, Arc::clone(dirty));
        Ok(wd)
    }

    /// Ends watches, those that have not fired.
    pub(crate) fn forget(&self, watches: impl IntoIterator<Item = i32>, dirty: &Dirty) {
        let Some(fd) = self.fd.as_ref() else { return };
        let mut routes = self.routes();
        for wd in watches {
            // A number that was given to another workspace by now is not ours to end.
            if routes.get(&wd).is_some_and(|route| Arc::ptr_eq(route, dirty)) {
                routes.remove(&wd);
                let _ = inotify::remove_watch(fd, wd);
            }
        }
    }

    /// Takes what the kernel has queued, and marks the workspaces that it is about. Never waits.
    pub(crate) fn drain(&self) {
        let Some(fd) = self.fd.as_ref() else { return };
        let mut routes = self.routes();
        let mut space = [MaybeUninit::uninit(); EVENT_BUFFER_BYTES];
        let mut events = inotify::Reader::new(fd, &mut space);
        for _ in 0..DRAIN_EVENTS_MAX {
            match events.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => mark_all(&routes),
                Ok(event) => {
                    let (wd, what) = (event.wd(), event.events());
                    // It has fired, and is gone; what else is queued of it says no more.
                    let Some(dirty) = routes.remove(&wd) else { continue };
                    let mut news = news(&dirty);
                    if what.contains(ReadFlags::IGNORED) {
                        // One that ends without having fired is that of a folder that is gone.
                        news.anywhere = true;
                    } else {
                        news.folders.insert(wd);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => break,
            }
        }
        // Not read to the end: whatever is still queued may be about any of them.
        mark_all(&routes);
    }

    /// How many watches there are.
    #[cfg(test)]
    pub(crate) fn watches_of(&self, dirty: &Dirty) -> usize {
        self.routes().values().filter(|route| Arc::ptr_eq(route, dirty)).count()
    }

    fn routes(&self) -> MutexGuard<'_, HashMap<i32, Dirty>> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn mark_all(routes: &HashMap<i32, Dirty>) {
    for dirty in routes.values() {
        news(dirty).anywhere = true;
    }
}
