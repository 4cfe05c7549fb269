//! The daemon's end of the keeper's socket: requests are matched to their answers, events go to their cells.
//!
//! One task owns the socket. Requests reach it through a channel whose length is bounded by the cells that live:
//! each cell has at most one making, one worker start and one destruction under way.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::watched::{Watched, watch as watch_fd};
use ringfence_frame::keeper::{FromKeeper, ToKeeper};
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::LeaseError;
use crate::limits::DEATHS_KEPT_MAX;
use crate::meters::MeterFiles;

/// A handle to the link; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct KeeperLink {
    commands: mpsc::UnboundedSender<Command>,
    status: watch::Receiver<LinkStatus>,
}

/// The link as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LinkStatus {
    /// The keeper is gone.
    pub(crate) closed: bool,
    /// Cells that are in the making, live, or not yet confirmed gone.
    pub(crate) cells: usize,
}

/// A cell as the keeper hands it over.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) init: OwnedFd,
    pub(crate) workspace: OwnedFd,
    pub(crate) owner_id: u32,
    pub(crate) meters: MeterFiles,
    pub(crate) events: watch::Receiver<CellEvents>,
}

/// What happened to a cell without being asked for.
#[derive(Debug, Default)]
pub(crate) struct CellEvents {
    /// The last workers that died: process id as the keeper knows it, wait status.
    deaths: VecDeque<(u32, i32)>,
    /// The cell is dead, or the keeper is.
    pub(crate) lost: bool,
}

#[derive(Debug)]
enum Command {
    Make { cell: u64, image: u32, set: u32, answer: oneshot::Sender<Result<Made, LeaseError>> },
    Spawn { cell: u64, descriptors: Vec<OwnedFd>, answer: oneshot::Sender<Result<Started, LeaseError>> },
    Destroy { cell: u64, gone: Option<oneshot::Sender<()>> },
    Rest { set: u32 },
    Renew { set: u32 },
}

/// An interpreter, as the keeper tells of its fork.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Started {
    /// Its process id as the keeper knows it.
    pub(crate) pid: u32,
    /// Where it comes from.
    pub(crate) origin: Origin,
}

/// The zygote that an interpreter was forked from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Its number, greater than that of every zygote before it; 0 is none.
    pub(crate) zygote: u32,
    /// How often it had forked by then.
    pub(crate) forks: u32,
}

/// What happened to a set of zygotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// This zygote forks from now on.
    Ready { set: u32, zygote: u32 },
    /// The one that was asked for did not come up.
    NotRenewed { set: u32, errno: i32 },
    /// Nothing is left of a cell of the set.
    Gone { set: u32, cell: u64 },
}

impl CellEvents {
    /// The wait status of this worker, once it is dead.
    pub(crate) fn death(&self, pid: u32) -> Option<i32> {
        self.deaths.iter().find(|(dead, _)| *dead == pid).map(|(_, status)| *status)
    }
}

impl KeeperLink {
    /// Takes the socket over; needs a tokio runtime. News come out of the second: one for each zygote that was asked for
    /// and each that the keeper restarts after a pause; with `tell_gone` also one for each cell that is gone.
    ///
    /// # Errors
    /// When the socket cannot be registered with the runtime.
    pub(crate) fn start(socket: OwnedFd, tell_gone: bool) -> io::Result<(Self, mpsc::UnboundedReceiver<News>)> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let (commands, inbox) = mpsc::unbounded_channel();
        let (tell, news) = mpsc::unbounded_channel();
        let (publish, status) = watch::channel(LinkStatus::default());
        let driver = Driver {
            socket: watch_fd(socket)?,
            inbox,
            outgoing: VecDeque::new(),
            routes: Routes { cells: HashMap::new(), news: tell, tell_gone },
            publish,
        };
        tokio::spawn(driver.run());
        Ok((KeeperLink { commands, status }, news))
    }

    /// Has a cell made. When the caller no longer waits, the cell is destroyed again.
    pub(crate) async fn make(&self, cell: u64, image: u32, set: u32) -> Result<Made, LeaseError> {
        let (answer, wait) = oneshot::channel();
        self.commands.send(Command::Make { cell, image, set, answer }).map_err(|_| LeaseError::KeeperGone)?;
        wait.await.map_err(|_| LeaseError::KeeperGone)?
    }

    /// Has an interpreter forked into the cell.
    pub(crate) async fn spawn_worker(&self, cell: u64, descriptors: Vec<OwnedFd>) -> Result<Started, LeaseError> {
        let (answer, wait) = oneshot::channel();
        self.commands.send(Command::Spawn { cell, descriptors, answer }).map_err(|_| LeaseError::KeeperGone)?;
        wait.await.map_err(|_| LeaseError::KeeperGone)?
    }

    /// Has the cell destroyed, behind.
    pub(crate) fn destroy(&self, cell: u64) {
        let _ = self.commands.send(Command::Destroy { cell, gone: None });
    }

    /// Has the set's zygote end until it is wanted again.
    pub(crate) fn rest(&self, set: u32) {
        let _ = self.commands.send(Command::Rest { set });
    }

    /// Has another zygote of the set started, to take over from the one that forks. News tell how it went.
    pub(crate) fn renew(&self, set: u32) {
        let _ = self.commands.send(Command::Renew { set });
    }

    /// Has the cell destroyed, and waits until the keeper says that nothing of it is left (or is gone itself).
    pub(crate) async fn destroyed(&self, cell: u64) {
        let (gone, wait) = oneshot::channel();
        if self.commands.send(Command::Destroy { cell, gone: Some(gone) }).is_ok() {
            let _ = wait.await;
        }
    }

    /// The link's state, to look at and to wait on.
    pub(crate) fn status(&self) -> watch::Receiver<LinkStatus> {
        self.status.clone()
    }
}

