//! Random bytes for what every call needs: drawn from the kernel for some hundred calls at once.

use std::cell::RefCell;

use crate::limits::RANDOM_DRAWN_BYTES;

/// What was drawn and is not used yet. Each thread has its own.
struct Drawn {
    bytes: [u8; RANDOM_DRAWN_BYTES],
    unused: usize,
}

thread_local! {
    static DRAWN: RefCell<Drawn> = const { RefCell::new(Drawn { bytes: [0; RANDOM_DRAWN_BYTES], unused: 0 }) };
}

/// Random bytes, none of which anybody got before; `None` where the kernel gives none. For ids, not for keys.
pub(crate) fn random<const N: usize>() -> Option<[u8; N]> {
    const { assert!(N <= RANDOM_DRAWN_BYTES) };
    DRAWN.with_borrow_mut(|drawn| {
        if drawn.unused < N {
            getrandom::fill(&mut drawn.bytes).ok()?;
            drawn.unused = RANDOM_DRAWN_BYTES;
        }
        drawn.unused -= N;
        let taken = drawn.bytes.get_mut(drawn.unused..)?.first_chunk_mut::<N>()?;
        // What was given out is not kept.
        Some(std::mem::replace(taken, [0; N]))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_bytes_are_given_out_twice() {
        // More than one drawing, of sizes that do not divide it, on two threads.
        let draw =
            || (0..2 * RANDOM_DRAWN_BYTES / 24).flat_map(|_| [random::<16>().unwrap(), pad(random::<9>().unwrap())]);
        let other = std::thread::spawn(move || draw().collect::<Vec<_>>());
        let all: Vec<[u8; 16]> = draw().chain(other.join().unwrap()).collect();
        assert!(all.len() > 4 * RANDOM_DRAWN_BYTES / 24);
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        assert!(all.iter().all(|bytes| *bytes != [0; 16]));
    }

    fn pad(bytes: [u8; 9]) -> [u8; 16] {
        let mut padded = [0; 16];
        padded[..9].copy_from_slice(&bytes);
        padded
    }
}
