//! One connection: logs and answers its requests, and logs its end.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc;

use rustls::{ServerConnection, StreamOwned};
use serde_json::{Map, Value, json};
use tungstenite::handshake::server::{Request as Upgrade, Response as Upgraded};
use tungstenite::http::HeaderValue;

use super::HttpServer;
use crate::log;

/// Plain or TLS connection.
pub(super) trait ByteStream: Read + Write {}
impl<T: Read + Write> ByteStream for T {}

struct HttpRequest {
    method: String,
    path: String,
    session: Option<String>,
    message: Value,
}

pub(super) fn serve(number: usize, tcp: TcpStream, server: &HttpServer) {
    let _ = tcp.set_nodelay(true);
    log::write(&json!({ "event": "connected", "connection": number }));
    let outcome = match &server.tls {
        Some(config) => {
            accept_tls(&tcp, config).and_then(|mut pipe| serve_requests(number, &mut pipe, server))
        }
        None if wants_websocket(&tcp) => serve_websocket(number, &tcp, server),
        None => {
            log_close(number, &tcp);
            serve_requests(number, &mut &tcp, server)
        }
    };
    if let Err(error) = outcome {
        log::write(&json!({ "event": "broken", "connection": number, "error": error.to_string() }));
    }
    // Drain the connection: closing it with unread data would reset it, and the peer would lose our last bytes.
    let _ = tcp.shutdown(Shutdown::Write);
    let _ = io::copy(&mut &tcp, &mut io::sink());
    if server.tls.is_some() {
        log::write(&json!({ "event": "closed", "connection": number }));
    }
}

/// Logs the moment the peer closes the connection, while another thread writes to it.
fn log_close(number: usize, tcp: &TcpStream) {
    let Ok(tcp) = tcp.try_clone() else { return };
    std::thread::spawn(move || {
        let pause = std::time::Duration::from_millis(2);
        let mut byte = [0];
        // A peek leaves the bytes in place; the thread that reads requests removes them.
        while matches!(tcp.peek(&mut byte), Ok(1)) {
            std::thread::sleep(pause);
        }
        log::write(&json!({ "event": "closed", "connection": number }));
    });
}

fn accept_tls<'a>(
    tcp: &'a TcpStream,
    config: &std::sync::Arc<rustls::ServerConfig>,
) -> io::Result<StreamOwned<ServerConnection, &'a TcpStream>> {
    let mut session = ServerConnection::new(std::sync::Arc::clone(config)).map_err(io::Error::other)?;
    while session.is_handshaking() {
        session.complete_io(&mut &*tcp)?;
    }
    Ok(StreamOwned::new(session, tcp))
}

/// Answers requests one after the other.
fn serve_requests(number: usize, pipe: &mut dyn ByteStream, server: &HttpServer) -> io::Result<()> {
    let mut pipe = BufReader::new(pipe);
    while let Some(request) = read_request(number, &mut pipe)? {
        let out = pipe.get_mut();
        let HttpRequest { method, path, session, message } = request;
        if let Some(status) = server.lost.filter(|_| session.is_some() && session != server.session) {
            write_response(*out, &format!("{status} Lost"), r#"{"error":"Invalid session ID"}"#)?;
            continue;
        }
        if server.fault.applies_to(&message) && !path.starts_with("/messages") {
            return server.fault.send(&message, server, *out);
        }
        let (path, query) = path.split_once('?').unwrap_or((&path, ""));
        let session = query.strip_prefix("session=").map(str::to_owned).or(session);
        let is_first = matches!(message["method"].as_str(), Some("initialize" | "server/discover"));
        if method == "POST" && !is_first && server.is_lost(session.as_deref()) {
            write_response(*out, "404 Not Found", r#"{"error":"Invalid session ID"}"#)?;
            continue;
        }
        match (method.as_str(), path) {
            ("GET", "/sse") => return serve_sse(*out, server),
            // The first revision has no POST to the URL of the stream.
            ("POST", "/sse") => write_response(*out, "405 Method Not Allowed", "")?,
            ("POST", "/messages") => {
                let session = session.unwrap_or_default();
                let events = server.events.lock().expect("the lock is not poisoned").get(&session).cloned();
                write_response(*out, "202 Accepted", "")?;
                let answer = server.answer_from_notes(Some(&session), &message);
                if let (Some(events), Some(answer)) =
                    (events, answer.or_else(|| server.response_to(&message)))
                {
                    let _ = events.send(answer);
                }
            }
            ("POST", _) if message["method"] == "initialize" && server.notes.is_some() => {
                let answer = server.response_to(&message).unwrap_or_default();
                let session = server.begin_session();
                let head = format!("mcp-session-id: {session}\r\ncontent-type: application/json");
                write!(out, "HTTP/1.1 200 OK\r\n{head}\r\ncontent-length: {}\r\n\r\n{answer}", answer.len())?;
                out.flush()?;
            }
            ("POST", _) if let Some(answer) = server.answer_from_notes(session.as_deref(), &message) => {
                write_response(*out, "200 OK", &answer)?;
            }
            ("POST", _) if message["method"].is_null() => {
                let id = message["id"].as_str().unwrap_or_default();
                let question = server.open_questions.lock().expect("the lock is not poisoned").remove(id);
                write_response(*out, "202 Accepted", "")?;
                let answer = message.get("result").or_else(|| message.get("error")).cloned();
                question.map(|question| question.send(answer.unwrap_or_default().to_string()));
            }
            ("POST", _) if message["params"]["name"] == "ask" && !server.modern => {
                return ask_client(*out, server, number, &message);
            }
            ("POST", _) if message["method"] == "initialize" && server.session.is_some() => {
                let answer = server.response_to(&message).unwrap_or_default();
                let session = server.session.as_deref().unwrap_or_default();
                let head = format!("mcp-session-id: {session}\r\ncontent-type: application/json");
                write!(out, "HTTP/1.1 200 OK\r\n{head}\r\ncontent-length: {}\r\n\r\n{answer}", answer.len())?;
                out.flush()?;
            }
            ("POST", _) => match server.response_to(&message) {
                Some(answer) => write_response(*out, "200 OK", &answer)?,
                None => write_response(*out, "202 Accepted", "")?,
            },
            ("DELETE", _) => {
                server.end_session(session.as_deref().unwrap_or_default());
                write_response(*out, "200 OK", "")?;
            }
            _ => write_response(*out, "405 Method Not Allowed", "")?,
        }
    }
    Ok(())
}

/// Reads the next request; `None` if the peer closed the connection.
fn read_request(number: usize, pipe: &mut impl BufRead) -> io::Result<Option<HttpRequest>> {
    let mut first = String::new();
    if pipe.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let mut words = first.split_whitespace().map(str::to_owned);
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("not a request: {first:?}")));
    };
    let mut headers = Map::new();
    loop {
        let mut line = String::new();
        pipe.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().into());
    }
    let length = headers.get("content-length").and_then(Value::as_str).and_then(|text| text.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    pipe.read_exact(&mut body)?;
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let session = headers.get("mcp-session-id").and_then(Value::as_str).map(str::to_owned);
    log::write(&json!({
        "event": "request",
        "connection": number,
        "method": method,
        "path": path,
        "headers": headers,
        "message": message,
        "body": String::from_utf8_lossy(&body),
    }));
    Ok(Some(HttpRequest { method, path, session, message }))
}