struct Driver {
    socket: Watched,
    inbox: mpsc::UnboundedReceiver<Command>,
    outgoing: VecDeque<(ToKeeper, Vec<OwnedFd>)>,
    routes: Routes,
    publish: watch::Sender<LinkStatus>,
}

impl Driver {
    async fn run(mut self) {
        let ended = loop {
            if let Err(error) = self.flush() {
                break error;
            }
            self.publish_cells();
            tokio::select! {
                command = self.inbox.recv() => match command {
                    Some(command) => self.take(command),
                    None => break io::ErrorKind::ConnectionAborted.into(),
                },
                ready = self.socket.readable() => {
                    let read = ready.and_then(|mut guard| {
                        let result = read_all(self.socket.as_fd(), &mut self.routes, &mut self.outgoing);
                        if result.is_ok() {
                            guard.clear_ready();
                        }
                        result
                    });
                    if let Err(error) = read {
                        break error;
                    }
                }
                ready = self.socket.writable(), if !self.outgoing.is_empty() => match ready {
                    Ok(mut guard) => guard.clear_ready(),
                    Err(error) => break error,
                },
            }
        };
        tracing::debug!(%ended, "the link to the keeper ended");
        self.routes.lose_all();
        self.inbox.close();
        while self.inbox.try_recv().is_ok() {}
        self.publish.send_replace(LinkStatus { closed: true, cells: 0 });
    }

    fn publish_cells(&self) {
        let cells = self.routes.cells.len();
        self.publish.send_if_modified(|status| std::mem::replace(&mut status.cells, cells) != cells);
    }

    fn take(&mut self, command: Command) {
        let request = match command {
            Command::Make { cell, image, set, answer } => {
                self.routes.cells.insert(cell, Route::new(set, answer));
                (ToKeeper::MakeCell { cell, image, set }, Vec::new())
            }
            Command::Spawn { cell, descriptors, answer } => match self.routes.cells.get_mut(&cell) {
                Some(route) if !route.dying => {
                    route.spawn = Some(answer);
                    (ToKeeper::SpawnWorker { cell }, descriptors)
                }
                _ => {
                    let _ = answer.send(Err(LeaseError::CellLost));
                    return;
                }
            },
            Command::Destroy { cell, gone } => {
                // A cell that is not there is gone: dropping `gone` says so.
                let Some(route) = self.routes.cells.get_mut(&cell) else { return };
                route.gone.extend(gone);
                if std::mem::replace(&mut route.dying, true) {
                    return;
                }
                (ToKeeper::DestroyCell { cell }, Vec::new())
            }
            Command::Rest { set } => (ToKeeper::RestZygote { set }, Vec::new()),
            Command::Renew { set } => (ToKeeper::RenewZygote { set }, Vec::new()),
        };
        self.outgoing.push_back(request);
    }

