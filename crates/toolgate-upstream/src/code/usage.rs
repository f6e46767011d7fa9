//! Polls resource usage that kernel limits do not cover: all processes of the code together, and all of its files.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use toolgate_types::builtins::CodeExecutionConfig;

use super::LimitExceeded;
use crate::process::Child;

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Files and folders that code may create.
pub(super) const MAX_ENTRIES: usize = 5_000;

/// Waits until the code exceeds a limit.
pub(super) async fn until_limit_exceeded(
    child: &Child,
    folder: &Path,
    config: &CodeExecutionConfig,
) -> LimitExceeded {
    let (shim, output) = (child.id(), config.max_output.bytes());
    let processes = usize::try_from(config.max_processes.get()).unwrap_or(usize::MAX);
    let (memory, disk) = (config.max_memory.bytes(), config.max_disk.bytes());
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        if child.stderr_written() > output {
            return LimitExceeded::Output;
        }
        let folder = folder.to_owned();
        let look = tokio::task::spawn_blocking(move || {
            let (count, memory_used) = Child::usage(shim).unwrap_or_default();
            match Child::mounted_size(shim, &folder) {
                // The first process in the namespaces of the sandbox is ours.
                Some(size) => (count.saturating_sub(1), memory_used, size),
                None => (count, memory_used, folder_size(shim, &folder, disk)),
            }
        });
        let Ok((count, memory_used, (entries, bytes))) = look.await else { continue };
        if count > processes {
            return LimitExceeded::Processes;
        }
        if memory_used > memory {
            return LimitExceeded::Memory;
        }
        if entries > MAX_ENTRIES || bytes > disk {
            return LimitExceeded::Disk;
        }
    }
}

/// Entries and bytes in a folder, and bytes in files without a name. Stops counting once a limit is exceeded.
fn folder_size(shim: u32, folder: &Path, max_bytes: u64) -> (usize, u64) {
    let Ok(device) = fs_err::metadata(folder).map(|folder| folder.dev()) else { return (0, 0) };
    let (mut entries, mut bytes) = (0, Child::unlinked_bytes(shim, device).unwrap_or_default());
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).into_iter().flatten().flatten() {
            entries += 1;
            let Ok(meta) = entry.metadata() else { continue };
            bytes = bytes.saturating_add(meta.blocks() * 512);
            if entries > MAX_ENTRIES || bytes > max_bytes {
                return (entries, bytes);
            }
            if meta.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    (entries, bytes)
}
