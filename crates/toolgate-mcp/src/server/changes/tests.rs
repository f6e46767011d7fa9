//! Change notifications and lost changes.

use std::sync::Arc;

use super::*;
use crate::server::TraceSource;
use crate::server::session::{ListKind, SessionData};

/// Two resources change, some changes are lost, and the tools change.
fn changes() -> BoxStream<'static, ServiceChange> {
    let changed = |uri: &str| {
        ServiceChange::Resource(uri.into(), RawJson::from_value(&json!({ "uri": uri, "more": 1 })))
    };
    Box::pin(futures_util::stream::iter([
        changed("a:1"),
        changed("a:2"),
        ServiceChange::Missed,
        ServiceChange::Tools,
    ]))
}

/// Last part of the method, and the resource.
async fn summarize(messages: BoxStream<'static, Message>) -> Vec<String> {
    let summaries = messages.map(|message| match message {
        Message::Notification { method, params } => {
            let params: Value = params.and_then(|params| params.parse().ok()).unwrap_or_default();
            format!("{} {}", method.rsplit('/').next().unwrap(), params["uri"].as_str().unwrap_or("-"))
        }
        _ => panic!("expected a notification"),
    });
    let mut summaries: Vec<String> = summaries.collect().await;
    // The order of subscribed resources is not defined.
    summaries[2..].sort_unstable();
    summaries
}

#[tokio::test]
async fn lost_changes_notify_all_subscriptions() {
    let data = Arc::new(SessionData::default());
    for uri in ["a:2", "a:3"] {
        data.subscriptions.lock().insert(uri.into(), Box::new(()));
    }
    // Before the first list, no change of a list is sent.
    let unlisted = SessionChanges(SessionState::Connection(Arc::clone(&data))).messages(changes());
    assert!(!summarize(unlisted).await.iter().any(|summary| summary.starts_with("list_changed")));
    data.lists.finish(ListKind::Tools);
    let session_changes = SessionChanges(SessionState::Connection(data)).messages(changes());
    let expected = ["updated a:2", "list_changed -", "updated a:2", "updated a:3"];
    let mut found = summarize(session_changes).await;
    found[1..].sort_unstable();
    assert_eq!(found, expected);
    // Newest revision: on the requested stream.
    let filter = json!({ "notifications": { "resourceSubscriptions": ["a:1"], "toolsListChanged": false } });
    let trace = TraceSource::To(TraceContext::generate());
    let params = Some(RawJson::from_value(&filter));
    let request = IncomingRequest::new(RequestId::Number(1), "subscriptions/listen".into(), params, &trace);
    let request = ListenRequest::read(request);
    let request = request.unwrap_or_else(|(_, error)| panic!("{error}"));
    let subscriptions =
        request.uris().iter().map(|uri| (uri.clone(), Box::new(()) as Subscription)).collect();
    let listens = request.messages(ChangeSource { changes: changes(), subscriptions });
    assert_eq!(summarize(listens).await, ["acknowledged -", "updated a:1", "updated a:1"]);
    // Without subscriptions, lost changes cause no notification.
    let nothing = SessionChanges(SessionState::Connection(Arc::default())).messages(changes());
    assert_eq!(nothing.count().await, 0);
}

#[test]
fn subscription_id_replaces_that_of_the_server() {
    for (from, expected) in [
        (r#"{}"#, r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}"#),
        (
            r#"{"uri":"a:1","_meta":{"x":{"y":{}}},"z":1}"#,
            r#"{"uri":"a:1","z":1,"_meta":{"io.modelcontextprotocol/subscriptionId":7,"x":{"y":{}}}}"#,
        ),
        (
            r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":"theirs","x":[1]}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":7,"x":[1]}}"#,
        ),
        (r#"{"_meta":null}"#, r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}"#),
    ] {
        let params: RawJson =
            serde_json::from_str::<Value>(from).map(|value| RawJson::from_value(&value)).unwrap();
        assert_eq!(super::with_subscription_id(Some(&params), "7").as_str(), expected);
    }
}
