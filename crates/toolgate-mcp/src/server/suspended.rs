//! Requests suspended until a client without an open connection answers a question.
//!
//! A server of an older revision asks in the middle of a call. A client of the newest revision receives the question
//! as a result and sends the answer in a new request; meanwhile the call is suspended here. Invariant: only the
//! caller that made a request can resume it, with the same method and target; requests that are not resumed expire.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::client::SentId;
use super::exchange::RunningRequest;
use super::request_state::request_key;
use super::{RpcResult, session};
use crate::RawJson;
use crate::message::{MethodName, RpcError};

/// Time a call stays suspended.
const SUSPEND_TIMEOUT: Duration = Duration::from_secs(600);
/// Suspended calls, in total and per caller.
const MAX_SUSPENDED: usize = 4_096;
const MAX_PER_CALLER: usize = 64;
/// Prefix that distinguishes our states from those of upstream servers.
const PREFIX: &str = "tg1.";

/// Unanswered question to a client.
pub(super) struct ClientQuestion {
    pub(super) method: MethodName,
    pub(super) params: Option<RawJson>,
    pub(super) answer: oneshot::Sender<RpcResult>,
    pub(super) sent_id: SentId,
}

struct SuspendedRequest {
    caller: Box<str>,
    /// Method and target; see [`request_key`].
    request: Box<str>,
    running: RunningRequest,
    questions: Vec<(String, ClientQuestion)>,
}

/// Suspended requests by their `requestState`.
#[derive(Default)]
pub(super) struct SuspendedRequests {
    all: Mutex<HashMap<Box<str>, SuspendedRequest>>,
    /// Tasks that expire the entries.
    expiries: Mutex<JoinSet<()>>,
}

impl SuspendedRequests {
    fn lock(&self) -> parking_lot::MutexGuard<'_, HashMap<Box<str>, SuspendedRequest>> {
        self.all.lock()
    }

    /// Suspends a call and returns the `input_required` result for the client.
    pub(super) fn suspend(
        self: &Arc<Self>,
        caller: &str,
        request: &str,
        running: RunningRequest,
        questions: Vec<ClientQuestion>,
    ) -> RpcResult {
        let numbered = questions.into_iter().enumerate();
        let questions: Vec<_> =
            numbered.map(|(at, question)| (format!("question-{}", at + 1), question)).collect();
        self.wait(SuspendedRequest { caller: caller.into(), request: request.into(), running, questions })
    }

    fn wait(self: &Arc<Self>, suspended: SuspendedRequest) -> RpcResult {
        let to_json = |(key, question): &(String, ClientQuestion)| {
            let mut request = json!({ "method": &*question.method });
            if let Some(params) = &question.params {
                request["params"] = params.parse().unwrap_or_default();
            }
            (key.clone(), request)
        };
        let requests: Map<String, Value> = suspended.questions.iter().map(to_json).collect();
        let state: Box<str> = format!("{PREFIX}{}", session::random_id()).into();
        let mut all = self.lock();
        let of_caller = all.values().filter(|other| other.caller == suspended.caller).count();
        if all.len() >= MAX_SUSPENDED || of_caller >= MAX_PER_CALLER {
            return Err(RpcError::new(-32603, "too many suspended calls"));
        }
        all.insert(state.clone(), suspended);
        drop(all);
        let (suspended_requests, key) = (Arc::downgrade(self), state.clone());
        let mut expiries = self.expiries.lock();
        while expiries.try_join_next().is_some() {}
        expiries.spawn(async move {
            tokio::time::sleep(SUSPEND_TIMEOUT).await;
            // Dropped outside the lock: dropping cancels the call.
            let expired = suspended_requests
                .upgrade()
                .and_then(|suspended_requests| suspended_requests.lock().remove(&key));
            drop(expired);
        });
        Ok(RawJson::from_value(&json!({
            "resultType": "input_required",
            "inputRequests": requests,
            "requestState": &*state,
        })))
    }

    /// Resumes a call if the request carries one of our states, and delivers the client's answers.
    pub(super) fn resume(
        self: &Arc<Self>,
        caller: &str,
        method: &str,
        params: Option<&RawJson>,
    ) -> Option<Result<RunningRequest, RpcResult>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            #[serde(default)]
            request_state: Option<String>,
            #[serde(borrow, default)]
            input_responses: HashMap<String, &'a RawValue>,
        }
        let params = params.filter(|params| params.as_str().contains(PREFIX))?;
        let found: Params<'_> = params.parse_borrowed().ok()?;
        let state = found.request_state.filter(|state| state.starts_with(PREFIX))?;
        let unknown =
            || Err(Err(RpcError::new(RpcError::INVALID_PARAMS, "unknown or expired `requestState`")));
        let request = request_key(method, Some(params));
        let mut all = self.lock();
        let is_owner = all
            .get(state.as_str())
            .is_some_and(|suspended| &*suspended.caller == caller && suspended.request == request);
        let suspended = if is_owner { all.remove(state.as_str()) } else { None };
        drop(all);
        let Some(mut suspended) = suspended else { return Some(unknown()) };
        let mut open = Vec::new();
        for (key, question) in suspended.questions {
            match found.input_responses.get(&key) {
                Some(response) => drop(question.answer.send(Ok(params.slice(response.get())))),
                None => open.push((key, question)),
            }
        }
        if open.is_empty() {
            return Some(Ok(suspended.running));
        }
        // Unanswered questions are asked again.
        suspended.questions = open;
        Some(Err(self.wait(suspended)))
    }
}

#[cfg(test)]
mod tests;
