//! The call pipeline: the only path to a tool, for every front end.
//!
//! [`Runtime::call`] runs the stages in the order of the code: resolve, authorize, validate input, egress, rate limit,
//! cache, slots, invoke, convert, validate output, hints. Branches are here, the work is in `stage`; `finish` builds
//! the result and `record` writes the execution log.
//! Invariants: every call ends in one result with hints and metadata, and nothing is sent before the policy has
//! decided.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;
use toolgate_audit as audit;
use toolgate_json::CallArguments;
use toolgate_policy::decide::PolicyRequest;
use toolgate_policy::{Decision, Denied, Grant, Input, ToolAttributes};
use toolgate_types::call::Denial;
use toolgate_types::{CallError, Caller, ErrorCode, ExecutionState, Stage, ToolContext, ToolResult};
use toolgate_upstream::builtin::BuiltinError;
use toolgate_upstream::invoke::{InvokeError, invoke};
use toolgate_upstream::{Forwarded, RawJson, RequestError, RpcError, TraceContext};

use crate::builtins;
use crate::catalog::{CatalogTool, CompiledTool, QuarantineCause, ToolState, Upstream};
use crate::date;
use crate::results::{READ_RESULT, TruncatedResult};
use crate::runtime::Runtime;
use crate::stage::attempts::{AttemptError, CallDeadline, with_retries};
use crate::stage::cache::{CacheKey, CachedReply};
use crate::stage::content::{ToolReply, quote};
use crate::stage::hints::SchemaFit;
use crate::stage::slots::NoSlot;

mod abandon;
mod approval;
mod explain;
mod finish;
mod record;

use abandon::CallGuard;
pub(crate) use approval::MAX_APPROVAL_WAIT;
pub use explain::{Explanation, PermissionCheck};

/// A call as a front end passes it on.
#[derive(Debug, Clone)]
pub struct CallRequest {
    /// Name of the tool, as callers know it.
    pub name: String,
    pub arguments: CallArguments,
    pub trace: TraceContext,
    pub origin: CallOrigin,
    /// True to return the full result, however large it is.
    pub full_result: bool,
}

/// Context of a call, as far as the front end knows it. Nothing here authenticates the caller.
#[derive(Debug, Clone, Default)]
pub struct CallOrigin {
    /// Id of the end user.
    pub user: Option<String>,
    pub session: Option<String>,
    pub agent_version: Option<String>,
    /// Other known facts, such as the user's preferences.
    pub metadata: Option<Value>,
    /// Parts of the client's request that are forwarded to the server.
    pub forwarded: Forwarded,
    /// True if the profile hides the tool from the client. The call then fails as if the tool did not exist.
    pub hidden: bool,
}

impl CallRequest {
    /// The context that is passed to tools.
    fn tool_context(&self, caller: &Caller) -> ToolContext {
        let CallOrigin { user, session, agent_version, metadata, .. } = self.origin.clone();
        ToolContext {
            user_id: user,
            session_id: session,
            correlation_id: self.trace.correlation_id().to_owned(),
            trace_id: self.trace.trace_id().to_owned(),
            agent_id: caller.id.to_string(),
            agent_version: agent_version.unwrap_or_default(),
            timestamp: date::timestamp(),
            metadata,
        }
    }

    fn parsed_arguments(&self) -> Result<&Value, CallError> {
        let message = "the arguments are not valid JSON";
        let error = || CallError::new(ErrorCode::InvalidArguments, Stage::ValidateInput, message);
        self.arguments.value().ok_or_else(error)
    }
}

/// Result of a call, and the stages it went through.
#[derive(Debug)]
pub struct CallOutcome {
    pub result: ToolResult<RawJson>,
    /// The server's complete reply, if there was one.
    pub reply: Option<RawJson>,
    /// The JSON-RPC error that the server returned, if it did.
    pub rpc_error: Option<RpcError>,
    /// Completed stages, in order.
    pub steps: Vec<CallStep>,
}

/// A completed stage.
#[derive(Debug, Clone, Serialize)]
pub struct CallStep {
    pub stage: Stage,
    /// Outcome of the stage, such as a cache hit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Duration in microseconds.
    pub micros: u128,
    /// Duration in nanoseconds, for benchmarks.
    #[serde(skip)]
    pub nanos: u128,
}

