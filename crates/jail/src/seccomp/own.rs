//! The system calls of the server's own processes. What they need is short for two of them: the daemon, which reads
//! what strangers send, and the warden, which waits. The keeper and what it starts build cells, and need what that
//! takes; theirs refuses what no part of a fleet ever asks of the kernel. What pulls images has the list of a cell without
//! what Landlock does not govern: sockets that are files, and owners, modes and attributes of whatever its user owns.

use std::collections::BTreeMap;

use libc::*;

use super::table::{ALLOWED, REFUSED, REFUSED_IN_COMPANY};
use super::tree::{Answer, Check};
use super::{FilterError, NAMESPACE_FLAGS, assemble, conditions, conditions_in_company};

/// A process of the server's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Own {
    /// Once it serves.
    Daemon,
    /// Once its keeper runs.
    Warden,
    /// With zygotes, inits and, on top of it, cells.
    Keeper,
    /// What pulls images: an ordinary program of the network's.
    Puller,
}

/// The filter as the bytes of its `sock_filter` array.
pub(crate) fn compile(own: Own) -> Result<Vec<u8>, FilterError> {
    assemble(&answers(own))
}

pub(super) fn answers(own: Own) -> BTreeMap<u32, Answer> {
    let number = |call: &i64| u32::try_from(*call).unwrap_or(u32::MAX);
    // Refused first, so that what a process needs comes on top.
    let refused = REFUSED.iter().chain(NEVER_OF_THE_DAEMON).map(|call| (number(call), Answer::Errno(EPERM)));
    let mut answers: BTreeMap<u32, Answer> = refused.collect();
    let conditions = match own {
        Own::Daemon => conditions_of_the_daemon(),
        Own::Warden => Vec::new(),
        Own::Keeper => conditions_of_the_keeper(),
        Own::Puller => conditions_of_the_puller(),
    };
    answers.extend(lists(own).iter().copied().flatten().map(|call| (number(call), Answer::Allow)));
    answers.extend(conditions.into_iter().map(|(call, rules)| (number(&call), Answer::RefuseIf(rules))));
    if own == Own::Puller {
        let never = NEVER_OF_THE_PULLER.iter().chain(REFUSED_IN_COMPANY);
        answers.extend(never.map(|call| (number(call), Answer::Errno(EPERM))));
    }
    answers
}

/// What works, but for some arguments.
pub(super) fn lists(own: Own) -> &'static [&'static [i64]] {
    match own {
        Own::Daemon => &[EVERY_PROCESS, SERVING],
        Own::Warden => &[EVERY_PROCESS, WAITING],
        Own::Keeper => &[ALLOWED, BUILDING],
        Own::Puller => &[ALLOWED],
    }
}

/// What a running program of ours needs to go on and to end.
const EVERY_PROCESS: &[i64] = &[
    // Descriptors that are open.
    SYS_read,
    SYS_write,
    SYS_close,
    SYS_fstat,
    SYS_lseek,
    SYS_fcntl,
    // Files by name: what may be opened is Landlock's matter.
    SYS_openat,
    SYS_newfstatat,
    SYS_statx,
    SYS_getdents64,
    // Memory. What becomes executable is looked at below.
    SYS_brk,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_mprotect,
    SYS_madvise,
    // Threads wait for each other.
    SYS_futex,
    SYS_sched_yield,
    SYS_set_robust_list,
    SYS_rseq,
    // Signals, and the way into and out of their handlers.
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_tgkill,
    SYS_getpid,
    SYS_gettid,
    SYS_restart_syscall,
    // Time and chance.
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_getrandom,
    // Children that were started before.
    SYS_wait4,
    // The end.
    SYS_exit,
    SYS_exit_group,
];

