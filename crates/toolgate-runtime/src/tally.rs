//! What is remembered of tools between calls: their slots, their limits, how they did, what followed.
//!
//! Beside the catalog and not in it, so that it survives a change of the catalog. Invariant: bounded by the
//! number of tools, and of callers.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use toolgate_audit::{History, ToolMetrics, ToolRecord};
use toolgate_types::CallerId;

use crate::stage::hints::{Next, Record};
use crate::stage::rate_limit::RateLimit;
use crate::stage::slots::Slots;

/// Sessions whose last tool is remembered.
const MOST_SESSIONS: usize = 10_000;
/// Tools that followed one tool, counted.
const MOST_FOLLOWERS: usize = 64;

/// What stands before a tool.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) slots: Slots,
    pub(crate) rate_limit: Option<RateLimit>,
    pub(crate) tally: Tally,
    pub(crate) metrics: Arc<ToolMetrics>,
}

/// How a tool did so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    calls: AtomicU64,
    good: AtomicU64,
    micros: AtomicU64,
}

impl Tally {
    /// A tool that did so before this process.
    pub(crate) fn since(record: ToolRecord) -> Self {
        Self { calls: record.calls.into(), good: record.good.into(), micros: record.micros.into() }
    }

    /// Counts a call, if it reached the tool, and says how the tool did before it.
    pub(crate) fn count(&self, ran: bool, good: bool, took: Duration) -> Record {
        let add = |to: &AtomicU64, n: u64| to.fetch_add(n, Ordering::Relaxed);
        if !ran {
            let get = |of: &AtomicU64| of.load(Ordering::Relaxed);
            return Record { calls: get(&self.calls), good: get(&self.good), micros: get(&self.micros) };
        }
        Record {
            calls: add(&self.calls, 1),
            good: add(&self.good, u64::from(good)),
            micros: add(&self.micros, u64::try_from(took.as_micros()).unwrap_or(u64::MAX)),
        }
    }
}

/// Sessions in which something from an untrusted server was read. What such a server says can be an
/// attempt to make a model do what its user does not want, and a policy may ask before more is done.
#[derive(Debug, Default)]
pub(crate) struct Taints(Mutex<(HashSet<Session>, VecDeque<Session>)>);

type Session = (CallerId, Box<str>);

impl Taints {
    /// Whether a session is tainted. Calls without a session taint nothing, as nothing follows them.
    pub(crate) fn has(&self, caller: &CallerId, session: Option<&str>) -> bool {
        let Some(session) = session else { return false };
        let taints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        taints.0.contains(&(caller.clone(), session.into()))
    }

    /// Something from an untrusted server was read.
    pub(crate) fn note(&self, caller: &CallerId, session: Option<&str>) {
        let Some(session) = session else { return };
        let session: Session = (caller.clone(), session.into());
        let mut taints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taints.0.insert(session.clone()) {
            taints.1.push_back(session);
        }
        if taints.1.len() > MOST_SESSIONS
            && let Some(oldest) = taints.1.pop_front()
        {
            taints.0.remove(&oldest);
        }
    }
}

/// What callers did after each tool.
#[derive(Debug, Default)]
pub(crate) struct Followers(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    /// The last tool of a session, and the order in which sessions were first seen.
    last: HashMap<Session, Box<str>>,
    order: VecDeque<Session>,
    counts: HashMap<Box<str>, HashMap<Box<str>, u64>>,
}

impl Books {
    fn note(&mut self, session: Session, tool: &str) {
        let Some(last) = self.last.get_mut(&session) else {
            self.last.insert(session.clone(), tool.into());
            self.order.push_back(session);
            if self.order.len() > MOST_SESSIONS
                && let Some(oldest) = self.order.pop_front()
            {
                self.last.remove(&oldest);
            }
            return;
        };
        if !self.counts.contains_key(last) {
            self.counts.insert(last.clone(), HashMap::new());
        }
        let followers = self.counts.get_mut(last).expect("it is there now");
        if let Some(count) = followers.get_mut(tool) {
            *count += 1;
        } else if followers.len() < MOST_FOLLOWERS {
            followers.insert(tool.into(), 1);
        }
        if **last != *tool {
            *last = tool.into();
        }
    }
}

impl Followers {
    /// Takes over what was done before this process.
    pub(crate) fn remember(&self, history: &History) {
        let mut books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (tool, followers) in &history.followers {
            let most = followers.iter().take(MOST_FOLLOWERS);
            books.counts.insert(
                tool.as_str().into(),
                most.map(|(tool, count)| (tool.as_str().into(), *count)).collect(),
            );
        }
        for (key, tool) in &history.last {
            let Ok(caller) = key.caller.parse() else { continue };
            books.note((caller, key.session.as_deref().unwrap_or_default().into()), tool);
        }
    }

    /// Notes a call that went well, and says what followed its tool before, the most frequent first.
    pub(crate) fn note(&self, caller: &CallerId, session: Option<&str>, tool: &str, good: bool) -> Next {
        let mut books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if good {
            books.note((caller.clone(), session.unwrap_or_default().into()), tool);
        }
        let mut next: Next = books
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
fn what_followed_is_counted_by_session() {
    let (followers, ann) = (Followers::default(), "ann".parse().unwrap());
    for (session, tool) in
        [("1", "find"), ("2", "find"), ("1", "pay"), ("2", "look"), ("3", "find"), ("3", "pay")]
    {
        followers.note(&ann, Some(session), tool, true);
    }
    assert_eq!(
        followers.note(&ann, Some("9"), "find", false),
        [("pay".to_owned(), 2), ("look".to_owned(), 1)]
    );
}

#[test]
fn what_was_done_before_counts() {
    let mut history = History::default();
    history.followers.entry("find".to_owned()).or_default().insert("pay".to_owned(), 4);
    let key = |session: &str| toolgate_audit::SessionKey {
        caller: "ann".to_owned(),
        session: Some(session.to_owned()),
    };
    history.last.insert(key("1"), "find".to_owned());
    let (followers, ann) = (Followers::default(), "ann".parse().unwrap());
    followers.remember(&history);
    assert_eq!(followers.note(&ann, Some("1"), "pay", true), []);
    assert_eq!(followers.note(&ann, Some("2"), "find", true), [("pay".to_owned(), 5)], "the session went on");
    let tally = Tally::since(ToolRecord { calls: 10, good: 9, micros: 50 });
    assert_eq!(tally.count(false, false, Duration::ZERO), Record { calls: 10, good: 9, micros: 50 });
}
