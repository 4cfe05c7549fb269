//! Capabilities of the calling thread. All child-safe.

use std::io;

use crate::check;

/// Bypass permission checks of files.
pub const DAC_OVERRIDE: u64 = 1 << 1;
/// Give files away.
pub const CHOWN: u64 = 1;
/// Act as a file's owner.
pub const FOWNER: u64 = 1 << 3;
/// Send signals to processes of others.
pub const KILL: u64 = 1 << 5;
/// Change group ids.
pub const SETGID: u64 = 1 << 6;
/// Change user ids.
pub const SETUID: u64 = 1 << 7;
/// Drop capabilities from the bounding set.
pub const SETPCAP: u64 = 1 << 8;
/// Network interfaces.
pub const NET_ADMIN: u64 = 1 << 12;
/// Change the root; needed to enter a mount namespace.
pub const SYS_CHROOT: u64 = 1 << 18;
/// Look into processes of others; needed to enter namespaces by pidfd.
pub const SYS_PTRACE: u64 = 1 << 19;
/// Mounts, namespaces and much else.
pub const SYS_ADMIN: u64 = 1 << 21;
/// Let a child's user namespace map the root of this one.
pub const SETFCAP: u64 = 1 << 31;
/// More capabilities than any kernel has.
const CAPABILITIES_MAX: u32 = 64;
const VERSION_3: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Default, Clone, Copy)]
struct Words {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Sets permitted and effective capabilities to `mask` (bit n is capability n), inheritable and ambient to none.
///
/// # Errors
/// As `capset(2)`: EPERM for what is not permitted already.
pub fn keep(mask: u64) -> io::Result<()> {
    let header = Header { version: VERSION_3, pid: 0 };
    let word = |shift: u32| {
        let bits = (mask >> shift) as u32;
        Words { effective: bits, permitted: bits, inheritable: 0 }
    };
    let words = [word(0), word(32)];
    // SAFETY: both pointers are to live values of the layout that version 3 asks for.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, words.as_ptr()) }).map(drop)
}

/// The effective capabilities of the calling thread.
///
/// # Errors
/// As `capget(2)`.
pub fn effective() -> io::Result<u64> {
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut words = [Words::default(); 2];
    // SAFETY: both pointers are to live, writable values of the layout that version 3 asks for.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, words.as_mut_ptr()) })?;
    let [low, high] = words;
    Ok(u64::from(low.effective) | u64::from(high.effective) << 32)
}

/// Takes every capability but `mask` out of the bounding set, so that no exec can bring it back.
///
/// # Errors
/// As `prctl(2)`: EPERM without CAP_SETPCAP.
pub fn bound(mask: u64) -> io::Result<()> {
    for capability in 0..CAPABILITIES_MAX {
        if mask & 1 << capability != 0 {
            continue;
        }
        // SAFETY: plain numbers.
        match check(unsafe { libc::syscall(libc::SYS_prctl, libc::PR_CAPBSET_DROP, capability, 0, 0, 0) }) {
            Ok(_) => {}
            // The kernel's last capability is behind us.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && capability > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
