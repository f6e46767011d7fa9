//! The sandbox: what a program may not do, whatever it is, and whatever it starts.
//!
//! `toolgate shim confine [--read PATH]… [--write PATH]… -- PROGRAM ARGUMENT…`
//!
//! Landlock says which files there are for it; seccomp, that there are no sockets and none of the system calls by which
//! programs look into others or reshape the system. This process limits itself and then becomes the program, so nothing
//! runs between the two. Invariant: the program does not run unless all of it holds.

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

use super::shim::{CANNOT_START, say};

/// What leads here.
pub(crate) const COMMAND: &str = "confine";
/// How the line begins that says why nothing was run.
pub(crate) const REFUSED: &str = "the sandbox cannot be made: ";
/// What every program needs to run. Of `/etc` only what holds no secret.
const SYSTEM: [&str; 20] = [
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
/// Devices that everybody may write to.
const SINKS: [&str; 2] = ["/dev/null", "/dev/full"];
/// The newest interface of the kernel that is made use of, where it is there.
const NEWEST: ABI = ABI::V6;

/// What may be read and written, beside the system.
#[derive(Debug, Clone, Default)]
pub(crate) struct Confines {
    pub(crate) read: Vec<PathBuf>,
    pub(crate) write: Vec<PathBuf>,
}

impl Confines {
    /// The arguments that run a program so.
    pub(crate) fn to_command_line(&self, program: OsString, args: Vec<OsString>) -> Vec<OsString> {
        let mut line: Vec<OsString> = vec!["shim".into(), COMMAND.into()];
        for (flag, paths) in [("--read", &self.read), ("--write", &self.write)] {
            line.extend(paths.iter().flat_map(|path| [flag.into(), path.into()]));
        }
        line.extend(["--".into(), program]);
        line.extend(args);
        line
    }
}

/// Whether the kernel can do it.
pub fn is_supported() -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset.handle_access(AccessFs::from_all(ABI::V1)).and_then(Ruleset::create).is_ok()
}

#[expect(clippy::disallowed_methods, reason = "this process becomes the program")]
pub(super) fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let (confines, program, args) = match parse(args) {
        Ok(parsed) => parsed,
        Err(why) => {
            say(&format!("confine: {why}"));
            return ExitCode::from(2);
        }
    };
    if let Err(why) = files(&confines).and_then(|()| calls()) {
        say(&format!("{REFUSED}{why}"));
        return ExitCode::from(CANNOT_START);
    }
    let error = Command::new(&program).args(args).exec();
    say(&format!("cannot start `{}`: {error}", program.display()));
    ExitCode::from(CANNOT_START)
}

fn parse(mut args: impl Iterator<Item = OsString>) -> Result<(Confines, OsString, Vec<OsString>), String> {
    let mut confines = Confines::default();
    loop {
        let flag = args.next().ok_or("no program is given")?;
        let mut path = || args.next().map(PathBuf::from).ok_or("a path is missing");
        match flag.to_str() {
            Some("--read") => confines.read.push(path()?),
            Some("--write") => confines.write.push(path()?),
            Some("--") => {
                let program = args.next().ok_or("no program is given")?;
                return Ok((confines, program, args.collect()));
            }
            _ => return Err(format!("unknown flag `{}`", flag.display())),
        }
    }
}

/// From now on there are no files but these, no TCP, and nobody outside to send a signal to.
fn files(confines: &Confines) -> Result<(), String> {
    let told = |error: &dyn std::error::Error| error.to_string();
    let reads = SYSTEM.iter().map(PathBuf::from).chain(confines.read.iter().cloned());
    let writes = SINKS.iter().map(PathBuf::from).chain(confines.write.iter().cloned());
    if !is_supported() {
        return Err("this kernel has no Landlock".to_owned());
    }
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(NEWEST)))
        .and_then(|rules| rules.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .and_then(|rules| rules.add_rules(path_beneath_rules(reads, AccessFs::from_read(NEWEST))))
        .and_then(|rules| rules.add_rules(path_beneath_rules(writes, AccessFs::from_all(NEWEST))))
        .and_then(|rules| rules.restrict_self())
        .map_err(|error| told(&error))?;
    if status.ruleset == RulesetStatus::NotEnforced { Err("Landlock is off".to_owned()) } else { Ok(()) }
}

/// From now on these system calls fail.
fn calls() -> Result<(), String> {
    let denied = [
        // No way out: not over the network, and not to a service of this machine.
        libc::SYS_socket,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_listen,
        // A way around this filter.
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        // Others' memory, files and keys.
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
        // The system itself.
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
    // Its flags are where no filter can look; programs then use `clone`.
    let hidden = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    apply(hidden, libc::ENOSYS)?;
    apply(rules, libc::EPERM)
}

fn apply(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: libc::c_int) -> Result<(), String> {
    let told = |error: &dyn std::error::Error| error.to_string();
    let rules = both_kinds(rules);
    let arch = std::env::consts::ARCH.try_into().map_err(|error: seccompiler::BackendError| told(&error))?;
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).map_err(|error| told(&error))?;
    let program: BpfProgram = filter.try_into().map_err(|error: seccompiler::BackendError| told(&error))?;
    seccompiler::apply_filter(&program).map_err(|error| told(&error))
}

/// On x86-64 some kernels know every call by a second number.
fn both_kinds(mut rules: BTreeMap<i64, Vec<SeccompRule>>) -> BTreeMap<i64, Vec<SeccompRule>> {
    const X32: i64 = 0x4000_0000;
    if cfg!(target_arch = "x86_64") {
        let second: Vec<_> = rules.iter().map(|(call, rule)| (call | X32, rule.clone())).collect();
        rules.extend(second);
    }
    rules
}
