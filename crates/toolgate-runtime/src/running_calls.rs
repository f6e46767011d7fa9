//! The calls that run now, so that they can be listed and cancelled.
//!
//! A call is added when it begins and removed when it ends or is dropped. Invariant: a call takes a lock of one in sixteen
//! parts of the list, twice and for a few instructions; readers copy a part and release it.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use toolgate_types::call::OperationKind;
use toolgate_types::{CallerId, Stage};
use toolgate_upstream::TraceContext;

use crate::catalog::CatalogTool;

/// Parts of the list, each with a lock of its own.
const PARTS: usize = 16;

/// A call that runs.
pub struct RunningCall {
    /// Id in the execution log.
    pub id: String,
    pub caller: CallerId,
    pub kind: OperationKind,
    /// Name of the target, as the caller requested it.
    name: Arc<str>,
    /// The target, once the caller is known to be allowed to use it.
    tool: OnceLock<Arc<CatalogTool>>,
    pub session: Option<Box<str>>,
    pub trace: TraceContext,
    started: Instant,
    /// Number of completed stages in [`Stage::ALL`], that is one more than the index of the last one.
    stage: AtomicU8,
    cancel: Notify,
    cancelled_by: OnceLock<String>,
}

impl fmt::Debug for RunningCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningCall").field("id", &self.id).finish_non_exhaustive()
    }
}

impl RunningCall {
    /// Name of the tool, or of another target.
    pub fn tool(&self) -> &str {
        self.tool.get().map_or(&self.name, |tool| &tool.name)
    }

    pub fn server(&self) -> Option<&str> {
        self.tool.get()?.server.as_ref().map(toolgate_types::ServerName::as_str)
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Time the call began.
    pub fn began(&self) -> Timestamp {
        let now = Timestamp::now();
        now.checked_sub(self.elapsed()).unwrap_or(now)
    }

    /// The last completed stage.
    pub fn stage(&self) -> Option<Stage> {
        let completed = usize::from(self.stage.load(Ordering::Relaxed));
        Stage::ALL.get(completed.checked_sub(1)?).copied()
    }

    pub(crate) fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u8 + 1, Ordering::Relaxed);
    }

    pub(crate) fn set_tool(&self, tool: &Arc<CatalogTool>) {
        let _ = self.tool.set(Arc::clone(tool));
    }

    /// Cancels the call. `by` names the person or the caller that asked for it.
    pub fn cancel(&self, by: &str) {
        if self.cancelled_by.set(by.to_owned()).is_ok() {
            self.cancel.notify_one();
        }
    }

    /// Waits until the call is cancelled. Returns the caller that did it.
    pub(crate) async fn cancelled(&self) -> &str {
        self.cancel.notified().await;
        self.cancelled_by.get().map_or("", String::as_str)
    }
}

/// The calls that run now.
#[derive(Default)]
pub struct RunningCalls {
    parts: [Mutex<Vec<Arc<RunningCall>>>; PARTS],
}

impl RunningCalls {
    /// Returns a snapshot, oldest first.
    pub fn list(&self) -> Vec<Arc<RunningCall>> {
        let mut calls: Vec<_> = self.parts.iter().flat_map(|part| part.lock().clone()).collect();
        calls.sort_by_key(|call| call.started);
        calls
    }

    pub fn find(&self, id: &str) -> Option<Arc<RunningCall>> {
        self.parts.iter().find_map(|part| part.lock().iter().find(|call| call.id == id).cloned())
    }

    /// Finds the call of a request.
    pub fn find_by_trace(&self, trace: &TraceContext) -> Option<Arc<RunningCall>> {
        self.parts.iter().find_map(|part| part.lock().iter().find(|call| call.trace == *trace).cloned())
    }

    /// Number of calls.
    pub fn count(&self) -> usize {
        self.parts.iter().map(|part| part.lock().len()).sum()
    }

    fn part(&self, call: &Arc<RunningCall>) -> &Mutex<Vec<Arc<RunningCall>>> {
        // The address is as good as random, and known when the call is removed.
        &self.parts[(Arc::as_ptr(call).addr() >> 8) % PARTS]
    }

    pub(crate) fn insert(&self, call: &Arc<RunningCall>) {
        self.part(call).lock().push(Arc::clone(call));
    }

    pub(crate) fn remove(&self, call: &Arc<RunningCall>) {
        let mut part = self.part(call).lock();
        if let Some(index) = part.iter().position(|known| Arc::ptr_eq(known, call)) {
            part.swap_remove(index);
        }
    }
}

impl RunningCall {
    pub(crate) fn new(
        id: String,
        caller: &CallerId,
        (kind, name): (OperationKind, Arc<str>),
        session: Option<&str>,
        trace: &TraceContext,
        started: Instant,
    ) -> Self {
        Self {
            id,
            caller: caller.clone(),
            kind,
            name,
            tool: OnceLock::new(),
            session: session.map(Into::into),
            trace: trace.clone(),
            started,
            stage: AtomicU8::new(0),
            cancel: Notify::new(),
            cancelled_by: OnceLock::new(),
        }
    }
}
