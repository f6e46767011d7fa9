//! One bad server stops nobody: the gateway starts without it, unless the project says that it is required.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, wait_until};
use crate::support::program::Program;
use crate::support::scripts::SERVER_SCRIPT;
use crate::support::stdio_client::StdioClient;
use crate::support::test_server::{entry, project, testkit};

fn initialize() -> Json {
    json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } })
}

/// A project with a good server, one that fails at once, and one that is not there.
fn half_broken() -> Program {
    project(json!({
        "good": entry("good"), "broken": entry("broken"),
        "gone": { "url": "http://127.0.0.1:9/mcp", "timeout": "5s" },
    }))
    .with("TOOLGATE_API_KEY", OWNER)
}

#[test]
fn serve_and_stdio_start_without_broken_servers() {
    let gateway = Gateway::serve(half_broken());
    assert_eq!(gateway.call(OWNER, "good__echo", &json!({ "message": "x" })).status, 200);
    let stderr = gateway.program.read("~/stderr").replace(&testkit().display().to_string(), "testkit");
    let warnings = stderr.split_once("warning: ").expect("a warning").1;
    insta::assert_snapshot!(warnings.lines().take(8).collect::<Vec<_>>().join("\n"), @r"
    Failed to connect to MCP server 'broken' at testkit broken
    Error: `testkit broken` exited with code 3; it wrote: boom: missing licence
    hint: run the command by hand to see why it exits
    note: it is retried in the background; with `startup: required` the start would fail
    warning: Failed to connect to MCP server 'gone' at http://127.0.0.1:9/mcp
    Error: cannot connect to `http://127.0.0.1:9/mcp`: Connection refused (os error 111)
    note: it is retried in the background; with `startup: required` the start would fail
    ");

    let program = half_broken();
    let mut client = StdioClient::begin(&program);
    client.ask(1, "initialize", &initialize());
    let listed = client.ask(2, "tools/list", &json!({}));
    assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(5), "{listed}");
}

#[test]
fn only_a_named_required_server_halts() {
    let required = json!({ "command": testkit(), "args": ["broken"], "startup": "required" });
    let program = project(json!({ "good": entry("good"), "bad": required }));
    let run = program.run("serve --listen 127.0.0.1:0");
    assert_eq!(run.code, 1, "{run}");
    assert!(run.stderr.contains("cannot start without connecting"), "{run}");
    assert!(run.stderr.contains("set `startup: eager` to start without it"), "{run}");
    let mut client = StdioClient::begin(&program);
    assert_eq!(client.child.wait().expect("our child").code(), Some(1));
    // The document of such a tree requires all of its servers.
    let tree = json!({ "myai": { "toolbox": { "mcps": [
        { "name": "bad", "command": testkit(), "args": ["broken"], "mode": "dynamic",
          "default_tool_config": { "max_instances": 1, "timeout": "5s" } } ] } } });
    let program = Program::new(&[("config.yaml", &tree.to_string())]);
    let run = program.run("serve --listen 127.0.0.1:0");
    assert!(run.code == 1 && run.stderr.contains("cannot start without connecting"), "{run}");
}

/// A lazy server is started by its first call, not by the gateway. Its tools are known from its last connection.
#[test]
fn a_lazy_server_starts_with_its_first_call() {
    let tools = json!([{ "name": "echo", "description": "Echoes.", "inputSchema": { "type": "object" } }]);
    let program = project(json!({})).with("TOOLGATE_API_KEY", OWNER).with("TOOLGATE_LOG", "off");
    let started = program.path("started");
    let env = json!({ "TOOLS": tools.to_string(), "STARTED": started });
    let server = json!({ "command": "python3", "args": ["server.py"], "timeout": "60s", "startup": "lazy", "env": env });
    program.write("mcp.json", json!({ "servers": { "s": server } }).to_string());
    program.write("server.py", SERVER_SCRIPT);
    let starts = || fs_err::read_to_string(&started).unwrap_or_default().lines().count();
    assert_eq!(program.run("tools list").code, 0);
    assert_eq!(starts(), 1, "a command that lists everything connects to all");
    let gateway = Gateway::serve(program);
    let listed = gateway.get("/v1/tools", OWNER);
    assert!(listed.body.contains("\"echo\""), "{listed:?}");
    assert_eq!(starts(), 1, "the gateway did not start it");
    let servers = gateway.get("/v1/servers", OWNER).json();
    assert_eq!(servers["servers"][0]["state"], "idle", "{servers}");
    assert_eq!(gateway.call(OWNER, "s__echo", &json!({})).status, 200);
    assert_eq!(starts(), 2);
}

