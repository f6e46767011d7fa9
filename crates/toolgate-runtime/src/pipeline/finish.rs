//! The end of a call: updates statistics and builds the one result that every call returns.

use std::time::Duration;

use toolgate_types::call::{ResultMetadata, ResultStatus};
use toolgate_types::tool::ToolContract;
use toolgate_types::{CallError, Caller, ToolResult};

use super::{CallOutcome, CallRequest, CallState};
use crate::date;
use crate::runtime::Runtime;
use crate::stage::content::ToolReply;
use crate::stage::hints::{self, CallFacts, ResultSource};

impl Runtime {
    /// Builds the result of a call.
    pub(super) fn finish(
        &self,
        state: &mut CallState,
        caller: &Caller,
        request: &CallRequest,
        outcome: Result<ToolReply, CallError>,
        took: Duration,
    ) -> CallOutcome {
        let (reply, error) = match outcome {
            Ok(reply) => (Some(reply), None),
            Err(error) => (None, Some(error)),
        };
        let error = error.map(|mut error| {
            error.correlation_id = Some(request.trace.correlation_id().into());
            // A server's error message can contain credentials that were sent to it.
            error.message = self.redact(&error.message);
            error.hint = error.hint.map(|hint| self.redact(&hint));
            error
        });
        if let Some(error) = &error {
            tracing::debug!(tool = request.name, caller = %caller.id, code = error.code.label(), source = ?error.source, "{error}");
        }
        // The wait for approval does not count as duration of the tool.
        let tool_time = took.saturating_sub(state.approval_wait);
        self.count_call(state.tool.as_deref(), error.as_ref(), tool_time, state.cached.is_some());
        let good = error.is_none();
        let (stats, next_tools) = self.update_stats(state, caller, request, good, tool_time);
        let unknown = ToolContract::unknown();
        let tool = state.tool.as_deref();
        let contract = tool.map_or(&unknown, |tool| &tool.contract);
        let facts = CallFacts {
            source: match tool {
                Some(tool) if tool.trusted && tool.server.is_none() => ResultSource::Own,
                Some(tool) if tool.trusted => ResultSource::Trusted,
                _ => ResultSource::Untrusted,
            },
            contract,
            deprecated: tool.and_then(|tool| tool.deprecated.as_ref()),
            schema_fit: state.schema_fit.clone(),
            attempts: state.attempts,
            cached: state.cached,
            cache_ttl: tool.and_then(|tool| tool.cache_ttl).map(|ttl| ttl.get()),
            stats,
            next_tools,
            follow_ups: tool.map(|tool| tool.follow_ups.as_slice()).unwrap_or_default(),
            preferences: request.origin.metadata.as_ref().and_then(|metadata| metadata.get("preferences")),
            truncated: state.truncated.as_ref(),
            related: reply.as_ref().map(ToolReply::related_resources).unwrap_or_default(),
            error: error.as_ref(),
        };
        let agent_hints = hints::attach(&facts);
        let metadata = ResultMetadata {
            tool_version: contract.version.clone(),
            timestamp: date::timestamp(),
            execution_time: (took.as_secs_f64() * 1e6).round() / 1e3,
            service_version: env!("CARGO_PKG_VERSION"),
            trace_id: request.trace.trace_id().to_owned(),
            correlation_id: request.trace.correlation_id().to_owned(),
            cached: state.cached.is_some(),
        };
        state.record_stage(super::Stage::Hints, None);
        let (raw, data) = match reply {
            Some(reply) => (Some(reply.raw), Some(reply.data)),
            None => (state.reply.take(), None),
        };
        let status = if good { ResultStatus::Success } else { ResultStatus::Error };
        CallOutcome {
            result: ToolResult { status, data, error, agent_hints, metadata },
            reply: raw,
            rpc_error: state.rpc_error.take(),
            steps: std::mem::take(&mut state.steps),
        }
    }

    /// Updates taint and statistics. Returns the statistics from before this call, and the usual next tools.
    fn update_stats(
        &self,
        state: &CallState,
        caller: &Caller,
        request: &CallRequest,
        good: bool,
        took: Duration,
    ) -> (hints::StatsSnapshot, hints::NextTools) {
        let Some(tool) = state.tool.as_deref() else { return Default::default() };
        let session = request.origin.session.as_deref();
        let ran = state.attempts > 0;
        // A cached reply is as untrusted as it was when it was fetched.
        if (ran || state.cached.is_some()) && !tool.trusted {
            self.access.tainted_sessions.insert(&caller.id, session);
        }
        let stats = self.shared_state(tool).stats.record_call(ran, good, took);
        (stats, self.tool_states.next_tools.record(&caller.id, session, &tool.name, good))
    }
}
