//! Verifies a log: no missing sequence numbers, no wrong hashes, no torn lines.
//!
//! The hash chain reveals accidental loss and manual changes. Anyone with write access to the files can compute a new
//! chain: to detect that, keep the last hash elsewhere. Invariant: it never writes.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use fs_err::os::unix::fs::FileExt;
use jiff::civil::Date;
use parking_lot::Mutex;

use crate::chain::{GENESIS_HASH, Hash, RecordLine};
use crate::folder;
use crate::merge::{LineMerge, ReadOrder};
use crate::retention;
use crate::scan::ForwardLines;

/// Maximum number of reported faults; further ones add no information.
const MAX_FAULTS: usize = 1000;

/// The result of verifying a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyReport {
    pub records: u64,
    /// Sequence number and hash of the last record: kept elsewhere, they prove that no record was removed later.
    pub last: Option<(u64, String)>,
    /// Faults found, at most 1,000.
    pub faults: Vec<LogFault>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFault {
    /// Name of the file.
    pub file: String,
    /// Line number in the file, starting at 1.
    pub line: u64,
    pub kind: FaultKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// The file ends with an incomplete line.
    Torn {
        /// Length of the incomplete line.
        bytes: usize,
    },
    /// The line is not a record.
    Malformed,
    /// The hash is wrong: this record or the previous one was changed.
    Changed,
    /// Records before this one are missing.
    Gap { expected: u64, found: u64 },
    /// The sequence number occurred before.
    Repeated { seq: u64 },
    /// The record belongs to another day.
    WrongDay,
}

impl fmt::Display for LogFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.line)?;
        match self.kind {
            FaultKind::Torn { bytes } => write!(f, "incomplete line of {bytes} bytes"),
            FaultKind::Malformed => write!(f, "not a record"),
            FaultKind::Changed => write!(f, "the hash is wrong: this record or the one before was changed"),
            FaultKind::Gap { expected, found } => {
                write!(f, "records {expected} to {} are missing", found - 1)
            }
            FaultKind::Repeated { seq } => write!(f, "record {seq} is duplicated or out of order"),
            FaultKind::WrongDay => write!(f, "this record belongs to another day"),
        }
    }
}

/// Verifies a whole log, which may be written at the same time.
pub fn verify(folder: &Path) -> io::Result<VerifyReport> {
    let faults = FaultList::default();
    let days = folder::list_days(folder)?;
    let malformed = faults.clone();
    let mut merge =
        LineMerge::new(folder, days.clone(), ReadOrder::OldestFirst, move |day, number, line| {
            let looked = RecordLine::parse(line);
            match &looked {
                None => malformed.add(day, number, FaultKind::Malformed),
                Some(looked) if !looked.time.starts_with(&day.to_string()) => {
                    malformed.add(day, number, FaultKind::WrongDay);
                }
                Some(_) => {}
            }
            looked.is_some()
        })?;
    let removed = retention::read_removed(folder)?;
    let mut records = 0;
    let mut before: (u64, Hash) = (0, GENESIS_HASH);
    while let Some(found) = merge.next()? {
        let Some(line) = RecordLine::parse(&found.line) else { continue };
        let fault = |kind| faults.add(found.day, found.number, kind);
        records += 1;
        if line.seq <= before.0 {
            fault(FaultKind::Repeated { seq: line.seq });
            continue;
        }
        let (expected, hash) = skip_removed(&removed, before, line.seq);
        if line.seq != expected {
            fault(FaultKind::Gap { expected, found: line.seq });
        } else if !line.follows(&hash) {
            fault(FaultKind::Changed);
        }
        before = (line.seq, *line.hash);
    }
    for day in days {
        check_torn_tail(folder, day, &faults)?;
    }
    let last = (before.0 > 0).then(|| (before.0, String::from_utf8_lossy(&before.1).into_owned()));
    Ok(VerifyReport { records, last, faults: faults.take() })
}

/// Returns the expected sequence number and previous hash, skipping the records that retention removed.
fn skip_removed(
    removed: &BTreeMap<u64, retention::RecordRange>,
    before: (u64, Hash),
    seq: u64,
) -> (u64, Hash) {
    let (mut expected, mut hash) = (before.0.saturating_add(1), before.1);
    while expected < seq
        && let Some(run) = removed.get(&expected)
        && let Ok(last) = run.hash.as_bytes().try_into()
    {
        (expected, hash) = (run.last.saturating_add(1), last);
    }
    (expected, hash)
}

/// Reports an incomplete line at the end of a file.
fn check_torn_tail(folder: &Path, day: Date, faults: &FaultList) -> io::Result<()> {
    let file = match folder::open_for_reading(&folder::day_path(folder, day)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    // A reader may see half of a line that is being written, so it looks again.
    for _ in 0..1000 {
        let mut last = [b'\n'];
        if let Some(end) = file.metadata()?.len().checked_sub(1) {
            // Reads nothing if a failed write was truncated in the meantime.
            file.read_at(&mut last, end)?;
        }
        if last == [b'\n'] {
            return Ok(());
        }
        std::thread::yield_now();
    }
    let mut lines = ForwardLines::new(file, 0)?;
    let mut number = 1;
    while lines.line()?.is_some() {
        number += 1;
    }
    if lines.torn() > 0 {
        faults.add(day, number, FaultKind::Torn { bytes: lines.torn() });
    }
    Ok(())
}

#[derive(Clone, Default)]
struct FaultList(Arc<Mutex<Vec<LogFault>>>);

impl FaultList {
    fn add(&self, day: Date, line: u64, kind: FaultKind) {
        let mut faults = self.0.lock();
        if faults.len() < MAX_FAULTS {
            faults.push(LogFault { file: format!("{day}.jsonl"), line, kind });
        }
    }

    fn take(&self) -> Vec<LogFault> {
        std::mem::take(&mut self.0.lock())
    }
}
