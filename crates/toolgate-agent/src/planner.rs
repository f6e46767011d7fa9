//! The planner: replaces the model if none is configured.
//!
//! It implements [`Model`] as a pure function of the conversation: search picks the tool, the user's words fill its
//! arguments as far as they are unambiguous, and the user is asked for the rest. Invariant: nothing is made up. An
//! argument comes from the user's words or from the user's answer, each request leads to at most one tool call, and its
//! result is reported.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Map, Value as Json};
use toolgate_runtime::results::READ_RESULT;
use toolgate_search::choice::ASK_TOOL;
use toolgate_search::values::CalendarDate;
use toolgate_search::{ChoiceDecision, ExtractedArguments, ToolEntry, ToolIndex, ToolParameter};

use crate::model::{
    CallArguments, Message, Model, ModelError, ModelReply, ModelRequest, Part, StopReason, StreamEvent,
    TokenUsage, ToolCall, ToolOutput, ToolSpec,
};
use crate::toolbox::is_agent_tool;

mod question;

use question::UserQuestion;

/// Tools offered to the planner. It scores all of them, at a few microseconds each.
const MAX_TOOLS: usize = 256;
/// Tools offered in a question to the user.
const MAX_CHOICES: usize = 4;
/// Minimum confidence to call a tool without a question. The confidence of unseen tools is too low rather than too high:
/// of the choices of the gold set with 0.4, six of ten are right.
const MIN_CONFIDENCE: f32 = 0.4;
/// Choice for a request that is meant for none of the tools.
const NO_TOOL: &str = "none of them";

/// Plans without a language model.
pub struct Planner {
    today: Arc<dyn Fn() -> Option<CalendarDate> + Send + Sync>,
    /// Index of the tools of the last request. The tools of a run seldom change.
    index_cache: Mutex<Option<(Vec<ToolSpec>, Arc<ToolIndex>)>>,
}

impl Planner {
    /// Creates a planner. `today` returns the current date, for words such as "tomorrow".
    pub fn new(today: impl Fn() -> Option<CalendarDate> + Send + Sync + 'static) -> Self {
        Self { today: Arc::new(today), index_cache: Mutex::default() }
    }

    /// Returns the next step: a call, or a text that ends the run.
    pub fn plan(&self, request: &ModelRequest) -> ModelReply {
        let Some(turn) = UserTurn::from_messages(&request.messages) else {
            return unfinished("The request is empty.".to_owned());
        };
        if let Some(result) = turn.result {
            let stop = if result.failed { StopReason::Unfinished } else { StopReason::Done };
            return text_reply(result_text(result), stop);
        }
        let index = self.index(&request.tools);
        let plan = PlanStep { index: &index, turn: &turn, today: (self.today)() };
        plan.next(request.tools.iter().any(|tool| tool.name == ASK_TOOL))
    }

    fn index(&self, tools: &[ToolSpec]) -> Arc<ToolIndex> {
        let mut index_cache = self.index_cache.lock();
        if let Some((_, index)) = index_cache.as_ref().filter(|(before, _)| before == tools) {
            return Arc::clone(index);
        }
        let entry = |tool: &ToolSpec| ToolEntry {
            name: tool.name.clone(),
            description: tool.description.clone(),
            parameters: ToolParameter::from_schema(&tool.schema.parse().unwrap_or_default()),
            ..ToolEntry::default()
        };
        // Agent tools and stored results are for models, which can read in several steps.
        let work = tools.iter().filter(|tool| !is_agent_tool(&tool.name) && tool.name != READ_RESULT);
        let index = Arc::new(ToolIndex::new(work.map(entry)));
        *index_cache = Some((tools.to_vec(), Arc::clone(&index)));
        index
    }
}

impl Model for Planner {
    fn name(&self) -> &str {
        "embedded planner"
    }

    fn reply<'a>(
        &'a self,
        request: &'a ModelRequest,
        on_event: &'a mut (dyn FnMut(StreamEvent) + Send),
    ) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        Box::pin(async move {
            let reply = self.plan(request);
            if !reply.text.is_empty() {
                on_event(StreamEvent::Text(reply.text.clone()));
            }
            reply.calls.iter().for_each(|call| on_event(StreamEvent::Call(call.name.clone())));
            Ok(reply)
        })
    }

    fn max_tools(&self) -> usize {
        MAX_TOOLS
    }
}

/// Messages since the user's last request.
struct UserTurn<'a> {
    /// The user's request.
    words: String,
    /// Answers of the user to questions, in order.
    answers: Vec<&'a ToolOutput>,
    /// Result of the tool call.
    result: Option<&'a ToolOutput>,
    /// Calls of the whole conversation; the source of call ids.
    calls: usize,
}

impl<'a> UserTurn<'a> {
    fn from_messages(messages: &'a [Message]) -> Option<Self> {
        let at = messages.iter().rposition(|message| matches!(message, Message::User { .. }))?;
        let Message::User { parts } = &messages[at] else { return None };
        let results = messages[at..].iter().flat_map(|message| match message {
            Message::Tools { results } => results.as_slice(),
            _ => &[],
        });
        let (answers, others): (Vec<_>, Vec<_>) = results.partition(|result| result.name == ASK_TOOL);
        let calls = messages.iter().map(|message| match message {
            Message::Assistant { calls, .. } => calls.len(),
            _ => 0,
        });
        Some(Self { words: text_of(parts), answers, result: others.last().copied(), calls: calls.sum() })
    }
}

