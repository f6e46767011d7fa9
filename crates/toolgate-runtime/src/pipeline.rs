//! The pipeline: the only path to a tool, a resource or a prompt, for every front end.
//!
//! [`Runtime::execute`] runs the stages in the order of the code: resolve, authorize, validate input, egress, rate
//! limit, cache, slots, invoke, convert, validate output, hints. Branches are here, the work is in `stage`; `targets`
//! finds resources and prompts, `finish` builds the result, `outcome` renders its hints and metadata when a front end
//! asks for them, and `record` writes the execution log. Invariants: every operation ends in one result with the facts
//! for its hints, and nothing is sent before the policy has decided.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use toolgate_audit as audit;
use toolgate_audit::StageTime;
use toolgate_json::CallArguments;
use toolgate_policy::decide::PolicyRequest;
use toolgate_policy::schema::without_nulls;
use toolgate_policy::{Decision, Denied, Grant, Input, SchemaValidator, TargetKind, ToolAttributes};
use toolgate_redact::KnownSecrets;
use toolgate_types::call::Denial;
use toolgate_types::call::OperationKind;
use toolgate_types::tool::Deprecation;
use toolgate_types::{CallError, Caller, ErrorCode, ExecutionState, HumanDuration, Stage, UpstreamIdentity};
use toolgate_upstream::builtin::BuiltinError;
use toolgate_upstream::invoke::{InvokeError, ServerRequest, invoke, request};
use toolgate_upstream::script::definition_place;
use toolgate_upstream::{RawJson, RequestError, ResourceSubscription, RpcError, Server, run_blocking};

use crate::builtins;
use crate::catalog::{CatalogTool, CompiledTool, QuarantineCause, ToolState, Upstream};
use crate::date;
use crate::operation::{Operation, OperationTarget};
use crate::results::{READ_RESULT, ReadError, TruncatedResult};
use crate::running_calls::RunningCall;
use crate::runtime::{AccessRules, Runtime};
use crate::stage::attempts::{AttemptError, CallDeadline, with_retries};
use crate::stage::cache::{CacheKey, CachedReply, FlightFailure};
use crate::stage::content::{ToolReply, quote};
use crate::stage::egress::EgressBlocked;
use crate::stage::hints::SchemaFit;
use crate::stage::own_result;
use crate::stage::rate_limit::RateLimit;
use crate::stage::slots::NoSlot;
use crate::tasks::{TaskOrigin, started_task};

mod abandon;
mod approval;
mod explain;
mod finish;
mod list;
mod outcome;
mod record;
mod targets;

use abandon::CallGuard;
pub(crate) use approval::MAX_APPROVAL_WAIT;
pub use explain::{Explanation, PermissionCheck};
pub use list::ListRequest;
use outcome::OutcomeFacts;
pub use outcome::{ActionableHints, CallResult};
pub use targets::VisibleItem;
use targets::not_found;

/// Longest name of a tool or prompt in an operation. The names of the catalog are shorter.
const MAX_NAME_BYTES: usize = 256;
/// Longest URI of a resource in an operation.
const MAX_URI_BYTES: usize = 2 << 10;

/// Result of a call, and the stages it went through.
#[derive(Debug)]
pub struct CallOutcome {
    pub result: CallResult,
    /// The server's complete reply, if there was one.
    pub reply: Option<RawJson>,
    /// The JSON-RPC error that the server returned, if it did.
    pub rpc_error: Option<RpcError>,
    /// Completed stages, in order.
    pub steps: Vec<StageTime>,
    /// The subscription, if the operation was one. Updates end when it is dropped.
    pub subscription: Option<ResourceSubscription>,
    /// Everything else that hints and metadata are computed from.
    facts: OutcomeFacts,
}

/// Mutable state of a call.
struct CallState {
    /// The rules that decide on the call.
    access: Arc<AccessRules>,
    steps: Vec<StageTime>,
    stage_started: Instant,
    tool: Option<Arc<CatalogTool>>,
    /// The target, if the caller may not know of it. Only the record names its server.
    hidden_tool: Option<Arc<CatalogTool>>,
    schema_fit: SchemaFit,
    attempts: u32,
    /// Age and time to live of a cached result.
    cached: Option<(Duration, Duration)>,
    /// True if the error came from a server, through an identical call that this one waited for.
    shared_failure: bool,
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
    refused_by: Option<String>,
    /// Identity under which the server was called.
    upstream: Option<UpstreamIdentity>,
    /// Secrets of the caller, to mask them in the records.
    caller_secrets: Option<Arc<KnownSecrets>>,
    /// True if untrusted content had reached the session before the decision.
    tainted: bool,
    /// The tool call that the operation continues, if its target is a task.
    task: Option<TaskOrigin>,
    subscription: Option<ResourceSubscription>,
    /// The entry in the list of running calls.
    call: Arc<RunningCall>,
    /// The open record in the execution log, from the invocation to the end of the call.
    open: Option<audit::OpenCall>,
}

