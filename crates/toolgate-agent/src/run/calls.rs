//! The calls of a turn: in the order the model gave them, those side by side that bear it.
//!
//! Invariant: a call that may change something is made when its intent is on the disk, and alone; every call of a turn
//! has one output, in the order of the calls.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value as Json, json};
use tokio::time::Instant;
use toolgate_mcp::Along;
use toolgate_runtime::{CallRequest, Origin, Raw, Runtime, Trace};
use toolgate_types::call::Status;
use toolgate_types::tool::Risk;

use super::{Event, Hands, MOST_IN_VAIN, Reason, Run, Tell, Turn, millis, not_kept, used_up};
use crate::answering::{self, Answerer, Asked};
use crate::content;
use crate::journal::{Entry, words};
use crate::model::{Given, Message, Part, ToolCall, ToolOutput};
use crate::toolbox::is_own;

/// What is known of a call before it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bearing {
    /// Whether it is not known to only read.
    pub(super) writes: bool,
    /// Whether it may be made beside others, and again.
    pub(super) repeatable: bool,
}

/// What came of a call.
struct Outcome {
    output: ToolOutput,
    took_ms: f64,
    correlation_id: Option<String>,
    found: Vec<String>,
    /// Why it is not written down, where it is not.
    lost: Option<std::io::Error>,
}

impl Run<'_> {
    /// Makes the calls of a turn; the model hears of them in the next.
    pub(super) async fn work(&mut self, calls: Vec<ToolCall>, vain: &mut u32, tell: Tell<'_>) -> Turn {
        // What is known already, in a run that goes on.
        let mut outputs = std::mem::take(&mut self.partial);
        let is_open = |call: &&ToolCall| outputs.iter().all(|output| output.id != call.id);
        let open: Vec<ToolCall> = calls.iter().filter(is_open).cloned().collect();
        let mut refused = 0;
        let mut rest = open.as_slice();
        while let Some(first) = rest.first() {
            let bearing = self.bearing(first);
            let beside = |call: &&ToolCall| bearing.repeatable && self.bearing(call).repeatable;
            let together = 1 + rest[1..].iter().take_while(beside).count();
            let (batch, others) = rest.split_at(together);
            rest = others;
            let (run, mut turned_away) = self.within_budget(batch);
            refused += turned_away.len();
            if let Err(error) = self.intend(&run) {
                return not_kept(&error);
            }
            let first_number = self.numbered + 1;
            self.numbered += run.len();
            let made = run.iter().enumerate().map(|(at, call)| self.one(call, first_number + at, tell));
            let mut outcomes = join_all(made).await;
            turned_away.iter_mut().for_each(|outcome| self.keep(outcome));
            outcomes.append(&mut turned_away);
            for outcome in &outcomes {
                if let Some(error) = &outcome.lost {
                    return not_kept(error);
                }
                self.found.extend(outcome.found.iter().cloned());
            }
            outputs.extend(outcomes.into_iter().map(|outcome| outcome.output));
        }
        let all_refused = refused == calls.len();
        self.messages.push(Message::Tools { results: in_order(&calls, outputs) });
        *vain = if all_refused { *vain + 1 } else { 0 };
        if *vain >= MOST_IN_VAIN {
            let budgets = &self.agent.rules.budgets;
            let calls = self.spent.calls >= budgets.calls;
            let (what, most) = if calls { ("calls", budgets.calls) } else { ("writes", budgets.writes) };
            return Turn::End(Reason::Budget, used_up(what, &most.to_string()));
        }
        Turn::Next
    }

    /// What is known of a call, from the catalog; the worst of what is not there.
    pub(super) fn bearing(&self, call: &ToolCall) -> Bearing {
        let Hands::Road(runtime) = &self.agent.hands else {
            return Bearing { writes: false, repeatable: true };
        };
        if is_own(&call.name) || matches!(call.arguments, Given::Unusable(_)) {
            return Bearing { writes: false, repeatable: true };
        }
        let catalog = runtime.catalog();
        let Some(tool) = catalog.resolve(&call.name) else {
            return Bearing { writes: true, repeatable: false };
        };
        let reads = tool.contract.risk == Risk::Low;
        Bearing { writes: !reads, repeatable: tool.contract.idempotent }
    }

    /// The calls that the budgets allow, and what becomes of the others.
    fn within_budget(&mut self, batch: &[ToolCall]) -> (Vec<ToolCall>, Vec<Outcome>) {
        let budgets = self.agent.rules.budgets;
        let (mut run, mut away) = (Vec::new(), Vec::new());
        for call in batch {
            let writes = self.bearing(call).writes;
            let over = if self.spent.calls >= budgets.calls {
                Some(("calls", budgets.calls))
            } else if writes && self.spent.writes >= budgets.writes {
                Some(("calls that change something", budgets.writes))
            } else {
                None
            };
            if let Some((what, most)) = over {
                let text = format!(
                    "error: this call was not made: the budget of {most} {what} is used up; answer with what you have"
                );
                away.push(Outcome::failed(call, text));
                continue;
            }
            for spent in [&mut self.spent, &mut self.total] {
                spent.calls += 1;
                spent.writes += u32::from(writes);
            }
            run.push(call.clone());
        }
        (run, away)
    }

    /// Writes down what is about to be done; before something may change, it is on the disk.
    fn intend(&mut self, calls: &[ToolCall]) -> std::io::Result<()> {
        let bearings: Vec<_> = calls.iter().map(|call| (call, self.bearing(call))).collect();
        let intent = |(call, bearing): &(&ToolCall, Bearing)| Entry::Intent {
            id: call.id.clone(),
            repeatable: bearing.repeatable,
            writes: bearing.writes,
        };
        let entries: Vec<_> = bearings.iter().map(intent).collect();
        self.journal.add(&entries)?;
        if bearings.iter().any(|(_, bearing)| !bearing.repeatable) {
            self.journal.sync()?;
        }
        Ok(())
    }

    /// Writes down what came of a call.
    fn keep(&self, outcome: &mut Outcome) {
        let (output, took_ms) = (outcome.output.clone(), outcome.took_ms);
        let (tainted, correlation_id) = (self.is_tainted(), outcome.correlation_id.clone());
        let mut entries = vec![Entry::Result { output, took_ms, tainted, correlation_id }];
        if !outcome.found.is_empty() {
            entries.push(Entry::Found { tools: outcome.found.clone() });
        }
        outcome.lost = self.journal.add(&entries).err();
    }

    /// Makes one call, and tells of it.
    async fn one(&self, call: &ToolCall, number: usize, tell: Tell<'_>) -> Outcome {
        let (id, tool) = (call.id.clone(), call.name.clone());
        let arguments = Json::Object(call.arguments.object());
        tell(Event::Call { number, id: id.clone(), tool: tool.clone(), arguments: arguments.clone() });
        let began = Instant::now();
        let mut outcome = match (&call.arguments, &self.agent.hands) {
            (_, Hands::Recorded(tape)) => {
                let (output, took_ms) = tape.output(&call.id, &call.name);
                Outcome { output, took_ms, correlation_id: None, found: Vec::new(), lost: None }
            }
            (Given::Unusable(why), _) => {
                let text = format!("error invalid_arguments: {why}; send them again as one JSON object");
                Outcome::failed(call, text)
            }
            (Given::Object(_), Hands::Road(runtime)) if is_own(&call.name) => {
                self.own(runtime, call, &arguments).await
            }
            (Given::Object(_), Hands::Road(runtime)) => self.on_the_road(runtime, call, &arguments).await,
        };
        if matches!(self.agent.hands, Hands::Road(_)) {
            outcome.took_ms = millis(began);
        }
        self.keep(&mut outcome);
        let text = words(&outcome.output.parts);
        let (failed, took_ms) = (outcome.output.failed, outcome.took_ms);
        let correlation_id = outcome.correlation_id.clone();
        tell(Event::Result { number, id, tool, failed, text, took_ms, correlation_id });
        outcome
    }

    async fn own(&self, runtime: &Runtime, call: &ToolCall, arguments: &Json) -> Outcome {
        let own = self.agent.toolbox(runtime, &self.caller).own(&call.name, arguments).await;
        if own.untrusted {
            runtime.taint(&self.caller.id, &self.id);
        }
        let (id, name) = (call.id.clone(), call.name.clone());
        let output = ToolOutput { id, name, parts: own.parts, failed: own.failed };
        Outcome { output, took_ms: 0.0, correlation_id: None, found: own.found, lost: None }
    }

    async fn on_the_road(&self, runtime: &Runtime, call: &ToolCall, arguments: &Json) -> Outcome {
        if !self.agent.toolbox(runtime, &self.caller).allows(&call.name) {
            let text = format!("error tool_not_found: there is no tool `{}`", call.name);
            return Outcome::failed(call, text);
        }
        let trace = Trace::fresh();
        let correlation_id = trace.correlation_id().to_owned();
        let origin = Origin {
            session: Some(self.id.clone()),
            along: self.along(runtime, call),
            agent_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            ..Origin::default()
        };
        let arguments = Raw::of(arguments).into();
        let request = CallRequest { name: call.name.clone(), arguments, trace, origin, whole: false };
        let called = runtime.call(&self.caller, request).await;
        let parts = content::of(&called, self.agent.model.most_result());
        let failed = called.result.status == Status::Error;
        let output = ToolOutput { id: call.id.clone(), name: call.name.clone(), parts, failed };
        Outcome { output, took_ms: 0.0, correlation_id: Some(correlation_id), found: Vec::new(), lost: None }
    }
}

