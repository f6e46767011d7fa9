//! Who hears of which change, and what somebody hears who missed some.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::*;
use crate::mirror::Mirror;
use crate::revision::Revision;
use crate::serve::session::Kept;
use crate::serve::{About, Guest, Outcome, Request};

#[derive(Clone)]
struct Anybody;

impl Guest for Anybody {
    fn id(&self) -> &str {
        "anybody"
    }
}

/// Two resources change, some more do that nobody can tell of, and so do the tools.
struct Changing;

impl Service for Changing {
    type Guest = Anybody;

    fn about(&self, _: &Anybody, _: Revision) -> About {
        About { name: String::new(), version: String::new(), capabilities: json!({}), instructions: None }
    }

    fn request(&self, _: &Anybody, _: Request) -> BoxFuture<'static, Outcome> {
        Box::pin(async { Ok(Raw::of(&json!({}))) })
    }

    fn changes(&self, _: &Anybody) -> BoxStream<'static, Change> {
        let changed = |uri: &str| Change::Resource(uri.into(), Raw::of(&json!({ "uri": uri, "more": 1 })));
        Box::pin(futures_util::stream::iter([changed("a:1"), changed("a:2"), Change::Missed, Change::Tools]))
    }

    fn subscribe(&self, _: &Anybody, _: &str) -> BoxFuture<'static, Result<Subscription, RpcError>> {
        Box::pin(async { Ok(Box::new(()) as Subscription) })
    }

    fn mirrors(&self, _: &Anybody, _: &str) -> Vec<Mirror> {
        Vec::new()
    }
}

/// The last part of what is told, and the resource.
async fn told(messages: BoxStream<'static, Message>) -> Vec<String> {
    let told = messages.map(|message| match message {
        Message::Notification { method, params } => {
            let params: Value = params.and_then(|params| params.parse().ok()).unwrap_or_default();
            format!("{} {}", method.rsplit('/').next().unwrap(), params["uri"].as_str().unwrap_or("-"))
        }
        _ => panic!("only what is told"),
    });
    let mut told: Vec<String> = told.collect().await;
    // In which order the followed ones come nobody says.
    told[2..].sort_unstable();
    told
}

#[tokio::test]
async fn whoever_missed_something_hears_of_all_it_follows() {
    let endpoint = Endpoint::new(Arc::new(Changing), crate::scan::Limits::default());
    let kept = Arc::new(Kept::default());
    for uri in ["a:2", "a:3"] {
        kept.subscriptions.lock().unwrap().insert(uri.into(), Box::new(()));
    }
    let heard = endpoint.heard(&Anybody, Keeping::Own(kept));
    let due = ["updated a:2", "list_changed -", "updated a:2", "updated a:3"];
    let mut found = told(heard).await;
    found[1..].sort_unstable();
    assert_eq!(found, due);
    // In the newest revision, on the stream that was asked for.
    let wanted = json!({ "notifications": { "resourceSubscriptions": ["a:1"], "toolsListChanged": false } });
    let listens = endpoint.listen(&Anybody, &Id::Number(1), Some(&Raw::of(&wanted))).await.unwrap();
    assert_eq!(told(listens).await, ["acknowledged -", "updated a:1", "updated a:1"]);
    // Who follows nothing has missed nothing.
    let nothing = endpoint.heard(&Anybody, Keeping::Own(Arc::default()));
    assert_eq!(nothing.count().await, 1);
}

#[test]
fn what_a_server_says_beside_its_stream_is_kept() {
    for (from, due) in [
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
        let params: Raw = serde_json::from_str::<Value>(from).map(|value| Raw::of(&value)).unwrap();
        assert_eq!(super::tagged(Some(&params), "7").get(), due);
    }
}
