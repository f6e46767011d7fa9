//! Lists: the tools, prompts and resources that a caller may see.
//!
//! A list sends nothing to a server, so most stages do not apply: each item is decided on by itself, with the action
//! `list`, and the request is recorded.

use std::time::Duration;

use tokio::time::Instant;
use toolgate_audit as audit;
use toolgate_types::Caller;
use toolgate_types::call::OperationKind;
use toolgate_upstream::{RawJson, TraceContext};

use crate::operation::SessionId;
use crate::runtime::Runtime;

/// A request for a list.
#[derive(Debug, Clone)]
pub struct ListRequest<'a> {
    /// Name in the record, such as `tools/list`.
    pub name: &'a str,
    /// Arguments, such as the words of a search.
    pub arguments: RawJson,
    pub trace: &'a TraceContext,
    pub session: Option<SessionId>,
}

impl Runtime {
    /// Renders a list and records the request. `render` shows the items that the caller may see.
    pub async fn list<T>(&self, caller: &Caller, request: ListRequest<'_>, render: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let list = render();
        let Some(log) = &self.recorder.log else { return list };
        let took = started.elapsed();
        let call = log.new_call_id();
        let session = request.session.as_ref();
        let begin = audit::CallBegin {
            call: &call,
            caller: caller.id.as_str(),
            operation: OperationKind::List,
            tool: request.name,
            session: session.map(SessionId::as_str),
            user: None,
            agent_version: None,
            correlation: request.trace.correlation_id(),
            correlation_from_client: request.trace.is_from_client(),
            trace: request.trace.trace_id(),
            server: None,
            definition: None,
            decision: audit::Decision::Allow,
            rules: &[],
            asked: None,
            refused_by: None,
            identity: caller.into(),
            tainted: self.access.taint.contains(&caller.id, session, started),
            deprecated: false,
            arguments: &request.arguments,
            secret: None,
        };
        let end = list_end(took);
        if let Err(error) = log.record(&begin, &end, audit::Durability::Written).await {
            tracing::error!("a list is not in the execution log yet: {error}");
        }
        list
    }
}

fn list_end(took: Duration) -> audit::CallEnd<'static> {
    audit::CallEnd {
        status: audit::CallStatus::Success,
        error: None,
        attempts: 0,
        cached: false,
        took,
        stages: &[],
        output: None,
        secret: None,
        upstream: None,
    }
}
