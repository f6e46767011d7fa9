//! JSON-RPC batches, as in revision 2025-03-26.

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER};
use crate::support::mcp_client::{McpSession, call_message, request_message};

fn echo(id: u32, message: &str) -> Json {
    call_message(id, "echo", &json!({ "message": message }))
}

#[test]
fn a_batch_gets_one_response() {
    let gateway = Gateway::start(&json!({}));
    let session = McpSession::begin(&gateway, OWNER, "2025-03-26", &json!({}));
    let notification = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let answer = json!({ "jsonrpc": "2.0", "id": 99, "result": {} });
    let mixed = json!([
        echo(1, "one"),
        notification,
        request_message(2, "ping", &json!({})),
        answer,
        echo(3, "three"),
        request_message(4, "what", &json!({}))
    ]);
    let answers = session.post(&mixed);
    assert_eq!(
        (answers.status, answers.header("content-type")),
        (200, Some("application/json")),
        "{answers:?}"
    );
    let answers = answers.json();
    let of = |id: u32| {
        let found: Vec<_> =
            answers.as_array().expect("a list").iter().filter(|one| one["id"] == id).collect();
        assert_eq!(found.len(), 1, "{id}: {answers}");
        found[0].clone()
    };
    assert_eq!(answers.as_array().map(Vec::len), Some(4), "{answers}");
    assert_eq!(of(1)["result"]["content"][0]["text"], "one");
    assert_eq!(of(2)["result"], json!({}));
    assert_eq!(of(3)["result"]["content"][0]["text"], "three");
    assert_eq!(of(4)["error"]["code"], -32601);
    assert_eq!(gateway.seen().len(), 2);
    let one = session.post(&json!([request_message(5, "ping", &json!({}))])).json();
    assert_eq!(one, json!([{ "jsonrpc": "2.0", "id": 5, "result": {} }]), "one of them is a batch, too");
    let none = session.post(&json!([notification, answer]));
    assert_eq!((none.status, none.body.as_str()), (202, ""), "nothing to be answered");
}

#[test]
fn invalid_batches_are_rejected() {
    let gateway = Gateway::start(&json!({}));
    let session = McpSession::begin(&gateway, OWNER, "2025-03-26", &json!({}));
    let many: Vec<_> = (0..101).map(|id| echo(id, "x")).collect();
    let good = echo(1, "x");
    let nameless = json!({ "jsonrpc": "2.0", "id": null, "method": "ping" });
    for (what, batch) in [
        ("nothing", json!([])),
        ("too many", json!(many)),
        ("what is no message", json!([good, 3])),
        ("an id that is null", json!([good, nameless])),
        ("another protocol", json!([good, { "jsonrpc": "1.0", "id": 2, "method": "ping" }])),
        ("a batch in a batch", json!([[good]])),
    ] {
        let refused = session.post(&batch);
        let code = refused.json()["error"]["code"].clone();
        assert_eq!((refused.status, code), (400, json!(-32600)), "{what}: {refused:?}");
    }
    for revision in ["2025-06-18", "2025-11-25"] {
        let refused = McpSession::begin(&gateway, OWNER, revision, &json!({})).post(&json!([good]));
        assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!(-32600)), "{revision}");
    }
    assert!(gateway.seen().is_empty(), "nothing of any of them was done");
}
