//! The loop: the model says what comes next, tools do it, the model hears what came of it, until it has an answer.
//!
//! [`Agent::begin`] and [`Agent::resume`] give a [`Run`]; [`Run::ask`] goes round the loop. How calls are made is in
//! `calls`, what a run may use in [`Budgets`](toolgate_types::agent::Budgets). Invariant: a run ends in one [`Ended`],
//! whatever happens; what it may use bounds it; whoever drops the future stops it, and everything it started.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};
use toolgate_runtime::desk::Desk;
use toolgate_runtime::{Runtime, Trace};
use toolgate_types::Caller;
use toolgate_types::agent::AgentRules;

use crate::answering::{self, Aside};
use crate::event::{Ended, Event, Reason, Spent};
use crate::journal::{Entry, Journal, RunError, Runs, words};
use crate::model::{Heard, Message, Model, Part, Reply, Request, Stop, Usage};
use crate::skills::Skills;
use crate::tape::Tape;
use crate::toolbox::Toolbox;

mod calls;
mod resume;
mod told;

/// How often in a row a model may want what no budget allows.
const MOST_IN_VAIN: u32 = 2;

/// How long a turn waits for lists that servers told to have changed.
const CATCH_UP: Duration = Duration::from_secs(2);

/// What does the work.
pub enum Hands {
    /// The tools of a project.
    Road(Arc<Runtime>),
    /// A record of a run.
    Recorded(Arc<Tape>),
}

/// An agent: a model, what it is told, and what it may use.
pub struct Agent {
    /// What does the work.
    pub hands: Hands,
    /// What says what to do.
    pub model: Arc<dyn Model>,
    /// How the project wants it.
    pub rules: AgentRules,
    /// Its name, where it has one.
    pub name: Option<String>,
    /// What it knows how to do.
    pub skills: Skills,
    /// Where runs are written down.
    pub runs: Runs,
    /// Where people are asked what servers want to know.
    pub desk: Option<Arc<Desk>>,
    /// Where runs are recorded beside, for whoever wants to play them again.
    pub record: Option<PathBuf>,
}

/// Who is told of what happens.
pub type Tell<'a> = &'a (dyn Fn(Event) + Send + Sync);

/// A run: one conversation.
pub struct Run<'a> {
    agent: &'a Agent,
    caller: Caller,
    id: String,
    /// By what servers know it that ask.
    identity: u64,
    /// What the model used for servers.
    aside: Arc<Aside>,
    journal: Journal,
    instructions: Option<String>,
    messages: Vec<Message>,
    /// Tools that were found on the way.
    found: Vec<String>,
    /// Calls of the whole run, for their numbers.
    numbered: usize,
    /// Since the person asked last.
    spent: Spent,
    /// Of the whole run.
    total: Spent,
    resumed: bool,
    /// Calls of the last turn that were begun, and whether each may be made again.
    pending: Vec<(String, bool)>,
    /// What is known already of the calls of the last turn, in a run that goes on.
    partial: Vec<crate::model::ToolOutput>,
}

/// A run with its journal, and nobody who works on it yet.
pub struct Seat {
    caller: Caller,
    id: String,
    journal: Journal,
    /// What is in the journal of one that goes on.
    before: Vec<Entry>,
}

impl Seat {
    /// The id of the run.
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// How a turn ends the loop.
enum Turn {
    Next,
    End(Reason, Option<(String, Option<String>)>),
}

impl Agent {
    /// A new run, as a caller.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn begin(&self, caller: Caller) -> Result<Run<'_>, RunError> {
        self.take(self.seat(caller)?)
    }

    /// The journal of a new run, which nobody works on yet.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn seat(&self, caller: Caller) -> Result<Seat, RunError> {
        let id = Trace::fresh().correlation_id().to_owned();
        let journal = match &self.hands {
            Hands::Road(_) => self.runs.create(&id, self.record.as_deref())?,
            Hands::Recorded(_) => Journal::none(self.runs.shared_redactor()),
        };
        let (model, caller_id) = (self.model.name().to_owned(), caller.id.to_string());
        journal.add(&[Entry::Begun { run: id.clone(), at: now(), caller: caller_id, model }])?;
        Ok(Seat { caller, id, journal, before: Vec::new() })
    }

    fn toolbox<'a>(&'a self, runtime: &'a Runtime, caller: &'a Caller) -> Toolbox<'a> {
        Toolbox { runtime, caller, allowed: &self.rules.tools, skills: &self.skills }
    }
}