/// Computes the next step of a turn.
struct PlanStep<'a> {
    index: &'a ToolIndex,
    turn: &'a UserTurn<'a>,
    today: Option<CalendarDate>,
}

impl PlanStep<'_> {
    fn next(&self, can_ask: bool) -> ModelReply {
        let choice = self.index.choose(&self.turn.words);
        let mut answers = self.turn.answers.iter();
        let best = choice.hits.first().and_then(|hit| self.index.get(&hit.name));
        let is_unsure = match choice.decision {
            ChoiceDecision::Ask => choice.missing.is_empty(),
            _ => choice.confidence < MIN_CONFIDENCE,
        };
        let entry = match (choice.decision, best) {
            (ChoiceDecision::None, _) if !choice.needs_tool => {
                return unfinished(
                    "This request needs no tool, and no model is configured to answer it. Set `agent.model` in toolgate.yaml, \
                     or ask for something that a tool can do."
                        .to_owned(),
                );
            }
            (ChoiceDecision::None, _) | (_, None) => {
                return unfinished("No tool matches this request.".to_owned());
            }
            (_, Some(_)) if is_unsure => {
                let names: Vec<&str> =
                    choice.hits.iter().take(MAX_CHOICES).map(|hit| hit.name.as_str()).collect();
                let Some(answer) = answers.next() else {
                    return self.ask(can_ask, &UserQuestion::choose_tool(&self.turn.words, &names, NO_TOOL));
                };
                let chosen = question::parse_answer(answer)
                    .and_then(|answer| Some(answer.get("tool")?.as_str()?.to_owned()));
                match chosen.as_deref().and_then(|name| self.index.get(name)) {
                    Some(entry) => entry,
                    None => return unfinished("No tool was chosen, so none was called.".to_owned()),
                }
            }
            (_, Some(entry)) => entry,
        };
        self.fill(entry, answers.next().copied(), can_ask)
    }

    /// Returns the call of a tool, or a question for its missing arguments.
    fn fill(&self, entry: &ToolEntry, answer: Option<&ToolOutput>, can_ask: bool) -> ModelReply {
        let ExtractedArguments { mut values, missing, unclear } =
            ExtractedArguments::extract(&self.turn.words, entry, self.today);
        let is_open = |parameter: &&ToolParameter| {
            missing.contains(&parameter.name) || unclear.contains(&parameter.name)
        };
        let open: Vec<&ToolParameter> = entry.parameters.iter().filter(is_open).collect();
        if open.is_empty() {
            return self.call(&entry.name, values);
        }
        if let Some(parameter) = open.iter().find(|parameter| !question::is_plain(&parameter.kind)) {
            let (tool, name) = (&entry.name, &parameter.name);
            return unfinished(format!(
                "`{tool}` matches, but its argument `{name}` is too complex to read from a sentence. \
                 Call the tool directly: toolgate tools call {tool} --args '{{\"{name}\": …}}'"
            ));
        }
        match answer {
            None => self.ask(can_ask, &UserQuestion::missing(entry, &open)),
            Some(answer) => match question::parse_answer(answer) {
                Some(given) => {
                    values.extend(given);
                    self.call(&entry.name, values)
                }
                None => unfinished(format!("`{}` was not called: {}", entry.name, text_of(&answer.parts))),
            },
        }
    }

    fn ask(&self, can_ask: bool, question: &UserQuestion) -> ModelReply {
        if can_ask { self.call(ASK_TOOL, question.arguments()) } else { unfinished(question.text.clone()) }
    }

    fn call(&self, name: &str, arguments: Map<String, Json>) -> ModelReply {
        let call = ToolCall {
            id: format!("plan-{}", self.turn.calls + 1),
            name: name.to_owned(),
            arguments: CallArguments::Object(arguments),
            signature: None,
        };
        ModelReply {
            text: String::new(),
            calls: vec![call],
            stop: StopReason::Calls,
            usage: TokenUsage::default(),
        }
    }
}

fn text_reply(text: String, stop: StopReason) -> ModelReply {
    ModelReply { text, calls: Vec::new(), stop, usage: TokenUsage::default() }
}

/// Says why the task was not done.
fn unfinished(text: String) -> ModelReply {
    text_reply(text, StopReason::Unfinished)
}

/// Returns the text of content.
fn text_of(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Describes the result of a tool for the user.
fn result_text(result: &ToolOutput) -> String {
    let ToolOutput { name, parts, failed, .. } = result;
    let others = parts.iter().filter(|part| !matches!(part, Part::Text { .. })).count();
    let more =
        if others > 0 { format!("\n({others} images or audio clips not shown)") } else { String::new() };
    let words = text_of(parts);
    if *failed { format!("`{name}` failed: {words}{more}") } else { format!("{words}{more}") }
}

#[cfg(test)]
mod tests;
