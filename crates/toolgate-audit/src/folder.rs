//! The folder of a log: one file per UTC day, a lock file, and the torn lines that crashes left.
//!
//! Invariant: one process at a time has the log open for writing. Only bytes after the last valid line of a file are
//! ever truncated, and they are saved in a file next to it.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fs_err::File;
use fs_err::os::unix::fs::FileExt;
use jiff::Timestamp;
use jiff::civil::Date;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use toolgate_state::{FileAccess, open_private};

use crate::chain::{ChainHead, RecordLine};
use crate::scan::BackwardLines;

const SUFFIX: &str = ".jsonl";
/// Lock file, locked by the process that has the log open for writing.
const LOCK: &str = "lock";
/// Lists the files removed by retention, so that the hash chain can be verified across the gap.
pub(crate) const REMOVED: &str = "removed.jsonl";

/// Bytes that were truncated from the end of a file when the log was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    pub file: PathBuf,
    /// Number of bytes truncated.
    pub bytes: u64,
    /// File the bytes were saved to; `None` if they could not be saved, for example because the disk is full.
    pub kept: Option<PathBuf>,
}

/// Lock held while a log is open for writing.
#[derive(Debug)]
pub(crate) struct FolderLock(#[expect(dead_code, reason = "dropping it ends the lock")] File);

impl FolderLock {
    /// Takes the lock. Returns `None` if another process holds it.
    pub(crate) fn take(folder: &Path) -> io::Result<Option<Self>> {
        let file = open_private(&folder.join(LOCK), FileAccess::Create)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the path of a day's file.
pub(crate) fn day_path(folder: &Path, day: Date) -> PathBuf {
    folder.join(format!("{day}{SUFFIX}"))
}

/// Lists the days that have a file, oldest first.
pub(crate) fn list_days(folder: &Path) -> io::Result<Vec<Date>> {
    let mut days = Vec::new();
    for entry in fs_err::read_dir(folder)? {
        let name = entry?.file_name();
        let day = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)).and_then(|day| day.parse().ok());
        // `20261115.jsonl` parses as a date too, but the log never creates such a name.
        days.extend(day.filter(|day: &Date| name.to_str() == Some(&format!("{day}{SUFFIX}"))));
    }
    days.sort();
    Ok(days)
}

/// Opens a day's file for writing. Not in append mode, because writes are positional.
pub(crate) fn open_day_file(path: &Path) -> io::Result<File> {
    open_private(path, FileAccess::Create)
}

/// Opens a file of the log for reading.
pub(crate) fn open_for_reading(path: &Path) -> io::Result<File> {
    open_private(path, FileAccess::Read)
}

/// Makes the file names in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    #[cfg(test)]
    if let Some(simulated) = crate::power_loss::sync(folder) {
        return simulated;
    }
    File::open(folder)?.sync_all()
}

/// Makes the contents of a file durable.
pub(crate) fn sync_file(file: &File) -> io::Result<()> {
    #[cfg(test)]
    if let Some(simulated) = crate::power_loss::sync(file.path()) {
        return simulated;
    }
    file.sync_data()
}

/// The state of a log after recovery.
#[derive(Debug)]
pub(crate) struct RecoveredLog {
    /// End of the hash chain.
    pub(crate) head: ChainHead,
    /// Time of the last record.
    pub(crate) last_time: Option<Timestamp>,
    /// Length of each file.
    pub(crate) lengths: BTreeMap<Date, u64>,
    pub(crate) torn: Vec<TornTail>,
}

