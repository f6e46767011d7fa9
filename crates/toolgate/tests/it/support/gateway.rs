//! `toolgate serve` in the background, and a client that sends what it is told to, byte by byte.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::program::{PATIENCE, Program, Running};
use crate::servers::testkit;

/// The owner's key.
pub(crate) const OWNER: &str = "the-owner-has-this-key";

/// A running `toolgate serve`, gone with its test.
pub(crate) struct Door {
    pub(crate) program: Program,
    pub(crate) running: Running,
    pub(crate) port: u16,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The head, in lower case.
    pub(crate) head: String,
    /// The head, as it came.
    pub(crate) verbatim: String,
    pub(crate) body: String,
}

/// A project with one server, `s`, that answers as each call's `fault` says, and what else is configured. What
/// the server saw is in the file `seen`.
pub(crate) fn project(config: &Json) -> Program {
    let program = Program::new(&[]).with("TOOLGATE_LOG", "off").with("TOOLGATE_API_KEY", OWNER);
    let server = json!({
        "name": "s", "command": testkit(), "args": ["faulty"], "env": { "TESTKIT_LOG": program.path("seen") },
        "mode": "dynamic", "default_tool_config": { "max_instances": 64, "timeout": "50s" } });
    let mut whole = json!({ "toolbox": { "mcps": [server] } });
    for (key, value) in config.as_object().into_iter().flatten() {
        match key.as_str() {
            "tools" | "max_concurrent" => whole["toolbox"][key] = value.clone(),
            "mcps" => whole["toolbox"]["mcps"] = value.clone(),
            "server" => {
                let server = &mut whole["toolbox"]["mcps"][0];
                for (key, value) in value.as_object().expect("keys of a server") {
                    match (key.as_str(), value.as_object()) {
                        // It goes on to tell what it has seen.
                        ("env", Some(more)) => {
                            let env = server["env"].as_object_mut().expect("variables");
                            env.extend(more.clone());
                        }
                        _ => server[key] = value.clone(),
                    }
                }
            }
            _ => whole[key] = value.clone(),
        }
    }
    program.write("toolgate.yaml", whole.to_string());
    program
}

impl Door {
    /// Opens the door of a project with one server; see [`project`].
    pub(crate) fn open(config: &Json) -> Self {
        Self::of(project(config))
    }

    /// Opens the door of a project.
    pub(crate) fn of(program: Program) -> Self {
        Self::with(program, "serve --json --listen 127.0.0.1:0")
    }

    pub(crate) fn with(program: Program, arguments: &str) -> Self {
        let running = program.start(arguments);
        let (line, _) = running.line(|line| line.starts_with('{'));
        let ready: Json = serde_json::from_str(&line).expect("one JSON document");
        let address = ready["address"].as_str().expect("an address");
        let port = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        Self { program, running, port }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("somebody listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
        stream
    }

    /// Sends bytes on a connection of their own, and reads all that comes back.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Option<Answer> {
        let mut stream = self.connect();
        // Whoever is refused early may not be listened to up to the end.
        let _ = stream.write_all(bytes);
        Answer::read(&mut BufReader::new(stream))
    }

    /// A request with these headers, each a line.
    pub(crate) fn request(&self, first: &str, headers: &[&str], body: &str) -> Answer {
        self.raw(request(first, headers, body).as_bytes()).expect("an answer")
    }

    pub(crate) fn get(&self, path: &str, key: &str) -> Answer {
        self.request(&format!("GET {path}"), &[&format!("X-API-Key: {key}")], "")
    }

    pub(crate) fn post(&self, path: &str, key: &str, body: &Json) -> Answer {
        self.post_text(path, key, &body.to_string())
    }

    pub(crate) fn post_text(&self, path: &str, key: &str, body: &str) -> Answer {
        let key = format!("Authorization: Bearer {key}");
        self.request(&format!("POST {path}"), &[&key, "Content-Type: application/json"], body)
    }

    /// Calls a tool of the server.
    pub(crate) fn call(&self, key: &str, tool: &str, arguments: &Json) -> Answer {
        self.post(&format!("/v1/tools/{tool}/call"), key, &json!({ "arguments": arguments }))
    }

    /// The calls that pass a filter, the newest first.
    pub(crate) fn executions(&self, filter: &str) -> Vec<Json> {
        let answer = self.get(&format!("/v1/executions?{filter}"), OWNER);
        answer.json()["executions"].as_array().expect("a list").clone()
    }

    /// The calls that the server saw.
    pub(crate) fn seen(&self) -> Vec<Json> {
        let seen = fs_err::read_to_string(self.program.path("seen")).unwrap_or_default();
        let seen = seen.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok());
        seen.filter(|line| line["message"]["method"] == "tools/call").collect()
    }

    /// Waits until something holds.
    pub(crate) fn wait(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        until(what, || holds(self));
    }

    #[expect(clippy::disallowed_methods, reason = "a signal, without unsafe code")]
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.running.child.id().to_string()]).status();
        assert!(status.expect("there is `kill`").success());
    }

    /// How it ended, once it has.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let mut code = None;
        let child = std::cell::RefCell::new(&mut self.running.child);
        until("the end", || {
            let ended = child.borrow_mut().try_wait().expect("it is our child");
            ended.inspect(|status| code = status.code()).is_some()
        });
        code
    }
}

/// Waits until something holds.
#[expect(clippy::disallowed_methods, reason = "what is waited for is another process")]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A request as bytes. A host and the length are added where they are missing.
pub(crate) fn request(first: &str, headers: &[&str], body: &str) -> String {
    let mut text = format!("{first} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|header| header.to_lowercase().starts_with("host:")) {
        text.push_str("Host: localhost\r\n");
    }
    for header in headers {
        text.push_str(header);
        text.push_str("\r\n");
    }
    if !body.is_empty() {
        text.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    text.push_str("\r\n");
    text.push_str(body);
    text
}

impl Answer {
    pub(crate) fn read(stream: &mut impl BufRead) -> Option<Self> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let verbatim = head.clone();
        let head = head.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        // An answer without content says nothing of its length.
        let length = if status == 204 { "0" } else { length? };
        let mut body = vec![0; length.trim().parse().ok()?];
        stream.read_exact(&mut body).ok()?;
        Some(Self { status, head, verbatim, body: String::from_utf8(body).expect("UTF-8") })
    }

    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The code of its error, or `none`.
    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or("none").to_owned()
    }

    /// Status and code.
    pub(crate) fn told(&self) -> (u16, String) {
        (self.status, self.code())
    }

    /// The session that begins with it, whose letters have a case.
    pub(crate) fn session(&self) -> Option<&str> {
        let name = "mcp-session-id: ";
        let line = self.verbatim.lines().find(|line| line.to_lowercase().starts_with(name))?;
        line.get(name.len()..)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let start = format!("{name}: ");
        self.head.lines().find_map(|line| line.strip_prefix(start.as_str()))
    }
}