impl CallState {
    fn new(access: Arc<AccessRules>, stage_started: Instant, call: Arc<RunningCall>) -> Self {
        Self {
            access,
            steps: Vec::with_capacity(12),
            stage_started,
            tool: None,
            hidden_tool: None,
            schema_fit: SchemaFit::NoSchema,
            attempts: 0,
            cached: None,
            shared_failure: false,
            approval_wait: Duration::ZERO,
            reply: None,
            rpc_error: None,
            truncated: None,
            decision: audit::Decision::Undecided,
            rules: Arc::default(),
            approved_by: None,
            refused_by: None,
            upstream: None,
            caller_secrets: None,
            tainted: false,
            task: None,
            subscription: None,
            call,
            open: None,
        }
    }

    /// Marks the result as served from the cache.
    fn set_cached(&mut self, cached: &CachedReply, ttl: Duration) {
        self.cached = Some((cached.cached_at.elapsed(), ttl));
        self.schema_fit = cached.schema_fit.clone();
        self.record_stage(Stage::Cache, Some("hit".into()));
    }

    /// Returns the failure of this call for the calls that wait for its result.
    fn flight_failure(&self, error: CallError) -> FlightFailure {
        let (reply, rpc_error) = (self.reply.clone(), self.rpc_error.clone());
        FlightFailure { error, reply, rpc_error, was_sent: self.attempts > 0 }
    }

    /// Takes over the failure of the call that this one waited for.
    fn set_failed(&mut self, failure: &FlightFailure) {
        self.reply.clone_from(&failure.reply);
        self.rpc_error.clone_from(&failure.rpc_error);
        self.shared_failure = failure.was_sent;
        self.record_stage(Stage::Cache, Some("shared failure".into()));
    }

    fn record_stage(&mut self, stage: Stage, note: Option<Cow<'static, str>>) {
        let now = Instant::now();
        let took = now - self.stage_started;
        self.call.set_stage(stage);
        self.steps.push(StageTime { stage, took, note });
        self.stage_started = now;
    }
}

/// An authorized operation with its deadline.
#[derive(Clone, Copy)]
struct CallContext<'a> {
    caller: &'a Caller,
    operation: &'a Operation,
    tool: &'a CatalogTool,
    input: &'a Input,
    deadline: Instant,
    timeout: Duration,
}

impl Operation {
    fn parsed_arguments(&self) -> Result<&Value, CallError> {
        let message = "the arguments are not valid JSON";
        let error = || CallError::new(ErrorCode::InvalidArguments, Stage::ValidateInput, message);
        self.arguments.value().ok_or_else(error)
    }
}

impl Runtime {
    /// Executes one operation. The only way to a tool, a resource or a prompt, for every front end.
    pub async fn execute(&self, caller: &Caller, operation: Operation) -> CallOutcome {
        match &operation.target {
            OperationTarget::Resource { uri, server: None } => {
                let access = self.rules_for(&operation);
                let holders =
                    self.resource_holders(&access, caller, uri, operation.origin.profile.as_deref());
                // Boxed, so that tool calls do not carry the room for it.
                self.read_from_servers(caller, operation, holders).boxed().await
            }
            _ => self.execute_once(caller, operation).await,
        }
    }

