//! Runs `toolgate serve` in the background, and sends raw HTTP requests to it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::support::program::{HANG_TIMEOUT, Program, RunningProgram};
use crate::support::test_server::testkit;

/// API key of the owner.
pub(crate) const OWNER: &str = "the-owner-has-this-key";

/// A running `toolgate serve`; killed when dropped.
pub(crate) struct Gateway {
    pub(crate) program: Program,
    pub(crate) running: RunningProgram,
    pub(crate) port: u16,
}

/// HTTP response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    /// The head in lower case.
    pub(crate) head: String,
    /// The head as received.
    pub(crate) verbatim: String,
    pub(crate) body: String,
}

/// Creates a project with one server, `s`, that answers as the `fault` of each call says, and more config. The requests
/// of the server are in the file `seen`.
pub(crate) fn project(config: &Json) -> Program {
    let program = Program::new(&[]).with("TOOLGATE_LOG", "off").with("TOOLGATE_API_KEY", OWNER);
    let server = json!({
        "name": "s", "command": testkit(), "args": ["faulty"], "env": { "TESTKIT_LOG": program.path("seen") },
        "mode": "dynamic", "default_tool_config": { "max_instances": 64, "timeout": "50s" } });
    let mut whole = json!({ "toolbox": { "mcps": [server] } });
    for (key, value) in config.as_object().into_iter().flatten() {
        match key.as_str() {
            "tools" | "max_concurrent" | "taint_window" | "hints" => whole["toolbox"][key] = value.clone(),
            "mcps" => whole["toolbox"]["mcps"] = value.clone(),
            "server" => {
                let server = &mut whole["toolbox"]["mcps"][0];
                for (key, value) in value.as_object().expect("keys of a server") {
                    match (key.as_str(), value.as_object()) {
                        // Merged, so that the server still records its requests.
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

impl Gateway {
    /// Starts a gateway with one server; see [`project`].
    pub(crate) fn start(config: &Json) -> Self {
        Self::serve(project(config))
    }

    /// Starts the gateway of a project.
    pub(crate) fn serve(program: Program) -> Self {
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
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the gateway listens");
        stream.set_read_timeout(Some(HANG_TIMEOUT)).expect("it is a socket");
        stream
    }

    /// Sends bytes on a new connection and reads the response.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Option<HttpResponse> {
        let mut stream = self.connect();
        // The gateway may close the connection before it has read everything.
        let _ = stream.write_all(bytes);
        HttpResponse::read(&mut BufReader::new(stream))
    }

    /// Sends a request with these header lines.
    pub(crate) fn request(&self, first: &str, headers: &[&str], body: &str) -> HttpResponse {
        self.raw(request(first, headers, body).as_bytes()).expect("an answer")
    }

    pub(crate) fn get(&self, path: &str, key: &str) -> HttpResponse {
        self.request(&format!("GET {path}"), &[&format!("X-API-Key: {key}")], "")
    }

    pub(crate) fn post(&self, path: &str, key: &str, body: &Json) -> HttpResponse {
        self.post_text(path, key, &body.to_string())
    }

    pub(crate) fn post_text(&self, path: &str, key: &str, body: &str) -> HttpResponse {
        let key = format!("Authorization: Bearer {key}");
        self.request(&format!("POST {path}"), &[&key, "Content-Type: application/json"], body)
    }

    /// Sends an MCP message, in a session if one is given.
    pub(crate) fn post_mcp(&self, key: &str, session: Option<&str>, message: &Json) -> HttpResponse {
        let (key, session) =
            (format!("Authorization: Bearer {key}"), session.map(|id| format!("Mcp-Session-Id: {id}")));
        let accept = "Accept: application/json, text/event-stream";
        let headers = [&*key, accept, "Content-Type: application/json"].into_iter().chain(session.as_deref());
        self.request("POST /mcp", &headers.collect::<Vec<_>>(), &message.to_string())
    }

    /// Calls a tool of the server.
    pub(crate) fn call(&self, key: &str, tool: &str, arguments: &Json) -> HttpResponse {
        self.post(&format!("/v1/tools/{tool}/call"), key, &json!({ "arguments": arguments }))
    }

    /// Returns the executions that match a filter, newest first.
    pub(crate) fn executions(&self, filter: &str) -> Vec<Json> {
        let response = self.get(&format!("/v1/executions?{filter}"), OWNER);
        response.json()["executions"].as_array().expect("a list").clone()
    }

    /// Returns the calls the server got.
    pub(crate) fn seen(&self) -> Vec<Json> {
        let seen = fs_err::read_to_string(self.program.path("seen")).unwrap_or_default();
        let seen = seen.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok());
        seen.filter(|line| line["message"]["method"] == "tools/call").collect()
    }

    /// Waits until a condition holds.
    pub(crate) fn wait(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        wait_until(what, || holds(self));
    }

    #[expect(clippy::disallowed_methods, reason = "a signal, without unsafe code")]
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.running.child.id().to_string()]).status();
        assert!(status.expect("`kill` is installed").success());
    }

    /// Waits for the end; returns the exit code.
    pub(crate) fn wait_for_exit(&mut self) -> Option<i32> {
        let mut code = None;
        let child = std::cell::RefCell::new(&mut self.running.child);
        wait_until("the end", || {
            let ended = child.borrow_mut().try_wait().expect("it is our child");
            ended.inspect(|status| code = status.code()).is_some()
        });
        code
    }
}

/// Waits until a condition holds.
#[expect(clippy::disallowed_methods, reason = "what is waited for is another process")]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < HANG_TIMEOUT, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns an HTTP/1.1 request. `Host` and `Content-Length` are added if missing.
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

impl HttpResponse {
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
        // A 204 response has no content length.
        let length = if status == 204 { "0" } else { length? };
        let mut body = vec![0; length.trim().parse().ok()?];
        stream.read_exact(&mut body).ok()?;
        Some(Self { status, head, verbatim, body: String::from_utf8(body).expect("UTF-8") })
    }

    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// Returns the error code, or `none`.
    pub(crate) fn code(&self) -> String {
        let error = &self.json()["error"];
        let code = error["code"].as_str().or_else(|| error["data"]["code"].as_str());
        code.unwrap_or("none").to_owned()
    }

    /// Returns the status and the error code.
    pub(crate) fn status_and_code(&self) -> (u16, String) {
        (self.status, self.code())
    }

    /// Returns the id of the session, which is case-sensitive.
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
