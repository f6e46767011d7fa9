//! One request on its way: what is said during it, and its end.
//!
//! Invariant: what was said comes before the end, and whoever drops an exchange cancels its request.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::Outcome;
use super::begin::Keeping;
use super::client::Said;
use super::parked::{Parked, Question};
use super::state::named;
use crate::Raw;
use crate::message::{Id, Message, RpcError};
use crate::revision::Revision;

/// Questions that come within so much time are asked together.
const GATHER: Duration = Duration::from_millis(20);
/// Questions that are open at one client.
const MOST_QUESTIONS: usize = 64;

/// A request that runs.
pub(super) struct Running {
    pub(super) answer: BoxFuture<'static, Outcome>,
    pub(super) said: mpsc::Receiver<Said>,
}

/// How a client is asked.
pub(super) enum Asking {
    /// On the stream of its request; the answer comes in a message of its own.
    Live(Keeping),
    /// With a result, to which it comes back.
    Parked { parked: Arc<Parked>, guest: Box<str>, method: Box<str>, params: Option<Raw> },
}

/// Questions that wait for their answers.
#[derive(Default)]
pub(super) struct Pending {
    next: AtomicI64,
    waiting: Mutex<HashMap<i64, oneshot::Sender<Outcome>>>,
}

impl Pending {
    fn ask(&self, question: Question) -> Option<Message> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, answer| !answer.is_closed());
        if waiting.len() >= MOST_QUESTIONS {
            let busy = RpcError::new(-32603, "too many questions are open");
            let _ = question.answer.send(Err(busy));
            return None;
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        waiting.insert(id, question.answer);
        let _ = question.asked.set(Id::Number(id));
        Some(Message::Request { id: Id::Number(id), method: question.method, params: question.params })
    }

    /// An answer of the client. One that nobody waits for is of no interest.
    pub(super) fn answered(&self, id: &Id, outcome: Outcome) {
        let Id::Number(id) = id else { return };
        let found = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        if let Some(answer) = found {
            let _ = answer.send(outcome);
        }
    }
}

/// A request on its way.
pub(super) struct Exchange {
    pub(super) id: Id,
    pub(super) revision: Revision,
    pub(super) asking: Asking,
    pub(super) running: Option<Running>,
    /// The end, where what was said comes first.
    end: Option<Outcome>,
}

/// What comes next.
pub(super) enum Next {
    /// Something that is said during it.
    Said(Message),
    /// Its answer, and the code of the error where it is one.
    End(Message, Option<i64>),
}

impl Exchange {
    pub(super) fn new(id: Id, revision: Revision, asking: Asking, running: Running) -> Self {
        Self { id, revision, asking, running: Some(running), end: None }
    }

    /// One that has ended already.
    pub(super) fn ended(id: Id, revision: Revision, asking: Asking, outcome: Outcome) -> Self {
        Self { id, revision, asking, running: None, end: Some(outcome) }
    }

    /// What comes next. Behind the end there is nothing.
    pub(super) async fn next(&mut self) -> Next {
        loop {
            let Some(running) = &mut self.running else { return self.finish() };
            if self.end.is_some() {
                match running.said.try_recv() {
                    Ok(said) => {
                        if let Some(next) = self.take(said).await {
                            return next;
                        }
                    }
                    Err(_) => self.running = None,
                }
                continue;
            }
            tokio::select! {
                biased;
                Some(said) = running.said.recv() => {
                    if let Some(next) = self.take(said).await {
                        return next;
                    }
                }
                outcome = &mut running.answer => self.end = Some(outcome),
            }
        }
    }

    async fn take(&mut self, said: Said) -> Option<Next> {
        let question = match said {
            Said::Notification(message) => return Some(Next::Said(message)),
            Said::Question { method, params, answer, asked } => Question { method, params, answer, asked },
        };
        if question.answer.is_closed() {
            return None;
        }
        match &self.asking {
            Asking::Live(keeping) => keeping.keep().pending.ask(question).map(Next::Said),
            Asking::Parked { parked, guest, method, params } => {
                // What is asked at the same time is answered at the same time.
                let mut running = self.running.take()?;
                let (mut questions, mut rest) = (vec![question], None);
                let moment = Instant::now() + GATHER;
                while let Ok(Some(said)) = timeout_at(moment, running.said.recv()).await {
                    match said {
                        Said::Question { method, params, answer, asked } => {
                            questions.push(Question { method, params, answer, asked });
                        }
                        Said::Notification(message) => {
                            rest = Some(message);
                            break;
                        }
                    }
                }
                let outcome = parked.park(guest, &named(method, params.as_ref()), running, questions);
                self.end = Some(outcome);
                rest.map(Next::Said)
            }
        }
    }

    fn finish(&mut self) -> Next {
        let gone = || Err(RpcError::new(-32603, "the request has ended"));
        let outcome = self.end.take().unwrap_or_else(gone);
        let code = outcome.as_ref().err().map(|error| error.code);
        Next::End(Message::Response { id: self.id.clone(), outcome }, code)
    }
}
