//! Tools written in Rust: the example `cards` behind Toolgate and with third-party clients.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value as Json, json};

use crate::support::program::Program;
use crate::support::scripts::call;
use crate::support::third_party::peers;

/// Returns the executable of the example. `cargo test --workspace` builds it; building it here would compile many
/// dependencies again, with other features.
fn cards() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        // Test executables are in `deps`, other executables one folder above.
        let own = std::env::current_exe().expect("the path of the test");
        let cards = own.ancestors().nth(2).expect("it is in target/debug/deps").join("cards");
        assert!(cards.exists(), "it is not built; `cargo build --package cards` does that");
        cards
    })
}

/// The example over HTTP; killed when dropped.
struct CardsServer {
    child: Child,
    url: String,
}

impl CardsServer {
    #[expect(clippy::disallowed_methods, reason = "the server is the other side of the test")]
    fn start(token: Option<&str>) -> Self {
        let mut command = Command::new(cards());
        command.args(["--http", "127.0.0.1:0"]).stdin(Stdio::null()).stderr(Stdio::piped());
        command.envs(token.map(|token| ("TOOLGATE_SDK_TOKEN", token)));
        let mut child = command.spawn().expect("the server starts");
        let mut line = String::new();
        let stderr = child.stderr.take().expect("it is piped");
        BufReader::new(stderr).read_line(&mut line).expect("the server prints its URL");
        let url = line.split_whitespace().last().expect("`listening on URL`").to_owned();
        Self { child, url }
    }
}

impl Drop for CardsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn project(server: &Json) -> Program {
    let yaml = include_str!("../../../../../examples/cards/toolgate.yaml");
    Program::new(&[
        ("toolgate.yaml", yaml),
        ("mcp.json", &json!({ "servers": { "cards": server } }).to_string()),
    ])
}

#[test]
#[ignore = "needs `cards`, which `cargo test --workspace` builds"]
fn the_example_behind_toolgate() {
    let (open, guarded) = (CardsServer::start(None), CardsServer::start(Some("a-token")));
    let servers = [
        json!({ "command": cards(), "timeout": "60s" }),
        json!({ "type": "http", "url": open.url, "timeout": "60s" }),
        json!({ "type": "http", "url": guarded.url, "headers": { "Authorization": "Bearer a-token" }, "timeout": "60s" }),
    ];
    for server in servers {
        let program = project(&server);
        let status = program.run("servers --json").json();
        assert_eq!(status[0]["protocolVersion"], "2026-07-28", "{server}: {status}");
        assert_eq!(status[0]["tools"], 4, "{server}: {status}");
        let created = call(
            &program,
            "create-card",
            &json!({ "deckId": "spanish", "front": "el gato", "back": "the cat" }),
        );
        assert_eq!(created["data"]["front"], "el gato", "{created}");
        let wrong = call(&program, "get-card", &json!({ "cardId": "card-99" }));
        assert_eq!(wrong["error"]["code"], "tool_execution_error", "{wrong}");
        assert!(
            wrong["error"]["message"]
                .as_str()
                .is_some_and(|text| text.contains("there is no card `card-99`")),
            "{wrong}"
        );
        // The operator configures permissions.
        let run = program.run("tools call create-card deckId=spanish front=a back=b --as learner");
        assert_eq!(run.code, 1, "{run}");
        let run = program.run("tools call review-card cardId=card-1 grade=good --as learner");
        assert_eq!(run.code, 0, "{run}");
    }
    // Hints, errors and the version of the tools count if the operator trusts the server.
    let program = project(&json!({ "command": cards(), "timeout": "60s", "trusted": true }));
    let found = call(&program, "get-card", &json!({ "cardId": "card-1" }));
    let actions = found["agentHints"]["suggestedNextActions"].as_array().expect("a list");
    assert!(actions.iter().any(|next| next["action"] == "review-card"), "{found}");
    assert_eq!(found["metadata"]["toolVersion"], "1.0.0", "{found}");
    let wrong = call(&program, "get-card", &json!({ "cardId": "card-99" }));
    assert_eq!(wrong["error"]["code"], "not_found", "{wrong}");
    let closed = project(&json!({ "type": "http", "url": guarded.url, "timeout": "60s" }));
    assert_ne!(closed.run("tools call get-card cardId=card-1").code, 0, "without the token");
}

