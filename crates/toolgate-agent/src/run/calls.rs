//! Executes the calls of a turn in the order of the model; repeatable calls that follow each other run in parallel.
//!
//! Invariant: a call that is not repeatable runs alone, after its intent is synced to disk; every call of a turn has
//! exactly one output, in the order of the calls.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use tokio::time::Instant;
use toolgate_mcp::Forwarded;
use toolgate_runtime::code_mode::{Program, RUN_CODE};
use toolgate_runtime::results::READ_RESULT;
use toolgate_runtime::{CallOrigin, CatalogTool, Operation, RawJson, Responder, Runtime, TraceContext};
use toolgate_types::CallerId;
use toolgate_types::agent::AgentConfig;
use toolgate_types::call::ResultStatus;
use toolgate_types::tool::RiskLevel;

use super::{
    EndReason, EventSink, Executor, MAX_REFUSED_TURNS, Run, RunEvent, TurnOutcome, budget_error, elapsed_ms,
    journal_failed,
};
use crate::content;
use crate::journal::{JournalEntry, parts_text};
use crate::model::{CallArguments, Message, Model, Part, ToolCall, ToolOutput};
use crate::server_requests::{self, AnswerContext, RunClient, SideUsage};
use crate::toolbox::is_agent_tool;

/// Bytes of a page of a stored result that are left for the note about the next one.
const PAGE_MARGIN: usize = 512;

/// Effects of a call, known before it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Effects {
    /// False if the call is known to be read-only.
    pub(super) writes: bool,
    /// True if the call may run beside others, and may be made again.
    pub(super) repeatable: bool,
}

/// Outcome of one call of a turn.
struct ToolCallOutcome {
    output: ToolOutput,
    took_ms: f64,
    correlation_id: Option<String>,
    found: Vec<String>,
    /// Calls that a program made.
    program: ProgramCalls,
    /// Error of writing the outcome to the journal.
    journal_error: Option<std::io::Error>,
}

