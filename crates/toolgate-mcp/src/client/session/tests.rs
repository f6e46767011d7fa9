//! A session against a server that is a function, with paused time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::*;
use crate::handshake::{HandshakeError, ProtocolMode};
use crate::revision::Revision;

const TIMEOUT: Duration = Duration::from_secs(5);

/// Records notifications and violations, in order.
#[derive(Default)]
struct RecordingHandler(Mutex<Vec<String>>);

impl Handler for RecordingHandler {
    fn notification(&self, method: &str, params: Option<&RawJson>) {
        self.0.lock().push(format!("{method} {}", params.map_or("", RawJson::as_str)));
    }

    fn request(
        &self,
        method: &str,
        _params: Option<RawJson>,
    ) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        if method == "wait" {
            return Box::pin(std::future::pending());
        }
        let error = RpcError::new(RpcError::METHOD_NOT_FOUND, format!("{method} is not for us"));
        Box::pin(async { Err(error) })
    }

    fn violation(&self, what: &str) {
        self.0.lock().push(format!("violation: {what}"));
    }
}

fn server(
    behave: impl FnMut(&Value) -> Vec<Value> + Send + 'static,
) -> (Session, Arc<RecordingHandler>, Arc<Mutex<Vec<Value>>>) {
    server_over(false, behave)
}

