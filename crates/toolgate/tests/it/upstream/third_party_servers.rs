//! Third-party MCP servers over every transport.
//!
//! `cargo xtask test` installs them below `target/peers` and runs these tests. Otherwise they are ignored; `cargo test
//! -p toolgate --test it third_party -- --include-ignored` runs them.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER};
use crate::support::mcp_client::{McpSession, call_message, request_message};
use crate::support::program::Program;
use crate::support::third_party::{git, node, own, package, peers, project, script, text};

/// Returns the name, revision and number of tools of every server.
fn server_summary(program: &Program) -> String {
    let run = program.run("servers --json");
    let all: Vec<Json> = serde_json::from_str(&run.stdout).expect("one JSON document");
    let one = |status: &Json| {
        format!(
            "{} {} {} {} tools",
            status["name"], status["state"], status["protocolVersion"], status["tools"]
        )
    };
    all.iter().map(one).collect::<Vec<_>>().join("\n").replace('"', "")
}

#[test]
#[ignore = "needs the servers that `cargo xtask test` installs"]
fn the_reference_servers_over_stdio() {
    let peers = peers();
    let program = project(json!({}));
    let folder = text(&program.project).to_owned();
    let servers = json!({
        "everything": package(&peers, "server-everything", &["stdio"]),
        "files": package(&peers, "server-filesystem", &[&folder]),
        "memory": package(&peers, "server-memory", &[]),
        "time": { "command": peers.join("python/bin/mcp-server-time"), "timeout": "60s" },
        "git": { "command": peers.join("python/bin/mcp-server-git"), "timeout": "60s" },
        "fastmcp": {
            "command": peers.join("python/bin/python"),
            "args": [own("fastmcp_server.py"), "stdio"],
            "timeout": "60s",
        },
    });
    program.write("mcp.json", json!({ "servers": servers }).to_string());
    program.write("note.txt", "forty-two");
    // The Python servers use the newest revision, the others the previous one.
    insta::assert_snapshot!(server_summary(&program), @r"
    everything ready 2025-11-25 13 tools
    files ready 2025-11-25 14 tools
    memory ready 2025-11-25 9 tools
    time ready 2026-07-28 2 tools
    git ready 2026-07-28 12 tools
    fastmcp ready 2026-07-28 4 tools
    ");
    let call = |line: &str| program.run(&format!("tools call {line}")).stdout;
    assert_eq!(call("everything__echo message=hello"), "Echo: hello\n");
    assert_eq!(call("everything__get-sum a=2 b=3"), "The sum of 2 and 3 is 5.\n");
    assert!(call("everything__get-tiny-image").contains("[image image/png saved to "));
    assert!(call("everything__get-resource-links count=2").contains("[resource demo://"));
    assert_eq!(call(&format!("files__read_text_file path={folder}/note.txt")), "forty-two\n");
    assert!(call("memory__read_graph").contains("entities"));
    assert!(call("time__get_current_time timezone=UTC").contains("\"timezone\": \"UTC\""));
    assert_eq!(call("fastmcp__echo message=hello"), "fastmcp: hello\n");
}

#[test]
#[ignore = "needs the servers that `cargo xtask test` installs"]
fn the_git_server_with_a_real_repository() {
    let peers = peers();
    let program = project(json!({}));
    let folder = text(&program.project).to_owned();
    let server = json!({ "command": peers.join("python/bin/mcp-server-git"), "args": ["--repository", &folder], "timeout": "60s" });
    program.write("mcp.json", json!({ "servers": { "git": server } }).to_string());
    program.write("note.txt", "one\n");
    let git = |arguments: &[&str]| git(&program, arguments);
    git(&["init", "--quiet", "--initial-branch", "trunk"]);
    git(&["add", "note.txt"]);
    git(&[
        "-c",
        "user.name=Ann",
        "-c",
        "user.email=ann@example.com",
        "commit",
        "--quiet",
        "-m",
        "a first note",
    ]);
    program.write("note.txt", "one\ntwo\n");
    let call = |tool: &str| program.run(&format!("tools call git__{tool} repo_path={folder}")).stdout;
    assert!(call("git_log").contains("Message: a first note"));
    assert!(call("git_status").contains("On branch trunk"));
    assert!(call("git_diff_unstaged").contains("+two"));
}

#[test]
#[ignore = "needs the servers that `cargo xtask test` installs"]
fn audio_images_and_links() {
    let peers = peers();
    let server = json!({
        "command": peers.join("python/bin/python"),
        "args": [own("fastmcp_server.py"), "stdio"],
        "timeout": "60s",
    });
    let program = project(json!({ "fastmcp": server }));
    let temporary = text(&program.home).to_owned();
    let program = program.with("TMPDIR", &temporary);
    // The content of the file that the line names.
    let saved = |line: &str, kind: &str, ending: &str| {
        let path = line.trim().strip_prefix(&format!("[{kind} saved to [home]/")).expect(line);
        let path = path.strip_suffix(']').filter(|path| path.ends_with(ending)).expect(line);
        fs_err::read(program.home.join(path)).expect("the file was saved")
    };
    let clip = program.run("tools call clip").stdout;
    assert_eq!(saved(&clip, "audio audio/wav", ".wav"), b"RIFF\x04\0\0\0WAVE");
    let picture = program.run("tools call picture").stdout;
    assert_eq!(saved(&picture, "image image/png", ".png"), b"\x89PNG\r\n\x1a\n");
    assert_eq!(program.run("tools call link").stdout, "[resource file:///report.txt · report]\n");
    // Unchanged in JSON output.
    let answer = program.run("tools call clip --json").json();
    let clip = json!([{ "type": "audio", "mimeType": "audio/wav", "data": "UklGRgQAAABXQVZF" }]);
    assert_eq!(answer["data"], clip);
}

#[test]
#[ignore = "needs the servers that `cargo xtask test` installs"]
fn prompts_and_resources() {
    let peers = peers();
    let program = project(json!({ "everything": package(&peers, "server-everything", &["stdio"]) }));
    let run = |line: &str| program.run(line).stdout;
    insta::assert_snapshot!(run("prompts list"), @r"
    simple-prompt of everything  A prompt with no arguments
    args-prompt of everything  A prompt with two arguments, one required and one optional
    completable-prompt of everything  First argument choice narrows values for second argument.
    resource-prompt of everything  A prompt that includes an embedded resource reference
    ");
    assert_eq!(run("prompts get everything args-prompt city=Oslo"), "user: What's weather in Oslo?\n");
    let prompt = run("prompts get everything resource-prompt resourceType=Text resourceId=1");
    assert!(prompt.contains("[demo://resource/dynamic/text/1]"), "an embedded resource: {prompt}");
    let list = run("resources list");
    assert!(list.contains("demo://resource/static/document/features.md of everything"), "{list}");
    assert!(list.contains("demo://resource/dynamic/blob/{resourceId} of everything"), "a template: {list}");
    let read = run("resources read everything demo://resource/static/document/features.md");
    assert!(read.contains("# Everything Server - Features"), "{read}");
    let read = run("resources read everything demo://resource/dynamic/text/1");
    assert!(read.contains("Resource 1: This is a plaintext resource"), "{read}");
}

/// A server in the background; killed when dropped.
struct BackgroundServer(Child);

impl Drop for BackgroundServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "the server is the other side of the test")]
fn start(program: &str, arguments: &[&str], port: Option<u16>) -> BackgroundServer {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(port) = port {
        command.env("PORT", port.to_string());
    }
    BackgroundServer(command.spawn().expect("the server starts"))
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it is bound").port()
}

