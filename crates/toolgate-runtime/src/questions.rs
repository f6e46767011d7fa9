//! The question queue: questions to people wait here until they are answered, time out, or are withdrawn.
//!
//! Questions come from the tool `request_human_input`, from policy rules that ask for approval, and from agents. The
//! responders of the queue (such as the terminal) or a person at a front end answer them. Invariants: the first valid
//! answer wins and no second one is accepted; the number, size and age of questions are bounded, and so are those that are
//! kept after their end; a question is withdrawn when its call is dropped.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use serde_json::Value as Json;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};
use toolgate_types::{CallerId, HumanDuration};
use toolgate_upstream::TraceContext;

use crate::pipeline::MAX_APPROVAL_WAIT;

mod client;
mod input;

pub(crate) use client::ClientResponder;

pub use input::{REQUEST_HUMAN_INPUT, input_tool};
/// The trait that asks a person, and the questions it asks.
pub use toolgate_upstream::questions::{
    Answer, AnswerSchema, ApprovalQuestion, ApprovalScope, ElicitationQuestion, HumanReply, InputQuestion,
    InvalidAnswer, LoginPage, MaskedPart, NoAnswer, NoResponder, Question, QuestionContext, QuestionKind,
    Responder, ShownArguments, masked_parts,
};

/// Open questions in total, and per caller.
const MAX_OPEN: usize = 256;
const MAX_OPEN_PER_CALLER: usize = 16;
/// Ended questions that are kept, and the size of their texts and arguments.
const MAX_ENDED: usize = 500;
const MAX_ENDED_BYTES: usize = 16 << 20;

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
    /// Arguments of the call to approve. Long strings may be shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// Length of the arguments as they were sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments_bytes: Option<usize>,
    /// The caller that asks, or whose call needs approval.
    pub caller: CallerId,
    /// The tool that asks, or that needs approval.
    pub tool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    pub asked_at: String,
    pub expires_at: String,
    #[serde(flatten)]
    pub context: QuestionContext,
}

/// The end of a question. It does not hold the value of an answer: that is for the tool that asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionEnd {
    pub state: EndState,
    pub at: String,
    /// Name of the person that answered.
    pub by: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndState {
    /// A call was approved, or input was given.
    Accepted,
    /// A call was not approved, or no input was given.
    Declined,
    /// No one answered in time.
    Expired,
    /// The call ended, or the gateway was stopped.
    Withdrawn,
}

impl EndState {
    pub fn label(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Declined => "declined",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }
}

impl QuestionEnd {
    fn new(state: EndState, by: Option<String>) -> Self {
        Self { state, at: format!("{:.3}", Timestamp::now()), by }
    }

    fn answered(reply: &HumanReply) -> Self {
        let state = match &reply.answer {
            Answer::Value(Json::Bool(false)) | Answer::Declined(_) => EndState::Declined,
            Answer::ForSession { approve: false, .. } => EndState::Declined,
            Answer::Value(_) | Answer::ForSession { .. } => EndState::Accepted,
        };
        Self::new(state, Some(reply.by.clone()))
    }
}

/// A question that is not open any more.
pub type EndedQuestion = (Arc<QueuedQuestion>, QuestionEnd);

/// Reasons why an answer is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The question was answered, withdrawn, timed out, or never asked.
    #[error("there is no open question `{0}`: it was answered, withdrawn or timed out")]
    NotOpen(String),
    /// Callers cannot answer their own questions, nor those of callers they created.
    #[error("a caller cannot answer its own question, nor that of a caller with the same creator")]
    OwnQuestion,
    /// The answer does not match the choices or the schema.
    #[error(transparent)]
    InvalidAnswer(#[from] InvalidAnswer),
}

/// A question in the queue.
#[derive(Debug)]
pub struct QueuedQuestion {
    pub details: OpenQuestion,
    question: Arc<Question>,
}

impl QueuedQuestion {
    /// Creates an entry of the queue. `None` for questions that cannot be answered later: those of a server to its
    /// client, which has its own timeout, and logins.
    fn new(question: Arc<Question>, deadline: Instant) -> Option<Self> {
        let now = Timestamp::now();
        let left = deadline.saturating_duration_since(Instant::now());
        // Ids sort by time, so the oldest question comes first.
        let id = TraceContext::generate().correlation_id().to_owned();
        let (kind, asked_at) = (question.kind(), format!("{now:.3}"));
        let expires_at = format!("{:.3}", now.saturating_add(left).unwrap_or(now));
        let details = match &*question {
            Question::Approval(asked) | Question::Sampling(asked) => {
                let ApprovalQuestion { text, arguments, caller, tool, session, context } = asked.clone();
                OpenQuestion {
                    id,
                    kind,
                    text,
                    choices: Vec::new(),
                    schema: None,
                    arguments_bytes: Some(arguments.bytes),
                    arguments: Some(arguments.text),
                    caller,
                    tool,
                    session,
                    asked_at,
                    expires_at,
                    context,
                }
            }
            Question::Input(input) => OpenQuestion {
                id,
                kind,
                text: input.text.clone(),
                choices: input.choices.clone(),
                schema: input.schema.as_ref().map(|schema| schema.json.clone()),
                arguments: None,
                arguments_bytes: None,
                caller: input.caller.clone(),
                tool: input.tool.clone(),
                session: input.session.clone(),
                asked_at,
                expires_at,
                context: input.context.clone(),
            },
            Question::Elicitation(_) | Question::Login(_) => return None,
        };
        Some(Self { details, question })
    }