/// What serving takes beyond that.
const SERVING: &[i64] = &[
    // Threads; a clone without CLONE_THREAD is refused below. clone3, whose flags no filter sees, stays ENOSYS.
    SYS_clone,
    SYS_sched_getaffinity,
    // Names of threads and the auxiliary vector; nothing else, below.
    SYS_prctl,
    // Connections that the listener takes, and what is known of them. There is no `socket`, `connect` or `bind`.
    SYS_accept4,
    SYS_getsockname,
    SYS_getpeername,
    SYS_getsockopt,
    SYS_setsockopt,
    SYS_shutdown,
    SYS_readv,
    SYS_writev,
    SYS_sendto,
    SYS_recvfrom,
    // Messages with descriptors: the keeper's, and init's.
    SYS_sendmsg,
    SYS_recvmsg,
    // The two ends of a worker's frames and outputs, and a command's text.
    SYS_socketpair,
    SYS_pipe2,
    SYS_memfd_create,
    // FIONBIO alone, below.
    SYS_ioctl,
    // Waiting, for many.
    SYS_epoll_create1,
    SYS_epoll_ctl,
    #[cfg(target_arch = "x86_64")]
    SYS_epoll_wait,
    SYS_epoll_pwait,
    SYS_epoll_pwait2,
    SYS_eventfd2,
    SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    SYS_poll,
    // Files of workspaces, beneath a folder that is held.
    SYS_openat2,
    SYS_pread64,
    SYS_pwrite64,
    SYS_copy_file_range,
    SYS_sendfile,
    SYS_splice,
    SYS_fstatfs,
    SYS_fchmod,
    SYS_fchown,
    SYS_fchownat,
    SYS_mkdirat,
    SYS_linkat,
    SYS_symlinkat,
    SYS_readlinkat,
    SYS_renameat2,
    SYS_unlinkat,
    // What a call changed in them.
    SYS_inotify_init1,
    SYS_inotify_add_watch,
    SYS_inotify_rm_watch,
    // Who and where it is, and what it has used; its own limits to read, below.
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getppid,
    SYS_uname,
    SYS_sysinfo,
    SYS_getrusage,
    SYS_clock_getres,
    SYS_prlimit64,
];

/// What the warden does at the end: it removes the folders of its cgroups.
const WAITING: &[i64] = &[
    SYS_unlinkat,
    #[cfg(target_arch = "x86_64")]
    SYS_rmdir,
];

/// What building a cell takes beyond what cells may do.
const BUILDING: &[i64] = &[
    // Namespaces, made and entered.
    SYS_clone3,
    SYS_unshare,
    SYS_setns,
    // Mounts and the root.
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_open_tree,
    SYS_move_mount,
    SYS_mount_setattr,
    // The name of a cell's host.
    SYS_sethostname,
    // The filter of what is inside.
    SYS_seccomp,
];

/// Calls that the daemon's list lacks and that would give something away: refused with EPERM instead of ENOSYS, so that
/// what tries one is not led to try another.
const NEVER_OF_THE_DAEMON: &[i64] = &[
    SYS_execve,
    SYS_execveat,
    SYS_socket,
    SYS_connect,
    SYS_bind,
    SYS_listen,
    SYS_kill,
    SYS_tkill,
    SYS_pidfd_open,
    SYS_pidfd_send_signal,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_mknodat,
    SYS_capset,
    SYS_setuid,
    SYS_setgid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_setgroups,
    SYS_personality,
    SYS_shmget,
    SYS_io_setup,
];

/// What the puller does not do of all that a cell may: start a program, signal others, listen, make devices; and what
/// Landlock has no rule for, which as root would reach every file of the machine: owners, attributes, and modes by name.
/// The mode of what it has open is looked at below.
const NEVER_OF_THE_PULLER: &[i64] = &[
    SYS_execve,
    SYS_execveat,
    SYS_kill,
    SYS_tkill,
    SYS_pidfd_open,
    SYS_pidfd_send_signal,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_listen,
    SYS_socketpair,
    SYS_mknodat,
    SYS_fchmodat,
    SYS_fchown,
    SYS_fchownat,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_fsetxattr,
    SYS_removexattr,
    SYS_lremovexattr,
    SYS_fremovexattr,
    // Landlock has known it since Linux 6.2.
    SYS_truncate,
    #[cfg(target_arch = "x86_64")]
    SYS_fork,
    #[cfg(target_arch = "x86_64")]
    SYS_vfork,
    #[cfg(target_arch = "x86_64")]
    SYS_creat,
    #[cfg(target_arch = "x86_64")]
    SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    SYS_chown,
    #[cfg(target_arch = "x86_64")]
    SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    SYS_utime,
    #[cfg(target_arch = "x86_64")]
    SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    SYS_futimesat,
];

