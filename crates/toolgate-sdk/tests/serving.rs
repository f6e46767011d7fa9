//! Tools served over pipes and over HTTP: protocol revisions, cancellation, access.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{
    AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines, ReadHalf, SimplexStream, WriteHalf,
};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;
use toolgate_sdk::serve::{HttpError, HttpServer, serve_pipes};
use toolgate_sdk::{ToolError, Tools, json, tool};

/// Deadline of every wait; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Deserialize, JsonSchema)]
struct WaitParams {
    /// True to wait forever.
    #[serde(default)]
    forever: bool,
}

#[derive(Serialize, JsonSchema)]
struct WaitResult {
    trace: String,
}

/// Signals the start and the end of a call, whatever ends it.
#[derive(Clone, Default)]
struct CallSignals {
    started: Arc<Notify>,
    ended: Arc<Notify>,
}

struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// Waits forever if asked to, and otherwise returns at once. Returns the trace ID of the call.
#[tool(
    version = "1.0.0",
    category = query,
    response_time = slow,
    idempotent = true,
    cacheable = false,
    permissions = [],
    tags = ["time"],
    example(description = "Not at all", params = {})
)]
async fn wait_long(
    signals: CallSignals,
    params: WaitParams,
    context: toolgate_sdk::Context,
) -> Result<WaitResult, ToolError> {
    let _ended = NotifyOnDrop(signals.ended);
    signals.started.notify_one();
    if params.forever {
        std::future::pending::<()>().await;
    }
    Ok(WaitResult { trace: context.trace_id })
}

fn tools(signals: &CallSignals) -> Tools {
    let tool = wait_long_tool(signals.clone()).expect("the tool fulfils the contract");
    Tools::new("waiting", "0.1.0").with(tool).expect("one tool")
}

/// Client end of a pair of pipes.
struct Client {
    reader: Lines<BufReader<ReadHalf<SimplexStream>>>,
    writer: WriteHalf<SimplexStream>,
    server: JoinSet<()>,
}

impl Client {
    fn new(signals: &CallSignals) -> Self {
        let (reader, theirs) = tokio::io::simplex(1 << 16);
        let (ours, writer) = tokio::io::simplex(1 << 16);
        let mut server = JoinSet::new();
        server.spawn(serve_pipes(tools(signals), ours, theirs));
        Self { reader: BufReader::new(reader).lines(), writer, server }
    }

    async fn send(&mut self, message: Value) {
        self.writer.write_all(format!("{message}\n").as_bytes()).await.expect("the other side is there");
    }

    async fn receive(&mut self) -> Value {
        let line = timeout(TIMEOUT, self.reader.next_line())
            .await
            .expect("a message in time")
            .expect("a readable pipe");
        serde_json::from_str(&line.expect("a line")).expect("a message")
    }
}

fn request(id: u32, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn modern(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    });
    params
}

