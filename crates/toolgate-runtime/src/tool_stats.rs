//! Per-tool state that outlives a catalog: slots, rate limits, statistics, and the usual next tools.
//!
//! It is kept outside the catalog so that it survives a rebuild. Invariant: bounded by the number of tools and callers.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
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
/// Pairs of a caller and a tool whose next tools are counted.
const MAX_COUNTED_PAIRS: usize = 10_000;
/// Distinct next tools counted for one tool.
const MAX_NEXT_TOOLS: usize = 64;
/// Times that a caller must have used a tool next before it is suggested.
const MIN_OBSERVATIONS: u64 = 5;
/// A tool is suggested if the caller used it next at least once in this many times.
const MIN_SHARE_DIVISOR: u64 = 5;

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

/// Counts of the tools that each caller uses after each tool.
#[derive(Debug, Default)]
pub(crate) struct NextToolStats {
    /// Sessions are stored as hashes of caller and session, with a key of this process. After a collision, a tool is
    /// counted that followed in another session.
    hasher: RandomState,
    counts: Mutex<NextToolCounts>,
}

#[derive(Debug, Default)]
struct NextToolCounts {
    /// Last tool of each session, and the sessions in order of their first call.
    last: HashMap<u64, Box<str>>,
    order: VecDeque<u64>,
    counts: CountsByCaller,
}

impl NextToolCounts {
    fn record(&mut self, caller: &CallerId, session: u64, tool: &str) {
        let Some(last) = self.last.get_mut(&session) else {
            self.last.insert(session, tool.into());
            self.order.push_back(session);
            if self.order.len() > MAX_SESSIONS
                && let Some(oldest) = self.order.pop_front()
            {
                self.last.remove(&oldest);
            }
            return;
        };
        if let Some(next_tools) = self.counts.get_or_insert(caller, last) {
            if let Some(count) = next_tools.get_mut(tool) {
                *count += 1;
            } else if next_tools.len() < MAX_NEXT_TOOLS {
                next_tools.insert(tool.into(), 1);
            }
        }
        if **last != *tool {
            *last = tool.into();
        }
    }
}

/// Counts by caller and tool, so that no caller learns from the calls of another.
#[derive(Debug, Default)]
struct CountsByCaller {
    callers: HashMap<CallerId, HashMap<Box<str>, ToolCounts>>,
    /// Number of pairs of a caller and a tool.
    pairs: usize,
}

/// Number of times each tool was used next.
type ToolCounts = HashMap<Box<str>, u64>;

impl CountsByCaller {
    fn get(&self, caller: &CallerId, tool: &str) -> Option<&ToolCounts> {
        self.callers.get(caller)?.get(tool)
    }

    /// The counts for one caller and tool, created if there is room for them.
    fn get_or_insert(&mut self, caller: &CallerId, tool: &str) -> Option<&mut ToolCounts> {
        if self.get(caller, tool).is_none() {
            if self.pairs >= MAX_COUNTED_PAIRS {
                return None;
            }
            self.callers.entry(caller.clone()).or_default().insert(tool.into(), HashMap::new());
            self.pairs += 1;
        }
        self.callers.get_mut(caller)?.get_mut(tool)
    }
}

impl NextToolStats {
    /// Starts from the counts of earlier processes.
    pub(crate) fn from_history(history: &ToolHistory) -> Self {
        let next_tools = Self::default();
        let mut counts = next_tools.counts.lock();
        for ((caller, tool), followers) in &history.followers {
            let Ok(caller) = caller.parse() else { continue };
            let Some(known) = counts.counts.get_or_insert(&caller, tool) else { continue };
            let top = followers.iter().take(MAX_NEXT_TOOLS);
            known.extend(top.map(|(tool, count)| (tool.as_str().into(), *count)));
        }
        for (key, tool) in &history.last {
            let Ok(caller) = key.caller.parse() else { continue };
            counts.record(&caller, next_tools.session_hash(&caller, key.session.as_deref()), tool);
        }
        drop(counts);
        next_tools
    }

