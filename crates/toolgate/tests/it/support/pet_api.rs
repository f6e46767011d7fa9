//! A pet shop API: an HTTP server that records its requests, and projects that use it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value as Json, json};

use crate::support::program::Program;

/// API key of the pet shop.
pub(crate) const KEY: &str = "a-key-that-nobody-sees";

/// An HTTP server with responses by path. It ends with the process.
pub(crate) struct PetApi {
    pub(crate) port: u16,
    seen: Arc<Mutex<Vec<RecordedRequest>>>,
    answers: Arc<Mutex<HashMap<String, Vec<u8>>>>,
}

#[derive(Debug, Clone)]
pub(crate) struct RecordedRequest {
    /// `GET /v1/pets?x=y`.
    pub(crate) request_line: String,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl RecordedRequest {
    pub(crate) fn header(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
    }
}

pub(crate) fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

pub(crate) fn good(value: &Json) -> Vec<u8> {
    answer("200 OK", "Content-Type: application/json\r\n", value.to_string().as_bytes())
}

impl PetApi {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let api = Self { port, seen: Arc::default(), answers: Arc::default() };
        let (seen, answers) = (Arc::clone(&api.seen), Arc::clone(&api.answers));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, answers) = (Arc::clone(&seen), Arc::clone(&answers));
                thread::spawn(move || serve(stream, &seen, &answers));
            }
        });
        api
    }

    /// Sets the response of a path.
    pub(crate) fn respond_with(&self, path: &str, answer: Vec<u8>) {
        self.answers.lock().expect("the lock is not poisoned").insert(path.to_owned(), answer);
    }

    pub(crate) fn seen(&self) -> Vec<RecordedRequest> {
        self.seen.lock().expect("the lock is not poisoned").clone()
    }

    pub(crate) fn request_lines(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.request_line).collect()
    }

    pub(crate) fn last(&self) -> RecordedRequest {
        self.seen().pop().expect("a request was recorded")
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Creates a project with the document of the example and these keys of the API.
    pub(crate) fn project(&self, keys: Json) -> Program {
        let program = self.bare(keys);
        program.write("pets.yaml", include_str!("../../../../../examples/pets/pets.yaml"));
        program
    }

    pub(crate) fn bare(&self, keys: Json) -> Program {
        let mut api = json!({
            "document": "pets.yaml", "base_url": self.url("/v1"), "allow_networks": ["127.0.0.0/8"],
            "auth": { "shop_key": "${SHOP_KEY}" },
        });
        for (key, value) in keys.as_object().expect("keys") {
            match value {
                Json::Null => drop(api.as_object_mut().expect("a map").remove(key)),
                value => api[key] = value.clone(),
            }
        }
        let program = Program::new(&[]).with("SHOP_KEY", KEY);
        program.write("toolgate.yaml", json!({ "openapi": { "shop": api } }).to_string());
        program
    }
}

fn serve(stream: TcpStream, seen: &Mutex<Vec<RecordedRequest>>, answers: &Mutex<HashMap<String, Vec<u8>>>) {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let header = |line: &String| {
        let (name, value) = line.split_once(':').expect("a header");
        (name.to_lowercase(), value.trim().to_owned())
    };
    let headers: Vec<_> = lines[1..].iter().map(header).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(0, |(_, length)| length.parse().expect("a length"))];
    reader.read_exact(&mut body).expect("the whole body");
    let request_line = lines[0].trim_end_matches(" HTTP/1.1").to_owned();
    let path = request_line.split([' ', '?']).nth(1).unwrap_or_default().to_owned();
    seen.lock().expect("the lock is not poisoned").push(RecordedRequest {
        request_line,
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    });
    let bytes = answers
        .lock()
        .expect("the lock is not poisoned")
        .get(&path)
        .cloned()
        .unwrap_or_else(|| good(&json!({ "ok": true })));
    let _ = reader.get_mut().write_all(&bytes);
}
