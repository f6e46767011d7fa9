//! What the recent past says about tools: how each did, and which one callers used after which.
//!
//! Read once when a process starts, so that what was learnt outlives a restart. Invariant: the newest calls are
//! read first, and neither their number, their age nor their size makes it read more than was allowed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use memchr::memmem::find;
use serde::Deserialize;

use crate::chain::{self, Line};
use crate::merge::{Merge, Order};
use crate::read::Reader;

/// How far back to look. What is reached first ends it.
#[derive(Debug, Clone)]
pub struct Recent {
    /// Calls that ended at this time or later.
    pub since: Option<Timestamp>,
    /// At most so many calls.
    pub calls: usize,
    /// At most so many bytes of the log, give or take a line: calls can be large.
    pub bytes: u64,
}

impl Recent {
    /// The last 10,000 calls of the last seven days, in not more than 64 MiB.
    pub fn of(now: Timestamp) -> Self {
        let week = jiff::SignedDuration::from_hours(7 * 24);
        Self { since: now.checked_sub(week).ok(), calls: 10_000, bytes: 64 << 20 }
    }
}

/// How a tool did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToolRecord {
    /// Calls that reached it.
    pub calls: u64,
    /// Those that went well.
    pub good: u64,
    /// What all of them took together.
    pub micros: u64,
}

/// A caller's session; calls outside of any share one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionKey {
    /// Who called.
    pub caller: String,
    /// The session, where there was one.
    pub session: Option<String>,
}

/// What a log says about its tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// How each tool did, by its name.
    pub tools: BTreeMap<String, ToolRecord>,
    /// How often a tool that went well was followed by another one that did, in the same session.
    pub followers: BTreeMap<String, BTreeMap<String, u64>>,
    /// The last tool that went well in each session.
    pub last: BTreeMap<SessionKey, String>,
}

impl History {
    /// Adds what another log says. Which of two logs tells the newer last tool is not known; it is taken from
    /// the other one.
    pub fn add(&mut self, other: Self) {
        for (tool, record) in other.tools {
            let sum = self.tools.entry(tool).or_default();
            sum.calls += record.calls;
            sum.good += record.good;
            sum.micros = sum.micros.saturating_add(record.micros);
        }
        for (tool, followers) in other.followers {
            let sums = self.followers.entry(tool).or_default();
            for (follower, count) in followers {
                *sums.entry(follower).or_default() += count;
            }
        }
        self.last.extend(other.last);
    }

    fn note(&mut self, end: Brief) {
        let good = end.status == "success";
        if end.attempts > 0 {
            let record = self.tools.entry(end.tool.clone()).or_default();
            record.calls += 1;
            record.good += u64::from(good);
            record.micros = record.micros.saturating_add(end.micros);
        }
        if good {
            let key = SessionKey { caller: end.caller, session: end.session };
            if let Some(before) = self.last.insert(key, end.tool.clone()) {
                *self.followers.entry(before).or_default().entry(end.tool).or_default() += 1;
            }
        }
    }
}

/// What counts of an end.
#[derive(Deserialize)]
struct Brief {
    caller: String,
    tool: String,
    #[serde(default)]
    session: Option<String>,
    status: String,
    attempts: u32,
    micros: u64,
}

impl Brief {
    /// Reads what stands before the output, which can be large and says nothing here.
    fn of(line: &[u8]) -> Option<Self> {
        // Within a text a quotation mark is escaped, so this is the member.
        let text = match find(line, br#","output"#) {
            Some(at) => Cow::Owned([&line[..at], b"}"].concat()),
            None => Cow::Borrowed(line),
        };
        serde_json::from_slice(&text).ok()
    }
}

impl Reader {
    /// How tools did and what followed what, in the recent past. Calls count in the order they ended.
    pub fn history(&self, recent: &Recent) -> io::Result<History> {
        let since = recent.since.map(chain::stamp_text);
        let days = self.days()?;
        let days = days.into_iter().filter(|day| recent.since.is_none_or(|since| *day >= chain::day(since)));
        let bytes = AtomicU64::new(0);
        let mut merge = Merge::new(&self.folder, days, Order::NewestFirst, |_, _, line| {
            let read = bytes.fetch_add(line.len() as u64, Ordering::Relaxed);
            // Past what is allowed any line is wanted: it ends the loop below.
            read > recent.bytes
                || Line::look(line).is_some_and(|line| line.rest().starts_with(br#","kind":"end","#))
        })?;
        let mut ends = Vec::new();
        while ends.len() < recent.calls
            && let Some(found) = merge.next()?
        {
            let early =
                |since: &String| Line::look(&found.line).is_none_or(|line| line.time < since.as_str());
            if bytes.load(Ordering::Relaxed) > recent.bytes {
                break;
            }
            // Later lines can have earlier stamps where a clock was set back, so it goes on.
            if since.as_ref().is_some_and(early) {
                continue;
            }
            ends.extend(Brief::of(&found.line));
        }
        let mut history = History::default();
        ends.into_iter().rev().for_each(|end| history.note(end));
        Ok(history)
    }
}