impl Run<'_> {
    /// The run as the client behind a call, where servers may ask it something.
    fn along(&self, runtime: &Runtime, call: &ToolCall) -> Along {
        let rules = &self.agent.rules;
        let capabilities = answering::declared(rules);
        let tool = runtime.catalog().resolve(&call.name).cloned();
        let server = tool.and_then(|tool| tool.server.clone());
        // Who is called and cannot ask has nobody behind its calls: tools of one's own, and all where nobody answers.
        let (Some(server), false) = (server, capabilities == json!({})) else { return Along::default() };
        let asked = Asked {
            server: server.to_string(),
            tool: call.name.clone(),
            caller: self.caller.id.clone(),
            run: self.id.clone(),
            identity: self.identity,
            capabilities,
            sampling: rules.sampling,
            elicitation: rules.elicitation,
            model: Arc::clone(&self.agent.model),
            desk: self.agent.desk.clone(),
            aside: Arc::clone(&self.aside),
            left: self.left(),
            thought: Arc::default(),
        };
        Along { client: Some(Arc::new(Answerer(Arc::new(asked)))), ..Along::default() }
    }
}

impl Outcome {
    fn failed(call: &ToolCall, text: String) -> Self {
        let (id, name) = (call.id.clone(), call.name.clone());
        let output = ToolOutput { id, name, parts: vec![Part::Text { text }], failed: true };
        Self { output, took_ms: 0.0, correlation_id: None, found: Vec::new(), lost: None }
    }
}

/// The outputs in the order of their calls.
pub(super) fn in_order(calls: &[ToolCall], mut outputs: Vec<ToolOutput>) -> Vec<ToolOutput> {
    let place = |output: &ToolOutput| calls.iter().position(|call| call.id == output.id);
    outputs.sort_by_key(place);
    outputs
}