/// Waits until the port is open; panics if the server ends.
fn wait_for(port: u16, server: &mut BackgroundServer) {
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        if let Ok(Some(status)) = server.0.try_wait() {
            let mut stderr_text = String::new();
            let _ = server.0.stderr.take().map(|mut stderr| stderr.read_to_string(&mut stderr_text));
            panic!("the server ended with {status}: {stderr_text}");
        }
        std::thread::yield_now();
    }
}

#[test]
#[ignore = "needs the servers that `cargo xtask test` installs"]
fn streamable_http_and_legacy_sse() {
    let peers = peers();
    let (node, everything) = (node(&peers), script(&peers, "server-everything"));
    let (python, fastmcp, sdk) =
        (peers.join("python/bin/python"), own("fastmcp_server.py"), own("sdk_server.py"));
    let ports: Vec<_> = (0..5).map(|_| free_port()).collect();
    let named: Vec<_> = ports.iter().map(u16::to_string).collect();
    let mut running = [
        start(text(&node), &[text(&everything), "streamableHttp"], Some(ports[0])),
        start(text(&node), &[text(&everything), "sse"], Some(ports[1])),
        start(text(&python), &[text(&fastmcp), "http", &named[2]], None),
        start(text(&python), &[text(&fastmcp), "sse", &named[3]], None),
        start(text(&python), &[text(&sdk), &named[4]], None),
    ];
    for (server, port) in running.iter_mut().zip(&ports) {
        wait_for(*port, server);
    }
    let address = |index: usize, path: &str| format!("http://127.0.0.1:{}/{path}", ports[index]);
    let program = project(json!({
        "http": { "type": "http", "url": address(0, "mcp") },
        "sse": { "type": "sse", "url": address(1, "sse") },
        "fastmcp-http": { "type": "http", "url": address(2, "mcp") },
        "fastmcp-sse": { "type": "sse", "url": address(3, "sse") },
        "sdk": { "type": "http", "url": address(4, "mcp") },
    }));
    insta::assert_snapshot!(server_summary(&program), @r"
    http ready 2025-11-25 13 tools
    sse ready 2025-11-25 13 tools
    fastmcp-http ready 2026-07-28 4 tools
    fastmcp-sse ready 2026-07-28 4 tools
    sdk ready 2026-07-28 2 tools
    ");
    for (server, who) in [
        ("http", "Echo"),
        ("sse", "Echo"),
        ("fastmcp-http", "fastmcp"),
        ("fastmcp-sse", "fastmcp"),
        ("sdk", "sdk"),
    ] {
        let run = program.run(&format!("tools call {server}__echo message={server}"));
        assert_eq!(run.stdout, format!("{who}: {server}\n"), "{}", run.stderr);
    }
}

/// Old revisions send change notifications unasked, new ones on the subscribed stream.
#[test]
#[ignore = "needs the servers that `cargo xtask test` installs"]
fn changes_are_noticed() {
    let peers = peers();
    let growing = json!({
        "command": node(&peers),
        "args": [own("growing.mjs"), peers.join("npm/node_modules/@modelcontextprotocol/sdk")],
        "timeout": "60s",
    });
    let program = project(json!({ "growing": growing }));
    let watch = program.start("servers --watch --json");
    watch.line(|line| line.contains(r#""name":"first""#));
    let (line, _) = watch.line(|line| line.contains(r#""change":"added""#) && line.contains("second"));
    assert!(line.contains("Is added later."), "{line}");

    let port = free_port();
    let (python, sdk) = (peers.join("python/bin/python"), own("sdk_server.py"));
    let mut server = start(text(&python), &[text(&sdk), &port.to_string()], None);
    wait_for(port, &mut server);
    let program = project(json!({ "sdk": { "url": format!("http://127.0.0.1:{port}/mcp") } }));
    let watch = program.start("servers --watch --json");
    watch.line(|line| line.contains(r#""name":"grow""#));
    // A file makes the server change; the notification reaches this process.
    assert_eq!(program.run("tools call sdk__grow").stdout, "there is one more\n");
    let (line, _) = watch.line(|line| line.contains(r#""change":"added""#) && line.contains("grown"));
    assert!(line.contains("Did not exist before."), "{line}");
}

#[test]
#[ignore = "needs the servers that `cargo xtask test` installs"]
fn websocket() {
    let peers = peers();
    let python = peers.join("python-v1/bin/python");
    let mut server = start(text(&python), &[text(&own("websocket.py"))], None);
    let mut line = String::new();
    let stdout = server.0.stdout.take().expect("it is piped");
    BufReader::new(stdout).read_line(&mut line).expect("the server prints its port");
    let port: u16 = line.trim().parse().expect("a port");
    wait_for(port, &mut server);
    let program = project(json!({ "ws": { "url": format!("ws://127.0.0.1:{port}/ws") } }));
    insta::assert_snapshot!(server_summary(&program), @"ws ready 2025-11-25 1 tools");
    assert_eq!(program.run("tools call ws__echo message=hi").stdout, "websocket: hi\n");
}

/// Two callers, stateful servers of every kind: no state crosses in a thousand interleaved calls, and each caller has one
/// connection to each server.
#[test]
#[ignore = "needs the servers that `cargo xtask test` installs"]
fn the_state_of_callers_does_not_mix() {
    const CALLS: usize = 84;
    let peers = peers();
    let (node, everything) = (node(&peers), script(&peers, "server-everything"));
    let ports = [free_port(), free_port()];
    let mut running = [
        start(text(&node), &[text(&everything), "streamableHttp"], Some(ports[0])),
        start(text(&node), &[text(&everything), "sse"], Some(ports[1])),
    ];
    for (server, port) in running.iter_mut().zip(ports) {
        wait_for(port, server);
    }
    let python = |folder: &str| json!({ "command": peers.join(folder).join("bin/python"), "args": [own("notes_server.py")], "timeout": "60s" });
    let folder = tempfile::TempDir::new().expect("the temporary folder can be written to");
    let mut memory = package(&peers, "server-memory", &[]);
    memory["env"] = json!({ "MEMORY_FILE_PATH": format!("{}/{{caller}}.json", text(folder.path())) });
    let mut servers = [
        ("everything", package(&peers, "server-everything", &["stdio"])),
        ("http", json!({ "url": format!("http://127.0.0.1:{}/mcp", ports[0]) })),
        ("sse", json!({ "transport": "sse", "url": format!("http://127.0.0.1:{}/sse", ports[1]) })),
        ("python1", python("python-v1")),
        ("python2", python("python")),
        ("memory", memory),
    ];
    for (name, server) in &mut servers {
        server["name"] = json!(name);
        server["mode"] = json!("dynamic");
        server["default_tool_config"] = json!({ "max_instances": 8, "timeout": "50s" });
    }
    let servers = servers.map(|(_, server)| server);
    let caller = |id: &str| json!({ "id": id, "permissions": ["*:*"], "api_key": format!("key-of-{id}") });
    let config = json!({ "mcps": servers, "callers": [caller("ann"), caller("bob")] });
    let gateway = Gateway::serve(crate::support::gateway::project(&config));
    let call = |caller: &str, tool: &str, arguments: &Json| {
        let answer = gateway.call(&format!("key-of-{caller}"), tool, arguments).json();
        assert_eq!(answer["status"], "success", "{caller} {tool}: {answer}");
        answer["data"].to_string()
    };
    let session = |caller: &'static str| {
        let mut expected = String::new();
        for number in 0..CALLS {
            let note = format!("{caller}-{number}");
            expected.push_str(&note);
            // Of tools with the same name, that of the first server keeps it.
            for tool in ["remember", "python2__remember"] {
                let notes = call(caller, tool, &json!({ "note": note }));
                assert!(notes.contains(&expected), "{tool}: {notes} without {expected}");
            }
            expected.push(' ');
            // Each call switches the state of the session.
            let switched = if number % 2 == 0 { "Started" } else { "Stopped" };
            for server in ["", "http__", "sse__"] {
                let state = call(caller, &format!("{server}toggle-simulated-logging"), &json!({}));
                assert!(state.contains(switched), "{server}: {state}, not {switched}");
            }
            let entity = json!({ "name": note, "entityType": "note", "observations": [] });
            call(caller, "create_entities", &json!({ "entities": [entity] }));
        }
        let graph = call(caller, "read_graph", &json!({}));
        let other = if caller == "ann" { "bob-" } else { "ann-" };
        assert!(graph.contains(&format!("{caller}-{}", CALLS - 1)) && !graph.contains(other), "{graph}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| session("ann"));
        scope.spawn(|| session("bob"));
    });
    let all = gateway.get("/v1/servers", OWNER).json();
    for server in all["servers"].as_array().expect("a list") {
        let due = if server["name"] == "memory" { 3 } else { 2 };
        assert_eq!(server["connections"], due, "{server}");
    }
}

/// Servers of both eras ask a client of an older revision in a session.
#[test]
#[ignore = "needs the servers that `cargo xtask test` installs"]
fn servers_of_both_eras_ask_older_clients() {
    let peers = peers();
    let server = json!({ "command": peers.join("python/bin/python"), "args": [own("notes_server.py")],
        "timeout": "60s", "mode": "dynamic", "default_tool_config": { "max_instances": 8, "timeout": "50s" } });
    let mut server = server;
    server["name"] = json!("notes");
    let gateway = Gateway::serve(crate::support::gateway::project(&json!({ "mcps": [server] })));
    assert_eq!(gateway.get("/v1/servers/notes", OWNER).json()["protocolVersion"], "2026-07-28");
    let client = McpSession::begin(&gateway, OWNER, "2025-11-25", &json!({ "elicitation": {} }));
    let mut stream = client.stream(&call_message(1, "ask", &json!({})));
    let question = stream.message();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let result = json!({ "action": "accept", "content": { "size": 7 } });
    assert_eq!(client.post(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result })).status, 202);
    let answer = stream.message();
    assert_eq!(answer["result"]["content"][0]["text"], "accept 7", "{answer}");
}

/// The names of the tools that a client with these capabilities sees.
fn listed(gateway: &Gateway, capabilities: &Json) -> Vec<String> {
    let session = McpSession::begin(gateway, OWNER, "2025-11-25", capabilities);
    let mut stream = session.stream(&request_message(2, "tools/list", &json!({})));
    loop {
        let message = stream.message();
        match message["method"].as_str() {
            Some("roots/list") => {
                let roots = json!({ "jsonrpc": "2.0", "id": message["id"], "result": { "roots": [] } });
                assert_eq!(session.post(&roots).status, 202);
            }
            Some(_) => {}
            None => {
                let tools = message["result"]["tools"].as_array().expect("a list").clone();
                return tools.iter().filter_map(|tool| tool["name"].as_str()).map(str::to_owned).collect();
            }
        }
    }
}

/// The reference server registers its tools for sampling, elicitation and roots for clients that have them. A client gets
/// the list of a connection with its own capabilities, whatever other clients have.
#[test]
#[ignore = "needs the servers that `cargo xtask test` installs"]
fn tools_need_the_capabilities_of_the_client() {
    let peers = peers();
    let port = free_port();
    let (node, script) = (node(&peers), script(&peers, "server-everything"));
    let mut server = start(text(&node), &[text(&script), "streamableHttp"], Some(port));
    wait_for(port, &mut server);
    let url = format!("http://127.0.0.1:{port}/mcp");
    for everything in [package(&peers, "server-everything", &["stdio"]), json!({ "url": url })] {
        let mut everything = everything;
        everything["timeout"] = "60s".into();
        let program = project(json!({ "s": everything })).with("TOOLGATE_API_KEY", OWNER);
        let gateway = Gateway::serve(program);
        let depending = ["trigger-sampling-request", "trigger-elicitation-request", "get-roots-list"];
        let all = json!({ "sampling": {}, "elicitation": {}, "roots": {} });
        // Over pipes, the server has to be known to send requests: it asks for the roots after a moment.
        gateway.wait("a request of the server", |gateway| {
            listed(gateway, &json!({})).len() < listed(gateway, &all).len()
        });
        for (capabilities, expected) in [
            (all.clone(), [true, true, true]),
            (json!({}), [false, false, false]),
            (json!({ "sampling": {} }), [true, false, false]),
            (json!({ "elicitation": {} }), [false, true, false]),
            (all, [true, true, true]),
        ] {
            // A client that asks first may get a list before that of its own connection has arrived.
            gateway.wait(&format!("the list for {capabilities}"), |gateway| {
                let tools = listed(gateway, &capabilities);
                let is_listed = |tool: &str| tools.iter().any(|listed| listed == tool);
                depending.map(is_listed) == expected && is_listed("echo")
            });
        }
        // Front ends without such clients list everything, and a call says the reason.
        let listed = gateway.get("/v1/tools", OWNER).json();
        assert!(listed.to_string().contains("trigger-sampling-request"), "{listed}");
    }
}
