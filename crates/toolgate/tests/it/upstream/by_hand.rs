//! Servers that work when they are started by hand work behind Toolgate.

use std::io::Write as _;

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER};
use crate::support::mcp_client::{McpSession, WebSocket, request_message};
use crate::support::program::Program;
use crate::support::scripts::SERVER_SCRIPT;
use crate::support::stdio_client::StdioClient;
use crate::support::test_server::{TestServer, project, testkit};

/// Creates a project with one server, `s`, in Python: `tools` are its tools, and `FAULT` says how it answers calls.
fn scripted(tools: &Json, fault: &str, keys: &Json) -> Program {
    let mut server = json!({
        "command": "python3", "args": ["server.py"], "timeout": "60s",
        "env": { "TOOLS": tools.to_string(), "FAULT": fault },
    });
    for (key, value) in keys.as_object().expect("keys of a server") {
        server[key] = value.clone();
    }
    let program = project(json!({ "s": server }));
    program.write("server.py", SERVER_SCRIPT);
    program
}

fn echo() -> Json {
    json!([{ "name": "echo", "description": "Echoes.", "inputSchema": { "type": "object" } }])
}

/// Children get the variables that say how the network is reached, and no others of the user.
#[test]
fn children_get_proxies_and_certificates() {
    let given = [
        "HTTPS_PROXY",
        "https_proxy",
        "NO_PROXY",
        "SSL_CERT_FILE",
        "NODE_EXTRA_CA_CERTS",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "UV_INDEX_URL",
        "PIP_INDEX_URL",
        "npm_config_registry",
        "NPM_CONFIG_CAFILE",
    ];
    let kept = [
        "TOOLGATE_API_KEY",
        "TOOLGATE_LOG",
        "AWS_SECRET_ACCESS_KEY",
        "OPENAI_API_KEY",
        "UV_PUBLISH_TOKEN",
        "npm_config__authToken",
        "PIP_PASSWORD",
    ];
    let server =
        json!({ "command": testkit(), "args": ["curious"], "env": { "NO_PROXY": null, "OWN": "1" } });
    let mut program = project(json!({ "s": server }));
    for name in given.iter().chain(&kept) {
        program = program.with(name, &format!("value-of-{name}"));
    }
    program = program.with("http_proxy", "http://ann:pass-of-the-proxy@127.0.0.1:1");
    program = program.with("UV_DEFAULT_INDEX", "https://ann:pass-of-the-index@index.example/simple");
    let run = program.run("tools call s__echo message=x --json");
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("http://ann:pass-of-the-proxy@"), "the network needs it: {}", run.stdout);
    assert!(run.stdout.contains("https://index.example/simple"), "{}", run.stdout);
    assert!(!run.stdout.contains("pass-of-the-index"), "{}", run.stdout);
    for (path, content) in program.files() {
        let text = String::from_utf8_lossy(&content);
        assert!(!text.contains("pass-of-the"), "{} has a password", path.display());
    }
    let has = |name: &str| run.stdout.contains(&format!("\"{name}\""));
    for name in given.iter().filter(|name| **name != "NO_PROXY") {
        assert!(has(name), "{name} is missing: {}", run.stdout);
    }
    assert!(!has("NO_PROXY"), "`null` removes a variable: {}", run.stdout);
    for name in kept {
        assert!(!has(name), "{name} reached the server: {}", run.stdout);
    }
}

/// A server of the first revision refuses the POST; its URL works without `type`.
#[test]
fn a_url_falls_back_to_the_first_transport() {
    let server = TestServer::start("good");
    let program = project(json!({
        "old": { "url": server.url("http", "sse") },
        "strict": { "url": server.url("http", "sse"), "type": "http" },
    }));
    let run = program.run("tools call old__echo message=hello");
    assert!(run.stdout.contains("hello"), "{run}");
    let run = program.run("servers --json");
    let all: Vec<Json> = serde_json::from_str(&run.stdout).expect("one JSON document");
    let state = |name: &str| all.iter().find(|one| one["name"] == name).map(|one| one["state"].clone());
    assert_eq!(state("old"), Some(json!("ready")), "{run}");
    assert_eq!(state("strict"), Some(json!("unavailable")), "a named transport is not changed: {run}");
}

