//! The log of a project: one folder per concurrent process, because a log has a single writer.
//!
//! Readers see the folders as one log. Invariant: consecutive pages have no gaps and no duplicates, whatever is
//! written in the meantime.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use toolgate_types::HumanDuration;

use crate::read::{CallFilter, LogFollower, LogReader, LoggedCall, QueryStep};

/// Maximum number of processes that write at the same time.
pub const MAX_WRITERS: usize = 64;

/// The execution log of a project, over all its writers.
#[derive(Debug, Clone)]
pub struct ProjectLog {
    folder: PathBuf,
}

impl ProjectLog {
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Returns the folder of the writer with this number.
    pub fn writer_folder(&self, number: usize) -> PathBuf {
        self.folder.join(number.to_string())
    }

    /// Lists the existing folders in the order of their writer numbers.
    pub fn folders(&self) -> Vec<PathBuf> {
        (1..=MAX_WRITERS).map(|writer| self.writer_folder(writer)).filter(|folder| folder.is_dir()).collect()
    }

    /// Finds a call by its id.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn show(&self, call: &str) -> io::Result<Option<LoggedCall>> {
        for folder in self.folders() {
            if let Some(call) = LogReader::new(folder).show(call)? {
                return Ok(Some(call));
            }
        }
        Ok(None)
    }

    /// Returns a page of calls that match a filter, newest first, starting after a cursor. Stops as soon as `go_on`
    /// returns false, because the client may have disconnected.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn page(
        &self,
        filter: &CallFilter,
        after: Option<&CallCursor>,
        limit: usize,
        go_on: impl Fn() -> bool,
    ) -> io::Result<CallPage> {
        let until =
            after.and_then(|cursor| cursor.time.checked_add(jiff::SignedDuration::from_nanos(1)).ok());
        let until = [until, filter.until].into_iter().flatten().min();
        let mut calls = Vec::new();
        for folder in self.folders() {
            let wanted = CallFilter { newest_first: true, limit: None, until, ..filter.clone() };
            let mut query = LogReader::new(folder).query(wanted)?;
            let mut found = 0;
            while found <= limit && go_on() {
                match query.step()? {
                    QueryStep::Call(call) if after.is_none_or(|cursor| CallCursor::at(&call) < *cursor) => {
                        calls.push(*call);
                        found += 1;
                    }
                    QueryStep::Call(_) | QueryStep::Progress => {}
                    QueryStep::End => break,
                }
            }
        }
        calls.sort_by_cached_key(|call| std::cmp::Reverse(CallCursor::at(call)));
        let more = calls.len() > limit;
        calls.truncate(limit);
        let next = calls.last().filter(|_| more).map(CallCursor::at);
        Ok(CallPage { calls, next })
    }
}

impl ProjectLog {
    /// Follows the log from its present end.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn follow(&self, filter: &CallFilter) -> io::Result<ProjectFollower> {
        let one = |folder: PathBuf| Ok((folder.clone(), LogReader::new(folder).follow(filter.clone())?));
        let writers = self.folders().into_iter().map(one).collect::<io::Result<_>>()?;
        Ok(ProjectFollower { log: self.clone(), filter: filter.clone(), writers })
    }
}

/// Yields calls as they end, from all writers.
pub struct ProjectFollower {
    log: ProjectLog,
    filter: CallFilter,
    writers: BTreeMap<PathBuf, LogFollower>,
}

impl ProjectFollower {
    /// Returns the calls that ended since the last poll.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn poll(&mut self) -> io::Result<Vec<LoggedCall>> {
        let mut calls = Vec::new();
        for folder in self.log.folders() {
            // A folder that is new since the last poll holds nothing too old: follow it from its start.
            let new = || LogReader::new(folder.clone()).follow_whole(self.filter.clone());
            calls.extend(self.writers.entry(folder.clone()).or_insert_with(new).poll()?);
        }
        Ok(calls)
    }
}

/// A page of calls.
#[derive(Debug)]
pub struct CallPage {
    pub calls: Vec<LoggedCall>,
    /// Cursor of the next page; `None` if this is the last one.
    pub next: Option<CallCursor>,
}

/// A position between two calls.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallCursor {
    time: Timestamp,
    call: String,
}

impl CallCursor {
    fn at(call: &LoggedCall) -> Self {
        Self { time: call.time(), call: call.id().to_owned() }
    }
}

impl fmt::Display for CallCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.time.as_nanosecond(), self.call)
    }
}

/// The string is not a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid cursor (use the `next` value of the previous page)")]
pub struct CursorError;

impl FromStr for CallCursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let (time, call) = text.split_once('.').ok_or(CursorError)?;
        let time = time.parse().map_err(|_| CursorError)?;
        Ok(Self { time: Timestamp::from_nanosecond(time).map_err(|_| CursorError)?, call: call.to_owned() })
    }
}

/// The string is not a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is neither a time such as 2026-11-15T08:00:00Z, a day such as 2026-11-15, today or yesterday, nor a duration \
     ago such as 2h"
)]
pub struct ParseTimeError(String);

/// Parses a time, a day, or a duration ago. Days are UTC, as in the names of the log files, and start at midnight.
///
/// # Errors
/// If the string is none of them.
pub fn parse_time(text: &str, now: Timestamp) -> Result<Timestamp, ParseTimeError> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let error = || ParseTimeError(text.to_owned());
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
fn parses_times_days_and_durations() {
    let now: Timestamp = "2026-11-15T12:00:00Z".parse().unwrap();
    let at = |text: &str| {
        parse_time(text, now).map(|time| time.to_string()).unwrap_or_else(|error| error.to_string())
    };
    assert_eq!(at("2026-11-14"), "2026-11-14T00:00:00Z");
    assert_eq!(at("2026-11-15T08:00:00Z"), "2026-11-15T08:00:00Z");
    assert_eq!(at("2h"), "2026-11-15T10:00:00Z");
    assert_eq!((at("today"), at("yesterday")), (at("2026-11-15"), at("2026-11-14")));
    for bad in ["tomorrow", "", "2026-02-30", "-2h"] {
        assert!(at(bad).starts_with(&format!("`{bad}` is neither")), "{}", at(bad));
    }
}

#[test]
fn cursor_round_trips() {
    let text = "1794700800123456789.019a8f0c2d4eb1c27f0a9d31";
    assert_eq!(text.parse::<CallCursor>().unwrap().to_string(), text);
    for bad in ["", "1", "x.y", "99999999999999999999999999999999.x"] {
        assert_eq!(bad.parse::<CallCursor>(), Err(CursorError), "{bad}");
    }
}
