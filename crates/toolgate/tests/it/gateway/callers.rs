//! Callers created while the gateway runs: over HTTP, by command, and after a restart.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;

use jsonwebtoken::Algorithm;
use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, HttpResponse, OWNER, project, wait_until};
use crate::support::issuer::{AUDIENCE, Issuer, Signer, now};
use crate::support::program::Program;

fn create_caller(gateway: &Gateway, key: &str, body: &Json) -> HttpResponse {
    gateway.post("/v1/callers", key, body)
}

fn delete_caller(gateway: &Gateway, key: &str, id: &str) -> HttpResponse {
    gateway.request(&format!("DELETE /v1/callers/{id}"), &[&format!("X-API-Key: {key}")], "")
}

/// Returns the key of a created caller.
fn key(response: &HttpResponse) -> String {
    assert_eq!(response.status, 201, "{response:?}");
    response.json()["key"].as_str().expect("a key").to_owned()
}

fn calls(gateway: &Gateway, key: &str) -> u16 {
    gateway.call(key, "echo", &json!({ "message": "x" })).status
}

/// Returns the status of the MCP endpoint for a key and the number of listed tools.
fn over_mcp(gateway: &Gateway, key: &str) -> (u16, usize) {
    let key = format!("X-API-Key: {key}");
    let headers = [
        key.as_str(),
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        "MCP-Protocol-Version: 2026-07-28",
        "Mcp-Method: tools/list",
    ];
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {} });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": meta } });
    let response = gateway.request("POST /mcp", &headers, &body.to_string());
    (response.status, response.json()["result"]["tools"].as_array().map_or(0, Vec::len))
}

