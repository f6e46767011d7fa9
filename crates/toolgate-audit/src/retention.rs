//! Retention: selects the file to remove, which is the oldest one once its last record has expired.
//!
//! A wrong clock must not cause data loss, whether it was wrong when a record was written, or is wrong now. So a file
//! is removed only if two things agree that it is older than the retention:
//!
//! - its timestamp, compared with the wall clock. A timestamp in the future is wrong; then the next plausible one counts,
//!   in the order of sequence numbers;
//! - the age that the log itself has evidence of: the time since this process opened the log or last wrote the file, by
//!   the monotonic clock, plus the time between the files that earlier processes wrote after it. A gap of more than four
//!   days between two files counts as nothing: it may be a jump of the clock.
//!
//! Files are removed in the order of their sequence numbers, one per hour. Invariant: the file with the last record
//! stays, because the hash chain continues from there.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use toolgate_state::{FileAccess, StateDir, open_private};

use crate::chain::{self, RecordLine};
use crate::clock::Clock;
use crate::folder::{self, REMOVED};
use crate::index;
use crate::scan::ForwardLines;

const PAUSE: Duration = Duration::from_secs(60 * 60);
/// Longest time between the last records of two files that counts as evidence: a long weekend without calls.
const MAX_GAP: SignedDuration = SignedDuration::from_hours(4 * 24);
/// Bytes of `removed.jsonl` that are read: more than a hundred thousand removed files.
const MAX_REMOVED: u64 = 64 << 20;

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
    keep: SignedDuration,
    /// Monotonic time of the opening of the log.
    opened: Duration,
    /// Monotonic time of the last write to each file that this process wrote.
    written: BTreeMap<Date, Duration>,
    /// Monotonic time of the next check.
    next: Duration,
}

/// The end of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LastWrite {
    seq: u64,
    day: Date,
    /// Timestamp of the last record.
    time: Timestamp,
}

impl RetentionSchedule {
    pub(crate) fn new(keep: Duration, clock: &dyn Clock) -> Self {
        let opened = clock.elapsed();
        let keep = SignedDuration::try_from(keep).unwrap_or(SignedDuration::MAX);
        Self { keep, opened, written: BTreeMap::new(), next: opened }
    }

    /// Notes a write to a file.
    pub(crate) fn note_write(&mut self, day: Date, running: Duration) {
        self.written.insert(day, running);
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
        self.written.retain(|day, _| files.contains_key(day));
        let now = clock.now();
        let last = |day: &Date| -> Option<LastWrite> {
            let file = folder::open_for_reading(&folder::day_path(folder, *day)).ok()?;
            let last = folder::find_end(&file).ok()?.last?;
            Some(LastWrite { seq: last.head.seq, day: *day, time: last.time? })
        };
        let mut files: Vec<_> = files.keys().filter_map(last).collect();
        files.sort_unstable();
        let (first, later) = files.split_first()?;
        let time = files.iter().map(|file| file.time).find(|time| *time <= now)?;
        let is_expired = now.duration_since(time) > self.keep
            && !later.is_empty()
            && self.evident_age(first, later, running) > self.keep;
        is_expired.then_some((first.day, now))
    }

    /// Returns the age of a file that the log has evidence of, whatever the wall clock says.
    fn evident_age(&self, file: &LastWrite, later: &[LastWrite], running: Duration) -> SignedDuration {
        let since = self.written.get(&file.day).copied().unwrap_or(self.opened);
        let measured = SignedDuration::try_from(running.saturating_sub(since)).unwrap_or_default();
        let earlier: Vec<_> = std::iter::once(file)
            .chain(later)
            .take_while(|file| !self.written.contains_key(&file.day))
            .map(|file| file.time)
            .collect();
        let gaps = earlier.windows(2).map(|pair| pair[1].duration_since(pair[0]));
        gaps.filter(|gap| gap.is_positive() && *gap <= MAX_GAP).fold(measured, SignedDuration::saturating_add)
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
    let mut note = open_private(&folder.join(REMOVED), FileAccess::Append)?;
    note.write_all(&line)?;
    note.sync_data()?;
    fs_err::remove_file(&path)?;
    index::remove(folder, day)?;
    folder::sync_folder(folder)?;
    tracing::info!(file = %path.display(), "removed an expired file of the execution log");
    Ok(())
}

/// Lists the runs of consecutive records in a file.
fn list_ranges(path: &Path) -> io::Result<Vec<RecordRange>> {
    let mut runs: Vec<RecordRange> = Vec::new();
    let mut lines = ForwardLines::new(folder::open_for_reading(path)?, 0)?;
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
    let text = match StateDir::open(folder).and_then(|folder| folder.read(REMOVED, MAX_REMOVED)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        text => text?,
    };
    let lines = text.split(|byte| *byte == b'\n');
    let lines = lines.filter_map(|line| serde_json::from_slice::<RemovedFile>(line).ok());
    Ok(lines.flat_map(|removed| removed.runs).map(|run| (run.first, run)).collect())
}
