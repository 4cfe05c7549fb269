//! OCI and Docker image formats: archives and layouts read, images pulled from registries, layers unpacked.
//!
//! ```text
//! import(archive or folder) --\
//! import_root(tar of a root) --+--> blobs + Found --> unpack --> a folder
//! pull(reference)           --/
//! ```
//!
//! May know: files, HTTP to registries, the kernel's file calls through `rustix`. Never knows: the store's catalogue,
//! sessions, the command line, tokio. Everything blocks.
//!
//! Everything that is read here is hostile: archives, layers, manifests, and what a registry answers.
//!
//! **Invariants.**
//! - A blob that has its name is whole and has been verified: it is written under another name, synced, compared with
//!   its digest, and renamed.
//! - Nothing outside the target folder is opened, made, changed or removed by unpacking: each name is resolved below
//!   a held descriptor, without links, by `openat2(2)`. What is refused is refused with the entry's name.
//! - A failed [`unpack`] leaves no target folder. A failed [`import`] leaves no blob of its own; a failed [`pull`]
//!   leaves verified blobs and beginnings, so that the next one goes on from there.
//! - No device, socket or FIFO, no set-user-ID or set-group-ID file and no extended attribute comes out of a layer.
//! - Credentials go to the registry that they are for and to the token service that it names, over TLS; never to where
//!   it redirects. They are in no error, no Debug and no argument of a program.
//! - Every document, list, wait, retry and size has a bound, by a name in [`limits`].

mod blobs;
mod credentials;
mod digest;
mod document;
mod error;
mod found;
#[doc(hidden)]
pub mod fuzzing;
mod import;
pub mod limits;
mod pull;
mod reference;
mod resolve;
mod stream;
mod tape;
mod unpack;

pub use blobs::{Blobs, Stored};
pub use credentials::Credentials;
pub use digest::Digest;
pub use error::OciError;
pub use found::{Found, ImageConfig, Layer, Platform, Progress};
pub use import::{ImportOptions, import, import_root};
pub use pull::{PullOptions, pull};
pub use reference::Reference;
pub use unpack::{Owners, UnpackLimits, Unpacked, unpack, unpack_layer};
