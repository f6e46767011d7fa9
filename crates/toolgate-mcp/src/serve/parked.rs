//! Requests that wait for an answer of a client that has no open connection.
//!
//! A server of an older revision asks in the middle of a call; a client of the newest one gets that question as a
//! result, and comes back with the answer in a new request. In between the call waits here. Invariant: only the
//! guest who made a request can go on with it, in the way it was made; what nobody comes back for ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::client::Asked;
use super::exchange::Running;
use super::state::named;
use super::{Outcome, session};
use crate::Raw;
use crate::message::RpcError;

/// How long a call waits for its client to come back.
const WAITS: Duration = Duration::from_secs(600);
/// Calls that wait, in all and of one guest.
const MOST: usize = 4_096;
const MOST_EACH: usize = 64;
/// How a state of ours begins, so that it is told from one of a server behind us.
const PREFIX: &str = "tg1.";

/// A question that was asked and has no answer yet.
pub(super) struct Question {
    pub(super) method: Box<str>,
    pub(super) params: Option<Raw>,
    pub(super) answer: oneshot::Sender<Outcome>,
    pub(super) asked: Asked,
}

struct Waiting {
    guest: Box<str>,
    /// Its method, and what it names.
    request: Box<str>,
    running: Running,
    questions: Vec<(String, Question)>,
}

/// Calls that wait for their clients.
#[derive(Default)]
pub(super) struct Parked {
    all: Mutex<HashMap<Box<str>, Waiting>>,
    /// What ends each of them, should nobody come back.
    ends: Mutex<JoinSet<()>>,
}

impl Parked {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Box<str>, Waiting>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a call wait; gives what the client is told in place of a result.
    pub(super) fn park(
        self: &Arc<Self>,
        guest: &str,
        request: &str,
        running: Running,
        questions: Vec<Question>,
    ) -> Outcome {
        let numbered = questions.into_iter().enumerate();
        let questions: Vec<_> =
            numbered.map(|(at, question)| (format!("question-{}", at + 1), question)).collect();
        self.wait(Waiting { guest: guest.into(), request: request.into(), running, questions })
    }

    fn wait(self: &Arc<Self>, waiting: Waiting) -> Outcome {
        let asked = |(key, question): &(String, Question)| {
            let mut asked = json!({ "method": question.method });
            if let Some(params) = &question.params {
                asked["params"] = params.parse().unwrap_or_default();
            }
            (key.clone(), asked)
        };
        let requests: Map<String, Value> = waiting.questions.iter().map(asked).collect();
        let state: Box<str> = format!("{PREFIX}{}", session::unguessable()).into();
        let mut all = self.lock();
        let own = all.values().filter(|other| other.guest == waiting.guest).count();
        if all.len() >= MOST || own >= MOST_EACH {
            return Err(RpcError::new(-32603, "too many calls wait for an answer"));
        }
        all.insert(state.clone(), waiting);
        drop(all);
        let (parked, key) = (Arc::downgrade(self), state.clone());
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        while ends.try_join_next().is_some() {}
        ends.spawn(async move {
            tokio::time::sleep(WAITS).await;
            // Dropped outside of the lock: it cancels the call.
            let left = parked.upgrade().and_then(|parked| parked.lock().remove(&key));
            drop(left);
        });
        Ok(Raw::of(&json!({
            "resultType": "input_required",
            "inputRequests": requests,
            "requestState": &*state,
        })))
    }

    /// Goes on with a call, where a request says so. What it answers is given to who asked.
    pub(super) fn resume(
        self: &Arc<Self>,
        guest: &str,
        method: &str,
        params: Option<&Raw>,
    ) -> Option<Result<Running, Outcome>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            #[serde(default)]
            request_state: Option<String>,
            #[serde(borrow, default)]
            input_responses: HashMap<String, &'a RawValue>,
        }
        let params = params.filter(|params| params.get().contains(PREFIX))?;
        let found: Params<'_> = params.look().ok()?;
        let state = found.request_state.filter(|state| state.starts_with(PREFIX))?;
        let unknown = || {
            Err(Err(RpcError::new(RpcError::INVALID_PARAMS, "the `requestState` is not one that waits here")))
        };
        let request = named(method, Some(params));
        let mut all = self.lock();
        let ours = all
            .get(state.as_str())
            .is_some_and(|waiting| &*waiting.guest == guest && waiting.request == request);
        let waiting = if ours { all.remove(state.as_str()) } else { None };
        drop(all);
        let Some(mut waiting) = waiting else { return Some(unknown()) };
        let mut open = Vec::new();
        for (key, question) in waiting.questions {
            match found.input_responses.get(&key) {
                Some(response) => drop(question.answer.send(Ok(params.slice(response.get())))),
                None => open.push((key, question)),
            }
        }
        if open.is_empty() {
            return Some(Ok(waiting.running));
        }
        // What was not answered is asked again.
        waiting.questions = open;
        Some(Err(self.wait(waiting)))
    }
}

#[cfg(test)]
mod tests;