/// Passes every message of ours to the function and delivers the messages it returns; `null` closes the link.
fn server_over(
    http: bool,
    mut behave: impl FnMut(&Value) -> Vec<Value> + Send + 'static,
) -> (Session, Arc<RecordingHandler>, Arc<Mutex<Vec<Value>>>) {
    let (outbox, mut from_us) = mpsc::channel(16);
    let (to_us, inbox) = mpsc::channel(16);
    let sent = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&sent);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Some(outgoing) = from_us.recv().await {
            let bytes = match outgoing {
                LinkCommand::Request(OutgoingRequest { bytes, .. }) | LinkCommand::Message(bytes) => bytes,
                LinkCommand::Cancel(_) | LinkCommand::Revision(_) => continue,
                #[allow(
                    unreachable_patterns,
                    clippy::allow_attributes,
                    reason = "transports may add control messages"
                )]
                _ => continue,
            };
            let message: Value = serde_json::from_slice(&bytes).unwrap();
            log.lock().push(message.clone());
            for answer in behave(&message) {
                let incoming = match answer {
                    Value::Null => LinkEvent::Closed(LinkError::Closed),
                    answer => LinkEvent::Message(Bytes::from(answer.to_string())),
                };
                to_us.send(incoming).await.unwrap();
            }
        }
    });
    let handler = Arc::new(RecordingHandler::default());
    let session =
        Session::start(Link::new(outbox, inbox, tasks), http, ScanLimits::default(), handler.clone());
    (session, handler, sent)
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
async fn responses_reach_their_requests() {
    let (session, ..) = server(|message| ok(message, json!({ "n": message["params"]["n"] })));
    let ask = |n: i64| session.request("x", Params::none().with("n", &n), TIMEOUT);
    let (one, two) = tokio::join!(ask(1), ask(2));
    assert_eq!((one.unwrap().as_str(), two.unwrap().as_str()), (r#"{"n":1}"#, r#"{"n":2}"#));
}

#[tokio::test(start_paused = true)]
async fn responses_with_unknown_ids_are_violations() {
    let (session, handler, _) = server(|message| {
        let id = message["id"].as_i64().unwrap();
        let answer = |id: Value| json!({ "jsonrpc": "2.0", "id": id, "result": {} });
        vec![answer(json!(id + 1)), answer(json!(id.to_string())), answer(json!(id)), answer(json!(id))]
    });
    session.request("x", Params::none(), TIMEOUT).await.unwrap();
    tokio::task::yield_now().await;
    assert_eq!(session.violations(), 3, "{:?}", handler.0.lock());
}

#[tokio::test(start_paused = true)]
async fn late_response_does_not_reach_the_next_request() {
    let mut first: Option<Value> = None;
    let (session, _, sent) = server(move |message| match (&first, message["method"].as_str()) {
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
    let error = session.request("x", Params::none(), TIMEOUT).await.unwrap_err();
    assert!(matches!(error, RequestError::TimedOut(TIMEOUT)), "{error}");
    assert_eq!(session.request("x", Params::none(), TIMEOUT).await.unwrap().as_str(), "\"good\"");
    let cancelled = &sent.lock()[1];
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], 1);
}

#[tokio::test(start_paused = true)]
async fn invalid_response_fails_its_request_at_once() {
    let deep = || (0..70).fold(json!({}), |inner, _| json!([inner]));
    let (session, ..) = server(move |message| match message["method"].as_str() {
        Some("deep") => ok(message, deep()),
        Some("neither") => vec![json!({ "jsonrpc": "2.0", "id": message["id"] })],
        // A server request that happens to have one of our ids is not a response.
        _ => vec![json!({ "jsonrpc": "2.0", "id": message["id"], "method": "x", "params": deep() })],
    });
    for (method, expected) in [
        ("deep", "the response is invalid: nested deeper than 64 levels"),
        (
            "neither",
            "the response is invalid: not a JSON-RPC message: it is not a request, notification or response",
        ),
        ("asks", "no answer within 5s"),
    ] {
        let error = session.request(method, Params::none(), TIMEOUT).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn closing_fails_all_requests() {
    let (session, ..) = server(|message| if message["id"] == 2 { vec![Value::Null] } else { vec![] });
    let ask = || session.request("x", Params::none(), TIMEOUT);
    let (one, two) = tokio::join!(ask(), ask());
    for outcome in [one, two, ask().await] {
        assert!(matches!(outcome, Err(RequestError::Link(LinkError::Closed))), "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn notifications_arrive_in_order_before_the_response() {
    let (session, handler, _) = server(|message| {
        let note =
            |n: usize| json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "n": n } });
        (0..1_000).map(note).chain(ok(message, json!({}))).collect()
    });
    session.request("x", Params::none(), TIMEOUT).await.unwrap();
    let expected: Vec<_> = (0..1_000).map(|n| format!("notifications/progress {{\"n\":{n}}}")).collect();
    assert_eq!(*handler.0.lock(), expected);
}

#[tokio::test(start_paused = true)]
async fn server_requests_are_answered() {
    let (session, _, sent) = server(|message| match message["method"].as_str() {
        Some("x") => {
            let ask = |id: &str, method: &str| json!({ "jsonrpc": "2.0", "id": id, "method": method });
            let mut all = vec![ask("a", "ping"), ask("b", "sampling/createMessage")];
            all.extend(ok(message, json!({})));
            all
        }
        _ => vec![],
    });
    session.request("x", Params::none(), TIMEOUT).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let sent = sent.lock();
    assert_eq!(sent[1], json!({ "jsonrpc": "2.0", "id": "a", "result": {} }));
    assert_eq!((&sent[2]["id"], &sent[2]["error"]["code"]), (&json!("b"), &json!(-32601)));
}

#[tokio::test(start_paused = true)]
async fn open_server_requests_are_limited() {
    let ask = |id: usize, method: &str, text: &str| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": { "text": text } });
    let cases = [
        // Many clients may have open questions; number and bytes are limited.
        (200, 1, &[][..]),
        (MAX_SERVER_REQUESTS + 2, 1, &[MAX_SERVER_REQUESTS, MAX_SERVER_REQUESTS + 1]),
        (17, MAX_SERVER_REQUEST_BYTES / 16, &[15, 16]),
    ];
    for (many, long, rejected) in cases {
        let text = "x".repeat(long);
        let (session, _, sent) = server(move |message| match message["method"].as_str() {
            Some(_) => {
                let mut all: Vec<_> = (0..many).map(|id| ask(id, "wait", &text)).collect();
                all.push(ask(many, "ping", ""));
                all.extend(ok(message, json!({})));
                all
            }
            None => vec![],
        });
        session.request("x", Params::none(), TIMEOUT).await.unwrap();
        tokio::time::sleep(TIMEOUT).await;
        let sent = sent.lock();
        let code = |answer: &Value| Some((answer["id"].as_u64()? as usize, answer["error"]["code"].as_i64()));
        let answers: Vec<_> = sent.iter().filter(|it| it.get("method").is_none()).filter_map(code).collect();
        let mut expected: Vec<_> = rejected.iter().map(|id| (*id, Some(-32603))).collect();
        expected.push((many, None));
        assert_eq!(answers, expected, "{many} of {long}");
    }
}

#[tokio::test(start_paused = true)]
async fn lists_all_pages_and_rejects_repeated_cursors() {
    let (session, ..) = server(|message| {
        let page = match message["params"]["cursor"].as_str() {
            None => json!({ "tools": [1.0, 2], "nextCursor": "b" }),
            Some("b") => json!({ "tools": [3] }),
            Some(_) => json!({}),
        };
        ok(message, page)
    });
    let items = session.list_all("tools/list", "tools", &Forwarded::default(), TIMEOUT).await.unwrap();
    assert_eq!(items.iter().map(RawJson::as_str).collect::<Vec<_>>(), ["1.0", "2", "3"]);

    let (session, ..) = server(|message| ok(message, json!({ "tools": [], "nextCursor": "same" })));
    let error = session.list_all("tools/list", "tools", &Forwarded::default(), TIMEOUT).await.unwrap_err();
    assert!(error.to_string().contains("cursors repeat"), "{error}");
}

/// Asserts the negotiated revision and the methods that were sent.
async fn check(
    mode: ProtocolMode,
    behave: impl FnMut(&Value) -> Vec<Value> + Send + 'static,
    expected: &str,
) {
    let (session, _, sent) = server(behave);
    let found = match session.handshake(mode, TIMEOUT).await {
        Ok(peer) => peer.revision.to_string(),
        Err(HandshakeError::ClosedOnProbe) => "ended on probe".to_owned(),
        Err(HandshakeError::OwnGateway) => "the gateway itself".to_owned(),
        Err(HandshakeError::NoCommonRevision(_)) => "no common revision".to_owned(),
        Err(HandshakeError::Request(error)) => error.to_string(),
    };
    tokio::time::sleep(Duration::from_millis(1)).await;
    let methods: Vec<_> =
        sent.lock().iter().filter_map(|sent| sent["method"].as_str().map(str::to_owned)).collect();
    assert_eq!(format!("{found} | {}", methods.join(" ")), expected);
}

#[tokio::test(start_paused = true)]
async fn negotiates_with_every_kind_of_server() {
    use ProtocolMode::{Auto, Fixed, Legacy};
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
    check(Fixed(Revision::V2026_07_28), modern, "2026-07-28 | server/discover").await;
    check(Legacy, modern, "no (code -32022) | initialize").await;
    let fixed = "2025-06-18 | initialize notifications/initialized";
    check(Fixed(Revision::V2025_06_18), legacy(-32601), fixed).await;
    let other = |message: &Value| {
        initialized(&json!({ "id": message["id"], "params": { "protocolVersion": "2025-03-26" } }))
    };
    check(Fixed(Revision::V2025_06_18), other, "no common revision | initialize").await;
    check(Legacy, legacy(-32601), "2025-11-25 | initialize notifications/initialized").await;
    let both = "2025-11-25 | server/discover initialize notifications/initialized";
    check(Auto, legacy(-32601), both).await;
    check(Auto, legacy(-32602), both).await;
    check(Auto, legacy(-32000), both).await;
    let silent_methods =
        "2025-11-25 | server/discover initialize notifications/cancelled notifications/initialized";
    check(Auto, silent, silent_methods).await;
    check(Auto, shy, "ended on probe | server/discover").await;
    check(
        Auto,
        |_: &Value| vec![],
        "no answer within 5s | server/discover initialize notifications/cancelled",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn retries_a_revision_that_is_rejected_and_listed() {
    let stubborn = |refusals: usize| {
        let mut rejected = 0;
        move |message: &Value| match message["method"].as_str() {
            Some("server/discover") if rejected < refusals => {
                rejected += 1;
                let data = json!({ "supported": ["2026-07-28"], "requested": "2026-07-28" });
                let error = json!({ "code": -32022, "message": "no", "data": data });
                vec![json!({ "jsonrpc": "2.0", "id": message["id"], "error": error })]
            }
            _ => discovered(message),
        }
    };
    check(ProtocolMode::Auto, stubborn(1), "2026-07-28 | server/discover server/discover").await;
    check(ProtocolMode::Auto, stubborn(2), "no common revision | server/discover server/discover").await;
}

/// A slow HTTP server is not sent a handshake that it may not know.
#[tokio::test(start_paused = true)]
async fn probe_timeout_is_longer_over_http() {
    for (http, silence) in [(false, 800), (true, 2_500)] {
        let (session, ..) = server_over(http, |message| match message["method"].as_str() {
            Some("initialize") => initialized(message),
            _ => vec![],
        });
        let start = tokio::time::Instant::now();
        session.handshake(ProtocolMode::Auto, TIMEOUT).await.unwrap();
        assert_eq!(start.elapsed().as_millis(), silence, "over HTTP: {http}");
    }
}

#[tokio::test(start_paused = true)]
async fn newest_revision_sends_client_info_with_every_request() {
    let (session, _, sent) = server(|message| match message["method"].as_str() {
        Some("server/discover") => discovered(message),
        _ => ok(message, json!({ "tools": [] })),
    });
    session.handshake(ProtocolMode::Auto, TIMEOUT).await.unwrap();
    session.list_all("tools/list", "tools", &Forwarded::default(), TIMEOUT).await.unwrap();
    let sent = sent.lock();
    let meta = &sent[1]["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], Revision::NEWEST.name());
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "toolgate");
}

/// Starts a session over pipes whose messages have at most 1 KiB. Responses hold 100 KiB; a call is answered together
/// with the first list.
fn large_responses() -> Session {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
    let (near, far) = tokio::io::duplex(1 << 10);
    let (reader, writer) = tokio::io::split(near);
    let limits = ScanLimits { size: 1 << 10, depth: 64 };
    let mut link =
        crate::transport::lines::open(reader, writer, toolgate_types::server::OutputEncoding::Utf8, limits);
    link.tasks.spawn(async move {
        let (reader, mut writer) = tokio::io::split(far);
        let mut requests = tokio::io::BufReader::new(reader).lines();
        let mut held = Vec::new();
        while let Ok(Some(line)) = requests.next_line().await {
            let request: Value = serde_json::from_str(&line).unwrap();
            held.push(request["id"].clone());
            if request["method"] == "tools/call" && request["params"]["now"] != true {
                continue;
            }
            for id in held.drain(..) {
                let result = json!({ "tools": [{ "name": "x".repeat(100 << 10) }] });
                let response = json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string() + "\n";
                if writer.write_all(response.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    });
    Session::start(link, false, limits, Arc::new(RecordingHandler::default()))
}

#[tokio::test]
async fn lists_may_be_larger_than_other_messages() {
    let session = large_responses();
    let tools = session.list_all("tools/list", "tools", &Forwarded::default(), TIMEOUT).await.unwrap();
    assert_eq!(tools[0].parse::<Value>().unwrap()["name"].as_str().unwrap().len(), 100 << 10);
    let along = Forwarded::default();
    let (call, tools) = tokio::join!(
        session.request("tools/call", Params::none(), TIMEOUT),
        session.list_all("tools/list", "tools", &along, TIMEOUT),
    );
    assert!(matches!(call, Err(RequestError::Link(LinkError::TooLarge(1024)))), "beside a list: {call:?}");
    assert_eq!(tools.unwrap().len(), 1);
    assert!(session.close_reason().is_none(), "the connection goes on");
    let now = Params::none().with_raw("now", RawJson::from_value(&true));
    let call = session.request("tools/call", now, TIMEOUT).await;
    assert!(matches!(call, Err(RequestError::Link(LinkError::TooLarge(1024)))), "alone: {call:?}");
}
