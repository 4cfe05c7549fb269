//! `/proc/PID/stat`. Pure. A process chooses its own name, which stands in there: hostile input.

/// What is needed of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    /// `R`, `S`, `T`, `Z` and so on: its first thread's.
    pub(crate) state: u8,
    /// Its parent.
    pub(crate) parent: u32,
    /// Its process group; 0 where the group is of another process namespace.
    pub(crate) group: u32,
    /// Its threads; one that is all dead and not reaped has one.
    pub(crate) threads: u32,
    /// When it started, clock ticks since boot.
    pub(crate) start_ticks: u64,
}

impl Stat {
    /// Whether nothing of it runs any more. Its first thread can end and leave others, which go on.
    pub(crate) fn is_dead(&self) -> bool {
        self.state == b'X' || self.state == b'Z' && self.threads <= 1
    }
}

/// Reads the file's content; `None` where it is not of the form that `proc(5)` gives.
pub(crate) fn parse(stat: &[u8]) -> Option<Stat> {
    // The name may hold blanks and parentheses; what follows the last one is the kernel's.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    // The state is field 3, the parent field 4, the group field 5, the threads field 20, the start field 22.
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let threads = fields.nth(14)?.parse().ok()?;
    let start_ticks = fields.nth(1)?.parse().ok()?;
    Some(Stat { state, parent, group, threads, start_ticks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_confuse_it() {
        let tail = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21";
        for name in ["bash", "a b", ") R 1 2 (", "))", "\u{e9}"] {
            let text = format!("77 ({name}) {tail}\n");
            assert_eq!(
                parse(text.as_bytes()),
                Some(Stat { state: b'S', parent: 1, group: 2, threads: 17, start_ticks: 4242 }),
                "{name}"
            );
        }
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"1 (x) S 1 2"), None);
    }

    #[test]
    fn it_reads_the_real_thing() {
        let own = parse(&std::fs::read("/proc/self/stat").unwrap()).unwrap();
        assert!(own.start_ticks > 0 && own.threads > 0);
    }

    #[test]
    fn one_whose_first_thread_alone_has_ended_is_not_dead() {
        let stat = |state, threads| Stat { state, parent: 1, group: 2, threads, start_ticks: 4242 };
        assert!(stat(b'Z', 1).is_dead() && stat(b'X', 1).is_dead());
        assert!(!stat(b'Z', 2).is_dead() && !stat(b'S', 1).is_dead());
    }
}