/// Recovers a log after a crash: checks the end of every file and truncates torn lines.
pub(crate) fn recover(folder: &Path) -> io::Result<RecoveredLog> {
    let mut recovered =
        RecoveredLog { head: ChainHead::EMPTY, last_time: None, lengths: BTreeMap::new(), torn: Vec::new() };
    let mut ends: Vec<(Date, LastRecord)> = Vec::new();
    for day in list_days(folder)? {
        let path = day_path(folder, day);
        let file = open_day_file(&path)?;
        let end = find_end(&file)?;
        recovered.torn.extend(truncate(&file, &path, end.length)?);
        recovered.lengths.insert(day, end.length);
        ends.extend(end.last.map(|last| (day, last)));
    }
    ends.sort_by_key(|(_, last)| last.head.seq);
    // Pages written last may be lost in a power failure although later pages were written: look for a hole.
    if let Some((day, last)) = ends.pop() {
        let path = day_path(folder, day);
        let file = open_day_file(&path)?;
        let mut last = Some(last);
        if let Some(hole) = find_hole(&file)? {
            let end = find_end_before(&file, hole)?;
            recovered.torn.extend(truncate(&file, &path, end.length)?);
            recovered.lengths.insert(day, end.length);
            last = end.last;
        }
        ends.extend(last.map(|last| (day, last)));
    }
    if let Some((_, last)) = ends.into_iter().max_by_key(|(_, last)| last.head.seq) {
        (recovered.head, recovered.last_time) = (last.head, last.time);
    }
    Ok(recovered)
}

/// Bytes at the end of a file that are searched for a hole: more than is ever written between two syncs, unless the
/// log is far too busy for its disk.
const HOLE_SEARCH_BYTES: u64 = 8 << 20;

/// Finds the first lost page at the end of a file. Pages that were not written read as zeros, and no line holds a
/// zero byte.
fn find_hole(file: &File) -> io::Result<Option<u64>> {
    let length = file.metadata()?.len();
    let from = length.saturating_sub(HOLE_SEARCH_BYTES);
    let mut tail = vec![0; usize::try_from(length - from).map_err(io::Error::other)?];
    file.read_exact_at(&mut tail, from)?;
    Ok(memchr::memchr(0, &tail).map(|at| from + at as u64))
}

/// The last valid line of a file and its offset.
pub(crate) struct FileEnd {
    /// Offset after the last valid line.
    pub(crate) length: u64,
    pub(crate) last: Option<LastRecord>,
}

/// The last record of a file.
pub(crate) struct LastRecord {
    pub(crate) head: ChainHead,
    pub(crate) time: Option<Timestamp>,
}

/// Finds the last well-formed line. Its hash is not checked here: `verify` does that. A record changed by hand is
/// evidence and must stay.
pub(crate) fn find_end(file: &File) -> io::Result<FileEnd> {
    find_end_before(file, file.metadata()?.len())
}

/// Finds the last well-formed line before an offset.
fn find_end_before(file: &File, place: u64) -> io::Result<FileEnd> {
    let mut lines = BackwardLines::new(reopen(file)?, place)?;
    loop {
        let length = lines.position();
        let Some(line) = lines.line()? else { return Ok(FileEnd { length: 0, last: None }) };
        if let Some(line) = RecordLine::parse(line) {
            let head = ChainHead { seq: line.seq, hash: *line.hash };
            return Ok(FileEnd { length, last: Some(LastRecord { head, time: line.timestamp() }) });
        }
    }
}

fn reopen(file: &File) -> io::Result<File> {
    open_for_reading(file.path())
}

/// Truncates a file to `length` and saves the removed bytes next to it. If they cannot be saved, the file is
/// truncated all the same: a full disk must not keep a log from being opened.
pub(crate) fn truncate(file: &File, path: &Path, length: u64) -> io::Result<Option<TornTail>> {
    let bytes = file.metadata()?.len().saturating_sub(length);
    if bytes == 0 {
        return Ok(None);
    }
    let beside = PathBuf::from(format!("{}.torn", path.display()));
    let mut kept = save_torn_tail(file, &beside, length, bytes);
    if let Err(error) = &mut kept {
        tracing::warn!(%error, "cannot save the torn line of the execution log");
    }
    file.set_len(length)?;
    sync_file(file)?;
    Ok(Some(TornTail { file: path.to_owned(), bytes, kept: kept.is_ok().then_some(beside) }))
}

fn save_torn_tail(file: &File, beside: &Path, from: u64, bytes: u64) -> io::Result<()> {
    let mut torn = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
    file.read_exact_at(&mut torn, from)?;
    torn.push(b'\n');
    let mut kept = open_private(beside, FileAccess::Append)?;
    kept.write_all(&torn)?;
    sync_file(&kept)
}
