//! A gVisor sandbox for each session: the tier `gvisor`, by an installed `runsc`.
//!
//! # Theory of operation
//!
//! The daemon speaks to the same keeper by the same messages, and gets the same links: init's, the interpreter's. What
//! lies behind them is a kernel of the session's own, gVisor's, a process of the host that answers the system calls of the
//! session's programs. It is started by `runsc`, which needs root and tracing: so warden and keeper stay what they were
//! started as, in mounts of their own.
//!
//! ```text
//! warden              adopts every orphan; when the keeper ends it kills what is left, unmounts, removes the folders
//!   keeper            makes folders and mounts, starts and ends sandboxes
//!     runsc           one for each session
//!       gofer         opens files of the image and of the workspace for the sandbox, and nothing else
//!       sandbox       the kernel of the session; in it, not processes of the host's:
//!         guard       pid 1 (`sandbox.py`): it imports, forks interpreters and starts shell commands
//!         worker      the interpreter
//!         sh ...      shell commands
//! ```
//!
//! **A session** is a folder with two in it: `workspace`, a tmpfs of bounded size, and `state`, what `runsc` remembers of
//! it. The root of its sandbox is the image's, put together as for cells, read-only. The first process is the image's Python
//! with the zygote's program and the guard's. `runsc` hands it one descriptor, a socket; what else it needs (its program, its
//! configuration, init's link, the keeper's link) lies in that socket as descriptors, and so do the pipes and sockets that
//! the daemon gives away later: gVisor takes descriptors of the host's in, though it gives none out.
//!
//! **Making one takes seconds**: the interpreter starts and imports in there, and nothing of it is shared with another
//! sandbox. So `MakeCell` is answered once the guard says that it is ready, and other sandboxes are made meanwhile.
//!
//! **The end.** The keeper's end of the guard's link is closed; the guard kills the session's processes and ends, and with
//! pid 1 the sandbox ends, and `runsc`. One that takes too long is killed with all that descends from it. Its control
//! groups are tried to be removed until the kernel lets go of them (`groups`). When the keeper is killed, the guards see the
//! end of their links as well.

mod bundle;
mod cells;
mod groups;
mod keeper;
mod trial;
mod warden;

pub use trial::try_sandbox;
pub(crate) use warden::watch;
