//! A pet shop: an HTTP server that notes every byte it gets, and projects that use it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value as Json, json};

use crate::program::Program;

/// What the shop knows its customers by.
pub(crate) const KEY: &str = "a-key-that-nobody-sees";

/// An HTTP server: what it is asked, and what it answers by path. It ends with the process.
pub(crate) struct Shop {
    pub(crate) port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
    answers: Arc<Mutex<HashMap<String, Vec<u8>>>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// `GET /v1/pets?x=y`.
    pub(crate) asked: String,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Seen {
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

impl Shop {
    pub(crate) fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let shop = Self { port, seen: Arc::default(), answers: Arc::default() };
        let (seen, answers) = (Arc::clone(&shop.seen), Arc::clone(&shop.answers));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, answers) = (Arc::clone(&seen), Arc::clone(&answers));
                thread::spawn(move || serve(stream, &seen, &answers));
            }
        });
        shop
    }

    /// What is answered under a path from now on.
    pub(crate) fn says(&self, path: &str, answer: Vec<u8>) {
        self.answers.lock().expect("nobody panicked").insert(path.to_owned(), answer);
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("nobody panicked").clone()
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.asked).collect()
    }

    pub(crate) fn last(&self) -> Seen {
        self.seen().pop().expect("it was asked")
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// A project with the document of the example, and these keys of the API.
    pub(crate) fn project(&self, keys: Json) -> Program {
        let program = self.bare(keys);
        program.write("pets.yaml", include_str!("../../../../examples/pets/pets.yaml"));
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

fn serve(stream: TcpStream, seen: &Mutex<Vec<Seen>>, answers: &Mutex<HashMap<String, Vec<u8>>>) {
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
    let asked = lines[0].trim_end_matches(" HTTP/1.1").to_owned();
    let path = asked.split([' ', '?']).nth(1).unwrap_or_default().to_owned();
    seen.lock().expect("nobody panicked").push(Seen {
        asked,
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    });
    let bytes = answers
        .lock()
        .expect("nobody panicked")
        .get(&path)
        .cloned()
        .unwrap_or_else(|| good(&json!({ "ok": true })));
    let _ = reader.get_mut().write_all(&bytes);
}
