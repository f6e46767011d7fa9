//! Low-level MCP client over HTTP: sessions, event streams and WebSockets.

use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::TcpStream;

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, HttpResponse, request};

/// Accept header of MCP clients.
pub(crate) const ACCEPT: &str = "Accept: application/json, text/event-stream";

/// A session started with a handshake.
pub(crate) struct McpSession<'a> {
    gateway: &'a Gateway,
    headers: Vec<String>,
}

impl<'a> McpSession<'a> {
    /// Starts a session.
    pub(crate) fn begin(gateway: &'a Gateway, key: &str, revision: &str, capabilities: &Json) -> Self {
        let headers = vec![
            format!("Authorization: Bearer {key}"),
            ACCEPT.to_owned(),
            "Content-Type: application/json".to_owned(),
        ];
        let mut session = Self { gateway, headers };
        let client = json!({ "name": "t", "version": "1" });
        let params =
            json!({ "protocolVersion": revision, "capabilities": capabilities, "clientInfo": client });
        let response = session.post(&request_message(0, "initialize", &params));
        assert_eq!(response.json()["result"]["protocolVersion"], revision, "{response:?}");
        let id = response.session().expect("a session");
        session.headers.push(format!("Mcp-Session-Id: {id}"));
        session.headers.push(format!("MCP-Protocol-Version: {revision}"));
        session
    }

    fn send(&self, first: &str, more: &[&str], body: &str) -> TcpStream {
        let headers: Vec<_> = self.headers.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let mut stream = self.gateway.connect();
        stream.write_all(request(first, &headers, body).as_bytes()).expect("it is sent");
        stream
    }

    /// Sends a message that is answered with JSON or without content.
    pub(crate) fn post(&self, message: &Json) -> HttpResponse {
        self.post_text(&message.to_string())
    }

    pub(crate) fn post_text(&self, message: &str) -> HttpResponse {
        let stream = self.send("POST /mcp", &[], message);
        HttpResponse::read(&mut BufReader::new(stream)).expect("an answer with a length")
    }

    /// Sends a message, without reading the answer.
    pub(crate) fn begin_post(&self, message: &Json) -> TcpStream {
        self.send("POST /mcp", &[], &message.to_string())
    }

    /// Sends a message that is answered with a stream.
    pub(crate) fn stream(&self, message: &Json) -> EventStream {
        EventStream::read(self.send("POST /mcp", &[], &message.to_string()))
    }

    /// Opens the stream of the session, or resumes the stream of an event.
    pub(crate) fn listen(&self, last: Option<&str>) -> EventStream {
        let last = last.map(|last| format!("Last-Event-ID: {last}"));
        EventStream::read(self.send("GET /mcp", last.as_deref().as_slice(), ""))
    }

    /// Deletes the session.
    pub(crate) fn delete(&self) -> u16 {
        let stream = self.send("DELETE /mcp", &[], "");
        HttpResponse::read(&mut BufReader::new(stream)).expect("an answer").status
    }
}

/// A WebSocket for messages below 64 KiB.
pub(crate) struct WebSocket(BufReader<TcpStream>);

impl WebSocket {
    /// Connects.
    pub(crate) fn open(gateway: &Gateway, key: &str) -> Self {
        let key = format!("X-API-Key: {key}");
        let upgrade = ["Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: mcp"];
        let nonce = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
        let headers: Vec<_> = upgrade.into_iter().chain([nonce, &key]).collect();
        let mut stream = gateway.connect();
        let request =
            request("GET /ws", &headers, "").replacen("Connection: close", "Connection: Upgrade", 1);
        stream.write_all(request.as_bytes()).expect("it is sent");
        let (head, socket) = Self::accepted(stream);
        socket.unwrap_or_else(|| panic!("{head}"))
    }