fn conditions_of_the_daemon() -> Vec<(i64, Vec<Vec<Check>>)> {
    // linux/prctl.h and asm-generic/fcntl.h.
    const PR_GET_AUXV: u32 = 0x4155_5856;
    const F_SETSIG: i32 = 10;
    const F_SETOWN_EX: i32 = 15;
    let check = |argument, mask, value, equal| Check { argument, mask, value, equal };
    let is_not = |argument: u8, value: u32| check(argument, u32::MAX, value, false);
    let is = |argument: u8, value: u32| check(argument, u32::MAX, value, true);
    let number = |value: i32| value.cast_unsigned();
    let has = |argument: u8, flag: i32| check(argument, number(flag), number(flag), true);
    let mut clone = vec![vec![check(0, number(CLONE_THREAD), 0, true)]];
    clone.extend(NAMESPACE_FLAGS.map(|flag| vec![has(0, flag)]));
    vec![
        // No new process.
        (SYS_clone, clone),
        // No new code.
        (SYS_mmap, vec![vec![has(2, PROT_EXEC)]]),
        (SYS_mprotect, vec![vec![has(2, PROT_EXEC)]]),
        // No signal to another process.
        (SYS_tgkill, vec![vec![is_not(0, std::process::id())]]),
        (SYS_prctl, vec![vec![is_not(0, number(PR_SET_NAME)), is_not(0, PR_GET_AUXV)]]),
        (SYS_ioctl, vec![vec![is_not(1, FIONBIO as u32)]]),
        (SYS_socketpair, vec![vec![is_not(0, number(AF_UNIX))]]),
        (SYS_prlimit64, vec![vec![is_not(0, 0)], vec![is_not(2, 0)]]),
        // Signals by way of a descriptor's owner.
        (SYS_fcntl, [F_SETOWN, F_SETOWN_EX, F_SETSIG].map(|command| vec![is(1, number(command))]).to_vec()),
    ]
}

/// The conditions of a cell, but for those of what building takes.
fn conditions_of_the_keeper() -> Vec<(i64, Vec<Vec<Check>>)> {
    conditions().into_iter().filter(|(call, _)| *call != SYS_clone).collect()
}

/// The conditions of a cell that shares its namespaces, but that it may speak with the network, and with it alone.
fn conditions_of_the_puller() -> Vec<(i64, Vec<Vec<Check>>)> {
    // linux/sockios.h, asm-generic/sockios.h and asm-generic/fcntl.h.
    const FIOSETOWN: u32 = 0x8901;
    const SIOCSPGRP: u32 = 0x8902;
    const F_SETSIG: i32 = 10;
    const F_SETOWN_EX: i32 = 15;
    const PRIVILEGED: [u32; 2] = [S_ISUID, S_ISGID];
    let number = |value: i32| value.cast_unsigned();
    let is = |argument: u8, value: u32| Check { argument, mask: u32::MAX, value, equal: true };
    let is_not = |argument: u8, value: u32| Check { argument, mask: u32::MAX, value, equal: false };
    let has = |argument: u8, flag: u32| Check { argument, mask: flag, value: flag, equal: true };
    let lacks = |argument: u8, flag: u32| Check { argument, mask: flag, value: 0, equal: true };
    let more = [
        // No socket that is a file, such as a container engine's. The C library takes a refusal of netlink for "both".
        (SYS_socket, vec![vec![is(0, number(AF_UNIX))], vec![is(0, number(AF_NETLINK))]]),
        // No new process.
        (SYS_clone, vec![vec![lacks(0, number(CLONE_THREAD))]]),
        // No signal to another process, also not by way of a descriptor's owner.
        (SYS_tgkill, vec![vec![is_not(0, std::process::id())]]),
        (SYS_fcntl, [F_SETOWN, F_SETOWN_EX, F_SETSIG].map(|command| vec![is(1, number(command))]).to_vec()),
        (SYS_ioctl, [FIOSETOWN, SIOCSPGRP].map(|request| vec![is(1, request)]).to_vec()),
        // No program that runs as its owner; and what it may read outside the store stays nobody else's to write.
        (SYS_fchmod, [S_ISUID, S_ISGID, S_IWGRP, S_IWOTH].map(|bit| vec![has(1, bit)]).to_vec()),
        (SYS_openat, PRIVILEGED.map(|bit| vec![has(2, number(O_CREAT)), has(3, bit)]).to_vec()),
        #[cfg(target_arch = "x86_64")]
        (SYS_open, PRIVILEGED.map(|bit| vec![has(1, number(O_CREAT)), has(2, bit)]).to_vec()),
    ];
    let mut conditions = conditions();
    let in_company = conditions_in_company().into_iter().filter(|(call, _)| *call != SYS_socket);
    for (call, rules) in in_company.chain(more) {
        match conditions.iter_mut().find(|(known, _)| *known == call) {
            Some((_, known)) => known.extend(rules),
            None => conditions.push((call, rules)),
        }
    }
    conditions
}
