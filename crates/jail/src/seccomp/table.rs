//! The lists. A call that is on neither is ENOSYS.

use libc::*;

/// Calls that every kernel has, and the libc crate names on x86-64 only.
mod old {
    #[cfg(target_arch = "x86_64")]
    pub(super) use libc::{
        SYS_getrlimit as GETRLIMIT, SYS_renameat as RENAMEAT, SYS_setrlimit as SETRLIMIT,
        SYS_sync_file_range as SYNC_FILE_RANGE,
    };
    // From asm-generic/unistd.h.
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) const RENAMEAT: i64 = 38;
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) const SYNC_FILE_RANGE: i64 = 84;
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) const GETRLIMIT: i64 = 163;
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) const SETRLIMIT: i64 = 164;
}

/// What programs need: files, memory, threads, processes, signals, time, sockets, waiting.
pub(super) const ALLOWED: &[i64] = &[
    // Files by descriptor.
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_pwrite64,
    SYS_preadv,
    SYS_pwritev,
    SYS_preadv2,
    SYS_pwritev2,
    SYS_lseek,
    SYS_close,
    SYS_close_range,
    SYS_dup,
    SYS_dup3,
    SYS_fcntl,
    SYS_flock,
    SYS_fsync,
    SYS_fdatasync,
    SYS_sync,
    SYS_syncfs,
    old::SYNC_FILE_RANGE,
    SYS_ftruncate,
    SYS_truncate,
    SYS_fallocate,
    SYS_fadvise64,
    SYS_readahead,
    SYS_copy_file_range,
    SYS_sendfile,
    SYS_splice,
    SYS_tee,
    SYS_vmsplice,
    SYS_ioctl,
    // Files by name. Opening by handle goes round the tree, and is refused below.
    SYS_openat,
    SYS_openat2,
    SYS_getcwd,
    SYS_chdir,
    SYS_fchdir,
    SYS_mkdirat,
    SYS_mknodat,
    SYS_unlinkat,
    old::RENAMEAT,
    SYS_renameat2,
    SYS_linkat,
    SYS_symlinkat,
    SYS_readlinkat,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_fchown,
    SYS_fchownat,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_utimensat,
    SYS_umask,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_statfs,
    SYS_fstatfs,
    SYS_getdents64,
    SYS_getxattr,
    SYS_lgetxattr,
    SYS_fgetxattr,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_fsetxattr,
    SYS_listxattr,
    SYS_llistxattr,
    SYS_flistxattr,
    SYS_removexattr,
    SYS_lremovexattr,
    SYS_fremovexattr,
    SYS_inotify_init1,
    SYS_inotify_add_watch,
    SYS_inotify_rm_watch,
    SYS_memfd_create,
    SYS_pipe2,
    // Asynchronous file I/O of the old kind (MySQL and the like); io_uring is ENOSYS.
    SYS_io_setup,
    SYS_io_destroy,
    SYS_io_submit,
    SYS_io_cancel,
    SYS_io_getevents,
    // Memory.
    SYS_brk,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_mprotect,
    SYS_msync,
    SYS_madvise,
    SYS_mincore,
    SYS_mlock,
    SYS_mlock2,
    SYS_munlock,
    SYS_mlockall,
    SYS_munlockall,
    SYS_pkey_alloc,
    SYS_pkey_free,
    SYS_pkey_mprotect,
    SYS_membarrier,
    SYS_get_mempolicy,
    // Processes and threads.
    SYS_clone,
    SYS_execve,
    SYS_execveat,
    SYS_exit,
    SYS_exit_group,
    SYS_wait4,
    SYS_waitid,
    SYS_getpid,
    SYS_getppid,
    SYS_gettid,
    SYS_getpgid,
    SYS_setpgid,
    SYS_getsid,
    SYS_setsid,
    SYS_set_tid_address,
    SYS_set_robust_list,
    SYS_get_robust_list,
    SYS_rseq,
    SYS_futex,
    SYS_futex_waitv,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_sched_setaffinity,
    SYS_sched_getparam,
    SYS_sched_setparam,
    SYS_sched_getscheduler,
    SYS_sched_setscheduler,
    SYS_sched_getattr,
    SYS_sched_setattr,
    SYS_sched_get_priority_max,
    SYS_sched_get_priority_min,
    SYS_sched_rr_get_interval,
    SYS_getpriority,
    SYS_setpriority,
    SYS_ioprio_get,
    SYS_ioprio_set,
    old::GETRLIMIT,
    old::SETRLIMIT,
    SYS_prlimit64,
    SYS_getrusage,
    SYS_times,
    SYS_prctl,
    SYS_personality,
    SYS_getcpu,
    SYS_pidfd_open,
    SYS_pidfd_send_signal,
    // Only ever adds restrictions; no_new_privs is set.
    SYS_landlock_create_ruleset,
    SYS_landlock_add_rule,
    SYS_landlock_restrict_self,
    // Ids: without capabilities these change nothing, but programs ask.
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getresuid,
    SYS_getresgid,
    SYS_getgroups,
    SYS_setuid,
    SYS_setgid,
    SYS_setreuid,
    SYS_setregid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_setfsuid,
    SYS_setfsgid,
    SYS_setgroups,
    SYS_capget,
    SYS_capset,
    // Signals.
    SYS_kill,
    SYS_tkill,
    SYS_tgkill,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigpending,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_rt_sigreturn,
    SYS_rt_sigsuspend,
    SYS_rt_sigtimedwait,
    SYS_sigaltstack,
    SYS_signalfd4,
    SYS_restart_syscall,
    // Time.
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_getitimer,
    SYS_setitimer,
    SYS_timer_create,
    SYS_timer_settime,
    SYS_timer_gettime,
    SYS_timer_getoverrun,
    SYS_timer_delete,
    SYS_timerfd_create,
    SYS_timerfd_settime,
    SYS_timerfd_gettime,
    // Waiting.
    SYS_ppoll,
    SYS_pselect6,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_epoll_pwait2,
    SYS_eventfd2,
    // Sockets; families are looked at by the conditions.
    SYS_socket,
    SYS_socketpair,
    SYS_bind,
    SYS_listen,
    SYS_accept,
    SYS_accept4,
    SYS_connect,
    SYS_getsockname,
    SYS_getpeername,
    SYS_getsockopt,
    SYS_setsockopt,
    SYS_sendto,
    SYS_recvfrom,
    SYS_sendmsg,
    SYS_recvmsg,
    SYS_sendmmsg,
    SYS_recvmmsg,
    SYS_shutdown,
    // Messages between the cell's own processes (its own ipc namespace).
    SYS_shmget,
    SYS_shmat,
    SYS_shmdt,
    SYS_shmctl,
    SYS_semget,
    SYS_semop,
    SYS_semtimedop,
    SYS_semctl,
    SYS_msgget,
    SYS_msgsnd,
    SYS_msgrcv,
    SYS_msgctl,
    SYS_mq_open,
    SYS_mq_unlink,
    SYS_mq_timedsend,
    SYS_mq_timedreceive,
    SYS_mq_notify,
    SYS_mq_getsetattr,
    // What the system is.
    SYS_uname,
    SYS_sysinfo,
    SYS_getrandom,
    // The forms that x86-64 has had from the beginning.
    #[cfg(target_arch = "x86_64")]
    SYS_open,
    #[cfg(target_arch = "x86_64")]
    SYS_creat,
    #[cfg(target_arch = "x86_64")]
    SYS_stat,
    #[cfg(target_arch = "x86_64")]
    SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    SYS_access,
    #[cfg(target_arch = "x86_64")]
    SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    SYS_rename,
    #[cfg(target_arch = "x86_64")]
    SYS_link,
    #[cfg(target_arch = "x86_64")]
    SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    SYS_readlink,
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
    #[cfg(target_arch = "x86_64")]
    SYS_getdents,
    #[cfg(target_arch = "x86_64")]
    SYS_inotify_init,
    #[cfg(target_arch = "x86_64")]
    SYS_pipe,
    #[cfg(target_arch = "x86_64")]
    SYS_dup2,
    #[cfg(target_arch = "x86_64")]
    SYS_fork,
    #[cfg(target_arch = "x86_64")]
    SYS_vfork,
    #[cfg(target_arch = "x86_64")]
    SYS_getpgrp,
    #[cfg(target_arch = "x86_64")]
    SYS_arch_prctl,
    #[cfg(target_arch = "x86_64")]
    SYS_time,
    #[cfg(target_arch = "x86_64")]
    SYS_alarm,
    #[cfg(target_arch = "x86_64")]
    SYS_pause,
    #[cfg(target_arch = "x86_64")]
    SYS_poll,
    #[cfg(target_arch = "x86_64")]
    SYS_select,
    #[cfg(target_arch = "x86_64")]
    SYS_epoll_create,
    #[cfg(target_arch = "x86_64")]
    SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    SYS_eventfd,
    #[cfg(target_arch = "x86_64")]
    SYS_signalfd,
];