impl<'a> Run<'a> {
    fn new(agent: &'a Agent, caller: Caller, id: String, journal: Journal) -> Self {
        Self {
            agent,
            caller,
            id,
            identity: answering::identity(),
            aside: Arc::default(),
            journal,
            instructions: None,
            messages: Vec::new(),
            found: Vec::new(),
            numbered: 0,
            spent: Spent::default(),
            total: Spent::default(),
            resumed: false,
            pending: Vec::new(),
            partial: Vec::new(),
        }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What all of it used.
    pub fn total(&self) -> Spent {
        self.total
    }

    /// The tools that the model sees, by their names.
    pub fn tools(&self) -> Vec<String> {
        self.shown().into_iter().map(|tool| tool.name).collect()
    }

    /// The person says something; goes round until there is an answer.
    pub async fn ask(&mut self, parts: Vec<Part>, tell: Tell<'_>) -> Ended {
        self.spent = Spent::default();
        let entry = Entry::Asked { parts: parts.clone() };
        self.messages.push(Message::User { parts });
        if let Err(error) = self.journal.add(&[entry]) {
            let (reason, why) = unwritten(&error);
            return self.end(reason, why, Instant::now(), tell);
        }
        self.go_on(tell).await
    }

    /// Goes round until there is an answer.
    pub async fn go_on(&mut self, tell: Tell<'_>) -> Ended {
        let began = Instant::now();
        let deadline = began + self.agent.rules.budgets.time.get();
        if self.instructions.is_none() {
            self.instructions = Some(self.compose().await);
        }
        let tools = self.shown().len();
        let (mut vain, mut end) = (0, None);
        if let Err(error) = self.journal.add(&[Entry::Shown { tools }]) {
            end = Some(unwritten(&error));
        }
        tell(Event::Begun {
            run: self.id.clone(),
            model: self.agent.model.name().to_owned(),
            caller: self.caller.id.to_string(),
            tools,
            resumed: self.resumed,
        });
        while end.is_none() {
            let turn = timeout_at(deadline, self.turn(&mut vain, tell)).await;
            end = match turn {
                Ok(Turn::Next) => None,
                Ok(Turn::End(reason, why)) => Some((reason, why)),
                Err(_) => {
                    let most = self.agent.rules.budgets.time;
                    Some((Reason::Budget, used_up("time", &most.to_string())))
                }
            };
        }
        let (reason, why) = end.expect("the loop ends with one");
        self.end(reason, why, began, tell)
    }

    /// Whoever asked has stopped it: what came before is kept.
    pub fn interrupted(&mut self, began: Instant, tell: Tell<'_>) -> Ended {
        self.settle();
        self.end(Reason::Interrupted, None, began, tell)
    }

    /// Calls that were not answered when the run was stopped are answered with that, as every model wants.
    fn settle(&mut self) {
        let Some(Message::Assistant { calls, .. }) = self.messages.last() else { return };
        if calls.is_empty() {
            return;
        }
        let stopped = |call: &crate::model::ToolCall| crate::model::ToolOutput {
            id: call.id.clone(),
            name: call.name.clone(),
            parts: vec![Part::Text { text: told::STOPPED.to_owned() }],
            failed: true,
        };
        let results: Vec<_> = calls.iter().map(stopped).collect();
        let entry = |output: &crate::model::ToolOutput| Entry::Result {
            output: output.clone(),
            took_ms: 0.0,
            tainted: self.is_tainted(),
            correlation_id: None,
        };
        let entries: Vec<_> = results.iter().map(entry).collect();
        let _ = self.journal.add(&entries);
        self.messages.push(Message::Tools { results });
    }

    async fn turn(&mut self, vain: &mut u32, tell: Tell<'_>) -> Turn {
        // Calls of a run that goes on come first.
        if let Some(Message::Assistant { calls, .. }) = self.messages.last()
            && !calls.is_empty()
        {
            let calls = calls.clone();
            return self.work(calls, vain, tell).await;
        }
        if let Some(why) = self.used_up() {
            return Turn::End(Reason::Budget, why);
        }
        if let Hands::Road(runtime) = &self.agent.hands {
            runtime.catch_up(CATCH_UP).await;
        }
        let request = Request {
            instructions: self.instructions.clone().unwrap_or_default(),
            messages: self.messages.clone(),
            tools: self.shown(),
        };
        let began = Instant::now();
        let mut heard = |heard: Heard| match heard {
            Heard::Text(text) => tell(Event::Text { text }),
            Heard::Again(why) => tell(Event::Again { why }),
            Heard::Call(_) => {}
        };
        let reply = match self.agent.model.reply(&request, &mut heard).await {
            Ok(reply) => reply,
            Err(error) => return Turn::End(Reason::ModelFailed, Some((error.to_string(), error.hint))),
        };
        self.said(reply, millis(began), vain, tell).await
    }

    async fn said(&mut self, reply: Reply, took_ms: f64, vain: &mut u32, tell: Tell<'_>) -> Turn {
        let Reply { text, calls, stop, usage } = reply;
        let usage = usage.plus(self.aside.take());
        let cost = self.count(usage);
        let entry = Entry::Said {
            text: text.clone(),
            calls: calls.clone(),
            stop: stop.clone(),
            usage,
            cost,
            took_ms,
        };
        self.messages.push(Message::Assistant { text: text.clone(), calls: calls.clone() });
        // Whoever hears of something finds it written down.
        let kept = self.journal.add(&[entry]);
        tell(Event::Said { text: text.clone(), usage, cost, took_ms });
        if let Err(error) = kept {
            return not_kept(&error);
        }
        if !calls.is_empty() {
            return self.work(calls, vain, tell).await;
        }
        match stop {
            Stop::Refused(why) => {
                let why = if why.is_empty() { "the model will not do this".to_owned() } else { why };
                Turn::End(Reason::Refused, Some((why, None)))
            }
            Stop::Length => {
                let hint = "`model.max_tokens` gives it more room".to_owned();
                Turn::End(Reason::CutOff, Some(("the answer was cut off".to_owned(), Some(hint))))
            }
            _ if text.trim().is_empty() => {
                Turn::End(Reason::Silent, Some(("the model said nothing".to_owned(), None)))
            }
            _ => Turn::End(Reason::Done, None),
        }
    }

    /// Counts what a turn used; returns what it costs.
    fn count(&mut self, usage: Usage) -> Option<f64> {
        let cost = self.agent.model.prices().map(|prices| usage.cost(prices));
        for spent in [&mut self.spent, &mut self.total] {
            spent.turns += 1;
            spent.usage = spent.usage.plus(usage);
            if let Some(cost) = cost {
                spent.cost = Some(spent.cost.unwrap_or(0.0) + cost);
            }
        }
        cost
    }

    /// What is left of tokens and money, with what servers had of the model.
    fn left(&self) -> (u64, Option<f64>) {
        let (budgets, aside) = (&self.agent.rules.budgets, self.aside.open());
        let tokens = budgets.tokens.saturating_sub(self.spent.usage.plus(aside).tokens());
        let cost = self.agent.model.prices().map_or(0.0, |prices| aside.cost(prices));
        (tokens, budgets.cost.map(|most| most - cost - self.spent.cost.unwrap_or(0.0)))
    }

    /// What is used up before the model is asked again.
    fn used_up(&self) -> Option<Option<(String, Option<String>)>> {
        let budgets = &self.agent.rules.budgets;
        match (self.left(), budgets.cost) {
            ((0, _), _) => Some(used_up("tokens", &budgets.tokens.to_string())),
            ((_, Some(left)), Some(most)) if left <= 0.0 => Some(used_up("cost", &most.to_string())),
            _ => None,
        }
    }

    fn end(
        &mut self,
        reason: Reason,
        why: Option<(String, Option<String>)>,
        began: Instant,
        tell: Tell<'_>,
    ) -> Ended {
        let (error, hint) = why.map_or((None, None), |(error, hint)| (Some(error), hint));
        let took_ms = millis(began);
        let entry = Entry::Ended {
            at: now(),
            reason,
            spent: self.spent,
            error: error.clone(),
            hint: hint.clone(),
            took_ms,
        };
        if self.journal.add(&[entry]).and_then(|()| self.journal.sync()).is_err() {
            tell(Event::Note { text: "the end of the run could not be written down".to_owned() });
        }
        let answer = match self.messages.last() {
            Some(Message::Assistant { text, .. }) => text.clone(),
            _ => String::new(),
        };
        let (run, spent) = (self.id.clone(), self.spent);
        let ended = Ended { run, reason, answer, error, hint, spent, took_ms };
        tell(Event::Ended(ended.clone()));
        ended
    }

    /// What the model sees of the tools.
    fn shown(&self) -> Vec<crate::model::ToolSpec> {
        let Hands::Road(runtime) = &self.agent.hands else { return Vec::new() };
        let asked = self.messages.iter().rev().find_map(|message| match message {
            Message::User { parts } => Some(words(parts)),
            _ => None,
        });
        let toolbox = self.agent.toolbox(runtime, &self.caller);
        toolbox.shown(&asked.unwrap_or_default(), &self.found, self.agent.model.most_tools())
    }

    fn is_tainted(&self) -> bool {
        match &self.agent.hands {
            Hands::Road(runtime) => runtime.is_tainted(&self.caller.id, &self.id),
            Hands::Recorded(_) => false,
        }
    }
}

fn not_kept(error: &std::io::Error) -> Turn {
    let (reason, why) = unwritten(error);
    Turn::End(reason, why)
}

fn unwritten(error: &std::io::Error) -> (Reason, Option<(String, Option<String>)>) {
    (Reason::NotKept, Some((format!("the run cannot be written down: {error}"), None)))
}

fn used_up(what: &str, most: &str) -> Option<(String, Option<String>)> {
    let message = format!("the budget of the run is used up: `{what}` is {most}");
    Some((message, Some(format!("`budgets.{what}` gives it more; `toolgate run --resume ID` goes on"))))
}

fn millis(since: Instant) -> f64 {
    (since.elapsed().as_secs_f64() * 1e6).round() / 1e3
}

fn now() -> String {
    format!("{:.3}", Timestamp::now())
}
