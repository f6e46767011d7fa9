//! Whether a log is whole: every number there, every hash right, nothing torn.
//!
//! The chain shows what was lost or changed by accident or by hand. Who may write the files can also compute
//! a new chain: against that, the last hash must be kept somewhere else. Invariant: it reads and never writes.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use fs_err::File;
use fs_err::os::unix::fs::FileExt;
use jiff::civil::Date;

use crate::chain::{Hash, Line, START};
use crate::folder;
use crate::merge::{Merge, Order};
use crate::retention;
use crate::scan::Forward;

/// How many faults are told apart; after so many, more say no more.
const MOST_FAULTS: usize = 1000;

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// How many records there are.
    pub records: u64,
    /// The number and hash of the last one: kept elsewhere, they prove that nothing was cut off later.
    pub last: Option<(u64, String)>,
    /// What is wrong, the first thousand.
    pub faults: Vec<Fault>,
}

/// Something that is wrong with a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The name of the file.
    pub file: String,
    /// The line in it, counted from 1.
    pub line: u64,
    /// What is wrong.
    pub kind: FaultKind,
}

/// What can be wrong with a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// The file does not end with a whole line.
    Torn {
        /// How much there is of it.
        bytes: usize,
    },
    /// It is not a line of a log.
    Malformed,
    /// It was changed, or the line before it was.
    Changed,
    /// Records are missing before it.
    Gap {
        /// The number that should be here.
        expected: u64,
        /// The number that is.
        found: u64,
    },
    /// A number that was there before.
    Repeated {
        /// The number.
        seq: u64,
    },
    /// It belongs to another day.
    WrongDay,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.line)?;
        match self.kind {
            FaultKind::Torn { bytes } => write!(f, "{bytes} bytes of a line that was not finished"),
            FaultKind::Malformed => write!(f, "not a record"),
            FaultKind::Changed => write!(f, "the hash is wrong: this record or the one before was changed"),
            FaultKind::Gap { expected, found } => {
                write!(f, "records {expected} to {} are missing", found - 1)
            }
            FaultKind::Repeated { seq } => write!(f, "record {seq} is here a second time, or too late"),
            FaultKind::WrongDay => write!(f, "a record of another day"),
        }
    }
}

/// Checks a whole log. It may be written meanwhile.
pub fn verify(folder: &Path) -> io::Result<Verified> {
    let faults = Faults::default();
    let days = folder::days(folder)?;
    let malformed = faults.clone();
    let mut merge = Merge::new(folder, days.clone(), Order::OldestFirst, move |day, number, line| {
        let looked = Line::look(line);
        match &looked {
            None => malformed.add(day, number, FaultKind::Malformed),
            Some(looked) if !looked.time.starts_with(&day.to_string()) => {
                malformed.add(day, number, FaultKind::WrongDay);
            }
            Some(_) => {}
        }
        looked.is_some()
    })?;
    let removed = retention::removed(folder)?;
    let mut records = 0;
    let mut before: (u64, Hash) = (0, START);
    while let Some(found) = merge.next()? {
        let Some(line) = Line::look(&found.line) else { continue };
        let fault = |kind| faults.add(found.day, found.number, kind);
        records += 1;
        if line.seq <= before.0 {
            fault(FaultKind::Repeated { seq: line.seq });
            continue;
        }
        let (expected, hash) = over_removed(&removed, before, line.seq);
        if line.seq != expected {
            fault(FaultKind::Gap { expected, found: line.seq });
        } else if !line.follows(&hash) {
            fault(FaultKind::Changed);
        }
        before = (line.seq, *line.hash);
    }
    for day in days {
        torn(folder, day, &faults)?;
    }
    let last = (before.0 > 0).then(|| (before.0, String::from_utf8_lossy(&before.1).into_owned()));
    Ok(Verified { records, last, faults: faults.take() })
}

/// The number that must follow and the hash it follows, when what was removed as too old is passed over.
fn over_removed(removed: &BTreeMap<u64, retention::Run>, before: (u64, Hash), seq: u64) -> (u64, Hash) {
    let (mut expected, mut hash) = (before.0.saturating_add(1), before.1);
    while expected < seq
        && let Some(run) = removed.get(&expected)
        && let Ok(last) = run.hash.as_bytes().try_into()
    {
        (expected, hash) = (run.last.saturating_add(1), last);
    }
    (expected, hash)
}

/// What stands after the last line of a file.
fn torn(folder: &Path, day: Date, faults: &Faults) -> io::Result<()> {
    let file = match File::open(folder::path(folder, day)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    // Who looks while a line is written sees half of it, and the whole of it soon after.
    for _ in 0..1000 {
        let mut last = [b'\n'];
        if let Some(end) = file.metadata()?.len().checked_sub(1) {
            // Nothing is read where a write that failed was cut off in this moment.
            file.read_at(&mut last, end)?;
        }
        if last == [b'\n'] {
            return Ok(());
        }
        std::thread::yield_now();
    }
    let mut lines = Forward::new(file, 0)?;
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
struct Faults(Arc<Mutex<Vec<Fault>>>);

impl Faults {
    fn add(&self, day: Date, line: u64, kind: FaultKind) {
        let mut faults = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if faults.len() < MOST_FAULTS {
            faults.push(Fault { file: format!("{day}.jsonl"), line, kind });
        }
    }

    fn take(&self) -> Vec<Fault> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
