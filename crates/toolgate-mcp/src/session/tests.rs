//! A session against a server that is a function: values in, values out, time paused.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::*;
use crate::handshake::{HandshakeError, ProtocolMode};
use crate::revision::Revision;

const SOON: Duration = Duration::from_secs(5);

/// What the handler heard, in order.
#[derive(Default)]
struct Ear(Mutex<Vec<String>>);

impl Handler for Ear {
    fn notification(&self, method: &str, params: Option<&Raw>) {
        self.0.lock().unwrap().push(format!("{method} {}", params.map_or("", Raw::get)));
    }

    fn request(&self, method: &str, _params: Option<Raw>) -> BoxFuture<'static, Result<Raw, RpcError>> {
        if method == "wait" {
            return Box::pin(std::future::pending());
        }
        let error = RpcError::new(RpcError::METHOD_NOT_FOUND, format!("{method} is not for us"));
        Box::pin(async { Err(error) })
    }

    fn violation(&self, what: &str) {
        self.0.lock().unwrap().push(format!("violation: {what}"));
    }
}

fn server(
    behave: impl FnMut(&Value) -> Vec<Value> + Send + 'static,
) -> (Session, Arc<Ear>, Arc<Mutex<Vec<Value>>>) {
    server_over(false, behave)
}

/// Every message of ours goes to the function; what it returns comes back, `null` ends the link.
fn server_over(
    http: bool,
    mut behave: impl FnMut(&Value) -> Vec<Value> + Send + 'static,
) -> (Session, Arc<Ear>, Arc<Mutex<Vec<Value>>>) {
    let (outbox, mut from_us) = mpsc::channel(16);
    let (to_us, inbox) = mpsc::channel(16);
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&said);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Some(outgoing) = from_us.recv().await {
            let bytes = match outgoing {
                Outgoing::Request(Request { bytes, .. }) | Outgoing::Other(bytes) => bytes,
                Outgoing::Cancel(_) | Outgoing::Revision(_) => continue,
                #[allow(
                    unreachable_patterns,
                    clippy::allow_attributes,
                    reason = "transports may add control messages"
                )]
                _ => continue,
            };
            let message: Value = serde_json::from_slice(&bytes).unwrap();
            heard.lock().unwrap().push(message.clone());
            for answer in behave(&message) {
                let incoming = match answer {
                    Value::Null => Incoming::Closed(LinkError::Closed),
                    answer => Incoming::Message(Bytes::from(answer.to_string())),
                };
                to_us.send(incoming).await.unwrap();
            }
        }
    });
    let ear = Arc::new(Ear::default());
    let session = Session::start(Link::new(outbox, inbox, tasks), http, Limits::default(), ear.clone());
    (session, ear, said)
}

fn ok(message: &Value, result: Value) -> Vec<Value> {
    vec![json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })]
}

fn refuse(message: &Value, code: i64) -> Vec<Value> {
    vec![json!({ "jsonrpc": "2.0", "id": message["id"], "error": { "code": code, "message": "no" } })]
}

fn initialized(message: &Value) -> Vec<Value> {
    let version = &message["params"]["protocolVersion"];
    ok(
        message,
        json!({ "protocolVersion": version, "capabilities": { "tools": {} }, "serverInfo": { "name": "old", "version": "1" } }),
    )
}

fn discovered(message: &Value) -> Vec<Value> {
    ok(message, json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } }))
}

