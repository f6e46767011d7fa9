//! Tools as a server: over pipes, and over HTTP, with what clients may and may not do.

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
use toolgate_sdk::serve::{Http, HttpError, converse};
use toolgate_sdk::{ToolError, Tools, json, tool};

/// What only a hang reaches.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Deserialize, JsonSchema)]
struct Asked {
    /// Whether it is to wait forever.
    #[serde(default)]
    forever: bool,
}

#[derive(Serialize, JsonSchema)]
struct Told {
    trace: String,
}

/// Says that its call has begun, and that it is over, however it came to that.
#[derive(Clone, Default)]
struct Seen {
    begun: Arc<Notify>,
    over: Arc<Notify>,
}

struct Over(Arc<Notify>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// Waits for as long as it is told to, and says which call it was part of when it is done.
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
async fn wait_long(seen: Seen, asked: Asked, context: toolgate_sdk::Context) -> Result<Told, ToolError> {
    let _over = Over(seen.over);
    seen.begun.notify_one();
    if asked.forever {
        std::future::pending::<()>().await;
    }
    Ok(Told { trace: context.trace_id })
}

fn tools(seen: &Seen) -> Tools {
    let tool = wait_long_tool(seen.clone()).expect("it keeps the contract");
    Tools::new("waiting", "0.1.0").with(tool).expect("one tool")
}

/// The client's end of a pair of pipes.
struct Client {
    reader: Lines<BufReader<ReadHalf<SimplexStream>>>,
    writer: WriteHalf<SimplexStream>,
    server: JoinSet<()>,
}

impl Client {
    fn new(seen: &Seen) -> Self {
        let (reader, theirs) = tokio::io::simplex(1 << 16);
        let (ours, writer) = tokio::io::simplex(1 << 16);
        let mut server = JoinSet::new();
        server.spawn(converse(tools(seen), ours, theirs));
        Self { reader: BufReader::new(reader).lines(), writer, server }
    }

    async fn send(&mut self, message: Value) {
        self.writer.write_all(format!("{message}\n").as_bytes()).await.expect("the other side is there");
    }

    async fn answer(&mut self) -> Value {
        let line =
            timeout(PATIENCE, self.reader.next_line()).await.expect("an answer").expect("it can be read");
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
async fn every_revision_over_pipes() {
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = Client::new(&Seen::default());
        let hello = json!({ "protocolVersion": revision, "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } });
        client.send(request(1, "initialize", hello)).await;
        let answer = client.answer().await;
        assert_eq!(answer["result"]["protocolVersion"], revision, "{answer}");
        client.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        client.send(request(2, "ping", json!({}))).await;
        assert_eq!(client.answer().await["result"], json!({}));
        client.send(request(3, "tools/list", json!({}))).await;
        let list = client.answer().await;
        assert_eq!(list["result"]["tools"][0]["name"], "wait-long", "{list}");
        assert!(list["result"].get("ttlMs").is_none(), "{list}");
        client.send(request(4, "tools/call", json!({ "name": "wait-long", "arguments": {} }))).await;
        let called = client.answer().await;
        assert_eq!(called["result"]["isError"], false, "{called}");
        assert!(called["result"].get("resultType").is_none(), "{called}");
        client.send(request(5, "prompts/list", json!({}))).await;
        assert_eq!(client.answer().await["error"]["code"], -32601);
        client.send(request(6, "tools/call", json!({ "name": "other" }))).await;
        assert_eq!(client.answer().await["error"]["code"], -32602);
    }
    let mut client = Client::new(&Seen::default());
    client.send(request(1, "server/discover", modern(json!({})))).await;
    let found = client.answer().await;
    assert_eq!(found["result"]["supportedVersions"][0], "2026-07-28", "{found}");
    client.send(request(2, "tools/call", modern(json!({ "name": "wait-long", "arguments": {} })))).await;
    let called = client.answer().await;
    assert_eq!(called["result"]["resultType"], "complete", "{called}");
    assert_eq!(
        called["result"]["structuredContent"]["trace"], "0af7651916cd43dd8448eb211c80319c",
        "{called}"
    );
    let beside = &called["result"]["_meta"]["toolgate/result"];
    assert_eq!(beside["metadata"]["toolVersion"], "1.0.0", "{called}");
    assert!(beside["agentHints"]["confidence"].is_number(), "{called}");
}

#[tokio::test]
async fn who_leaves_ends_what_he_waits_for() {
    let seen = Seen::default();
    let mut client = Client::new(&seen);
    let forever = || modern(json!({ "name": "wait-long", "arguments": { "forever": true } }));
    client.send(request(1, "tools/call", forever())).await;
    timeout(PATIENCE, seen.begun.notified()).await.expect("it begins");
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    client.send(cancel).await;
    timeout(PATIENCE, seen.over.notified()).await.expect("it is cancelled");

    client.send(request(2, "tools/call", forever())).await;
    timeout(PATIENCE, seen.begun.notified()).await.expect("it begins");
    let Client { mut writer, mut server, reader: _reader } = client;
    writer.shutdown().await.unwrap();
    timeout(PATIENCE, server.join_next()).await.expect("the server ends with its client");
    timeout(PATIENCE, seen.over.notified()).await.expect("and the call with it");
}

#[tokio::test]
async fn who_closes_his_pipe_behind_a_question_is_answered() {
    for _ in 0..20 {
        let mut client = Client::new(&Seen::default());
        client.send(request(1, "tools/call", modern(json!({ "name": "wait-long", "arguments": {} })))).await;
        client.writer.shutdown().await.unwrap();
        assert_eq!(client.answer().await["result"]["isError"], false);
    }
}

/// Sends a request and gives the status and what follows it.
async fn ask(http: std::net::SocketAddr, host: &str, headers: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(http).await.expect("the other side is there");
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.expect("the other side is there");
    stream.write_all(body.as_bytes()).await.expect("the other side is there");
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("an answer").expect("it can be read");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, answer)
}

#[tokio::test]
async fn who_gets_in_over_http() {
    let local = "127.0.0.1:0".parse().unwrap();
    let open = Http::bind(tools(&Seen::default()), local, None).await.unwrap();
    let guarded = Http::bind(tools(&Seen::default()), local, Some("a-token".to_owned())).await.unwrap();
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
        let (got, answer) = ask(address, host, headers, &hello).await;
        assert_eq!(got, status, "{host} {headers}: {answer}");
    }
    let (status, answer) = ask(open_at, "localhost", "", &" ".repeat((4 << 20) + 1)).await;
    assert_eq!(status, 413, "{answer}");
    let (status, answer) = ask(open_at, "localhost", "", "{").await;
    assert_eq!(status, 400, "{answer}");
}

#[tokio::test]
async fn nobody_outside_without_a_token() {
    let anywhere = "0.0.0.0:0".parse().unwrap();
    for token in [None, Some(String::new())] {
        let bound = Http::bind(tools(&Seen::default()), anywhere, token).await;
        assert!(matches!(bound, Err(HttpError::Open(_))));
    }
    assert!(Http::bind(tools(&Seen::default()), anywhere, Some("a-token".to_owned())).await.is_ok());
}
