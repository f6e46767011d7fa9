//! Timeout, limits and ownership of suspended calls.

use std::sync::Weak;

use super::*;
use crate::server::client_queue::message_queue;
use crate::server::exchange::AnswerStep;

/// Call that returns the answer to its question; the weak reference is dead once the call is dropped.
fn call() -> (RunningRequest, Vec<ClientQuestion>, Weak<()>) {
    let (answer, answered) = oneshot::channel();
    let running = Arc::new(());
    let runs = Arc::downgrade(&running);
    let question = ClientQuestion {
        method: "elicitation/create".into(),
        params: None,
        answer,
        sent_id: Default::default(),
    };
    let answer = Box::pin(async move {
        let _running = running;
        answered.await.unwrap_or_else(|_| Err(RpcError::new(-32603, "no answer")))
    });
    (RunningRequest { answer, step: AnswerStep::None, messages: message_queue(1).1 }, vec![question], runs)
}

/// Suspends a call; returns its state and the weak reference.
fn suspend(
    suspended_requests: &Arc<SuspendedRequests>,
    caller: &str,
) -> Result<(String, Weak<()>), RpcError> {
    let (running, questions, runs) = call();
    let result: Value =
        suspended_requests.suspend(caller, "tools/call echo", running, questions)?.parse().unwrap();
    assert_eq!(result["resultType"], "input_required");
    Ok((result["requestState"].as_str().unwrap().to_owned(), runs))
}

/// Resumes a call with an answer; returns its result, or the code of the error.
async fn resume(
    suspended_requests: &Arc<SuspendedRequests>,
    caller: &str,
    method: &str,
    state: &str,
) -> Result<RawJson, i64> {
    resume_as(suspended_requests, caller, (method, "echo"), state).await
}

async fn resume_as(
    suspended_requests: &Arc<SuspendedRequests>,
    caller: &str,
    (method, tool): (&str, &str),
    state: &str,
) -> Result<RawJson, i64> {
    let params = json!({ "name": tool, "requestState": state, "inputResponses": { "question-1": { "action": "accept" } } });
    match suspended_requests
        .resume(caller, method, Some(&RawJson::from_value(&params)))
        .expect("the state has our prefix")
    {
        Ok(running) => running.answer.await.map_err(|error| error.code),
        Err(outcome) => outcome.map_err(|error| error.code),
    }
}

#[tokio::test(start_paused = true)]
async fn suspended_call_expires_after_ten_minutes() {
    let suspended_requests = Arc::new(SuspendedRequests::default());
    let (early, _) = suspend(&suspended_requests, "ann").unwrap();
    let (late, runs) = suspend(&suspended_requests, "ann").unwrap();
    tokio::time::sleep(SUSPEND_TIMEOUT - Duration::from_secs(1)).await;
    assert_eq!(
        resume(&suspended_requests, "ann", "tools/call", &early).await.unwrap().as_str(),
        r#"{"action":"accept"}"#
    );
    assert!(runs.upgrade().is_some());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(runs.upgrade().is_none(), "an expired call is cancelled");
    assert_eq!(resume(&suspended_requests, "ann", "tools/call", &late).await, Err(-32602));
    assert!(suspended_requests.lock().is_empty());
}

/// A state that is forged, used, or of another caller or request is rejected and does not affect the call.
#[tokio::test(start_paused = true)]
async fn state_is_valid_once_and_only_for_its_caller() {
    let suspended_requests = Arc::new(SuspendedRequests::default());
    let (state, runs) = suspend(&suspended_requests, "ann").unwrap();
    for at in PREFIX.len()..state.len() {
        let mut forged = state.clone().into_bytes();
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(forged).unwrap();
        assert_eq!(resume(&suspended_requests, "ann", "tools/call", &forged).await, Err(-32602), "{at}");
    }
    assert_eq!(resume(&suspended_requests, "bob", "tools/call", &state).await, Err(-32602), "another caller");
    assert_eq!(
        resume(&suspended_requests, "ann", "prompts/get", &state).await,
        Err(-32602),
        "another request"
    );
    assert_eq!(
        resume_as(&suspended_requests, "ann", ("tools/call", "other"), &state).await,
        Err(-32602),
        "another tool"
    );
    assert!(runs.upgrade().is_some());
    assert!(resume(&suspended_requests, "ann", "tools/call", &state).await.is_ok());
    assert_eq!(resume(&suspended_requests, "ann", "tools/call", &state).await, Err(-32602), "a second time");
    let other = RawJson::from_value(&json!({ "requestState": "a server's own" }));
    assert!(
        suspended_requests.resume("ann", "tools/call", Some(&other)).is_none(),
        "not ours, so it is forwarded"
    );
}

#[tokio::test(start_paused = true)]
async fn suspended_calls_are_limited() {
    let suspended_requests = Arc::new(SuspendedRequests::default());
    let own: Vec<_> = (0..MAX_PER_CALLER).map(|_| suspend(&suspended_requests, "ann").unwrap()).collect();
    let (running, questions, runs) = call();
    let refused = suspended_requests.suspend("ann", "tools/call echo", running, questions).unwrap_err();
    assert_eq!(refused.message, "too many suspended calls");
    assert!(runs.upgrade().is_none(), "a rejected call is cancelled");
    let others = (0..)
        .map(|number| suspend(&suspended_requests, &format!("caller-{number}")))
        .take_while(Result::is_ok);
    assert_eq!(others.count() + own.len(), MAX_SUSPENDED, "all callers together");
    assert!(resume(&suspended_requests, "ann", "tools/call", &own[0].0).await.is_ok());
    assert!(suspend(&suspended_requests, "bob").is_ok(), "there is room again");
}