/// Patterns with look-ahead, as zod writes them for e-mail addresses, and long descriptions hold no tool back.
#[test]
fn unsupported_patterns_and_long_texts_hold_no_tool_back() {
    let email =
        r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$";
    let tools = json!([
        { "name": "mail", "description": "Sends.", "inputSchema": { "type": "object", "required": ["to"],
            "properties": { "to": { "type": "string", "pattern": email, "maxLength": 20 } } } },
        { "name": "long", "description": "word ".repeat(2_000), "inputSchema": { "type": "object" } },
    ]);
    let program = scripted(&tools, "", &json!({}));
    let run = program.run("tools list");
    assert_eq!(run.code, 0, "{run}");
    assert!(!run.stdout.contains("quarantined"), "{run}");
    assert!(run.stderr.contains("of its schema is not checked"), "{run}");
    assert!(run.stderr.contains("its description has 10000 bytes"), "{run}");
    let shown = program.run("tools show s__mail");
    let notes: Vec<_> = shown.stdout.lines().filter(|line| line.starts_with("note:")).collect();
    insta::assert_snapshot!(notes.join("\n"), @r"note: the pattern `^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\` of its schema is not checked: invalid or not linear");
    assert_eq!(shown.stderr, "", "the warning is given once");
    let run = program.run("tools call s__mail to=not-an-address");
    assert_eq!(run.code, 0, "the server checks the pattern: {run}");
    let run = program.run(&format!("tools call s__mail to={}", "x".repeat(21)));
    assert!(run.code == 1 && run.stderr.contains("longer than 20"), "the rest is checked: {run}");
    assert_eq!(program.run("tools call s__long").code, 0);
}

/// A person can release every tool that can be called at all.
#[test]
fn approval_releases_whatever_is_held() {
    let tools = json!([
        { "name": "hidden", "description": "Ech\u{200b}oes.", "inputSchema": { "type": "object" } },
        { "name": "elsewhere", "description": "Refers.", "inputSchema": { "type": "object",
            "properties": { "a": { "$ref": "https://example.com/schema.json" } } } },
        { "name": "huge", "description": "x".repeat(70_000), "inputSchema": { "type": "object" } },
        { "name": "deep", "description": "Hides.", "inputSchema": { "type": "object",
            "properties": { "a": { "type": "string", "description": "Vis\u{200b}ible." } } } },
    ]);
    let program = scripted(&tools, "", &json!({}));
    for tool in ["hidden", "elsewhere", "huge", "deep"] {
        let run = program.run(&format!("tools call s__{tool}"));
        assert!(run.code == 1 && run.stderr.contains("toolgate servers approve s"), "{tool}: {run}");
    }
    let run = program.run("servers approve s --yes");
    assert!(run.stdout.contains("4 definitions"), "{run}");
    let mut client = StdioClient::begin(&program);
    client.ask(1, "initialize", &json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } }));
    let listed = client.ask(2, "tools/list", &json!({}));
    assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(4), "{listed}");
    assert!(!listed.to_string().contains('\u{200b}'), "models see them without it: {listed}");
    for tool in ["hidden", "elsewhere", "huge", "deep"] {
        let run = program.run(&format!("tools call s__{tool} a=1"));
        assert_eq!(run.code, 0, "{tool}: {run}");
    }
}

/// The call that waits for a damaged line ends with that reason, long before its timeout.
#[test]
fn a_malformed_line_ends_the_call_that_waits() {
    for (fault, reason) in [
        ("truncated", "the response is invalid"),
        ("bytes", "the response is invalid"),
        ("no-id", "the response is invalid"),
    ] {
        let run = scripted(&echo(), fault, &json!({ "request_timeout": "10m" })).run("tools call s__echo");
        assert!(run.code == 1 && run.stderr.contains(reason), "{fault}: {run}");
    }
}

