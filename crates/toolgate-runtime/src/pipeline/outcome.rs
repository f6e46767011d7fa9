//! Hints and metadata of a finished call, computed when a front end asks for them.
//!
//! The outcome of a call holds the facts; most front ends need a small part of the hints, and some need none. Invariant: rendering changes no statistics, taint or record.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use toolgate_types::call::{OperationKind, ResultMetadata, ResultStatus};
use toolgate_types::hints::AgentHints;
use toolgate_types::tool::{RiskLevel, ToolContract};
use toolgate_types::{CallError, Caller, ToolResult};
use toolgate_upstream::{RawJson, TraceContext};

use super::CallOutcome;
use crate::catalog::CatalogTool;
use crate::date;
use crate::results::TruncatedResult;
use crate::running_calls::RunningCall;
use crate::runtime::Runtime;
use crate::stage::content::{content_beside, related_resources};
use crate::stage::hints::{
    self, CallFacts, FollowUps, NextTools, ResultSource, SchemaFit, StatsSnapshot, SuggestedAction,
};
use crate::stage::own_result::{self, OwnHints};

/// Result of a call, without hints and metadata. [`Runtime::envelope`] adds them.
#[derive(Debug)]
pub struct CallResult {
    pub status: ResultStatus,
    /// Data returned by the tool; never `null` if the call succeeded.
    pub data: Option<RawJson>,
    /// Error, if the call failed.
    pub error: Option<CallError>,
}

/// Facts about a finished call that are not part of its result.
#[derive(Debug)]
pub(super) struct OutcomeFacts {
    pub(super) tool: Option<Arc<CatalogTool>>,
    pub(super) kind: OperationKind,
    pub(super) schema_fit: SchemaFit,
    /// True if the reply has content of a source that is not trusted, although its tool is.
    pub(super) untrusted: bool,
    pub(super) attempts: u32,
    /// Age and time to live of a cached result.
    pub(super) cached: Option<(Duration, Duration)>,
    pub(super) truncated: Option<TruncatedResult>,
    /// Hints and metadata that the tool itself added to its result.
    pub(super) own_result: Option<RawJson>,
    /// Statistics of the tool from before the call.
    pub(super) stats: StatsSnapshot,
    /// The user's preferences.
    pub(super) preferences: Option<Value>,
    pub(super) call: Arc<RunningCall>,
    pub(super) trace: TraceContext,
    pub(super) ended: Timestamp,
    pub(super) took: Duration,
}

/// The part of the hints that a caller can act on.
#[derive(Debug)]
pub struct ActionableHints<'a> {
    /// Suggested next actions, most urgent first.
    pub actions: Vec<SuggestedAction<'a>>,
    /// URI of the stored result, if the result was truncated.
    pub stored_result: Option<&'a str>,
    /// Time until a retry makes sense.
    pub retry_after: Option<Duration>,
    /// Correlation id of a failed call.
    pub correlation_id: Option<&'a str>,
}

/// Contract and next steps of operations without a tool.
static UNKNOWN_TOOL: std::sync::LazyLock<(ToolContract, FollowUps)> =
    std::sync::LazyLock::new(|| (ToolContract::unknown(), FollowUps::default()));

impl CallOutcome {
    /// True if the result came from the cache.
    pub fn is_cached(&self) -> bool {
        self.facts.cached.is_some()
    }

    /// True if the result has content of a source that is not trusted.
    pub(crate) fn is_untrusted(&self) -> bool {
        self.facts.untrusted || self.facts.tool.as_ref().is_some_and(|tool| !tool.trusted)
    }

    /// Time from the request to the result.
    pub fn duration(&self) -> Duration {
        self.facts.took
    }

    /// Time and origin of the result.
    pub fn metadata(&self) -> ResultMetadata {
        let OutcomeFacts { tool, call, trace, ended, took, cached, own_result, .. } = &self.facts;
        let contract = tool.as_deref().map_or(&UNKNOWN_TOOL.0, |tool| &tool.contract);
        ResultMetadata {
            tool_version: own_result
                .as_ref()
                .and_then(own_result::tool_version)
                .unwrap_or_else(|| contract.version.clone()),
            timestamp: date::format_timestamp(*ended),
            execution_time: (took.as_secs_f64() * 1e6).round() / 1e3,
            service_version: env!("CARGO_PKG_VERSION"),
            trace_id: trace.trace_id().to_owned(),
            correlation_id: trace.correlation_id().to_owned(),
            cached: cached.is_some(),
            call_id: Some(call.id.clone()),
        }
    }

