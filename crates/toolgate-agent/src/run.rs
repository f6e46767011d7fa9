//! The agent loop: the model replies, its tool calls are executed, the results go back to the model, until it answers.
//!
//! [`Agent::begin`] and [`Agent::resume`] return a [`Run`]; [`Run::ask`] runs the loop. Calls are made in `calls`;
//! limits are in [`RunBudgets`](toolgate_types::agent::RunBudgets). Invariant: a run always ends in exactly one
//! [`RunOutcome`]; its budgets bound it; dropping the future stops the run and everything it started.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};
use toolgate_runtime::questions::QuestionQueue;
use toolgate_runtime::{
    CallApprover, CallOrigin, ListFilter, ListViewer, Responder, Runtime, SessionId, TraceContext,
};
use toolgate_types::agent::{AgentConfig, AgentExposure};
use toolgate_types::{Caller, HumanDuration};

use crate::event::{EndReason, RunEvent, RunOutcome, RunUsage};
use crate::journal::{Journal, JournalEntry, RunError, RunStore, parts_text};
use crate::model::{Message, Model, ModelReply, ModelRequest, Part, StopReason, StreamEvent, TokenUsage};
use crate::recording::Recording;
use crate::server_requests::{self, SideUsage};
use crate::skills::SkillSet;
use crate::toolbox::{AgentToolContext, Toolbox};

mod calls;
mod instructions;
mod resume;

/// Consecutive turns in which every call was over budget, before the run ends.
const MAX_REFUSED_TURNS: u32 = 2;

/// Longest wait of a turn for tool lists that servers announced as changed.
const CATALOG_WAIT: Duration = Duration::from_secs(2);

/// Executes the tool calls of an agent.
pub enum Executor {
    /// Calls the tools of a project.
    Runtime(Arc<Runtime>),
    /// Replays the results of a recorded run.
    Recording(Arc<Recording>),
}

/// An agent: a model, its instructions, and its tools.
pub struct Agent {
    pub executor: Executor,
    pub model: Arc<dyn Model>,
    /// `agent` section of the config.
    pub config: AgentConfig,
    /// Name of the agent, if it has one.
    pub name: Option<String>,
    pub skills: SkillSet,
    /// Journals of all runs.
    pub runs: RunStore,
    /// Asks a person the questions of servers.
    pub responder: Arc<dyn Responder>,
    /// The person at the terminal of the run. Approves its calls and answers its questions, in place of the
    /// responder of the runtime and of the tool in the catalog.
    pub person: Option<RunPerson>,
    /// File to record the run to, for a later replay.
    pub record: Option<PathBuf>,
}

/// The person at the terminal of a run.
#[derive(Clone)]
pub struct RunPerson {
    pub(crate) approver: CallApprover,
    pub(crate) questions: Arc<QuestionQueue>,
}

impl RunPerson {
    /// `timeout` is the time to answer a question.
    pub fn new(responder: Arc<dyn Responder>, timeout: HumanDuration) -> Self {
        let questions = QuestionQueue::new(timeout, false, vec![Arc::clone(&responder)]);
        Self { approver: CallApprover(responder), questions }
    }

    /// The responder for questions of servers.
    pub fn responder(&self) -> Arc<dyn Responder> {
        Arc::clone(&self.questions) as Arc<dyn Responder>
    }
}

/// Receives the events of a run.
pub type EventSink<'a> = &'a (dyn Fn(RunEvent) + Send + Sync);

/// One conversation.
pub struct Run<'a> {
    agent: &'a Agent,
    /// The model of the next turns, at first that of the agent.
    model: Arc<dyn Model>,
    caller: Caller,
    id: String,
    /// Identifies the run to servers that send requests to it.
    identity: u64,
    /// Tokens used for requests of servers, not yet counted in a turn.
    side_usage: Arc<SideUsage>,
    journal: Journal,
    instructions: Option<String>,
    messages: Vec<Message>,
    /// Tools found by `search_tools`, offered in every later turn.
    found_tools: Vec<String>,
    /// Calls of the whole run; the source of call numbers.
    call_count: usize,
    /// Usage since the last message of the user.
    spent: RunUsage,
    /// Usage of the whole run.
    total: RunUsage,
    resumed: bool,
    /// Calls of the last turn that were started: id, and true if the call may be repeated.
    pending: Vec<(String, bool)>,
    /// Outputs of the last turn that a resumed run already has.
    known_outputs: Vec<crate::model::ToolOutput>,
    /// Lists that servers have for the caller.
    lists: ListFilter,
}