#[test]
fn errors_at_the_start_name_the_command_and_its_exit() {
    let program =
        project(json!({ "s": { "command": testkit(), "args": ["broken"], "startup": "required" } }));
    let run = program.run("serve --listen 127.0.0.1:0");
    assert_eq!(run.code, 1, "{run}");
    let shown = run.stderr.replace(&testkit().display().to_string(), "testkit");
    insta::assert_snapshot!(shown, @r"
    unavailable s · stdio
    error: Failed to connect to MCP server 's' at testkit broken
    Error: `testkit broken` exited with code 3; it wrote: boom: missing licence

    The application cannot start without connecting to all configured MCP servers.
    hint: run the command by hand to see why it exits; or set `startup: eager` to start without it
    ");
}

#[test]
fn output_in_another_encoding_is_decoded() {
    for encoding in ["shift_jis", "utf-16le", "cp932"] {
        let program = scripted(&echo(), &format!("encoding {encoding}"), &json!({ "encoding": encoding }));
        let run = program.run("tools call s__echo");
        assert!(run.stdout.contains("日本"), "{encoding}: {run}");
    }
    let program = project(json!({ "s": { "command": "x", "encoding": "klingon" } }));
    let run = program.run("check");
    insta::assert_snapshot!(run, @r#"
    exit code 78
    ----- stdout
    ----- stderr
    error: `klingon` is not an encoding in MCP server `s`
      --> mcp.json:1:43
    1 | {"servers":{"s":{"command":"x","encoding":"klingon"}}}
      |                                           ^^^^^^^^^
    hint: use a name of the Encoding Standard, such as `utf-8`, `windows-1252`, `shift_jis` or `gb18030`

    refused: 1 error; nothing was started.
    next: fix the problems above and run `toolgate check` again
    "#);
}

/// `null` for an optional argument counts as absent.
#[test]
fn null_counts_as_absent() {
    let tools = json!([{ "name": "echo", "description": "Echoes.", "inputSchema": {
        "type": "object", "required": ["text"], "additionalProperties": false,
        "properties": { "text": { "type": "string" }, "limit": { "type": "integer" }, "maybe": { "type": ["string", "null"] } },
    } }]);
    let program = scripted(&tools, "", &json!({}));
    let call = |arguments: &str| program.run_list(&["tools", "call", "s__echo", "--args", arguments]);
    let run = call(r#"{"text":"a","limit":null,"maybe":null}"#);
    assert!(run.code == 0 && run.stdout.contains(r#"{"text": "a", "maybe": null}"#), "{run}");
    let run = call(r#"{"text":null}"#);
    assert!(run.code == 1 && run.stderr.contains("null is not of type"), "{run}");
}

/// A key can come as a subprotocol, where clients cannot send headers.
#[test]
fn a_websocket_takes_its_key_as_a_subprotocol() {
    let gateway = Gateway::start(&json!({}));
    let open = |protocols: &str| {
        let protocols = format!("Sec-WebSocket-Protocol: {protocols}");
        let headers = [
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            &protocols,
        ];
        let request = crate::support::gateway::request("GET /ws", &headers, "");
        let mut stream = gateway.connect();
        stream
            .write_all(request.replacen("Connection: close", "Connection: Upgrade", 1).as_bytes())
            .expect("it is sent");
        WebSocket::accepted(stream)
    };
    let (head, socket) = open(&format!("mcp, bearer.{OWNER}"));
    assert!(
        head.contains("101") && head.to_lowercase().contains("sec-websocket-protocol: mcp\r\n"),
        "{head}"
    );
    let mut socket = socket.expect("a session");
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    socket.send(&request_message(1, "initialize", &params).to_string());
    assert!(socket.next().contains("toolgate"));
    for protocols in ["mcp", "mcp, bearer.wrong-key"] {
        let (head, _) = open(protocols);
        assert!(head.contains(" 401 "), "{protocols}: {head}");
    }
    let (head, _) = open(&format!("mcp, bearer.wrong-key, bearer.{OWNER}"));
    assert!(head.contains(" 400 "), "only one key: {head}");
    // Elsewhere the header means nothing.
    let key = format!("Sec-WebSocket-Protocol: bearer.{OWNER}");
    assert_eq!(gateway.request("GET /v1/tools", &[&key], "").status, 401);
    drop(McpSession::begin(&gateway, OWNER, "2025-06-18", &json!({})));
}
