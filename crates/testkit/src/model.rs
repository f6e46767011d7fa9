//! Scripted model on loopback: `testkit model FILE [port=N]`. Prints its port.
//!
//! Speaks three protocols, chosen by the path of the request: OpenAI chat completions, Anthropic messages, and Gemini
//! `generateContent`, each as one response or streamed. FILE is a JSON list of turns; each request takes the next one.
//! A turn has the content of the response: `text`, `calls` (`id`, `name`, `arguments`, which may be a string that is
//! not JSON), `stop` (`length`, `refused`), `usage` (`input`, `output`, `cached`), and `delay_ms` before it; or a
//! failure: `status` with `headers` and `error`, `breaks` (ends halfway), `garbage` (invalid JSON), `silent` (no response).
//! With `waits`, the second half of a stream comes once a file of this name exists.

mod encode;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use crate::{log, print_error};

/// Interval at which a file is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// API protocol of a vendor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelProtocol {
    OpenAi,
    Anthropic,
    Gemini,
}

struct ModelScript {
    turns: Vec<Value>,
    next: AtomicUsize,
}

pub(crate) fn main(args: &[String]) -> ExitCode {
    let text = args.first().and_then(|file| fs_err::read_to_string(file).ok());
    let Some(Ok(Value::Array(turns))) = text.map(|text| serde_json::from_str(&text)) else {
        print_error("usage: testkit model FILE [port=N], where FILE is a list of turns");
        return ExitCode::from(2);
    };
    let port = args.iter().find_map(|arg| arg.strip_prefix("port=")?.parse().ok()).unwrap_or(0);
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let _ = writeln!(std::io::stdout(), "{port}");
    let script = Arc::new(ModelScript { turns, next: AtomicUsize::new(0) });
    for connection in listener.incoming().flatten() {
        let script = Arc::clone(&script);
        std::thread::spawn(move || {
            let _ = serve(&connection, &script);
        });
    }
    ExitCode::SUCCESS
}

fn serve(mut connection: &TcpStream, script: &ModelScript) -> std::io::Result<()> {
    let Some((path, headers, body)) = read_request(connection)? else { return Ok(()) };
    let protocol = match path.as_str() {
        path if path.contains("/messages") => ModelProtocol::Anthropic,
        path if path.contains("enerateContent") => ModelProtocol::Gemini,
        _ => ModelProtocol::OpenAi,
    };
    let streams = body["stream"] == true || path.contains("streamGenerateContent");
    let number = script.next.fetch_add(1, Ordering::SeqCst);
    log::write(
        &json!({ "event": "model", "number": number, "path": path, "headers": headers, "body": body }),
    );
    let over = json!({ "text": "The script is over." });
    let turn = script.turns.get(number).unwrap_or(&over);
    if let Some(delay) = turn["delay_ms"].as_u64() {
        std::thread::sleep(std::time::Duration::from_millis(delay));
    }
    if turn["silent"] == true {
        std::thread::sleep(std::time::Duration::from_secs(600));
        return Ok(());
    }
    if let Some(status) = turn["status"].as_u64() {
        return send_error(&mut connection, status, turn, protocol);
    }
    if !streams {
        let body = if turn["garbage"] == true {
            "{\"choices\": [tr".to_owned()
        } else {
            encode::response(protocol, turn).to_string()
        };
        write!(connection, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n")?;
        return write!(connection, "content-length: {}\r\n\r\n{body}", body.len());
    }
    write!(connection, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
    if turn["garbage"] == true {
        return write!(connection, "data: {{\"choices\": [tr\n\n");
    }
    let mut events = encode::events(protocol, turn);
    if turn["breaks"] == true {
        events.truncate(events.len() / 2);
    }
    let half = events.len() / 2;
    for (at, event) in events.iter().enumerate() {
        if let Some(file) = turn["waits"].as_str().filter(|_| at == half) {
            while !Path::new(file).exists() {
                sleep(POLL_INTERVAL);
            }
        }
        connection.write_all(event.as_bytes())?;
        connection.flush()?;
    }
    Ok(())
}

fn send_error(
    out: &mut impl Write,
    status: u64,
    turn: &Value,
    protocol: ModelProtocol,
) -> std::io::Result<()> {
    let body = encode::error_body(protocol, status, turn).to_string();
    write!(out, "HTTP/1.1 {status} No\r\ncontent-type: application/json\r\nconnection: close\r\n")?;
    for (name, value) in turn["headers"].as_object().into_iter().flatten() {
        write!(out, "{name}: {}\r\n", value.as_str().unwrap_or_default())?;
    }
    write!(out, "content-length: {}\r\n\r\n{body}", body.len())
}

/// Reads a request; returns its path, headers and body.
fn read_request(connection: &TcpStream) -> std::io::Result<Option<(String, Value, Value)>> {
    let mut reader = BufReader::new(connection);
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let (mut headers, mut length) = (serde_json::Map::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap_or(0);
        }
        headers.insert(name.to_ascii_lowercase(), value.trim().into());
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some((path, Value::Object(headers), serde_json::from_slice(&body).unwrap_or_default())))
}
