//! The sandbox: restricts a program and everything it starts.
//!
//! `toolgate shim confine [--read PATH]… [--write PATH]… -- PROGRAM ARGUMENT…`
//!
//! Landlock restricts the visible files. seccomp blocks sockets, and system calls that inspect other processes or
//! reconfigure the system. This process restricts itself and then executes the program in place, so nothing runs in
//! between. Invariant: the program does not run unless all restrictions are in force.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope, path_beneath_rules,
};
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::shim::{CANNOT_START, log_line};

/// The subcommand of `shim`.
pub(crate) const SUBCOMMAND: &str = "confine";
/// The prefix of the stderr line that reports a sandbox failure.
pub(crate) const SANDBOX_FAILED: &str = "cannot create the sandbox: ";
/// Readable paths that every program needs. From `/etc` only files without secrets.
const SYSTEM_PATHS: [&str; 20] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/etc/alternatives",
    "/etc/group",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
];
/// Devices that every program may write to.
const WRITABLE_DEVICES: [&str; 2] = ["/dev/null", "/dev/full"];
/// The newest Landlock ABI to use, if the kernel supports it.
const NEWEST_ABI: ABI = ABI::V6;

/// Paths to allow, in addition to the system paths.
#[derive(Debug, Clone, Default)]
pub(crate) struct SandboxPaths {
    pub(crate) read: Vec<PathBuf>,
    pub(crate) write: Vec<PathBuf>,
}

impl SandboxPaths {
    /// The arguments of `toolgate` that run a program in this sandbox.
    pub(crate) fn to_command_line(&self, program: OsString, args: Vec<OsString>) -> Vec<OsString> {
        let mut line: Vec<OsString> = vec!["shim".into(), SUBCOMMAND.into()];
        for (flag, paths) in [("--read", &self.read), ("--write", &self.write)] {
            line.extend(paths.iter().flat_map(|path| [flag.into(), path.into()]));
        }
        line.extend(["--".into(), program]);
        line.extend(args);
        line
    }
}

/// Returns true if the kernel supports Landlock.
pub fn is_supported() -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset.handle_access(AccessFs::from_all(ABI::V1)).and_then(Ruleset::create).is_ok()
}

#[expect(clippy::disallowed_methods, reason = "this process becomes the program")]
pub(super) fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let (paths, program, args) = match parse(args) {
        Ok(parsed) => parsed,
        Err(why) => {
            log_line(&format!("confine: {why}"));
            return ExitCode::from(2);
        }
    };
    if let Err(why) = restrict_files(&paths).and_then(|()| restrict_system_calls()) {
        log_line(&format!("{SANDBOX_FAILED}{why}"));
        return ExitCode::from(CANNOT_START);
    }
    let error = Command::new(&program).args(args).exec();
    log_line(&format!("cannot start `{}`: {error}", program.display()));
    ExitCode::from(CANNOT_START)
}

fn parse(
    mut args: impl Iterator<Item = OsString>,
) -> Result<(SandboxPaths, OsString, Vec<OsString>), String> {
    let mut paths = SandboxPaths::default();
    loop {
        let flag = args.next().ok_or("no program is given")?;
        let mut path = || args.next().map(PathBuf::from).ok_or("a path is missing");
        match flag.to_str() {
            Some("--read") => paths.read.push(path()?),
            Some("--write") => paths.write.push(path()?),
            Some("--") => {
                let program = args.next().ok_or("no program is given")?;
                return Ok((paths, program, args.collect()));
            }
            _ => return Err(format!("unknown flag `{}`", flag.display())),
        }
    }
}

/// Restricts this process to these files, without TCP, and without signals to processes outside.
fn restrict_files(paths: &SandboxPaths) -> Result<(), String> {
    let message = |error: &dyn std::error::Error| error.to_string();
    let reads = SYSTEM_PATHS.iter().map(PathBuf::from).chain(paths.read.iter().cloned());
    let writes = WRITABLE_DEVICES.iter().map(PathBuf::from).chain(paths.write.iter().cloned());
    if !is_supported() {
        return Err("this kernel does not support Landlock".to_owned());
    }
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST_ABI))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(NEWEST_ABI)))
        .and_then(|rules| rules.scope(Scope::from_all(NEWEST_ABI)))
        .and_then(Ruleset::create)
        .and_then(|rules| rules.add_rules(path_beneath_rules(reads, AccessFs::from_read(NEWEST_ABI))))
        .and_then(|rules| rules.add_rules(path_beneath_rules(writes, AccessFs::from_all(NEWEST_ABI))))
        .and_then(|rules| rules.restrict_self())
        .map_err(|error| message(&error))?;
    if status.ruleset == RulesetStatus::NotEnforced { Err("Landlock is disabled".to_owned()) } else { Ok(()) }
}

/// Blocks system calls in this process.
fn restrict_system_calls() -> Result<(), String> {
    let denied = [
        // No network, and no connection to local services.
        libc::SYS_socket,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_listen,
        // Would bypass this filter.
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        // Memory, files and keys of other processes.
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_pidfd_getfd,
        libc::SYS_kcmp,
        libc::SYS_open_by_handle_at,
        libc::SYS_name_to_handle_at,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        // Memory that no limit counts.
        libc::SYS_memfd_create,
        libc::SYS_memfd_secret,
        libc::SYS_shmget,
        // Reconfiguration of the system.
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_fsopen,
        libc::SYS_fsmount,
        libc::SYS_fsconfig,
        libc::SYS_fspick,
        libc::SYS_move_mount,
        libc::SYS_open_tree,
        libc::SYS_mount_setattr,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_kexec_load,
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_sethostname,
        libc::SYS_setdomainname,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_acct,
        libc::SYS_quotactl,
        libc::SYS_syslog,
    ];
    let namespaces = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    let namespace = |flag: libc::c_int| {
        let flag = u64::from(flag.unsigned_abs());
        let holds = SeccompCmpOp::MaskedEq(flag);
        SeccompRule::new(vec![SeccompCondition::new(0, SeccompCmpArgLen::Qword, holds, flag)?])
    };
    let namespaces: Result<Vec<_>, _> = namespaces.into_iter().map(namespace).collect();
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        denied.into_iter().map(|call| (call, Vec::new())).collect();
    rules.insert(libc::SYS_clone, namespaces.map_err(|error| error.to_string())?);
    // A filter cannot read the flags of `clone3`. With ENOSYS, programs fall back to `clone`.
    let hidden = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    apply_filter(hidden, libc::ENOSYS)?;
    apply_filter(rules, libc::EPERM)
}

fn apply_filter(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: libc::c_int) -> Result<(), String> {
    let message = |error: &dyn std::error::Error| error.to_string();
    let rules = with_x32_numbers(rules);
    let arch =
        std::env::consts::ARCH.try_into().map_err(|error: seccompiler::BackendError| message(&error))?;
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).map_err(|error| message(&error))?;
    let program: BpfProgram =
        filter.try_into().map_err(|error: seccompiler::BackendError| message(&error))?;
    seccompiler::apply_filter(&program).map_err(|error| message(&error))
}

/// Adds the x32 number of every call: on x86-64, some kernels accept calls under a second number.
fn with_x32_numbers(mut rules: BTreeMap<i64, Vec<SeccompRule>>) -> BTreeMap<i64, Vec<SeccompRule>> {
    const X32: i64 = 0x4000_0000;
    if cfg!(target_arch = "x86_64") {
        let second: Vec<_> = rules.iter().map(|(call, rule)| (call | X32, rule.clone())).collect();
        rules.extend(second);
    }
    rules
}
