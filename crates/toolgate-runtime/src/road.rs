//! The road: the only way to a tool, for every door.
//!
//! [`Runtime::call`] reads in the order it runs: resolve, authorize, validate, egress, rate limit, cache,
//! slots, attempts, convert, validate, hints. Branches live here, work lives in `stage`; how a call ends is
//! in `end`, what is written down of it in `record`.
//! Invariant: whatever happens, a call ends in one result with hints and metadata, and nothing is sent
//! before it was decided on.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;
use toolgate_audit as audit;
use toolgate_policy::decide::Call;
use toolgate_policy::{Decision, Denied, Grant, Input, Question, Subject};
use toolgate_types::call::Denial;
use toolgate_types::json::Arguments;
use toolgate_types::{CallError, Caller, ErrorCode, Outcome, Stage, ToolContext, ToolResult};
use toolgate_upstream::builtin::Fault;
use toolgate_upstream::invoke::{InvokeError, invoke};
use toolgate_upstream::{Along, Raw, RequestError, RpcError, Trace};

use crate::builtins;
use crate::catalog::{CatalogTool, Compiled, ToolState, Upstream, Why};
use crate::date;
use crate::results::{Cut, READ_RESULT};
use crate::runtime::Runtime;
use crate::stage::attempts::{Deadline, GaveUp, attempts};
use crate::stage::cache::{Kept, Key};
use crate::stage::content::{Reply, quoted};
use crate::stage::egress;
use crate::stage::hints::Fit;
use crate::stage::slots::NoSlot;

mod ask;
mod end;
mod explain;
mod left;
mod record;

pub use explain::{Demand, Explanation};
use left::Trip;

/// A call as a door hands it over.
#[derive(Debug, Clone)]
pub struct CallRequest {
    /// The tool, by the name that callers use.
    pub name: String,
    /// Its arguments.
    pub arguments: Arguments,
    /// What it belongs to.
    pub trace: Trace,
    /// Where it comes from.
    pub origin: Origin,
    /// Whether its result is given whole, however large it is.
    pub whole: bool,
}

/// Where a call comes from, as far as its door knows. Nothing here decides who the caller is.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// The person behind it.
    pub user: Option<String>,
    /// The session it is part of.
    pub session: Option<String>,
    /// The version of the agent that calls.
    pub agent_version: Option<String>,
    /// What else is known, such as what the person prefers.
    pub metadata: Option<Value>,
    /// What the client behind it brings along for a server.
    pub along: Along,
    /// Whether the tool is no part of what the client was shown: it reads like one that is not there.
    pub hidden: bool,
}

impl CallRequest {
    /// All of this as a tool is told it.
    fn context(&self, caller: &Caller) -> ToolContext {
        let Origin { user, session, agent_version, metadata, .. } = self.origin.clone();
        ToolContext {
            user_id: user,
            session_id: session,
            correlation_id: self.trace.correlation_id().to_owned(),
            trace_id: self.trace.trace_id().to_owned(),
            agent_id: caller.id.to_string(),
            agent_version: agent_version.unwrap_or_default(),
            timestamp: date::now(),
            metadata,
        }
    }

    /// What the arguments say.
    fn read(&self) -> Result<&Value, CallError> {
        let unreadable = "the arguments cannot be read";
        let error = || CallError::new(ErrorCode::InvalidArguments, Stage::ValidateInput, unreadable);
        self.arguments.value().ok_or_else(error)
    }
}

/// What was said when a rule asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// This person said yes.
    Yes(String),
    /// Nobody did, which is all that is known where there is no text.
    No(String),
}

/// Who answers when a rule asks. Every door has its own way to a person.
pub trait Approver: Send + Sync + 'static {
    /// Whether somebody says yes.
    fn ask(&self, question: &Question, origin: &Origin) -> BoxFuture<'static, Verdict>;

    /// How long a person may take, beside the time that the call has; none where it is part of that time.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// What whoever called can do where nobody can be asked at all.
    fn absence(&self) -> Option<&'static str> {
        None
    }
}

/// Nobody is there to say yes.
pub struct NobodyApproves;

impl Approver for NobodyApproves {
    fn ask(&self, _question: &Question, _origin: &Origin) -> BoxFuture<'static, Verdict> {
        Box::pin(async { Verdict::No(String::new()) })
    }

    fn absence(&self) -> Option<&'static str> {
        Some("nobody can be asked here; `toolgate tools call` asks whoever sits at its terminal")
    }
}