/// Mutable state of a call.
struct CallState {
    steps: Vec<CallStep>,
    stage_started: Instant,
    tool: Option<Arc<CatalogTool>>,
    schema_fit: SchemaFit,
    attempts: u32,
    /// Age and time to live of a cached result.
    cached: Option<(Duration, Duration)>,
    /// Time spent waiting for approval.
    approval_wait: Duration,
    /// The server's reply, successful or not.
    reply: Option<RawJson>,
    /// The server's JSON-RPC error, in place of a reply.
    rpc_error: Option<RpcError>,
    /// Set if the result was too large to return inline.
    truncated: Option<TruncatedResult>,
    /// The policy decision so far.
    decision: audit::Decision,
    rules: Arc<[String]>,
    approved_by: Option<String>,
    /// Id of the call in the execution log, once it was sent.
    id: Option<String>,
    /// The open record in the execution log, from the invocation to the end of the call.
    open: Option<audit::OpenCall>,
}

impl CallState {
    fn new(stage_started: Instant) -> Self {
        Self {
            steps: Vec::with_capacity(12),
            stage_started,
            tool: None,
            schema_fit: SchemaFit::NoSchema,
            attempts: 0,
            cached: None,
            approval_wait: Duration::ZERO,
            reply: None,
            rpc_error: None,
            truncated: None,
            decision: audit::Decision::Undecided,
            rules: Arc::default(),
            approved_by: None,
            id: None,
            open: None,
        }
    }

    /// Marks the result as served from the cache.
    fn set_cached(&mut self, cached: &CachedReply, ttl: Duration) {
        self.cached = Some((cached.cached_at.elapsed(), ttl));
        self.schema_fit = cached.schema_fit.clone();
        self.record_stage(Stage::Cache, Some("hit".to_owned()));
    }

    fn record_stage(&mut self, stage: Stage, note: Option<String>) {
        let now = Instant::now();
        let took = now - self.stage_started;
        self.steps.push(CallStep { stage, note, micros: took.as_micros(), nanos: took.as_nanos() });
        self.stage_started = now;
    }
}

/// An authorized call with its deadline.
#[derive(Clone, Copy)]
struct CallContext<'a> {
    caller: &'a Caller,
    request: &'a CallRequest,
    tool: &'a CatalogTool,
    input: &'a Input,
    deadline: Instant,
    timeout: Duration,
}

impl Runtime {
    /// Runs one tool call through all stages.
    pub async fn call(&self, caller: &Caller, request: CallRequest) -> CallOutcome {
        let started = Instant::now();
        let mut guard = CallGuard::new(self, caller, &request, started);
        let reply = match self.run(guard.state(), caller, &request).await {
            Ok(reply) => Ok(self.truncate(guard.state(), caller, &request, reply).await),
            Err(error) => Err(error),
        };
        let mut state = guard.into_state();
        let outcome = self.finish(&mut state, caller, &request, reply, started.elapsed());
        self.record_end(state, caller, &request, &outcome, started.elapsed()).await;
        outcome
    }

