//! ListFiles, PutFile and the archive.

use serde::Serialize;
use utoipa::ToSchema;

use crate::field::is_zero;

/// The files of a folder.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct FileList<'a> {
    /// Regular files only; folders are not listed.
    pub files: Vec<FileMetadata<'a>>,
    /// How many more there are whose name JSON cannot carry (it is no UTF-8); absent where there are none.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    pub unlistable: u64,
    /// True where the folder holds more than a listing may have; absent where this is all.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub truncated: bool,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct FileMetadata<'a> {
    /// Relative to the session's workspace root.
    pub path: &'a str,
    /// Its size.
    pub size_bytes: u64,
    /// The media type that its name suggests; null where it suggests none.
    pub mime_type: Option<&'a str>,
    /// When the file was last written, in POSIX seconds with their fraction.
    pub modified_at: f64,
}

/// Where an upload was stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FileUploadResult<'a> {
    /// Relative to the session's workspace root.
    pub path: &'a str,
    /// Its size.
    pub size_bytes: u64,
}

/// The multipart form of an upload; its fields may come in any order.
#[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
#[schema(as = FileUpload)]
pub struct FileUploadSchema {
    /// The file's bytes.
    #[schema(value_type = String, format = Binary, content_media_type = "application/octet-stream")]
    pub file: Vec<u8>,
    /// Destination relative to the workspace root. Absent or empty, the last component of the uploaded file's name.
    #[schema(nullable = false)]
    pub path: Option<String>,
}

/// What an uploaded archive came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ArchiveResult {
    /// Files written.
    pub files: u64,
    /// Bytes written.
    pub size_bytes: u64,
}
