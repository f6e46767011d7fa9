//! Callers that are made while the door is open: over HTTP, by command, and after a restart.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;

use jsonwebtoken::Algorithm;
use serde_json::{Value as Json, json};

use crate::door::{Answer, Door, OWNER, project, until};
use crate::issuer::{AUDIENCE, Issuer, Signer, now};
use crate::program::Program;

fn made(door: &Door, key: &str, body: &Json) -> Answer {
    door.post("/v1/callers", key, body)
}

fn removed(door: &Door, key: &str, id: &str) -> Answer {
    door.request(&format!("DELETE /v1/callers/{id}"), &[&format!("X-API-Key: {key}")], "")
}

/// Its key.
fn key(answer: &Answer) -> String {
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["key"].as_str().expect("a key").to_owned()
}

fn calls(door: &Door, key: &str) -> u16 {
    door.call(key, "echo", &json!({ "message": "x" })).status
}

/// Whether the door for MCP knows a key, and how many tools it shows.
fn over_mcp(door: &Door, key: &str) -> (u16, usize) {
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
    let answer = door.request("POST /mcp", &headers, &body.to_string());
    (answer.status, answer.json()["result"]["tools"].as_array().map_or(0, Vec::len))
}

#[test]
fn a_caller_is_made_used_and_taken_away() {
    let door = Door::open(&json!({}));
    let answer =
        made(&door, OWNER, &json!({ "id": "ci/nightly", "description": "at night", "permissions": ["s:*"] }));
    assert_eq!(answer.header("location"), Some("/v1/callers/ci%2fnightly"), "the head is in lower case here");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let ci = key(&answer);
    assert!(ci.starts_with("tg_") && ci.len() > 40, "{ci}");
    assert_eq!((calls(&door, &ci), over_mcp(&door, &ci)), (200, (200, 5)), "at once, at every door");
    assert_eq!(door.executions("caller=ci/nightly").len(), 2 - 1, "it is written down who it was");
    let listed = door.get("/v1/callers", OWNER);
    assert!(!listed.body.contains(&ci) && !listed.body.contains("sha256"), "{listed:?}");
    let one = door.get("/v1/callers/ci%2Fnightly", OWNER).json();
    assert_eq!(listed.json()["callers"].as_array().expect("a list").last(), Some(&one));
    assert_eq!((&one["source"], &one["by"]), (&json!("made"), &json!("owner")));
    let why = door.post("/v1/policy/why", OWNER, &json!({ "caller": "ci/nightly", "tool": "echo" }));
    assert_eq!(why.json()["decision"], "allow");
    // Only a hash is on the disk, for its owner alone.
    let file = door.program.read(".toolgate/keys.json");
    assert!(!file.contains(&ci), "{file}");
    let mode =
        fs_err::metadata(door.program.path(".toolgate/keys.json")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // It is there after a restart.
    let Door { program, running, .. } = door;
    drop(running);
    let door = Door::of(program);
    assert_eq!(calls(&door, &ci), 200);
    assert_eq!(removed(&door, OWNER, "ci%2Fnightly").status, 204);
    assert_eq!((calls(&door, &ci), over_mcp(&door, &ci).0), (401, 401), "at once, at every door");
    assert_eq!(removed(&door, OWNER, "ci%2Fnightly").status, 404);
    let Door { program, running, .. } = door;
    drop(running);
    assert_eq!(calls(&Door::of(program), &ci), 401, "it stays away");
}

#[test]
fn nobody_gives_more_than_it_has() {
    let caller = |id: &str, permissions: &[&str]| json!({ "id": id, "permissions": permissions, "api_key": format!("key-of-{id}") });
    let program = project(&json!({ "callers": [
        caller("lead", &["s:*", "callers:*"]), caller("reads", &["callers:read"]), caller("none", &["s:*"]),
        caller("runs", &["*:*", "servers:exec"])] }));
    program.write("policy.cedar", r#"permit(principal == Caller::"ruled", action, resource);"#);
    let door = Door::of(program);
    let status = |key: &str, id: &str, permissions: &[&str]| {
        made(&door, key, &json!({ "id": id, "permissions": permissions })).status
    };
    assert_eq!(door.request("GET /v1/callers", &[], "").status, 401);
    assert_eq!(door.get("/v1/callers", "key-of-none").status, 403);
    assert_eq!(door.get("/v1/callers", "key-of-reads").status, 200);
    assert_eq!(status("key-of-none", "x", &[]), 403);
    assert_eq!(status("key-of-reads", "x", &[]), 403, "reading is not writing");
    assert_eq!(removed(&door, "key-of-reads", "x").status, 403);
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
    assert_eq!(status(OWNER, "o2", &["servers:exec"]), 403, "no star gives it, and no star gives it on");
    assert_eq!(status("key-of-runs", "o2", &["servers:exec"]), 201);
    assert_eq!(removed(&door, "key-of-lead", "o1").status, 403, "who has more is not taken away");
    assert_eq!(status("key-of-lead", "ruled", &[]), 403, "a rule gives it more");
    // Ids of others, and what is none.
    for (id, expected) in
        [("owner", 409), ("anonymous", 409), ("lead", 409), ("o1", 409), ("a b", 422), ("", 422)]
    {
        assert_eq!(status(OWNER, id, &[]), expected, "{id:?}");
    }
    assert_eq!(status(OWNER, "y", &["everything"]), 422);
    assert_eq!(made(&door, OWNER, &json!({ "id": "y", "api_key": "mine" })).status, 400, "keys are made");
    assert_eq!((removed(&door, OWNER, "lead").status, removed(&door, OWNER, "owner").status), (409, 409));
    let nobody = key(&made(&door, "key-of-lead", &json!({ "id": "nobody" })));
    assert_eq!(calls(&door, &nobody), 404, "who was given nothing sees nothing");
}

#[test]
fn many_are_made_at_once() {
    let door = Door::open(&json!({}));
    let keys: Vec<String> = std::thread::scope(|scope| {
        let made: Vec<_> = (0..16)
            .map(|n| {
                let door = &door;
                scope.spawn(move || {
                    key(&made(door, OWNER, &json!({ "id": format!("c{n}"), "permissions": ["s:*"] })))
                })
            })
            .collect();
        made.into_iter().map(|made| made.join().expect("it ends")).collect()
    });
    assert!(keys.iter().all(|key| calls(&door, key) == 200));
}

fn run(program: &Program, line: &str) -> Json {
    let run = program.run(&format!("--json {line}"));
    assert_eq!(run.code, 0, "{run}");
    run.json()
}

/// By command: with a server that runs, and without.
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
    assert_eq!(run(&program, "why early echo")["decision"], "allow", "the command line knows it, too");
    let door = Door::of(program);
    let before = before.as_str().expect("a key");
    assert_eq!(calls(&door, before), 200);
    let program = &door.program;
    let added = run(program, "callers add late --permission *:* --permission servers:exec");
    assert_eq!(calls(&door, added["key"].as_str().expect("a key")), 200, "at once");
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
    assert_eq!(calls(&door, before), 401, "at once");
    // What somebody else wrote is seen, too; what is broken changes nothing.
    let file = program.read(".toolgate/keys.json");
    program.write(".toolgate/keys.json", "{");
    assert_eq!(calls(&door, added["key"].as_str().expect("a key")), 200);
    let mut without: Json = serde_json::from_str(&file).expect("JSON");
    without["callers"] = json!([]);
    without["keys"] = json!([{ "caller": "owner", "sha256": "0".repeat(64) }]);
    program.write(".toolgate/keys.json", without.to_string());
    until("the file counts", || calls(&door, added["key"].as_str().expect("a key")) == 401);
}

/// Ids that issuers give are theirs.
#[test]
fn ids_of_issuers_are_not_made() {
    let jwt = json!([{ "issuer": "https://id.test", "audience": ["x"], "caller_prefix": "id:" }]);
    let door = Door::open(&json!({ "serve": { "jwt": jwt } }));
    assert_eq!(made(&door, OWNER, &json!({ "id": "id:ann" })).told(), (409, "already_exists".to_owned()));
    assert_eq!(made(&door, OWNER, &json!({ "id": "ann" })).status, 201);
}

/// What was open ends with what let it in: a key that is taken back, a token that expires.
#[test]
fn streams_end_with_what_let_them_in() {
    let signer = Signer::new("one", Algorithm::ES256);
    let issuer = Issuer::start(&[&signer]);
    let jwt = json!([{ "issuer": issuer.url, "audience": [AUDIENCE], "leeway": "1s", "scopes": { "all": ["s:*"] } }]);
    let door = Door::open(&json!({ "serve": { "jwt": jwt } }));
    let ci = key(&made(&door, OWNER, &json!({ "id": "ci", "permissions": ["s:*"] })));
    let other = key(&made(&door, OWNER, &json!({ "id": "other", "permissions": ["s:*"] })));
    let open = |path: &str, key: &str| {
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        let upgrade = if path == "/ws" { upgrade } else { "" };
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n{upgrade}\r\n");
        let mut stream = BufReader::new(door.connect());
        stream.get_mut().write_all(head.as_bytes()).expect("it is sent");
        let mut line = String::new();
        stream.read_line(&mut line).expect("an answer");
        assert!(line.contains(" 200 ") || line.contains(" 101 "), "{path}: {line}");
        stream
    };
    // It is read up to its end, which comes within the patience of the connection.
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
    assert_eq!(removed(&door, OWNER, "ci").status, 204);
    for stream in streams {
        assert!(ended(stream), "it is still open");
    }
    stays.get_ref().set_nonblocking(true).expect("a socket");
    let mut rest = Vec::new();
    let error = stays.into_inner().read_to_end(&mut rest).expect_err("it goes on");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

/// Only a hash of a key is kept, but while the door is open it knows those it made, and masks them in its log.
#[test]
fn a_made_key_is_not_shown_again() {
    let door = Door::open(&json!({}));
    let ci = key(&made(&door, OWNER, &json!({ "id": "ci", "permissions": ["s:*"] })));
    let answer = door.call(OWNER, "echo", &json!({ "message": format!("it is {ci}, is it not?") }));
    assert_eq!(answer.status, 200, "{answer:?}");
    let lines = door.get("/v1/executions?limit=10", OWNER).body;
    assert!(lines.contains("it is ***") && !lines.contains(&ci), "{lines}");
    let ours = door.program.files().into_iter().filter(|(path, _)| !path.ends_with("seen"));
    for (path, text) in ours {
        assert!(!String::from_utf8_lossy(&text).contains(&ci), "{}", path.display());
    }
}
