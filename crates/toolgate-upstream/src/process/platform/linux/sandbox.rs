//! The sandbox: restricts a program and everything it starts.
//!
//! The shim enters new namespaces first, if the kernel allows it (`namespaces`). Then it runs
//! `toolgate shim confine [--namespaces] [--read PATH]… [--scratch PATH] -- PROGRAM ARGUMENT…`. That process restricts
//! itself and starts the program: with a root of its own that holds the allowed paths only, without capabilities, under
//! Landlock, and under a seccomp filter that lists the allowed system calls (`filter`). Invariant: the program does not
//! run unless all restrictions are in force. If namespaces are not available, the filter denies more.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::process::{Pid, WaitOptions};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::OWN_EXECUTABLE;
use crate::process::sandbox::{MissingLayer, PROBE, SANDBOX_FAILED};
use crate::process::shim::{CANNOT_START, exit_code, log_line, remove_arena_reserve};

mod filter;
mod namespaces;

pub(crate) use namespaces::{enter, store_files};

/// Readable paths that every program needs. From `/etc` only files without secrets.
const SYSTEM_PATHS: [&str; 21] = [
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
    "/etc/ssl/openssl.cnf",
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
];
/// Devices that every program may write to.
const WRITABLE_DEVICES: [&str; 2] = ["/dev/null", "/dev/full"];
/// The newest Landlock ABI to use, if the kernel supports it.
const NEWEST_ABI: ABI = ABI::V6;

/// The protection of other processes and of files outside, from the strongest to the weakest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// Other processes and files are not visible.
    Namespaces,
    /// Landlock or a process namespace blocks signals to other processes. The filter blocks changes of mode, owner, times and attributes.
    ScopedSignals,
    /// The filter blocks these changes, and signals to every process except the program itself.
    FilterOnly,
}

/// Returns true if the kernel supports Landlock.
pub fn is_supported() -> bool {
    supports(AccessFs::from_all(ABI::V1))
}

/// Returns the layer that is missing on this machine, if any. Starts a process that tries to enter namespaces, so this
/// blocks for some milliseconds.
#[expect(clippy::disallowed_methods, reason = "a short-lived process without children")]
pub fn missing_layer() -> Option<MissingLayer> {
    if !is_supported() {
        return Some(MissingLayer::Landlock);
    }
    let probe = Command::new(OWN_EXECUTABLE).arg0("toolgate").args(["shim", PROBE]).env_clear().output();
    let reason = match probe {
        Ok(output) if output.status.success() => return None,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Some(MissingLayer::Namespaces(reason))
}

/// Runs the probe.
pub(crate) fn probe() -> ExitCode {
    match namespaces::try_enter() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn supports(access: BitFlags<AccessFs>) -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset.handle_access(access).and_then(Ruleset::create).is_ok()
}

/// The command line of `confine`.
#[derive(Debug, Default)]
struct ConfineArgs {
    /// The shim has entered new namespaces, and this is the first process in them.
    namespaces: bool,
    read: Vec<PathBuf>,
    scratch: PathBuf,
    program: OsString,
    args: Vec<OsString>,
}

impl ConfineArgs {
    fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Self, String> {
        let mut parsed = Self::default();
        loop {
            let flag = args.next().ok_or("no program is given")?;
            let mut path = || args.next().map(PathBuf::from).ok_or("a path is missing");
            match flag.to_str() {
                Some("--namespaces") => parsed.namespaces = true,
                Some("--read") => parsed.read.push(path()?),
                Some("--scratch") => parsed.scratch = path()?,
                Some("--") => {
                    parsed.program = args.next().ok_or("no program is given")?;
                    parsed.args = args.collect();
                    return Ok(parsed);
                }
                _ => return Err(format!("unknown flag `{}`", flag.display())),
            }
        }
    }

    /// All readable paths.
    fn readable(&self) -> impl Iterator<Item = &Path> {
        let devices = WRITABLE_DEVICES.iter().map(Path::new);
        SYSTEM_PATHS.iter().map(Path::new).chain(devices).chain(self.read.iter().map(PathBuf::as_path))
    }
}

pub(crate) fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args = match ConfineArgs::parse(args) {
        Ok(parsed) => parsed,
        Err(why) => {
            log_line(&format!("confine: {why}"));
            return ExitCode::from(2);
        }
    };
    if let Err(why) = restrict(&args) {
        log_line(&format!("{SANDBOX_FAILED}{why}"));
        return ExitCode::from(CANNOT_START);
    }
    run(&args)
}

