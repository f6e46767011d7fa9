//! What a client is asked, and what it is told when nobody wants to know any more.

use std::sync::Arc;

use super::*;
use crate::serve::begin::Keeping;
use crate::serve::exchange::{Asking, Exchange, Next, Running};

fn client(capabilities: Value) -> (Arc<Client>, mpsc::Receiver<Said>) {
    let (out, said) = mpsc::channel(QUEUE);
    let client = Client {
        identity: 1,
        revision: Revision::V2025_11_25,
        capabilities,
        progress: None,
        log_level: None,
        out,
        thought: Arc::default(),
        lacked: OnceLock::new(),
    };
    (Arc::new(client), said)
}

/// Whether a client with these capabilities is asked this; if not, what it lacks and what the server is told.
async fn asked(capabilities: Value, method: &str, params: Value) -> Option<(Value, i64)> {
    let (client, mut said) = client(capabilities);
    let asking = client.ask(method, Some(Raw::of(&params)));
    tokio::select! {
        outcome = asking => Some((client.lacked.get().cloned()?, outcome.unwrap_err().code)),
        said = said.recv() => {
            assert!(matches!(said, Some(Said::Question { .. })));
            None
        }
    }
}

#[tokio::test]
async fn a_client_is_asked_in_the_ways_it_declared() {
    let url =
        || json!({ "mode": "url", "url": "https://example.com", "elicitationId": "1", "message": "Go." });
    let form = || json!({ "message": "Who?", "requestedSchema": {} });
    let lacks = |due: Value, code: i64| Some((due, code));
    let elicit = "elicitation/create";
    for (capabilities, params, due) in [
        (json!({ "elicitation": {} }), form(), None),
        (json!({ "elicitation": { "form": {} } }), form(), None),
        (json!({ "elicitation": { "form": {}, "url": {} } }), url(), None),
        (json!({ "elicitation": { "url": {} } }), url(), None),
        (json!({ "elicitation": {} }), url(), lacks(json!({ "elicitation": { "url": {} } }), -32602)),
        (
            json!({ "elicitation": { "form": {} } }),
            url(),
            lacks(json!({ "elicitation": { "url": {} } }), -32602),
        ),
        (
            json!({ "elicitation": { "url": {} } }),
            form(),
            lacks(json!({ "elicitation": { "form": {} } }), -32602),
        ),
        (
            json!({ "elicitation": { "form": {} } }),
            json!({ "mode": "other" }),
            lacks(json!({ "elicitation": { "other": {} } }), -32602),
        ),
        (json!({ "sampling": {} }), form(), lacks(json!({ "elicitation": {} }), -32601)),
    ] {
        assert_eq!(asked(capabilities.clone(), elicit, params.clone()).await, due, "{capabilities} {params}");
    }
    assert_eq!(asked(json!({ "sampling": {} }), "sampling/createMessage", json!({})).await, None);
    let unknown = asked(json!({ "sampling": {} }), "sampling/other", json!({})).await;
    assert_eq!(unknown, lacks(json!({ "sampling": {} }), -32601));
}

/// A question that is withdrawn is so at the client, too; one that was answered is not.
#[tokio::test]
async fn withdrawn_questions() {
    let (client, said) = client(json!({ "sampling": {} }));
    let kept: Arc<crate::serve::session::Kept> = Arc::default();
    let running = Running { answer: Box::pin(std::future::pending()), said };
    let asking = Asking::Live(Keeping::Own(Arc::clone(&kept)));
    let mut exchange = Exchange::new(Id::Number(7), Revision::V2025_11_25, asking, running);
    let question = async |exchange: &mut Exchange| {
        let mut asked = Box::pin(client.ask("sampling/createMessage", None));
        let message = tokio::select! {
            _ = &mut asked => panic!("nobody has answered"),
            next = exchange.next() => match next {
                Next::Said(Message::Request { id, .. }) => id,
                _ => panic!("it is asked first"),
            },
        };
        (asked, message)
    };
    let (asked, id) = question(&mut exchange).await;
    kept.pending.answered(&id, Ok(Raw::of(&json!({ "model": "m" }))));
    assert!(asked.await.is_ok());
    let (asked, id) = question(&mut exchange).await;
    drop(asked);
    // The one that was answered left no word behind.
    let Next::Said(Message::Notification { method, params }) = exchange.next().await else {
        panic!("the client is told")
    };
    assert_eq!(&*method, "notifications/cancelled");
    assert_eq!(params.as_ref().and_then(crate::serve::cancelled), Some(id));
}