/// A message of the user that was removed, with the replies to it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UndoneTurn {
    pub text: String,
    /// Calls with results that the model does not see any more.
    pub calls: usize,
}

/// The session of its calls ends with the run: its connections, and the answers to approvals that hold for it.
impl Drop for Run<'_> {
    fn drop(&mut self) {
        if let Executor::Runtime(runtime) = &self.agent.executor {
            runtime.end_session(&self.caller.id, &self.id);
        }
    }
}

/// A run with an open journal whose work has not started.
pub struct RunHandle {
    caller: Caller,
    id: String,
    journal: Journal,
    /// Journal entries of a resumed run.
    entries: Vec<JournalEntry>,
}

impl RunHandle {
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// Tells the loop to continue, or to end with a reason and perhaps an error with a hint.
enum TurnOutcome {
    Next,
    End(EndReason, Option<(String, Option<String>)>),
}

impl Agent {
    /// Starts a new run as the given caller.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn begin(&self, caller: Caller) -> Result<Run<'_>, RunError> {
        self.start(self.create_run(caller)?)
    }

    /// Creates the journal of a new run without starting its work.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn create_run(&self, caller: Caller) -> Result<RunHandle, RunError> {
        let id = TraceContext::generate().correlation_id().to_owned();
        let journal = match &self.executor {
            Executor::Runtime(_) => self.runs.create(&id, self.record.as_deref())?,
            Executor::Recording(_) => Journal::disabled(self.runs.shared_redactor()),
        };
        let (model, caller_id) = (self.model.name().to_owned(), caller.id.to_string());
        journal.append(&[JournalEntry::Started {
            run: id.clone(),
            at: timestamp(),
            caller: caller_id,
            model,
        }])?;
        Ok(RunHandle { caller, id, journal, entries: Vec::new() })
    }

    fn toolbox<'a>(&'a self, runtime: &'a Runtime, caller: &'a Caller, lists: &'a ListFilter) -> Toolbox<'a> {
        let questions = self.person.as_ref().map(|person| &person.questions);
        let (allowed, exposure) = (&self.config.tools, self.exposure());
        Toolbox { runtime, caller, lists, allowed, exposure, skills: &self.skills, questions }
    }

    /// Presentation of the tools. The planner calls tools, it writes no programs.
    fn exposure(&self) -> AgentExposure {
        if self.config.model.is_some() { self.config.exposure } else { AgentExposure::Auto }
    }
}

impl<'a> Run<'a> {
    fn new(agent: &'a Agent, caller: Caller, id: String, journal: Journal) -> Self {
        Self {
            agent,
            model: Arc::clone(&agent.model),
            caller,
            id,
            identity: server_requests::next_identity(),
            side_usage: Arc::default(),
            journal,
            instructions: None,
            messages: Vec::new(),
            found_tools: Vec::new(),
            call_count: 0,
            spent: RunUsage::default(),
            total: RunUsage::default(),
            resumed: false,
            pending: Vec::new(),
            known_outputs: Vec::new(),
            lists: ListFilter::default(),
        }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// Usage of the whole run.
    pub fn total(&self) -> RunUsage {
        self.total
    }

    /// The model of the next turns.
    pub fn model(&self) -> &dyn Model {
        &*self.model
    }

    /// Changes the model of the next turns.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn set_model(&mut self, model: Arc<dyn Model>) -> std::io::Result<()> {
        self.journal.append(&[JournalEntry::ModelChanged { model: model.name().to_owned() }])?;
        self.model = model;
        Ok(())
    }

