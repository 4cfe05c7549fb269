//! Loading a compiled filter.

use std::io;

use crate::check;

/// Bytes of one instruction in [`Filter::from_bytes`]: u16 code, u8 jt, u8 jf, u32 k, native endian.
pub const INSTRUCTION_BYTES: usize = 8;
/// The kernel's bound on a program (`BPF_MAXINSNS`).
pub const INSTRUCTIONS_MAX: usize = 4096;

/// A filter program, ready to be loaded.
pub struct Filter(Vec<libc::sock_filter>);

impl Filter {
    /// The program in `bytes`; `None` where they are no program by their length.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Filter> {
        let (instructions, rest) = bytes.as_chunks::<INSTRUCTION_BYTES>();
        if !rest.is_empty() || instructions.is_empty() || instructions.len() > INSTRUCTIONS_MAX {
            return None;
        }
        let program = instructions.iter().map(|&[c0, c1, jt, jf, k0, k1, k2, k3]| libc::sock_filter {
            code: u16::from_ne_bytes([c0, c1]),
            jt,
            jf,
            k: u32::from_ne_bytes([k0, k1, k2, k3]),
        });
        Some(Filter(program.collect()))
    }

    /// Puts the filter on the calling thread and all that it starts, for good. Child-safe.
    ///
    /// # Errors
    /// As `seccomp(2)`: EACCES without no_new_privs, EINVAL for a program that the kernel refuses.
    pub fn load(&self) -> io::Result<()> {
        let program = libc::sock_fprog { len: self.0.len() as libc::c_ushort, filter: self.0.as_ptr().cast_mut() };
        // SAFETY: the program's length and pointer are of one live vector, which the kernel only reads.
        let result = unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0 as libc::c_ulong, &raw const program)
        };
        check(result).map(drop)
    }
}
