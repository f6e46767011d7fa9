//! Removes the owner's key from the environment of this process.
//!
//! The kernel shows the initial environment of a process in `/proc/PID/environ` to processes of the same user, or only to
//! root once [`hide_memory`](crate::hide_memory) has run. A program cannot change that block safely, so it starts itself
//! again: the same process, without the variable, and with the key in an anonymous file that is emptied when it was read.
//! Only Linux has such files; elsewhere the variable stays.

use std::ffi::OsString;
use std::io::Read as _;
use std::sync::OnceLock;

use toolgate_config::Environment;
use toolgate_config::connect::KEY_VARIABLE;

/// Variable with the number of the descriptor that has the key.
const DESCRIPTOR_VARIABLE: &str = "TOOLGATE_API_KEY_FD";
/// Name of the anonymous file.
const FILE_NAME: &str = "toolgate-api-key";
/// Longest key.
const MAX_KEY_BYTES: u64 = 64 << 10;

/// The key that this process was started with.
static KEY: OnceLock<String> = OnceLock::new();

/// Takes the key that the previous start of this process handed over, or starts again without the variable. If that is
/// not possible, the variable stays.
pub(crate) fn clear_variable() {
    if let Some(key) = std::env::var_os(DESCRIPTOR_VARIABLE).and_then(take_key) {
        let _ = KEY.set(key);
    } else if let Some(key) = std::env::var_os(KEY_VARIABLE) {
        // Returns only if it fails.
        let _ = start_again(&key);
    }
}

/// The environment of this process, with the key.
pub(crate) fn environment() -> Environment {
    let mut environment = Environment::from_process();
    environment.variables.remove(DESCRIPTOR_VARIABLE);
    if let Some(key) = KEY.get() {
        environment.variables.insert(KEY_VARIABLE.to_owned(), key.clone());
    }
    environment
}

#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "it replaces this process and starts no child process")]
fn start_again(key: &OsString) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::process::CommandExt as _;

    let file = rustix::fs::memfd_create(FILE_NAME, rustix::fs::MemfdFlags::empty())?;
    let mut file = std::fs::File::from(file);
    file.write_all(key.as_encoded_bytes())?;
    let mut arguments = std::env::args_os();
    let mut command = std::process::Command::new("/proc/self/exe");
    command.arg0(arguments.next().unwrap_or_default()).args(arguments);
    command.env_remove(KEY_VARIABLE).env(DESCRIPTOR_VARIABLE, file.as_raw_fd().to_string());
    Err(command.exec())
}

#[cfg(not(target_os = "linux"))]
fn start_again(_key: &OsString) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Reads and empties the anonymous file. `None` if the descriptor is not that file.
fn take_key(descriptor: OsString) -> Option<String> {
    let number: u32 = descriptor.to_str()?.parse().ok()?;
    let path = format!("/proc/self/fd/{number}");
    let target = fs_err::read_link(&path).ok()?;
    if !target.to_str()?.starts_with(&format!("/memfd:{FILE_NAME}")) {
        return None;
    }
    let file = fs_err::OpenOptions::new().read(true).write(true).open(&path).ok()?;
    let mut key = String::new();
    (&file).take(MAX_KEY_BYTES).read_to_string(&mut key).ok()?;
    file.set_len(0).ok()?;
    Some(key)
}
