//! Agent frameworks through the gateway, with their own packages and without a model: each gets from the gateway what it
//! gets from the server directly, and what the gateway adds.
//!
//! Like the [`third_party_clients`](super::third_party_clients), these tests are ignored unless the peers are installed.
//! `tests/peers/frameworks.py` and `frameworks.mjs` are the programs; `docs/programs.md` shows the same calls.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, wait_until};
use crate::support::third_party::{node, own, peers, project, text};

/// The policy of the gateway: one tool is forbidden, and one needs approval.
const POLICY: &str = r#"
forbid(principal, action == Action::"call", resource == Tool::"secret");
@ask("May it speak?") forbid(principal, action == Action::"call", resource == Tool::"careful");
"#;
/// Size of brief hints, with the names around them.
const MAX_HINT_BYTES: u64 = 240;
const TOOLS: [&str; 5] = ["add", "careful", "fail", "picture", "secret"];

/// Language and list of packages of a framework.
#[derive(Clone, Copy)]
enum Runtime {
    /// With the Python SDK v1.
    PythonV1,
    /// With the Python SDK v2.
    PythonV2,
    Node,
}

impl Runtime {
    /// Returns the fence of the programs in the page.
    const fn language(self) -> &'static str {
        match self {
            Self::PythonV1 | Self::PythonV2 => "python",
            Self::Node => "js",
        }
    }

    /// Returns the text of the program for [`Framework`].
    fn peer(self) -> String {
        let file = match self {
            Self::PythonV1 | Self::PythonV2 => "frameworks.py",
            Self::Node => "frameworks.mjs",
        };
        fs_err::read_to_string(own(file)).expect("the program")
    }

    /// Returns a command that runs the text of a program.
    #[expect(clippy::disallowed_methods, reason = "the framework is the other side of the test")]
    fn command(self, program: &str) -> Command {
        let peers = peers();
        let mut command = match self {
            Self::PythonV1 => Command::new(peers.join("frameworks/bin/python")),
            Self::PythonV2 => Command::new(peers.join("frameworks-v2/bin/python")),
            Self::Node => Command::new(node(&peers)),
        };
        match self {
            Self::PythonV1 | Self::PythonV2 => command.args(["-c", program]),
            // Modules are found from the current folder. The program's own arguments come after `--`.
            Self::Node => {
                command.args(["--input-type=module", "--eval", program, "--"]).current_dir(peers.join("npm"))
            }
        };
        // No telemetry.
        command.env("OTEL_SDK_DISABLED", "true").env("MCP_USE_ANONYMIZED_TELEMETRY", "false");
        command.env("HAYSTACK_TELEMETRY_ENABLED", "False").env("PYTHONUNBUFFERED", "1");
        command
    }
}

/// A running framework; killed when dropped.
struct Framework {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Framework {
    fn start(name: &str, runtime: Runtime, targets: &Json) -> Self {
        let mut command = runtime.command(&runtime.peer());
        command.arg(name).arg(targets.to_string());
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
fn check(name: &str, runtime: Runtime) {
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
    let mut framework = Framework::start(name, runtime, &targets);

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

    run_snippet(name, runtime, &gateway);

    // The session goes on after a restart.
    let gateway = super::sessions::restart(gateway);
    let sum = framework.call("gateway", "add", &json!({ "a": 20, "b": 22 }));
    assert_eq!(shown(&sum), "42", "{name}: after a restart");
    drop(gateway);
}

/// Runs the program of a framework in `docs/programs.md`.
fn run_snippet(name: &str, runtime: Runtime, gateway: &Gateway) {
    let page = fs_err::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/programs.md"))
        .expect("the page");
    let heading = format!("## {}\n", name.replace('_', "-"));
    let (_, section) = page.split_once(&heading).unwrap_or_else(|| panic!("no section {heading}"));
    let fence = format!("```{}\n", runtime.language());
    let (_, rest) = section.split_once(&fence).expect("a program");
    let (program, _) = rest.split_once("```").expect("its end");
    let mut command = runtime.command(program);
    command.env("TOOLGATE_KEY", OWNER);
    command.env("TOOLGATE_URL", format!("http://127.0.0.1:{}/mcp", gateway.port));
    let output = command.output().expect("it starts");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("42"), "{name}: {output:?}");
}

/// One test per framework. Its name is also its name in the programs, and with `-` its heading in the page.
macro_rules! frameworks {
    ($($name:ident: $runtime:ident,)*) => {$(
        #[test]
        #[ignore = "needs the frameworks that `cargo xtask test` installs"]
        fn $name() {
            check(stringify!($name), Runtime::$runtime);
        }
    )*};
}

frameworks! {
    openai_agents: PythonV1,
    langchain: PythonV1,
    pydantic_ai: PythonV1,
    google_adk: PythonV1,
    semantic_kernel: PythonV1,
    autogen: PythonV1,
    mcp_use: PythonV1,
    smolagents: PythonV1,
    llama_index: PythonV2,
    haystack: PythonV2,
    strands: PythonV2,
    agno: PythonV2,
    mcp_sdk: PythonV2,
    ai_sdk: Node,
}