/// What is dangerous, or would be with a capability: EPERM, as a kernel answers one who has none.
pub(super) const REFUSED: &[i64] = &[
    // Namespaces.
    SYS_unshare,
    SYS_setns,
    // Mounts and roots.
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_move_mount,
    SYS_open_tree,
    SYS_mount_setattr,
    SYS_swapon,
    SYS_swapoff,
    SYS_quotactl,
    SYS_quotactl_fd,
    // Files past the tree, and watching those of others.
    SYS_open_by_handle_at,
    SYS_name_to_handle_at,
    SYS_fanotify_init,
    SYS_fanotify_mark,
    // Other processes' memory and descriptors.
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_process_madvise,
    SYS_process_mrelease,
    SYS_pidfd_getfd,
    SYS_kcmp,
    SYS_migrate_pages,
    SYS_move_pages,
    SYS_mbind,
    SYS_set_mempolicy,
    // Programs in the kernel, faults handled by users, watching the machine.
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_seccomp,
    // Keys.
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    // The machine itself.
    SYS_kexec_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_reboot,
    SYS_syslog,
    SYS_acct,
    SYS_vhangup,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_adjtimex,
    #[cfg(target_arch = "x86_64")]
    SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    SYS_modify_ldt,
];

/// Allowed above, and refused to what shares its namespaces with others: what these make is named for everybody, and
/// stays when its maker has gone; and Landlock has no rule for watches, which name the files that others make and open
/// wherever the mode of a folder allows it.
pub(super) const REFUSED_IN_COMPANY: &[i64] = &[
    SYS_shmget,
    SYS_shmat,
    SYS_shmdt,
    SYS_shmctl,
    SYS_semget,
    SYS_semop,
    SYS_semtimedop,
    SYS_semctl,
    SYS_msgget,
    SYS_msgsnd,
    SYS_msgrcv,
    SYS_msgctl,
    SYS_mq_open,
    SYS_mq_unlink,
    SYS_mq_timedsend,
    SYS_mq_timedreceive,
    SYS_mq_notify,
    SYS_mq_getsetattr,
    #[cfg(target_arch = "x86_64")]
    SYS_inotify_init,
    SYS_inotify_init1,
    SYS_inotify_add_watch,
    SYS_inotify_rm_watch,
];