    async fn run(
        &self,
        state: &mut CallState,
        caller: &Caller,
        request: &CallRequest,
    ) -> Result<ToolReply, CallError> {
        let tool = self.resolve(caller, request)?;
        state.tool = Some(Arc::clone(&tool));
        state.record_stage(Stage::Resolve, None);
        let compiled = tool.compiled();
        let shared = self.shared_state(&tool);
        let timeout = self.timeout(&tool);
        let mut deadline = state.stage_started + timeout;
        let decided = self.authorize(caller, &tool, compiled, request).await;
        let (grant, note) = decided.inspect_err(|error| {
            state.decision = audit::Decision::Deny;
            state.rules =
                error.denial.as_ref().map(|denial| denial.rules.as_slice().into()).unwrap_or_default();
            if error.code == ErrorCode::ToolNotFound {
                // The result must not reveal anything about a tool that the caller may not see.
                state.tool = None;
                state.steps.clear();
            }
        })?;
        state.decision = audit::Decision::Allow;
        state.rules = Arc::clone(grant.rules());
        state.approved_by = grant.approved_by().map(str::to_owned);
        if state.approved_by.is_some() {
            // The wait for approval does not count against the tool's timeout.
            state.approval_wait = state.stage_started.elapsed();
            deadline += state.approval_wait;
        }
        state.record_stage(Stage::Authorize, Some(note));
        let input = compiled.input.validate(grant, &request.arguments).map_err(|mismatch| {
            CallError::new(ErrorCode::InvalidArguments, Stage::ValidateInput, mismatch.to_string())
                .with_hint(format!("`toolgate tools show {}` prints its arguments", tool.name))
        })?;
        state.record_stage(Stage::ValidateInput, None);
        let egress = self.secrets.egress.load_full();
        // Own, trusted tools stay on this machine.
        if !egress.is_off() && (tool.server.is_some() || !tool.trusted) {
            egress.admit(request.parsed_arguments()?).map_err(|blocked| {
                CallError::new(ErrorCode::Unauthorized, Stage::Egress, blocked.to_string())
            })?;
            state.record_stage(Stage::Egress, None);
        }
        if let Some(limit) = &shared.rate_limit {
            limit.admit(&caller.id, state.stage_started).map_err(|limited| {
                let mut error = CallError::new(ErrorCode::RateLimited, Stage::RateLimit, limited.to_string());
                error.retry_after = Some(limited.retry_after);
                error
            })?;
            state.record_stage(Stage::RateLimit, None);
        }
        let ctx = CallContext { caller, request, tool: &tool, input: &input, deadline, timeout };
        let cacheable = tool.category != Some(toolgate_types::tool::Category::Mutation)
            // A request that carries an answer for the server continues an earlier call, so its result is not cached.
            && request.origin.forwarded.extra_params.is_empty();
        let Some(ttl) = tool.cache_ttl.filter(|_| cacheable) else {
            return self.invoke_tool(state, &ctx).await;
        };
        let definition = tool.hash.as_deref().unwrap_or_default();
        let key = CacheKey::new(&tool.name, definition, request.parsed_arguments()?, &caller.id);
        let cell = self.cache.cell(&key, ttl.get(), Instant::now());
        if let Some(cached) = cell.get() {
            state.set_cached(cached, ttl.get());
            return Ok(cached.reply.clone());
        }
        state.record_stage(Stage::Cache, Some("miss".to_owned()));
        let mut is_ours = false;
        let filled = cell
            .get_or_try_init(|| async {
                is_ours = true;
                let reply = self.invoke_tool(state, &ctx).await?;
                Ok(CachedReply { reply, schema_fit: state.schema_fit.clone(), cached_at: Instant::now() })
            })
            .await;
        if let (false, Ok(cached)) = (is_ours, &filled) {
            state.set_cached(cached, ttl.get());
        }
        self.cache.finish(&key, filled.as_ref().ok().copied(), ttl.get());
        filled.map(|cached| cached.reply.clone())
    }

