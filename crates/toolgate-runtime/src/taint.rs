//! Taint: remembers the sessions that untrusted content has reached.
//!
//! Such content may carry a prompt injection, so policies can require approval for further calls. Taint belongs to a
//! session that Toolgate issued. Operations without one taint their caller for a window of time. Invariants: memory is
//! bounded per caller, nothing that a caller chooses clears a taint, and one caller never affects another. When a bound
//! is reached, sessions that are not known count as tainted, and so do those from before the last start.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use toolgate_store::cluster::TaintStore;
use toolgate_store::store::StoreUnavailable;
use toolgate_types::CallerId;

use crate::operation::SessionId;

/// Tainted sessions that are remembered per caller.
const MAX_SESSIONS: usize = 1_000;
/// Tainted callers that are remembered. Tokens of an issuer can name any number of callers.
const MAX_CALLERS: usize = 10_000;

/// A session taints for longer than its id is valid.
const SESSION_LIFETIME: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// Stands for all sessions of a caller.
const ALL_SESSIONS: &str = "*";
/// The taint of a caller without a session is stored again after this part of the window, and lasts that much longer.
const STORE_AGAIN: u32 = 16;

/// The tainted sessions of all callers.
#[derive(Debug)]
pub(crate) struct TaintTracker {
    /// Time that a caller without a session stays tainted, in milliseconds.
    window: AtomicU64,
    /// Sessions are stored as hashes, with a key of this process. A collision only taints a session too many.
    hasher: RandomState,
    callers: Mutex<TaintedCallers>,
    /// The taint at all replicas of a cluster. Then the sessions above are those that are known to be stored there.
    shared: Option<Arc<dyn TaintStore>>,
}

#[derive(Debug, Default)]
struct TaintedCallers {
    by_id: HashMap<CallerId, CallerTaint>,
    /// True once a caller could not be remembered.
    overflowed: bool,
}

#[derive(Debug, Default)]
struct CallerTaint {
    /// The last time untrusted content arrived without a session.
    without_session: Option<Instant>,
    sessions: HashSet<u64>,
    /// True once a session could not be remembered.
    overflowed: bool,
}

impl TaintTracker {
    pub(crate) fn new(window: Duration, shared: Option<Arc<dyn TaintStore>>) -> Self {
        let window = AtomicU64::new(millis(window));
        Self { window, hasher: RandomState::new(), callers: Mutex::default(), shared }
    }

    /// The store of a cluster.
    pub(crate) fn shared(&self) -> Option<&dyn TaintStore> {
        self.shared.as_deref()
    }

    /// Returns true if untrusted content has reached the session at any replica. Without the database every session
    /// counts as tainted.
    pub(crate) async fn contains_anywhere(
        &self,
        store: &dyn TaintStore,
        caller: &CallerId,
        session: Option<&SessionId>,
        now: Instant,
    ) -> bool {
        self.contains(caller, session, now)
            || store.contains(caller.as_str(), session.and_then(SessionId::issued)).await.unwrap_or(true)
    }

    /// Marks a session as tainted at all replicas. It is stored when this returns.
    pub(crate) async fn insert_everywhere(
        &self,
        store: &dyn TaintStore,
        caller: &CallerId,
        session: Option<&SessionId>,
        now: Instant,
    ) -> Result<(), StoreUnavailable> {
        let window = Duration::from_millis(self.window.load(Ordering::Relaxed));
        let issued = session.and_then(SessionId::issued);
        let is_stored = {
            let callers = self.callers.lock();
            let taint = callers.by_id.get(caller);
            taint.is_some_and(|taint| match issued {
                Some(id) => taint.overflowed || taint.sessions.contains(&self.hasher.hash_one(id)),
                None => taint
                    .without_session
                    .is_some_and(|at| now.saturating_duration_since(at) < window / STORE_AGAIN),
            })
        };
        if is_stored {
            return Ok(());
        }
        let is_full = {
            let callers = self.callers.lock();
            callers.by_id.get(caller).is_some_and(|taint| taint.sessions.len() >= MAX_SESSIONS)
        };
        let (session_key, lasting) = match issued {
            None => (None, window + window / STORE_AGAIN),
            // Too many to store each of them.
            Some(_) if is_full => (Some(ALL_SESSIONS), SESSION_LIFETIME),
            Some(id) => (Some(id), SESSION_LIFETIME),
        };
        store.insert(caller.as_str(), session_key, lasting).await?;
        self.insert(caller, session, now);
        Ok(())
    }

    /// Replaces the time that a caller without a session stays tainted.
    pub(crate) fn set_window(&self, window: Duration) {
        self.window.store(millis(window), Ordering::Relaxed);
    }

