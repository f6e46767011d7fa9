//! The system call filter: an allow list. Calls that are not listed fail with EPERM.
//!
//! Calls that take a process id, a command or flags are allowed for harmless arguments only. Some calls depend on the
//! [`Isolation`]: a namespace makes them harmless, so without it they are refused. Invariant: a filter is never relaxed
//! because the kernel lacks something.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use super::Isolation;

/// Calls without restriction on any architecture.
const ALLOWED: &[libc::c_long] = &[
    // Files by descriptor.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_lseek,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_flock,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_getdents64,
    libc::SYS_fchdir,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_vmsplice,
    libc::SYS_copy_file_range,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_signalfd4,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    // Files by path. Landlock checks these.
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_chdir,
    libc::SYS_getcwd,
    libc::SYS_umask,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_fgetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_flistxattr,
    // Memory of the process itself.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_msync,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_mlockall,
    libc::SYS_munlockall,
    libc::SYS_membarrier,
    libc::SYS_get_mempolicy,
    libc::SYS_set_mempolicy,
    libc::SYS_mbind,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
    MAP_SHADOW_STACK,
    MSEAL,
    // Processes and threads.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_clone3, // Hidden by the other filter.
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    FUTEX_WAKE,
    FUTEX_WAIT,
    FUTEX_REQUEUE,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpgid,
    libc::SYS_setpgid,
    libc::SYS_getsid,
    libc::SYS_setsid,
    libc::SYS_pidfd_open,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_capget,
    // Without capabilities, these change nothing that the process does not have already.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_getrusage,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_rr_get_interval,
    libc::SYS_getpriority,
    libc::SYS_getcpu,
    // Signals of the process itself.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // Time.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_times,
    libc::SYS_getitimer,
    libc::SYS_setitimer,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_gettime,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_delete,
    // The system.
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrandom,
    // Socket pairs. `sendmsg` is missing: a descriptor in flight is not counted by any limit.
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
];

/// The older forms of these calls. Newer architectures do not have them.
#[cfg(target_arch = "x86_64")]
const ALLOWED_LEGACY: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_getdents,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_signalfd,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_setrlimit,
    libc::SYS_arch_prctl,
    libc::SYS_time,
    libc::SYS_alarm,
    libc::SYS_pause,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_LEGACY: &[libc::c_long] = &[];

/// Changes of mode, owner and times. Landlock does not check them.
const METADATA: &[libc::c_long] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
];
#[cfg(target_arch = "x86_64")]
const METADATA_LEGACY: &[libc::c_long] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
const METADATA_LEGACY: &[libc::c_long] = &[];

/// More changes by path or descriptor that Landlock does not check, or not in its first versions.
const ATTRIBUTES: &[libc::c_long] = &[
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_truncate,
];

/// Signals to any process that the sandbox can see.
const SIGNALS: &[libc::c_long] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
];

// Newer calls, with the same number on every architecture. `libc` does not have all of them.
const FCHMODAT2: libc::c_long = 452;
const MAP_SHADOW_STACK: libc::c_long = 453;
const FUTEX_WAKE: libc::c_long = 454;
const FUTEX_WAIT: libc::c_long = 455;
const FUTEX_REQUEUE: libc::c_long = 456;
const MSEAL: libc::c_long = 462;
/// Calls that did not exist when this list was written. Programs know how to do without a call that the kernel lacks.
const UNKNOWN: std::ops::Range<libc::c_long> = 470..520;

/// Flags of `clone` that create namespaces, or give the child another parent.
const CLONE_DENIED: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_PARENT;
/// Terminal and pipe queries. Everything else is denied: attributes of files, input into terminals, devices.
const IOCTLS: &[u64] = &[
    0x5401,      // TCGETS
    0x802c_542a, // TCGETS2
    0x5413,      // TIOCGWINSZ
    0x540f,      // TIOCGPGRP
    0x541b,      // FIONREAD
    0x5421,      // FIONBIO
    0x5451,      // FIOCLEX
    0x5450,      // FIONCLEX
];
const PRCTLS: &[libc::c_int] = &[
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_SET_PDEATHSIG,
    libc::PR_GET_PDEATHSIG,
    libc::PR_GET_DUMPABLE,
    libc::PR_CAPBSET_READ,
    libc::PR_SET_NO_NEW_PRIVS,
    libc::PR_GET_NO_NEW_PRIVS,
    libc::PR_GET_SECCOMP,
    libc::PR_GET_TIMERSLACK,
    libc::PR_SET_TIMERSLACK,
    libc::PR_GET_THP_DISABLE,
    libc::PR_SET_THP_DISABLE,
    libc::PR_SET_VMA,
];
/// Commands of `fcntl` that make the kernel send signals to another process.
const FCNTLS_DENIED: [libc::c_int; 2] = [libc::F_SETOWN, F_SETOWN_EX];
const F_SETOWN_EX: libc::c_int = 15;
/// Buffers and timeouts. Others load programs into the kernel.
const SOCKET_OPTIONS: [libc::c_int; 4] =
    [libc::SO_SNDBUF, libc::SO_RCVBUF, libc::SO_SNDTIMEO, libc::SO_RCVTIMEO];

