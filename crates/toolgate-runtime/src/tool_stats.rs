//! Per-tool state that outlives a catalog: slots, rate limits, statistics, and the usual next tools.
//!
//! It is kept outside the catalog so that it survives a rebuild. Invariant: bounded by the number of tools and callers.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use toolgate_audit::{ToolHistory, ToolMetrics, ToolTotals};
use toolgate_types::CallerId;

use crate::stage::hints::{NextTools, StatsSnapshot};
use crate::stage::rate_limit::RateLimit;
use crate::stage::slots::ToolSlots;

/// Sessions whose last tool is remembered.
const MAX_SESSIONS: usize = 10_000;
/// Distinct next tools counted for one tool.
const MAX_NEXT_TOOLS: usize = 64;

/// State of a tool that all catalogs containing it share.
#[derive(Debug)]
pub(crate) struct SharedToolState {
    pub(crate) slots: ToolSlots,
    pub(crate) rate_limit: Option<RateLimit>,
    pub(crate) stats: ToolStats,
    pub(crate) metrics: Arc<ToolMetrics>,
}

/// Call statistics of a tool.
#[derive(Debug, Default)]
pub(crate) struct ToolStats {
    calls: AtomicU64,
    succeeded: AtomicU64,
    micros: AtomicU64,
}

impl ToolStats {
    /// Starts from the statistics of earlier processes.
    pub(crate) fn from_record(record: ToolTotals) -> Self {
        Self { calls: record.calls.into(), succeeded: record.good.into(), micros: record.micros.into() }
    }

    /// Counts a call if it reached the tool. Returns the statistics from before the call.
    pub(crate) fn record_call(&self, ran: bool, good: bool, took: Duration) -> StatsSnapshot {
        let add = |to: &AtomicU64, n: u64| to.fetch_add(n, Ordering::Relaxed);
        if !ran {
            let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            return StatsSnapshot {
                calls: get(&self.calls),
                succeeded: get(&self.succeeded),
                micros: get(&self.micros),
            };
        }
        StatsSnapshot {
            calls: add(&self.calls, 1),
            succeeded: add(&self.succeeded, u64::from(good)),
            micros: add(&self.micros, u64::try_from(took.as_micros()).unwrap_or(u64::MAX)),
        }
    }
}

/// Sessions that content from an untrusted server has reached. Such content may carry a prompt injection, so policies
/// can require approval for further calls.
#[derive(Debug, Default)]
pub(crate) struct TaintedSessions(Mutex<(HashSet<SessionKey>, VecDeque<SessionKey>)>);

type SessionKey = (CallerId, Box<str>);

impl TaintedSessions {
    /// Returns true if the session is tainted. Calls without a session taint nothing, as no call follows them.
    pub(crate) fn contains(&self, caller: &CallerId, session: Option<&str>) -> bool {
        let Some(session) = session else { return false };
        let taints = self.0.lock();
        taints.0.contains(&(caller.clone(), session.into()))
    }

    /// Marks a session as tainted. Evicts the oldest session above the limit.
    pub(crate) fn insert(&self, caller: &CallerId, session: Option<&str>) {
        let Some(session) = session else { return };
        let session: SessionKey = (caller.clone(), session.into());
        let mut taints = self.0.lock();
        if taints.0.insert(session.clone()) {
            taints.1.push_back(session);
        }
        if taints.1.len() > MAX_SESSIONS
            && let Some(oldest) = taints.1.pop_front()
        {
            taints.0.remove(&oldest);
        }
    }
}

/// Counts of the tools that callers use after each tool.
#[derive(Debug, Default)]
pub(crate) struct NextToolStats(Mutex<NextToolCounts>);

#[derive(Debug, Default)]
struct NextToolCounts {
    /// Last tool of each session, and the sessions in order of their first call.
    last: HashMap<SessionKey, Box<str>>,
    order: VecDeque<SessionKey>,
    counts: HashMap<Box<str>, HashMap<Box<str>, u64>>,
}