/// How a call ended, and the road it took.
#[derive(Debug)]
pub struct Called {
    /// What the caller gets.
    pub result: ToolResult<Raw>,
    /// The server's whole reply, where there was one.
    pub reply: Option<Raw>,
    /// The error with which the server answered, where it did.
    pub refusal: Option<RpcError>,
    /// The stages it passed, in order.
    pub steps: Vec<Step>,
}

/// A stage that was passed.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    /// The stage.
    pub stage: Stage,
    /// What was decided there, where there was something to decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// How long it took, in microseconds.
    pub micros: u128,
    /// The same to the nanosecond, for measurements.
    #[serde(skip)]
    pub nanos: u128,
}

/// What is noted on the way.
struct Passage {
    steps: Vec<Step>,
    since: Instant,
    tool: Option<Arc<CatalogTool>>,
    fit: Fit,
    attempts: u32,
    cached: Option<(Duration, Duration)>,
    /// How long a person took to say yes.
    waited: Duration,
    /// What a server said, whether it is a success or not.
    reply: Option<Raw>,
    /// What it said in place of a reply.
    refusal: Option<RpcError>,
    /// What the result became, where it was too large.
    cut: Option<Cut>,
    /// How it was decided on, as far as it got.
    decision: audit::Decision,
    rules: Arc<[String]>,
    asked: Option<String>,
    /// What the call is known by, once it was sent.
    id: Option<String>,
    /// The call in the log, from when it is sent to when it has ended.
    open: Option<audit::Open>,
}

impl Passage {
    fn new(since: Instant) -> Self {
        Self {
            steps: Vec::with_capacity(12),
            since,
            tool: None,
            fit: Fit::Unchecked,
            attempts: 0,
            cached: None,
            waited: Duration::ZERO,
            reply: None,
            refusal: None,
            cut: None,
            decision: audit::Decision::Undecided,
            rules: Arc::default(),
            asked: None,
            id: None,
            open: None,
        }
    }

    /// The result is one that another call gave.
    fn hit(&mut self, kept: &Kept, ttl: Duration) {
        self.cached = Some((kept.at.elapsed(), ttl));
        self.fit = kept.fit.clone();
        self.passed(Stage::Cache, Some("hit".to_owned()));
    }

    fn passed(&mut self, stage: Stage, note: Option<String>) {
        let now = Instant::now();
        let took = now - self.since;
        self.steps.push(Step { stage, note, micros: took.as_micros(), nanos: took.as_nanos() });
        self.since = now;
    }
}

/// A call that may be made, and within which time.
#[derive(Clone, Copy)]
struct Way<'a> {
    caller: &'a Caller,
    request: &'a CallRequest,
    tool: &'a CatalogTool,
    input: &'a Input,
    deadline: Instant,
    within: Duration,
}

impl Runtime {
    /// Runs one tool call.
    pub async fn call(&self, caller: &Caller, request: CallRequest) -> Called {
        let started = Instant::now();
        let mut trip = Trip::new(self, caller, &request, started);
        let outcome = match self.run(trip.passage(), caller, &request).await {
            Ok(reply) => Ok(self.cut(trip.passage(), caller, &request, reply).await),
            Err(error) => Err(error),
        };
        let mut passage = trip.arrived();
        let called = self.end(&mut passage, caller, &request, outcome, started.elapsed());
        self.write_down(passage, caller, &request, &called, started.elapsed()).await;
        called
    }

