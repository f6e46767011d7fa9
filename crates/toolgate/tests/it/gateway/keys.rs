//! API keys of callers: several per caller, expiry, rotation, revocation, and the first key of the owner.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, project, wait_until};
use crate::support::program::Program;

fn call(gateway: &Gateway, key: &str) -> u16 {
    gateway.call(key, "echo", &json!({ "message": "x" })).status
}

fn key_of(document: &Json) -> String {
    document["key"].as_str().unwrap_or_else(|| panic!("no key: {document}")).to_owned()
}

#[test]
fn keys_are_added_rotated_and_revoked() {
    let gateway = Gateway::start(&json!({ "callers": [{ "id": "ann", "permissions": ["s:*"] }] }));
    let run = |arguments: &str| gateway.program.run(&format!("callers keys {arguments} --json"));
    let laptop = key_of(&run("add ann --name laptop --expires 90d").json());
    let desk = key_of(&run("add ann --name desk").json());
    assert_eq!((call(&gateway, &laptop), call(&gateway, &desk)), (200, 200));
    assert_eq!(run("add ann --name desk").code, 1, "a name is used once");
    // The record names the key.
    let shown = gateway.program.run("log --json --caller ann --limit 1").json();
    assert_eq!(shown["begin"]["credential"], "key/desk");
    let listed = run("list ann").json();
    let names: Vec<_> = listed["keys"].as_array().expect("keys").iter().map(|key| &key["name"]).collect();
    assert_eq!(names, ["laptop", "desk"]);
    assert!(
        listed["keys"][0]["lastUsed"].is_string() && listed["keys"][0]["expires"].is_string(),
        "{listed}"
    );
    assert!(!listed.to_string().contains("sha256") && !listed.to_string().contains(&desk), "{listed}");
    // Both keys are valid during the overlap, and the old one is named.
    let rotated = run("rotate ann desk --overlap 1h").json();
    let new_desk = key_of(&rotated);
    assert_eq!((call(&gateway, &desk), call(&gateway, &new_desk)), (200, 200));
    assert_eq!(rotated["old"]["name"], "desk.old");
    // A revoked key loses its access and its streams at once; the other keys of the caller stay.
    let head = format!("GET /sse HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {desk}\r\n\r\n");
    let mut stream = BufReader::new(gateway.connect());
    stream.get_mut().write_all(head.as_bytes()).expect("it is sent");
    let mut line = String::new();
    stream.read_line(&mut line).expect("an answer");
    assert!(line.contains(" 200 "), "{line}");
    assert_eq!(run("revoke ann desk.old").code, 0);
    assert_eq!(call(&gateway, &desk), 401);
    assert!(stream.read_to_end(&mut Vec::new()).is_ok(), "the stream is still open");
    assert_eq!((call(&gateway, &new_desk), call(&gateway, &laptop)), (200, 200));
    // Without an overlap, the old key is revoked at once.
    let newest = key_of(&run("rotate ann desk").json());
    assert_eq!((call(&gateway, &new_desk), call(&gateway, &newest)), (401, 200));
    // The same over REST; an expired key is told so.
    let body = json!({ "name": "short", "expires": "1s" });
    let short = key_of(&gateway.post("/v1/callers/ann/keys", OWNER, &body).json());
    wait_until("the expiry", || {
        let response = gateway.call(&short, "echo", &json!({ "message": "x" }));
        response.status == 401 && response.body.contains("expired")
    });
    for (path, body, expected) in [
        ("ann/keys", json!({ "name": "a b" }), 422),
        ("ann/keys", json!({ "expires": "yesterday" }), 422),
        ("eve/keys", json!({}), 404),
        ("ann/keys/rotate", json!({ "name": "none" }), 404),
        ("ann/keys/revoke", json!({ "name": "none" }), 404),
        ("ann/keys/revoke", json!({ "name": "laptop" }), 204),
    ] {
        let response = gateway.post(&format!("/v1/callers/{path}"), OWNER, &body);
        assert_eq!(response.status, expected, "{path} {body}: {response:?}");
    }
    assert_eq!(call(&gateway, &laptop), 401);
    // Stored keys and the time of their use survive a restart.
    let Gateway { program, mut running, .. } = gateway;
    running.child.kill().expect("it runs");
    running.child.wait().expect("it ends");
    let offline = program.run("callers keys list ann").stdout;
    assert!(offline.contains("desk") && !offline.contains("laptop"), "{offline}");
    assert_eq!(call(&Gateway::serve(program), &newest), 200);
}

