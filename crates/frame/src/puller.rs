//! Puller and keeper: what the keeper answers when it was given an image that came while the server runs.
//!
//! What it is given is no message of this room: the image's root, as `op` describes it.

use crate::packet::{DecodeError, PACKET_BYTES, from_signed, narrow, pack, signed, unpack};

/// What the keeper made of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToPuller {
    /// Cells of it can be made.
    Added {
        /// Its number, for [`crate::keeper::ToKeeper::MakeCell`].
        image: u32,
    },
    /// They cannot.
    Refused {
        /// Which step failed (`jail` names them).
        step: u32,
        /// The kernel's error number.
        errno: i32,
    },
}

impl ToPuller {
    /// The message as bytes.
    #[must_use]
    pub fn encode(self) -> [u8; PACKET_BYTES] {
        match self {
            ToPuller::Added { image } => pack(140, [image.into(), 0, 0, 0, 0, 0, 0]),
            ToPuller::Refused { step, errno } => pack(141, [step.into(), from_signed(errno), 0, 0, 0, 0, 0]),
        }
    }

    /// The message in `bytes`.
    ///
    /// # Errors
    /// When they are no message of this link.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (kind, f) = unpack(bytes)?;
        match kind {
            140 => Ok(ToPuller::Added { image: narrow(f[0])? }),
            141 => Ok(ToPuller::Refused { step: narrow(f[0])?, errno: signed(f[1])? }),
            _ => Err(DecodeError::Kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_their_bytes_and_nothing_else_is_one() {
        for message in [ToPuller::Added { image: 7 }, ToPuller::Refused { step: 3, errno: -1 }] {
            assert_eq!(ToPuller::decode(&message.encode()), Ok(message));
        }
        assert_eq!(ToPuller::decode(&[]), Err(DecodeError::Length));
        assert_eq!(ToPuller::decode(&pack(139, [0; 7])), Err(DecodeError::Kind));
        assert_eq!(ToPuller::decode(&pack(140, [u64::MAX; 7])), Err(DecodeError::Field));
    }
}