    async fn run(
        &self,
        passage: &mut Passage,
        caller: &Caller,
        request: &CallRequest,
    ) -> Result<Reply, CallError> {
        let tool = self.resolve(caller, request)?;
        passage.tool = Some(Arc::clone(&tool));
        passage.passed(Stage::Resolve, None);
        let compiled = tool.compiled();
        let guard = self.guard(&tool);
        let within = self.timeout(&tool);
        let mut deadline = passage.since + within;
        let decided = self.authorize(caller, &tool, compiled, request, deadline).await;
        let (grant, note) = decided.inspect_err(|error| {
            passage.decision = audit::Decision::Deny;
            passage.rules =
                error.denial.as_ref().map(|denial| denial.rules.as_slice().into()).unwrap_or_default();
            if error.code == ErrorCode::ToolNotFound {
                // Nothing about the tool may show in what is told beside.
                passage.tool = None;
                passage.steps.clear();
            }
        })?;
        passage.decision = audit::Decision::Allow;
        passage.rules = Arc::clone(grant.rules());
        passage.asked = grant.asked().map(str::to_owned);
        if passage.asked.is_some() {
            // The time that a person took is not the tool's.
            passage.waited = passage.since.elapsed();
            deadline += passage.waited;
        }
        passage.passed(Stage::Authorize, Some(note));
        let input = compiled.input.validate(grant, &request.arguments).map_err(|misfit| {
            CallError::new(ErrorCode::InvalidArguments, Stage::ValidateInput, misfit.to_string())
                .hint(format!("`toolgate tools show {}` says what it takes", tool.name))
        })?;
        passage.passed(Stage::ValidateInput, None);
        let rules = self.egress.load_full();
        if !rules.is_off() && (tool.server.is_some() || !tool.trusted) {
            egress::admit(&rules, request.read()?)
                .map_err(|kept| CallError::new(ErrorCode::Unauthorized, Stage::Egress, kept.to_string()))?;
            passage.passed(Stage::Egress, None);
        }
        if let Some(limit) = &guard.rate_limit {
            limit.admit(&caller.id, passage.since).map_err(|limited| {
                let mut error = CallError::new(ErrorCode::RateLimited, Stage::RateLimit, limited.to_string());
                error.retry_after = Some(limited.retry_after);
                error
            })?;
            passage.passed(Stage::RateLimit, None);
        }
        let way = Way { caller, request, tool: &tool, input: &input, deadline, within };
        let may_keep = tool.category != Some(toolgate_types::tool::Category::Mutation)
            // An answer to a question is part of a call that has begun.
            && request.origin.along.members.is_empty();
        let Some(ttl) = tool.cache_ttl.filter(|_| may_keep) else {
            return self.invoke_once(passage, &way).await;
        };
        let definition = tool.hash.as_deref().unwrap_or_default();
        let key = Key::new(&tool.name, definition, request.read()?, &caller.id);
        let cell = self.cache.cell(&key, ttl.get(), Instant::now());
        if let Some(kept) = cell.get() {
            passage.hit(kept, ttl.get());
            return Ok(kept.reply.clone());
        }
        passage.passed(Stage::Cache, Some("miss".to_owned()));
        let mut ours = false;
        let filled = cell
            .get_or_try_init(|| async {
                ours = true;
                let reply = self.invoke_once(passage, &way).await?;
                Ok(Kept { reply, fit: passage.fit.clone(), at: Instant::now() })
            })
            .await;
        if let (false, Ok(kept)) = (ours, &filled) {
            passage.hit(kept, ttl.get());
        }
        self.cache.settle(&key, filled.as_ref().ok().copied(), ttl.get());
        filled.map(|kept| kept.reply.clone())
    }

