//! Cells: everything that makes, holds and unmakes them, and the keeper process that does so.
//!
//! May know: `sys`, `frame`, `op`, `weaken`, the kernel's files. Never knows: HTTP, tokio, what a worker says, what a session is.
//!
//! [`launch`] starts the keeper (the program's own hidden subcommand, whose body is [`keeper_main`]) and waits until
//! it is ready; [`enter_fleet`] takes the daemon itself into the fleet's user namespace, and [`confine`] takes
//! the rest from it; [`send`], [`recv`],
//! [`send_init`] and [`recv_init`] speak the links; so does [`add_image`] for the process that pulls images, which
//! [`confine_puller`] holds.
//!
//! **Invariants.** A cell's processes hold no capability in any namespace, not even in their own user namespace, and
//! none of the cell's other namespaces belongs to it. Between clone and the last step the child neither allocates nor
//! locks nor formats. An id is given to a new cell only once nothing of the old one is left. When the keeper dies, by
//! whatever cause, the kernel kills every process of every cell. No client's byte reaches the keeper: its messages
//! are numbers of fixed size. (What it is told of an image that was pulled are a registry's, and it believes of them
//! no more than `keeper::pulled` checks.)

mod cgroup;
mod config;
mod confine;
mod error;
mod exec;
mod failure;
mod flat;
mod fleet;
mod generations;
mod guard;
mod ids;
mod init;
mod keeper;
mod launch;
mod limits;
mod link;
mod plan;
mod sandbox;
mod seccomp;
mod sets;
mod step;
mod steps;
mod template;
mod wait;
mod warden;
mod zygote;

pub use config::{KeeperConfig, Pulled};
pub use confine::{Confined, close_inherited, confine, confine_puller};
pub use error::JailError;
pub use flat::needs_mounts;
pub use fleet::enter_fleet;
pub use launch::{Launched, launch, launch_program, launch_with_puller};
pub use link::{add_image, recv, recv_init, send, send_init};
/// Messages over sockets, for the links that carry no message of this room.
pub use ringfence_sys::packet;
/// For the body of the hidden subcommand: its arguments are numbers of inherited descriptors.
pub use ringfence_sys::process::adopt;
pub use sandbox::try_sandbox;
pub use step::StepName;
pub use warden::keeper_main;
