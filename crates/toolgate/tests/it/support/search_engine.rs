//! Fake web search engine.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value as Json;

/// A search engine that sends the same response to every request and records the requests.
pub(crate) struct SearchEngine {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl SearchEngine {
    /// Sends a status, headers and a body; no response if the status is empty.
    pub(crate) fn start(status: &str, headers: &str, body: impl Into<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let (kept, body) = (Arc::clone(&requests), body.into());
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n",
            body.len()
        );
        let silent = status.is_empty();
        thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming().flatten() {
                let Some(request) = read(&stream) else { continue };
                kept.lock().expect("the lock is not poisoned").push(request);
                if silent {
                    held.push(stream);
                    continue;
                }
                let mut stream = stream;
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
            }
        });
        Self { port, requests }
    }

    pub(crate) fn good(body: &Json) -> Self {
        Self::start("200 OK", "Content-Type: application/json\r\n", body.to_string())
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("the lock is not poisoned").clone()
    }
}

fn read(stream: &TcpStream) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        if reader.read_line(&mut text).ok()? == 0 {
            return None;
        }
    }
    let length =
        text.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(text + &String::from_utf8(body).ok()?)
}
