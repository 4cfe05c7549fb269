//! The exact JSON shapes of the code-execution protocol, contract version 1, and of ringfence's additions to it.
//!
//! For: parsing request bodies into typed values with a refusal that names the field, and serializing answers
//! without copying the outputs. May know: `serde`, `utoipa`. Never knows: I/O, HTTP, statuses, sessions.
//!
//! **Invariants.**
//! - A parsed request is valid: its integers are whole and at least 1, required texts are not empty, and an
//!   editor command carries the fields that it needs.
//! - Unknown fields are ignored, everywhere, as the contract demands; a field that is known and wrong is refused
//!   by its name, never guessed at.
//! - `input` is not looked at before the tool is known.
//! - Field names and types of the contract are never changed; what is ours is only ever added.

mod exec;
mod field;
mod files;
mod lease;
pub mod limits;
mod outcome;
mod status;

pub use exec::{
    BashExecutionInput, BashExecutionRequest, BashExecutionTool, CodeExecutionInput, CodeExecutionRequest,
    CodeExecutionTool, EditAction, EditorCommand, ExecInput, ExecRequest, ExecRequestSchema, TextEditorEdit,
    TextEditorInput, TextEditorRequest, TextEditorTool,
};
pub use field::Refusal;
pub use files::{ArchiveResult, FileList, FileMetadata, FileUploadResult, FileUploadSchema};
pub use lease::{CreateSessionRequest, Interrupted, Limits, SessionHandle, SessionList};
pub use outcome::{
    Background, CodeExecutionOutputFile, CodeExecutionResult, ExecResponse, LimitExceeded, ResultBlock, Usage,
};
pub use status::{Error, Health, Ready, Tenancy};
