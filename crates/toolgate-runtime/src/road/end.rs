//! The end of a call: the books are kept, and whatever happened becomes one result.

use std::time::Duration;

use toolgate_types::call::{ResultMetadata, Status};
use toolgate_types::tool::Contract;
use toolgate_types::{CallError, Caller, ToolResult};

use super::{CallRequest, Called, Passage};
use crate::date;
use crate::runtime::Runtime;
use crate::stage::content::Reply;
use crate::stage::hints::{self, Facts, Source};

impl Runtime {
    /// The result, whatever happened.
    pub(super) fn end(
        &self,
        passage: &mut Passage,
        caller: &Caller,
        request: &CallRequest,
        outcome: Result<Reply, CallError>,
        took: Duration,
    ) -> Called {
        let (reply, error) = match outcome {
            Ok(reply) => (Some(reply), None),
            Err(error) => (None, Some(error)),
        };
        let error = error.map(|mut error| {
            error.correlation_id = Some(request.trace.correlation_id().into());
            // What a server says when it fails can hold what it was trusted with.
            error.message = self.masked(&error.message);
            error.hint = error.hint.map(|hint| self.masked(&hint));
            error
        });
        if let Some(error) = &error {
            tracing::debug!(tool = request.name, caller = %caller.id, code = error.code.label(), source = ?error.source, "{error}");
        }
        // How a tool does is not measured by how long a person thinks.
        let worked = took.saturating_sub(passage.waited);
        self.count(passage.tool.as_deref(), error.as_ref(), worked, passage.cached.is_some());
        let good = error.is_none();
        let (record, next) = self.keep_books(passage, caller, request, good, worked);
        let unknown = Contract::unknown();
        let tool = passage.tool.as_deref();
        let contract = tool.map_or(&unknown, |tool| &tool.contract);
        let facts = Facts {
            source: match tool {
                Some(tool) if tool.trusted && tool.server.is_none() => Source::Own,
                Some(tool) if tool.trusted => Source::Trusted,
                _ => Source::Untrusted,
            },
            contract,
            deprecated: tool.and_then(|tool| tool.deprecated.as_ref()),
            fit: passage.fit.clone(),
            attempts: passage.attempts,
            cached: passage.cached,
            cache_ttl: tool.and_then(|tool| tool.cache_ttl).map(|ttl| ttl.get()),
            record,
            next,
            follow_ups: tool.map(|tool| tool.follow_ups.as_slice()).unwrap_or_default(),
            preferences: request.origin.metadata.as_ref().and_then(|known| known.get("preferences")),
            cut: passage.cut.as_ref(),
            related: reply.as_ref().map(Reply::related).unwrap_or_default(),
            error: error.as_ref(),
        };
        let agent_hints = hints::attach(&facts);
        let metadata = ResultMetadata {
            tool_version: contract.version.clone(),
            timestamp: date::now(),
            execution_time: (took.as_secs_f64() * 1e6).round() / 1e3,
            service_version: env!("CARGO_PKG_VERSION"),
            trace_id: request.trace.trace_id().to_owned(),
            correlation_id: request.trace.correlation_id().to_owned(),
            cached: passage.cached.is_some(),
        };
        passage.passed(super::Stage::Hints, None);
        let (raw, data) = match reply {
            Some(reply) => (Some(reply.raw), Some(reply.data)),
            None => (passage.reply.take(), None),
        };
        let status = if good { Status::Success } else { Status::Error };
        Called {
            result: ToolResult { status, data, error, agent_hints, metadata },
            reply: raw,
            refusal: passage.refusal.take(),
            steps: std::mem::take(&mut passage.steps),
        }
    }

    /// Counts the call; says how its tool did before, and what followed it.
    fn keep_books(
        &self,
        passage: &Passage,
        caller: &Caller,
        request: &CallRequest,
        good: bool,
        took: Duration,
    ) -> (hints::Record, hints::Next) {
        let Some(tool) = passage.tool.as_deref() else { return Default::default() };
        let session = request.origin.session.as_deref();
        let ran = passage.attempts > 0;
        // What was kept is as untrusted as it was when it came.
        if (ran || passage.cached.is_some()) && !tool.trusted {
            self.taints.note(&caller.id, session);
        }
        let record = self.guard(tool).tally.count(ran, good, took);
        (record, self.followers.note(&caller.id, session, &tool.name, good))
    }
}