#[tokio::test]
async fn serves_every_revision_over_pipes() {
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = Client::new(&CallSignals::default());
        let hello = json!({ "protocolVersion": revision, "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } });
        client.send(request(1, "initialize", hello)).await;
        let answer = client.receive().await;
        assert_eq!(answer["result"]["protocolVersion"], revision, "{answer}");
        client.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        client.send(request(2, "ping", json!({}))).await;
        assert_eq!(client.receive().await["result"], json!({}));
        client.send(request(3, "tools/list", json!({}))).await;
        let list = client.receive().await;
        assert_eq!(list["result"]["tools"][0]["name"], "wait-long", "{list}");
        assert!(list["result"].get("ttlMs").is_none(), "{list}");
        client.send(request(4, "tools/call", json!({ "name": "wait-long", "arguments": {} }))).await;
        let called = client.receive().await;
        assert_eq!(called["result"]["isError"], false, "{called}");
        assert!(called["result"].get("resultType").is_none(), "{called}");
        client.send(request(5, "prompts/list", json!({}))).await;
        assert_eq!(client.receive().await["error"]["code"], -32601);
        client.send(request(6, "tools/call", json!({ "name": "other" }))).await;
        assert_eq!(client.receive().await["error"]["code"], -32602);
    }
    let mut client = Client::new(&CallSignals::default());
    client.send(request(1, "server/discover", modern(json!({})))).await;
    let found = client.receive().await;
    assert_eq!(found["result"]["supportedVersions"][0], "2026-07-28", "{found}");
    client.send(request(2, "tools/call", modern(json!({ "name": "wait-long", "arguments": {} })))).await;
    let called = client.receive().await;
    assert_eq!(called["result"]["resultType"], "complete", "{called}");
    assert_eq!(
        called["result"]["structuredContent"]["trace"], "0af7651916cd43dd8448eb211c80319c",
        "{called}"
    );
    let meta = &called["result"]["_meta"]["toolgate/result"];
    assert_eq!(meta["metadata"]["toolVersion"], "1.0.0", "{called}");
    assert!(meta["agentHints"]["confidence"].is_number(), "{called}");
}

#[tokio::test]
async fn disconnecting_cancels_running_calls() {
    let signals = CallSignals::default();
    let mut client = Client::new(&signals);
    let forever = || modern(json!({ "name": "wait-long", "arguments": { "forever": true } }));
    client.send(request(1, "tools/call", forever())).await;
    timeout(TIMEOUT, signals.started.notified()).await.expect("the call starts");
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    client.send(cancel).await;
    timeout(TIMEOUT, signals.ended.notified()).await.expect("the call is cancelled");

    client.send(request(2, "tools/call", forever())).await;
    timeout(TIMEOUT, signals.started.notified()).await.expect("the call starts");
    let Client { mut writer, mut server, reader: _reader } = client;
    writer.shutdown().await.unwrap();
    timeout(TIMEOUT, server.join_next()).await.expect("the server ends with its client");
    timeout(TIMEOUT, signals.ended.notified()).await.expect("the call ends with it");
}

#[tokio::test]
async fn answers_request_before_half_closed_pipe() {
    for _ in 0..20 {
        let mut client = Client::new(&CallSignals::default());
        client.send(request(1, "tools/call", modern(json!({ "name": "wait-long", "arguments": {} })))).await;
        client.writer.shutdown().await.unwrap();
        assert_eq!(client.receive().await["result"]["isError"], false);
    }
}

/// Sends a request; returns the status and the whole response.
async fn post(http: std::net::SocketAddr, host: &str, headers: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(http).await.expect("the other side is there");
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.expect("the other side is there");
    stream.write_all(body.as_bytes()).await.expect("the other side is there");
    let mut answer = String::new();
    timeout(TIMEOUT, stream.read_to_string(&mut answer)).await.expect("a response").expect("readable text");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, answer)
}

#[tokio::test]
async fn checks_host_origin_and_token() {
    let local = "127.0.0.1:0".parse().unwrap();
    let open = HttpServer::bind(tools(&CallSignals::default()), local, None).await.unwrap();
    let guarded =
        HttpServer::bind(tools(&CallSignals::default()), local, Some("a-token".to_owned())).await.unwrap();
    let (open_at, guarded_at) = (open.address(), guarded.address());
    let mut servers = JoinSet::new();
    servers.spawn(open.run());
    servers.spawn(guarded.run());
    let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } });
    let hello = request(1, "initialize", hello).to_string();
    for (address, host, headers, status) in [
        (open_at, "localhost", "", 200),
        (open_at, "127.0.0.1:7400", "Origin: http://localhost:3000\r\n", 200),
        (open_at, "evil.example.com", "", 403),
        (open_at, "localhost", "Origin: https://evil.example.com\r\n", 403),
        (open_at, "localhost", "Origin: null\r\n", 403),
        (guarded_at, "localhost", "", 401),
        (guarded_at, "localhost", "Authorization: Bearer a-toke\r\n", 401),
        (guarded_at, "localhost", "Authorization: Bearer b-token\r\n", 401),
        (guarded_at, "localhost", "Authorization: Bearer a-token\r\n", 200),
    ] {
        let (got, answer) = post(address, host, headers, &hello).await;
        assert_eq!(got, status, "{host} {headers}: {answer}");
    }
    let (status, answer) = post(open_at, "localhost", "", &" ".repeat((4 << 20) + 1)).await;
    assert_eq!(status, 413, "{answer}");
    let (status, answer) = post(open_at, "localhost", "", "{").await;
    assert_eq!(status, 400, "{answer}");
}

#[tokio::test]
async fn requires_token_beyond_loopback() {
    let anywhere = "0.0.0.0:0".parse().unwrap();
    for token in [None, Some(String::new())] {
        let bound = HttpServer::bind(tools(&CallSignals::default()), anywhere, token).await;
        assert!(matches!(bound, Err(HttpError::TokenRequired(_))));
    }
    assert!(
        HttpServer::bind(tools(&CallSignals::default()), anywhere, Some("a-token".to_owned())).await.is_ok()
    );
}
