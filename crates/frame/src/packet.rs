//! The fixed 64-byte packet under the keeper's, the zygote's and init's messages.
//!
//! Layout: byte 0 version (1), byte 1 kind, bytes 2..4 zero, bytes 4..8 zero, then seven u64 fields.

use std::fmt;

/// Size of every packet.
pub const PACKET_BYTES: usize = 64;
const VERSION: u8 = 1;
const FIELDS: usize = 7;

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// Not of the message's length.
    Length,
    /// Another version of the protocol.
    Version,
    /// No message of this kind on this link.
    Kind,
    /// A field holds a value that its message forbids.
    Field,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DecodeError::Length => "a message of the wrong length",
            DecodeError::Version => "a message of another protocol version",
            DecodeError::Kind => "a message of an unknown kind",
            DecodeError::Field => "a message with a forbidden field",
        })
    }
}

impl std::error::Error for DecodeError {}

pub(crate) fn pack(kind: u8, fields: [u64; FIELDS]) -> [u8; PACKET_BYTES] {
    let mut bytes = [0; PACKET_BYTES];
    bytes[0] = VERSION;
    bytes[1] = kind;
    for (place, field) in bytes[8..].chunks_exact_mut(8).zip(fields) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    bytes
}

pub(crate) fn unpack(bytes: &[u8]) -> Result<(u8, [u64; FIELDS]), DecodeError> {
    let bytes: &[u8; PACKET_BYTES] = bytes.try_into().map_err(|_| DecodeError::Length)?;
    if bytes[0] != VERSION || bytes[2..8] != [0; 6] {
        return Err(DecodeError::Version);
    }
    let mut fields = [0; FIELDS];
    for (field, place) in fields.iter_mut().zip(bytes[8..].chunks_exact(8)) {
        *field = u64::from_le_bytes(place.try_into().map_err(|_| DecodeError::Length)?);
    }
    Ok((bytes[1], fields))
}

/// A field that must fit 32 bits.
pub(crate) fn narrow(field: u64) -> Result<u32, DecodeError> {
    u32::try_from(field).map_err(|_| DecodeError::Field)
}

/// A signed 32-bit value carried in a field.
pub(crate) fn signed(field: u64) -> Result<i32, DecodeError> {
    narrow(field).map(u32::cast_signed)
}

/// The field for a signed 32-bit value.
pub(crate) fn from_signed(value: i32) -> u64 {
    u64::from(value.cast_unsigned())
}
