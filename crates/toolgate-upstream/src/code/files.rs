//! Writes the input files of code, and collects its output files.
//!
//! Invariant: nothing outside of the scratch folder is written or read, even through links.

use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path};

use rustix::fs::OFlags;
use toolgate_types::ErrorCode;

use super::{CodeJob, Language};
use crate::builtin::BuiltinError;
use crate::process::sandbox::OMITTED_FILE;

/// Files in the result.
const MAX_FILES: usize = 32;
/// Directory entries visited.
const MAX_ENTRIES: usize = 10_000;

/// A file that the code wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFile {
    /// The path relative to the scratch folder.
    pub path: String,
    pub bytes: Vec<u8>,
}

/// Writes the code and its input files. Returns the name of the file with the code.
pub(super) fn prepare(folder: &Path, job: &CodeJob) -> Result<&'static str, BuiltinError> {
    let main = match job.language {
        Language::Python => ".main.py",
        Language::Shell => ".main.sh",
    };
    let write_error =
        |error: std::io::Error| BuiltinError::new(ErrorCode::StorageUnavailable, error.to_string());
    for file in &job.files {
        let path = Path::new(&file.path);
        let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
        if !inside || file.path.is_empty() || file.path == main || file.path.contains('\0') {
            let message =
                format!("`{}` is not a valid file name in the scratch folder", file.path.escape_debug());
            return Err(BuiltinError::new(ErrorCode::InvalidArguments, message));
        }
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            fs_err::create_dir_all(parent).map_err(write_error)?;
        }
        fs_err::write(path, &file.text).map_err(write_error)?;
    }
    fs_err::write(folder.join(main), &job.code).map_err(write_error)?;
    Ok(main)
}

/// Collects the files that the code wrote, and the number of omitted ones. Skips input files whose length is unchanged.
pub(super) fn collect(folder: &Path, inputs: &[(String, u64)], max_bytes: u64) -> (Vec<OutputFile>, usize) {
    let (mut files, mut omitted, mut visited, mut remaining) = (Vec::new(), not_stored(folder), 0, max_bytes);
    let mut folders = vec![folder.to_owned()];
    while let Some(here) = folders.pop() {
        let mut entries: Vec<_> = fs_err::read_dir(&here).into_iter().flatten().flatten().collect();
        entries.sort_by_key(fs_err::DirEntry::file_name);
        for entry in entries {
            visited += 1;
            if visited > MAX_ENTRIES {
                return (files, omitted);
            }
            // The metadata of the entry itself: links are not followed.
            let Ok(meta) = entry.metadata() else { continue };
            let path = entry.path();
            if meta.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
            let unchanged_input =
                inputs.iter().any(|(input, length)| *input == name && *length == meta.len());
            // A hard link may point to a file that is not the code's own.
            if !meta.is_file() || meta.nlink() > 1 || unchanged_input || name.starts_with(".main.") {
                continue;
            }
            let fits = files.len() < MAX_FILES && meta.len() <= remaining;
            match fits.then(|| read(&path, meta.len())).flatten() {
                Some(bytes) => {
                    remaining -= bytes.len() as u64;
                    files.push(OutputFile { path: name, bytes });
                }
                None => omitted += 1,
            }
        }
    }
    (files, omitted)
}

/// The number of files that the sandbox could not store in the scratch folder.
fn not_stored(folder: &Path) -> usize {
    let note = read(&folder.join(OMITTED_FILE), 20).and_then(|note| String::from_utf8(note).ok());
    note.and_then(|number| number.parse().ok()).unwrap_or_default()
}

fn read(path: &Path, max_bytes: u64) -> Option<Vec<u8>> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let mut bytes = Vec::new();
    file.take(max_bytes).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
