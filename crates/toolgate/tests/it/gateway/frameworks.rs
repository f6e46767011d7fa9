//! Agent frameworks through the gateway, with their own packages and without a model: each gets from the gateway what it
//! gets from the server directly, and what the gateway adds.
//!
//! Like the [`third_party_clients`](super::third_party_clients), these tests are ignored unless the peers are installed.
//! `tests/peers/frameworks.py` is the program; `docs/programs.md` shows the same calls.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::thread;

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, wait_until};
use crate::support::third_party::{own, peers, project, text};

/// The policy of the gateway: one tool is forbidden, and one needs approval.
const POLICY: &str = r#"
forbid(principal, action == Action::"call", resource == Tool::"secret");
@ask("May it speak?") forbid(principal, action == Action::"call", resource == Tool::"careful");
"#;
/// Size of brief hints, with the names around them.
const MAX_HINT_BYTES: u64 = 240;
const TOOLS: [&str; 5] = ["add", "careful", "fail", "picture", "secret"];

/// A running `frameworks.py`; killed when dropped.
struct Framework {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Framework {
    #[expect(clippy::disallowed_methods, reason = "the framework is the other side of the test")]
    fn start(name: &str, targets: &Json) -> Self {
        let python = peers().join("frameworks/bin/python");
        let mut command = Command::new(python);
        command.arg(own("frameworks.py")).arg(name).arg(targets.to_string());
        command.env("PYTHONUNBUFFERED", "1").env("OTEL_SDK_DISABLED", "true");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.expect("it starts");
        let (stdin, stdout) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Self { child, stdin, stdout: BufReader::new(stdout) }
    }

    fn send(&mut self, command: &Json) {
        writeln!(self.stdin, "{command}").expect("it is read");
    }

    /// Returns the next answer. Frameworks also print other lines.
    fn receive(&mut self) -> Json {
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).expect("a line") > 0, "the framework ended");
            if let Ok(answer @ Json::Object(_)) = serde_json::from_str(&line) {
                return answer;
            }
        }
    }

    fn tools(&mut self, on: &str) -> Json {
        self.send(&json!({ "on": on, "do": "list" }));
        let mut tools = self.receive()["tools"].clone();
        // The tool of `human_input`, which the server does not have.
        tools.as_array_mut().into_iter().for_each(|all| all.retain(|name| name != "request_human_input"));
        tools
    }

    fn call(&mut self, on: &str, tool: &str, arguments: &Json) -> Json {
        self.send(&json!({ "on": on, "do": "call", "tool": tool, "arguments": arguments }));
        let answer = self.receive();
        assert!(answer["results"][0].is_object(), "{on} {tool}: {answer}");
        answer["results"][0].clone()
    }
}

