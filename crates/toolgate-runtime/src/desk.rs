//! The desk: where questions to people wait, until somebody answers, nobody does, or whoever asked has left.
//!
//! A question is put here by the tool `request_human_input` and by rules that ask. It is answered by a [`Way`] to a
//! person (the terminal, for one), or by whoever comes to the desk through a door. Invariant: the first answer that
//! fits counts and there is no second one; what waits is bounded in number, size and time; whoever leaves takes its
//! question along.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value as Json;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};
use toolgate_policy::Schema;
use toolgate_types::{CallerId, HumanDuration};
use toolgate_upstream::Trace;

mod approvals;
mod client;
mod input;

pub use approvals::AtDesk;
pub use input::{REQUEST_HUMAN_INPUT, tool};

/// Questions that wait, of all callers and of one.
const MOST_WAITING: usize = 256;
const MOST_OF_ONE: usize = 16;
/// Bytes of an answer.
const LONGEST_ANSWER: usize = 64 << 10;

/// What a question is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A tool wants to know something.
    HumanInput,
    /// A rule wants a yes before a call is made.
    Approval,
}

/// A question on the desk, as people are shown it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Posted {
    /// What it is answered by.
    pub id: String,
    /// What it is for.
    pub kind: Kind,
    /// The question.
    pub text: String,
    /// The answers to choose from; any where it is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// What the answer has to fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Json>,
    /// With what a tool would be called, for an approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// Who asks, or would call.
    pub caller: CallerId,
    /// The tool that asks, or would be called.
    pub tool: String,
    /// The session of the call, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// When it was asked.
    pub asked_at: String,
    /// Until when it can be answered.
    pub expires_at: String,
}

/// A question before it is on the desk.
#[derive(Debug)]
pub struct Asking {
    /// What it is for.
    pub kind: Kind,
    /// The question.
    pub text: String,
    /// The answers to choose from.
    pub choices: Vec<String>,
    /// What the answer has to fit.
    pub schema: Option<Json>,
    /// With what a tool would be called.
    pub arguments: Option<String>,
    /// Who asks.
    pub caller: CallerId,
    /// The tool.
    pub tool: String,
    /// The session.
    pub session: Option<String>,
}

/// What a person says.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// This.
    Given(Json),
    /// Nothing, perhaps with a reason.
    Declined(Option<String>),
}

/// An answer, and whose it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// What was said.
    pub answer: Answer,
    /// By whom.
    pub by: String,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// There is no way to anybody.
    #[error("nobody can be asked here")]
    Nobody,
    /// Too many questions wait.
    #[error("too many questions wait for an answer already")]
    Full,
    /// Nobody answered in time.
    #[error("nobody answered in time")]
    Late,
    /// The desk is closed.
    #[error("nobody is asked any more, as Toolgate stops")]
    Closed,
    /// What the answer has to fit is no schema.
    #[error("`schema`: {0}")]
    Schema(String),
}

/// Why an answer does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The question is not there: answered, withdrawn, late, or never asked.
    #[error("there is no open question `{0}`: it was answered, withdrawn, or nobody answered in time")]
    Absent(String),
    /// Whoever asks cannot answer.
    #[error("whoever asks cannot answer: somebody else has to")]
    Own,
    /// It does not fit.
    #[error("the answer does not fit: {0}")]
    Misfit(String),
}

/// A question, with what tells whether an answer fits.
#[derive(Debug)]
pub struct Question {
    /// As people are shown it.
    pub posted: Posted,
    schema: Option<Schema>,
}

impl Question {
    /// Whether an answer fits.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self, answer: &Answer) -> Result<(), AnswerError> {
        let Answer::Given(value) = answer else { return Ok(()) };
        let misfit = |why: String| Err(AnswerError::Misfit(why));
        if value.to_string().len() > LONGEST_ANSWER {
            return misfit(format!("it has more than {LONGEST_ANSWER} bytes"));
        }
        let Posted { kind, choices, .. } = &self.posted;
        match (&self.schema, value) {
            _ if *kind == Kind::Approval => {
                if value.is_boolean() {
                    Ok(())
                } else {
                    misfit("it is `true` or `false`".to_owned())
                }
            }
            (Some(schema), value) => {
                schema.check(value).map_err(|misfit| AnswerError::Misfit(misfit.to_string()))
            }
            (None, Json::String(text)) if choices.is_empty() && !text.trim().is_empty() => Ok(()),
            (None, Json::String(text)) if choices.contains(text) => Ok(()),
            (None, _) if choices.is_empty() => misfit("it is a text that says something".to_owned()),
            (None, _) => misfit(format!("it is one of `{}`", choices.join("`, `"))),
        }
    }
}

/// A way to a person beside the desk itself: the terminal, or a client that can ask.
pub trait Way: Send + Sync + 'static {
    /// Asks, and gives what was said; `None` where this way does not lead to anybody. Whoever drops this does not
    /// want to know any more.
    fn ask(&self, question: Arc<Question>) -> BoxFuture<'static, Option<Reply>>;
}

/// Questions that wait, and how people hear of them.
pub struct Desk {
    waiting: Mutex<Waiting>,
    changes: watch::Sender<u64>,
    ways: Vec<Arc<dyn Way>>,
    /// Whether people come to the desk, through a door.
    visited: bool,
    patience: HumanDuration,
}

