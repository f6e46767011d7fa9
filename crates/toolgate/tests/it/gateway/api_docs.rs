//! The OpenAPI document, its HTML page, the stream of calls, and reloads on SIGHUP.

use std::io::{BufRead as _, BufReader, Write as _};

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, project, request, wait_until};

#[test]
fn the_document_and_the_page_need_no_key() {
    let gateway = Gateway::start(&json!({}));
    let document = gateway.request("GET /v1/openapi.json", &[], "");
    assert_eq!((document.status, document.header("content-type")), (200, Some("application/json")));
    let document = document.json();
    assert_eq!(document["openapi"], "3.1.0");
    let list = &document["paths"]["/v1/servers"]["get"];
    assert_eq!(list["x-permission"], "servers:read");
    assert_eq!(list["security"], json!([{ "key": [] }, { "bearer": [] }]));
    let page = gateway.request("GET /v1/docs", &[], "");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(
        page.header("content-security-policy").is_some_and(|policy| policy.starts_with("default-src 'none'"))
    );
    assert!(page.body.contains("<code>GET /v1/servers</code>"), "{}", page.body);
    // Refused for pages of other origins, like every request.
    let foreign = gateway.request("GET /v1/openapi.json", &["Host: evil.example"], "");
    assert_eq!(foreign.status, 403);
    // Every documented path exists, and undocumented ones do not.
    let paths = document["paths"].as_object().expect("an object");
    let is_stream = |path: &str| path.ends_with("/stream") || path == "/v1/events";
    for (path, methods) in paths.iter().filter(|(path, _)| !path.contains('{') && !is_stream(path)) {
        let answer = gateway.get(path, OWNER);
        let response = &methods["get"]["responses"][answer.status.to_string()];
        assert!(response.is_object() || answer.status == 405, "{path}: {answer:?}");
    }
    assert_eq!(gateway.get("/v1/nothing", OWNER).status, 404);
}

/// Returns the lines of a stream.
fn lines(gateway: &Gateway, path: &str) -> impl Iterator<Item = String> + use<> {
    let mut stream = gateway.connect();
    let key = format!("X-API-Key: {OWNER}");
    stream.write_all(request(&format!("GET {path}"), &[&key], "").as_bytes()).expect("it is sent");
    BufReader::new(stream).lines().map_while(Result::ok)
}

/// Returns the next call of a stream.
fn next(stream: &mut impl Iterator<Item = String>) -> Json {
    let line = stream.find_map(|line| line.strip_prefix("data: ").map(str::to_owned));
    serde_json::from_str(&line.expect("an event")).expect("one JSON document")
}

#[test]
fn ended_calls_are_streamed() {
    let mut gateway = Gateway::start(&json!({}));
    let mut all = lines(&gateway, "/v1/executions/stream");
    let mut errors = lines(&gateway, "/v1/executions/stream?status=error");
    // The stream is open from here on.
    for stream in [&mut all, &mut errors] {
        assert_eq!(stream.next().as_deref(), Some("HTTP/1.1 200 OK"));
        assert!(stream.any(|line| line == ": open"));
    }
    let tool =
        gateway.get("/v1/tools", OWNER).json()["tools"][0]["name"].as_str().expect("a name").to_owned();
    let good = gateway.call(OWNER, &tool, &json!({}));
    assert_eq!(good.status, 200, "{good:?}");
    let bad = gateway.call(OWNER, "no-such-tool", &json!({}));
    assert_eq!(bad.status, 404, "{bad:?}");
    let first = next(&mut all);
    assert_eq!(first["end"]["tool"], json!(tool), "{first}");
    assert_eq!(first["end"]["status"], "success", "{first}");
    assert_eq!(next(&mut all)["end"]["tool"], "no-such-tool");
    // Calls that do not match the filter are not sent.
    assert_eq!(next(&mut errors)["end"]["tool"], "no-such-tool");
    assert_eq!(
        gateway.get("/v1/executions/stream?limit=3", OWNER).status_and_code(),
        (400, "invalid_request".to_owned())
    );
    assert_eq!(gateway.get("/v1/executions/stream", "a-wrong-key").status, 401);
    // An open stream does not delay the shutdown.
    gateway.signal("-TERM");
    assert_eq!(gateway.wait_for_exit(), Some(0));
}

/// Unlike the file watcher, SIGHUP logs its outcome even if nothing changed.
#[test]
fn sighup_logs_its_outcome() {
    let program = project(&json!({ "registries": { "mcp": "mcp.json" }, "mcps": [] }));
    program.write("mcp.json", r#"{ "servers": {} }"#);
    let mut command = program.command(&["serve", "--json", "--listen", "127.0.0.1:0"]);
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut ready = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut ready).expect("it is ready");
    let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let hang_up = |expected: &str| {
        #[expect(clippy::disallowed_methods, reason = "a signal, without unsafe code")]
        let sent = std::process::Command::new("kill").args(["-HUP", &child.id().to_string()]).status();
        assert!(sent.expect("`kill` is installed").success());
        while !lines.recv_timeout(crate::support::program::HANG_TIMEOUT).expect(expected).contains(expected) {
        }
    };
    hang_up("reloaded: the registry is at revision ");
    hang_up("reloaded: the registry is at revision ");
    program.write("mcp.json", "{ nonsense");
    hang_up("not reloaded, the old configuration stays active: ");
    program.write("mcp.json", r#"{ "servers": {} }"#);
    hang_up("reloaded: the registry is at revision ");
    // An editor may empty or remove a file before it writes it.
    for name in ["mcp.json", "toolgate.yaml"] {
        let whole = program.read(name);
        program.write(name, "");
        hang_up("not reloaded, the old configuration stays active: ");
        program.write(name, whole);
        hang_up("reloaded: the registry is at revision ");
    }
    let whole = program.read("toolgate.yaml");
    fs_err::remove_file(program.path("toolgate.yaml")).expect("it exists");
    hang_up("not reloaded, the old configuration stays active: ");
    program.write("toolgate.yaml", whole);
    hang_up("reloaded: the registry is at revision ");
    child.kill().and_then(|()| child.wait()).expect("it ends");
}

#[test]
fn sighup_reloads_the_files() {
    let program = project(&json!({ "registries": { "mcp": "mcp.json" }, "mcps": [] }));
    program.write("mcp.json", r#"{ "servers": {} }"#);
    let gateway = Gateway::serve(program);
    let names = |gateway: &Gateway| -> Vec<Json> {
        let servers = gateway.get("/v1/servers", OWNER).json();
        servers["servers"].as_array().expect("a list").iter().map(|server| server["name"].clone()).collect()
    };
    assert!(names(&gateway).is_empty());
    let entry = json!({ "servers": { "late": { "command": crate::support::test_server::testkit(), "args": ["good"] } } });
    gateway.program.write("mcp.json", entry.to_string());
    gateway.signal("-HUP");
    wait_until("the new server", || names(&gateway) == ["late"]);
    // Invalid files change nothing, and the gateway keeps running.
    gateway.program.write("mcp.json", "{ nonsense");
    gateway.signal("-HUP");
    assert_eq!(names(&gateway), ["late"]);
    assert_eq!(gateway.get("/healthz", OWNER).status, 200);
}
