//! The planner: what an agent does where no model is configured.
//!
//! It is one more [`Model`], and a plain function of what was said: search picks the tool, the words of the person
//! fill its arguments as far as that is plain, and what is missing is asked of the person. Invariant: nothing is made
//! up. An argument comes from the person's words or from the person's answer, one tool is called for one request, and
//! whatever was done is said.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use serde_json::{Map, Value as Json};
use toolgate_runtime::results::READ_RESULT;
use toolgate_search::choice::ASKS;
use toolgate_search::said::Date;
use toolgate_search::{Arguments, Decision, Entry, Index, Parameter};

use crate::model::{
    Given, Heard, Message, Model, ModelError, Part, Reply, Request, Stop, ToolCall, ToolOutput, ToolSpec,
    Usage,
};
use crate::toolbox::is_own;

mod question;

use question::Question;

/// Tools that it is shown. It reads them all, which takes microseconds for each.
const MOST_TOOLS: usize = 256;
/// Tools that a person is given to choose from.
const MOST_CHOICES: usize = 4;
/// A tool is called without a question when the choice is at least as sure as this.
const SURE: f32 = 0.6;
/// What a person says when no tool is meant.
const NO_TOOL: &str = "none of them";

/// Plans without a model.
pub struct Planner {
    today: Arc<dyn Fn() -> Option<Date> + Send + Sync>,
    /// Tools of which there is an index: those of one run seldom change.
    known: Mutex<Option<(Vec<ToolSpec>, Arc<Index>)>>,
}

impl Planner {
    /// A planner. `today` says which day it is, for those who say "tomorrow".
    pub fn new(today: impl Fn() -> Option<Date> + Send + Sync + 'static) -> Self {
        Self { today: Arc::new(today), known: Mutex::default() }
    }

    /// What comes next: calls, or words that end the run.
    pub fn plan(&self, request: &Request) -> Reply {
        let Some(turn) = Turn::of(&request.messages) else {
            return say("Nothing was asked for.".to_owned());
        };
        if let Some(result) = turn.result {
            return say(told(result));
        }
        let index = self.index(&request.tools);
        let plan = Plan { index: &index, turn: &turn, today: (self.today)() };
        plan.next(request.tools.iter().any(|tool| tool.name == ASKS))
    }

    fn index(&self, tools: &[ToolSpec]) -> Arc<Index> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, index)) = known.as_ref().filter(|(before, _)| before == tools) {
            return Arc::clone(index);
        }
        let entry = |tool: &ToolSpec| Entry {
            name: tool.name.clone(),
            description: tool.description.clone(),
            parameters: Parameter::all_of(&tool.schema.parse().unwrap_or_default()),
            ..Entry::default()
        };
        // Those of the agent itself are for models, which read in between.
        let work = tools.iter().filter(|tool| !is_own(&tool.name) && tool.name != READ_RESULT);
        let index = Arc::new(Index::new(work.map(entry)));
        *known = Some((tools.to_vec(), Arc::clone(&index)));
        index
    }
}

impl Model for Planner {
    fn name(&self) -> &str {
        "embedded planner"
    }

    fn reply<'a>(
        &'a self,
        request: &'a Request,
        heard: &'a mut (dyn FnMut(Heard) + Send),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move {
            let reply = self.plan(request);
            if !reply.text.is_empty() {
                heard(Heard::Text(reply.text.clone()));
            }
            reply.calls.iter().for_each(|call| heard(Heard::Call(call.name.clone())));
            Ok(reply)
        })
    }

    fn most_tools(&self) -> usize {
        MOST_TOOLS
    }
}

/// What happened since the person last spoke.
struct Turn<'a> {
    /// What the person said.
    words: String,
    /// What was asked of the person, and the answers, in their order.
    answers: Vec<&'a ToolOutput>,
    /// What the tool gave.
    result: Option<&'a ToolOutput>,
    /// Calls so far, which ids are made of.
    calls: usize,
}

impl<'a> Turn<'a> {
    fn of(messages: &'a [Message]) -> Option<Self> {
        let at = messages.iter().rposition(|message| matches!(message, Message::User { .. }))?;
        let Message::User { parts } = &messages[at] else { return None };
        let results = messages[at..].iter().flat_map(|message| match message {
            Message::Tools { results } => results.as_slice(),
            _ => &[],
        });
        let (answers, others): (Vec<_>, Vec<_>) = results.partition(|result| result.name == ASKS);
        let calls = messages.iter().map(|message| match message {
            Message::Assistant { calls, .. } => calls.len(),
            _ => 0,
        });
        Some(Self { words: words(parts), answers, result: others.last().copied(), calls: calls.sum() })
    }
}

