//! The filters of the server's own processes, run by the interpreter of the other tests.

use super::own::{Own, answers, compile};
use super::tests::{ALLOW, AUDIT_ARCH, refused, run};
use super::tree::Answer;
use super::{ALLOWED, REFUSED};

fn answer(own: Own, call: i64, arguments: &[u64]) -> u32 {
    run(&compile(own).unwrap(), AUDIT_ARCH, call as u32, arguments)
}

fn eperm(own: Own, call: i64, arguments: &[u64]) -> bool {
    answer(own, call, arguments) == refused(libc::EPERM)
}

#[test]
fn no_process_of_ours_asks_for_what_is_dangerous() {
    use libc::*;
    for own in [Own::Daemon, Own::Warden, Own::Keeper, Own::Puller] {
        for call in [SYS_ptrace, SYS_bpf, SYS_init_module, SYS_finit_module, SYS_kexec_load, SYS_keyctl, SYS_reboot] {
            assert!(eperm(own, call, &[]), "{own:?} {call}");
        }
        for call in [SYS_process_vm_writev, SYS_pidfd_getfd, SYS_open_by_handle_at, SYS_userfaultfd, SYS_swapon] {
            assert!(eperm(own, call, &[]), "{own:?} {call}");
        }
        for call in [SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, 1999] {
            assert_eq!(answer(own, call, &[]), refused(ENOSYS), "{own:?} {call}");
        }
    }
}

#[test]
fn who_faces_the_network_starts_nothing_and_reaches_nobody() {
    use libc::*;
    for own in [Own::Daemon, Own::Warden] {
        for call in [SYS_execve, SYS_execveat, SYS_socket, SYS_connect, SYS_bind, SYS_listen, SYS_kill, SYS_mknodat] {
            assert!(eperm(own, call, &[]), "{own:?} {call}");
        }
        for call in [SYS_mount, SYS_unshare, SYS_setns, SYS_pivot_root, SYS_chroot, SYS_seccomp, SYS_capset] {
            assert!(eperm(own, call, &[]), "{own:?} {call}");
        }
    }
}

#[test]
fn what_pulls_images_connects_and_starts_nothing() {
    use libc::*;
    for call in [SYS_execve, SYS_execveat, SYS_listen, SYS_kill, SYS_tkill, SYS_pidfd_send_signal, SYS_mknodat] {
        assert!(eperm(Own::Puller, call, &[]), "{call}");
    }
    for call in [SYS_mount, SYS_unshare, SYS_setns, SYS_pivot_root, SYS_chroot, SYS_seccomp, SYS_open_tree] {
        assert_ne!(answer(Own::Puller, call, &[]), ALLOW, "{call}");
    }
    for family in [AF_INET, AF_INET6] {
        assert_eq!(answer(Own::Puller, SYS_socket, &[family as u64, SOCK_STREAM as u64]), ALLOW);
        assert!(eperm(Own::Puller, SYS_socket, &[family as u64, SOCK_RAW as u64]));
    }
    for family in [AF_UNIX, AF_NETLINK] {
        assert!(eperm(Own::Puller, SYS_socket, &[family as u64, SOCK_STREAM as u64]));
    }
    assert!(eperm(Own::Puller, SYS_socketpair, &[AF_UNIX as u64]));
    let thread = (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD) as u64;
    assert_eq!(answer(Own::Puller, SYS_clone, &[thread]), ALLOW);
    assert!(eperm(Own::Puller, SYS_clone, &[SIGCHLD as u64]));
    assert_eq!(answer(Own::Puller, SYS_tgkill, &[std::process::id().into()]), ALLOW);
    assert!(eperm(Own::Puller, SYS_tgkill, &[1]) && eperm(Own::Puller, SYS_sched_setaffinity, &[1]));
    assert!(eperm(Own::Puller, SYS_fcntl, &[0, F_SETOWN as u64]) && eperm(Own::Puller, SYS_ioctl, &[0, 0x8901]));
    assert_eq!(answer(Own::Puller, SYS_connect, &[]), ALLOW);
    assert!(eperm(Own::Puller, SYS_socket, &[AF_PACKET as u64]));
}

#[test]
fn what_pulls_images_changes_no_file_that_it_has_not_open() {
    use libc::*;
    for call in [SYS_fchmodat, SYS_fchown, SYS_fchownat, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr, SYS_truncate] {
        assert!(eperm(Own::Puller, call, &[]), "{call}");
    }
    for call in [SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, SYS_shmget, SYS_inotify_add_watch] {
        assert!(eperm(Own::Puller, call, &[]), "{call}");
    }
    #[cfg(target_arch = "x86_64")]
    for call in [SYS_chmod, SYS_chown, SYS_lchown, SYS_utime, SYS_utimes, SYS_creat, SYS_mknod, SYS_fork] {
        assert!(eperm(Own::Puller, call, &[]), "{call}");
    }
    // fchmodat2, and setxattrat and removexattrat.
    for call in [452, 463, 466] {
        assert_eq!(answer(Own::Puller, call, &[]), refused(ENOSYS), "{call}");
    }
    for mode in [0o755, 0o600, 0o1700, 0o000] {
        assert_eq!(answer(Own::Puller, SYS_fchmod, &[3, mode]), ALLOW, "{mode:o}");
    }
    for mode in [0o4755, 0o2755, 0o775, 0o757] {
        assert!(eperm(Own::Puller, SYS_fchmod, &[3, mode]), "{mode:o}");
    }
    let made = |mode: u64| [0, 0, (O_WRONLY | O_CREAT) as u64, mode];
    assert_eq!(answer(Own::Puller, SYS_openat, &made(0o666)), ALLOW);
    #[cfg(target_arch = "x86_64")]
    for (mode, answered) in [(0o666, ALLOW), (0o4755, refused(EPERM)), (0o2755, refused(EPERM))] {
        assert_eq!(answer(Own::Puller, SYS_open, &made(mode)[1..]), answered, "{mode:o}");
    }
    assert!(eperm(Own::Puller, SYS_openat, &made(0o4755)) && eperm(Own::Puller, SYS_openat, &made(0o2755)));
}