    /// Runs a tool that was decided on: with a slot, written down, as often as is safe.
    async fn invoke_once(&self, passage: &mut Passage, way: &Way<'_>) -> Result<Reply, CallError> {
        let Way { caller, request, tool, input, deadline, within } = *way;
        let slots = &self.guard(tool).slots;
        let _slot = if matches!(&tool.upstream, Upstream::Builtin(builtin) if builtin.waits) {
            None
        } else {
            let slot = slots.acquire(&caller.id, deadline).await.map_err(|no| no_slot(&no))?;
            passage.passed(Stage::Slots, None);
            Some(slot)
        };
        self.open(passage, caller, request, tool).await?;
        let once = || async move {
            let server = tool.server.as_ref().and_then(|server| self.server(server.as_str()));
            match (&tool.upstream, server) {
                (Upstream::Builtin(builtin), _) => {
                    let context = request.context(caller);
                    Ok(builtin.invoke(input, context, request.origin.along.client.as_ref(), deadline).await?)
                }
                (Upstream::Server(address), Some(server)) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    invoke(&server, address, input, &request.origin.along, &request.trace, left).await
                }
                (Upstream::Script(script), _) => {
                    Ok(self.scripts.invoke(script, input, request.context(caller)).await?)
                }
                (Upstream::OpenApi(operation), _) => Ok(operation.invoke(input, &request.trace).await?),
                (Upstream::Server(_), None) => Err(Fault::from("its server is gone".to_owned()).into()),
            }
        };
        let end = Deadline { at: deadline, along: &request.origin.along };
        let (reply, tried) = attempts(tool.contract.idempotent, end, once).await;
        passage.attempts = tried;
        let whom = || {
            let kind = if matches!(tool.upstream, Upstream::OpenApi(_)) { "API" } else { "MCP server" };
            let server = tool.server.as_ref().map(|server| format!("{kind} `{server}`"));
            server.unwrap_or_else(|| format!("tool `{}`", tool.name))
        };
        let reply = reply.map_err(|gave_up| {
            if let GaveUp::Failed(InvokeError::Request(RequestError::Rpc(error))) = &gave_up {
                passage.refusal = Some(error.clone());
            }
            gave_up.told(&whom(), within)
        })?;
        passage.passed(Stage::Invoke, (tried > 1).then(|| format!("{tried} attempts")));
        self.convert(passage, tool, tool.compiled(), reply)
    }

    /// A result that is too large is kept, and a preview takes its place.
    async fn cut(
        &self,
        passage: &mut Passage,
        caller: &Caller,
        request: &CallRequest,
        reply: Reply,
    ) -> Reply {
        let Some((results, tool)) = self.results.as_ref().zip(passage.tool.clone()) else { return reply };
        // What reads them is bounded already.
        let reads = tool.name == READ_RESULT && matches!(tool.upstream, Upstream::Builtin(_));
        if request.whole || reads || reply.unfinished {
            return reply;
        }
        passage.reply = Some(reply.raw.clone());
        let (reply, cut) = results.cut(&caller.id, &tool.name, reply).await;
        if let Some(cut) = cut {
            passage.passed(Stage::Keep, Some(format!("{} of {} bytes shown", cut.shown, cut.of)));
            passage.cut = Some(cut);
        }
        reply
    }

    /// The tool that a name means. Why one is held back is told to who may know of it.
    fn resolve(&self, caller: &Caller, request: &CallRequest) -> Result<Arc<CatalogTool>, CallError> {
        let name = &request.name;
        let error = |code, message: String| CallError::new(code, Stage::Resolve, message);
        let catalog = self.catalog();
        let shown =
            catalog.resolve(name).filter(|tool| !request.origin.hidden && self.is_within(caller, tool));
        let tool = shown.ok_or_else(|| unknown(name))?;
        match &tool.state {
            ToolState::Ready => {}
            ToolState::Quarantined { why, reason } => {
                if !self.policy.may_see(&self.decided_on(caller, &tool.subject(), request)) {
                    return Err(unknown(name));
                }
                let code =
                    if *why == Why::Changed { ErrorCode::Unauthorized } else { ErrorCode::ToolNotFound };
                return Err(error(code, format!("tool `{name}` is held back: {reason}")));
            }
        }
        if let Some(deprecated) = &tool.deprecated
            && date::today() > deprecated.removal_date
        {
            let message = format!("tool `{name}` was taken away after {}", deprecated.removal_date);
            return Err(error(ErrorCode::DeprecatedRemoved, message)
                .hint(format!("use `{}`", deprecated.replacement)));
        }
        Ok(Arc::clone(tool))
    }

    async fn authorize(
        &self,
        caller: &Caller,
        tool: &CatalogTool,
        compiled: &Compiled,
        request: &CallRequest,
        deadline: Instant,
    ) -> Result<(Grant, String), CallError> {
        let grant = match self.policy.decide(&self.decided_on(caller, &compiled.subject, request)) {
            Decision::Allow(grant) => grant,
            Decision::Deny(denied) => {
                let told = if denied.visible { refused(tool, &denied) } else { unknown(&request.name) };
                return Err(CallError { denial: Some(Box::new(denial(denied))), ..told });
            }
            Decision::Ask(question) => self.ask_somebody(question, tool, request, deadline).await?,
        };
        let note = match grant.asked() {
            Some(by) => format!("{}, asked {by}", grant.rules().join(" ")),
            None => grant.rules().join(" "),
        };
        Ok((grant, note))
    }

    fn decided_on<'a>(&self, caller: &'a Caller, subject: &'a Subject, request: &'a CallRequest) -> Call<'a> {
        let tainted = self.taints.has(&caller.id, request.origin.session.as_deref());
        Call { caller, subject, arguments: &request.arguments, tainted, now: SystemTime::now() }
    }

    /// Whether a caller may know that there is a tool.
    pub fn may_see(&self, caller: &Caller, tool: &CatalogTool) -> bool {
        if !self.is_within(caller, tool) {
            return false;
        }
        let subject = tool.subject();
        let arguments = Arguments::none();
        let now = SystemTime::now();
        self.policy.may_see(&Call { caller, subject: &subject, arguments: &arguments, tainted: false, now })
    }

    /// The first that is set: the tool's own time, what its kind takes, its server's, everybody's.
    fn timeout(&self, tool: &CatalogTool) -> Duration {
        let server = tool.server.as_ref().and_then(|server| self.server(server.as_str()));
        tool.limits
            .timeout
            .or(tool.response_time.map(toolgate_types::tool::ResponseTime::timeout))
            .or(server.map(|server| server.spec().request_timeout))
            .unwrap_or(self.limits.default_timeout)
            .get()
    }

    fn convert(
        &self,
        passage: &mut Passage,
        tool: &CatalogTool,
        compiled: &Compiled,
        raw: Raw,
    ) -> Result<Reply, CallError> {
        let failed = |code, stage, message: String| {
            CallError::new(code, stage, message).with_outcome(Outcome::Finished)
        };
        let reply = Reply::convert(raw)
            .map_err(|error| failed(ErrorCode::InvalidOutput, Stage::Convert, error.to_string()))?;
        passage.passed(Stage::Convert, reply.unfinished.then(|| "unfinished".to_owned()));
        passage.reply = Some(reply.raw.clone());
        if reply.unfinished {
            return Ok(reply);
        }
        if reply.is_error {
            let text =
                reply.first_text().unwrap_or_else(|| "the tool failed and does not say why".to_owned());
            return Err(failed(ErrorCode::ToolExecutionError, Stage::Invoke, quoted(&text)));
        }
        let Some(schema) = &compiled.output else { return Ok(reply) };
        let checked = if reply.structured {
            schema.check(&reply.data.parse().unwrap_or_default()).map_err(|misfit| misfit.to_string())
        } else {
            Err("there is no structured content".to_owned())
        };
        passage.fit = match checked {
            Ok(()) => Fit::Checked,
            Err(why) if tool.strict_output => {
                return Err(failed(ErrorCode::InvalidOutput, Stage::ValidateOutput, why));
            }
            Err(why) => Fit::Misfit(why),
        };
        let note = matches!(passage.fit, Fit::Misfit(_)).then(|| "misfit".to_owned());
        passage.passed(Stage::ValidateOutput, note);
        Ok(reply)
    }
}

