//! The folder of a log: a file per day of UTC, a lock, and what is left of lines that a crash tore.
//!
//! Invariant: one process at a time has it open for writing. Of a file nothing is cut off but what stands
//! after its last good line, and that is kept beside.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fs_err::os::unix::fs::{FileExt, OpenOptionsExt};
use fs_err::{File, OpenOptions};
use jiff::Timestamp;
use jiff::civil::Date;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::chain::{Head, Line};
use crate::scan::Backward;

const SUFFIX: &str = ".jsonl";
/// Who has the log open for writing holds a lock on it.
const LOCK: &str = "lock";
/// What a retention removed, so that the chain can be followed over it.
pub(crate) const REMOVED: &str = "removed.jsonl";
/// The log tells what others said in confidence: nobody else reads it.
const MODE: u32 = 0o600;

/// What was cut off the end of a file when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// The file.
    pub file: PathBuf,
    /// How much was cut off.
    pub bytes: u64,
    /// Where it is now; nowhere when there was no room for it.
    pub kept: Option<PathBuf>,
}

/// Held while a log is open.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "dropping it ends the lock")] File);

impl Lock {
    /// `None` when another process has it.
    pub(crate) fn take(folder: &Path) -> io::Result<Option<Self>> {
        let file = OpenOptions::new().write(true).create(true).mode(MODE).open(folder.join(LOCK))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The file of a day.
pub(crate) fn path(folder: &Path, day: Date) -> PathBuf {
    folder.join(format!("{day}{SUFFIX}"))
}

/// The days that have a file, the oldest first.
pub(crate) fn days(folder: &Path) -> io::Result<Vec<Date>> {
    let mut days = Vec::new();
    for entry in fs_err::read_dir(folder)? {
        let name = entry?.file_name();
        let day = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)).and_then(|day| day.parse().ok());
        // `20261115.jsonl` is a date as well, but no name of ours.
        days.extend(day.filter(|day: &Date| name.to_str() == Some(&format!("{day}{SUFFIX}"))));
    }
    days.sort();
    Ok(days)
}

/// Opens the file of a day for writing. Not for appending: a position that is given is obeyed.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(MODE).open(path)
}

/// Makes the names in a folder durable.
pub(crate) fn sync(folder: &Path) -> io::Result<()> {
    #[cfg(test)]
    if let Some(simulated) = crate::power_loss::sync(folder) {
        return simulated;
    }
    File::open(folder)?.sync_all()
}

/// Makes what was written to a file durable.
pub(crate) fn sync_file(file: &File) -> io::Result<()> {
    #[cfg(test)]
    if let Some(simulated) = crate::power_loss::sync(file.path()) {
        return simulated;
    }
    file.sync_data()
}

/// What a log was found to be.
#[derive(Debug)]
pub(crate) struct Found {
    /// Where its chain has got to.
    pub(crate) head: Head,
    /// When the last line was written.
    pub(crate) last_time: Option<Timestamp>,
    /// How long the files are.
    pub(crate) lengths: BTreeMap<Date, u64>,
    pub(crate) torn: Vec<Torn>,
}

/// Looks at the end of every file and cuts off what a crash left there.
pub(crate) fn recover(folder: &Path) -> io::Result<Found> {
    let mut found = Found { head: Head::EMPTY, last_time: None, lengths: BTreeMap::new(), torn: Vec::new() };
    let mut ends: Vec<(Date, Last)> = Vec::new();
    for day in days(folder)? {
        let path = path(folder, day);
        let file = open(&path)?;
        let end = end(&file)?;
        found.torn.extend(cut(&file, &path, end.length)?);
        found.lengths.insert(day, end.length);
        ends.extend(end.last.map(|last| (day, last)));
    }
    ends.sort_by_key(|(_, last)| last.head.seq);
    // A machine that lost its power may have lost pages of what was written last, before others of it.
    if let Some((day, last)) = ends.pop() {
        let path = path(folder, day);
        let file = open(&path)?;
        let mut last = Some(last);
        if let Some(hole) = hole(&file)? {
            let end = end_before(&file, hole)?;
            found.torn.extend(cut(&file, &path, end.length)?);
            found.lengths.insert(day, end.length);
            last = end.last;
        }
        ends.extend(last.map(|last| (day, last)));
    }
    if let Some((_, last)) = ends.into_iter().max_by_key(|(_, last)| last.head.seq) {
        (found.head, found.last_time) = (last.head, last.time);
    }
    Ok(found)
}

/// How much of the end of a file is looked through for what was lost: more than is ever written between two
/// syncs, but by a log that is far too busy for its disk.
const TAIL: u64 = 8 << 20;

/// Where in the end of a file something was lost: what was not written to a disk reads as zeros, and no line
/// holds one.
fn hole(file: &File) -> io::Result<Option<u64>> {
    let length = file.metadata()?.len();
    let from = length.saturating_sub(TAIL);
    let mut tail = vec![0; usize::try_from(length - from).map_err(io::Error::other)?];
    file.read_exact_at(&mut tail, from)?;
    Ok(memchr::memchr(0, &tail).map(|at| from + at as u64))
}

/// The end of a file.
pub(crate) struct FileEnd {
    /// Where its last good line ends.
    pub(crate) length: u64,
    pub(crate) last: Option<Last>,
}

/// The last good line of a file.
pub(crate) struct Last {
    pub(crate) head: Head,
    pub(crate) time: Option<Timestamp>,
}

/// Finds the last line that is one. Whether its hash is right is for `verify` to say: what was changed by
/// somebody is evidence, and stays.
pub(crate) fn end(file: &File) -> io::Result<FileEnd> {
    end_before(file, file.metadata()?.len())
}

/// The same of what stands before a place.
fn end_before(file: &File, place: u64) -> io::Result<FileEnd> {
    let mut lines = Backward::new(reopened(file)?, place)?;
    loop {
        let length = lines.position();
        let Some(line) = lines.line()? else { return Ok(FileEnd { length: 0, last: None }) };
        if let Some(line) = Line::look(line) {
            let head = Head { seq: line.seq, hash: *line.hash };
            return Ok(FileEnd { length, last: Some(Last { head, time: line.stamp() }) });
        }
    }
}

fn reopened(file: &File) -> io::Result<File> {
    File::open(file.path())
}

/// Cuts off what stands after `length` and keeps it beside. A full disk must not keep a log from being
/// opened: then it is cut off all the same.
pub(crate) fn cut(file: &File, path: &Path, length: u64) -> io::Result<Option<Torn>> {
    let bytes = file.metadata()?.len().saturating_sub(length);
    if bytes == 0 {
        return Ok(None);
    }
    let beside = PathBuf::from(format!("{}.torn", path.display()));
    let mut kept = keep(file, &beside, length, bytes);
    if let Err(error) = &mut kept {
        tracing::warn!(%error, "a torn line could not be kept");
    }
    file.set_len(length)?;
    sync_file(file)?;
    Ok(Some(Torn { file: path.to_owned(), bytes, kept: kept.is_ok().then_some(beside) }))
}

fn keep(file: &File, beside: &Path, from: u64, bytes: u64) -> io::Result<()> {
    let mut torn = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
    file.read_exact_at(&mut torn, from)?;
    torn.push(b'\n');
    let mut kept = OpenOptions::new().append(true).create(true).mode(MODE).open(beside)?;
    kept.write_all(&torn)?;
    sync_file(&kept)
}