    /// True if [`Runtime::actionable_hints`] may have something to say.
    fn is_actionable(&self) -> bool {
        let tool = self.facts.tool.as_deref();
        self.result.error.is_some()
            || self.facts.truncated.is_some()
            || self.facts.own_result.is_some()
            || tool.is_some_and(|tool| tool.deprecated.is_some() || !tool.follow_ups.is_empty())
    }
}

impl Runtime {
    /// Returns the result of a call with all hints and metadata.
    pub fn envelope<'a>(
        &self,
        caller: &Caller,
        called: &'a CallOutcome,
    ) -> ToolResult<Cow<'a, RawJson>, &'a CallError> {
        let CallResult { status, data, error } = &called.result;
        let reply = called.reply.as_ref().filter(|_| error.is_none());
        ToolResult {
            status: *status,
            data: data.as_ref().map(Cow::Borrowed),
            content: reply.and_then(content_beside).map(Cow::Owned),
            error: error.as_ref(),
            agent_hints: self.agent_hints(caller, called),
            metadata: called.metadata(),
        }
    }

    /// Returns all hints of a call.
    pub fn agent_hints(&self, caller: &Caller, called: &CallOutcome) -> AgentHints {
        let OutcomeFacts { tool, kind, .. } = &called.facts;
        let next_tools = match tool.as_deref() {
            Some(tool) if *kind == OperationKind::Tool => {
                self.tool_states.next_tools.often(&caller.id, &tool.name)
            }
            _ => NextTools::default(),
        };
        let reply = called.reply.as_ref().filter(|_| called.result.error.is_none());
        let related = reply.map(related_resources).unwrap_or_default();
        self.with_facts(caller, called, |facts| hints::attach(&CallFacts { next_tools, related, ..facts }))
    }

    /// Returns the hints that the caller can act on; `None` if there are none. Costs next to nothing for a success of
    /// a tool without declared next steps.
    pub fn actionable_hints<'a>(
        &self,
        caller: &Caller,
        called: &'a CallOutcome,
    ) -> Option<ActionableHints<'a>> {
        if !called.is_actionable() {
            return None;
        }
        let error = called.result.error.as_ref();
        let truncated = called.facts.truncated.as_ref();
        let hints = ActionableHints {
            actions: self.with_facts(caller, called, |facts| hints::suggested_actions(&facts)),
            stored_result: truncated.and_then(|truncated| truncated.uri.as_deref()),
            retry_after: error.and_then(|error| error.retry_after),
            correlation_id: error.map(|_| called.facts.trace.correlation_id()),
        };
        let is_empty = error.is_none() && hints.actions.is_empty() && hints.stored_result.is_none();
        (!is_empty).then_some(hints)
    }

    /// Collects the facts that hints depend on, without usual next tools and related resources.
    fn with_facts<'a, T>(
        &self,
        caller: &Caller,
        called: &'a CallOutcome,
        render: impl FnOnce(CallFacts<'_, 'a>) -> T,
    ) -> T {
        let facts = &called.facts;
        let tool = facts.tool.as_deref();
        let catalog = self.catalog();
        // The caller knows the tool that it called.
        let is_known = |name: &str| tool.is_some_and(|tool| tool.name == name);
        let is_visible =
            |name: &str| catalog.resolve(name).map(|tool| is_known(&tool.name) || self.may_see(caller, tool));
        let may_destroy =
            |name: &str| catalog.resolve(name).is_none_or(|tool| tool.contract.risk == RiskLevel::High);
        let (contract, follow_ups) =
            tool.map_or((&UNKNOWN_TOOL.0, &UNKNOWN_TOOL.1), |tool| (&tool.contract, &tool.follow_ups));
        render(CallFacts {
            tool: tool.map_or("", |tool| &tool.name),
            is_visible: &is_visible,
            may_destroy: &may_destroy,
            source: match tool {
                _ if facts.untrusted => ResultSource::Untrusted,
                Some(tool) if tool.trusted && tool.server.is_none() => ResultSource::Own,
                Some(tool) if tool.trusted => ResultSource::Trusted,
                _ => ResultSource::Untrusted,
            },
            contract,
            deprecated: tool.and_then(|tool| tool.deprecated.as_ref()),
            schema_fit: facts.schema_fit.clone(),
            attempts: facts.attempts,
            cached: facts.cached,
            cache_ttl: tool.and_then(|tool| tool.cache_ttl).map(|ttl| ttl.get()),
            stats: facts.stats,
            next_tools: NextTools::default(),
            follow_ups,
            preferences: facts.preferences.as_ref(),
            truncated: facts.truncated.as_ref(),
            own_hints: facts.own_result.as_ref().map(OwnHints::parse).unwrap_or_default(),
            related: Vec::new(),
            error: called.result.error.as_ref(),
        })
    }
}
