//! Bounds of this room.

use std::time::Duration;

/// The largest manifest, index or configuration, bytes. Registries refuse larger manifests too.
pub const DOCUMENT_BYTES_MAX: u64 = 4 << 20;
/// Layers of one image; what the kernel's overlay and Docker allow.
pub const LAYERS_MAX: usize = 127;
/// How deep an index may point to another index.
pub const INDEX_DEPTH_MAX: usize = 4;
/// Manifests that one index may list.
pub const INDEX_MANIFESTS_MAX: usize = 1024;
/// Files of an archive of images: blobs, documents and links.
pub const ARCHIVE_FILES_MAX: u64 = 16_384;
/// The piece in which blobs are copied and hashed, bytes.
pub const COPY_BYTES: usize = 128 << 10;
/// The longest name of an entry of a layer, bytes; a path of the kernel's has as many.
pub const PATH_BYTES_MAX: usize = 4095;
/// How deep a folder of an image may lie.
pub const PATH_DEPTH_MAX: usize = 128;
/// Symbolic links that are followed on the way to one entry; the kernel's own number.
pub const LINKS_FOLLOWED_MAX: usize = 40;
/// Extended headers (pax, GNU long names, sparse maps) before one entry, bytes in all.
pub const HEADER_BYTES_MAX: u64 = 1 << 20;
/// Runs of data of one sparse file.
pub const SPARSE_RUNS_MAX: usize = 65_536;
/// Entries left out that a report names; the rest is counted.
pub const LEFT_OUT_NAMED_MAX: usize = 16;
/// What an unpacked layer may be without its ratio being looked at, bytes.
pub const RATIO_FREE_BYTES: u64 = 256 << 20;
/// How long the name of a repository may be, bytes (distribution specification).
pub const REPOSITORY_BYTES_MAX: usize = 255;
/// How long a tag may be, bytes (distribution specification).
pub const TAG_BYTES_MAX: usize = 128;
/// The largest answer of a token service, bytes.
pub const TOKEN_BYTES_MAX: u64 = 256 << 10;
/// How much of a registry's refusal is read for its message, bytes.
pub const REFUSAL_BYTES_MAX: u64 = 16 << 10;
/// How much of it is shown, characters.
pub const REFUSAL_CHARS_MAX: usize = 300;
/// Redirects that are followed for one request.
pub const REDIRECTS_MAX: usize = 5;
/// How often one request is tried again without anything new having arrived.
pub const RETRIES_MAX: u32 = 4;
/// The wait before the first of them; it doubles each time.
pub const RETRY_WAIT: Duration = Duration::from_millis(500);
/// The longest wait that a registry's `Retry-After` is obeyed for.
pub const RETRY_WAIT_MAX: Duration = Duration::from_secs(60);
/// How long a connection may take to be made.
pub const CONNECT_MAX: Duration = Duration::from_secs(20);
/// How long a registry may send nothing, before its answer or in the middle of one.
pub const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long a whole pull may take.
pub const PULL_MAX: Duration = Duration::from_secs(3600);
/// The largest file of registry credentials, bytes.
pub const CREDENTIALS_BYTES_MAX: u64 = 1 << 20;
/// What a credential helper may answer, bytes.
pub const HELPER_BYTES_MAX: u64 = 64 << 10;
/// How long it may take.
pub const HELPER_MAX: Duration = Duration::from_secs(30);
/// How often a helper's end, or another writer's, is looked for.
pub const POLL: Duration = Duration::from_millis(50);
/// Bytes of all blobs of an image, unless the caller says otherwise.
pub const IMAGE_BYTES_MAX: u64 = 20 << 30;
/// Bytes of an unpacked image, unless the caller says otherwise.
pub const UNPACKED_BYTES_MAX: u64 = 40 << 30;
/// Entries of an unpacked image, unless the caller says otherwise.
pub const UNPACKED_ENTRIES_MAX: u64 = 1_000_000;
/// How many times larger than its blob an unpacked layer may be, unless the caller says otherwise.
pub const RATIO_MAX: u64 = 200;
/// The largest window that a zstd stream may ask for, bytes: memory of its decoder. What `zstd` itself allows.
pub const ZSTD_WINDOW_BYTES_MAX: u64 = 128 << 20;
/// The largest file of trusted certificates, bytes.
pub const ROOTS_BYTES_MAX: u64 = 16 << 20;
/// The head of an answer of a registry, bytes.
pub const ANSWER_HEAD_BYTES_MAX: usize = 64 << 10;
/// Schemes and parameters of one challenge for credentials.
pub const CHALLENGE_PARAMETERS_MAX: usize = 64;
/// The longest name of an image in an archive that is believed, bytes.
pub const IMAGE_NAME_BYTES_MAX: usize = 512;