    fn session_hash(&self, caller: &CallerId, session: Option<&str>) -> u64 {
        self.hasher.hash_one((caller, session.unwrap_or_default()))
    }

    /// Records a successful call.
    pub(crate) fn record(&self, caller: &CallerId, session: Option<&str>, tool: &str) {
        let session = self.session_hash(caller, session);
        self.counts.lock().record(caller, session, tool);
    }

    /// Returns the tools that this caller used after this one often enough, most frequent first.
    pub(crate) fn often(&self, caller: &CallerId, tool: &str) -> NextTools {
        let counts = self.counts.lock();
        let Some(next_tools) = counts.counts.get(caller, tool) else {
            return NextTools::default();
        };
        let total: u64 = next_tools.values().sum();
        let is_often = |count: u64| count >= MIN_OBSERVATIONS && count >= total.div_ceil(MIN_SHARE_DIVISOR);
        let often = next_tools.iter().filter(|(_, count)| is_often(**count));
        let mut often: Vec<_> = often.map(|(tool, count)| (tool.to_string(), *count)).collect();
        often.sort_by(|(a, one), (b, other)| other.cmp(one).then_with(|| a.cmp(b)));
        NextTools { often, total }
    }
}

#[test]
fn counts_next_tools_per_caller_and_session() {
    let callers = ["ann", "bob"].map(|id| id.parse::<CallerId>().unwrap());
    let (next_tools, [ann, bob]) = (NextToolStats::default(), &callers);
    let often = |tools: &[(&str, u64)], total| NextTools {
        often: tools.iter().map(|(tool, count)| ((*tool).to_owned(), *count)).collect(),
        total,
    };
    for session in 0..9 {
        let session = session.to_string();
        let next = match session.as_str() {
            "0" | "1" | "2" | "3" => "look",
            _ => "pay",
        };
        next_tools.record(ann, Some(&session), "find");
        next_tools.record(ann, Some(&session), next);
    }
    assert_eq!(next_tools.often(ann, "find"), often(&[("pay", 5)], 9));
    assert_eq!(next_tools.often(bob, "find"), often(&[], 0), "of another caller");
    next_tools.record(ann, Some("9"), "find");
    next_tools.record(ann, Some("9"), "look");
    assert_eq!(next_tools.often(ann, "find"), often(&[("look", 5), ("pay", 5)], 10));
    // Less than a fifth of the times is no habit.
    for session in 10..27 {
        let session = session.to_string();
        next_tools.record(ann, Some(&session), "find");
        next_tools.record(ann, Some(&session), "send");
    }
    assert_eq!(next_tools.often(ann, "find"), often(&[("send", 17)], 27));
}

#[test]
fn loads_history() {
    let mut history = ToolHistory::default();
    let pair = ("ann".to_owned(), "find".to_owned());
    history.followers.entry(pair).or_default().insert("pay".to_owned(), 4);
    let key = |session: &str| toolgate_audit::SessionKey {
        caller: "ann".to_owned(),
        session: Some(session.to_owned()),
    };
    history.last.insert(key("1"), "find".to_owned());
    let (next_tools, ann) = (NextToolStats::from_history(&history), "ann".parse().unwrap());
    next_tools.record(&ann, Some("1"), "pay");
    assert_eq!(next_tools.often(&ann, "pay"), NextTools::default());
    assert_eq!(
        next_tools.often(&ann, "find"),
        NextTools { often: vec![("pay".to_owned(), 5)], total: 5 },
        "the session went on"
    );
    let stats = ToolStats::from_record(ToolTotals { calls: 10, good: 9, micros: 50 });
    assert_eq!(
        stats.record_call(false, false, Duration::ZERO),
        StatsSnapshot { calls: 10, succeeded: 9, micros: 50 }
    );
}