#[tokio::test(start_paused = true)]
async fn an_answer_reaches_who_asked() {
    let (session, ..) = server(|message| ok(message, json!({ "n": message["params"]["n"] })));
    let ask = |n: i64| session.request("x", Params::none().with("n", &n), SOON);
    let (one, two) = tokio::join!(ask(1), ask(2));
    assert_eq!((one.unwrap().get(), two.unwrap().get()), (r#"{"n":1}"#, r#"{"n":2}"#));
}

#[tokio::test(start_paused = true)]
async fn wrong_ids_reach_nobody() {
    let (session, ear, _) = server(|message| {
        let id = message["id"].as_i64().unwrap();
        let answer = |id: Value| json!({ "jsonrpc": "2.0", "id": id, "result": {} });
        vec![answer(json!(id + 1)), answer(json!(id.to_string())), answer(json!(id)), answer(json!(id))]
    });
    session.request("x", Params::none(), SOON).await.unwrap();
    tokio::task::yield_now().await;
    assert_eq!(session.violations(), 3, "{:?}", ear.0.lock().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_not_given_to_the_next_request() {
    let mut first: Option<Value> = None;
    let (session, _, said) = server(move |message| match (&first, message["method"].as_str()) {
        (_, Some("notifications/cancelled")) => vec![],
        (None, _) => {
            first = Some(message["id"].clone());
            vec![]
        }
        (Some(id), _) => {
            let late = json!({ "jsonrpc": "2.0", "id": id, "result": "late" });
            vec![late, json!({ "jsonrpc": "2.0", "id": message["id"], "result": "good" })]
        }
    });
    let error = session.request("x", Params::none(), SOON).await.unwrap_err();
    assert!(matches!(error, RequestError::TimedOut(SOON)), "{error}");
    assert_eq!(session.request("x", Params::none(), SOON).await.unwrap().get(), "\"good\"");
    let cancelled = &said.lock().unwrap()[1];
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_answer_is_not_waited_for() {
    let deep = || (0..70).fold(json!({}), |inner, _| json!([inner]));
    let (session, ..) = server(move |message| match message["method"].as_str() {
        Some("deep") => ok(message, deep()),
        Some("neither") => vec![json!({ "jsonrpc": "2.0", "id": message["id"] })],
        // A question of the server, with an id that is one of ours by chance, answers nothing.
        _ => vec![json!({ "jsonrpc": "2.0", "id": message["id"], "method": "x", "params": deep() })],
    });
    for (method, expected) in [
        ("deep", "the answer is refused: nested deeper than 64 levels"),
        (
            "neither",
            "the answer is refused: not a JSON-RPC message: it is neither request, notification nor answer",
        ),
        ("asks", "no answer within 5s"),
    ] {
        let error = session.request(method, Params::none(), SOON).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn everyone_hears_of_the_end() {
    let (session, ..) = server(|message| if message["id"] == 2 { vec![Value::Null] } else { vec![] });
    let ask = || session.request("x", Params::none(), SOON);
    let (one, two) = tokio::join!(ask(), ask());
    for outcome in [one, two, ask().await] {
        assert!(matches!(outcome, Err(RequestError::Link(LinkError::Closed))), "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn notifications_keep_their_order_and_come_before_the_answer() {
    let (session, ear, _) = server(|message| {
        let note =
            |n: usize| json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "n": n } });
        (0..1_000).map(note).chain(ok(message, json!({}))).collect()
    });
    session.request("x", Params::none(), SOON).await.unwrap();
    let expected: Vec<_> = (0..1_000).map(|n| format!("notifications/progress {{\"n\":{n}}}")).collect();
    assert_eq!(*ear.0.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn requests_of_the_server_are_answered() {
    let (session, _, said) = server(|message| match message["method"].as_str() {
        Some("x") => {
            let ask = |id: &str, method: &str| json!({ "jsonrpc": "2.0", "id": id, "method": method });
            let mut all = vec![ask("a", "ping"), ask("b", "sampling/createMessage")];
            all.extend(ok(message, json!({})));
            all
        }
        _ => vec![],
    });
    session.request("x", Params::none(), SOON).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let said = said.lock().unwrap();
    assert_eq!(said[1], json!({ "jsonrpc": "2.0", "id": "a", "result": {} }));
    assert_eq!((&said[2]["id"], &said[2]["error"]["code"]), (&json!("b"), &json!(-32601)));
}

#[tokio::test(start_paused = true)]
async fn questions_that_wait_keep_nobody_else_from_asking() {
    let ask = |id: usize, method: &str, text: &str| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": { "text": text } });
    let cases = [
        // Many clients may each have questions open; in number and in bytes there is an end.
        (200, 1, &[][..]),
        (SERVER_REQUESTS + 2, 1, &[SERVER_REQUESTS, SERVER_REQUESTS + 1]),
        (17, SERVER_REQUEST_BYTES / 16, &[15, 16]),
    ];
    for (many, long, refused) in cases {
        let text = "x".repeat(long);
        let (session, _, said) = server(move |message| match message["method"].as_str() {
            Some(_) => {
                let mut all: Vec<_> = (0..many).map(|id| ask(id, "wait", &text)).collect();
                all.push(ask(many, "ping", ""));
                all.extend(ok(message, json!({})));
                all
            }
            None => vec![],
        });
        session.request("x", Params::none(), SOON).await.unwrap();
        tokio::time::sleep(SOON).await;
        let said = said.lock().unwrap();
        let code = |answer: &Value| Some((answer["id"].as_u64()? as usize, answer["error"]["code"].as_i64()));
        let answers: Vec<_> = said.iter().filter(|it| it.get("method").is_none()).filter_map(code).collect();
        let mut due: Vec<_> = refused.iter().map(|id| (*id, Some(-32603))).collect();
        due.push((many, None));
        assert_eq!(answers, due, "{many} of {long}");
    }
}

#[tokio::test(start_paused = true)]
async fn all_pages_and_no_circles() {
    let (session, ..) = server(|message| {
        let page = match message["params"]["cursor"].as_str() {
            None => json!({ "tools": [1.0, 2], "nextCursor": "b" }),
            Some("b") => json!({ "tools": [3] }),
            Some(_) => json!({}),
        };
        ok(message, page)
    });
    let items = session.list("tools/list", "tools", SOON).await.unwrap();
    assert_eq!(items.iter().map(Raw::get).collect::<Vec<_>>(), ["1.0", "2", "3"]);

    let (session, ..) = server(|message| ok(message, json!({ "tools": [], "nextCursor": "same" })));
    let error = session.list("tools/list", "tools", SOON).await.unwrap_err();
    assert!(error.to_string().contains("circle"), "{error}");
}

/// Which revision is found, and what was said on the way.
async fn check(
    mode: ProtocolMode,
    behave: impl FnMut(&Value) -> Vec<Value> + Send + 'static,
    expected: &str,
) {
    let (session, _, said) = server(behave);
    let found = match session.introduce(mode, SOON).await {
        Ok(peer) => peer.revision.to_string(),
        Err(HandshakeError::EndedOnProbe) => "ended on probe".to_owned(),
        Err(HandshakeError::NoCommonRevision(_)) => "nothing in common".to_owned(),
        Err(HandshakeError::Request(error)) => error.to_string(),
    };
    tokio::time::sleep(Duration::from_millis(1)).await;
    let methods: Vec<_> =
        said.lock().unwrap().iter().filter_map(|said| said["method"].as_str().map(str::to_owned)).collect();
    assert_eq!(format!("{found} | {}", methods.join(" ")), expected);
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_server_is_recognised() {
    use ProtocolMode::{Auto, Legacy, Modern};
    let modern = |message: &Value| match message["method"].as_str() {
        Some("server/discover") => discovered(message),
        Some("initialize") => refuse(message, -32022),
        _ => vec![],
    };
    let legacy = |code| {
        move |message: &Value| match message["method"].as_str() {
            Some("initialize") => initialized(message),
            Some("notifications/initialized") => vec![],
            _ => refuse(message, code),
        }
    };
    let silent = |message: &Value| match message["method"].as_str() {
        Some("initialize") => initialized(message),
        _ => vec![],
    };
    let shy = |message: &Value| match message["method"].as_str() {
        Some("server/discover") => vec![Value::Null],
        _ => initialized(message),
    };
    check(Auto, modern, "2026-07-28 | server/discover").await;
    check(Modern, modern, "2026-07-28 | server/discover").await;
    check(Legacy, legacy(-32601), "2025-11-25 | initialize notifications/initialized").await;
    let both = "2025-11-25 | server/discover initialize notifications/initialized";
    check(Auto, legacy(-32601), both).await;
    check(Auto, legacy(-32602), both).await;
    check(Auto, legacy(-32000), both).await;
    let silent_road =
        "2025-11-25 | server/discover initialize notifications/cancelled notifications/initialized";
    check(Auto, silent, silent_road).await;
    check(Auto, shy, "ended on probe | server/discover").await;
    check(
        Auto,
        |_: &Value| vec![],
        "no answer within 5s | server/discover initialize notifications/cancelled",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_is_refused_and_named_is_asked_for_once_more() {
    let stubborn = |refusals: usize| {
        let mut refused = 0;
        move |message: &Value| match message["method"].as_str() {
            Some("server/discover") if refused < refusals => {
                refused += 1;
                let data = json!({ "supported": ["2026-07-28"], "requested": "2026-07-28" });
                let error = json!({ "code": -32022, "message": "no", "data": data });
                vec![json!({ "jsonrpc": "2.0", "id": message["id"], "error": error })]
            }
            _ => discovered(message),
        }
    };
    check(ProtocolMode::Auto, stubborn(1), "2026-07-28 | server/discover server/discover").await;
    check(ProtocolMode::Auto, stubborn(2), "nothing in common | server/discover server/discover").await;
}

/// A server over HTTP that takes its time is not asked for a handshake that it may not know.
#[tokio::test(start_paused = true)]
async fn silence_over_http_means_less_than_over_a_pipe() {
    for (http, silence) in [(false, 800), (true, 2_500)] {
        let (session, ..) = server_over(http, |message| match message["method"].as_str() {
            Some("initialize") => initialized(message),
            _ => vec![],
        });
        let start = tokio::time::Instant::now();
        session.introduce(ProtocolMode::Auto, SOON).await.unwrap();
        assert_eq!(start.elapsed().as_millis(), silence, "over HTTP: {http}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_hears_who_asks_with_every_request() {
    let (session, _, said) = server(|message| match message["method"].as_str() {
        Some("server/discover") => discovered(message),
        _ => ok(message, json!({ "tools": [] })),
    });
    session.introduce(ProtocolMode::Auto, SOON).await.unwrap();
    session.list("tools/list", "tools", SOON).await.unwrap();
    let said = said.lock().unwrap();
    let meta = &said[1]["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], Revision::NEWEST.name());
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "toolgate");
}