impl Run<'_> {
    /// Executes the calls of a turn. The results go to the model in the next turn.
    pub(super) async fn execute_calls(
        &mut self,
        calls: Vec<ToolCall>,
        refused_turns: &mut u32,
        on_event: EventSink<'_>,
    ) -> TurnOutcome {
        // A resumed run may already have some of the outputs.
        let mut outputs = std::mem::take(&mut self.known_outputs);
        let is_open = |call: &&ToolCall| outputs.iter().all(|output| output.id != call.id);
        let open: Vec<ToolCall> = calls.iter().filter(is_open).cloned().collect();
        let mut refused = 0;
        let mut rest = open.as_slice();
        while let Some(first) = rest.first() {
            let effects = self.effects(first);
            let beside = |call: &&ToolCall| effects.repeatable && self.effects(call).repeatable;
            let together = 1 + rest[1..].iter().take_while(beside).count();
            let (batch, others) = rest.split_at(together);
            rest = others;
            let (run, mut rejected) = self.split_by_budget(batch);
            refused += rejected.len();
            if let Err(error) = self.write_intents(&run) {
                return journal_failed(&error);
            }
            let first_number = self.call_count + 1;
            self.call_count += run.len();
            let calls_made =
                run.iter().enumerate().map(|(at, call)| self.execute_call(call, first_number + at, on_event));
            let mut outcomes = join_all(calls_made).await;
            rejected.iter_mut().for_each(|outcome| self.write_outcome(outcome));
            outcomes.append(&mut rejected);
            for outcome in &outcomes {
                if let Some(error) = &outcome.journal_error {
                    return journal_failed(error);
                }
                self.found_tools.extend(outcome.found.iter().cloned());
                self.count_program(outcome.program.calls, outcome.program.writes);
            }
            outputs.extend(outcomes.into_iter().map(|outcome| outcome.output));
        }
        let all_refused = refused == calls.len();
        self.messages.push(Message::Tools { results: sort_outputs(&calls, outputs) });
        *refused_turns = if all_refused { *refused_turns + 1 } else { 0 };
        if *refused_turns >= MAX_REFUSED_TURNS {
            let budgets = &self.agent.config.budgets;
            let calls = self.spent.calls >= budgets.calls;
            let (what, most) = if calls { ("calls", budgets.calls) } else { ("writes", budgets.writes) };
            return TurnOutcome::End(EndReason::Budget, budget_error(what, &most.to_string()));
        }
        TurnOutcome::Next
    }

    /// Returns the effects of a call according to the catalog. An unknown tool is assumed to write.
    pub(super) fn effects(&self, call: &ToolCall) -> Effects {
        let Executor::Runtime(runtime) = &self.agent.executor else {
            return Effects { writes: false, repeatable: true };
        };
        if self.is_program(runtime, call) {
            // Its calls count, not the program.
            return Effects { writes: false, repeatable: false };
        }
        if is_agent_tool(&call.name) || matches!(call.arguments, CallArguments::Unusable(_)) {
            return Effects { writes: false, repeatable: true };
        }
        let catalog = runtime.catalog();
        let Some(tool) = catalog.resolve(&call.name) else {
            return Effects { writes: true, repeatable: false };
        };
        let reads = tool.contract.risk == RiskLevel::Low;
        Effects { writes: !reads, repeatable: tool.contract.idempotent }
    }

    /// Splits a batch into the calls that the budgets allow, and error outcomes for the others.
    fn split_by_budget(&mut self, batch: &[ToolCall]) -> (Vec<ToolCall>, Vec<ToolCallOutcome>) {
        let budgets = self.agent.config.budgets;
        let (mut run, mut rejected) = (Vec::new(), Vec::new());
        for call in batch {
            let writes = self.effects(call).writes;
            let over = if self.spent.calls >= budgets.calls {
                Some(("calls", budgets.calls))
            } else if writes && self.spent.writes >= budgets.writes {
                Some(("calls that change something", budgets.writes))
            } else {
                None
            };
            if let Some((what, most)) = over {
                let text = format!(
                    "error: this call was not made: the budget of {most} {what} is used up; answer with the results you have"
                );
                rejected.push(ToolCallOutcome::failed(call, text));
                continue;
            }
            for spent in [&mut self.spent, &mut self.total] {
                spent.calls += 1;
                spent.writes += u32::from(writes);
            }
            run.push(call.clone());
        }
        (run, rejected)
    }

    /// Writes the intents of calls to the journal, synced to disk if a call is not repeatable.
    fn write_intents(&mut self, calls: &[ToolCall]) -> std::io::Result<()> {
        let all_effects: Vec<_> = calls.iter().map(|call| (call, self.effects(call))).collect();
        let intent = |(call, effects): &(&ToolCall, Effects)| JournalEntry::Intent {
            id: call.id.clone(),
            repeatable: effects.repeatable,
            writes: effects.writes,
        };
        let entries: Vec<_> = all_effects.iter().map(intent).collect();
        self.journal.append(&entries)?;
        if all_effects.iter().any(|(_, effects)| !effects.repeatable) {
            self.journal.sync()?;
        }
        Ok(())
    }

    /// Writes the outcome of a call to the journal.
    fn write_outcome(&self, outcome: &mut ToolCallOutcome) {
        let (output, took_ms) = (outcome.output.clone(), outcome.took_ms);
        let (tainted, correlation_id) = (self.is_tainted(), outcome.correlation_id.clone());
        let mut entries = vec![JournalEntry::Result { output, took_ms, tainted, correlation_id }];
        if !outcome.found.is_empty() {
            entries.push(JournalEntry::ToolsFound { tools: outcome.found.clone() });
        }
        let ProgramCalls { calls, writes } = outcome.program;
        if calls > 0 {
            entries.push(JournalEntry::ProgramCalls { calls, writes });
        }
        outcome.journal_error = self.journal.append(&entries).err();
    }

    /// Makes one call and reports its events.
    async fn execute_call(&self, call: &ToolCall, number: usize, on_event: EventSink<'_>) -> ToolCallOutcome {
        let (id, tool) = (call.id.clone(), call.name.clone());
        let arguments = Json::Object(call.arguments.to_object());
        on_event(RunEvent::Call { number, id: id.clone(), tool: tool.clone(), arguments: arguments.clone() });
        let began = Instant::now();
        let mut outcome = match (&call.arguments, &self.agent.executor) {
            (_, Executor::Recording(recording)) => {
                let (output, took_ms) = recording.output(&call.id, &call.name);
                ToolCallOutcome {
                    output,
                    took_ms,
                    correlation_id: None,
                    found: Vec::new(),
                    program: ProgramCalls::default(),
                    journal_error: None,
                }
            }
            (CallArguments::Unusable(why), _) => {
                let text = format!("error invalid_arguments: {why}; send one JSON object");
                ToolCallOutcome::failed(call, text)
            }
            (CallArguments::Object(_), Executor::Runtime(runtime)) if self.is_program(runtime, call) => {
                self.run_program(runtime, call, &arguments).await
            }
            (CallArguments::Object(_), Executor::Runtime(runtime))
                if self.agent.toolbox(runtime, &self.caller, &self.lists).runs_itself(&call.name) =>
            {
                self.run_agent_tool(runtime, call, &arguments).await
            }
            (CallArguments::Object(_), Executor::Runtime(runtime)) => {
                self.run_operation(runtime, call, &arguments).await
            }
        };
        if matches!(self.agent.executor, Executor::Runtime(_)) {
            outcome.took_ms = elapsed_ms(began);
        }
        self.write_outcome(&mut outcome);
        let text = parts_text(&outcome.output.parts);
        let (failed, took_ms) = (outcome.output.failed, outcome.took_ms);
        let correlation_id = outcome.correlation_id.clone();
        on_event(RunEvent::Result { number, id, tool, failed, text, took_ms, correlation_id });
        outcome
    }

    async fn run_agent_tool(
        &self,
        runtime: &Arc<Runtime>,
        call: &ToolCall,
        arguments: &Json,
    ) -> ToolCallOutcome {
        let result = self.agent_tool_context(runtime).run(&call.name, arguments).await;
        let (id, name) = (call.id.clone(), call.name.clone());
        let output = ToolOutput { id, name, parts: result.parts, failed: result.failed };
        ToolCallOutcome {
            output,
            took_ms: 0.0,
            correlation_id: None,
            found: result.found,
            program: ProgramCalls::default(),
            journal_error: None,
        }
    }

    async fn run_operation(&self, runtime: &Runtime, call: &ToolCall, arguments: &Json) -> ToolCallOutcome {
        if !self.agent.toolbox(runtime, &self.caller, &self.lists).allows(&call.name) {
            let text = format!("error tool_not_found: no such tool: `{}`", call.name);
            return ToolCallOutcome::failed(call, text);
        }
        let trace = TraceContext::generate();
        let correlation_id = trace.correlation_id().to_owned();
        let tool = runtime.catalog().resolve(&call.name).cloned();
        let origin = CallOrigin {
            forwarded: tool.map_or_else(Forwarded::default, |tool| self.clients().forwarded(runtime, &tool)),
            agent_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            max_inline: Some(self.model.max_result_bytes()),
            ..self.origin()
        };
        let mut arguments = Cow::Borrowed(arguments);
        let most = self.model.max_result_bytes().saturating_sub(PAGE_MARGIN).max(1);
        if call.name == READ_RESULT && arguments["length"].as_u64().is_some_and(|length| length > most as u64)
        {
            // A longer page would be truncated, and the next one would begin after the part that is missing.
            arguments.to_mut()["length"] = most.into();
        }
        let operation = Operation::tool(call.name.clone(), RawJson::from_value(&arguments));
        let operation = operation.with_trace(trace).with_origin(origin);
        let called = runtime.execute_boxed(&self.caller, operation).await;
        let hints = runtime.agent_hints(&self.caller, &called);
        let parts = content::outcome_parts(&called, &hints, self.model.max_result_bytes());
        let failed = called.result.status == ResultStatus::Error;
        let output = ToolOutput { id: call.id.clone(), name: call.name.clone(), parts, failed };
        ToolCallOutcome {
            output,
            took_ms: 0.0,
            correlation_id: Some(correlation_id),
            found: Vec::new(),
            program: ProgramCalls::default(),
            journal_error: None,
        }
    }
}

