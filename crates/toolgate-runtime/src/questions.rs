//! The question queue: questions to people wait here until they are answered, time out, or are withdrawn.
//!
//! Questions come from the tool `request_human_input` and from policy rules that ask for approval. A [`Responder`]
//! (such as the terminal) or a person at a front end answers them. Invariants: the first valid answer wins and no
//! second one is accepted; the number, size and age of questions are bounded; a question is withdrawn when its call is
//! dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use serde_json::Value as Json;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};
use toolgate_policy::SchemaValidator;
use toolgate_types::{CallerId, HumanDuration};
use toolgate_upstream::TraceContext;

mod approvals;
mod client;
mod input;

pub use approvals::QueueApprover;
pub use input::{REQUEST_HUMAN_INPUT, input_tool};

/// Open questions in total, and per caller.
const MAX_OPEN: usize = 256;
const MAX_OPEN_PER_CALLER: usize = 16;
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Purpose of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    /// A tool needs information.
    HumanInput,
    /// A policy rule requires approval before a call.
    Approval,
}

/// An open question, as shown to people.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenQuestion {
    pub id: String,
    pub kind: QuestionKind,
    pub text: String,
    /// Allowed answers. Empty if any text is allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// JSON Schema of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Json>,
    /// Arguments of the call to approve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// The caller that asks, or whose call needs approval.
    pub caller: CallerId,
    /// The tool that asks, or that needs approval.
    pub tool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    pub asked_at: String,
    pub expires_at: String,
}

/// A question to be added to the queue.
#[derive(Debug)]
pub struct NewQuestion {
    pub kind: QuestionKind,
    pub text: String,
    pub choices: Vec<String>,
    /// JSON Schema of the answer.
    pub schema: Option<Json>,
    /// Arguments of the call to approve.
    pub arguments: Option<String>,
    pub caller: CallerId,
    pub tool: String,
    pub session: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Value(Json),
    /// Declined, with an optional reason.
    Declined(Option<String>),
}

/// An answer, and the name of the person who gave it.
#[derive(Debug, Clone, PartialEq)]
pub struct HumanReply {
    pub answer: Answer,
    pub by: String,
}

/// Reasons why a question gets no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// There is no responder, and no front end accepts answers.
    #[error("no person can be reached here")]
    NoResponder,
    #[error("too many questions are open already")]
    QueueFull,
    #[error("no one answered in time")]
    TimedOut,
    /// The queue is closed because the process stops.
    #[error("no questions are accepted: Toolgate is stopping")]
    Closed,
    /// The schema of the answer is not a valid JSON Schema.
    #[error("`schema`: {0}")]
    InvalidSchema(String),
}

/// Reasons why an answer is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The question was answered, withdrawn, timed out, or never asked.
    #[error("there is no open question `{0}`: it was answered, withdrawn or timed out")]
    NotOpen(String),
    /// Callers cannot answer their own questions.
    #[error("a caller cannot answer its own question")]
    OwnQuestion,
    /// The answer does not match the choices or the schema.
    #[error("the answer is not valid: {0}")]
    InvalidAnswer(String),
}

/// A question with the compiled schema of its answer.
#[derive(Debug)]
pub struct Question {
    pub details: OpenQuestion,
    schema: Option<SchemaValidator>,
}

impl Question {
    /// Checks an answer against size, choices and schema.
    ///
    /// # Errors
    /// If the answer is not valid.
    pub fn check(&self, answer: &Answer) -> Result<(), AnswerError> {
        let Answer::Value(value) = answer else { return Ok(()) };
        let invalid = |why: String| Err(AnswerError::InvalidAnswer(why));
        if value.to_string().len() > MAX_ANSWER_BYTES {
            return invalid(format!("it is larger than {MAX_ANSWER_BYTES} bytes"));
        }
        let OpenQuestion { kind, choices, .. } = &self.details;
        match (&self.schema, value) {
            _ if *kind == QuestionKind::Approval => {
                if value.is_boolean() {
                    Ok(())
                } else {
                    invalid("it must be `true` or `false`".to_owned())
                }
            }
            (Some(schema), value) => {
                schema.check(value).map_err(|invalid| AnswerError::InvalidAnswer(invalid.to_string()))
            }
            (None, Json::String(text)) if choices.is_empty() && !text.trim().is_empty() => Ok(()),
            (None, Json::String(text)) if choices.contains(text) => Ok(()),
            (None, _) if choices.is_empty() => invalid("it must be a non-empty string".to_owned()),
            (None, _) => invalid(format!("it must be one of `{}`", choices.join("`, `"))),
        }
    }
}

/// Asks a person directly, such as at the terminal or in an MCP client.
pub trait Responder: Send + Sync + 'static {
    /// Asks the question. `None` if this responder cannot reach a person. The future is dropped when the question is
    /// answered elsewhere.
    fn ask(&self, question: Arc<Question>) -> BoxFuture<'static, Option<HumanReply>>;
}

/// Open questions, and the responders that can answer them.
pub struct QuestionQueue {
    state: Mutex<QueueState>,
    changes: watch::Sender<u64>,
    responders: Vec<Arc<dyn Responder>>,
    /// True if people can answer through a front end.
    accepts_remote_answers: bool,
    timeout: HumanDuration,
}

#[derive(Default)]
struct QueueState {
    open: BTreeMap<String, (Arc<Question>, oneshot::Sender<HumanReply>)>,
    closed: bool,
}

