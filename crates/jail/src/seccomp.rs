//! The system calls of a cell, as data, and their compilation to BPF.
//!
//! Three answers: what is on [`ALLOWED`] works; what is on [`REFUSED`], or is allowed with an argument that
//! [`conditions`] names, is EPERM; everything else, the calls of kernels to come included, is ENOSYS, so that libraries
//! take the road that they keep for old kernels. clone3 is one of the latter on purpose: its flags lie in memory, where
//! no filter can see them, and every libc falls back to clone.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

mod table;

use table::{ALLOWED, REFUSED};

/// Why there is no filter. Only a mistake in the tables leads here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilterError {
    #[error("cannot compile the seccomp filter")]
    Compile(#[from] BackendError),
    #[error("no seccomp filter is known for this processor")]
    Processor,
    #[error("the seccomp filter has {0} instructions, more than the kernel takes")]
    Long(usize),
}

/// The filter as the bytes of its `sock_filter` array.
pub(crate) fn compile() -> Result<Vec<u8>, FilterError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|_| FilterError::Processor)?;
    let program = chain(program(refusals()?, EPERM_IF_MATCHED, arch)?, program(allowances(), ALLOW_IF_MATCHED, arch)?);
    if program.len() > ringfence_sys::seccomp::INSTRUCTIONS_MAX {
        return Err(FilterError::Long(program.len()));
    }
    Ok(program.iter().flat_map(bytes_of).collect())
}

const EPERM_IF_MATCHED: (SeccompAction, SeccompAction) =
    (SeccompAction::Errno(libc::EPERM.cast_unsigned()), SeccompAction::Allow);
const ALLOW_IF_MATCHED: (SeccompAction, SeccompAction) =
    (SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS.cast_unsigned()));

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn program(
    rules: Rules,
    (matched, other): (SeccompAction, SeccompAction),
    arch: TargetArch,
) -> Result<BpfProgram, FilterError> {
    Ok(SeccompFilter::new(rules, other, matched, arch)?.try_into()?)
}

fn allowances() -> Rules {
    // No condition matches always. A call that is refused must be known too, or it would be ENOSYS.
    ALLOWED.iter().chain(REFUSED).map(|call| (*call, Vec::new())).collect()
}

fn refusals() -> Result<Rules, BackendError> {
    let mut rules: Rules = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    rules.extend(conditions()?);
    Ok(rules)
}

/// Calls that are refused for some arguments: each list holds the refused cases.
fn conditions() -> Result<Vec<(i64, Vec<SeccompRule>)>, BackendError> {
    let is = |argument: u8, value: u64| SeccompCondition::new(argument, Len::Dword, Op::Eq, value);
    let is_not = |argument: u8, value: u64| SeccompCondition::new(argument, Len::Dword, Op::Ne, value);
    let has =
        |argument: u8, bits: u64, value: u64| SeccompCondition::new(argument, Len::Dword, Op::MaskedEq(bits), value);
    let rule = |conditions: Vec<Result<SeccompCondition, BackendError>>| {
        SeccompRule::new(conditions.into_iter().collect::<Result<_, _>>()?)
    };
    let clone: Result<Vec<_>, _> =
        NAMESPACE_FLAGS.iter().map(|flag| rule(vec![has(0, *flag as u64, *flag as u64)])).collect();
    let number = |value: i32| u64::from(value.cast_unsigned());
    let family = |value: i32| is_not(0, number(value));
    Ok(vec![
        // New namespaces would bring capabilities, and with them most of the kernel's attack surface.
        (libc::SYS_clone, clone?),
        (
            libc::SYS_ioctl,
            vec![
                // Puts characters into a terminal's input, as if typed.
                rule(vec![is(1, libc::TIOCSTI)])?,
                // Selection on virtual consoles, which can do the same.
                rule(vec![is(1, TIOCLINUX)])?,
            ],
        ),
        // Limits of other processes.
        (libc::SYS_prlimit64, vec![rule(vec![is_not(0, 0)])?]),
        (
            libc::SYS_socket,
            vec![
                // Families that ordinary programs use; the others are where kernel bugs live.
                rule(vec![
                    family(libc::AF_UNIX),
                    family(libc::AF_INET),
                    family(libc::AF_INET6),
                    family(libc::AF_NETLINK),
                ])?,
                // getaddrinfo asks rtnetlink for the interfaces; no other netlink protocol.
                rule(vec![is(0, number(libc::AF_NETLINK)), is_not(2, number(libc::NETLINK_ROUTE))])?,
                // Raw sockets.
                rule(vec![is(0, number(libc::AF_INET)), has(1, 0xf, number(libc::SOCK_RAW))])?,
                rule(vec![is(0, number(libc::AF_INET6)), has(1, 0xf, number(libc::SOCK_RAW))])?,
            ],
        ),
        // socketpair knows no other family anyway, but for exotic ones.
        (libc::SYS_socketpair, vec![rule(vec![family(libc::AF_UNIX)])?]),
        // Other personalities emulate old systems and weaken address layout.
        (libc::SYS_personality, vec![rule(vec![is_not(0, 0), is_not(0, 0xffff_ffff)])?]),
    ])
}

const NAMESPACE_FLAGS: [i32; 8] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
    // CLONE_NEWTIME shares its bit with the exit signal's byte; clone ignores it, so there is nothing to refuse.
    libc::CLONE_PTRACE,
];
const TIOCLINUX: u64 = 0x541c;

/// One program after the other: where the first would allow, the second decides. Each program of seccompiler checks
/// the processor itself and only ever jumps forward inside of itself, so the second can stand behind the first.
fn chain(mut first: BpfProgram, second: BpfProgram) -> BpfProgram {
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
    let length = first.len();
    let allow = u32::from(SeccompAction::Allow);
    for (index, instruction) in first.iter_mut().enumerate() {
        if instruction.code == RETURN && instruction.k == allow {
            instruction.code = JUMP;
            // At most INSTRUCTIONS_MAX, by the check in `compile`; relative to the instruction after this one.
            instruction.k = (length - index - 1) as u32;
        }
    }
    first.extend(second);
    first
}

fn bytes_of(instruction: &sock_filter) -> [u8; ringfence_sys::seccomp::INSTRUCTION_BYTES] {
    let [c0, c1] = instruction.code.to_ne_bytes();
    let [k0, k1, k2, k3] = instruction.k.to_ne_bytes();
    [c0, c1, instruction.jt, instruction.jf, k0, k1, k2, k3]
}

#[cfg(test)]
mod tests;