impl Run<'_> {
    fn is_program(&self, runtime: &Runtime, call: &ToolCall) -> bool {
        call.name == RUN_CODE && self.agent.toolbox(runtime, &self.caller, &self.lists).runs_programs()
    }

    /// Counts the calls of a program against the budgets.
    pub(super) fn count_program(&mut self, calls: u32, writes: u32) {
        for spent in [&mut self.spent, &mut self.total] {
            spent.calls += calls;
            spent.writes += writes;
        }
    }

    /// Runs a program of the model. Its calls are operations of the run.
    async fn run_program(
        &self,
        runtime: &Arc<Runtime>,
        call: &ToolCall,
        arguments: &Json,
    ) -> ToolCallOutcome {
        let functions = self.agent.toolbox(runtime, &self.caller, &self.lists).functions();
        let trace = TraceContext::generate();
        let correlation_id = trace.correlation_id().to_owned();
        let made = Arc::new(Mutex::new(ProgramCalls::default()));
        let (budgets, spent) = (self.agent.config.budgets, self.spent);
        let counts = Arc::clone(&made);
        let gate = move |tool: &CatalogTool| {
            let (mut counts, writes) = (counts.lock(), tool.contract.risk != RiskLevel::Low);
            let over = if spent.calls + counts.calls >= budgets.calls {
                Some(("calls", budgets.calls))
            } else if writes && spent.writes + counts.writes >= budgets.writes {
                Some(("calls that change something", budgets.writes))
            } else {
                None
            };
            if let Some((what, most)) = over {
                return Err(format!("the budget of {most} {what} is used up"));
            }
            counts.calls += 1;
            counts.writes += u32::from(writes);
            Ok(())
        };
        let (origin, clients, shared) = (self.origin(), self.clients(), Arc::clone(runtime));
        let origin_of = move |tool: &CatalogTool| CallOrigin {
            forwarded: clients.forwarded(&shared, tool),
            agent_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            ..origin.clone()
        };
        let program = Program {
            runtime: Arc::clone(runtime),
            caller: self.caller.clone(),
            functions,
            origin: Arc::new(origin_of),
            gate: Arc::new(gate),
            trace,
        };
        let most = self.model.max_result_bytes();
        let origin = CallOrigin { max_inline: Some(most), ..self.origin() };
        let Some(operation) = program.into_operation(RawJson::from_value(arguments), origin) else {
            return ToolCallOutcome::failed(call, "error tool_not_found: programs cannot be run".to_owned());
        };
        let called = runtime.execute_boxed(&self.caller, operation).await;
        let hints = runtime.agent_hints(&self.caller, &called);
        let parts = content::outcome_parts(&called, &hints, most);
        let failed = called.result.status == ResultStatus::Error;
        let output = ToolOutput { id: call.id.clone(), name: call.name.clone(), parts, failed };
        let program = *made.lock();
        let correlation_id = Some(correlation_id);
        ToolCallOutcome {
            output,
            took_ms: 0.0,
            correlation_id,
            found: Vec::new(),
            program,
            journal_error: None,
        }
    }

    /// Creates the clients of the calls of this turn.
    fn clients(&self) -> CallClients {
        CallClients {
            config: self.agent.config.clone(),
            capabilities: server_requests::client_capabilities(&self.agent.config),
            caller: self.caller.id.clone(),
            run: self.id.clone(),
            identity: self.identity,
            model: Arc::clone(&self.model),
            responder: Arc::clone(&self.agent.responder),
            side_usage: Arc::clone(&self.side_usage),
            budget_left: self.remaining_budget(),
        }
    }
}