    /// Invokes an authorized tool: acquires a slot, records the call, retries as often as is safe.
    async fn invoke_tool(
        &self,
        state: &mut CallState,
        ctx: &CallContext<'_>,
    ) -> Result<ToolReply, CallError> {
        let CallContext { caller, request, tool, input, deadline, timeout } = *ctx;
        let slots = &self.shared_state(tool).slots;
        let _slot = if matches!(&tool.upstream, Upstream::Builtin(builtin) if builtin.waits_for_person) {
            None
        } else {
            let slot = slots.acquire(&caller.id, deadline).await.map_err(|no| slot_error(&no))?;
            state.record_stage(Stage::Slots, None);
            Some(slot)
        };
        self.record_begin(state, caller, request, tool).await?;
        let invoke_once = || async move {
            let server = tool.server.as_ref().and_then(|server| self.sources.server(server.as_str()));
            match (&tool.upstream, server) {
                (Upstream::Builtin(builtin), _) => {
                    let context = request.tool_context(caller);
                    Ok(builtin
                        .invoke(input, context, request.origin.forwarded.client.as_ref(), deadline)
                        .await?)
                }
                (Upstream::Server(address), Some(server)) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    invoke(&server, address, input, &request.origin.forwarded, &request.trace, left).await
                }
                (Upstream::Script(script), _) => {
                    Ok(self.scripts.invoke(script, input, request.tool_context(caller)).await?)
                }
                (Upstream::OpenApi(operation), _) => Ok(operation.invoke(input, &request.trace).await?),
                (Upstream::Server(_), None) => {
                    Err(BuiltinError::from("its server was removed".to_owned()).into())
                }
            }
        };
        let end = CallDeadline { at: deadline, forwarded: &request.origin.forwarded };
        let (reply, tried) = with_retries(tool.contract.idempotent, end, invoke_once).await;
        state.attempts = tried;
        let upstream_name = || {
            let kind = if matches!(tool.upstream, Upstream::OpenApi(_)) { "API" } else { "MCP server" };
            let server = tool.server.as_ref().map(|server| format!("{kind} `{server}`"));
            server.unwrap_or_else(|| format!("tool `{}`", tool.name))
        };
        let reply = reply.map_err(|error| {
            if let AttemptError::Failed(InvokeError::Request(RequestError::Rpc(rpc_error))) = &error {
                state.rpc_error = Some(rpc_error.clone());
            }
            error.into_call_error(&upstream_name(), timeout)
        })?;
        state.record_stage(Stage::Invoke, (tried > 1).then(|| format!("{tried} attempts")));
        self.convert(state, tool, tool.compiled(), reply)
    }

    /// Stores a result that is too large and replaces it with a preview.
    async fn truncate(
        &self,
        state: &mut CallState,
        caller: &Caller,
        request: &CallRequest,
        reply: ToolReply,
    ) -> ToolReply {
        let Some((results, tool)) = self.results.as_ref().zip(state.tool.clone()) else { return reply };
        // The output of `read_result` is bounded already.
        let reads = tool.name == READ_RESULT && matches!(tool.upstream, Upstream::Builtin(_));
        if request.full_result || reads || reply.unfinished {
            return reply;
        }
        state.reply = Some(reply.raw.clone());
        let (reply, truncated) = results.truncate(&caller.id, &tool.name, reply).await;
        if let Some(truncated) = truncated {
            state.record_stage(
                Stage::Keep,
                Some(format!("{} of {} bytes shown", truncated.shown, truncated.total)),
            );
            state.truncated = Some(truncated);
        }
        reply
    }

    /// Resolves a name. Only callers that may see a quarantined tool learn why it is quarantined.
    fn resolve(&self, caller: &Caller, request: &CallRequest) -> Result<Arc<CatalogTool>, CallError> {
        let name = &request.name;
        let error = |code, message: String| CallError::new(code, Stage::Resolve, message);
        let catalog = self.catalog();
        let visible = catalog
            .resolve(name)
            .filter(|tool| !request.origin.hidden && self.access.is_in_profiles(caller, tool));
        let tool = visible.ok_or_else(|| tool_not_found(name))?;
        match &tool.state {
            ToolState::Ready => {}
            ToolState::Quarantined { cause, reason } => {
                if !self.access.policy.may_see(&self.policy_call(caller, &tool.subject(), request)) {
                    return Err(tool_not_found(name));
                }
                let code = if *cause == QuarantineCause::Changed {
                    ErrorCode::Unauthorized
                } else {
                    ErrorCode::ToolNotFound
                };
                return Err(error(code, format!("tool `{name}` is quarantined: {reason}")));
            }
        }
        if let Some(deprecated) = &tool.deprecated
            && date::today() > deprecated.removal_date
        {
            let message = format!("tool `{name}` was removed after {}", deprecated.removal_date);
            return Err(error(ErrorCode::DeprecatedRemoved, message)
                .with_hint(format!("use `{}`", deprecated.replacement)));
        }
        Ok(Arc::clone(tool))
    }

    async fn authorize(
        &self,
        caller: &Caller,
        tool: &CatalogTool,
        compiled: &CompiledTool,
        request: &CallRequest,
    ) -> Result<(Grant, String), CallError> {
        let grant = match self.access.policy.decide(&self.policy_call(caller, &compiled.subject, request)) {
            Decision::Allow(grant) => grant,
            Decision::Deny(denied) => {
                let error =
                    if denied.visible { access_denied(tool, &denied) } else { tool_not_found(&request.name) };
                return Err(CallError { denial: Some(Box::new(denial(denied))), ..error });
            }
            Decision::Ask(question) => self.request_approval(question, tool, request).await?,
        };
        let note = match grant.approved_by() {
            Some(by) => format!("{}, asked {by}", grant.rules().join(" ")),
            None => grant.rules().join(" "),
        };
        Ok((grant, note))
    }

    fn policy_call<'a>(
        &self,
        caller: &'a Caller,
        subject: &'a ToolAttributes,
        request: &'a CallRequest,
    ) -> PolicyRequest<'a> {
        let tainted = self.access.tainted_sessions.contains(&caller.id, request.origin.session.as_deref());
        PolicyRequest {
            caller,
            tool: subject,
            arguments: &request.arguments,
            tainted,
            now: SystemTime::now(),
        }
    }

    /// Returns true if the caller may know that the tool exists.
    pub fn may_see(&self, caller: &Caller, tool: &CatalogTool) -> bool {
        if !self.access.is_in_profiles(caller, tool) {
            return false;
        }
        let subject = tool.subject();
        let arguments = CallArguments::empty();
        let now = SystemTime::now();
        self.access.policy.may_see(&PolicyRequest {
            caller,
            tool: &subject,
            arguments: &arguments,
            tainted: false,
            now,
        })
    }

    /// The first timeout that is set: the tool's own, its response time class, its server's, the default.
    fn timeout(&self, tool: &CatalogTool) -> Duration {
        let server = tool.server.as_ref().and_then(|server| self.sources.server(server.as_str()));
        tool.limits
            .timeout
            .or(tool.response_time.map(toolgate_types::tool::ResponseTime::timeout))
            .or(server.map(|server| server.spec().request_timeout))
            .unwrap_or(self.limits.default_timeout)
            .get()
    }

    fn convert(
        &self,
        state: &mut CallState,
        tool: &CatalogTool,
        compiled: &CompiledTool,
        raw: RawJson,
    ) -> Result<ToolReply, CallError> {
        let failed = |code, stage, message: String| {
            CallError::new(code, stage, message).with_outcome(ExecutionState::Finished)
        };
        let reply = ToolReply::convert(raw)
            .map_err(|error| failed(ErrorCode::InvalidOutput, Stage::Convert, error.to_string()))?;
        state.record_stage(Stage::Convert, reply.unfinished.then(|| "unfinished".to_owned()));
        state.reply = Some(reply.raw.clone());
        if reply.unfinished {
            return Ok(reply);
        }
        if reply.is_error {
            let text =
                reply.first_text().unwrap_or_else(|| "the tool failed without an error message".to_owned());
            return Err(failed(ErrorCode::ToolExecutionError, Stage::Invoke, quote(&text)));
        }
        let Some(schema) = &compiled.output else { return Ok(reply) };
        let checked = if reply.structured {
            schema.check(&reply.data.parse().unwrap_or_default()).map_err(|mismatch| mismatch.to_string())
        } else {
            Err("the result has no structured content".to_owned())
        };
        state.schema_fit = match checked {
            Ok(()) => SchemaFit::Valid,
            Err(why) if tool.strict_output => {
                return Err(failed(ErrorCode::InvalidOutput, Stage::ValidateOutput, why));
            }
            Err(why) => SchemaFit::Mismatch(why),
        };
        let note = matches!(state.schema_fit, SchemaFit::Mismatch(_)).then(|| "misfit".to_owned());
        state.record_stage(Stage::ValidateOutput, note);
        Ok(reply)
    }
}

