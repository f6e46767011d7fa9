//! How to misbehave in an answer to `tools/call`; redirects are for every request.

use std::collections::HashMap;
use std::io::{self, Write};
use std::thread::sleep;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::Server;
use super::connection::Pipe;

/// How to misbehave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// Not at all.
    None,
    /// Sends everyone to another port.
    Redirect { status: u16, to: u16 },
    /// A gigabyte, compressed to a thousandth.
    GzipBomb,
    /// The same, compressed once more to ten kilobytes.
    NestedGzip,
    /// An encoding that nobody asked for.
    Encoding(String),
    /// Progress all the time, and never the answer.
    Progress,
    /// Comments, and never an event.
    Comments,
    /// The answer, byte by byte with pauses.
    Drip,
    /// A page of a megabyte that says that something went wrong, with a token in it.
    ErrorPage,
    /// 64 MiB as JSON.
    HugeJson,
    /// 64 MiB as an event.
    HugeEvents,
}

/// Between two signs of life of those that never come to an end.
const BEAT: Duration = Duration::from_millis(500);

impl Fault {
    pub(super) fn of(name: &str, keys: &HashMap<&str, &str>) -> Option<Self> {
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
            "error-page" => Self::ErrorPage,
            "huge-json" => Self::HugeJson,
            "huge-events" => Self::HugeEvents,
            _ => return None,
        })
    }

    /// Whether the answer to this message is a bad one.
    pub(super) fn concerns(&self, message: &Value) -> bool {
        match self {
            Self::None => false,
            Self::Redirect { .. } => true,
            _ => message["method"] == "tools/call",
        }
    }

    /// The bad answer. Its connection is closed behind it.
    pub(super) fn commit(&self, message: &Value, server: &Server, pipe: &mut dyn Pipe) -> io::Result<()> {
        let head = |kind: &str, more: &str| {
            format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{more}connection: close\r\n\r\n")
        };
        let (json, events) = ("application/json", "text/event-stream");
        let whole = server.message(message).unwrap_or_default();
        match self {
            Self::None => Ok(()),
            Self::Redirect { status, to } => {
                let place = format!("location: http://127.0.0.1:{to}/mcp\r\ncontent-length: 0\r\n");
                write!(pipe, "HTTP/1.1 {status} Elsewhere\r\n{place}connection: close\r\n\r\n")
            }
            Self::GzipBomb => {
                pipe.write_all(head(json, "content-encoding: gzip\r\n").as_bytes())?;
                bomb(pipe)
            }
            Self::NestedGzip => {
                pipe.write_all(head(json, "content-encoding: gzip, gzip\r\n").as_bytes())?;
                let mut outer = GzEncoder::new(pipe, Compression::best());
                bomb(&mut outer)?;
                outer.finish().map(drop)
            }
            Self::Encoding(name) => {
                pipe.write_all(head(json, &format!("content-encoding: {name}\r\n")).as_bytes())?;
                pipe.write_all(whole.as_bytes())
            }
            Self::Progress => {
                pipe.write_all(head(events, "").as_bytes())?;
                for step in 0.. {
                    let params = json!({ "progressToken": message["params"]["_meta"]["progressToken"], "progress": step });
                    let note =
                        json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
                    write!(pipe, "data: {note}\n\n").and_then(|()| pipe.flush())?;
                    sleep(BEAT);
                }
                Ok(())
            }
            Self::Comments => {
                pipe.write_all(head(events, "").as_bytes())?;
                loop {
                    pipe.write_all(b": still here\n").and_then(|()| pipe.flush())?;
                    sleep(BEAT);
                }
            }
            Self::Drip => {
                pipe.write_all(head(json, "").as_bytes())?;
                for byte in whole.bytes() {
                    pipe.write_all(&[byte]).and_then(|()| pipe.flush())?;
                    sleep(BEAT);
                }
                Ok(())
            }
            Self::ErrorPage => {
                let said = "<p>Authorization: Bearer abcdefghijklmnopqrstuvwxyz0123456789</p>";
                let page = format!("<html><body>{said}{}</body></html>", "<p>sorry</p>".repeat(90_000));
                let length = format!("content-length: {}\r\n", page.len());
                let head = head("text/html", &length).replace("200 OK", "500 Internal Server Error");
                pipe.write_all(head.as_bytes())?;
                pipe.write_all(page.as_bytes())
            }
            Self::HugeJson => {
                pipe.write_all(head(json, "").as_bytes())?;
                pipe.write_all(whole.as_bytes())
            }
            Self::HugeEvents => {
                pipe.write_all(head(events, "").as_bytes())?;
                write!(pipe, "data: {whole}\n\n")
            }
        }
    }
}

/// A gigabyte of spaces, which JSON may begin with.
fn bomb(out: &mut dyn Write) -> io::Result<()> {
    let mut encoder = GzEncoder::new(out, Compression::best());
    let spaces = vec![b' '; 1 << 20];
    for _ in 0..1024 {
        encoder.write_all(&spaces)?;
    }
    encoder.finish().map(drop)
}
