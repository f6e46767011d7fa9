//! How long calls wait, how many of them, and for whom.

use std::sync::Weak;

use tokio::sync::mpsc;

use super::*;

/// A call that answers what it was told in reply to its question; says whether it still runs, too.
fn call() -> (Running, Vec<Question>, Weak<()>) {
    let (answer, answered) = oneshot::channel();
    let running = Arc::new(());
    let runs = Arc::downgrade(&running);
    let question =
        Question { method: "elicitation/create".into(), params: None, answer, asked: Default::default() };
    let answer = Box::pin(async move {
        let _running = running;
        answered.await.unwrap_or_else(|_| Err(RpcError::new(-32603, "nobody answered")))
    });
    (Running { answer, said: mpsc::channel(1).1 }, vec![question], runs)
}

/// Parks one; gives its state and whether it still runs.
fn park(parked: &Arc<Parked>, guest: &str) -> Result<(String, Weak<()>), RpcError> {
    let (running, questions, runs) = call();
    let told: Value = parked.park(guest, "tools/call echo", running, questions)?.parse().unwrap();
    assert_eq!(told["resultType"], "input_required");
    Ok((told["requestState"].as_str().unwrap().to_owned(), runs))
}

/// What comes of coming back with an answer: the result of the call, or the code of the refusal.
async fn resume(parked: &Arc<Parked>, guest: &str, method: &str, state: &str) -> Result<Raw, i64> {
    resume_as(parked, guest, (method, "echo"), state).await
}

async fn resume_as(
    parked: &Arc<Parked>,
    guest: &str,
    (method, tool): (&str, &str),
    state: &str,
) -> Result<Raw, i64> {
    let params = json!({ "name": tool, "requestState": state, "inputResponses": { "question-1": { "action": "accept" } } });
    match parked.resume(guest, method, Some(&Raw::of(&params))).expect("the state is one of ours") {
        Ok(running) => running.answer.await.map_err(|error| error.code),
        Err(outcome) => outcome.map_err(|error| error.code),
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_ten_minutes_and_no_longer() {
    let parked = Arc::new(Parked::default());
    let (early, _) = park(&parked, "ann").unwrap();
    let (late, runs) = park(&parked, "ann").unwrap();
    tokio::time::sleep(WAITS - Duration::from_secs(1)).await;
    assert_eq!(resume(&parked, "ann", "tools/call", &early).await.unwrap().get(), r#"{"action":"accept"}"#);
    assert!(runs.upgrade().is_some());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(runs.upgrade().is_none(), "what nobody comes back for is cancelled");
    assert_eq!(resume(&parked, "ann", "tools/call", &late).await, Err(-32602));
    assert!(parked.lock().is_empty());
}

/// A state that is bent, of somebody else, of another request, or used is none; and nothing happens to the call.
#[tokio::test(start_paused = true)]
async fn a_state_is_good_once_and_for_who_got_it() {
    let parked = Arc::new(Parked::default());
    let (state, runs) = park(&parked, "ann").unwrap();
    for at in PREFIX.len()..state.len() {
        let mut bent = state.clone().into_bytes();
        bent[at] = if bent[at] == b'A' { b'B' } else { b'A' };
        let bent = String::from_utf8(bent).unwrap();
        assert_eq!(resume(&parked, "ann", "tools/call", &bent).await, Err(-32602), "{at}");
    }
    assert_eq!(resume(&parked, "bob", "tools/call", &state).await, Err(-32602), "another guest");
    assert_eq!(resume(&parked, "ann", "prompts/get", &state).await, Err(-32602), "another request");
    assert_eq!(resume_as(&parked, "ann", ("tools/call", "other"), &state).await, Err(-32602), "another tool");
    assert!(runs.upgrade().is_some());
    assert!(resume(&parked, "ann", "tools/call", &state).await.is_ok());
    assert_eq!(resume(&parked, "ann", "tools/call", &state).await, Err(-32602), "a second time");
    let other = Raw::of(&json!({ "requestState": "a server's own" }));
    assert!(parked.resume("ann", "tools/call", Some(&other)).is_none(), "not ours, so it is passed on");
}

#[tokio::test(start_paused = true)]
async fn so_many_wait_and_no_more() {
    let parked = Arc::new(Parked::default());
    let own: Vec<_> = (0..MOST_EACH).map(|_| park(&parked, "ann").unwrap()).collect();
    let (running, questions, runs) = call();
    let refused = parked.park("ann", "tools/call echo", running, questions).unwrap_err();
    assert_eq!(refused.message, "too many calls wait for an answer");
    assert!(runs.upgrade().is_none(), "one that has no place does not run on");
    let others = (0..).map(|number| park(&parked, &format!("guest-{number}"))).take_while(Result::is_ok);
    assert_eq!(others.count() + own.len(), MOST, "all guests together");
    assert!(resume(&parked, "ann", "tools/call", &own[0].0).await.is_ok());
    assert!(park(&parked, "bob").is_ok(), "there is room again");
}
