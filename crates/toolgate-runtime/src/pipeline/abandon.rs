//! Abandoned calls: a call that is dropped before its end is still counted and recorded.
//!
//! Invariant: every call that began has an end in the log, even if its caller disconnected.

use tokio::time::Instant;
use toolgate_audit::{CallEnd, ExecutionLog, OpenCall};
use toolgate_types::{CallError, Caller, ErrorCode, Stage};

use super::{CallState, Operation};
use crate::runtime::Runtime;

/// Records a call as cancelled if it is dropped before its end.
pub(super) struct CallGuard<'a> {
    runtime: &'a Runtime,
    caller: &'a Caller,
    operation: &'a Operation,
    started: Instant,
    /// `None` once the call has ended.
    state: Option<CallState>,
}

impl<'a> CallGuard<'a> {
    pub(super) fn new(
        runtime: &'a Runtime,
        caller: &'a Caller,
        operation: &'a Operation,
        started: Instant,
    ) -> Self {
        let state = CallState::new(runtime.rules_for(operation), started);
        Self { runtime, caller, operation, started, state: Some(state) }
    }

    pub(super) fn state(&mut self) -> &mut CallState {
        let Self { runtime, operation, started, .. } = *self;
        self.state.get_or_insert_with(|| CallState::new(runtime.rules_for(operation), started))
    }

    /// Disarms the guard at the regular end of the call.
    pub(super) fn into_state(mut self) -> CallState {
        let state = self.state.take();
        state.unwrap_or_else(|| CallState::new(self.runtime.rules_for(self.operation), self.started))
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        let Some(mut state) = self.state.take() else { return };
        self.runtime.count_abandoned(&self.caller.id, state.tool.as_deref(), self.started.elapsed());
        let last = state.steps.last().map_or(Stage::Resolve, |step| step.stage);
        let error =
            CallError::new(ErrorCode::Cancelled, last, "the caller disconnected before the call ended");
        let took = self.started.elapsed();
        // An open record closes itself when it is dropped.
        let is_recorded = state.open.as_mut().is_some_and(OpenCall::is_recorded);
        let log = self.runtime.log();
        let id = state.id.clone().or_else(|| log.map(ExecutionLog::new_call_id)).unwrap_or_default();
        let secret = self.runtime.hidden_tool_secrets(&state, self.operation);
        let mut begin = state.begin_record(&id, self.caller, self.operation);
        begin.secret = begin.secret.or(secret.as_ref());
        self.runtime.export_span(&begin, &CallEnd::abandoned(&error, took), self.operation);
        if !is_recorded && let Some(log) = log {
            log.record_abandoned(&begin, &error, took);
        }
    }
}
