//! `testkit bench upstream`: cheap MCP server over HTTP, with tools whose results have a given size.
//!
//! Prints its port and serves until it is killed. Answers clients with and without a handshake alike; `era=legacy` does
//! not know `server/discover`. Invariant: results are encoded once, before the first call.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{JoinSet, LocalSet};

use super::{BenchOptions, SEED, print_line};

/// Tools, with the bytes of text that each returns.
const TOOLS: [(&str, usize); 4] = [("small", 32), ("kib64", 64 << 10), ("mib1", 1 << 20), ("changes", 32)];

/// State shared by all connections.
struct UpstreamServer {
    legacy: bool,
    list: Bytes,
    /// Suffix of a response, from its result on.
    results: Vec<(&'static str, Bytes)>,
}

pub(super) async fn run(keys: &BenchOptions) -> Result<(), String> {
    let port = u16::try_from(keys.number("port", 0)?).map_err(|error| error.to_string())?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await.map_err(|error| error.to_string())?;
    print_line(&listener.local_addr().map_err(|error| error.to_string())?.port().to_string())?;
    let server = Rc::new(UpstreamServer::new(keys.text("era") == Ok("legacy")));
    LocalSet::new().run_until(accept(listener, server)).await;
    Ok(())
}

async fn accept(listener: TcpListener, server: Rc<UpstreamServer>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else { continue };
        // Without Nagle's algorithm: a response must not wait for an acknowledgement.
        if stream.set_nodelay(true).is_err() {
            continue;
        }
        let server = Rc::clone(&server);
        let service = service_fn(move |request| handle_request(Rc::clone(&server), request));
        let connection =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        connections.spawn_local(connection);
    }
}

impl UpstreamServer {
    fn new(legacy: bool) -> Self {
        let mut random = fastrand::Rng::with_seed(SEED);
        let results = TOOLS.map(|(name, size)| {
            let content = json!([{ "type": "text", "text": text(&mut random, size) }]);
            let result = json!({ "resultType": "complete", "content": content, "isError": false });
            (name, result_suffix(&result))
        });
        Self { legacy, list: result_suffix(&tool_list()), results: results.into() }
    }

    fn result(&self, message: &Value) -> Option<Bytes> {
        let params = &message["params"];
        match message["method"].as_str()? {
            "tools/call" => {
                let tool = params["name"].as_str()?;
                self.results.iter().find(|(name, _)| *name == tool).map(|(_, result)| result.clone())
            }
            "tools/list" => Some(self.list.clone()),
            "ping" => Some(result_suffix(&json!({}))),
            "server/discover" if !self.legacy => Some(result_suffix(&json!({
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": { "tools": {} },
                "ttlMs": 0,
                "cacheScope": "private",
                "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "upstream", "version": "1.0.0" } },
            }))),
            "initialize" => Some(result_suffix(&json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "upstream", "version": "1.0.0" },
            }))),
            _ => None,
        }
    }
}

fn tool_list() -> Value {
    let schema = json!({
        "type": "object",
        "properties": {
            "query": { "type": "string", "minLength": 1, "maxLength": 200, "description": "What is looked for." },
            "limit": { "type": "integer", "minimum": 1, "maximum": 100 },
            "tags": { "type": "array", "items": { "type": "string" }, "maxItems": 16 },
        },
        "required": ["query"],
        "additionalProperties": false,
    });
    let tools = TOOLS.map(|(name, size)| {
        let description = format!("Finds records and gives {size} bytes of them.");
        json!({ "name": name, "description": description, "inputSchema": schema })
    });
    json!({ "resultType": "complete", "tools": tools, "ttlMs": 60_000, "cacheScope": "private" })
}

/// Returns random words and lines, like real records.
fn text(random: &mut fastrand::Rng, size: usize) -> String {
    let mut text = String::with_capacity(size + 16);
    while text.len() < size {
        (0..random.usize(2..11)).for_each(|_| text.push(random.lowercase()));
        text.push(if random.u8(0..12) == 0 { '\n' } else { ' ' });
    }
    text.truncate(size);
    text
}

/// Encodes the suffix of a response from its result on; the ID comes before it.
fn result_suffix(result: &Value) -> Bytes {
    format!(r#","result":{result}}}"#).into()
}

async fn handle_request(
    server: Rc<UpstreamServer>,
    request: Request<Incoming>,
) -> Result<Response<SegmentedBody>, hyper::Error> {
    if request.method() != Method::POST {
        return Ok(status(405));
    }
    let body = request.into_body().collect().await?.to_bytes();
    let Ok(message) = serde_json::from_slice::<Value>(&body) else { return Ok(status(400)) };
    let Some(id) = message.get("id") else { return Ok(status(202)) };
    let end = server.result(&message);
    let end = end.unwrap_or_else(|| r#","error":{"code":-32601,"message":"not known"}}"#.into());
    let begin = format!(r#"{{"jsonrpc":"2.0","id":{id}"#).into();
    let mut response = Response::new(SegmentedBody([begin, end].into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn status(code: u16) -> Response<SegmentedBody> {
    let mut response = Response::new(SegmentedBody(VecDeque::new()));
    *response.status_mut() = code.try_into().expect("a code of HTTP");
    response
}

/// Body sent in segments without copying, with a known length.
struct SegmentedBody(VecDeque<Bytes>);

impl Body for SegmentedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|part| part.len() as u64).sum())
    }
}