/// The capabilities come from the servers, so the handshake waits for them.
#[test]
fn stdio_announces_the_capabilities_of_the_servers() {
    let env = json!({ "TOOLS": "[]", "CAPABILITIES": r#"{"tools": {}, "completions": {}}"# });
    let server = json!({ "command": "python3", "args": ["server.py"], "timeout": "60s", "env": env });
    let program = project(json!({ "s": server })).with("TOOLGATE_LOG", "off");
    program.write("server.py", SERVER_SCRIPT);
    let mut client = StdioClient::begin(&program);
    let welcome = client.ask(1, "initialize", &initialize());
    assert!(welcome["result"]["capabilities"]["completions"].is_object(), "{welcome}");
}

/// A project that lists itself would start itself without end.
#[test]
fn a_project_that_lists_itself_is_refused() {
    let toolgate = env!("CARGO_BIN_EXE_toolgate");
    let program = project(json!({ "self": { "command": toolgate, "args": ["stdio"] } }));
    let run = program.run("check");
    let shown = run.to_string().replace(toolgate, "toolgate");
    insta::assert_snapshot!(shown, @r#"
    exit code 78
    ----- stdout
    ----- stderr
    error: MCP server `self` is the gateway of this project itself
      --> mcp.json:1:13
    1 | {"servers":{"self":{"command":"toolgate","args":["stdio"]}}}
      |             ^^^^^^
    hint: remove it: clients connect to the gateway, the gateway does not connect to itself

    refused: 1 error; nothing was started.
    next: fix the problems above and run `toolgate check` again
    "#);
    let program = project(json!({ "self": { "url": "http://localhost:7332/mcp" } }));
    assert_eq!(program.run("check").code, 78);

    // An editor that is connected to this project has such an entry.
    let program = Program::new(&[("toolgate.yaml", "registries: { mcp: mcp.json }"), ("mcp.json", "{}")]);
    let entry = json!({ "command": toolgate, "args": ["-C", program.project, "stdio"] });
    let editor = json!({ "mcpServers": { "toolgate": entry, "other": { "command": "other" } } });
    program.write("~/editor.json", editor.to_string());
    let run = program.run_list(&["import", program.path("~/editor.json").to_str().expect("UTF-8")]);
    assert!(run.stderr.contains("`toolgate` was not imported: it runs Toolgate on this project"), "{run}");
    let written = program.read("mcp.json");
    assert!(written.contains("other") && !written.contains("stdio"), "{written}");

    // A wrapper hides it from the check; the second process finds itself in its environment.
    let program = project(json!({ "self": { "command": "sh", "args": ["wrapper.sh"], "timeout": "30s" } }));
    program.write("wrapper.sh", format!("echo started >> starts\nexec {toolgate} stdio\n"));
    let run = program.run("tools list");
    let shown = run.stderr.lines().find(|line| line.contains("lists itself")).unwrap_or_default();
    insta::assert_snapshot!(shown, @"Error: `sh wrapper.sh` exited with code 78; it wrote: error: project `[project]` lists itself: one of its MCP servers runs Toolgate on the same folder | hint: remove the server that runs `toolgate` from the configuration in `[project]`");
    wait_until("the last start", || !program.read("starts").is_empty());
    // Four attempts to connect, each with and without a probe, and nothing below them.
    assert!(program.read("starts").lines().count() <= 8, "{}", program.read("starts"));
}

/// Through a forwarder, neither the configuration nor the environment shows that a URL is that of the gateway.
#[test]
fn a_gateway_finds_itself_behind_a_forwarder() {
    let forwarder = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/mcp", forwarder.local_addr().expect("its address"));
    let headers = json!({ "X-API-Key": OWNER });
    let program = project(json!({ "me": { "url": url, "headers": headers, "startup": "optional" } }));
    assert_eq!(program.run("check").code, 0);
    let gateway = Gateway::serve(program.with("TOOLGATE_API_KEY", OWNER).with("TOOLGATE_LOG", "off"));
    let port = gateway.port;
    thread::spawn(move || {
        for client in forwarder.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
            for (mut from, mut to) in [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))]
                .map(|(from, to)| (from.expect("a socket"), to.expect("a socket")))
            {
                thread::spawn(move || io::copy(&mut from, &mut to));
            }
        }
    });
    gateway.wait("the refusal", |gateway| {
        gateway.post("/v1/servers/me/reconnect", OWNER, &json!({}));
        gateway.get("/v1/servers", OWNER).body.contains("it is this gateway itself")
    });
    assert_eq!(gateway.get("/v1/tools", OWNER).json()["tools"], json!([]));
}

/// A server that hangs longer than clients wait for a start does not keep the gateway closed.
#[test]
fn a_hanging_server_holds_the_start_for_a_limited_time() {
    let hanging = json!({ "command": "sleep", "args": ["600"], "timeout": "10m" });
    let program = project(json!({ "good": entry("good"), "hanging": hanging }));
    let mut client = StdioClient::begin(&program);
    client.ask(1, "initialize", &initialize());
    let listed = client.ask(2, "tools/list", &json!({}));
    assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(5), "{listed}");
}