impl Drop for Framework {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text of a result, or of the error in its place.
fn shown(result: &Json) -> String {
    result["text"].as_str().unwrap_or_default().to_owned()
}

/// What every framework has to do.
fn check(name: &str) {
    let python = peers().join("frameworks/bin/python");
    let server = json!({ "command": python, "args": [own("frameworks_server.py")] });
    let program = project(json!({})).with("TOOLGATE_API_KEY", OWNER).with("TOOLGATE_LOG", "off");
    let mut behind = server.clone();
    behind["timeout"] = "60s".into();
    program.write("mcp.json", json!({ "servers": { "shop": behind } }).to_string());
    let profiles = json!({ "strict": { "tools": ["*"], "provider": "openai" } });
    let yaml = json!({ "registries": { "mcp": "mcp.json" }, "human_input": { "timeout": "10m" }, "profiles": profiles });
    program.write("toolgate.yaml", yaml.to_string());
    program.write("policy.cedar", POLICY);
    let gateway = Gateway::serve(program);
    gateway.wait("the server", |gateway| gateway.get("/v1/tools", OWNER).body.contains("\"careful\""));
    let at = |path: &str| {
        let key = format!("Bearer {OWNER}");
        json!({ "url": format!("http://127.0.0.1:{}{path}", gateway.port), "headers": { "Authorization": key } })
    };
    let joined = json!({ "command": env!("CARGO_BIN_EXE_toolgate"), "args": ["-C", text(&gateway.program.project), "stdio"] });
    let targets =
        json!({ "direct": server, "gateway": at("/mcp"), "strict": at("/mcp/strict"), "stdio": joined });
    let mut framework = Framework::start(name, &targets);

    for on in ["direct", "gateway", "strict", "stdio"] {
        assert_eq!(framework.tools(on), json!(TOOLS), "{name}: {on}");
    }
    for (tool, arguments) in [
        ("add", json!({ "a": 2, "b": 3 })),
        ("picture", json!({})),
        ("fail", json!({ "reason": "out of stock" })),
    ] {
        let direct = framework.call("direct", tool, &arguments);
        for on in ["gateway", "strict", "stdio"] {
            let (mut found, mut expected) = (framework.call(on, tool, &arguments), direct.clone());
            // Some frameworks give all of the result to the model: hints come with failures only, and are short.
            let size =
                |result: &mut Json| result.as_object_mut().and_then(|all| all.remove("bytes")?.as_u64());
            let more = size(&mut found).unwrap_or(0).saturating_sub(size(&mut expected).unwrap_or(0));
            assert!(more <= if tool == "fail" { MAX_HINT_BYTES } else { 0 }, "{name}: {on} {tool}: {more}");
            assert_eq!(found, expected, "{name}: {on} {tool}");
        }
    }
    let sum = framework.call("gateway", "add", &json!({ "a": 2, "b": null, "note": null }));
    assert_eq!(shown(&sum), "3", "{name}: `null` counts as absent");
    let denied = framework.call("gateway", "secret", &json!({}));
    assert!(!shown(&denied).contains("the secret"), "{name}: {denied}");
    assert!(shown(&denied).contains("the policy forbids it"), "{name}: {denied}");

    // A person approves at the gateway while the framework waits.
    for on in ["gateway", "stdio"] {
        let said = thread::scope(|scope| {
            let call = scope.spawn(|| framework.call(on, "careful", &json!({ "text": "yes" })));
            let open = || {
                gateway.get("/v1/approvals", OWNER).json()["approvals"][0]["id"].as_str().map(str::to_owned)
            };
            wait_until("the question", || open().is_some());
            let answered =
                gateway.program.run(&format!("questions answer {} yes", open().expect("a question")));
            assert_eq!(answered.code, 0, "{answered}");
            call.join().expect("a result")
        });
        assert_eq!(shown(&said), "said yes", "{name}: {on}");
    }

    for on in ["direct", "gateway", "stdio"] {
        framework
            .send(&json!({ "on": on, "do": "call", "tool": "add", "arguments": { "a": 1 }, "times": 20 }));
        let answer = framework.receive();
        let results = answer["results"].as_array().unwrap_or_else(|| panic!("{name}: {on}: {answer}"));
        assert!(results.len() == 20 && results.iter().all(|one| shown(one) == "2"), "{name}: {on}: {answer}");
    }

    run_snippet(name, &gateway);

    // The session goes on after a restart.
    let gateway = super::sessions::restart(gateway);
    let sum = framework.call("gateway", "add", &json!({ "a": 20, "b": 22 }));
    assert_eq!(shown(&sum), "42", "{name}: after a restart");
    drop(gateway);
}

/// Runs the program of a framework in `docs/programs.md`.
fn run_snippet(name: &str, gateway: &Gateway) {
    let page = fs_err::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/programs.md"))
        .expect("the page");
    let heading = format!("## {}\n", name.replace('_', "-"));
    let (_, section) = page.split_once(&heading).unwrap_or_else(|| panic!("no section {heading}"));
    let (_, rest) = section.split_once("```python\n").expect("a program");
    let (program, _) = rest.split_once("```").expect("its end");
    gateway.program.write("snippet.py", program);
    let output = run_program(gateway);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("42"), "{name}: {output:?}");
}

#[expect(clippy::disallowed_methods, reason = "the framework is the other side of the test")]
fn run_program(gateway: &Gateway) -> Output {
    let mut command = Command::new(peers().join("frameworks/bin/python"));
    command.arg(gateway.program.path("snippet.py")).env("TOOLGATE_KEY", OWNER);
    command.env("TOOLGATE_URL", format!("http://127.0.0.1:{}/mcp", gateway.port));
    command.output().expect("it starts")
}

#[test]
#[ignore = "needs the frameworks that `cargo xtask test` installs"]
fn openai_agents() {
    check("openai_agents");
}

#[test]
#[ignore = "needs the frameworks that `cargo xtask test` installs"]
fn langchain() {
    check("langchain");
}

#[test]
#[ignore = "needs the frameworks that `cargo xtask test` installs"]
fn pydantic_ai() {
    check("pydantic_ai");
}

#[test]
#[ignore = "needs the frameworks that `cargo xtask test` installs"]
fn google_adk() {
    check("google_adk");
}

#[test]
#[ignore = "needs the frameworks that `cargo xtask test` installs"]
fn semantic_kernel() {
    check("semantic_kernel");
}