/// The next step.
struct Plan<'a> {
    index: &'a Index,
    turn: &'a Turn<'a>,
    today: Option<Date>,
}

impl Plan<'_> {
    fn next(&self, can_ask: bool) -> Reply {
        let choice = self.index.choose(&self.turn.words);
        let mut answers = self.turn.answers.iter();
        let best = choice.hits.first().and_then(|hit| self.index.get(&hit.name));
        let is_unsure = match choice.decision {
            Decision::Ask => choice.missing.is_empty(),
            _ => choice.confidence < SURE,
        };
        let entry = match (choice.decision, best) {
            (Decision::None, _) => {
                return say(
                    "This needs no tool, and there is no model to answer it. With `agent.model` in toolgate.yaml it is answered; \
                     without, ask for something that a tool can do."
                        .to_owned(),
                );
            }
            (_, None) => return say("None of the tools fits this.".to_owned()),
            (_, Some(_)) if is_unsure => {
                let names: Vec<&str> =
                    choice.hits.iter().take(MOST_CHOICES).map(|hit| hit.name.as_str()).collect();
                let Some(answer) = answers.next() else {
                    return self.ask(can_ask, &Question::which(&self.turn.words, &names, NO_TOOL));
                };
                let chosen = question::answer(answer)
                    .and_then(|answer| Some(answer.get("tool")?.as_str()?.to_owned()));
                match chosen.as_deref().and_then(|name| self.index.get(name)) {
                    Some(entry) => entry,
                    None => return say("No tool was chosen, so none was called.".to_owned()),
                }
            }
            (_, Some(entry)) => entry,
        };
        self.fill(entry, answers.next().copied(), can_ask)
    }

    /// The call of a tool, or the question for what it needs.
    fn fill(&self, entry: &Entry, answer: Option<&ToolOutput>, can_ask: bool) -> Reply {
        let Arguments { mut values, missing, unclear } = Arguments::of(&self.turn.words, entry, self.today);
        let is_open =
            |parameter: &&Parameter| missing.contains(&parameter.name) || unclear.contains(&parameter.name);
        let open: Vec<&Parameter> = entry.parameters.iter().filter(is_open).collect();
        if open.is_empty() {
            return self.call(&entry.name, values);
        }
        if let Some(parameter) = open.iter().find(|parameter| !question::is_plain(&parameter.kind)) {
            let (tool, name) = (&entry.name, &parameter.name);
            return say(format!(
                "`{tool}` fits, but `{name}` of it is more than a sentence says. \
                 Call it yourself: toolgate tools call {tool} --args '{{\"{name}\": …}}'"
            ));
        }
        match answer {
            None => self.ask(can_ask, &Question::missing(entry, &open)),
            Some(answer) => match question::answer(answer) {
                Some(given) => {
                    values.extend(given);
                    self.call(&entry.name, values)
                }
                None => say(format!("`{}` was not called: {}", entry.name, words(&answer.parts))),
            },
        }
    }

    fn ask(&self, can_ask: bool, question: &Question) -> Reply {
        if can_ask { self.call(ASKS, question.arguments()) } else { say(question.text.clone()) }
    }

    fn call(&self, name: &str, arguments: Map<String, Json>) -> Reply {
        let call = ToolCall {
            id: format!("plan-{}", self.turn.calls + 1),
            name: name.to_owned(),
            arguments: Given::Object(arguments),
            seal: None,
        };
        Reply { text: String::new(), calls: vec![call], stop: Stop::Calls, usage: Usage::default() }
    }
}

fn say(text: String) -> Reply {
    Reply { text, calls: Vec::new(), stop: Stop::Done, usage: Usage::default() }
}

/// The words of what was said.
fn words(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// What a tool gave, for the person.
fn told(result: &ToolOutput) -> String {
    let ToolOutput { name, parts, failed, .. } = result;
    let others = parts.iter().filter(|part| !matches!(part, Part::Text { .. })).count();
    let more = if others > 0 { format!("\n({others} that are no text)") } else { String::new() };
    let words = words(parts);
    if *failed { format!("`{name}` failed: {words}{more}") } else { format!("{words}{more}") }
}

#[cfg(test)]
mod tests;
