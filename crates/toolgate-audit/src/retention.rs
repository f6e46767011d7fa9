//! Which file is old enough to go: the first, when its last record is older than the log is kept.
//!
//! A clock that is wrong must not cost what it calls old. So time is what has passed since the log was opened,
//! whatever jumps the wall clock makes meanwhile; files go in the order of their numbers, so one that was
//! stamped with a day long past waits for those written before it; one goes at a time, an hour apart; and where
//! the clock is more than a day ahead of the last record, there is an hour to set it right first. Invariant: the
//! file with the last line stays, since the chain goes on from there.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use fs_err::os::unix::fs::OpenOptionsExt;
use fs_err::{File, OpenOptions};
use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::chain::{self, Line};
use crate::clock::Clock;
use crate::folder::{self, REMOVED};
use crate::scan::Forward;

const PAUSE: Duration = Duration::from_secs(60 * 60);
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// What was removed: a line of `removed.jsonl`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Removed {
    pub(crate) file: String,
    pub(crate) time: String,
    pub(crate) runs: Vec<Run>,
}

/// Lines that followed each other in a file that is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// The hash of the last one, for the line that follows.
    pub(crate) hash: String,
}

pub(crate) struct Retention {
    keep: Duration,
    /// What both clocks showed when the log was opened.
    opened: (Timestamp, Duration),
    /// When to look again, on the clock that does not jump.
    next: Duration,
}

impl Retention {
    pub(crate) fn new(keep: Duration, clock: &dyn Clock, last_record: Option<Timestamp>) -> Self {
        let opened = (clock.now(), clock.running());
        let strange = last_record.is_some_and(|last| opened.0.duration_since(last) > DAY);
        let next = if strange { opened.1 + PAUSE } else { opened.1 };
        Self { keep, opened, next }
    }

    /// The file that is to be removed now, when there is one, and what time it is.
    pub(crate) fn due(
        &mut self,
        clock: &dyn Clock,
        folder: &Path,
        files: &BTreeMap<Date, u64>,
    ) -> Option<(Date, Timestamp)> {
        let running = clock.running();
        if running < self.next {
            return None;
        }
        self.next = running + PAUSE;
        let passed = SignedDuration::try_from(running.saturating_sub(self.opened.1)).ok()?;
        let now = clock.now().min(self.opened.0.checked_add(passed).ok()?);
        let keep = SignedDuration::try_from(self.keep).ok()?;
        let last = |day: &Date| -> Option<(u64, Date, Timestamp)> {
            let last = folder::end(&File::open(folder::path(folder, *day)).ok()?).ok()?.last?;
            Some((last.head.seq, *day, last.time?))
        };
        let mut files: Vec<_> = files.keys().filter_map(last).collect();
        files.sort_unstable();
        let (first, second) = (files.first()?, files.get(1)?);
        // Of what was stamped with a time to come, it is known that it was written before what followed.
        let written = if first.2 > now { second.2 } else { first.2 };
        (now.duration_since(written) > keep).then_some((first.1, now))
    }
}

/// Removes the file of a day, and notes what was in it.
pub(crate) fn remove(folder: &Path, day: Date, now: Timestamp) -> io::Result<()> {
    let path = folder::path(folder, day);
    let removed = Removed { file: format!("{day}.jsonl"), time: chain::stamp_text(now), runs: runs(&path)? };
    let mut line = serde_json::to_vec(&removed)?;
    line.push(b'\n');
    let mut note = OpenOptions::new().append(true).create(true).mode(0o600).open(folder.join(REMOVED))?;
    note.write_all(&line)?;
    note.sync_data()?;
    fs_err::remove_file(&path)?;
    folder::sync(folder)?;
    tracing::info!(file = %path.display(), "an old file of the execution log was removed");
    Ok(())
}

/// The lines of a file that follow each other.
fn runs(path: &Path) -> io::Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    let mut lines = Forward::new(File::open(path)?, 0)?;
    while let Some(line) = lines.line()? {
        let Some(line) = Line::look(line) else { continue };
        let hash = String::from_utf8_lossy(line.hash).into_owned();
        match runs.last_mut() {
            Some(run) if Some(line.seq) == run.last.checked_add(1) => (run.last, run.hash) = (line.seq, hash),
            _ => runs.push(Run { first: line.seq, last: line.seq, hash }),
        }
    }
    Ok(runs)
}

/// What was removed so far, by the number of its first line.
pub(crate) fn removed(folder: &Path) -> io::Result<BTreeMap<u64, Run>> {
    let text = match fs_err::read_to_string(folder.join(REMOVED)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        text => text?,
    };
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Removed>(line).ok());
    Ok(lines.flat_map(|removed| removed.runs).map(|run| (run.first, run)).collect())
}