/// A key of another caller would be a second identity, so only few may make one.
#[test]
fn callers_cannot_make_keys_of_others() {
    let caller = |id: &str, permissions: &[&str]| json!({ "id": id, "permissions": permissions, "api_key": format!("key-of-{id}") });
    let mut lead = caller("lead", &["s:*", "callers:*"]);
    lead["groups"] = json!(["leads"]);
    let program = project(&json!({ "groups": { "leads": {}, "ops": {} }, "callers": [
        lead, caller("star", &["*:*"]), caller("low", &["s:echo"]), caller("reads", &["callers:read"])] }));
    let gateway = Gateway::serve(program);
    let add = |key: &str, id: &str| {
        gateway.post(&format!("/v1/callers/{id}/keys"), key, &json!({ "name": "mine" })).status
    };
    assert_eq!((add("key-of-reads", "reads"), add("key-of-low", "low")), (403, 403), "no permission");
    assert_eq!((add("key-of-star", "owner"), add("key-of-star", "low")), (403, 403), "another identity");
    assert_eq!(add("key-of-lead", "star"), 403, "it has more");
    assert_eq!(add("key-of-lead", "lead"), 201, "its own");
    let create = |key: &str, id: &str, groups: &[&str]| {
        let body = json!({ "id": id, "permissions": ["s:echo"], "groups": groups });
        gateway.post("/v1/callers", key, &body)
    };
    assert_eq!(create("key-of-lead", "made", &["leads"]).status, 201);
    assert_eq!(add("key-of-lead", "made"), 201, "it created the caller");
    assert_eq!(add("key-of-star", "made"), 403);
    assert_eq!(create("key-of-lead", "more", &["ops"]).status, 403, "it is not in the group");
    assert_eq!(create("key-of-star", "more", &["leads"]).status, 403);
    assert_eq!(create(OWNER, "more", &["none"]).status, 422);
}

/// Starts a gateway that creates the owner key itself; returns the key if it is shown.
fn start(program: Program, arguments: &str) -> (Gateway, Option<String>) {
    let running = program.start(&format!("serve --json --listen 127.0.0.1:0 {arguments}"));
    let (line, _) = running.line(|line| line.starts_with('{'));
    let ready: Json = serde_json::from_str(&line).expect("one JSON document");
    let port = ready["address"].as_str().and_then(|address| address.rsplit(':').next()?.parse().ok());
    let key = ready["apiKey"].as_str().map(str::to_owned);
    (Gateway { program, running, port: port.expect("a port") }, key)
}

fn stop(gateway: Gateway) -> Program {
    let Gateway { program, mut running, .. } = gateway;
    running.child.kill().expect("it runs");
    running.child.wait().expect("it ends");
    program
}

/// An owner key that was never used is replaced and shown again; one that was used is kept, even after a kill.
#[test]
fn the_first_key_is_never_lost() {
    let program = Program::new(&[("toolgate.yaml", "{}")]).with("TOOLGATE_LOG", "off");
    let (gateway, lost) = start(program, "");
    let lost = lost.expect("a key at the first start");
    let (gateway, key) = start(stop(gateway), "");
    let key = key.expect("another key, because the first was never used");
    let status = |gateway: &Gateway, key: &str| gateway.get("/v1/tools", key).status;
    assert_eq!((status(&gateway, &lost), status(&gateway, &key)), (401, 200));
    let (gateway, shown) = start(stop(gateway), "");
    assert_eq!((shown, status(&gateway, &key)), (None, 200), "it was used");
    drop(gateway);
    // The key goes to a file that only its owner can read.
    let program = Program::new(&[("toolgate.yaml", "{}")]).with("TOOLGATE_LOG", "off");
    program.write("owner.key", "an older key");
    let path = program.path("owner.key");
    let (gateway, shown) = start(program, "--key-file owner.key");
    assert_eq!(shown, None, "it is not printed");
    let written = gateway.program.read("owner.key");
    assert_eq!(status(&gateway, written.trim()), 200);
    let mode = fs_err::metadata(path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
