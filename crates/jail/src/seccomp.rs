//! The system calls of a cell, as data, and their compilation to BPF.
//!
//! Three answers: what is on [`ALLOWED`] works; what is on [`REFUSED`], or is allowed with an argument that
//! [`conditions`] names, is EPERM; everything else, the calls of kernels to come included, is ENOSYS, so that libraries
//! take the road that they keep for old kernels. clone3 is one of the latter on purpose: its flags lie in memory, where
//! no filter can see them, and every libc falls back to clone.

use std::collections::BTreeMap;

use ringfence_sys::seccomp::{INSTRUCTION_BYTES, INSTRUCTIONS_MAX};
use ringfence_weaken::{Mitigation, holds};

pub(crate) mod own;
mod table;
mod tree;

use table::{ALLOWED, REFUSED, REFUSED_IN_COMPANY};
use tree::{Answer, Check, Instruction};

/// Why there is no filter. Only a mistake in the tables, or a processor that nobody has thought of, leads here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilterError {
    #[error("no seccomp filter is known for this processor")]
    Processor,
    #[error("the seccomp filter has {0} instructions, more than the kernel takes")]
    Long(usize),
}

/// Whether what a filter holds has namespaces of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Surroundings {
    /// Namespaces of its own: what it can name there is its own.
    Own,
    /// Those of whoever started the server: other sessions and the server can be named, and there is a network.
    Shared,
}

/// AUDIT_ARCH of linux/audit.h.
fn audit_arch() -> Option<u32> {
    match std::env::consts::ARCH {
        "x86_64" => Some(0xc000_003e),
        "aarch64" => Some(0xc000_00b7),
        _ => None,
    }
}

/// The filter as the bytes of its `sock_filter` array.
pub(crate) fn compile(surroundings: Surroundings) -> Result<Vec<u8>, FilterError> {
    assemble(&answers(surroundings))
}

fn assemble(answers: &BTreeMap<u32, Answer>) -> Result<Vec<u8>, FilterError> {
    let arch = audit_arch().ok_or(FilterError::Processor)?;
    let program = tree::compile(arch, answers, &Answer::Errno(libc::ENOSYS));
    if program.len() > INSTRUCTIONS_MAX {
        return Err(FilterError::Long(program.len()));
    }
    Ok(program.into_iter().flat_map(bytes_of).collect())
}

fn answers(surroundings: Surroundings) -> BTreeMap<u32, Answer> {
    let number = |call: &i64| u32::try_from(*call).unwrap_or(u32::MAX);
    let mut answers: BTreeMap<u32, Answer> = ALLOWED.iter().map(|call| (number(call), Answer::Allow)).collect();
    answers.extend(REFUSED.iter().map(|call| (number(call), Answer::Errno(libc::EPERM))));
    answers.extend(conditions().into_iter().map(|(call, rules)| (number(&call), Answer::RefuseIf(rules))));
    if surroundings == Surroundings::Shared && holds(Mitigation::FilterInCompany) {
        answers.extend(REFUSED_IN_COMPANY.iter().map(|call| (number(call), Answer::Errno(libc::EPERM))));
        let more = conditions_in_company().into_iter();
        answers.extend(more.map(|(call, rules)| (number(&call), Answer::RefuseIf(rules))));
    }
    answers
}