    /// Removes the last message of the user and everything after it from the conversation. `None` if there is none. The
    /// effects of calls stay.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn undo(&mut self) -> std::io::Result<Option<UndoneTurn>> {
        if !self.messages.iter().any(|message| matches!(message, Message::User { .. })) {
            return Ok(None);
        }
        self.journal.append(&[JournalEntry::Undone {}])?;
        Ok(self.remove_last_message())
    }

    fn remove_last_message(&mut self) -> Option<UndoneTurn> {
        let at = self.messages.iter().rposition(|message| matches!(message, Message::User { .. }))?;
        self.pending.clear();
        self.known_outputs.clear();
        let mut undone = UndoneTurn::default();
        for message in self.messages.drain(at..) {
            match message {
                Message::User { parts } => undone.text = parts_text(&parts),
                Message::Tools { results } => undone.calls += results.len(),
                Message::Assistant { .. } => {}
            }
        }
        Some(undone)
    }

    /// Messages of the user and answers of the model so far, oldest first.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Names of the tools offered to the model.
    pub fn tools(&self) -> Vec<String> {
        self.offered_tools().into_iter().map(|tool| tool.name).collect()
    }

    /// Adds a message of the user and runs the loop until there is an answer.
    pub fn ask<'b>(&'b mut self, parts: Vec<Part>, on_event: EventSink<'b>) -> BoxFuture<'b, RunOutcome> {
        Box::pin(async move {
            self.spent = RunUsage::default();
            let entry = JournalEntry::UserMessage { parts: parts.clone() };
            self.messages.push(Message::User { parts });
            if let Err(error) = self.journal.append(&[entry]) {
                let (reason, why) = journal_error(&error);
                return self.finish(reason, why, Instant::now(), on_event);
            }
            self.run_loop(on_event).await
        })
    }

    /// Runs the loop until there is an answer.
    pub fn run_loop<'b>(&'b mut self, on_event: EventSink<'b>) -> BoxFuture<'b, RunOutcome> {
        Box::pin(async move {
            let began = Instant::now();
            let deadline = began + self.agent.config.budgets.time.get();
            if let Executor::Runtime(runtime) = &self.agent.executor {
                let viewer = ListViewer { caller: &self.caller, session: None, client: None };
                self.lists = Box::pin(runtime.list_filter(viewer)).await;
            }
            if self.instructions.is_none() {
                self.instructions = Some(self.compose_instructions().await);
            }
            let tools = self.offered_tools().len();
            let (mut refused_turns, mut end) = (0, None);
            if let Err(error) = self.journal.append(&[JournalEntry::ToolsOffered { tools }]) {
                end = Some(journal_error(&error));
            }
            on_event(RunEvent::Started {
                run: self.id.clone(),
                model: self.model.name().to_owned(),
                caller: self.caller.id.to_string(),
                tools,
                resumed: self.resumed,
            });
            while end.is_none() {
                let turn = timeout_at(deadline, self.run_turn(&mut refused_turns, on_event)).await;
                end = match turn {
                    Ok(TurnOutcome::Next) => None,
                    Ok(TurnOutcome::End(reason, why)) => Some((reason, why)),
                    Err(_) => {
                        let most = self.agent.config.budgets.time;
                        Some((EndReason::Budget, budget_error("time", &most.to_string())))
                    }
                };
            }
            let (reason, why) = end.expect("the loop ends only with a reason");
            self.finish(reason, why, began, on_event)
        })
    }

    /// Ends the run after the user stopped it. The conversation so far is written.
    pub fn interrupt(&mut self, began: Instant, on_event: EventSink<'_>) -> RunOutcome {
        self.cancel_open_calls();
        self.finish(EndReason::Interrupted, None, began, on_event)
    }

    /// Answers the open calls of a stopped run with an error. Every provider requires a result for every call.
    fn cancel_open_calls(&mut self) {
        let Some(Message::Assistant { calls, .. }) = self.messages.last() else { return };
        if calls.is_empty() {
            return;
        }
        let stopped = |call: &crate::model::ToolCall| crate::model::ToolOutput {
            id: call.id.clone(),
            name: call.name.clone(),
            parts: vec![Part::Text { text: instructions::STOPPED.to_owned() }],
            failed: true,
        };
        let results: Vec<_> = calls.iter().map(stopped).collect();
        let entry = |output: &crate::model::ToolOutput| JournalEntry::Result {
            output: output.clone(),
            took_ms: 0.0,
            tainted: self.is_tainted(),
            correlation_id: None,
        };
        let entries: Vec<_> = results.iter().map(entry).collect();
        let _ = self.journal.append(&entries);
        self.messages.push(Message::Tools { results });
    }

    async fn run_turn(&mut self, refused_turns: &mut u32, on_event: EventSink<'_>) -> TurnOutcome {
        // A resumed run may have open calls, which come first.
        if let Some(Message::Assistant { calls, .. }) = self.messages.last()
            && !calls.is_empty()
        {
            let calls = calls.clone();
            return self.execute_calls(calls, refused_turns, on_event).await;
        }
        if let Some(why) = self.exhausted_budget() {
            return TurnOutcome::End(EndReason::Budget, why);
        }
        if let Executor::Runtime(runtime) = &self.agent.executor {
            runtime.wait_for_refresh(CATALOG_WAIT).await;
        }
        let request = ModelRequest {
            instructions: self.instructions.clone().unwrap_or_default(),
            messages: self.messages.clone(),
            tools: self.offered_tools(),
            ..ModelRequest::default()
        };
        let began = Instant::now();
        let mut stream = |event: StreamEvent| match event {
            StreamEvent::Text(text) => on_event(RunEvent::Text { text }),
            StreamEvent::Retry(why) => on_event(RunEvent::Retrying { why }),
            StreamEvent::Call(_) => {}
        };
        let reply = match self.model.reply(&request, &mut stream).await {
            Ok(reply) => reply,
            Err(error) => {
                return TurnOutcome::End(EndReason::ModelFailed, Some((error.to_string(), error.hint)));
            }
        };
        self.handle_reply(reply, elapsed_ms(began), refused_turns, on_event).await
    }

    async fn handle_reply(
        &mut self,
        reply: ModelReply,
        took_ms: f64,
        refused_turns: &mut u32,
        on_event: EventSink<'_>,
    ) -> TurnOutcome {
        let ModelReply { text, calls, stop, usage } = reply;
        let usage = usage.plus(self.side_usage.take());
        let cost = self.add_usage(usage);
        let entry = JournalEntry::Reply {
            text: text.clone(),
            calls: calls.clone(),
            stop: stop.clone(),
            usage,
            cost,
            took_ms,
        };
        self.messages.push(Message::Assistant { text: text.clone(), calls: calls.clone() });
        // The entry is written before the event is sent, so an observer can rely on the journal.
        let written = self.journal.append(&[entry]);
        on_event(RunEvent::Replied { text: text.clone(), usage, cost, took_ms });
        if let Err(error) = written {
            return journal_failed(&error);
        }
        if !calls.is_empty() {
            return self.execute_calls(calls, refused_turns, on_event).await;
        }
        match stop {
            StopReason::Refused(why) => {
                let why = if why.is_empty() { "the model refused".to_owned() } else { why };
                TurnOutcome::End(EndReason::Refused, Some((why, None)))
            }
            StopReason::Length => {
                let hint = "raise `model.max_tokens`".to_owned();
                TurnOutcome::End(
                    EndReason::Truncated,
                    Some(("the answer was truncated".to_owned(), Some(hint))),
                )
            }
            StopReason::Unfinished => TurnOutcome::End(EndReason::NotDone, None),
            _ if text.trim().is_empty() => TurnOutcome::End(
                EndReason::Silent,
                Some(("the model returned no text and no calls".to_owned(), None)),
            ),
            _ => TurnOutcome::End(EndReason::Done, None),
        }
    }

    /// Adds the usage of a turn; returns its cost.
    fn add_usage(&mut self, usage: TokenUsage) -> Option<f64> {
        let cost = self.model.prices().map(|prices| usage.cost(prices));
        for spent in [&mut self.spent, &mut self.total] {
            spent.turns += 1;
            spent.usage = spent.usage.plus(usage);
            if let Some(cost) = cost {
                spent.cost = Some(spent.cost.unwrap_or(0.0) + cost);
            }
        }
        cost
    }

    /// Returns the tokens and the money left, with the usage for requests of servers deducted.
    fn remaining_budget(&self) -> (u64, Option<f64>) {
        let (budgets, side_usage) = (&self.agent.config.budgets, self.side_usage.uncounted());
        let tokens = budgets.tokens.saturating_sub(self.spent.usage.plus(side_usage).tokens());
        let cost = self.model.prices().map_or(0.0, |prices| side_usage.cost(prices));
        (tokens, budgets.cost.map(|most| most - cost - self.spent.cost.unwrap_or(0.0)))
    }

    /// Returns the reason to end the run if the budget of tokens or cost is used up.
    fn exhausted_budget(&self) -> Option<Option<(String, Option<String>)>> {
        let budgets = &self.agent.config.budgets;
        match (self.remaining_budget(), budgets.cost) {
            ((0, _), _) => Some(budget_error("tokens", &budgets.tokens.to_string())),
            ((_, Some(left)), Some(most)) if left <= 0.0 => Some(budget_error("cost", &most.to_string())),
            _ => None,
        }
    }

    fn finish(
        &mut self,
        reason: EndReason,
        why: Option<(String, Option<String>)>,
        began: Instant,
        on_event: EventSink<'_>,
    ) -> RunOutcome {
        let (error, hint) = why.map_or((None, None), |(error, hint)| (Some(error), hint));
        let took_ms = elapsed_ms(began);
        let entry = JournalEntry::Ended {
            at: timestamp(),
            reason,
            spent: self.spent,
            error: error.clone(),
            hint: hint.clone(),
            took_ms,
        };
        if self.journal.append(&[entry]).and_then(|()| self.journal.sync()).is_err() {
            on_event(RunEvent::Note {
                text: "the end of the run could not be written to the journal".to_owned(),
            });
        }
        let answer = match self.messages.last() {
            Some(Message::Assistant { text, .. }) => text.clone(),
            _ => String::new(),
        };
        let (run, spent) = (self.id.clone(), self.spent);
        let ended = RunOutcome { run, reason, answer, error, hint, spent, took_ms };
        on_event(RunEvent::Ended(ended.clone()));
        ended
    }

    /// Tools offered to the model in this turn.
    fn offered_tools(&self) -> Vec<crate::model::ToolSpec> {
        let Executor::Runtime(runtime) = &self.agent.executor else { return Vec::new() };
        let asked = self.messages.iter().rev().find_map(|message| match message {
            Message::User { parts } => Some(parts_text(parts)),
            _ => None,
        });
        let toolbox = self.agent.toolbox(runtime, &self.caller, &self.lists);
        toolbox.offered_tools(&asked.unwrap_or_default(), &self.found_tools, self.model.max_tools())
    }

    /// The run as the session of its operations.
    fn session(&self) -> SessionId {
        SessionId::Issued(self.id.clone())
    }

    /// Context of an agent tool.
    fn agent_tool_context(&self, runtime: &Arc<Runtime>) -> AgentToolContext {
        AgentToolContext {
            runtime: Arc::clone(runtime),
            caller: self.caller.clone(),
            allowed: self.agent.config.tools.clone(),
            exposure: self.agent.exposure(),
            skills: self.agent.skills.clone(),
            session: self.session(),
            person: self.agent.person.clone(),
            lists: self.lists.clone(),
        }
    }

    /// Origin of the operations of this run.
    fn origin(&self) -> CallOrigin {
        let approver = self.agent.person.as_ref().map(|person| person.approver.clone());
        CallOrigin { session: Some(self.session()), approver, ..CallOrigin::default() }
    }

    fn is_tainted(&self) -> bool {
        match &self.agent.executor {
            Executor::Runtime(runtime) => runtime.is_tainted(&self.caller.id, &self.session()),
            Executor::Recording(_) => false,
        }
    }
}

fn journal_failed(error: &std::io::Error) -> TurnOutcome {
    let (reason, why) = journal_error(error);
    TurnOutcome::End(reason, why)
}

fn journal_error(error: &std::io::Error) -> (EndReason, Option<(String, Option<String>)>) {
    (EndReason::JournalFailed, Some((format!("cannot write the journal of the run: {error}"), None)))
}

fn budget_error(what: &str, most: &str) -> Option<(String, Option<String>)> {
    let message = format!("budget used up: `budgets.{what}` is {most}");
    Some((message, Some(format!("raise `budgets.{what}`; continue with `toolgate run --resume ID`"))))
}

fn elapsed_ms(since: Instant) -> f64 {
    (since.elapsed().as_secs_f64() * 1e6).round() / 1e3
}

fn timestamp() -> String {
    format!("{:.3}", Timestamp::now())
}
