//! The log of a project: a folder for each process that writes at the same time, since one log has one writer.
//!
//! Readers see them as one. Invariant: a page follows another without a gap and without a call twice, whatever
//! is written meanwhile.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use toolgate_types::HumanDuration;

use crate::read::{Call, Filter, Follow, Reader};

/// Processes that write at the same time.
pub const MOST_WRITERS: usize = 64;

/// All that was written down in a project.
#[derive(Debug, Clone)]
pub struct ProjectLog {
    folder: PathBuf,
}

impl ProjectLog {
    /// The log in a folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Where a process writes that is one of so many.
    pub fn writer(&self, number: usize) -> PathBuf {
        self.folder.join(number.to_string())
    }

    /// The folders that there are, by the number of their writer.
    pub fn folders(&self) -> Vec<PathBuf> {
        (1..=MOST_WRITERS).map(|writer| self.writer(writer)).filter(|folder| folder.is_dir()).collect()
    }

    /// One call.
    ///
    /// # Errors
    /// When the system refuses to read.
    pub fn show(&self, call: &str) -> io::Result<Option<Call>> {
        for folder in self.folders() {
            if let Some(call) = Reader::new(folder).show(call)? {
                return Ok(Some(call));
            }
        }
        Ok(None)
    }

    /// Calls that pass a filter, the newest first, from behind a cursor on. `go_on` is asked before each, as
    /// who wants them may leave.
    ///
    /// # Errors
    /// When the system refuses to read.
    pub fn page(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
        go_on: impl Fn() -> bool,
    ) -> io::Result<Page> {
        let until =
            after.and_then(|cursor| cursor.time.checked_add(jiff::SignedDuration::from_nanos(1)).ok());
        let until = [until, filter.until].into_iter().flatten().min();
        let mut calls = Vec::new();
        for folder in self.folders() {
            let wanted = Filter { newest_first: true, limit: None, until, ..filter.clone() };
            let mut found = 0;
            for call in Reader::new(folder).query(wanted)? {
                let call = call?;
                if !go_on() || found > limit {
                    break;
                }
                if after.is_none_or(|cursor| Cursor::at(&call) < *cursor) {
                    calls.push(call);
                    found += 1;
                }
            }
        }
        calls.sort_by_cached_key(|call| std::cmp::Reverse(Cursor::at(call)));
        let more = calls.len() > limit;
        calls.truncate(limit);
        let next = calls.last().filter(|_| more).map(Cursor::at);
        Ok(Page { calls, next })
    }
}

impl ProjectLog {
    /// Follows all that is written, from now on.
    ///
    /// # Errors
    /// When the system refuses to read.
    pub fn follow(&self, filter: &Filter) -> io::Result<Following> {
        let one = |folder: PathBuf| Ok((folder.clone(), Reader::new(folder).follow(filter.clone())?));
        let writers = self.folders().into_iter().map(one).collect::<io::Result<_>>()?;
        Ok(Following { log: self.clone(), filter: filter.clone(), writers })
    }
}

/// Calls as they end, whichever process writes them down.
pub struct Following {
    log: ProjectLog,
    filter: Filter,
    writers: BTreeMap<PathBuf, Follow>,
}

impl Following {
    /// The calls that ended since the last time it was asked.
    ///
    /// # Errors
    /// When the system refuses to read.
    pub fn poll(&mut self) -> io::Result<Vec<Call>> {
        let mut calls = Vec::new();
        for folder in self.log.folders() {
            // One that was not there before holds nothing that is too old.
            let new = || Reader::new(folder.clone()).follow_whole(self.filter.clone());
            calls.extend(self.writers.entry(folder.clone()).or_insert_with(new).poll()?);
        }
        Ok(calls)
    }
}

/// Some calls, and where to go on.
#[derive(Debug)]
pub struct Page {
    /// The calls.
    pub calls: Vec<Call>,
    /// Behind which one there are more.
    pub next: Option<Cursor>,
}

/// A place between two calls.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    time: Timestamp,
    call: String,
}

impl Cursor {
    fn at(call: &Call) -> Self {
        Self { time: call.time(), call: call.id().to_owned() }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.time.as_nanosecond(), self.call)
    }
}

/// A text is not a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a cursor is what the page before gave as `next`")]
pub struct CursorError;

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let (time, call) = text.split_once('.').ok_or(CursorError)?;
        let time = time.parse().map_err(|_| CursorError)?;
        Ok(Self { time: Timestamp::from_nanosecond(time).map_err(|_| CursorError)?, call: call.to_owned() })
    }
}

/// A text is not a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is neither a time such as 2026-11-15T08:00:00Z, a day such as 2026-11-15, today or yesterday, nor how long \
     ago such as 2h"
)]
pub struct MomentError(String);

/// A day, a time, or how long ago. Days are those of UTC, as in the names of the log's files, and begin at midnight.
///
/// # Errors
/// When it is none of them.
pub fn moment(text: &str, now: Timestamp) -> Result<Timestamp, MomentError> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let error = || MomentError(text.to_owned());
    let today = || now.to_zoned(TimeZone::UTC).date();
    let day = match text {
        "today" => Some(today()),
        "yesterday" => today().yesterday().ok(),
        text => text.parse::<Date>().ok(),
    };
    if let Some(day) = day {
        return Ok(day.to_zoned(TimeZone::UTC).map_err(|_| error())?.timestamp());
    }
    let ago = text.parse::<HumanDuration>().map_err(|_| error())?;
    now.checked_sub(ago.get()).map_err(|_| error())
}

#[test]
fn times() {
    let now: Timestamp = "2026-11-15T12:00:00Z".parse().unwrap();
    let at =
        |text: &str| moment(text, now).map(|time| time.to_string()).unwrap_or_else(|error| error.to_string());
    assert_eq!(at("2026-11-14"), "2026-11-14T00:00:00Z");
    assert_eq!(at("2026-11-15T08:00:00Z"), "2026-11-15T08:00:00Z");
    assert_eq!(at("2h"), "2026-11-15T10:00:00Z");
    assert_eq!((at("today"), at("yesterday")), (at("2026-11-15"), at("2026-11-14")));
    for bad in ["tomorrow", "", "2026-02-30", "-2h"] {
        assert!(at(bad).starts_with(&format!("`{bad}` is neither")), "{}", at(bad));
    }
}

#[test]
fn a_cursor_reads_as_it_is_written() {
    let text = "1794700800123456789.019a8f0c2d4eb1c27f0a9d31";
    assert_eq!(text.parse::<Cursor>().unwrap().to_string(), text);
    for bad in ["", "1", "x.y", "99999999999999999999999999999999.x"] {
        assert_eq!(bad.parse::<Cursor>(), Err(CursorError), "{bad}");
    }
}