/// The tutorial shows the real output.
#[test]
#[ignore = "needs `cards`, which `cargo test --workspace` builds"]
fn the_tutorial_is_current() {
    let page = include_str!("../../../../../examples/cards/README.md");
    let program = project(&json!({ "command": cards(), "timeout": "60s" }));
    let mut typed = 0;
    for part in page.split("$ target/debug/toolgate -C examples/cards ").skip(1) {
        let (command, rest) = part.split_once('\n').expect("a line");
        let shown: Vec<_> = rest.lines().take_while(|line| !line.starts_with(['$', '`'])).collect();
        let run = program.run(command);
        if command.starts_with("why ") {
            assert!(run.stdout.contains("cards:create"), "{run}");
        } else {
            assert_eq!(run.stdout.lines().collect::<Vec<_>>(), shown, "{command}: {run}");
        }
        typed += 1;
    }
    assert_eq!(typed, 4);
}

/// Returns the tools the server lists over stdio, in the oldest revision.
#[expect(clippy::disallowed_methods, reason = "the server is the other side of the test")]
fn listed_tools() -> Vec<Json> {
    let mut child = Command::new(cards())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": "2024-11-05",
        "capabilities": {}, "clientInfo": { "name": "old", "version": "1" } } });
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    for line in [hello, ready, list] {
        writeln!(stdin, "{line}").expect("it reads");
    }
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut answer = || -> Json {
        let line = stdout.next().expect("an answer").expect("a line");
        serde_json::from_str(&line).expect("a message")
    };
    let hello = answer();
    assert_eq!(hello["result"]["protocolVersion"], "2024-11-05", "{hello}");
    let list = answer();
    drop(stdin);
    assert!(child.wait().expect("it ends").success(), "it ends when its client leaves");
    list["result"]["tools"].as_array().expect("a list").clone()
}

#[test]
#[ignore = "needs `cards`, which `cargo test --workspace` builds"]
fn served_tools_pass_the_contract_check() {
    let mut entries = Vec::new();
    for tool in listed_tools() {
        let mut entry = tool["_meta"]["toolgate/contract"].clone();
        assert_eq!(entry["contract"], "full", "{tool}");
        for (from, to) in [
            ("name", "name"),
            ("description", "description"),
            ("inputSchema", "input_schema"),
            ("outputSchema", "output_schema"),
        ] {
            entry[to] = tool[from].clone();
        }
        entry["script_path"] = json!("script.sh");
        entries.push(entry);
    }
    assert_eq!(entries.len(), 4);
    let program = Program::new(&[("tools/script.sh", "#!/bin/sh\n")]);
    program.write("tools/tools.json", json!({ "tools": entries }).to_string());
    let run = program.run("check");
    assert_eq!(run.code, 0, "{run}");
    entries[0]["tags"] = json!([]);
    program.write("tools/tools.json", json!({ "tools": entries }).to_string());
    assert_eq!(program.run("check").code, 78, "a rule that is broken is seen");
}

/// Runs a third-party client against the example over stdio and HTTP.
#[expect(clippy::disallowed_methods, reason = "the client is the other side of the test")]
fn client(python: &str, script: &str, expected: &str) {
    let served = CardsServer::start(None);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(script);
    for (transport, target) in [("stdio", cards().as_os_str()), ("http", served.url.as_ref())] {
        let run = Command::new(peers().join(python)).arg(&script).arg(transport).arg(target).output();
        let run = run.expect("the client starts");
        let (expected_output, wrong) =
            (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert_eq!(expected_output, expected, "{transport}: {wrong}");
    }
}

#[test]
#[ignore = "needs the servers that `cargo xtask test` installs"]
fn the_python_sdk_v1_as_a_client() {
    client(
        "python-v1/bin/python",
        "cards_client_v1.py",
        "2025-11-25 cards\ncreate-card get-card review-card search-decks\nlevel 2\nTrue there is no card `card-99`\n",
    );
}

#[test]
#[ignore = "needs the servers that `cargo xtask test` installs"]
fn the_python_sdk_v2_as_a_client() {
    let expected_output = |revision: &str| {
        format!(
            "{revision} cards\ncreate-card get-card review-card search-decks\nhints for review-card\nTrue there is no card `card-99`\n"
        )
    };
    client(
        "python/bin/python",
        "cards_client.py",
        &(expected_output("2026-07-28") + &expected_output("2025-11-25")),
    );
}
