//! Minimal HTTP/1.1 client for the load: requests are encoded beforehand, responses are read and discarded.
//!
//! Invariant: a response ends where its head says, so one connection serves all calls.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::BenchOptions;

/// Bytes kept of the beginning of a response.
const PREFIX_LENGTH: usize = 512;
/// Protocol revision of clients with sessions.
pub(super) const REVISION: &str = "2025-11-25";
/// Method requested instead of a call if given as the tool.
pub(super) const LIST_METHOD: &str = "tools/list";
/// Bytes read at once.
const BUFFER_SIZE: usize = 256 << 10;

pub(super) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Unread part of the buffer.
    from: usize,
    to: usize,
}

/// Head of a response.
pub(super) struct ResponseHead {
    pub(super) status: u16,
    text: String,
    length: Option<usize>,
    chunked: bool,
}

/// Endpoint and credentials of all requests.
pub(super) struct RequestTarget {
    pub(super) port: u16,
    path: String,
    key: Option<String>,
}

impl RequestTarget {
    pub(super) fn from_options(keys: &BenchOptions) -> Result<Self, String> {
        let port = keys.text("port")?.parse().map_err(|_| "`port=` is not a port".to_owned())?;
        let path = keys.text("path").unwrap_or("/mcp").to_owned();
        Ok(Self { port, path, key: keys.text("key").ok().map(str::to_owned) })
    }

    /// Encodes a POST request with a JSON body and more header lines.
    pub(super) fn post(&self, lines: &[String], body: &Value) -> Vec<u8> {
        let body = body.to_string();
        let mut head = self.head("POST", lines);
        head += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        head.into_bytes()
    }

    /// Encodes a GET request for the stream of a session.
    pub(super) fn get(&self, lines: &[String]) -> Vec<u8> {
        (self.head("GET", lines) + "\r\n").into_bytes()
    }

    /// Encodes a tool call in a session, or `tools/list`.
    pub(super) fn in_session(&self, session: &[String], id: u64, tool: &str, arguments: &Value) -> Vec<u8> {
        let (method, params) = match tool {
            LIST_METHOD => (LIST_METHOD, json!({})),
            tool => ("tools/call", json!({ "name": tool, "arguments": arguments })),
        };
        self.post(session, &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
    }

    /// Encodes `tools/list` in the newest revision.
    fn list(&self, id: u64) -> Vec<u8> {
        let lines = ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/list"];
        let message =
            json!({ "jsonrpc": "2.0", "id": id, "method": LIST_METHOD, "params": { "_meta": meta() } });
        self.post(&lines.map(str::to_owned), &message)
    }

    /// Encodes a tool call in the newest revision, or `tools/list`.
    pub(super) fn call(&self, id: u64, tool: &str, arguments: &Value) -> Vec<u8> {
        if tool == LIST_METHOD {
            return self.list(id);
        }
        let lines =
            ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", &format!("Mcp-Name: {tool}")];
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta() });
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        self.post(&lines.map(str::to_owned), &message)
    }

    fn head(&self, method: &str, lines: &[String]) -> String {
        let mut head = format!("{method} {} HTTP/1.1\r\nHost: localhost:{}\r\n", self.path, self.port);
        head += "Accept: application/json, text/event-stream\r\n";
        if let Some(key) = &self.key {
            head += &format!("Authorization: Bearer {key}\r\n");
        }
        lines.iter().for_each(|line| head += &format!("{line}\r\n"));
        head
    }
}

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "load", "version": "1.0.0" },
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

impl ResponseHead {
    /// Returns a header by its name in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        header_value(&self.text, name)
    }
}

fn header_value<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

impl Connection {
    pub(super) async fn open(port: u16) -> Result<Self, String> {
        let stream =
            TcpStream::connect(("127.0.0.1", port)).await.map_err(|error| format!("port {port}: {error}"))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(Self { stream, buffer: Vec::new(), from: 0, to: 0 })
    }