type Rules = BTreeMap<libc::c_long, Vec<SeccompRule>>;

/// Installs the filter in this process.
pub(super) fn install(isolation: Isolation) -> Result<(), String> {
    let failed = |error: BackendError| error.to_string();
    let mut hidden: Rules = UNKNOWN.map(|call| (call, Vec::new())).collect();
    // A filter cannot read the flags of `clone3`. With ENOSYS, programs fall back to `clone`.
    hidden.insert(libc::SYS_clone3, Vec::new());
    let allowed = allowed(isolation).map_err(failed)?;
    let deny = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let hide = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    apply(hidden, SeccompAction::Allow, hide)?;
    if isolation != Isolation::Namespaces {
        // Success without effect: `shutil.copy`, `tar` and `touch` change the mode or times of their own files, and a
        // filter cannot see the file behind the arguments.
        let ignored = METADATA.iter().chain(METADATA_LEGACY).map(|call| (*call, Vec::new())).collect();
        apply(ignored, SeccompAction::Allow, SeccompAction::Errno(0))?;
    }
    apply(allowed, deny, SeccompAction::Allow)
}

fn apply(rules: Rules, otherwise: SeccompAction, listed: SeccompAction) -> Result<(), String> {
    let failed = |error: BackendError| error.to_string();
    let arch = std::env::consts::ARCH.try_into().map_err(failed)?;
    let filter = SeccompFilter::new(rules, otherwise, listed, arch).map_err(failed)?;
    let program: BpfProgram = filter.try_into().map_err(failed)?;
    seccompiler::apply_filter(&program).map_err(|error| error.to_string())
}

fn allowed(isolation: Isolation) -> Result<Rules, BackendError> {
    let all = [ALLOWED, ALLOWED_LEGACY, METADATA, METADATA_LEGACY];
    let mut rules: Rules = all.into_iter().flatten().map(|call| (*call, Vec::new())).collect();
    match isolation {
        Isolation::Namespaces => {
            rules.extend(unconditional(ATTRIBUTES).chain(unconditional(SIGNALS)));
            // The first process is ours. The kernel would ignore the signal and report success.
            for call in [libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill, libc::SYS_rt_sigqueueinfo] {
                rules.insert(call, vec![SeccompRule::new(vec![different(0, 1)?])?]);
            }
        }
        Isolation::ScopedSignals => rules.extend(unconditional(SIGNALS)),
        Isolation::FilterOnly => {
            // Only to itself: the numbers of its children are not known yet.
            let own = u64::from(std::process::id());
            rules.insert(libc::SYS_kill, vec![equals(0, own)?]);
            rules.insert(libc::SYS_tgkill, vec![equals(0, own)?]);
        }
    }
    // Processes, and threads that share their descriptors: limits are checked on one thread of a process.
    let (thread, shared) = (libc::CLONE_THREAD, libc::CLONE_THREAD | libc::CLONE_FILES);
    let process = masked(0, CLONE_DENIED | thread, 0)?;
    rules.insert(libc::SYS_clone, vec![process, masked(0, CLONE_DENIED | shared, number(shared))?]);
    rules.insert(libc::SYS_prlimit64, vec![equals(0, 0)?]);
    // A process id of zero is the caller.
    for call in [
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setattr,
        libc::SYS_sched_getattr,
    ] {
        rules.insert(call, vec![equals(0, 0)?]);
    }
    rules.insert(libc::SYS_setpriority, vec![SeccompRule::new(vec![equal(0, 0)?, equal(1, 0)?])?]);
    rules
        .insert(libc::SYS_ioctl, IOCTLS.iter().map(|command| equals(1, *command)).collect::<Result<_, _>>()?);
    let prctls = PRCTLS.iter().map(|option| equals(0, number(*option)));
    rules.insert(libc::SYS_prctl, prctls.collect::<Result<_, _>>()?);
    let unowned = FCNTLS_DENIED.map(|command| different(1, number(command))).into_iter();
    rules.insert(libc::SYS_fcntl, vec![SeccompRule::new(unowned.collect::<Result<_, _>>()?)?]);
    rules.insert(libc::SYS_socketpair, vec![equals(0, number(libc::AF_UNIX))?]);
    // No address: a datagram socket of a pair could reach other sockets.
    let no_address = SeccompCondition::new(4, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
    rules.insert(libc::SYS_sendto, vec![SeccompRule::new(vec![no_address])?]);
    let options = SOCKET_OPTIONS.iter().map(|option| {
        SeccompRule::new(vec![equal(1, number(libc::SOL_SOCKET))?, equal(2, number(*option))?])
    });
    rules.insert(libc::SYS_setsockopt, options.collect::<Result<_, _>>()?);
    // The query, Linux, and Linux without address randomization.
    let personas = [u64::from(u32::MAX), 0, number(libc::ADDR_NO_RANDOMIZE)];
    rules.insert(
        libc::SYS_personality,
        personas.map(|persona| equals(0, persona)).into_iter().collect::<Result<_, _>>()?,
    );
    // Regular files and named pipes, no devices.
    let kinds = |argument| {
        [0, libc::S_IFREG, libc::S_IFIFO].map(|kind| file_kind(argument, kind)).into_iter().collect()
    };
    let made: Result<Vec<_>, BackendError> = kinds(2);
    rules.insert(libc::SYS_mknodat, made?);
    #[cfg(target_arch = "x86_64")]
    {
        let made: Result<Vec<_>, BackendError> = kinds(1);
        rules.insert(libc::SYS_mknod, made?);
    }
    Ok(rules)
}

fn unconditional(calls: &[libc::c_long]) -> impl Iterator<Item = (libc::c_long, Vec<SeccompRule>)> {
    calls.iter().map(|call| (*call, Vec::new()))
}

/// The argument as the kernel reads it: 32 bits, and negative numbers as their complement.
fn number(value: libc::c_int) -> u64 {
    u64::from(value.cast_unsigned())
}

fn equal(argument: u8, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

fn different(argument: u8, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value)
}

fn equals(argument: u8, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![equal(argument, value)?])
}

