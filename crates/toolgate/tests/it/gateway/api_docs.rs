//! What the door says of itself: the OpenAPI document, the page for people, calls as they end; and that it reads its
//! files again when it is told to.

use std::io::{BufRead as _, BufReader, Write as _};

use serde_json::{Value as Json, json};

use crate::door::{Door, OWNER, project, request, until};

#[test]
fn the_document_and_the_page_need_no_key() {
    let door = Door::open(&json!({}));
    let document = door.request("GET /v1/openapi.json", &[], "");
    assert_eq!((document.status, document.header("content-type")), (200, Some("application/json")));
    let document = document.json();
    assert_eq!(document["openapi"], "3.1.0");
    let list = &document["paths"]["/v1/servers"]["get"];
    assert_eq!(list["x-permission"], "servers:read");
    assert_eq!(list["security"], json!([{ "key": [] }, { "bearer": [] }]));
    let page = door.request("GET /v1/docs", &[], "");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(
        page.header("content-security-policy").is_some_and(|policy| policy.starts_with("default-src 'none'"))
    );
    assert!(page.body.contains("<code>GET /v1/servers</code>"), "{}", page.body);
    // Not for pages of others, like everything else.
    let foreign = door.request("GET /v1/openapi.json", &["Host: evil.example"], "");
    assert_eq!(foreign.status, 403);
    // What the document has is there, and what is there beside it is not found.
    let paths = document["paths"].as_object().expect("an object");
    for (path, methods) in paths.iter().filter(|(path, _)| !path.contains('{') && !path.ends_with("/stream"))
    {
        let answer = door.get(path, OWNER);
        let told = &methods["get"]["responses"][answer.status.to_string()];
        assert!(told.is_object() || answer.status == 405, "{path}: {answer:?}");
    }
    assert_eq!(door.get("/v1/nothing", OWNER).status, 404);
}

/// The lines of a stream, as they come.
fn lines(door: &Door, path: &str) -> impl Iterator<Item = String> + use<> {
    let mut stream = door.connect();
    let key = format!("X-API-Key: {OWNER}");
    stream.write_all(request(&format!("GET {path}"), &[&key], "").as_bytes()).expect("it is sent");
    BufReader::new(stream).lines().map_while(Result::ok)
}

/// The next call that a stream tells of.
fn next(stream: &mut impl Iterator<Item = String>) -> Json {
    let line = stream.find_map(|line| line.strip_prefix("data: ").map(str::to_owned));
    serde_json::from_str(&line.expect("an event")).expect("one JSON document")
}

#[test]
fn calls_are_told_as_they_end() {
    let mut door = Door::open(&json!({}));
    let mut all = lines(&door, "/v1/executions/stream");
    let mut errors = lines(&door, "/v1/executions/stream?status=error");
    // From here on nothing is missed.
    for stream in [&mut all, &mut errors] {
        assert_eq!(stream.next().as_deref(), Some("HTTP/1.1 200 OK"));
        assert!(stream.any(|line| line == ": open"));
    }
    let tool = door.get("/v1/tools", OWNER).json()["tools"][0]["name"].as_str().expect("a name").to_owned();
    let good = door.call(OWNER, &tool, &json!({}));
    assert_eq!(good.status, 200, "{good:?}");
    let bad = door.call(OWNER, "no-such-tool", &json!({}));
    assert_eq!(bad.status, 404, "{bad:?}");
    let first = next(&mut all);
    assert_eq!(first["end"]["tool"], json!(tool), "{first}");
    assert_eq!(first["end"]["status"], "success", "{first}");
    assert_eq!(next(&mut all)["end"]["tool"], "no-such-tool");
    // What does not pass the filter is not told.
    assert_eq!(next(&mut errors)["end"]["tool"], "no-such-tool");
    assert_eq!(door.get("/v1/executions/stream?limit=3", OWNER).told(), (400, "invalid_request".to_owned()));
    assert_eq!(door.get("/v1/executions/stream", "a-wrong-key").status, 401);
    // Who listens does not keep the door open.
    door.signal("-TERM");
    assert_eq!(door.ended(), Some(0));
}

/// What the watch over the files does not do: it says what came of the signal, also where nothing changed.
#[test]
fn a_hangup_is_answered() {
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
        assert!(sent.expect("there is `kill`").success());
        while !lines.recv_timeout(crate::program::PATIENCE).expect(expected).contains(expected) {}
    };
    hang_up("reloaded: the registry is at revision ");
    hang_up("reloaded: the registry is at revision ");
    program.write("mcp.json", "{ nonsense");
    hang_up("not reloaded, the old configuration stays active: ");
    program.write("mcp.json", r#"{ "servers": {} }"#);
    hang_up("reloaded: the registry is at revision ");
    child.kill().and_then(|()| child.wait()).expect("it ends");
}

#[test]
fn a_hangup_reads_the_files_again() {
    let program = project(&json!({ "registries": { "mcp": "mcp.json" }, "mcps": [] }));
    program.write("mcp.json", r#"{ "servers": {} }"#);
    let door = Door::of(program);
    let names = |door: &Door| -> Vec<Json> {
        let servers = door.get("/v1/servers", OWNER).json();
        servers["servers"].as_array().expect("a list").iter().map(|server| server["name"].clone()).collect()
    };
    assert!(names(&door).is_empty());
    let entry = json!({ "servers": { "late": { "command": crate::servers::testkit(), "args": ["good"] } } });
    door.program.write("mcp.json", entry.to_string());
    door.signal("-HUP");
    until("the new server", || names(&door) == ["late"]);
    // Files that are wrong change nothing, and the door stays.
    door.program.write("mcp.json", "{ nonsense");
    door.signal("-HUP");
    assert_eq!(names(&door), ["late"]);
    assert_eq!(door.get("/healthz", OWNER).status, 200);
}
