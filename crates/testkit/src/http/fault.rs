//! Faulty responses to `tools/call`. Redirects apply to every request.

use std::collections::HashMap;
use std::io::{self, Write};
use std::thread::sleep;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::HttpServer;
use super::connection::ByteStream;

/// Kind of fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HttpFault {
    /// No fault.
    None,
    /// Redirects to another port.
    Redirect { status: u16, to: u16 },
    /// A gigabyte, compressed to a thousandth.
    GzipBomb,
    /// The same, compressed once more to ten kilobytes.
    NestedGzip,
    /// A content encoding that the client did not accept.
    Encoding(String),
    /// Endless progress notifications, and no response.
    Progress,
    /// Endless SSE comments, and no event.
    Comments,
    /// The response, byte by byte with pauses.
    Drip,
    /// An error status, with a `Retry-After` header if it is given.
    Status { status: u16, retry_after: Option<u64>, always: bool },
    /// A JSON-RPC error with this code.
    RpcError(i64),
    /// An HTML error page of a megabyte, with a token in it.
    ErrorPage,
    /// 64 MiB as JSON.
    HugeJson,
    /// 64 MiB as one event.
    HugeEvents,
}

/// Interval between the writes of endless responses.
const INTERVAL: Duration = Duration::from_millis(500);

impl HttpFault {
    pub(super) fn parse(name: &str, keys: &HashMap<&str, &str>) -> Option<Self> {
        let number = |key: &str| keys.get(key).and_then(|value| value.parse().ok());
        Some(match name {
            "good" => Self::None,
            "redirect" => Self::Redirect { status: number("status")?, to: number("to")? },
            "gzip-bomb" => Self::GzipBomb,
            "nested-gzip" => Self::NestedGzip,
            "encoding" => Self::Encoding((*keys.get("name")?).to_owned()),
            "progress" => Self::Progress,
            "comments" => Self::Comments,
            "drip" => Self::Drip,
            "status" => Self::Status {
                status: number("status")?,
                retry_after: keys.get("retry-after").and_then(|value| value.parse().ok()),
                always: keys.get("on") == Some(&"all"),
            },
            "rpc-error" => Self::RpcError(keys.get("code").and_then(|code| code.parse().ok())?),
            "error-page" => Self::ErrorPage,
            "huge-json" => Self::HugeJson,
            "huge-events" => Self::HugeEvents,
            _ => return None,
        })
    }

    /// Returns true if the response to this message is faulty.
    pub(super) fn applies_to(&self, message: &Value) -> bool {
        match self {
            Self::None => false,
            Self::Redirect { .. } | Self::Status { always: true, .. } => true,
            _ => message["method"] == "tools/call",
        }
    }

    /// Sends the faulty response. The caller then closes the connection.
    pub(super) fn send(
        &self,
        message: &Value,
        server: &HttpServer,
        pipe: &mut dyn ByteStream,
    ) -> io::Result<()> {
        let head = |kind: &str, more: &str| {
            format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{more}connection: close\r\n\r\n")
        };
        let (json, events) = ("application/json", "text/event-stream");
        let good = server.response_to(message).unwrap_or_default();
        match self {
            Self::None => Ok(()),
            Self::Redirect { status, to } => {
                let location = format!("location: http://127.0.0.1:{to}/mcp\r\ncontent-length: 0\r\n");
                write!(pipe, "HTTP/1.1 {status} Elsewhere\r\n{location}connection: close\r\n\r\n")
            }
            Self::GzipBomb => {
                pipe.write_all(head(json, "content-encoding: gzip\r\n").as_bytes())?;
                write_gzip_bomb(pipe)
            }
            Self::NestedGzip => {
                pipe.write_all(head(json, "content-encoding: gzip, gzip\r\n").as_bytes())?;
                let mut outer = GzEncoder::new(pipe, Compression::best());
                write_gzip_bomb(&mut outer)?;
                outer.finish().map(drop)
            }
            Self::Encoding(name) => {
                pipe.write_all(head(json, &format!("content-encoding: {name}\r\n")).as_bytes())?;
                pipe.write_all(good.as_bytes())
            }
            Self::Progress => {
                pipe.write_all(head(events, "").as_bytes())?;
                for step in 0.. {
                    let params = json!({ "progressToken": message["params"]["_meta"]["progressToken"], "progress": step });
                    let note =
                        json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
                    write!(pipe, "data: {note}\n\n").and_then(|()| pipe.flush())?;
                    sleep(INTERVAL);
                }
                Ok(())
            }
            Self::Comments => {
                pipe.write_all(head(events, "").as_bytes())?;
                loop {
                    pipe.write_all(b": still here\n").and_then(|()| pipe.flush())?;
                    sleep(INTERVAL);
                }
            }
            Self::Drip => {
                pipe.write_all(head(json, "").as_bytes())?;
                for byte in good.bytes() {
                    pipe.write_all(&[byte]).and_then(|()| pipe.flush())?;
                    sleep(INTERVAL);
                }
                Ok(())
            }
            Self::Status { status, retry_after, .. } => {
                let wait = retry_after.map(|wait| format!("retry-after: {wait}\r\n")).unwrap_or_default();
                write!(pipe, "HTTP/1.1 {status} No\r\n{wait}content-length: 0\r\nconnection: close\r\n\r\n")
            }
            Self::RpcError(code) => {
                let error = json!({ "code": code, "message": "Unknown tool: echo" });
                let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "error": error });
                pipe.write_all(head(json, "").as_bytes())?;
                write!(pipe, "{answer}")
            }
            Self::ErrorPage => {
                let secret = "<p>Authorization: Bearer abcdefghijklmnopqrstuvwxyz0123456789</p>";
                let page = format!("<html><body>{secret}{}</body></html>", "<p>sorry</p>".repeat(90_000));
                let length = format!("content-length: {}\r\n", page.len());
                let head = head("text/html", &length).replace("200 OK", "500 Internal Server Error");
                pipe.write_all(head.as_bytes())?;
                pipe.write_all(page.as_bytes())
            }
            Self::HugeJson => {
                pipe.write_all(head(json, "").as_bytes())?;
                pipe.write_all(good.as_bytes())
            }
            Self::HugeEvents => {
                pipe.write_all(head(events, "").as_bytes())?;
                write!(pipe, "data: {good}\n\n")
            }
        }
    }
}

/// Writes a gigabyte of spaces, which are valid before JSON, compressed.
fn write_gzip_bomb(out: &mut dyn Write) -> io::Result<()> {
    let mut encoder = GzEncoder::new(out, Compression::best());
    let spaces = vec![b' '; 1 << 20];
    for _ in 0..1024 {
        encoder.write_all(&spaces)?;
    }
    encoder.finish().map(drop)
}