fn masked(argument: u8, mask: libc::c_int, value: u64) -> Result<SeccompRule, BackendError> {
    let op = SeccompCmpOp::MaskedEq(number(mask));
    SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value)?])
}

fn file_kind(argument: u8, kind: libc::mode_t) -> Result<SeccompRule, BackendError> {
    let op = SeccompCmpOp::MaskedEq(u64::from(libc::S_IFMT));
    SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, u64::from(kind))?])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel rejects programs with more instructions.
    const MAX_INSTRUCTIONS: usize = 4096;

    #[test]
    fn every_filter_compiles() {
        for isolation in [Isolation::Namespaces, Isolation::ScopedSignals, Isolation::FilterOnly] {
            let rules = allowed(isolation).unwrap();
            let deny = SeccompAction::Errno(1);
            let arch = std::env::consts::ARCH.try_into().unwrap();
            let filter = SeccompFilter::new(rules, deny, SeccompAction::Allow, arch).unwrap();
            let program: BpfProgram = filter.try_into().unwrap();
            assert!(program.len() < MAX_INSTRUCTIONS, "{isolation:?}: {}", program.len());
        }
    }

    #[test]
    fn without_a_namespace_no_other_process_is_signalled() {
        let rules = allowed(Isolation::FilterOnly).unwrap();
        for call in SIGNALS {
            let restricted = rules.get(call).is_none_or(|rules| !rules.is_empty());
            assert!(restricted, "{call}");
        }
    }

    #[test]
    fn hostile_calls_are_not_listed() {
        let rules = allowed(Isolation::Namespaces).unwrap();
        for call in [
            libc::SYS_socket,
            libc::SYS_connect,
            libc::SYS_bind,
            libc::SYS_sendmsg,
            libc::SYS_sendmmsg,
            libc::SYS_ptrace,
            libc::SYS_process_vm_writev,
            libc::SYS_pidfd_getfd,
            libc::SYS_mount,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_chroot,
            libc::SYS_bpf,
            libc::SYS_io_uring_setup,
            libc::SYS_keyctl,
            libc::SYS_userfaultfd,
            libc::SYS_perf_event_open,
            libc::SYS_memfd_create,
            libc::SYS_shmget,
            libc::SYS_semget,
            libc::SYS_msgget,
            libc::SYS_mq_open,
            libc::SYS_open_by_handle_at,
            libc::SYS_seccomp,
        ] {
            assert!(!rules.contains_key(&call), "{call}");
        }
    }
}