    /// Reads the response to an upgrade: its head, and the WebSocket if it was accepted.
    pub(crate) fn accepted(stream: TcpStream) -> (String, Option<Self>) {
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(stream.read_line(&mut head).expect("a head") > 0, "no answer: {head}");
        }
        let is_accepted = head.starts_with("HTTP/1.1 101");
        (head, is_accepted.then_some(Self(stream)))
    }

    /// Sends a message with an all-zero mask.
    pub(crate) fn send(&mut self, message: &str) {
        let length = u16::try_from(message.len()).expect("it is short").to_be_bytes();
        let mut frame = vec![0x81, 0x80 | 126, length[0], length[1], 0, 0, 0, 0];
        frame.extend(message.as_bytes());
        self.0.get_mut().write_all(&frame).expect("it is sent");
    }

    /// Returns the next message. Pings are not answered.
    pub(crate) fn next(&mut self) -> String {
        loop {
            let mut head = [0; 2];
            self.0.read_exact(&mut head).expect("a frame");
            let mut long = [0; 2];
            let length = match head[1] {
                126 => {
                    self.0.read_exact(&mut long).expect("a length");
                    u16::from_be_bytes(long).into()
                }
                short => usize::from(short),
            };
            let mut payload = vec![0; length];
            self.0.read_exact(&mut payload).expect("a payload");
            if head[0] == 0x81 {
                return String::from_utf8(payload).expect("a text");
            }
        }
    }
}

/// Returns a JSON-RPC request.
pub(crate) fn request_message(id: u32, method: &str, params: &Json) -> Json {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// Returns a tool call.
pub(crate) fn call_message(id: u32, tool: &str, arguments: &Json) -> Json {
    request_message(id, "tools/call", &json!({ "name": tool, "arguments": arguments }))
}

/// A server-sent event.
#[derive(Debug, Default, Clone)]
pub(crate) struct Event {
    pub(crate) name: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) retry: Option<String>,
    pub(crate) data: Option<String>,
}

impl Event {
    /// Parses its data as a message.
    pub(crate) fn message(&self) -> Json {
        let data = self.data.as_deref().unwrap_or_default();
        serde_json::from_str(data).unwrap_or_else(|_| panic!("no message: {self:?}"))
    }
}

/// An event stream, or a single message; dropping it closes the connection.
pub(crate) struct EventStream {
    pub(crate) status: u16,
    /// True if the body is one message.
    is_json: bool,
    lines: BufReader<ChunkedBody>,
}

impl EventStream {
    pub(crate) fn read(stream: TcpStream) -> Self {
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(stream.read_line(&mut head).expect("a head") > 0, "no answer: {head}");
        }
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let is_json = head.to_lowercase().contains("content-type: application/json");
        let chunked = head.to_lowercase().contains("transfer-encoding: chunked");
        let left = if chunked { 0 } else { usize::MAX };
        Self { status, is_json, lines: BufReader::new(ChunkedBody { stream, left, chunked }) }
    }

    /// Returns the next event, with or without a message; `None` at the end. Comments are skipped.
    pub(crate) fn event(&mut self) -> Option<Event> {
        let mut event = Event::default();
        let mut line = String::new();
        loop {
            line.clear();
            if self.lines.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let is_event = event.id.is_some() || event.data.is_some() || event.retry.is_some();
            match line.trim_end().split_once(':').map(|(name, value)| (name, value.trim_start().to_owned())) {
                None if is_event => return Some(event),
                Some(("event", value)) => event.name = Some(value),
                Some(("id", value)) => event.id = Some(value),
                Some(("retry", value)) => event.retry = Some(value),
                Some(("data", value)) => event.data = Some(value),
                _ => {}
            }
        }
    }

    /// Returns the next message; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Json> {
        if self.is_json {
            let mut text = String::new();
            self.lines.read_to_string(&mut text).ok()?;
            return serde_json::from_str(&text).ok();
        }
        loop {
            let event = self.event()?;
            if event.data.as_deref().is_some_and(|data| !data.is_empty()) {
                return Some(event.message());
            }
        }
    }

    /// Returns the next message; panics at the end.
    pub(crate) fn message(&mut self) -> Json {
        self.next().expect("a message")
    }
}

/// A body with chunked encoding, or one that ends with the connection.
struct ChunkedBody {
    stream: BufReader<TcpStream>,
    left: usize,
    chunked: bool,
}

impl Read for ChunkedBody {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while self.chunked && self.left == 0 {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Ok(0);
            }
            // Each chunk ends with CRLF.
            if line.trim().is_empty() {
                continue;
            }
            self.left = usize::from_str_radix(line.trim(), 16).map_err(std::io::Error::other)?;
            if self.left == 0 {
                return Ok(0);
            }
        }
        let most = into.len().min(self.left);
        let read = self.stream.read(&mut into[..most])?;
        self.left -= read;
        Ok(read)
    }
}
