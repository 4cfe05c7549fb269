//! Random bytes of the kernel's, for what every call wants some of.

use std::cell::RefCell;

/// Bytes that a thread asks the kernel for at once.
const DRAWN_BYTES: usize = 512;

/// Drawn and not used yet: the last `left` of `bytes`.
struct Drawn {
    bytes: [u8; DRAWN_BYTES],
    left: usize,
}

thread_local! {
    static DRAWN: RefCell<Drawn> = const { RefCell::new(Drawn { bytes: [0; DRAWN_BYTES], left: 0 }) };
}

/// Random bytes that nobody else gets: of those that this thread has drawn from the kernel ahead, so that few calls pay for
/// asking it. They are as secret as the memory of this process, and what was handed out is not kept. A process that is
/// forked would hand out the same: one that serves forks none.
///
/// # Errors
/// When the kernel gives none.
pub fn random_bytes<const LENGTH: usize>() -> Result<[u8; LENGTH], getrandom::Error> {
    let mut wanted = [0; LENGTH];
    DRAWN.with_borrow_mut(|drawn| {
        if LENGTH > DRAWN_BYTES {
            return getrandom::fill(&mut wanted);
        }
        if LENGTH > drawn.left {
            drawn.left = 0;
            getrandom::fill(&mut drawn.bytes)?;
            drawn.left = DRAWN_BYTES;
        }
        let from = DRAWN_BYTES - drawn.left;
        if let Some(taken) = drawn.bytes.get_mut(from..from + LENGTH) {
            wanted.copy_from_slice(taken);
            taken.fill(0);
            drawn.left -= LENGTH;
        }
        Ok(())
    })?;
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn nothing_is_handed_out_twice() {
        let mut seen = HashSet::new();
        for _ in 0..3 * DRAWN_BYTES {
            assert!(seen.insert(random_bytes::<12>().unwrap().to_vec()));
        }
        let others = std::thread::spawn(|| random_bytes::<12>().unwrap().to_vec());
        assert!(seen.insert(others.join().unwrap()));
        assert!(random_bytes::<{ 2 * DRAWN_BYTES }>().unwrap().iter().any(|byte| *byte != 0));
    }
}