/// One that a caller may not know of reads like one that is not there.
fn unknown(name: &str) -> CallError {
    // It is the same whether the tool is there or not.
    let hint = match builtins::key(name) {
        Some(key) => {
            format!("`{key}` in toolgate.yaml brings it, and a caller needs `tools:{name}` to use it")
        }
        None => "`toolgate tools list` shows them all".to_owned(),
    };
    CallError::new(ErrorCode::ToolNotFound, Stage::Resolve, format!("there is no tool `{name}`")).hint(hint)
}

fn refused(tool: &CatalogTool, denied: &Denied) -> CallError {
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
        error = error.because(failed.clone());
    }
    error
}

/// What decided against a call: rules, or else what the caller was not given.
fn denial(denied: Denied) -> Denial {
    let rules = match denied.failed {
        Some(_) => vec!["(failed)".to_owned()],
        None if denied.forbidden_by.is_empty() => vec!["permissions".to_owned()],
        None => denied.forbidden_by,
    };
    Denial { missing: denied.missing, rules }
}

fn no_slot(no: &NoSlot) -> CallError {
    let (code, retry) = match no {
        NoSlot::Full => (ErrorCode::Overloaded, Some(Duration::from_secs(1))),
        NoSlot::TimedOut => (ErrorCode::Overloaded, None),
    };
    let mut error = CallError::new(code, Stage::Slots, no.to_string());
    error.retry_after = retry;
    error
}

#[cfg(test)]
mod tests;
