//! `toolgate stdio`: the gateway over pipes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::program::Program;

/// A conversation with `toolgate stdio`.
pub(crate) struct Talk {
    child: std::process::Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Talk {
    fn begin(program: &Program) -> Self {
        Self::with(program, &["stdio"])
    }

    pub(crate) fn with(program: &Program, arguments: &[&str]) -> Self {
        let mut command = program.command(arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, stdin, stdout }
    }

    pub(crate) fn say(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().expect("it was not closed");
        writeln!(stdin, "{message}").expect("it is read");
    }

    /// The next message. Who comes before all tools are known hears that they are, which is passed over.
    pub(crate) fn hear(&mut self) -> Value {
        loop {
            let mut line = String::new();
            self.stdout.read_line(&mut line).expect("it is a line");
            let message: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
            if message["method"] != "notifications/tools/list_changed" {
                return message;
            }
        }
    }

    pub(crate) fn ask(&mut self, id: u32, method: &str, params: &Value) -> Value {
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        // A list that changed is told whenever that is.
        std::iter::repeat_with(|| self.hear()).find(|message| !message["id"].is_null()).expect("it goes on")
    }
}

fn project() -> Program {
    let tools = json!({ "tools": [{
        "name": "count", "type": "local", "description": "Counts the letters of a text.",
        "input_schema": { "type": "object", "properties": { "words": { "type": "string" } } },
        "config": { "script_path": "count.py" },
    }] });
    let script = "def run(args):\n    return {'letters': len(args['words'])}\n";
    let yaml = "registries: { tools: tools/tools.json }";
    let files =
        [("toolgate.yaml", yaml), ("tools/tools.json", &tools.to_string()), ("tools/count.py", script)];
    Program::new(&files).with("TOOLGATE_LOG", "off")
}

#[test]
fn a_client_with_a_handshake_and_one_without() {
    let program = project();
    let mut talk = Talk::begin(&program);
    let refused = talk.ask(0, "tools/list", &json!({}));
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let welcome = talk.ask(1, "initialize", &params);
    assert_eq!(welcome["result"]["protocolVersion"], "2025-06-18", "{welcome}");
    assert_eq!(welcome["result"]["serverInfo"]["name"], "toolgate");
    talk.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let listed = talk.ask(2, "tools/list", &json!({}));
    assert_eq!(listed["result"]["tools"][0]["name"], "count", "{listed}");
    assert!(listed["result"].get("resultType").is_none(), "{listed}");
    let called = talk.ask(3, "tools/call", &json!({ "name": "count", "arguments": { "words": "a b" } }));
    assert_eq!(called["result"]["structuredContent"]["letters"], 3, "{called}");
    assert!(called["result"]["_meta"]["toolgate/result"]["agentHints"].is_object(), "{called}");

    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let found = talk.ask(4, "server/discover", &json!({ "_meta": meta }));
    assert_eq!(found["result"]["supportedVersions"][0], "2026-07-28", "{found}");
    let listed = talk.ask(5, "tools/list", &json!({ "_meta": meta }));
    assert_eq!(listed["result"]["resultType"], "complete", "{listed}");
    assert_eq!(listed["result"]["cacheScope"], "private");
    let other = json!({ "io.modelcontextprotocol/protocolVersion": "2031-01-01", "io.modelcontextprotocol/clientCapabilities": {} });
    let refused = talk.ask(6, "tools/list", &json!({ "_meta": other }));
    assert_eq!(refused["error"]["code"], -32022, "{refused}");

    drop(talk.stdin.take());
    assert!(talk.child.wait().unwrap().success(), "it ends when its client leaves");
    let log = program.run("log --json");
    assert!(log.stdout.contains("\"count\""), "{}", log.stdout);
}

#[test]
fn what_is_no_message_is_told_and_nothing_breaks() {
    let program = project();
    let mut talk = Talk::begin(&program);
    for (bad, code) in [
        ("nope", -32700),
        ("{}", -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1,"a":2}}"#, -32700),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
    ] {
        writeln!(talk.stdin.as_mut().unwrap(), "{bad}").unwrap();
        let answer = talk.hear();
        assert!(answer["error"]["code"] == code && answer["id"].is_null(), "{answer}");
    }
    assert_eq!(talk.ask(1, "ping", &json!({}))["result"], json!({}));
}

#[test]
fn an_unknown_caller_does_not_start() {
    let run = project().run("stdio --as nobody");
    assert_eq!(run.code, 1, "{}", run.stderr);
}

/// The person behind the client answers what `request_human_input` asks.
#[test]
fn a_person_is_asked_by_the_client() {
    let program =
        Program::new(&[("toolgate.yaml", "human_input: { timeout: 10m }")]).with("TOOLGATE_LOG", "off");
    let mut talk = Talk::begin(&program);
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} }, "clientInfo": { "name": "t", "version": "1" } });
    talk.ask(1, "initialize", &params);
    let call = json!({ "name": "request_human_input", "arguments": { "question": "Which?", "choices": ["red", "blue"] } });
    let asked = talk.ask(2, "tools/call", &call);
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    assert_eq!(asked["params"]["requestedSchema"]["properties"]["answer"]["enum"], json!(["red", "blue"]));
    let said = json!({ "action": "accept", "content": { "answer": "blue" } });
    talk.say(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": said }));
    let answer = talk.hear();
    assert_eq!(answer["result"]["structuredContent"]["answer"], "blue", "{answer}");

    // A client of the newest revision gets the question as a result, and comes back with the answer.
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
    });
    let mut call = call;
    call["_meta"] = meta;
    let first = talk.ask(3, "tools/call", &call);
    assert_eq!(first["result"]["resultType"], "input_required", "{first}");
    let (key, question) = first["result"]["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create");
    call["requestState"] = "tg1.forged".into();
    call["inputResponses"] = json!({ key: { "action": "accept", "content": { "answer": "red" } } });
    assert_eq!(talk.ask(4, "tools/call", &call)["error"]["code"], -32602, "a state that nobody gave out");
    call["requestState"] = first["result"]["requestState"].clone();
    let second = talk.ask(5, "tools/call", &call);
    assert_eq!(second["result"]["structuredContent"]["answer"], "red", "{second}");
    assert_eq!(talk.ask(6, "tools/call", &call)["error"]["code"], -32602, "it is good for once");
}