#[derive(Default)]
struct Waiting {
    open: BTreeMap<String, (Arc<Question>, oneshot::Sender<Reply>)>,
    closed: bool,
}

impl Desk {
    /// A desk. A person has this long to answer; `visited` says that people come to it, beside the ways to them.
    pub fn new(patience: HumanDuration, visited: bool, ways: Vec<Arc<dyn Way>>) -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::default(), changes: watch::Sender::new(0), ways, visited, patience })
    }

    /// How long a person has to answer.
    pub fn patience(&self) -> HumanDuration {
        self.patience
    }

    /// How often the questions that wait have changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The questions that wait, the oldest first.
    pub fn list(&self, kind: Option<Kind>) -> Vec<Arc<Question>> {
        let fits = |question: &Question| kind.is_none_or(|kind| question.posted.kind == kind);
        let waiting = self.waiting();
        waiting.open.values().map(|(question, _)| Arc::clone(question)).filter(|one| fits(one)).collect()
    }

    /// One of them.
    pub fn get(&self, id: &str) -> Option<Arc<Question>> {
        self.waiting().open.get(id).map(|(question, _)| Arc::clone(question))
    }

    /// Puts a question on the desk and to every way there is, one that this question alone has among them; the
    /// first answer that fits counts.
    ///
    /// # Errors
    /// When nobody can be asked, or nobody answers in time.
    pub async fn ask(
        &self,
        asking: Asking,
        own: Option<Arc<dyn Way>>,
        deadline: Instant,
    ) -> Result<Reply, Unanswered> {
        if self.ways.is_empty() && own.is_none() && !self.visited {
            return Err(Unanswered::Nobody);
        }
        let (question, mut answered) = self.post(asking, deadline)?;
        let _withdrawn = Withdrawn { desk: self, id: &question.posted.id };
        let mut ways: FuturesUnordered<_> =
            self.ways.iter().chain(&own).map(|way| way.ask(Arc::clone(&question))).collect();
        let first = async {
            loop {
                tokio::select! {
                    reply = &mut answered => return reply.map_err(|_| Unanswered::Closed),
                    Some(reply) = ways.next() => match reply {
                        Some(reply) if question.check(&reply.answer).is_ok() => return Ok(reply),
                        _ if ways.is_empty() && !self.visited => return Err(Unanswered::Nobody),
                        _ => {}
                    },
                }
            }
        };
        timeout_at(deadline, first).await.unwrap_or(Err(Unanswered::Late))
    }

    fn post(
        &self,
        asking: Asking,
        deadline: Instant,
    ) -> Result<(Arc<Question>, oneshot::Receiver<Reply>), Unanswered> {
        let Asking { kind, text, choices, schema, arguments, caller, tool, session } = asking;
        let compiled = schema.as_ref().map(Schema::new).transpose();
        let compiled = compiled.map_err(|error| Unanswered::Schema(error.to_string()))?;
        let now = Timestamp::now();
        let left = deadline.saturating_duration_since(Instant::now());
        let posted = Posted {
            // Ids grow with time, so the oldest comes first.
            id: Trace::fresh().correlation_id().to_owned(),
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
        let question = Arc::new(Question { posted, schema: compiled });
        let (tell, answered) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            if waiting.closed {
                return Err(Unanswered::Closed);
            }
            let own = |(one, _): &&(Arc<Question>, _)| one.posted.caller == question.posted.caller;
            let own = waiting.open.values().filter(own).count();
            if waiting.open.len() >= MOST_WAITING || own >= MOST_OF_ONE {
                return Err(Unanswered::Full);
            }
            waiting.open.insert(question.posted.id.clone(), (Arc::clone(&question), tell));
        }
        self.changed();
        Ok((question, answered))
    }

    /// Answers a question. `caller` is who answers, where it is one: whoever asks cannot answer.
    ///
    /// # Errors
    /// When there is no such question, the answer does not fit, or it is by who asked.
    pub fn answer(
        &self,
        id: &str,
        kind: Kind,
        reply: Reply,
        caller: Option<&CallerId>,
    ) -> Result<(), AnswerError> {
        let absent = || AnswerError::Absent(id.to_owned());
        let question = self.get(id).filter(|one| one.posted.kind == kind).ok_or_else(absent)?;
        if caller == Some(&question.posted.caller) {
            return Err(AnswerError::Own);
        }
        question.check(&reply.answer)?;
        // Whoever takes it off the desk is the first.
        let (_, tell) = self.waiting().open.remove(id).ok_or_else(absent)?;
        self.changed();
        tell.send(reply).map_err(|_| absent())
    }

    /// Takes no question any more; those that wait end unanswered.
    pub fn close(&self) {
        let mut waiting = self.waiting();
        waiting.closed = true;
        waiting.open.clear();
        drop(waiting);
        self.changed();
    }

    fn changed(&self) {
        self.changes.send_modify(|version| *version += 1);
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a question off the desk, where it still is.
struct Withdrawn<'a> {
    desk: &'a Desk,
    id: &'a str,
}

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        let there = self.desk.waiting().open.remove(self.id).is_some();
        if there {
            self.desk.changed();
        }
    }
}

#[cfg(test)]
mod tests;
