//! Sessions without namespaces: the tiers `confined` and `none`, for containers that may make none.
//!
//! # Theory of operation
//!
//! The daemon speaks to the same keeper by the same messages, and gets the same links: init's, the interpreter's. What
//! lies behind them differs, for without namespaces nothing can be mounted, nothing has a process id 1 of its own, and
//! no interpreter can be put into another's surroundings after it was forked.
//!
//! ```text
//! warden              adopts every orphan; when the keeper ends it kills what is left, and removes the folders
//!   keeper            makes folders, rules and guards
//!     zygote <set>    Python of that set's image, started from the machine's own disk
//!       guard         one for each session (`guard.py`): init and zygote in one
//!         worker      the interpreter
//!         sh ...      shell commands
//! ```
//!
//! **A session** is a folder with two in it, `workspace` and `tmp`; an id where the keeper may give ids away (root with
//! the capabilities of an ordinary container), else the id of all; and two Landlock rulesets, made here (`rules`). The
//! zygote forks the guard, which takes the id, drops everything, and enters the outer domain. Whatever it starts enters
//! the inner one too, gets its limits and the filter, and only then runs. The kernel lets a process signal and trace
//! only what is in its own domain or within it: so the guard can signal every process of the session, and none of
//! them the guard, the server, or another session.
//!
//! **Nothing gets away.** The guard adopts the orphans of its session, so all of it descends from the guard for ever.
//! `kill(-1)` from the guard reaches its domain and nothing else. When the keeper's end of the guard's link closes, be
//! it that the session is destroyed or that the keeper was killed, the guard kills them all and ends when the last is
//! gone. Should the guard itself be killed, its orphans come to the keeper, which knows that whatever it has adopted
//! and does not know is to die; should the keeper be killed as well, they come to the warden.
//!
//! **A zygote is replaced** as the other keeper does it (`generations`). Guards forked by the one before live on: they
//! come to the keeper, which adopts what is orphaned, and are told from its other orphans by their process ids. A session
//! that is asked for while none forks waits for one, bounded, as forks do there.
//!
//! **Paths.** There is no `/workspace`: programs find themselves in the session's folder, and `HOME` and `TMPDIR` name
//! it. The server still takes `/workspace/...` in file operations and the editor. The image is the machine's own disk,
//! as far as the rules let it be seen; links and files that an image adds lie in a folder of ours (`view`).
//!
//! **Tier none** is the same without rules and filter.

mod cells;
mod daemon;
mod guards;
mod ids;
mod keeper;
mod place;
mod remains;
mod rules;
mod trash;
mod view;
mod warden;
mod zygote;
mod zygotes;

pub(crate) use daemon::enter;
pub(crate) use guards::{end_children, kill_orphans};
pub(crate) use ids::Who;
pub(crate) use place::Place;
pub(crate) use trash::{Trash, remove as remove_folder};
pub use view::needs_mounts;
pub(crate) use warden::{end_all, fork_keeper, watch};