/// Applies every layer. The order matters: no layer may need a right that an earlier one took away.
fn restrict(args: &ConfineArgs) -> Result<(), String> {
    if args.namespaces {
        namespaces::enter_root(args.readable(), &args.scratch)?;
    }
    drop_capabilities().map_err(|error| format!("the capabilities cannot be dropped: {error}"))?;
    restrict_files(args)?;
    let isolation = match args.namespaces {
        true => Isolation::Namespaces,
        false if is_first_process() || signals_are_scoped() => Isolation::ScopedSignals,
        false => Isolation::FilterOnly,
    };
    filter::install(isolation).map_err(|why| format!("the system calls cannot be filtered: {why}"))
}

/// Runs the program. The first process of a process namespace starts it as a child: the kernel ignores most signals to
/// the first process, and kills the others when it ends.
#[expect(clippy::disallowed_methods, reason = "this is the process that becomes or starts the program")]
fn run(args: &ConfineArgs) -> ExitCode {
    let mut command = Command::new(&args.program);
    command.args(&args.args);
    remove_arena_reserve(&mut command);
    let error = if is_first_process() {
        // Without the shim, no process would stop the program. The kernel kills all of them with this one.
        super::end_with_parent();
        match command.spawn() {
            Ok(child) => return wait_for(child.id()),
            Err(error) => error,
        }
    } else {
        command.exec()
    };
    log_line(&format!("cannot start `{}`: {error}", args.program.display()));
    ExitCode::from(CANNOT_START)
}

/// Returns true in the first process of a process namespace. The shim creates one even where mounts are not allowed.
fn is_first_process() -> bool {
    std::process::id() == 1
}

/// Reaps processes until the program has ended.
fn wait_for(program: u32) -> ExitCode {
    let program = Pid::from_raw(program.cast_signed());
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if Some(pid) == program => return ExitCode::from(exit_code(status)),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return ExitCode::FAILURE,
        }
    }
}

/// Removes all capabilities, and the ways to get them back.
fn drop_capabilities() -> rustix::io::Result<()> {
    use rustix::thread;
    let empty = CapabilitySet::empty();
    let none = CapabilitySets { effective: empty, permitted: empty, inheritable: empty };
    thread::set_no_new_privs(true)?;
    // Without this capability there is nothing to remove: `no_new_privs` keeps a program from gaining any.
    if thread::capabilities(None)?.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().iter() {
            // A number that the kernel does not know yet.
            if thread::capability_is_in_bounding_set(capability).unwrap_or(false) {
                thread::remove_capability_from_bounding_set(capability)?;
            }
        }
    }
    thread::clear_ambient_capability_set()?;
    thread::set_capabilities(None, none)?;
    let left = thread::capabilities(None)?;
    let dropped = left.effective.is_empty() && left.permitted.is_empty() && left.inheritable.is_empty();
    if dropped && thread::no_new_privs()? { Ok(()) } else { Err(rustix::io::Errno::PERM) }
}

/// Restricts this process to these files, without TCP, and without signals to processes outside.
fn restrict_files(args: &ConfineArgs) -> Result<(), String> {
    let message = |error: &dyn std::error::Error| format!("Landlock failed: {error}");
    if !is_supported() {
        return Err("this kernel does not support Landlock".to_owned());
    }
    // No devices, and no control of devices.
    let write =
        AccessFs::from_all(NEWEST_ABI) & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
    let device = AccessFs::from_file(NEWEST_ABI) & write & !BitFlags::from(AccessFs::Execute);
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST_ABI))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(NEWEST_ABI)))
        .and_then(|rules| rules.scope(Scope::from_all(NEWEST_ABI)))
        .and_then(Ruleset::create)
        .and_then(|rules| {
            rules.add_rules(path_beneath_rules(args.readable(), AccessFs::from_read(NEWEST_ABI)))
        })
        .and_then(|rules| rules.add_rules(path_beneath_rules(WRITABLE_DEVICES, device)))
        .and_then(|rules| rules.add_rules(path_beneath_rules([&args.scratch], write)))
        .and_then(|rules| rules.restrict_self())
        .map_err(|error| message(&error))?;
    if status.ruleset == RulesetStatus::NotEnforced { Err("Landlock is disabled".to_owned()) } else { Ok(()) }
}

/// Returns true if Landlock restricts signals, from Linux 6.12 on.
fn signals_are_scoped() -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset.scope(Scope::Signal).and_then(Ruleset::create).is_ok()
}