fn write_response(out: &mut dyn ByteStream, status: &str, body: &str) -> io::Result<()> {
    let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    write!(out, "HTTP/1.1 {status}\r\n{kind}content-length: {}\r\n\r\n{body}", body.len())?;
    out.flush()
}

/// Asks a question on the stream of a call, and returns the answer, which arrives in a separate request.
fn ask_client(out: &mut dyn ByteStream, server: &HttpServer, number: usize, call: &Value) -> io::Result<()> {
    let (sender, answer) = mpsc::channel();
    let id = format!("q{number}");
    server.open_questions.lock().expect("the lock is not poisoned").insert(id.clone(), sender);
    write!(out, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
    let params = super::elicitation_params(&call["params"]["arguments"]);
    let question = json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params });
    write!(out, "data: {question}\n\n").and_then(|()| out.flush())?;
    let response = answer.recv().unwrap_or_default();
    let result = json!({ "content": [{ "type": "text", "text": response }] });
    let answer = json!({ "jsonrpc": "2.0", "id": call["id"], "result": result });
    write!(out, "data: {answer}\n\n").and_then(|()| out.flush())
}

/// Serves the event stream of the first revision until the client closes it.
fn serve_sse(out: &mut dyn ByteStream, server: &HttpServer) -> io::Result<()> {
    let (sender, answers) = mpsc::channel();
    let session = server.begin_session();
    server.events.lock().expect("the lock is not poisoned").insert(session.clone(), sender);
    write!(out, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
    write!(out, "event: endpoint\ndata: /messages?session={session}\n\n")?;
    for answer in answers {
        write!(out, "data: {answer}\n\n").and_then(|()| out.flush())?;
    }
    Ok(())
}

/// Returns true if the first request is for a WebSocket. Peeks, so nothing is consumed.
fn wants_websocket(tcp: &TcpStream) -> bool {
    let mut start = [0; 8];
    tcp.peek(&mut start).is_ok_and(|length| start[..length].starts_with(b"GET /ws"))
}

fn serve_websocket(number: usize, tcp: &TcpStream, server: &HttpServer) -> io::Result<()> {
    #[expect(clippy::result_large_err, reason = "the type is the library's")]
    let log_upgrade = |request: &Upgrade, mut response: Upgraded| {
        let headers = request.headers().iter();
        let headers: Map<String, Value> = headers
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into()))
            .collect();
        log::write(&json!({ "event": "upgraded", "connection": number, "headers": headers }));
        response.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static("mcp"));
        Ok(response)
    };
    let mut socket =
        tungstenite::accept_hdr(tcp, log_upgrade).map_err(|error| io::Error::other(error.to_string()))?;
    while let Ok(message) = socket.read() {
        let Some(message) = message.to_text().ok().and_then(|text| serde_json::from_str(text).ok()) else {
            continue;
        };
        log::write(&json!({ "event": "request", "connection": number, "message": message }));
        if let Some(answer) = server.response_to(&message) {
            socket.send(answer.into()).map_err(io::Error::other)?;
        }
    }
    Ok(())
}
