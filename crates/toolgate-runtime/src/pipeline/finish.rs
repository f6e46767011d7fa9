//! The end of a call: updates statistics and builds the one result that every call returns.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use toolgate_store::cluster::TaintStore;
use toolgate_types::call::{OperationKind, ResultStatus};
use toolgate_types::{CallError, Caller, ErrorCode, ExecutionState, Stage};

use super::outcome::{CallResult, OutcomeFacts};
use super::{CallOutcome, CallState, Operation};
use crate::runtime::Runtime;
use crate::stage::content::ToolReply;
use crate::stage::hints::StatsSnapshot;
use crate::stage::own_result;

impl Runtime {
    /// Builds the result of a call.
    pub(super) fn finish(
        &self,
        state: &mut CallState,
        caller: &Caller,
        operation: &Operation,
        outcome: Result<ToolReply, CallError>,
        took: Duration,
    ) -> CallOutcome {
        let (reply, error) = match outcome {
            Ok(reply) => (Some(reply), None),
            Err(error) => (None, Some(error)),
        };
        let error = error.map(|mut error| {
            error.correlation_id = Some(operation.trace.correlation_id().into());
            // A server's error message can contain credentials that were sent to it.
            error.message = self.redact(&error.message);
            error.hint = error.hint.map(|hint| self.redact(&hint));
            error.repeatable = state.tool.as_deref().is_some_and(|tool| tool.contract.idempotent);
            // A time to retry would contradict an error that must not be retried.
            error.retry_after = error.retry_after.filter(|_| error.is_retryable());
            error
        });
        if let Some(error) = &error {
            tracing::debug!(tool = operation.name(), caller = %caller.id, code = error.code.label(), source = ?error.source, "{error}");
        }
        // The wait for approval does not count as duration of the tool.
        let tool_time = took.saturating_sub(state.approval_wait);
        self.count_call(
            &caller.id,
            state.tool.as_deref(),
            error.as_ref(),
            (tool_time, state.cached.is_some(), state.attempts > 0),
        );
        let good = error.is_none();
        let untrusted = reply.as_ref().is_some_and(|reply| reply.untrusted);
        let stats = self.update_stats(state, caller, operation, (good, untrusted), tool_time);
        let preferences = operation.origin.metadata.as_ref().and_then(|metadata| metadata.get("preferences"));
        let is_trusted = state.tool.as_deref().is_some_and(|tool| tool.trusted);
        let raw_reply = state.reply.as_ref().or(reply.as_ref().map(|reply| &reply.raw));
        let facts = OutcomeFacts {
            // Claims of an untrusted server about its own result are not passed on as ours.
            own_result: raw_reply.filter(|_| is_trusted).and_then(own_result::of_reply),
            tool: state.tool.clone(),
            kind: operation.kind(),
            schema_fit: state.schema_fit.clone(),
            untrusted,
            attempts: state.attempts,
            cached: state.cached,
            truncated: state.truncated.take(),
            stats,
            preferences: preferences.cloned(),
            call: Arc::clone(&state.call),
            trace: operation.trace.clone(),
            ended: Timestamp::now(),
            took,
        };
        state.record_stage(super::Stage::Hints, None);
        let (raw, data) = match reply {
            Some(reply) => (Some(reply.raw), Some(reply.data)),
            None => (state.reply.take(), None),
        };
        let status = if good { ResultStatus::Success } else { ResultStatus::Error };
        CallOutcome {
            result: CallResult { status, data, error },
            reply: raw,
            rpc_error: state.rpc_error.take(),
            steps: std::mem::take(&mut state.steps),
            subscription: state.subscription.take(),
            facts,
        }
    }

    /// Stores the taint of an untrusted reply where all replicas see it. If that is impossible and a rule may refer to
    /// it, the reply is withheld: another replica would decide as if the session were clean.
    pub(super) async fn share_taint(
        &self,
        store: &dyn TaintStore,
        state: &mut CallState,
        caller: &Caller,
        operation: &Operation,
        reply: Result<ToolReply, CallError>,
    ) -> Result<ToolReply, CallError> {
        if !state.is_tainting(reply.as_ref().is_ok_and(|reply| reply.untrusted)) {
            return reply;
        }
        let session = operation.origin.session.as_ref();
        match self.access.taint.insert_everywhere(store, &caller.id, session, state.stage_started).await {
            Ok(()) => reply,
            Err(_) if !self.access.rules().policy.may_read_taint() => reply,
            Err(error) => {
                (state.reply, state.rpc_error, state.subscription) = (None, None, None);
                let message = "the result is withheld: the database of the cluster cannot store that untrusted \
                    content has reached the session, and rules decide by that";
                let mut withheld = CallError::new(ErrorCode::StorageUnavailable, Stage::Record, message)
                    .with_hint("try again when the database is available")
                    .with_source(error);
                withheld.outcome = match &reply {
                    Ok(_) => ExecutionState::Finished,
                    Err(error) => error.outcome,
                };
                Err(withheld)
            }
        }
    }

    /// Updates taint and statistics. Returns the statistics from before this call.
    fn update_stats(
        &self,
        state: &CallState,
        caller: &Caller,
        operation: &Operation,
        (good, untrusted): (bool, bool),
        took: Duration,
    ) -> StatsSnapshot {
        let Some(tool) = state.tool.as_deref() else { return Default::default() };
        let session = operation.origin.session.as_ref();
        let ran = state.attempts > 0;
        if state.is_tainting(untrusted) && self.access.taint.shared().is_none() {
            self.access.taint.insert(&caller.id, session, state.stage_started);
        }
        let stats = self.shared_state(tool).stats.record_call(ran, good, took);
        if good && operation.kind() == OperationKind::Tool {
            let session = operation.origin.session_id();
            self.tool_states.next_tools.record(&caller.id, session, &tool.name);
        }
        stats
    }
}

impl CallState {
    /// Returns true if untrusted content reaches the session with the result. A cached reply or a shared failure is as
    /// untrusted as it was when it was fetched.
    fn is_tainting(&self, untrusted: bool) -> bool {
        let has_content = self.attempts > 0 || self.cached.is_some() || self.shared_failure;
        has_content && self.tool.as_deref().is_some_and(|tool| !tool.trusted || untrusted)
    }
}
