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

/// Questions that follow each other this closely are asked together, where whoever asked first waits this long at
/// most. A person or a model takes seconds; a server on a busy machine takes its time between two questions, too.
const GATHER: Duration = Duration::from_millis(100);
const GATHER_MOST: Duration = Duration::from_millis(500);
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
                let most = Instant::now() + GATHER_MOST;
                let soon = || most.min(Instant::now() + GATHER);
                while let Ok(Some(said)) = timeout_at(soon(), running.said.recv()).await {
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

#[tokio::test(start_paused = true)]
async fn questions_that_follow_each_other_closely_are_asked_together() {
    for (pauses, together) in [(&[0, 60, 60][..], 3), (&[60, 110], 1), (&[0, 90, 90, 90, 90, 90, 90, 90], 6)]
    {
        let (say, said) = mpsc::channel(1);
        let ask = async move {
            let mut open = Vec::new();
            for pause in pauses {
                tokio::time::sleep(Duration::from_millis(*pause)).await;
                let (method, params, asked) = ("roots/list".into(), None, super::client::Asked::default());
                let (answer, answered) = oneshot::channel();
                open.push(answered);
                // Nobody hears what is asked too late.
                let _ = say.send(Said::Question { method, params, answer, asked }).await;
            }
            std::future::pending().await
        };
        let (parked, guest, method) = (Arc::default(), "ann".into(), "tools/call".into());
        let asking = Asking::Parked { parked, guest, method, params: None };
        let running = Running { answer: Box::pin(std::future::pending()), said };
        let mut exchange = Exchange::new(Id::Number(1), Revision::NEWEST, asking, running);
        let next = tokio::select! {
            () = ask => unreachable!("it asks for ever"),
            next = exchange.next() => next,
        };
        let Next::End(Message::Response { outcome: Ok(result), .. }, None) = next else {
            panic!("no result")
        };
        let result: serde_json::Value = result.parse().unwrap();
        assert_eq!(result["inputRequests"].as_object().unwrap().len(), together, "{pauses:?}");
    }
}
