//! Looks at what limits of the kernel do not count: all processes of the code together, and all of its files.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use toolgate_types::builtins::CodeExecution;

use super::Stopped;
use crate::process::Child;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// Files and folders that code may make.
pub(super) const MOST_ENTRIES: usize = 5_000;

/// Waits until the code uses more than it may.
pub(super) async fn until_too_much(child: &Child, folder: &Path, rules: &CodeExecution) -> Stopped {
    let (shim, output) = (child.id(), rules.max_output.bytes());
    // The shim's own child is the program; in a moment of its start there is one more.
    let processes = usize::try_from(rules.max_processes.get()).unwrap_or(usize::MAX);
    let (memory, disk) = (rules.max_memory.bytes(), rules.max_disk.bytes());
    loop {
        tokio::time::sleep(PAUSE).await;
        if child.stderr_written() > output {
            return Stopped::Output;
        }
        let folder = folder.to_owned();
        let look = tokio::task::spawn_blocking(move || {
            (Child::usage(shim).unwrap_or_default(), size(&folder, disk))
        });
        let Ok(((count, held), (entries, bytes))) = look.await else { continue };
        if count > processes {
            return Stopped::Processes;
        }
        if held > memory {
            return Stopped::Memory;
        }
        if entries > MOST_ENTRIES || bytes > disk {
            return Stopped::Disk;
        }
    }
}

/// How much there is in a folder, as far as it has to be known.
fn size(folder: &Path, most: u64) -> (usize, u64) {
    let (mut entries, mut bytes) = (0, 0);
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).into_iter().flatten().flatten() {
            entries += 1;
            let Ok(meta) = entry.metadata() else { continue };
            bytes += meta.blocks() * 512;
            if entries > MOST_ENTRIES || bytes > most {
                return (entries, bytes);
            }
            if meta.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    (entries, bytes)
}
