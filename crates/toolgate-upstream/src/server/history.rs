//! The past of a server: since when it is up or down, how often it was reconnected, its last errors and output.
//!
//! Invariant: everything is bounded, and secrets of the server are masked.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

use super::ServerState;

/// Errors that are kept.
const MAX_ERRORS: usize = 10;

/// An outage of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerOutage {
    pub at: SystemTime,
    pub reason: Arc<str>,
}

/// The past of a server, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerHistory {
    /// Time of the last change between ready and not ready.
    pub since: SystemTime,
    /// Connections after the first one.
    pub restarts: u64,
    /// Newest first.
    pub last_errors: Vec<ServerOutage>,
    /// Last lines of stderr of the process that ended last.
    pub stderr: Vec<String>,
}

/// Records the states of a server.
#[derive(Debug)]
pub(crate) struct HistoryRecorder(Mutex<RecordedHistory>);

#[derive(Debug)]
struct RecordedHistory {
    since: SystemTime,
    is_ready: bool,
    connections: u64,
    errors: VecDeque<ServerOutage>,
    stderr: Vec<String>,
}

impl HistoryRecorder {
    pub(crate) fn new() -> Self {
        let (since, errors, stderr) = (SystemTime::now(), VecDeque::new(), Vec::new());
        Self(Mutex::new(RecordedHistory { since, is_ready: false, connections: 0, errors, stderr }))
    }

    /// Notes a new state.
    pub(crate) fn record(&self, state: &ServerState) {
        let now = SystemTime::now();
        let is_ready = matches!(state, ServerState::Ready(_));
        let mut history = self.0.lock();
        if history.is_ready != is_ready {
            (history.is_ready, history.since) = (is_ready, now);
        }
        history.connections += u64::from(is_ready);
        if let ServerState::Down { reason, .. } = state {
            // Each probe of an outage fails for the same reason.
            if history.errors.front().is_none_or(|last| last.reason != *reason) {
                history.errors.push_front(ServerOutage { at: now, reason: Arc::clone(reason) });
                history.errors.truncate(MAX_ERRORS);
            }
        }
    }

    /// Notes the last output of a process that ended.
    pub(crate) fn record_stderr(&self, lines: Vec<String>) {
        if !lines.is_empty() {
            self.0.lock().stderr = lines;
        }
    }

    pub(crate) fn get(&self) -> ServerHistory {
        let history = self.0.lock();
        ServerHistory {
            since: history.since,
            restarts: history.connections.saturating_sub(1),
            last_errors: history.errors.iter().cloned().collect(),
            stderr: history.stderr.clone(),
        }
    }
}

#[test]
fn probes_of_one_outage_are_one_error() {
    use tokio::time::Instant;

    use crate::connect::OutageKind;
    let down = |reason: &str| ServerState::Down {
        reason: reason.into(),
        hint: None,
        next_try: Instant::now(),
        kind: OutageKind::Unreachable,
        login: false,
    };
    let recorder = HistoryRecorder::new();
    let started = recorder.get().since;
    for reason in ["a", "a", "b"] {
        recorder.record(&ServerState::Connecting);
        recorder.record(&down(reason));
    }
    for n in 0..2 * MAX_ERRORS {
        recorder.record(&down(&n.to_string()));
    }
    let history = recorder.get();
    assert_eq!((history.last_errors.len(), history.restarts, history.since), (MAX_ERRORS, 0, started));
    assert_eq!(&*history.last_errors[0].reason, "19");
}
