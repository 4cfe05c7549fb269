//! A Model Context Protocol server: gives a model the tools of one session of a backend, whichever backend it is.
//!
//! For: assistants and editors that speak the Model Context Protocol, over standard streams or streamable HTTP. May
//! know: `client`, `listen`. Never knows: how the backend was started, how sessions are held, the command line.
//!
//! ```text
//! peer -> stdio | http -> service (the SDK's handler) -> tools | resources -> conversation -> client -> backend
//! ```
//!
//! A [`Conversation`] is one stdio process or one session of the HTTP transport. It leases one session of the backend
//! when it first needs one, and releases it at its end.
//!
//! **Invariants.**
//! - One conversation, one session: none is shared, none outlives its conversation but by the backend's idle reclaim.
//! - A call is never run twice: where its session is gone, the model is told, and asks anew.
//! - One call of a conversation runs at a time, and a cancelled request interrupts its own call alone.
//! - Only what is a picture by its content is shown as one: a file's name is a stranger's word.
//! - What is shown, read and held has a bound ([`limits`]); HTTP is for the hosts and origins that were named.
//! - Standard output carries messages of the protocol and nothing else.

mod arguments;
mod backend;
mod conversation;
mod describe;
mod files;
mod http;
pub mod limits;
mod service;
mod show;
mod stdio;
mod tools;

pub use backend::{Backend, Starting};
pub use conversation::{Conversation, Trouble};
pub use http::{Door, DoorError, DoorOptions};
pub use service::Service;
pub use stdio::{StdioError, serve_stdio, serve_streams};