impl NextToolCounts {
    fn record(&mut self, session: SessionKey, tool: &str) {
        let Some(last) = self.last.get_mut(&session) else {
            self.last.insert(session.clone(), tool.into());
            self.order.push_back(session);
            if self.order.len() > MAX_SESSIONS
                && let Some(oldest) = self.order.pop_front()
            {
                self.last.remove(&oldest);
            }
            return;
        };
        if !self.counts.contains_key(last) {
            self.counts.insert(last.clone(), HashMap::new());
        }
        let next_tools = self.counts.get_mut(last).expect("just inserted");
        if let Some(count) = next_tools.get_mut(tool) {
            *count += 1;
        } else if next_tools.len() < MAX_NEXT_TOOLS {
            next_tools.insert(tool.into(), 1);
        }
        if **last != *tool {
            *last = tool.into();
        }
    }
}

impl NextToolStats {
    /// Starts from the counts of earlier processes.
    pub(crate) fn from_history(history: &ToolHistory) -> Self {
        let mut counts = NextToolCounts::default();
        for (tool, next_tools) in &history.followers {
            let top = next_tools.iter().take(MAX_NEXT_TOOLS);
            counts.counts.insert(
                tool.as_str().into(),
                top.map(|(tool, count)| (tool.as_str().into(), *count)).collect(),
            );
        }
        for (key, tool) in &history.last {
            let Ok(caller) = key.caller.parse() else { continue };
            counts.record((caller, key.session.as_deref().unwrap_or_default().into()), tool);
        }
        Self(Mutex::new(counts))
    }

    /// Records a successful call. Returns the tools that followed this one so far, most frequent first.
    pub(crate) fn record(
        &self,
        caller: &CallerId,
        session: Option<&str>,
        tool: &str,
        good: bool,
    ) -> NextTools {
        let mut counts = self.0.lock();
        if good {
            counts.record((caller.clone(), session.unwrap_or_default().into()), tool);
        }
        let mut next: NextTools = counts
            .counts
            .get(tool)
            .into_iter()
            .flatten()
            .map(|(tool, count)| (tool.to_string(), *count))
            .collect();
        next.sort_by(|(a, one), (b, other)| other.cmp(one).then_with(|| a.cmp(b)));
        next
    }
}

#[test]
fn counts_next_tools_per_session() {
    let (next_tools, ann) = (NextToolStats::default(), "ann".parse().unwrap());
    for (session, tool) in
        [("1", "find"), ("2", "find"), ("1", "pay"), ("2", "look"), ("3", "find"), ("3", "pay")]
    {
        next_tools.record(&ann, Some(session), tool, true);
    }
    assert_eq!(
        next_tools.record(&ann, Some("9"), "find", false),
        [("pay".to_owned(), 2), ("look".to_owned(), 1)]
    );
}

#[test]
fn loads_history() {
    let mut history = ToolHistory::default();
    history.followers.entry("find".to_owned()).or_default().insert("pay".to_owned(), 4);
    let key = |session: &str| toolgate_audit::SessionKey {
        caller: "ann".to_owned(),
        session: Some(session.to_owned()),
    };
    history.last.insert(key("1"), "find".to_owned());
    let (next_tools, ann) = (NextToolStats::from_history(&history), "ann".parse().unwrap());
    assert_eq!(next_tools.record(&ann, Some("1"), "pay", true), []);
    assert_eq!(
        next_tools.record(&ann, Some("2"), "find", true),
        [("pay".to_owned(), 5)],
        "the session went on"
    );
    let stats = ToolStats::from_record(ToolTotals { calls: 10, good: 9, micros: 50 });
    assert_eq!(
        stats.record_call(false, false, Duration::ZERO),
        StatsSnapshot { calls: 10, succeeded: 9, micros: 50 }
    );
}
