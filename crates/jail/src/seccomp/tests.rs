//! The compiled filter, run by an interpreter of the few instructions that it uses.

use super::*;

pub(super) const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const KILL: u32 = 0x8000_0000;
#[cfg(target_arch = "x86_64")]
pub(super) const AUDIT_ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub(super) const AUDIT_ARCH: u32 = 0xc000_00b7;

/// What the filter answers to a call, as the kernel would run it.
fn answer(call: i64, arguments: &[u64]) -> u32 {
    run(&compile(Surroundings::Own).unwrap(), AUDIT_ARCH, call as u32, arguments)
}

/// The same, of the filter for shared namespaces.
fn answer_in_company(call: i64, arguments: &[u64]) -> u32 {
    run(&compile(Surroundings::Shared).unwrap(), AUDIT_ARCH, call as u32, arguments)
}

pub(super) fn run(program: &[u8], arch: u32, call: u32, arguments: &[u64]) -> u32 {
    let mut data = Vec::new();
    data.extend_from_slice(&call.to_ne_bytes());
    data.extend_from_slice(&arch.to_ne_bytes());
    data.extend_from_slice(&0u64.to_ne_bytes());
    for index in 0..6 {
        data.extend_from_slice(&arguments.get(index).copied().unwrap_or(0).to_ne_bytes());
    }
    let (mut at, mut accumulator) = (0usize, 0u32);
    loop {
        let instruction = &program[at * 8..at * 8 + 8];
        let code = u16::from_ne_bytes([instruction[0], instruction[1]]);
        let (yes, no) = (usize::from(instruction[2]), usize::from(instruction[3]));
        let k = u32::from_ne_bytes(instruction[4..8].try_into().unwrap());
        at += 1;
        match code {
            0x20 => accumulator = u32::from_ne_bytes(data[k as usize..k as usize + 4].try_into().unwrap()),
            0x54 => accumulator &= k,
            0x05 => at += k as usize,
            0x15 => at += if accumulator == k { yes } else { no },
            0x25 => at += if accumulator > k { yes } else { no },
            0x35 => at += if accumulator >= k { yes } else { no },
            0x06 => return k,
            other => panic!("instruction {other:#x}"),
        }
    }
}

pub(super) fn refused(errno: i32) -> u32 {
    ERRNO | errno as u32
}

#[test]
fn ordinary_calls_work() {
    for call in ALLOWED {
        // 0 is a family that no socket has; for every other call it is an ordinary argument.
        let socket = [libc::SYS_socket, libc::SYS_socketpair].contains(call);
        let first = if socket { libc::AF_UNIX as u64 } else { 0 };
        assert_eq!(answer(*call, &[first]), ALLOW, "call {call}");
    }
}

#[test]
fn dangerous_calls_are_refused() {
    for call in REFUSED {
        assert_eq!(answer(*call, &[]), refused(libc::EPERM), "call {call}");
    }
}

#[test]
fn no_call_stands_in_both_lists_or_twice() {
    let all: Vec<i64> = ALLOWED.iter().chain(REFUSED).copied().collect();
    let distinct: std::collections::BTreeSet<i64> = all.iter().copied().collect();
    assert_eq!(all.len(), distinct.len());
}

#[test]
fn unknown_calls_do_not_exist() {
    for call in [libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, 9999, 0x4000_0000] {
        assert_eq!(answer(call, &[]), refused(libc::ENOSYS), "call {call}");
    }
}

#[test]
fn another_processor_is_killed() {
    let program = compile(Surroundings::Own).unwrap();
    assert_eq!(run(&program, 0x4000_0003, libc::SYS_read as u32, &[]), KILL);
}

#[test]
fn clone_makes_threads_and_processes_but_no_namespaces() {
    let thread = (libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND) as u64;
    assert_eq!(answer(libc::SYS_clone, &[thread]), ALLOW);
    assert_eq!(answer(libc::SYS_clone, &[libc::SIGCHLD as u64]), ALLOW);
    for flag in NAMESPACE_FLAGS {
        assert_eq!(answer(libc::SYS_clone, &[flag as u64 | libc::SIGCHLD as u64]), refused(libc::EPERM), "{flag:#x}");
    }
}

#[test]
fn terminals_take_no_typed_input() {
    assert_eq!(answer(libc::SYS_ioctl, &[0, libc::TIOCSTI]), refused(libc::EPERM));
    // The kernel looks at 32 bits only.
    assert_eq!(answer(libc::SYS_ioctl, &[0, libc::TIOCSTI | 1 << 40]), refused(libc::EPERM));
    assert_eq!(answer(libc::SYS_ioctl, &[0, TIOCLINUX.into()]), refused(libc::EPERM));
    assert_eq!(answer(libc::SYS_ioctl, &[0, libc::TCGETS]), ALLOW);
}