    /// Size of the parts that come from outside.
    fn size_bytes(&self) -> usize {
        let arguments = self.arguments();
        let arguments = arguments.map_or(0, |it| it.text.len() * 2 + it.full.as_ref().map_or(0, String::len));
        let OpenQuestion { text, choices, schema, .. } = &self.details;
        let schema = schema.as_ref().map_or(0, |schema| schema.to_string().len() * 2);
        arguments + text.len() * 2 + choices.iter().map(String::len).sum::<usize>() + schema
    }

    /// The arguments of the call to approve.
    pub fn arguments(&self) -> Option<&ShownArguments> {
        match &*self.question {
            Question::Approval(asked) | Question::Sampling(asked) => Some(&asked.arguments),
            Question::Input(_) | Question::Elicitation(_) | Question::Login { .. } => None,
        }
    }
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
    open: BTreeMap<String, (Arc<QueuedQuestion>, oneshot::Sender<HumanReply>)>,
    /// Oldest first.
    ended: VecDeque<EndedQuestion>,
    ended_bytes: usize,
    closed: bool,
}

impl QueueState {
    /// Ends an open question. `None` if it is not open: then it has ended already.
    fn end(&mut self, id: &str, end: QuestionEnd) -> Option<oneshot::Sender<HumanReply>> {
        let (question, sender) = self.open.remove(id)?;
        self.ended_bytes += question.size_bytes();
        self.ended.push_back((question, end));
        while self.ended.len() > MAX_ENDED || self.ended_bytes > MAX_ENDED_BYTES {
            let Some((oldest, _)) = self.ended.pop_front() else { break };
            self.ended_bytes -= oldest.size_bytes();
        }
        Some(sender)
    }
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
    pub fn list(&self, kind: Option<QuestionKind>) -> Vec<Arc<QueuedQuestion>> {
        let has_kind = |question: &QueuedQuestion| kind.is_none_or(|kind| question.details.kind == kind);
        let state = self.lock_state();
        state
            .open
            .values()
            .map(|(question, _)| Arc::clone(question))
            .filter(|question| has_kind(question))
            .collect()
    }

    pub fn get(&self, id: &str) -> Option<Arc<QueuedQuestion>> {
        self.lock_state().open.get(id).map(|(question, _)| Arc::clone(question))
    }

    /// The last questions that ended, newest first.
    pub fn ended(&self, kind: QuestionKind) -> Vec<EndedQuestion> {
        let state = self.lock_state();
        state.ended.iter().rev().filter(|(question, _)| question.details.kind == kind).cloned().collect()
    }

    /// One of the last questions that ended.
    pub fn get_ended(&self, id: &str) -> Option<EndedQuestion> {
        self.lock_state().ended.iter().find(|(question, _)| question.details.id == id).cloned()
    }

    /// Adds an approval or a question for input, and asks all responders, including an extra one for this question only.
    /// The first valid answer wins.
    ///
    /// # Errors
    /// If there is no one to ask, the queue is full or closed, or no answer arrives in time.
    pub async fn ask_until(
        &self,
        question: Arc<Question>,
        extra: Option<&dyn Responder>,
        deadline: Instant,
    ) -> Result<HumanReply, NoAnswer> {
        let kind = question.kind();
        let responders = self.responders.iter().map(|responder| &**responder).chain(extra);
        let responders: Vec<_> = responders.filter(|responder| responder.can_ask(kind)).collect();
        if responders.is_empty() && !self.accepts_remote_answers {
            return Err(NoAnswer::NoResponder);
        }
        let queued = QueuedQuestion::new(Arc::clone(&question), deadline).ok_or(NoAnswer::NoResponder)?;
        let (queued, mut answered) = self.enqueue(queued)?;
        let _withdrawn = WithdrawOnDrop { queue: self, id: &queued.details.id };
        let mut replies: FuturesUnordered<_> =
            responders.into_iter().map(|responder| responder.ask(Arc::clone(&question))).collect();
        let first = async {
            loop {
                tokio::select! {
                    reply = &mut answered => return reply.map_err(|_| NoAnswer::Closed),
                    Some(reply) = replies.next() => match reply {
                        Ok(reply) if question.check(&reply.answer).is_ok() => return Ok(reply),
                        _ if replies.is_empty() && !self.accepts_remote_answers => return Err(NoAnswer::NoResponder),
                        _ => {}
                    },
                }
            }
        };
        let outcome = timeout_at(deadline, first).await.unwrap_or(Err(NoAnswer::TimedOut));
        let end = match &outcome {
            Ok(reply) => QuestionEnd::answered(reply),
            Err(NoAnswer::TimedOut) => QuestionEnd::new(EndState::Expired, None),
            Err(_) => QuestionEnd::new(EndState::Withdrawn, None),
        };
        self.end(&queued.details.id, end);
        outcome
    }

