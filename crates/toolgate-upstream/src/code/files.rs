//! Files for the code, and files of it.
//!
//! Invariant: nothing outside of the folder is written or read, whatever links there are in it.

use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path};

use rustix::fs::OFlags;
use toolgate_types::ErrorCode;

use super::{Job, Language};
use crate::builtin::Fault;

/// Files that are given back.
const MOST_FILES: usize = 32;
/// Files and folders that are looked at.
const MOST_ENTRIES: usize = 10_000;

/// A file that the code wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Its name, seen from the folder of the code.
    pub path: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// Writes the code and its files; returns the name of the code's own.
pub(super) fn prepare(folder: &Path, job: &Job) -> Result<&'static str, Fault> {
    let main = match job.language {
        Language::Python => ".main.py",
        Language::Shell => ".main.sh",
    };
    let unwritten = |error: std::io::Error| Fault::new(ErrorCode::StorageUnavailable, error.to_string());
    for file in &job.files {
        let path = Path::new(&file.path);
        let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
        if !inside || file.path.is_empty() || file.path == main || file.path.contains('\0') {
            let message =
                format!("`{}` is no name of a file in the folder of the code", file.path.escape_debug());
            return Err(Fault::new(ErrorCode::InvalidArguments, message));
        }
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            fs_err::create_dir_all(parent).map_err(unwritten)?;
        }
        fs_err::write(path, &file.text).map_err(unwritten)?;
    }
    fs_err::write(folder.join(main), &job.code).map_err(unwritten)?;
    Ok(main)
}

/// The files that the code wrote, and how many more there are. What it was given, and left as long as it was, is
/// not among them.
pub(super) fn collect(folder: &Path, inputs: &[(String, u64)], most: u64) -> (Vec<Written>, usize) {
    let (mut found, mut left_out, mut seen, mut room) = (Vec::new(), 0, 0, most);
    let mut folders = vec![folder.to_owned()];
    while let Some(here) = folders.pop() {
        let mut entries: Vec<_> = fs_err::read_dir(&here).into_iter().flatten().flatten().collect();
        entries.sort_by_key(fs_err::DirEntry::file_name);
        for entry in entries {
            seen += 1;
            if seen > MOST_ENTRIES {
                return (found, left_out);
            }
            // Of the entry itself: what a link leads to is not ours to give.
            let Ok(meta) = entry.metadata() else { continue };
            let path = entry.path();
            if meta.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
            let given = inputs.iter().any(|(input, length)| *input == name && *length == meta.len());
            // A second name of a file may be one of somebody else's.
            if !meta.is_file() || meta.nlink() > 1 || given || name.starts_with(".main.") {
                continue;
            }
            let fits = found.len() < MOST_FILES && meta.len() <= room;
            match fits.then(|| read(&path, meta.len())).flatten() {
                Some(bytes) => {
                    room -= bytes.len() as u64;
                    found.push(Written { path: name, bytes });
                }
                None => left_out += 1,
            }
        }
    }
    (found, left_out)
}

fn read(path: &Path, most: u64) -> Option<Vec<u8>> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