#[test]
fn sockets_are_of_ordinary_families() {
    let socket = |family: i32, kind: i32, protocol: i32| {
        answer(libc::SYS_socket, &[family as u64, kind as u64, protocol as u64])
    };
    for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] {
        assert_eq!(socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0), ALLOW, "{family}");
    }
    assert_eq!(socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE), ALLOW);
    assert_eq!(socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER), refused(libc::EPERM));
    assert_eq!(socket(libc::AF_INET, libc::SOCK_RAW, 1), refused(libc::EPERM));
    assert_eq!(socket(libc::AF_INET6, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 58), refused(libc::EPERM));
    for family in [libc::AF_PACKET, libc::AF_VSOCK, libc::AF_ALG, libc::AF_BLUETOOTH, libc::AF_CAN, libc::AF_XDP] {
        assert_eq!(socket(family, libc::SOCK_STREAM, 0), refused(libc::EPERM), "{family}");
    }
    assert_eq!(answer(libc::SYS_socketpair, &[libc::AF_TIPC as u64]), refused(libc::EPERM));
}

#[test]
fn limits_and_personalities_are_ones_own() {
    assert_eq!(answer(libc::SYS_prlimit64, &[0]), ALLOW);
    assert_eq!(answer(libc::SYS_prlimit64, &[1]), refused(libc::EPERM));
    assert_eq!(answer(libc::SYS_personality, &[0]), ALLOW);
    assert_eq!(answer(libc::SYS_personality, &[0xffff_ffff]), ALLOW);
    assert_eq!(answer(libc::SYS_personality, &[0x004_0000]), refused(libc::EPERM));
}

#[test]
fn every_number_gets_the_answer_of_its_list() {
    let conditional: Vec<i64> = conditions().into_iter().map(|(call, _)| call).collect();
    for call in (0..2000).filter(|call| !conditional.contains(call)) {
        let wanted = match (ALLOWED.contains(&call), REFUSED.contains(&call)) {
            (true, _) => ALLOW,
            (_, true) => refused(libc::EPERM),
            _ => refused(libc::ENOSYS),
        };
        assert_eq!(answer(call, &[]), wanted, "call {call}");
    }
}

#[test]
fn in_company_there_is_no_network_and_nothing_that_others_can_name() {
    for family in [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET, libc::AF_VSOCK] {
        let arguments = [family as u64, libc::SOCK_STREAM as u64, 0];
        assert_eq!(answer_in_company(libc::SYS_socket, &arguments), refused(libc::EPERM), "{family}");
    }
    assert_eq!(answer_in_company(libc::SYS_socket, &[libc::AF_UNIX as u64, libc::SOCK_STREAM as u64]), ALLOW);
    for call in REFUSED_IN_COMPANY {
        assert_eq!(answer(*call, &[]), ALLOW, "call {call}");
        assert_eq!(answer_in_company(*call, &[]), refused(libc::EPERM), "call {call}");
    }
    for call in REFUSED {
        assert_eq!(answer_in_company(*call, &[]), refused(libc::EPERM), "call {call}");
    }
}

#[test]
fn in_company_one_sets_the_place_in_the_queue_for_oneself_alone() {
    let set =
        [libc::SYS_sched_setaffinity, libc::SYS_sched_setparam, libc::SYS_sched_setscheduler, libc::SYS_sched_setattr];
    for call in set {
        assert_eq!(answer_in_company(call, &[0]), ALLOW, "{call}");
        assert_eq!(answer_in_company(call, &[1]), refused(libc::EPERM), "{call}");
    }
    for (call, own, user) in [(libc::SYS_setpriority, 0, 2), (libc::SYS_ioprio_set, 1, 3)] {
        assert_eq!(answer_in_company(call, &[own, 0]), ALLOW, "{call}");
        assert_eq!(answer_in_company(call, &[own, 1]), refused(libc::EPERM), "{call}");
        assert_eq!(answer_in_company(call, &[user, 0]), refused(libc::EPERM), "{call}");
    }
}

#[test]
fn the_filters_are_short() {
    // The kernel runs one for every call number when a process loads it.
    for surroundings in [Surroundings::Own, Surroundings::Shared] {
        let instructions = compile(surroundings).unwrap().len() / 8;
        assert!(instructions < 512, "{instructions} instructions");
    }
}