/// A tool that the caller may not see gets the same error as a tool that does not exist.
fn tool_not_found(name: &str) -> CallError {
    // The hint depends on the name only, so it does not reveal if the tool exists.
    let hint = match builtins::config_key(name) {
        Some(key) => {
            format!("enable it with `{key}` in toolgate.yaml; callers need the permission `tools:{name}`")
        }
        None => "`toolgate tools list` shows them all".to_owned(),
    };
    CallError::new(ErrorCode::ToolNotFound, Stage::Resolve, format!("there is no tool `{name}`"))
        .with_hint(hint)
}

fn access_denied(tool: &CatalogTool, denied: &Denied) -> CallError {
    let name = &tool.name;
    let missing: Vec<_> = denied.missing.iter().map(|permission| format!("`{permission}`")).collect();
    let why = match (&denied.failed, denied.forbidden_by.as_slice()) {
        (Some(_), _) => "the policy could not be evaluated".to_owned(),
        (None, []) => format!("the caller lacks {}", missing.join(", ")),
        (None, rules) => format!("the policy forbids it: {}", rules.join(", ")),
    };
    let mut error = CallError::new(
        ErrorCode::Unauthorized,
        Stage::Authorize,
        format!("tool `{name}` may not be called: {why}"),
    );
    if let Some(failed) = &denied.failed {
        error = error.with_source(failed.clone());
    }
    error
}

/// The rules that denied a call, or the missing permissions if no rule did.
fn denial(denied: Denied) -> Denial {
    let rules = match denied.failed {
        Some(_) => vec!["(failed)".to_owned()],
        None if denied.forbidden_by.is_empty() => vec!["permissions".to_owned()],
        None => denied.forbidden_by,
    };
    Denial { missing: denied.missing, rules }
}

fn slot_error(no: &NoSlot) -> CallError {
    let (code, retry) = match no {
        NoSlot::QueueFull => (ErrorCode::Overloaded, Some(Duration::from_secs(1))),
        NoSlot::TimedOut => (ErrorCode::Overloaded, None),
    };
    let mut error = CallError::new(code, Stage::Slots, no.to_string());
    error.retry_after = retry;
    error
}

#[cfg(test)]
mod tests;