impl QuestionQueue {
    /// Creates a queue. `timeout` is the time a person has to answer.
    pub fn new(
        timeout: HumanDuration,
        accepts_remote_answers: bool,
        responders: Vec<Arc<dyn Responder>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            changes: watch::Sender::new(0),
            responders,
            accepts_remote_answers,
            timeout,
        })
    }

    /// Time a person has to answer.
    pub fn timeout(&self) -> HumanDuration {
        self.timeout
    }

    /// Notifies of changes to the open questions.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Open questions, oldest first.
    pub fn list(&self, kind: Option<QuestionKind>) -> Vec<Arc<Question>> {
        let has_kind = |question: &Question| kind.is_none_or(|kind| question.details.kind == kind);
        let state = self.lock_state();
        state
            .open
            .values()
            .map(|(question, _)| Arc::clone(question))
            .filter(|question| has_kind(question))
            .collect()
    }

    pub fn get(&self, id: &str) -> Option<Arc<Question>> {
        self.lock_state().open.get(id).map(|(question, _)| Arc::clone(question))
    }

    /// Adds a question and asks all responders, including an extra one for this question only. The first valid answer
    /// wins.
    ///
    /// # Errors
    /// If there is no one to ask, the queue is full or closed, or no answer arrives in time.
    pub async fn ask(
        &self,
        new_question: NewQuestion,
        extra: Option<Arc<dyn Responder>>,
        deadline: Instant,
    ) -> Result<HumanReply, NoAnswer> {
        if self.responders.is_empty() && extra.is_none() && !self.accepts_remote_answers {
            return Err(NoAnswer::NoResponder);
        }
        let (question, mut answered) = self.enqueue(new_question, deadline)?;
        let _withdrawn = WithdrawOnDrop { queue: self, id: &question.details.id };
        let mut responders: FuturesUnordered<_> = self
            .responders
            .iter()
            .chain(&extra)
            .map(|responder| responder.ask(Arc::clone(&question)))
            .collect();
        let first = async {
            loop {
                tokio::select! {
                    reply = &mut answered => return reply.map_err(|_| NoAnswer::Closed),
                    Some(reply) = responders.next() => match reply {
                        Some(reply) if question.check(&reply.answer).is_ok() => return Ok(reply),
                        _ if responders.is_empty() && !self.accepts_remote_answers => return Err(NoAnswer::NoResponder),
                        _ => {}
                    },
                }
            }
        };
        timeout_at(deadline, first).await.unwrap_or(Err(NoAnswer::TimedOut))
    }

    fn enqueue(
        &self,
        new_question: NewQuestion,
        deadline: Instant,
    ) -> Result<(Arc<Question>, oneshot::Receiver<HumanReply>), NoAnswer> {
        let NewQuestion { kind, text, choices, schema, arguments, caller, tool, session } = new_question;
        let compiled = schema.as_ref().map(SchemaValidator::new).transpose();
        let compiled = compiled.map_err(|error| NoAnswer::InvalidSchema(error.to_string()))?;
        let now = Timestamp::now();
        let left = deadline.saturating_duration_since(Instant::now());
        let details = OpenQuestion {
            // Ids sort by time, so the oldest question comes first.
            id: TraceContext::generate().correlation_id().to_owned(),
            kind,
            text,
            choices,
            schema,
            arguments,
            caller,
            tool,
            session,
            asked_at: format!("{now:.3}"),
            expires_at: format!("{:.3}", now.saturating_add(left).unwrap_or(now)),
        };
        let question = Arc::new(Question { details, schema: compiled });
        let (sender, answered) = oneshot::channel();
        {
            let mut state = self.lock_state();
            if state.closed {
                return Err(NoAnswer::Closed);
            }
            let is_same_caller =
                |(other, _): &&(Arc<Question>, _)| other.details.caller == question.details.caller;
            let of_caller = state.open.values().filter(is_same_caller).count();
            if state.open.len() >= MAX_OPEN || of_caller >= MAX_OPEN_PER_CALLER {
                return Err(NoAnswer::QueueFull);
            }
            state.open.insert(question.details.id.clone(), (Arc::clone(&question), sender));
        }
        self.notify_change();
        Ok((question, answered))
    }

    /// Answers a question. `caller` is the answering caller, if it is one: callers cannot answer their own questions.
    ///
    /// # Errors
    /// If the question is not open, the answer is not valid, or it comes from the asking caller.
    pub fn answer(
        &self,
        id: &str,
        kind: QuestionKind,
        reply: HumanReply,
        caller: Option<&CallerId>,
    ) -> Result<(), AnswerError> {
        let not_open = || AnswerError::NotOpen(id.to_owned());
        let question = self.get(id).filter(|question| question.details.kind == kind).ok_or_else(not_open)?;
        if caller == Some(&question.details.caller) {
            return Err(AnswerError::OwnQuestion);
        }
        question.check(&reply.answer)?;
        // Removing the entry decides a race between two answers.
        let (_, sender) = self.lock_state().open.remove(id).ok_or_else(not_open)?;
        self.notify_change();
        sender.send(reply).map_err(|_| not_open())
    }

    /// Closes the queue. Open questions end without an answer.
    pub fn close(&self) {
        let mut state = self.lock_state();
        state.closed = true;
        state.open.clear();
        drop(state);
        self.notify_change();
    }

    fn notify_change(&self) {
        self.changes.send_modify(|version| *version += 1);
    }

    fn lock_state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }
}

/// Removes a question from the queue on drop, if it is still open.
struct WithdrawOnDrop<'a> {
    queue: &'a QuestionQueue,
    id: &'a str,
}

impl Drop for WithdrawOnDrop<'_> {
    fn drop(&mut self) {
        let was_open = self.queue.lock_state().open.remove(self.id).is_some();
        if was_open {
            self.queue.notify_change();
        }
    }
}

#[cfg(test)]
mod tests;
