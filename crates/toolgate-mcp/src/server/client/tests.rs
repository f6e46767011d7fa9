//! Requests to clients and their cancellation.

use std::sync::Arc;

use super::*;
use crate::server::client_queue::{MessageReceiver, message_queue};
use crate::server::exchange::{AnswerStep, ExchangeEvent, QuestionDelivery, RequestExchange, RunningRequest};
use crate::server::incoming::SessionState;

fn client(capabilities: Value) -> (Arc<ClientHandle>, MessageReceiver) {
    let (out, messages) = message_queue(QUEUE);
    let client = ClientHandle {
        identity: 1,
        revision: Revision::V2025_11_25,
        capabilities: Arc::new(capabilities),
        progress: None,
        log_level: None,
        roots_version: 0,
        out,
        user_wait: OnceLock::new(),
        missing_capability: OnceLock::new(),
    };
    (Arc::new(client), messages)
}

/// Returns `None` if the request is sent; otherwise the missing capability and the error code for the server.
async fn refusal(capabilities: Value, method: &str, params: Value) -> Option<(Value, i64)> {
    let (client, mut messages) = client(capabilities);
    let asking = client.ask(method, Some(RawJson::from_value(&params)));
    tokio::select! {
        outcome = asking => Some((client.missing_capability.get().cloned()?, outcome.unwrap_err().code)),
        message = messages.recv() => {
            assert!(matches!(message, ClientMessage::Request { .. }));
            None
        }
    }
}

#[tokio::test]
async fn requests_need_declared_capabilities() {
    let url =
        || json!({ "mode": "url", "url": "https://example.com", "elicitationId": "1", "message": "Go." });
    let form = || json!({ "message": "Who?", "requestedSchema": {} });
    let missing = |expected: Value, code: i64| Some((expected, code));
    let elicit = "elicitation/create";
    for (capabilities, params, expected) in [
        (json!({ "elicitation": {} }), form(), None),
        (json!({ "elicitation": { "form": {} } }), form(), None),
        (json!({ "elicitation": { "form": {}, "url": {} } }), url(), None),
        (json!({ "elicitation": { "url": {} } }), url(), None),
        (json!({ "elicitation": {} }), url(), missing(json!({ "elicitation": { "url": {} } }), -32602)),
        (
            json!({ "elicitation": { "form": {} } }),
            url(),
            missing(json!({ "elicitation": { "url": {} } }), -32602),
        ),
        (
            json!({ "elicitation": { "url": {} } }),
            form(),
            missing(json!({ "elicitation": { "form": {} } }), -32602),
        ),
        (
            json!({ "elicitation": { "form": {} } }),
            json!({ "mode": "other" }),
            missing(json!({ "elicitation": { "other": {} } }), -32602),
        ),
        (json!({ "sampling": {} }), form(), missing(json!({ "elicitation": {} }), -32601)),
    ] {
        assert_eq!(
            refusal(capabilities.clone(), elicit, params.clone()).await,
            expected,
            "{capabilities} {params}"
        );
    }
    assert_eq!(refusal(json!({ "sampling": {} }), "sampling/createMessage", json!({})).await, None);
    let unknown = refusal(json!({ "sampling": {} }), "sampling/other", json!({})).await;
    assert_eq!(unknown, missing(json!({ "sampling": {} }), -32601));
}

/// An unanswered question is cancelled at the client when the server stops waiting; an answered one is not.
#[tokio::test]
async fn unanswered_question_is_cancelled_at_the_client() {
    let (client, messages) = client(json!({ "sampling": {} }));
    let data: Arc<crate::server::session::SessionData> = Arc::default();
    let running =
        RunningRequest { answer: Box::pin(std::future::pending()), step: AnswerStep::None, messages };
    let delivery = QuestionDelivery::OnStream(SessionState::Connection(Arc::clone(&data)));
    let mut exchange =
        RequestExchange::running(RequestId::Number(7), Revision::V2025_11_25, delivery, running);
    let question = async |exchange: &mut RequestExchange| {
        let mut asked = Box::pin(client.ask("sampling/createMessage", None));
        let message = tokio::select! {
            _ = &mut asked => panic!("the question has no answer yet"),
            next = exchange.next() => match next {
                ExchangeEvent::Message(Message::Request { id, .. }) => id,
                _ => panic!("expected the question"),
            },
        };
        (asked, message)
    };
    let (asked, id) = question(&mut exchange).await;
    data.pending.resolve(&id, Ok(RawJson::from_value(&json!({ "model": "m" }))));
    assert!(asked.await.is_ok());
    let (asked, id) = question(&mut exchange).await;
    drop(asked);
    // No cancellation was sent for the answered question.
    let ExchangeEvent::Message(Message::Notification { method, params }) = exchange.next().await else {
        panic!("expected a cancellation")
    };
    assert_eq!(&*method, "notifications/cancelled");
    assert_eq!(params.as_ref().and_then(crate::message::cancelled_request_id), Some(id));
}
