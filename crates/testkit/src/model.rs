//! A model on loopback that says what a script says: `testkit model FILE [port=N]`.
//!
//! It speaks three protocols, by the path that is asked for: chat completions of OpenAI, messages of Anthropic, and
//! `generateContent` of Gemini, each as a whole or piece by piece, as the request wants. FILE is a list of turns in
//! JSON; each request takes the next one. A turn has what is said: `text`, `calls` (`id`, `name`, `arguments`, which
//! may be a text that is no JSON), `stop` (`length`, `refused`), `usage` (`input`, `output`, `cached`); or how it fails:
//! `status` with `headers` and `error`, `breaks` in the middle, `garbage` in place of JSON, `silent`. It prints its port.

mod shapes;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::{complain, log};

/// Whose words are spoken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    OpenAi,
    Anthropic,
    Gemini,
}

struct Script {
    turns: Vec<Value>,
    next: AtomicUsize,
}

pub(crate) fn main(args: &[String]) -> ExitCode {
    let text = args.first().and_then(|file| fs_err::read_to_string(file).ok());
    let Some(Ok(Value::Array(turns))) = text.map(|text| serde_json::from_str(&text)) else {
        complain("usage: testkit model FILE [port=N], where FILE is a list of turns");
        return ExitCode::from(2);
    };
    let port = args.iter().find_map(|arg| arg.strip_prefix("port=")?.parse().ok()).unwrap_or(0);
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let _ = writeln!(std::io::stdout(), "{port}");
    let script = Arc::new(Script { turns, next: AtomicUsize::new(0) });
    for connection in listener.incoming().flatten() {
        let script = Arc::clone(&script);
        std::thread::spawn(move || {
            let _ = serve(&connection, &script);
        });
    }
    ExitCode::SUCCESS
}

fn serve(mut connection: &TcpStream, script: &Script) -> std::io::Result<()> {
    let Some((path, headers, body)) = request(connection)? else { return Ok(()) };
    let protocol = match path.as_str() {
        path if path.contains("/messages") => Protocol::Anthropic,
        path if path.contains("enerateContent") => Protocol::Gemini,
        _ => Protocol::OpenAi,
    };
    let streams = body["stream"] == true || path.contains("streamGenerateContent");
    let number = script.next.fetch_add(1, Ordering::SeqCst);
    log::write(
        &json!({ "event": "model", "number": number, "path": path, "headers": headers, "body": body }),
    );
    let over = json!({ "text": "The script is over." });
    let turn = script.turns.get(number).unwrap_or(&over);
    if turn["silent"] == true {
        std::thread::sleep(std::time::Duration::from_secs(600));
        return Ok(());
    }
    if let Some(status) = turn["status"].as_u64() {
        return refuse(&mut connection, status, turn, protocol);
    }
    if !streams {
        let body = if turn["garbage"] == true {
            "{\"choices\": [tr".to_owned()
        } else {
            shapes::whole(protocol, turn).to_string()
        };
        write!(connection, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n")?;
        return write!(connection, "content-length: {}\r\n\r\n{body}", body.len());
    }
    write!(connection, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
    if turn["garbage"] == true {
        return write!(connection, "data: {{\"choices\": [tr\n\n");
    }
    let mut events = shapes::events(protocol, turn);
    if turn["breaks"] == true {
        events.truncate(events.len() / 2);
    }
    for event in events {
        connection.write_all(event.as_bytes())?;
        connection.flush()?;
    }
    Ok(())
}

fn refuse(out: &mut impl Write, status: u64, turn: &Value, protocol: Protocol) -> std::io::Result<()> {
    let body = shapes::refusal(protocol, status, turn).to_string();
    write!(out, "HTTP/1.1 {status} No\r\ncontent-type: application/json\r\nconnection: close\r\n")?;
    for (name, value) in turn["headers"].as_object().into_iter().flatten() {
        write!(out, "{name}: {}\r\n", value.as_str().unwrap_or_default())?;
    }
    write!(out, "content-length: {}\r\n\r\n{body}", body.len())
}

/// The path, the headers and the body of a request.
fn request(connection: &TcpStream) -> std::io::Result<Option<(String, Value, Value)>> {
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
