//! The bounds of the format, each with its reason. They are part of `docs/grant.md`.

/// The longest token, bytes. It has to fit into a header field of any server on its way.
pub const TOKEN_BYTES_MAX: usize = 4096;

/// The longest header, decoded bytes: three short members.
pub const HEADER_BYTES_MAX: usize = 512;

/// The deepest nesting of JSON: a key set is an object with a list of objects that hold lists.
pub const JSON_DEPTH_MAX: usize = 4;

/// The most members of one JSON object, and of one JSON list.
pub const JSON_MEMBERS_MAX: usize = 64;

/// The longest `iss` and `aud`, bytes.
pub const NAME_BYTES_MAX: usize = 256;

/// The longest `image`, bytes.
pub const IMAGE_BYTES_MAX: usize = 256;

/// The longest `jti`, bytes.
pub const ID_BYTES_MAX: usize = 64;

/// The most tools in a grant.
pub const TOOLS_MAX: usize = 16;

/// The longest name of a tool, bytes.
pub const TOOL_BYTES_MAX: usize = 64;

/// The most audiences in a grant.
pub const AUDIENCES_MAX: usize = 8;

/// The longest time from `iat` to `exp`, seconds: a grant is short-lived, a day is its outer bound.
pub const LIFETIME_SECONDS_MAX: u64 = 86_400;

/// The largest clock skew that may be allowed for, seconds.
pub const SKEW_SECONDS_MAX: u64 = 60;

/// The clock skew that is allowed for unless the deployment says otherwise, seconds.
pub const SKEW_SECONDS_DEFAULT: u64 = 30;

/// The largest ceiling of a time, seconds (a year), and the largest ceiling of sessions.
pub const CEILING_MAX: u32 = 31_536_000;

/// The largest NumericDate: the last second of the year 9999.
pub const DATE_MAX: u64 = 253_402_300_799;

/// The largest key set, bytes.
pub const KEY_SET_BYTES_MAX: usize = 64 << 10;

/// The most keys in a key set: three of each algorithm are a rotation with room to spare.
pub const KEYS_MAX: usize = 16;

/// The longest `kid`, bytes.
pub const KEY_ID_BYTES_MAX: usize = 128;

/// The largest private key document, bytes.
pub const PRIVATE_KEY_BYTES_MAX: usize = 4096;
