//! Abandoned calls: a call that is dropped before its end is still counted and recorded.
//!
//! Invariant: every call that began has an end in the log, even if its caller disconnected.

use std::sync::Arc;

use tokio::time::Instant;
use toolgate_audit::{CallEnd, Durability, ExecutionLog};
use toolgate_types::{CallError, Caller, ErrorCode, ExecutionState, Stage};

use super::{CallState, MAX_NAME_BYTES, Operation, OperationTarget, shown_name};
use crate::running_calls::RunningCall;
use crate::runtime::Runtime;

/// Records a call as cancelled if it is dropped before its end, and lists it as running until then.
pub(super) struct CallGuard<'a> {
    runtime: &'a Runtime,
    caller: &'a Caller,
    operation: &'a Operation,
    started: Instant,
    call: Arc<RunningCall>,
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
        // Without a log, the trace id identifies the call.
        let id =
            runtime.log().map_or_else(|| operation.trace.trace_id().to_owned(), ExecutionLog::new_call_id);
        let target = (operation.kind(), running_name(operation));
        let session = operation.origin.session_id();
        let call = Arc::new(RunningCall::new(id, &caller.id, target, session, &operation.trace, started));
        runtime.running_calls().insert(&call);
        let state = Some(CallState::new(runtime.rules_for(operation), started, Arc::clone(&call)));
        Self { runtime, caller, operation, started, call, state }
    }

    pub(super) fn call(&self) -> Arc<RunningCall> {
        Arc::clone(&self.call)
    }

    pub(super) fn state(&mut self) -> &mut CallState {
        self.state.as_mut().expect("the call has not ended")
    }

    /// Returns the error of a call that was cancelled from outside.
    pub(super) fn cancelled(&mut self, by: &str) -> CallError {
        let state = self.state();
        let last = state.steps.last().map_or(Stage::Resolve, |step| step.stage);
        let message = format!("the call was cancelled by `{by}`");
        let was_sent = state.open.is_some();
        let outcome = if was_sent { ExecutionState::Unknown } else { ExecutionState::NotStarted };
        // The attempt that was cut off does not return its number.
        state.attempts = state.attempts.max(was_sent.into());
        CallError::new(ErrorCode::Cancelled, last, message).with_outcome(outcome)
    }

    /// Disarms the guard at the regular end of the call.
    pub(super) fn into_state(mut self) -> CallState {
        self.state.take().expect("the call has not ended")
    }
}

/// The name of the target, as the list of running calls shows it.
fn running_name(operation: &Operation) -> Arc<str> {
    match &operation.target {
        OperationTarget::Tool(name) if name.len() <= MAX_NAME_BYTES => Arc::clone(name),
        _ => shown_name(operation.name()).into(),
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.runtime.running_calls().remove(&self.call);
        let Some(mut state) = self.state.take() else { return };
        self.runtime.count_abandoned(&self.caller.id, state.tool.as_deref(), self.started.elapsed());
        let last = state.steps.last().map_or(Stage::Resolve, |step| step.stage);
        let mut error =
            CallError::new(ErrorCode::Cancelled, last, "the caller disconnected before the call ended");
        let took = self.started.elapsed();
        let stages = std::mem::take(&mut state.steps);
        let open = state.open.take().and_then(|mut open| open.is_recorded().then_some(open));
        if open.is_some() {
            (error.stage, error.outcome) = (Stage::Invoke, ExecutionState::Unknown);
        }
        let end = CallEnd { stages: &stages, ..CallEnd::abandoned(&error, took) };
        let secret = self.runtime.hidden_tool_secrets(&state, self.operation);
        let mut begin = state.begin_record(&self.call.id, self.caller, self.operation);
        begin.secret = begin.secret.or(secret.as_ref());
        self.runtime.export_span(&begin, &end, self.operation);
        match (open, self.runtime.log()) {
            // The record is enqueued at once; there is no caller to wait for it.
            (Some(open), _) => drop(open.end(&end, Durability::Written)),
            (None, Some(log)) => log.record_abandoned(&begin, &end),
            (None, None) => {}
        }
    }
}