    /// Executes one operation, with the future in a box. The pipeline is then compiled in this crate; each crate that
    /// polls [`Self::execute`] compiles all of it again. For callers that can afford an allocation.
    pub fn execute_boxed<'a>(
        &'a self,
        caller: &'a Caller,
        operation: Operation,
    ) -> BoxFuture<'a, CallOutcome> {
        self.execute(caller, operation).boxed()
    }

    /// Reads a resource from the first server that has it. Each attempt is an operation of its own.
    async fn read_from_servers(
        &self,
        caller: &Caller,
        mut operation: Operation,
        holders: Vec<String>,
    ) -> CallOutcome {
        let mut outcome = None;
        for holder in holders {
            if let OperationTarget::Resource { server, .. } = &mut operation.target {
                *server = Some(holder);
            }
            let read = self.execute_once(caller, operation.clone()).await;
            let is_missing =
                |error: &RpcError| [RESOURCE_NOT_FOUND, RpcError::INVALID_PARAMS].contains(&error.code);
            if !read.rpc_error.as_ref().is_some_and(is_missing) {
                return read;
            }
            outcome = Some(read);
        }
        match outcome {
            Some(outcome) => outcome,
            None => self.execute_once(caller, operation).await,
        }
    }

    /// The rules that decide on an operation.
    fn rules_for(&self, operation: &Operation) -> Arc<AccessRules> {
        operation.origin.access.clone().unwrap_or_else(|| self.access.rules())
    }

    async fn execute_once(&self, caller: &Caller, operation: Operation) -> CallOutcome {
        let started = Instant::now();
        let mut guard = CallGuard::new(self, caller, &operation, started);
        let call = guard.call();
        let run = self.run(guard.state(), caller, &operation);
        let reply = tokio::select! {
            biased;
            reply = run => reply,
            by = call.cancelled() => Err(guard.cancelled(by)),
        };
        let reply = match reply {
            Ok(reply) => Ok(self.truncate(guard.state(), caller, &operation, reply).await),
            Err(error) => Err(error),
        };
        let reply = match self.access.taint.shared() {
            None => reply,
            // Before anything of the reply is handed out.
            Some(store) => self.share_taint(store, guard.state(), caller, &operation, reply).boxed().await,
        };
        let mut state = guard.into_state();
        let outcome = self.finish(&mut state, caller, &operation, reply, started.elapsed());
        self.record_end(state, caller, &operation, &outcome, started.elapsed()).await;
        outcome
    }

    async fn run(
        &self,
        state: &mut CallState,
        caller: &Caller,
        operation: &Operation,
    ) -> Result<ToolReply, CallError> {
        let tool = self.resolve(state, caller, operation)?;
        state.tool = Some(Arc::clone(&tool));
        state.record_stage(Stage::Resolve, None);
        // Compiled by the first call of a tool: ten thousand compiled schemas take 100 MiB, and few tools are called.
        let compiled = run_blocking(!tool.is_compiled(), || tool.compiled());
        // Before the policy, so that it decides on the arguments that the tool gets.
        let present = present_arguments(&tool, operation);
        let operation = present.as_deref().unwrap_or(operation);
        let shared = self.shared_state(&tool);
        let timeout = self.timeout(&tool, operation);
        let mut deadline = state.stage_started + timeout;
        let decided = self.authorize(state, caller, &tool, compiled, operation).await;
        let (grant, note) = decided.inspect_err(|error| {
            let not_approved = error.denial.as_ref().is_some_and(|denial| denial.not_approved);
            state.decision = if not_approved { audit::Decision::NotApproved } else { audit::Decision::Deny };
            state.rules =
                error.denial.as_ref().map(|denial| denial.rules.as_slice().into()).unwrap_or_default();
            state.refused_by = error.denial.as_ref().and_then(|denial| denial.refused_by.clone());
            if matches!(error.code, ErrorCode::ToolNotFound | ErrorCode::NotFound) {
                // The result must not reveal anything about a tool that the caller may not see.
                state.hidden_tool = state.tool.take();
                state.steps.clear();
            }
        })?;
        // Lists of running calls show a tool only to those that may know of it, so not before this.
        state.call.set_tool(&tool);
        state.decision = audit::Decision::Allow;
        state.rules = Arc::clone(grant.rules());
        state.approved_by = grant.approved_by().map(str::to_owned);
        if state.approved_by.is_some() {
            // The wait for approval does not count against the tool's timeout.
            state.approval_wait = state.stage_started.elapsed();
            deadline += state.approval_wait;
        }
        state.record_stage(Stage::Authorize, Some(note));
        if let Some(deprecated) = &tool.deprecated {
            let Deprecation { since, replacement, removal_date, .. } = deprecated;
            tracing::warn!(
                caller = %caller.id,
                "Tool '{}' is deprecated since {since}: use '{replacement}'; calls are refused after {removal_date}",
                tool.name
            );
        }
        // The arguments of a task are those of its call; they were valid.
        let is_task = operation.kind() == OperationKind::Task;
        let schema = if is_task { &*TASK_INPUT } else { &compiled.input };
        let is_expensive = schema.is_expensive(operation.arguments.raw().as_str().len());
        let validated = run_blocking(is_expensive, || schema.validate(grant, &operation.arguments));
        let input = validated.map_err(|mismatch| {
            let place = match &tool.upstream {
                Upstream::Script(script) => run_blocking(true, || definition_place(&script.script)),
                _ => None,
            };
            let place = place.map(|place| format!("it is defined at {place}; ")).unwrap_or_default();
            CallError::new(ErrorCode::InvalidArguments, Stage::ValidateInput, mismatch.to_string())
                .with_hint(format!("{place}`toolgate tools show {}` prints its arguments", tool.name))
        })?;
        state.record_stage(Stage::ValidateInput, None);
        let egress = self.secrets.egress.load_full();
        // Own, trusted tools stay on this machine.
        if !egress.is_off() && (tool.server.is_some() || !tool.trusted) {
            let blocked = |error: EgressBlocked| {
                CallError::new(ErrorCode::Unauthorized, Stage::Egress, error.to_string())
            };
            egress.admit(operation.parsed_arguments()?).map_err(blocked)?;
            if let Some(extra) = operation.origin.forwarded.extra_members() {
                egress.admit(&extra.parse().unwrap_or_default()).map_err(blocked)?;
            }
            state.record_stage(Stage::Egress, None);
        }
        if let Some(limit) = &shared.rate_limit {
            let admitted = match limit {
                RateLimit::Own(own) => own.admit(&caller.id, state.stage_started),
                // Boxed, so that calls without a cluster do not carry the room for it.
                RateLimit::Shared(shared) => {
                    RateLimit::admit_shared(shared, &caller.id, state.stage_started).boxed().await
                }
            };
            admitted.map_err(|limited| {
                let mut error = CallError::new(ErrorCode::RateLimited, Stage::RateLimit, limited.to_string());
                error.retry_after = Some(limited.retry_after);
                error
            })?;
            state.record_stage(Stage::RateLimit, None);
        }
        let ctx = CallContext { caller, operation, tool: &tool, input: &input, deadline, timeout };
        let cacheable = tool.category != Some(toolgate_types::tool::Category::Mutation)
            // A request that carries an answer for the server continues an earlier call, so its result is not cached.
            && operation.origin.forwarded.extra_params.is_empty()
            && operation.kind() == OperationKind::Tool;
        let Some(ttl) = tool.cache_ttl.filter(|_| cacheable) else {
            return self.invoke_tool(state, &ctx).await;
        };
        let definition = tool.hash.as_deref().unwrap_or_default();
        let key = CacheKey::new(&tool.name, definition, operation.parsed_arguments()?, &caller.id);
        let flight = self.cache.join(key, ttl.get(), Instant::now());
        if let Some(cached) = flight.cached() {
            state.set_cached(cached, ttl.get());
            return Ok(cached.reply.clone());
        }
        state.record_stage(Stage::Cache, Some("miss".into()));
        let mut is_ours = false;
        let outcome = flight
            .outcome(|| async {
                is_ours = true;
                let reply =
                    self.invoke_tool(state, &ctx).await.map_err(|error| state.flight_failure(error))?;
                Ok(CachedReply { reply, schema_fit: state.schema_fit.clone(), cached_at: Instant::now() })
            })
            .await;
        match outcome {
            Ok(cached) if !is_ours => state.set_cached(cached, ttl.get()),
            Err(failure) if !is_ours => state.set_failed(failure),
            _ => {}
        }
        outcome.as_ref().map(|cached| cached.reply.clone()).map_err(|failure| failure.error.clone())
    }

    /// Invokes an authorized tool: acquires a slot, records the call, retries as often as is safe.
    async fn invoke_tool(
        &self,
        state: &mut CallState,
        ctx: &CallContext<'_>,
    ) -> Result<ToolReply, CallError> {
        let CallContext { caller, operation, tool, input, deadline, timeout } = *ctx;
        let slots = &self.shared_state(tool).slots;
        // A request for a task may wait for the task, and the task runs on the server.
        let only_waits = matches!(&tool.upstream, Upstream::Builtin(builtin) if builtin.waits_for_person)
            || operation.kind() == OperationKind::Task;
        let _slot = if only_waits {
            None
        } else {
            let slot = slots.acquire(&caller.id, deadline).await.map_err(|no| slot_error(&no))?;
            state.record_stage(Stage::Slots, None);
            Some(slot)
        };
        let server = tool.server.as_ref().and_then(|server| self.sources.server(server.as_str()));
        if let Some(server) = &server {
            server.credentials().read_secrets(&caller.id).await;
        }
        state.caller_secrets = self.sources.logins().secrets.of(&caller.id);
        self.record_begin(state, caller, operation, tool).await?;
        let task_session = state.task.as_ref().and_then(|task| task.session.clone());
        let task_session = task_session.as_deref();
        let side_results = SideResults::default();
        let side_results = &side_results;
        let invoke_once = || async move {
            let server = tool.server.as_ref().and_then(|server| self.sources.server(server.as_str()));
            match (&tool.upstream, server) {
                (Upstream::Server(address), Some(server)) if operation.kind() == OperationKind::Tool => {
                    let session = operation.origin.session_id();
                    let forwarded = &operation.origin.forwarded;
                    invoke(&server, address, input, session, forwarded, &operation.trace).await
                }
                (Upstream::Login, Some(server)) => {
                    // Boxed, so that tool calls do not carry the room for it.
                    log_in(&server, input, operation).boxed().await
                }
                (Upstream::Builtin(builtin), _) => {
                    let context = operation.tool_context(caller);
                    let client = operation.origin.forwarded.client.as_ref();
                    let untrusted = side_results.untrusted_flag();
                    Ok(builtin.invoke(input, context, client, deadline, untrusted).await?)
                }
                (Upstream::Script(script), _) => {
                    Ok(self.scripts.invoke(script, input, operation.tool_context(caller)).await?)
                }
                (Upstream::OpenApi(api), _) => Ok(api.invoke(input, &operation.trace).await?),
                (Upstream::StoredResult, _) => {
                    self.read_stored_result(input, ctx, side_results).boxed().await
                }
                // Boxed, so that tool calls do not carry the room for it.
                (_, Some(server)) => self.send_request(server, ctx, task_session, side_results).boxed().await,
                (
                    Upstream::Server(_) | Upstream::Login | Upstream::Request(..) | Upstream::Subscription,
                    None,
                ) => Err(BuiltinError::from("its server was removed".to_owned()).into()),
            }
        };
        let end = CallDeadline { at: deadline, forwarded: &operation.origin.forwarded };
        let (reply, tried) = with_retries(tool.contract.idempotent, end, invoke_once).await;
        state.attempts = tried;
        // After the call: the caller may have logged in meanwhile.
        state.upstream = server.and_then(|server| server.credentials().upstream_identity(&caller.id));
        let upstream_name = || {
            let kind = if matches!(tool.upstream, Upstream::OpenApi(_)) { "API" } else { "MCP server" };
            let server = tool.server.as_ref().map(|server| format!("{kind} `{server}`"));
            server.unwrap_or_else(|| format!("tool `{}`", tool.name))
        };
        let reply = reply.map_err(|error| {
            if let AttemptError::Failed(InvokeError::Request(RequestError::Rpc(rpc_error))) = &error {
                state.rpc_error = Some(rpc_error.clone());
            }
            if let (false, AttemptError::Failed(InvokeError::Request(RequestError::Unanswered(rpc_error)))) =
                (operation.kind() == OperationKind::Tool, &error)
            {
                state.rpc_error = Some(rpc_error.clone());
            }
            error.into_call_error(&upstream_name(), timeout)
        })?;
        state.record_stage(Stage::Invoke, (tried > 1).then(|| format!("{tried} attempts").into()));
        state.subscription = side_results.subscription.lock().take();
        if operation.kind() != OperationKind::Tool {
            state.reply = Some(reply.clone());
            let untrusted = side_results.is_untrusted();
            return Ok(ToolReply { untrusted, ..ToolReply::verbatim(reply) });
        }
        let reply = self.convert(state, tool, tool.compiled(), reply)?;
        if let (true, Some(server)) = (reply.unfinished, &tool.server)
            && let Some(id) = started_task(&reply.raw)
        {
            let (tool, arguments) = (tool.name.clone(), operation.arguments.clone());
            let approved_by = state.approved_by.clone();
            let session = operation.origin.session_id().map(Into::into);
            let origin = TaskOrigin { server: server.clone(), session, tool, arguments, approved_by };
            self.tasks.insert(&caller.id, id, origin);
        }
        Ok(ToolReply { untrusted: side_results.is_untrusted(), ..reply })
    }

    /// Sends a request other than a tool call to its server.
    async fn send_request(
        &self,
        server: Arc<Server>,
        ctx: &CallContext<'_>,
        task_session: Option<&str>,
        side_results: &SideResults,
    ) -> Result<RawJson, InvokeError> {
        let CallContext { operation, tool, input, .. } = *ctx;
        let forwarded = &operation.origin.forwarded;
        // A task runs where the session that started it has its connection.
        let session = task_session.or(operation.origin.session_id());
        let task;
        let sent = match (&operation.target, &tool.upstream) {
            (OperationTarget::Task { id, method }, _) => {
                task = ServerRequest::Task { method: *method, id: id.clone() };
                &task
            }
            (_, Upstream::Request(_, sent)) => sent,
            _ => {
                let subscription =
                    server.subscribe_resource(input, session, forwarded.client.as_ref()).await?;
                *side_results.subscription.lock() = Some(subscription);
                return Ok(RawJson::from_value(&json!({})));
            }
        };
        if matches!(sent, ServerRequest::Complete { .. })
            && !server.connection().await?.peer.has_capability("completions")
        {
            let none = json!({ "completion": { "values": [], "total": 0, "hasMore": false } });
            return Ok(RawJson::from_value(&none));
        }
        request(&server, sent, input, session, forwarded, &operation.trace).await
    }

    /// Reads a stored result of the caller.
    async fn read_stored_result(
        &self,
        input: &Input,
        ctx: &CallContext<'_>,
        side_results: &SideResults,
    ) -> Result<RawJson, InvokeError> {
        let uri = ctx.operation.name();
        let missing = || BuiltinError::new(ErrorCode::NotFound, format!("there is no resource `{uri}`"));
        let results = self.results.as_ref().ok_or_else(missing)?;
        let stored = results.read(input.caller(), uri).await.map_err(|error| match error {
            ReadError::Absent(_) => missing(),
            error => BuiltinError::new(ErrorCode::StorageUnavailable, error.to_string()),
        })?;
        side_results.untrusted_flag().store(stored.untrusted, Ordering::Relaxed);
        let contents = json!([{ "uri": uri, "mimeType": "application/json", "text": stored.reply.as_str() }]);
        Ok(RawJson::from_value(&json!({ "contents": contents })))
    }

    /// Stores a result that is too large and replaces it with a preview.
    async fn truncate(
        &self,
        state: &mut CallState,
        caller: &Caller,
        operation: &Operation,
        reply: ToolReply,
    ) -> ToolReply {
        let Some((results, tool)) = self.results.as_ref().zip(state.tool.clone()) else { return reply };
        // The output of `read_result` is bounded already.
        let reads = tool.name == READ_RESULT && matches!(tool.upstream, Upstream::Builtin(_));
        if operation.full_result || reads || reply.unfinished || operation.kind() != OperationKind::Tool {
            return reply;
        }
        state.reply = Some(reply.raw.clone());
        let untrusted = !tool.trusted || reply.untrusted;
        let max_inline = operation.origin.max_inline;
        let stored = results.truncate(&caller.id, (&tool.name, untrusted), max_inline, reply);
        let (reply, truncated) = stored.await;
        if let Some(truncated) = truncated {
            state.record_stage(
                Stage::Keep,
                Some(format!("{} of {} bytes shown", truncated.shown, truncated.total).into()),
            );
            state.truncated = Some(truncated);
        }
        reply
    }

    /// Finds the target of an operation.
    fn resolve(
        &self,
        state: &mut CallState,
        caller: &Caller,
        operation: &Operation,
    ) -> Result<Arc<CatalogTool>, CallError> {
        match &operation.target {
            OperationTarget::Tool(name) => self.resolve_tool(&state.access, caller, operation, name),
            OperationTarget::FrontEndTool(tool) => Ok(Arc::clone(tool)),
            OperationTarget::Task { id, .. } => {
                let task = self.tasks.find(&caller.id, id).ok_or_else(|| not_found(operation))?;
                let tool = self.resolve_tool(&state.access, caller, operation, &task.tool)?;
                // The name may belong to another server by now.
                if tool.server.as_ref() != Some(&task.server) {
                    return Err(not_found(operation));
                }
                state.task = Some(task);
                Ok(tool)
            }
            _ => self.resolve_item(&state.access, caller, operation).map(Arc::new),
        }
    }

    /// Resolves the name of a tool. Only callers that may see a quarantined tool learn why it is quarantined.
    fn resolve_tool(
        &self,
        access: &AccessRules,
        caller: &Caller,
        operation: &Operation,
        name: &str,
    ) -> Result<Arc<CatalogTool>, CallError> {
        let error = |code, message: String| CallError::new(code, Stage::Resolve, message);
        if name.len() > MAX_NAME_BYTES {
            return Err(tool_not_found(shown_name(name)));
        }
        let catalog = self.catalog();
        let visible = catalog
            .resolve(name)
            .filter(|tool| !operation.origin.hidden && self.access.is_in_profiles(caller, tool));
        let Some(tool) = visible else {
            let login = self.login_tool(caller, name).filter(|_| !operation.origin.hidden);
            return login.ok_or_else(|| tool_not_found(name));
        };
        let sees = |tool: &CatalogTool| {
            let subject = tool.subject();
            access.policy.may_see(&policy_request(caller, &subject, &operation.arguments, false))
        };
        match &tool.state {
            // Calls of removed tools are refused by their date below.
            ToolState::Ready | ToolState::Removed { .. } => {}
            ToolState::Quarantined { cause, reason } => {
                if !sees(tool) {
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
            && deprecated.is_removed(&date::today())
        {
            if !sees(tool) {
                return Err(tool_not_found(name));
            }
            let message = format!("tool `{name}` was removed after {}", deprecated.removal_date);
            let mut error = error(ErrorCode::DeprecatedRemoved, message);
            if catalog.resolve(deprecated.replacement.as_str()).is_none_or(|tool| sees(tool)) {
                error = error.with_hint(format!("use `{}`", deprecated.replacement));
            }
            return Err(error);
        }
        Ok(Arc::clone(tool))
    }

    async fn authorize(
        &self,
        state: &mut CallState,
        caller: &Caller,
        tool: &CatalogTool,
        compiled: &CompiledTool,
        operation: &Operation,
    ) -> Result<(Grant, Cow<'static, str>), CallError> {
        let session = operation.origin.session.as_ref();
        state.tainted = match self.access.taint.shared() {
            None => self.access.taint.contains(&caller.id, session, state.stage_started),
            // A rule that does not refer to it costs no statement.
            Some(_) if !state.access.policy.may_read_taint() => {
                self.access.taint.contains(&caller.id, session, state.stage_started)
            }
            Some(store) => {
                let taint = &self.access.taint;
                taint.contains_anywhere(store, &caller.id, session, state.stage_started).boxed().await
            }
        };
        // A task is decided like the call that started it.
        let arguments = state.task.as_ref().map_or(&operation.arguments, |task| &task.arguments);
        let request = policy_request(caller, &compiled.subject, arguments, state.tainted);
        let grant = match state.access.policy.decide(&request) {
            Decision::Allow(grant) => grant,
            Decision::Deny(denied) => {
                let error = if denied.visible { access_denied(tool, &denied) } else { not_found(operation) };
                return Err(CallError { denial: Some(Box::new(denial(denied))), ..error });
            }
            Decision::Ask(question) => {
                let approved_by = state.task.as_ref().and_then(|task| task.approved_by.as_deref());
                // Boxed: most calls need no approval, and its future is deep.
                let tainted = state.tainted;
                Box::pin(self.request_approval(question, tool, operation, (approved_by, tainted))).await?
            }
        };
        let note = match grant.approved_by() {
            Some(by) => format!("{}, asked {by}", grant.rules_text()).into(),
            None => grant.rules_text(),
        };
        Ok((grant, note))
    }

    /// Ids of the tasks that a caller started, newest first.
    pub fn tasks_of(&self, caller: &Caller) -> Vec<String> {
        self.tasks.ids_of(&caller.id)
    }

    /// Returns true if the caller may know that the tool exists.
    pub fn may_see(&self, caller: &Caller, tool: &CatalogTool) -> bool {
        if !self.access.is_in_profiles(caller, tool) {
            return false;
        }
        let subject = tool.subject();
        let rules = self.access.rules();
        rules.policy.may_see(&policy_request(caller, &subject, &CallArguments::empty(), false))
    }

    fn timeout(&self, tool: &CatalogTool, operation: &Operation) -> Duration {
        // A request for a task may wait for the task; the timeout of the tool does not apply to it.
        let own = if operation.kind() == OperationKind::Task { None } else { tool.limits.timeout };
        own.unwrap_or_else(|| self.default_timeout(tool)).get()
    }

    /// The first timeout that is set beside the tool's own: its response time class, its server's, the default.
    pub(crate) fn default_timeout(&self, tool: &CatalogTool) -> HumanDuration {
        let server = tool.server.as_ref().and_then(|server| self.sources.server(server.as_str()));
        let class = tool.response_time.map(toolgate_types::tool::ResponseTime::timeout);
        let of_server = server.map(|server| server.spec().request_timeout);
        class.or(of_server).unwrap_or_else(|| self.limits.load().default_timeout)
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
        state.record_stage(Stage::Convert, reply.unfinished.then_some("unfinished".into()));
        state.reply = Some(reply.raw.clone());
        if reply.unfinished {
            return Ok(reply);
        }
        if reply.is_error {
            let text =
                reply.first_text().unwrap_or_else(|| "the tool failed without an error message".to_owned());
            let error = failed(ErrorCode::ToolExecutionError, Stage::Invoke, quote(&text));
            return Err(if tool.trusted { own_result::with_own_error(error, &reply.raw) } else { error });
        }
        let Some(schema) = &compiled.output else { return Ok(reply) };
        let checked = if reply.structured {
            let is_expensive = schema.is_expensive(reply.data.as_str().len());
            run_blocking(is_expensive, || schema.check(&reply.data.parse().unwrap_or_default()))
                .map_err(|mismatch| mismatch.to_string())
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
        let note = matches!(state.schema_fit, SchemaFit::Mismatch(_)).then_some("misfit".into());
        state.record_stage(Stage::ValidateOutput, note);
        Ok(reply)
    }
}

/// Logs a caller in to a server, by a request that needs its credential and changes nothing.
async fn log_in(server: &Arc<Server>, input: &Input, operation: &Operation) -> Result<RawJson, InvokeError> {
    let (session, forwarded) = (operation.origin.session_id(), &operation.origin.forwarded);
    request(server, &ServerRequest::ListTools, input, session, forwarded, &operation.trace).await?;
    let text =
        format!("You are logged in to `{}`. Its tools are in the list of tools now.", server.spec().name);
    Ok(RawJson::from_value(&json!({ "content": [{ "type": "text", "text": text }] })))
}

/// Everything that a policy decides on.
fn policy_request<'a>(
    caller: &'a Caller,
    target: &'a ToolAttributes,
    arguments: &'a CallArguments,
    tainted: bool,
) -> PolicyRequest<'a> {
    PolicyRequest { caller, tool: target, arguments, tainted, now: SystemTime::now() }
}

/// Results of an invocation besides its reply.
#[derive(Default)]
struct SideResults {
    /// Set if the reply holds untrusted content, although its tool is trusted. Created only for those that may set it.
    untrusted: OnceLock<Arc<AtomicBool>>,
    subscription: Mutex<Option<ResourceSubscription>>,
}

impl SideResults {
    fn untrusted_flag(&self) -> &Arc<AtomicBool> {
        self.untrusted.get_or_init(Arc::default)
    }

    fn is_untrusted(&self) -> bool {
        self.untrusted.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

/// Returns the operation without arguments that are `null` and count as absent, if it has any.
fn present_arguments(tool: &CatalogTool, operation: &Operation) -> Option<Box<Operation>> {
    if operation.kind() != OperationKind::Tool || !operation.arguments.raw().contains_short("null") {
        return None;
    }
    let arguments = without_nulls(&tool.input_schema.parse().ok()?, operation.arguments.raw())?;
    Some(Box::new(Operation { arguments: arguments.into(), ..operation.clone() }))
}

/// Accepts the arguments of a request for a task.
static TASK_INPUT: LazyLock<SchemaValidator> =
    LazyLock::new(|| SchemaValidator::new(&Value::Bool(true)).expect("a valid schema"));

/// Error code of servers for unknown resources, before the newest revision.
pub const RESOURCE_NOT_FOUND: i64 = -32002;

/// The part of a name that errors and the execution log repeat.
fn shown_name(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_NAME_BYTES)]
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
        match tool.target_kind() {
            TargetKind::Tool => format!("tool `{name}` may not be called: {why}"),
            TargetKind::Resource => format!("resource `{name}` may not be read: {why}"),
            TargetKind::Prompt => format!("prompt `{name}` may not be used: {why}"),
        },
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
    Denial { missing: denied.missing, rules, not_approved: false, refused_by: None }
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