    /// Makes the handshake of older revisions. Returns the header lines for every later request: the session ID, if the
    /// server has sessions, and the revision.
    pub(super) async fn handshake(&mut self, target: &RequestTarget) -> Result<Vec<String>, String> {
        let client = json!({ "name": "load", "version": "1.0.0" });
        let params = json!({ "protocolVersion": REVISION, "capabilities": {}, "clientInfo": client });
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let head = self.begin(&target.post(&[], &hello)).await?;
        self.body(&head, &mut Vec::new()).await?;
        let mut lines = vec![format!("MCP-Protocol-Version: {REVISION}")];
        lines.extend(head.header("mcp-session-id").map(|session| format!("Mcp-Session-Id: {session}")));
        let ready = target.post(&lines, &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        let head = self.begin(&ready).await?;
        self.body(&head, &mut Vec::new()).await?;
        Ok(lines)
    }

    /// Sends a request and reads the whole response. Keeps its beginning and returns its length.
    pub(super) async fn exchange(&mut self, request: &[u8], begin: &mut Vec<u8>) -> Result<usize, String> {
        let head = self.begin(request).await?;
        begin.clear();
        let length = self.body(&head, begin).await?;
        if head.status != 200 {
            return Err(format!("status {}: {}", head.status, String::from_utf8_lossy(begin)));
        }
        Ok(length)
    }

    /// Sends a request and reads the head of the response.
    pub(super) async fn begin(&mut self, request: &[u8]) -> Result<ResponseHead, String> {
        self.stream.write_all(request).await.map_err(|error| format!("cannot send: {error}"))?;
        let mut searched = 0;
        let end = loop {
            let unread = &self.buffer[self.from..self.to];
            if let Some(at) = unread[searched..].windows(4).position(|four| four == b"\r\n\r\n") {
                break searched + at + 4;
            }
            searched = unread.len().saturating_sub(3);
            self.fill().await?;
        };
        let text = String::from_utf8_lossy(&self.buffer[self.from..self.from + end]).into_owned();
        self.from += end;
        let status =
            text.get(9..12).and_then(|status| status.parse().ok()).ok_or("no status in the response")?;
        let length = header_value(&text, "content-length").and_then(|length| length.parse().ok());
        let chunked =
            header_value(&text, "transfer-encoding").is_some_and(|how| how.eq_ignore_ascii_case("chunked"));
        Ok(ResponseHead { status, length, chunked, text })
    }

    /// Reads the body of a response, and keeps its beginning.
    pub(super) async fn body(&mut self, head: &ResponseHead, begin: &mut Vec<u8>) -> Result<usize, String> {
        if !head.chunked {
            let length = head.length.unwrap_or(0);
            self.skip(length, begin).await?;
            return Ok(length);
        }
        let mut all = 0;
        loop {
            let line = self.line().await?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size =
                usize::from_str_radix(size, 16).map_err(|_| format!("`{size}` is not a chunk size"))?;
            self.skip(size, begin).await?;
            self.line().await?;
            all += size;
            if size == 0 {
                return Ok(all);
            }
        }
    }

    async fn line(&mut self) -> Result<String, String> {
        loop {
            let unread = &self.buffer[self.from..self.to];
            if let Some(at) = unread.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8_lossy(&unread[..at]).into_owned();
                self.from += at + 2;
                return Ok(line);
            }
            self.fill().await?;
        }
    }

    async fn skip(&mut self, mut length: usize, begin: &mut Vec<u8>) -> Result<(), String> {
        while length > 0 {
            if self.from == self.to {
                self.fill().await?;
            }
            let part = length.min(self.to - self.from);
            let kept = part.min(PREFIX_LENGTH.saturating_sub(begin.len()));
            begin.extend_from_slice(&self.buffer[self.from..self.from + kept]);
            self.from += part;
            length -= part;
        }
        Ok(())
    }

    async fn fill(&mut self) -> Result<(), String> {
        // Wait before allocating: an idle client holds no buffer, so a thousand of them are cheap.
        self.stream.readable().await.map_err(|error| error.to_string())?;
        self.buffer.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        if self.buffer.len() < self.to + 1024 {
            self.buffer.resize((self.to + 1024).max(BUFFER_SIZE), 0);
        }
        let read = self.stream.read(&mut self.buffer[self.to..]).await;
        match read.map_err(|error| format!("cannot read: {error}"))? {
            0 => Err("the connection was closed within a response".to_owned()),
            read => {
                self.to += read;
                Ok(())
            }
        }
    }
}
