//! Retention: selects the file to remove, which is the oldest one once its last record has expired.
//!
//! A wrong clock must not cause data loss. So age is measured by the time that passed since the log was opened,
//! whatever jumps the wall clock makes; files are removed in the order of their sequence numbers, so a file dated far
//! in the past waits for those written before it; one file is removed per hour; and if the clock is more than a day
//! ahead of the last record, the first removal waits an hour so that the clock can be corrected. Invariant: the file
//! with the last record stays, because the hash chain continues from there.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use fs_err::os::unix::fs::OpenOptionsExt;
use fs_err::{File, OpenOptions};
use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::chain::{self, RecordLine};
use crate::clock::Clock;
use crate::folder::{self, REMOVED};
use crate::scan::ForwardLines;

const PAUSE: Duration = Duration::from_secs(60 * 60);
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// A removed file: a line of `removed.jsonl`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RemovedFile {
    pub(crate) file: String,
    pub(crate) time: String,
    pub(crate) runs: Vec<RecordRange>,
}

/// Consecutive records of a removed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordRange {
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Hash of the last record, to verify the record after it.
    pub(crate) hash: String,
}

pub(crate) struct RetentionSchedule {
    keep: Duration,
    /// Wall-clock and monotonic time at which the log was opened.
    opened: (Timestamp, Duration),
    /// Monotonic time of the next check.
    next: Duration,
}

impl RetentionSchedule {
    pub(crate) fn new(keep: Duration, clock: &dyn Clock, last_record: Option<Timestamp>) -> Self {
        let opened = (clock.now(), clock.elapsed());
        let strange = last_record.is_some_and(|last| opened.0.duration_since(last) > DAY);
        let next = if strange { opened.1 + PAUSE } else { opened.1 };
        Self { keep, opened, next }
    }

    /// Returns the file to remove now, if any, and the current time.
    pub(crate) fn next_expired(
        &mut self,
        clock: &dyn Clock,
        folder: &Path,
        files: &BTreeMap<Date, u64>,
    ) -> Option<(Date, Timestamp)> {
        let running = clock.elapsed();
        if running < self.next {
            return None;
        }
        self.next = running + PAUSE;
        let passed = SignedDuration::try_from(running.saturating_sub(self.opened.1)).ok()?;
        let now = clock.now().min(self.opened.0.checked_add(passed).ok()?);
        let keep = SignedDuration::try_from(self.keep).ok()?;
        let last = |day: &Date| -> Option<(u64, Date, Timestamp)> {
            let last = folder::find_end(&File::open(folder::day_path(folder, *day)).ok()?).ok()?.last?;
            Some((last.head.seq, *day, last.time?))
        };
        let mut files: Vec<_> = files.keys().filter_map(last).collect();
        files.sort_unstable();
        let (first, second) = (files.first()?, files.get(1)?);
        // A timestamp in the future is wrong; the file is at least as old as the file after it.
        let written = if first.2 > now { second.2 } else { first.2 };
        (now.duration_since(written) > keep).then_some((first.1, now))
    }
}

/// Removes a day's file after listing its records in `removed.jsonl`.
pub(crate) fn remove(folder: &Path, day: Date, now: Timestamp) -> io::Result<()> {
    let path = folder::day_path(folder, day);
    let removed = RemovedFile {
        file: format!("{day}.jsonl"),
        time: chain::format_timestamp(now),
        runs: list_ranges(&path)?,
    };
    let mut line = serde_json::to_vec(&removed)?;
    line.push(b'\n');
    let mut note = OpenOptions::new().append(true).create(true).mode(0o600).open(folder.join(REMOVED))?;
    note.write_all(&line)?;
    note.sync_data()?;
    fs_err::remove_file(&path)?;
    folder::sync_folder(folder)?;
    tracing::info!(file = %path.display(), "removed an expired file of the execution log");
    Ok(())
}

/// Lists the runs of consecutive records in a file.
fn list_ranges(path: &Path) -> io::Result<Vec<RecordRange>> {
    let mut runs: Vec<RecordRange> = Vec::new();
    let mut lines = ForwardLines::new(File::open(path)?, 0)?;
    while let Some(line) = lines.line()? {
        let Some(line) = RecordLine::parse(line) else { continue };
        let hash = String::from_utf8_lossy(line.hash).into_owned();
        match runs.last_mut() {
            Some(run) if Some(line.seq) == run.last.checked_add(1) => (run.last, run.hash) = (line.seq, hash),
            _ => runs.push(RecordRange { first: line.seq, last: line.seq, hash }),
        }
    }
    Ok(runs)
}

/// Reads the removed record ranges, by their first sequence number.
pub(crate) fn read_removed(folder: &Path) -> io::Result<BTreeMap<u64, RecordRange>> {
    let text = match fs_err::read_to_string(folder.join(REMOVED)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        text => text?,
    };
    let lines = text.lines().filter_map(|line| serde_json::from_str::<RemovedFile>(line).ok());
    Ok(lines.flat_map(|removed| removed.runs).map(|run| (run.first, run)).collect())
}
