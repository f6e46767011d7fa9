//! Records of calls: the execution log, spans and metrics.
//!
//! Invariant: log and exporter are those of the setup; they never change while calls run.

use std::collections::HashSet;

use parking_lot::Mutex;
use toolgate_audit::spans::SpanExporter;
use toolgate_audit::{CallFigures, ExecutionLog, LogEvent, Metrics};

use super::Runtime;
use crate::catalog::DefinitionChange;
use crate::running_calls::RunningCalls;

/// Changes that are known to be recorded.
const MAX_KNOWN_CHANGES: usize = 10_000;

/// Everything that a call is recorded in.
pub(crate) struct CallRecorder {
    pub(crate) log: Option<ExecutionLog>,
    pub(crate) spans: Option<SpanExporter>,
    pub(crate) metrics: Metrics,
    pub(crate) figures: CallFigures,
    pub(crate) running: RunningCalls,
    /// Changed definitions that are in the log.
    changes: Mutex<HashSet<DefinitionChange>>,
}

impl CallRecorder {
    pub(super) fn new(log: Option<ExecutionLog>, spans: Option<SpanExporter>) -> Self {
        let (metrics, figures) = (Metrics::default(), CallFigures::default());
        Self { log, spans, metrics, figures, running: RunningCalls::default(), changes: Mutex::default() }
    }

    /// Records changed definitions, each once.
    pub(super) fn record_changes(&self, changes: Vec<DefinitionChange>) {
        let Some(log) = &self.log else { return };
        let mut recorded = self.changes.lock();
        for change in changes {
            // A server can change its definitions without end. After this many, some may be recorded twice.
            if recorded.len() >= MAX_KNOWN_CHANGES {
                recorded.clear();
            }
            if !recorded.insert(change.clone()) {
                continue;
            }
            let DefinitionChange { server, tool, old_hash, new_hash, class, quarantined } = change;
            // The returned future is only for durability, which no caller needs here.
            drop(log.record_event(&LogEvent::DefinitionChanged {
                server: server.as_str(),
                tool: &tool,
                was: &old_hash,
                is: &new_hash,
                class: class.label(),
                held_back: quarantined,
            }));
        }
    }
}

impl Runtime {
    pub fn metrics(&self) -> &Metrics {
        &self.recorder.metrics
    }

    /// Figures of calls over time. They are off until the gateway turns them on.
    pub fn figures(&self) -> &CallFigures {
        &self.recorder.figures
    }

    /// The calls that run now.
    pub fn running_calls(&self) -> &RunningCalls {
        &self.recorder.running
    }

    /// The execution log, if calls are recorded.
    pub fn log(&self) -> Option<&ExecutionLog> {
        self.recorder.log.as_ref()
    }
}