/// Calls that are refused for some arguments: each list holds the refused cases.
fn conditions() -> Vec<(i64, Vec<Vec<Check>>)> {
    let check = |argument, mask, value, equal| Check { argument, mask, value, equal };
    let is = |argument: u8, value: u32| check(argument, u32::MAX, value, true);
    let is_not = |argument: u8, value: u32| check(argument, u32::MAX, value, false);
    let has = |argument: u8, bits: u32, value: u32| check(argument, bits, value, true);
    let number = |value: i32| value.cast_unsigned();
    let family = |value: i32| is_not(0, number(value));
    let clone = NAMESPACE_FLAGS.iter().map(|flag| vec![has(0, number(*flag), number(*flag))]).collect();
    let mut conditions = vec![
        // New namespaces would bring capabilities, and with them most of the kernel's attack surface.
        (libc::SYS_clone, clone),
        (
            libc::SYS_ioctl,
            vec![
                // Puts characters into a terminal's input, as if typed.
                vec![is(1, TIOCSTI)],
                // Selection on virtual consoles, which can do the same.
                vec![is(1, TIOCLINUX)],
            ],
        ),
        // Limits of other processes.
        (libc::SYS_prlimit64, vec![vec![is_not(0, 0)]]),
        (
            libc::SYS_socket,
            vec![
                // Families that ordinary programs use; the others are where kernel bugs live.
                vec![family(libc::AF_UNIX), family(libc::AF_INET), family(libc::AF_INET6), family(libc::AF_NETLINK)],
                // getaddrinfo asks rtnetlink for the interfaces; no other netlink protocol.
                vec![is(0, number(libc::AF_NETLINK)), is_not(2, number(libc::NETLINK_ROUTE))],
                // Raw sockets.
                vec![is(0, number(libc::AF_INET)), has(1, 0xf, number(libc::SOCK_RAW))],
                vec![is(0, number(libc::AF_INET6)), has(1, 0xf, number(libc::SOCK_RAW))],
            ],
        ),
        // socketpair knows no other family anyway, but for exotic ones.
        (libc::SYS_socketpair, vec![vec![family(libc::AF_UNIX)]]),
        // Other personalities emulate old systems and weaken address layout.
        (libc::SYS_personality, vec![vec![is_not(0, 0), is_not(0, 0xffff_ffff)]]),
    ];
    for (call, rules) in &mut conditions {
        if !is_kept(*call) {
            rules.clear();
        }
    }
    conditions
}

/// Every condition, but in a build for proofs.
fn is_kept(call: i64) -> bool {
    match call {
        libc::SYS_clone => holds(Mitigation::RuleOfClone),
        libc::SYS_ioctl => holds(Mitigation::RuleOfIoctl),
        libc::SYS_prlimit64 => holds(Mitigation::RuleOfPrlimit),
        libc::SYS_socket => holds(Mitigation::RuleOfSocket),
        libc::SYS_socketpair => holds(Mitigation::RuleOfSocketpair),
        libc::SYS_personality => holds(Mitigation::RuleOfPersonality),
        _ => true,
    }
}

/// The same for what shares its namespaces with others; takes the place of a call's conditions above.
fn conditions_in_company() -> Vec<(i64, Vec<Vec<Check>>)> {
    const IOPRIO_WHO_PROCESS: u32 = 1;
    let is_not = |argument: u8, value: u32| Check { argument, mask: u32::MAX, value, equal: false };
    // One's own, said as 0: the kernel lets a process set these for any other of its user.
    let own = || vec![vec![is_not(0, 0)]];
    let own_of_kind = |kind: u32| vec![vec![is_not(0, kind)], vec![is_not(1, 0)]];
    vec![
        // There is no network that is its own.
        (libc::SYS_socket, vec![vec![is_not(0, libc::AF_UNIX.cast_unsigned())]]),
        (libc::SYS_sched_setaffinity, own()),
        (libc::SYS_sched_setparam, own()),
        (libc::SYS_sched_setscheduler, own()),
        (libc::SYS_sched_setattr, own()),
        (libc::SYS_setpriority, own_of_kind(libc::PRIO_PROCESS)),
        (libc::SYS_ioprio_set, own_of_kind(IOPRIO_WHO_PROCESS)),
    ]
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
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;

fn bytes_of(instruction: Instruction) -> [u8; INSTRUCTION_BYTES] {
    let [c0, c1] = instruction.code.to_ne_bytes();
    let [k0, k1, k2, k3] = instruction.k.to_ne_bytes();
    [c0, c1, instruction.if_true, instruction.if_false, k0, k1, k2, k3]
}

#[cfg(test)]
mod own_tests;
#[cfg(test)]
mod tests;