#[test]
fn a_caller_is_created_used_and_deleted() {
    let gateway = Gateway::start(&json!({}));
    let response = create_caller(
        &gateway,
        OWNER,
        &json!({ "id": "ci/nightly", "description": "at night", "permissions": ["s:*"] }),
    );
    assert_eq!(
        response.header("location"),
        Some("/v1/callers/ci%2fnightly"),
        "the head is in lower case here"
    );
    assert_eq!(response.header("cache-control"), Some("no-store"));
    let ci = key(&response);
    assert!(ci.starts_with("tg_") && ci.len() > 40, "{ci}");
    assert_eq!(
        (calls(&gateway, &ci), over_mcp(&gateway, &ci)),
        (200, (200, 5)),
        "effective at once on every endpoint"
    );
    assert_eq!(gateway.executions("caller=ci/nightly").len(), 2 - 1, "the record names the caller");
    let listed = gateway.get("/v1/callers", OWNER);
    assert!(!listed.body.contains(&ci) && !listed.body.contains("sha256"), "{listed:?}");
    let one = gateway.get("/v1/callers/ci%2Fnightly", OWNER).json();
    assert_eq!(listed.json()["callers"].as_array().expect("a list").last(), Some(&one));
    assert_eq!((&one["source"], &one["by"]), (&json!("made"), &json!("owner")));
    let why = gateway.post("/v1/policy/why", OWNER, &json!({ "caller": "ci/nightly", "tool": "echo" }));
    assert_eq!(why.json()["decision"], "allow");
    // The file has only a hash and is readable by its owner alone.
    let file = gateway.program.read(".toolgate/keys.json");
    assert!(!file.contains(&ci), "{file}");
    let mode =
        fs_err::metadata(gateway.program.path(".toolgate/keys.json")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The caller exists after a restart.
    let Gateway { program, running, .. } = gateway;
    drop(running);
    let gateway = Gateway::serve(program);
    assert_eq!(calls(&gateway, &ci), 200);
    assert_eq!(delete_caller(&gateway, OWNER, "ci%2Fnightly").status, 204);
    assert_eq!(
        (calls(&gateway, &ci), over_mcp(&gateway, &ci).0),
        (401, 401),
        "effective at once on every endpoint"
    );
    assert_eq!(delete_caller(&gateway, OWNER, "ci%2Fnightly").status, 404);
    let Gateway { program, running, .. } = gateway;
    drop(running);
    assert_eq!(calls(&Gateway::serve(program), &ci), 401, "it stays away");
}

#[test]
fn a_caller_cannot_grant_more_than_it_has() {
    let caller = |id: &str, permissions: &[&str]| json!({ "id": id, "permissions": permissions, "api_key": format!("key-of-{id}") });
    let program = project(&json!({ "callers": [
        caller("lead", &["s:*", "callers:*"]), caller("reads", &["callers:read"]), caller("none", &["s:*"]),
        caller("runs", &["*:*", "servers:exec"])] }));
    program.write("policy.cedar", r#"permit(principal == Caller::"ruled", action, resource);"#);
    let gateway = Gateway::serve(program);
    let status = |key: &str, id: &str, permissions: &[&str]| {
        create_caller(&gateway, key, &json!({ "id": id, "permissions": permissions })).status
    };
    assert_eq!(gateway.request("GET /v1/callers", &[], "").status, 401);
    assert_eq!(gateway.get("/v1/callers", "key-of-none").status, 403);
    assert_eq!(gateway.get("/v1/callers", "key-of-reads").status, 200);
    assert_eq!(status("key-of-none", "x", &[]), 403);
    assert_eq!(status("key-of-reads", "x", &[]), 403, "reading is not writing");
    assert_eq!(delete_caller(&gateway, "key-of-reads", "x").status, 403);
    for (permissions, expected) in [
        (vec!["s:*"], 201),
        (vec!["s:echo", "callers:write"], 201),
        (vec!["*:*"], 403),
        (vec!["*:echo"], 403),
        (vec!["s:echo", "t:echo"], 403),
        (vec!["servers:exec"], 403),
    ] {
        let id = format!("x{}", permissions.join("-").replace(['*', ':'], "_"));
        assert_eq!(status("key-of-lead", &id, &permissions), expected, "{permissions:?}");
    }
    assert_eq!(status(OWNER, "o1", &["*:*"]), 201);
    assert_eq!(status(OWNER, "o2", &["servers:exec"]), 403, "`servers:exec` is not part of `*:*`");
    assert_eq!(status("key-of-runs", "o2", &["servers:exec"]), 201);
    assert_eq!(
        delete_caller(&gateway, "key-of-lead", "o1").status,
        403,
        "a caller with more permissions cannot be deleted"
    );
    assert_eq!(status("key-of-lead", "ruled", &[]), 403, "the policy grants `ruled` more");
    // Ids of other callers, and invalid ids.
    for (id, expected) in
        [("owner", 409), ("anonymous", 409), ("lead", 409), ("o1", 409), ("a b", 422), ("", 422)]
    {
        assert_eq!(status(OWNER, id, &[]), expected, "{id:?}");
    }
    assert_eq!(status(OWNER, "y", &["everything"]), 422);
    assert_eq!(
        create_caller(&gateway, OWNER, &json!({ "id": "y", "api_key": "mine" })).status,
        400,
        "keys are generated"
    );
    assert_eq!(
        (delete_caller(&gateway, OWNER, "lead").status, delete_caller(&gateway, OWNER, "owner").status),
        (409, 409)
    );
    let powerless = key(&create_caller(&gateway, "key-of-lead", &json!({ "id": "nobody" })));
    assert_eq!(calls(&gateway, &powerless), 404, "a caller without permissions sees no tool");
}

#[test]
fn callers_are_created_concurrently() {
    let gateway = Gateway::start(&json!({}));
    let keys: Vec<String> = std::thread::scope(|scope| {
        let made: Vec<_> = (0..16)
            .map(|n| {
                let gateway = &gateway;
                scope.spawn(move || {
                    key(&create_caller(
                        gateway,
                        OWNER,
                        &json!({ "id": format!("c{n}"), "permissions": ["s:*"] }),
                    ))
                })
            })
            .collect();
        made.into_iter().map(|made| made.join().expect("it ends")).collect()
    });
    assert!(keys.iter().all(|key| calls(&gateway, key) == 200));
}

fn run(program: &Program, line: &str) -> Json {
    let run = program.run(&format!("--json {line}"));
    assert_eq!(run.code, 0, "{run}");
    run.json()
}

/// By command: with a running gateway and without.
#[test]
fn callers_by_command() {
    let program =
        project(&json!({ "callers": [{ "id": "ann", "permissions": ["s:echo"], "description": "Ann" }] }));
    let before = run(&program, "callers add early --permission s:* --description first")["key"].clone();
    let ids = |program: &Program| -> Vec<String> {
        let listed = run(program, "callers list");
        let callers = listed["callers"].as_array().expect("a list").clone();
        callers.iter().map(|caller| caller["id"].as_str().expect("an id").to_owned()).collect()
    };
    assert_eq!(ids(&program), ["ann", "owner", "early"]);
    assert_eq!(program.run("callers add early").code, 1);
    assert_eq!(program.run("callers add ann").code, 1);
    assert_eq!(program.run("callers remove ann").code, 1);
    assert_eq!(program.run("callers add x --permission all").code, 1);
    assert_eq!(run(&program, "why early echo")["decision"], "allow", "the command line knows the caller");
    let gateway = Gateway::serve(program);
    let before = before.as_str().expect("a key");
    assert_eq!(calls(&gateway, before), 200);
    let program = &gateway.program;
    let added = run(program, "callers add late --permission *:* --permission servers:exec");
    assert_eq!(calls(&gateway, added["key"].as_str().expect("a key")), 200, "effective at once");
    assert_eq!(ids(program), ["ann", "owner", "early", "late"]);
    let shown = program.run("callers list").stdout;
    assert!(
        shown.starts_with(
            "ann  s:echo · Ann  toolgate.yaml\nowner  *:*  toolgate.yaml\nearly  s:* · first  created "
        ),
        "{shown}"
    );
    assert!(program.run("callers add late").stderr.contains("caller `late` already exists"));
    assert!(program.run("callers remove ann").stderr.contains("change it in toolgate.yaml"));
    assert_eq!(run(program, "callers remove early"), json!({ "id": "early", "removed": true }));
    assert_eq!(calls(&gateway, before), 401, "effective at once");
    // Edits of the file are picked up; an invalid file changes nothing.
    let file = program.read(".toolgate/keys.json");
    program.write(".toolgate/keys.json", "{");
    assert_eq!(calls(&gateway, added["key"].as_str().expect("a key")), 200);
    let mut without: Json = serde_json::from_str(&file).expect("JSON");
    without["callers"] = json!([]);
    without["keys"] = json!([{ "caller": "owner", "sha256": "0".repeat(64) }]);
    program.write(".toolgate/keys.json", without.to_string());
    wait_until("the file counts", || calls(&gateway, added["key"].as_str().expect("a key")) == 401);
}

/// Ids with the prefix of an issuer are reserved.
#[test]
fn ids_of_issuers_are_reserved() {
    let jwt = json!([{ "issuer": "https://id.test", "audience": ["x"], "caller_prefix": "id:" }]);
    let gateway = Gateway::start(&json!({ "serve": { "jwt": jwt } }));
    assert_eq!(
        create_caller(&gateway, OWNER, &json!({ "id": "id:ann" })).status_and_code(),
        (409, "already_exists".to_owned())
    );
    assert_eq!(create_caller(&gateway, OWNER, &json!({ "id": "ann" })).status, 201);
}

/// Open streams end with their credential: a deleted key or an expired token.
#[test]
fn streams_end_with_their_credential() {
    let signer = Signer::new("one", Algorithm::ES256);
    let issuer = Issuer::start(&[&signer]);
    let jwt = json!([{ "issuer": issuer.url, "audience": [AUDIENCE], "leeway": "1s", "scopes": { "all": ["s:*"] } }]);
    let gateway = Gateway::start(&json!({ "serve": { "jwt": jwt } }));
    let ci = key(&create_caller(&gateway, OWNER, &json!({ "id": "ci", "permissions": ["s:*"] })));
    let other = key(&create_caller(&gateway, OWNER, &json!({ "id": "other", "permissions": ["s:*"] })));
    let open = |path: &str, key: &str| {
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        let upgrade = if path == "/ws" { upgrade } else { "" };
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n{upgrade}\r\n");
        let mut stream = BufReader::new(gateway.connect());
        stream.get_mut().write_all(head.as_bytes()).expect("it is sent");
        let mut line = String::new();
        stream.read_line(&mut line).expect("an answer");
        assert!(line.contains(" 200 ") || line.contains(" 101 "), "{path}: {line}");
        stream
    };
    // Reads to the end of the stream, which must come before the read timeout.
    let ended = |mut stream: BufReader<TcpStream>| {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).is_ok()
    };
    let mut streams = vec![open("/sse", &ci), open("/ws", &ci)];
    let stays = open("/sse", &other);
    let mut claims = issuer.claims("ann", "all");
    claims["exp"] = json!(now(3));
    let token = signer.sign(&claims);
    streams.extend([open("/sse", &token), open("/ws", &token)]);
    assert_eq!(delete_caller(&gateway, OWNER, "ci").status, 204);
    for stream in streams {
        assert!(ended(stream), "it is still open");
    }
    stays.get_ref().set_nonblocking(true).expect("a socket");
    let mut rest = Vec::new();
    let error = stays.into_inner().read_to_end(&mut rest).expect_err("the stream continues");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

/// The gateway stores only the hash of a key but masks the keys it created in its log.
#[test]
fn a_created_key_is_masked_in_the_log() {
    let gateway = Gateway::start(&json!({}));
    let ci = key(&create_caller(&gateway, OWNER, &json!({ "id": "ci", "permissions": ["s:*"] })));
    let response = gateway.call(OWNER, "echo", &json!({ "message": format!("it is {ci}, is it not?") }));
    assert_eq!(response.status, 200, "{response:?}");
    let lines = gateway.get("/v1/executions?limit=10", OWNER).body;
    assert!(lines.contains("it is ***") && !lines.contains(&ci), "{lines}");
    let ours = gateway.program.files().into_iter().filter(|(path, _)| !path.ends_with("seen"));
    for (path, text) in ours {
        assert!(!String::from_utf8_lossy(&text).contains(&ci), "{}", path.display());
    }
}
