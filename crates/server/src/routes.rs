//! One file per route: from a request to an operation, and from what came of it to a reply.

pub(crate) mod create_session;
pub(crate) mod delete_file;
pub(crate) mod destroy_session;
pub(crate) mod execute;
pub(crate) mod get_archive;
pub(crate) mod get_file;
pub(crate) mod get_session;
pub(crate) mod interrupt;
pub(crate) mod list_files;
pub(crate) mod list_sessions;
pub(crate) mod put_archive;
pub(crate) mod put_file;
pub(crate) mod status;
pub(crate) mod tenancy;