#[test]
fn the_daemon_makes_threads_and_no_processes() {
    let thread =
        (libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SIGHAND | libc::CLONE_THREAD) as u64;
    assert_eq!(answer(Own::Daemon, libc::SYS_clone, &[thread]), ALLOW);
    for flags in [0, libc::SIGCHLD, libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD] {
        assert!(eperm(Own::Daemon, libc::SYS_clone, &[flags as u64]), "{flags:#x}");
    }
    assert!(eperm(Own::Daemon, libc::SYS_clone, &[thread | libc::CLONE_NEWNET as u64]));
    assert_eq!(answer(Own::Daemon, libc::SYS_clone3, &[]), refused(libc::ENOSYS));
}

#[test]
fn the_daemon_brings_no_code_into_its_memory() {
    let data = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        assert_eq!(answer(Own::Daemon, call, &[0, 4096, data]), ALLOW);
        assert!(eperm(Own::Daemon, call, &[0, 4096, data | libc::PROT_EXEC as u64]), "{call}");
    }
    assert_eq!(answer(Own::Daemon, libc::SYS_pkey_mprotect, &[0, 4096, 4]), refused(libc::ENOSYS));
}

#[test]
fn the_daemon_signals_itself_alone() {
    assert_eq!(answer(Own::Daemon, libc::SYS_tgkill, &[std::process::id().into()]), ALLOW);
    assert!(eperm(Own::Daemon, libc::SYS_tgkill, &[1]));
    for command in [libc::F_SETOWN, 15, 10] {
        assert!(eperm(Own::Daemon, libc::SYS_fcntl, &[0, command as u64]), "{command}");
    }
    assert_eq!(answer(Own::Daemon, libc::SYS_fcntl, &[0, libc::F_SETFL as u64]), ALLOW);
}

#[test]
fn the_daemon_changes_nothing_of_what_it_is() {
    for option in [libc::PR_SET_DUMPABLE, libc::PR_CAPBSET_DROP, libc::PR_SET_SECCOMP, libc::PR_SET_MM] {
        assert!(eperm(Own::Daemon, libc::SYS_prctl, &[option as u64]), "{option}");
    }
    assert_eq!(answer(Own::Daemon, libc::SYS_prctl, &[libc::PR_SET_NAME as u64]), ALLOW);
    assert!(eperm(Own::Daemon, libc::SYS_ioctl, &[0, libc::TIOCSTI]));
    assert_eq!(answer(Own::Daemon, libc::SYS_ioctl, &[0, libc::FIONBIO]), ALLOW);
    assert_eq!(answer(Own::Daemon, libc::SYS_prlimit64, &[0, 7, 0, 4096]), ALLOW);
    assert!(eperm(Own::Daemon, libc::SYS_prlimit64, &[0, 7, 4096]) && eperm(Own::Daemon, libc::SYS_prlimit64, &[1]));
    assert!(eperm(Own::Daemon, libc::SYS_socketpair, &[libc::AF_INET as u64]));
}

/// The keeper's filter lies under that of every cell: what it refused, cells could not do.
#[test]
fn the_keepers_filter_takes_nothing_from_cells() {
    let keeper = answers(Own::Keeper);
    let cell = super::answers(super::Surroundings::Own);
    for (call, of_the_cell) in cell {
        let of_the_keeper = keeper.get(&call);
        match of_the_cell {
            Answer::Allow => assert_eq!(of_the_keeper, Some(&Answer::Allow), "call {call}"),
            Answer::RefuseIf(_) if i64::from(call) == libc::SYS_clone => {
                assert_eq!(of_the_keeper, Some(&Answer::Allow));
            }
            Answer::RefuseIf(rules) => assert_eq!(of_the_keeper, Some(&Answer::RefuseIf(rules)), "call {call}"),
            Answer::Errno(_) => {}
        }
    }
}

#[test]
fn each_list_names_a_call_once() {
    for own in [Own::Daemon, Own::Warden, Own::Keeper, Own::Puller] {
        let allowed = super::own::lists(own).iter().copied().flatten().count();
        let distinct: std::collections::BTreeSet<&i64> = super::own::lists(own).iter().copied().flatten().collect();
        assert_eq!(allowed, distinct.len(), "{own:?}");
    }
    assert!(ALLOWED.iter().all(|call| !REFUSED.contains(call)));
}