    /// Ends a question, unless it has ended already.
    fn end(&self, id: &str, end: QuestionEnd) {
        let was_open = self.lock_state().end(id, end).is_some();
        if was_open {
            self.notify_change();
        }
    }

    fn enqueue(
        &self,
        queued: QueuedQuestion,
    ) -> Result<(Arc<QueuedQuestion>, oneshot::Receiver<HumanReply>), NoAnswer> {
        let queued = Arc::new(queued);
        let (sender, answered) = oneshot::channel();
        {
            let mut state = self.lock_state();
            if state.closed {
                return Err(NoAnswer::Closed);
            }
            let is_same_caller =
                |(other, _): &&(Arc<QueuedQuestion>, _)| other.details.caller == queued.details.caller;
            let of_caller = state.open.values().filter(is_same_caller).count();
            if state.open.len() >= MAX_OPEN || of_caller >= MAX_OPEN_PER_CALLER {
                return Err(NoAnswer::QueueFull);
            }
            state.open.insert(queued.details.id.clone(), (Arc::clone(&queued), sender));
        }
        self.notify_change();
        Ok((queued, answered))
    }

    /// Answers a question. `is_own` tells if the caller that asks counts as the one that answers: no caller can answer
    /// its own questions.
    ///
    /// # Errors
    /// If the question is not open, the answer is not valid, or it comes from the asking caller.
    pub fn answer(
        &self,
        id: &str,
        kind: QuestionKind,
        reply: HumanReply,
        is_own: impl Fn(&CallerId) -> bool,
    ) -> Result<(), AnswerError> {
        let not_open = || AnswerError::NotOpen(id.to_owned());
        let question = self.get(id).filter(|question| question.details.kind == kind).ok_or_else(not_open)?;
        if is_own(&question.details.caller) {
            return Err(AnswerError::OwnQuestion);
        }
        question.question.check(&reply.answer)?;
        // Removing the entry decides a race between two answers.
        let sender = self.lock_state().end(id, QuestionEnd::answered(&reply)).ok_or_else(not_open)?;
        self.notify_change();
        sender.send(reply).map_err(|_| not_open())
    }

    /// Closes the queue. Open questions end without an answer.
    pub fn close(&self) {
        let mut state = self.lock_state();
        state.closed = true;
        let open: Vec<String> = state.open.keys().cloned().collect();
        for id in open {
            state.end(&id, QuestionEnd::new(EndState::Withdrawn, None));
        }
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

impl Responder for QuestionQueue {
    fn can_ask(&self, kind: QuestionKind) -> bool {
        let waits_here = matches!(kind, QuestionKind::Approval | QuestionKind::HumanInput);
        waits_here && self.accepts_remote_answers
            || self.responders.iter().any(|responder| responder.can_ask(kind))
    }

    fn ask(&self, question: Arc<Question>) -> BoxFuture<'_, Result<HumanReply, NoAnswer>> {
        let timeout = match &*question {
            Question::Approval(_) => self.timeout.get().min(MAX_APPROVAL_WAIT),
            Question::Sampling(_) | Question::Input(_) => self.timeout.get(),
            // A person can only answer these at once, so they do not wait in the queue.
            Question::Elicitation(_) | Question::Login(_) => {
                let kind = question.kind();
                return match self.responders.iter().find(|responder| responder.can_ask(kind)) {
                    Some(responder) => responder.ask(question),
                    None => NoResponder.ask(question),
                };
            }
        };
        Box::pin(self.ask_until(question, None, Instant::now() + timeout))
    }
}

/// Removes a question from the queue on drop, if it is still open.
struct WithdrawOnDrop<'a> {
    queue: &'a QuestionQueue,
    id: &'a str,
}

impl Drop for WithdrawOnDrop<'_> {
    fn drop(&mut self) {
        self.queue.end(self.id, QuestionEnd::new(EndState::Withdrawn, None));
    }
}

#[cfg(test)]
mod tests;