/// Calls that a program made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ProgramCalls {
    calls: u32,
    /// Those that are not known to be read-only.
    writes: u32,
}

/// Offers a run as the client of its calls, if servers may send it requests.
struct CallClients {
    config: AgentConfig,
    capabilities: Json,
    caller: CallerId,
    run: String,
    identity: u64,
    model: Arc<dyn Model>,
    responder: Arc<dyn Responder>,
    side_usage: Arc<SideUsage>,
    budget_left: (u64, Option<f64>),
}

impl CallClients {
    fn forwarded(&self, runtime: &Runtime, tool: &CatalogTool) -> Forwarded {
        // Tools without a server send no requests; and if the config denies all requests, there is nothing to offer.
        let (Some(server), false) = (&tool.server, self.capabilities == json!({})) else {
            return Forwarded::default();
        };
        let asked = AnswerContext {
            log_limit: runtime.log_limit(server.as_str()),
            server: server.to_string(),
            tool: tool.name.clone(),
            caller: self.caller.clone(),
            run: self.run.clone(),
            identity: self.identity,
            capabilities: self.capabilities.clone(),
            sampling: self.config.sampling,
            elicitation: self.config.elicitation,
            model: Arc::clone(&self.model),
            responder: Arc::clone(&self.responder),
            side_usage: Arc::clone(&self.side_usage),
            budget_left: self.budget_left,
            user_wait: Arc::default(),
        };
        Forwarded { client: Some(Arc::new(RunClient(Arc::new(asked)))), ..Forwarded::default() }
    }
}

impl ToolCallOutcome {
    fn failed(call: &ToolCall, text: String) -> Self {
        let (id, name) = (call.id.clone(), call.name.clone());
        let output = ToolOutput { id, name, parts: vec![Part::Text { text }], failed: true };
        Self {
            output,
            took_ms: 0.0,
            correlation_id: None,
            found: Vec::new(),
            program: ProgramCalls::default(),
            journal_error: None,
        }
    }
}

/// Sorts outputs in the order of their calls.
pub(super) fn sort_outputs(calls: &[ToolCall], mut outputs: Vec<ToolOutput>) -> Vec<ToolOutput> {
    let place = |output: &ToolOutput| calls.iter().position(|call| call.id == output.id);
    outputs.sort_by_key(place);
    outputs
}