    /// Returns true if untrusted content has reached the session or, without an issued session, the caller within the
    /// window.
    pub(crate) fn contains(&self, caller: &CallerId, session: Option<&SessionId>, now: Instant) -> bool {
        // In a cluster, a session may have begun at another replica, and its taint is stored.
        if self.shared.is_none() && matches!(session, Some(SessionId::Earlier(_))) {
            return true;
        }
        let callers = self.callers.lock();
        let Some(taint) = callers.by_id.get(caller) else { return callers.overflowed };
        match session.and_then(SessionId::issued) {
            Some(id) => taint.overflowed || taint.sessions.contains(&self.hasher.hash_one(id)),
            None => taint.without_session.is_some_and(|at| {
                millis(now.saturating_duration_since(at)) < self.window.load(Ordering::Relaxed)
            }),
        }
    }

    pub(crate) fn insert(&self, caller: &CallerId, session: Option<&SessionId>, now: Instant) {
        let mut callers = self.callers.lock();
        if !callers.by_id.contains_key(caller) {
            if callers.by_id.len() >= MAX_CALLERS {
                callers.overflowed = true;
                return;
            }
            callers.by_id.insert(caller.clone(), CallerTaint::default());
        }
        let taint = callers.by_id.get_mut(caller).expect("just inserted");
        match session.and_then(SessionId::issued) {
            None => taint.without_session = Some(now),
            Some(_) if taint.sessions.len() >= MAX_SESSIONS => taint.overflowed = true,
            Some(id) => drop(taint.sessions.insert(self.hasher.hash_one(id))),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    fn issued(number: usize) -> Option<SessionId> {
        Some(SessionId::Issued(number.to_string()))
    }

    fn caller(name: &str) -> CallerId {
        name.parse().unwrap()
    }

    #[test]
    fn taint_belongs_to_one_session_of_one_caller() {
        let (tracker, now) = (TaintTracker::new(WINDOW, None), Instant::now());
        tracker.insert(&caller("ann"), issued(1).as_ref(), now);
        let contains =
            |name: &str, session: Option<SessionId>| tracker.contains(&caller(name), session.as_ref(), now);
        assert!(contains("ann", issued(1)));
        assert!(!contains("ann", issued(2)) && !contains("bob", issued(1)) && !contains("ann", None));
    }

    #[test]
    fn sessions_of_an_earlier_run_count_as_tainted() {
        let tracker = TaintTracker::new(WINDOW, None);
        let earlier = SessionId::Earlier("1".to_owned());
        assert!(tracker.contains(&caller("ann"), Some(&earlier), Instant::now()));
        assert!(!tracker.contains(&caller("ann"), issued(1).as_ref(), Instant::now()));
    }

    #[test]
    fn a_chosen_session_id_neither_hides_nor_clears_taint() {
        let (tracker, ann, now) = (TaintTracker::new(WINDOW, None), caller("ann"), Instant::now());
        let claimed = |id: &str| Some(SessionId::Claimed(id.to_owned()));
        tracker.insert(&ann, claimed("a").as_ref(), now);
        for session in [None, claimed("a"), claimed("b")] {
            let contains = |at| tracker.contains(&ann, session.as_ref(), at);
            assert!(contains(now) && contains(now + WINDOW / 2) && !contains(now + WINDOW), "{session:?}");
        }
    }

    #[test]
    fn many_sessions_clear_no_taint_and_reach_no_other_caller() {
        let (tracker, now) = (TaintTracker::new(WINDOW, None), Instant::now());
        let (ann, bob) = (caller("ann"), caller("bob"));
        tracker.insert(&ann, issued(0).as_ref(), now);
        for number in 0..=MAX_SESSIONS {
            tracker.insert(&bob, issued(number).as_ref(), now);
        }
        assert!(
            tracker.contains(&ann, issued(0).as_ref(), now)
                && !tracker.contains(&ann, issued(1).as_ref(), now)
        );
        assert!(tracker.contains(&bob, issued(5).as_ref(), now));
        assert!(tracker.contains(&bob, issued(1_000_000).as_ref(), now), "unknown counts as tainted");
    }

    #[test]
    fn callers_beyond_the_bound_count_as_tainted() {
        let (tracker, now) = (TaintTracker::new(WINDOW, None), Instant::now());
        for number in 0..=MAX_CALLERS {
            tracker.insert(&caller(&format!("c{number}")), None, now);
        }
        assert!(tracker.contains(&caller("unknown"), None, now));
        assert!(!tracker.contains(&caller("c1"), None, now + WINDOW));
    }
}
