//! Tool history: success and duration per tool, and the tools that callers use after one another.
//!
//! Read once at startup, so that the statistics survive a restart. Invariant: the newest calls are read first, and
//! reading stops at the limits on number, age and size.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use memchr::memmem::find;
use serde::Deserialize;

use crate::chain::{self, RecordLine};
use crate::merge::{LineMerge, ReadOrder};
use crate::read::LogReader;

/// Limits of the history. Reading stops at the first one reached.
#[derive(Debug, Clone)]
pub struct HistoryWindow {
    /// Oldest end time of a call.
    pub since: Option<Timestamp>,
    /// Maximum number of calls.
    pub calls: usize,
    /// Maximum bytes of the log, plus at most one line: records can be large.
    pub bytes: u64,
}

impl HistoryWindow {
    /// Returns the default limits: the last 10,000 calls of the last seven days, within 64 MiB.
    pub fn ending_at(now: Timestamp) -> Self {
        let week = jiff::SignedDuration::from_hours(7 * 24);
        Self { since: now.checked_sub(week).ok(), calls: 10_000, bytes: 64 << 20 }
    }
}

/// Totals of a tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToolTotals {
    /// Number of calls that reached the tool.
    pub calls: u64,
    /// Number of successful calls.
    pub good: u64,
    /// Total duration.
    pub micros: u64,
}

/// A caller's session; calls without a session share one key per caller.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionKey {
    pub caller: String,
    pub session: Option<String>,
}

/// Statistics of the recent past.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolHistory {
    /// Totals by tool name.
    pub tools: BTreeMap<String, ToolTotals>,
    /// By caller and tool: number of times a successful call was followed by a successful call of another tool, in one
    /// session.
    pub followers: BTreeMap<(String, String), BTreeMap<String, u64>>,
    /// Last successful tool of each session.
    pub last: BTreeMap<SessionKey, String>,
}

impl ToolHistory {
    /// Adds the history of another log. Its last tools win, because the order between two logs is unknown.
    pub fn add(&mut self, other: Self) {
        for (tool, record) in other.tools {
            let sum = self.tools.entry(tool).or_default();
            sum.calls += record.calls;
            sum.good += record.good;
            sum.micros = sum.micros.saturating_add(record.micros);
        }
        for (pair, followers) in other.followers {
            let sums = self.followers.entry(pair).or_default();
            for (follower, count) in followers {
                *sums.entry(follower).or_default() += count;
            }
        }
        self.last.extend(other.last);
    }

    fn add_call(&mut self, end: EndSummary) {
        // Only tools have statistics.
        if end.operation.is_some() {
            return;
        }
        let good = end.status == "success";
        if end.attempts > 0 {
            let record = self.tools.entry(end.tool.clone()).or_default();
            record.calls += 1;
            record.good += u64::from(good);
            record.micros = record.micros.saturating_add(end.micros);
        }
        if good {
            let key = SessionKey { caller: end.caller.clone(), session: end.session };
            if let Some(before) = self.last.insert(key, end.tool.clone()) {
                let followers = self.followers.entry((end.caller, before)).or_default();
                *followers.entry(end.tool).or_default() += 1;
            }
        }
    }
}

/// The members of an end record that the history needs.
#[derive(Deserialize)]
struct EndSummary {
    caller: String,
    tool: String,
    #[serde(default)]
    operation: Option<String>,
    #[serde(default)]
    session: Option<String>,
    status: String,
    attempts: u32,
    micros: u64,
}

impl EndSummary {
    /// Parses the members before the output, which can be large and is not needed.
    fn parse(line: &[u8]) -> Option<Self> {
        // Quotation marks inside strings are escaped, so this can only be the member.
        let text = match find(line, br#","output"#) {
            Some(at) => Cow::Owned([&line[..at], b"}"].concat()),
            None => Cow::Borrowed(line),
        };
        serde_json::from_slice(&text).ok()
    }
}

impl LogReader {
    /// Reads the history of the recent past. Calls count in the order they ended.
    pub fn history(&self, recent: &HistoryWindow) -> io::Result<ToolHistory> {
        let since = recent.since.map(chain::format_timestamp);
        let days = self.days()?;
        let days =
            days.into_iter().filter(|day| recent.since.is_none_or(|since| *day >= chain::utc_day(since)));
        let bytes = AtomicU64::new(0);
        let mut merge = LineMerge::new(&self.folder, days, ReadOrder::NewestFirst, |_, _, line| {
            let read = bytes.fetch_add(line.len() as u64, Ordering::Relaxed);
            // Past the byte limit every line is selected, to end the loop below.
            read > recent.bytes
                || RecordLine::parse(line)
                    .is_some_and(|line| line.members().starts_with(br#","kind":"end","#))
        })?;
        let mut ends = Vec::new();
        while ends.len() < recent.calls
            && let Some(found) = merge.next()?
        {
            let early =
                |since: &String| RecordLine::parse(&found.line).is_none_or(|line| line.time < since.as_str());
            if bytes.load(Ordering::Relaxed) > recent.bytes {
                break;
            }
            // Continue, because later records can have earlier timestamps if the clock was set back.
            if since.as_ref().is_some_and(early) {
                continue;
            }
            ends.extend(EndSummary::parse(&found.line));
        }
        let mut history = ToolHistory::default();
        ends.into_iter().rev().for_each(|end| history.add_call(end));
        Ok(history)
    }
}