    /// Sends what waits, until the socket is full.
    fn flush(&mut self) -> io::Result<()> {
        while let Some((message, descriptors)) = self.outgoing.front() {
            let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
            match ringfence_jail::send(self.socket.as_fd(), *message, &borrowed) {
                Ok(()) => drop(self.outgoing.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Reads until nothing waits. The end of the link is an error.
fn read_all(
    socket: BorrowedFd<'_>,
    routes: &mut Routes,
    outgoing: &mut VecDeque<(ToKeeper, Vec<OwnedFd>)>,
) -> io::Result<()> {
    loop {
        match ringfence_jail::recv(socket) {
            Ok(None) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(Some((message, descriptors))) => {
                if let Some(request) = routes.hear(message, descriptors) {
                    outgoing.push_back((request, Vec::new()));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Who waits for what.
struct Routes {
    cells: HashMap<u64, Route>,
    news: mpsc::UnboundedSender<News>,
    tell_gone: bool,
}

struct Route {
    set: u32,
    make: Option<oneshot::Sender<Result<Made, LeaseError>>>,
    spawn: Option<oneshot::Sender<Result<Started, LeaseError>>>,
    gone: Vec<oneshot::Sender<()>>,
    events: watch::Sender<CellEvents>,
    dying: bool,
}

impl Route {
    fn new(set: u32, make: oneshot::Sender<Result<Made, LeaseError>>) -> Self {
        Route {
            set,
            make: Some(make),
            spawn: None,
            gone: Vec::new(),
            events: watch::Sender::new(CellEvents::default()),
            dying: false,
        }
    }

    fn lose(&mut self) {
        self.events.send_modify(|events| events.lost = true);
        if let Some(spawn) = self.spawn.take() {
            let _ = spawn.send(Err(LeaseError::CellLost));
        }
    }
}

impl Routes {
    /// Takes a message; sometimes it leads to a request.
    fn hear(&mut self, message: FromKeeper, descriptors: Vec<OwnedFd>) -> Option<ToKeeper> {
        match message {
            FromKeeper::CellMade { cell, owner_id, meters } => {
                let route = self.cells.get_mut(&cell)?;
                let made = unpack_made(owner_id, meters, descriptors, route.events.subscribe());
                let failed = made.is_err();
                let unheard = route.make.take().is_none_or(|answer| answer.send(made).is_err());
                if (failed || unheard) && !std::mem::replace(&mut route.dying, true) {
                    return Some(ToKeeper::DestroyCell { cell });
                }
            }
            FromKeeper::CellFailed { cell, step, errno } => {
                let mut route = self.cells.remove(&cell)?;
                if let Some(answer) = route.make.take() {
                    let _ = answer.send(Err(LeaseError::CellFailed { step, errno }));
                }
            }
            FromKeeper::WorkerStarted { cell, pid, zygote, forks } => {
                if let Some(answer) = self.cells.get_mut(&cell)?.spawn.take() {
                    let _ = answer.send(Ok(Started { pid, origin: Origin { zygote, forks } }));
                }
            }
            FromKeeper::WorkerFailed { cell, errno } => {
                if let Some(answer) = self.cells.get_mut(&cell)?.spawn.take() {
                    let _ = answer.send(Err(LeaseError::WorkerFailed { errno }));
                }
            }
            FromKeeper::WorkerDied { cell, pid, status } => {
                self.cells.get(&cell)?.events.send_modify(|events| {
                    if events.deaths.len() >= DEATHS_KEPT_MAX {
                        events.deaths.pop_front();
                    }
                    events.deaths.push_back((pid, status));
                });
            }
            FromKeeper::CellDied { cell, status } => {
                tracing::warn!(cell, status, "a cell ended by itself");
                self.cells.get_mut(&cell)?.lose();
            }
            FromKeeper::CellGone { cell } => {
                let mut route = self.cells.remove(&cell)?;
                route.lose();
                if self.tell_gone {
                    // Before whoever waits for it goes on.
                    let _ = self.news.send(News::Gone { set: route.set, cell });
                }
                for gone in route.gone {
                    let _ = gone.send(());
                }
            }
            FromKeeper::ZygoteReady { set, zygote } => {
                let _ = self.news.send(News::Ready { set, zygote });
            }
            FromKeeper::ZygoteNotRenewed { set, errno } => {
                let _ = self.news.send(News::NotRenewed { set, errno });
            }
            FromKeeper::Ready { .. } | FromKeeper::SetupFailed { .. } => {
                tracing::warn!("the keeper announced itself twice");
            }
        }
        None
    }

    fn lose_all(&mut self) {
        for (_, mut route) in self.cells.drain() {
            route.lose();
        }
    }
}

fn unpack_made(
    owner_id: u32,
    bits: ringfence_frame::keeper::Meters,
    descriptors: Vec<OwnedFd>,
    events: watch::Receiver<CellEvents>,
) -> Result<Made, LeaseError> {
    let count = descriptors.len();
    let mut descriptors = descriptors.into_iter();
    let (Some(init), Some(workspace)) = (descriptors.next(), descriptors.next()) else {
        return Err(LeaseError::Descriptors { count });
    };
    let meters = MeterFiles::new(bits, descriptors.collect()).ok_or(LeaseError::Descriptors { count })?;
    Ok(Made { init, workspace, owner_id, meters, events })
}
