//! Three replicas of one gateway on PostgreSQL: what one of them decides or stores counts at all of them.

#![expect(clippy::disallowed_methods, reason = "measures how soon other processes follow")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::postgres::{TestDatabase, TestServer, shared_server};
use crate::support::gateway::{Gateway, OWNER, project, request, wait_until};
use crate::support::mcp_client::{call_message, request_message};
use crate::support::program::Program;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Creates the project of a replica. `config` has more keys.
fn replica(url: &str, name: &str, config: &Json) -> Program {
    let mut whole = json!({ "cluster": { "database": url, "secret": SECRET, "name": name } });
    let server = json!({ "placement": "each", "default_tool_config": { "timeout": "50s" } });
    whole["server"] = server;
    for (key, value) in config.as_object().into_iter().flatten() {
        match (key.as_str(), value.as_object()) {
            ("cluster" | "server", Some(more)) => {
                let section = whole[key].as_object_mut().expect("an object");
                section.extend(more.clone());
            }
            _ => whole[key] = value.clone(),
        }
    }
    project(&whole)
}

/// Starts replicas `a`, `b` and `c` with folders of their own.
fn start(database: &TestDatabase<'_>, config: &Json) -> [Gateway; 3] {
    ["a", "b", "c"].map(|name| Gateway::serve(replica(&database.url(), name, config)))
}

fn status(gateway: &Gateway) -> Json {
    gateway.get("/v1/cluster", OWNER).json()
}

fn live(gateway: &Gateway) -> Vec<String> {
    let replicas = status(gateway)["replicas"].as_array().expect("a list").clone();
    let live = replicas.iter().filter(|one| one["live"] == true);
    live.map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
}

/// A limit of 5 lets 5 calls through, whichever replica gets them.
#[test]
fn a_limit_holds_for_all_replicas() {
    let database = shared_server().create_database();
    let limited =
        json!({ "tools": [{ "name": "echo", "rate_limit": { "max_calls": 5, "window_ms": 600_000 } }] });
    let replicas = start(&database, &limited);
    let statuses: Vec<u16> = thread::scope(|scope| {
        let call = |number: usize| {
            let gateway = &replicas[number % 3];
            scope.spawn(move || gateway.call(OWNER, "echo", &json!({ "message": "x" })).status)
        };
        let calls: Vec<_> = (0..30).map(call).collect();
        calls.into_iter().map(|call| call.join().expect("it ends")).collect()
    });
    let count = |status: u16| statuses.iter().filter(|one| **one == status).count();
    assert_eq!((count(200), count(429)), (5, 25), "{statuses:?}");
    // Wrong keys are counted together, too.
    let wrong: Vec<u16> =
        (0..9).map(|number| replicas[number % 3].get("/v1/tools", "wrong").status).collect();
    assert_eq!(wrong, [401, 401, 401, 401, 401, 429, 429, 429, 429]);
}

/// A session of an older client goes on at every replica, and what tainted it at one counts at the others.
#[test]
fn a_session_and_its_taint_are_known_everywhere() {
    let database = shared_server().create_database();
    let policy =
        r#"@id("tainted") forbid(principal, action == Action::"call", resource) when { context.tainted };"#;
    let config = json!({ "policy": "policy.cedar" });
    let replicas = ["a", "b", "c"].map(|name| {
        let program = replica(&database.url(), name, &config);
        program.write("policy.cedar", policy);
        Gateway::serve(program)
    });
    let [a, b, c] = &replicas;
    let capabilities = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    for round in 0..10 {
        let first = a.post_mcp(OWNER, None, &request_message(1, "initialize", &capabilities));
        let session = first.session().expect("a session").to_owned();
        let listed = b.post_mcp(OWNER, Some(&session), &request_message(2, "tools/list", &json!({})));
        assert_eq!(listed.status, 200, "{listed:?}");
        let call = |gateway: &Gateway, number: u32| {
            let message = call_message(number, "echo", &json!({ "message": "hello" }));
            gateway.post_mcp(OWNER, Some(&session), &message)
        };
        let clean = call(c, 3);
        assert_eq!(clean.json()["result"]["content"][0]["text"], "hello", "round {round}: {clean:?}");
        for (number, gateway) in [(4, a), (5, b), (6, c)] {
            let refused = call(gateway, number);
            assert!(refused.body.contains("the policy forbids it"), "round {round}: {refused:?}");
        }
    }
}

/// Changes count everywhere within a second: callers, their keys, and tools.
#[test]
fn changes_count_everywhere() {
    let database = shared_server().create_database();
    let script = json!({ "name": "greet", "description": "Greets.", "inputSchema": { "type": "object" },
        "script_path": "greet.py", "parallel_capable": true });
    let owner = json!({ "id": "owner", "permissions": ["*:*", "servers:exec"] });
    let config = json!({ "registries": { "tools": "tools.json" }, "callers": [owner] });
    let replicas = ["a", "b", "c"].map(|name| {
        let program = replica(&database.url(), name, &config);
        program.write("greet.py", "def run(): return 'hello'\n");
        program.write("tools.json", json!({ "tools": [script] }).to_string());
        Gateway::serve(program)
    });
    let [a, b, c] = &replicas;
    let within_a_second = |what: &str, holds: &dyn Fn() -> bool| {
        let start = Instant::now();
        wait_until(what, holds);
        // The bar is one second; a busy machine gets more.
        assert!(start.elapsed() < Duration::from_secs(5), "{what}: {:?}", start.elapsed());
    };
    let added = a.post("/v1/callers", OWNER, &json!({ "id": "ann", "permissions": ["tools:*"] }));
    assert_eq!(added.status, 201, "{added:?}");
    let key = added.json()["key"].as_str().expect("a key").to_owned();
    assert_eq!(a.get("/v1/me", &key).status, 200);
    within_a_second("the key", &|| [b, c].iter().all(|gateway| gateway.get("/v1/me", &key).status == 200));
    // A revocation ends the streams of the key at every replica.
    let mut stream = BufReader::new(c.connect());
    let open = request("GET /v1/events", &[&format!("X-API-Key: {key}")], "");
    stream.get_mut().write_all(open.as_bytes()).expect("it is open");
    let mut head = String::new();
    stream.read_line(&mut head).expect("a head");
    assert!(head.contains("200"), "{head}");
    let removed = b.request("DELETE /v1/callers/ann", &[&format!("X-API-Key: {OWNER}")], "");
    assert_eq!(removed.status, 204, "{removed:?}");
    let mut rest = String::new();
    while stream.read_line(&mut rest).expect("the stream ends in time") > 0 {}
    // After some wrong keys, the address has to wait.
    within_a_second("the revocation", &|| {
        [a, c].iter().all(|gateway| matches!(gateway.get("/v1/me", &key).status, 401 | 429))
    });

    let patch = |gateway: &Gateway, text: &str| {
        let body = json!({ "description": text }).to_string();
        gateway.request(
            "PATCH /v1/tools/greet",
            &[&format!("X-API-Key: {OWNER}"), "Content-Type: application/json"],
            &body,
        )
    };
    let changed = patch(b, "Greets you.");
    assert_eq!(changed.status, 200, "{changed:?}");
    let shows = |gateway: &Gateway, text: &str| gateway.get("/v1/tools/greet", OWNER).body.contains(text);
    within_a_second("the tool", &|| [a, c].iter().all(|gateway| shows(gateway, "Greets you.")));
    // Concurrent changes at all replicas: none is lost.
    thread::scope(|scope| {
        for (at, gateway) in replicas.iter().enumerate() {
            scope.spawn(move || {
                for number in 0..5 {
                    let tool = json!({ "name": format!("greet_{at}_{number}"), "description": "Greets.",
                        "inputSchema": { "type": "object" }, "script_path": "greet.py", "parallel_capable": true });
                    let added = gateway.post("/v1/tools", OWNER, &tool);
                    assert_eq!(added.status, 201, "{added:?}");
                }
            });
        }
    });
    within_a_second("all tools", &|| {
        let count =
            |gateway: &Gateway| gateway.get("/v1/tools?limit=100", OWNER).body.matches("\"greet_").count();
        replicas.iter().all(|gateway| count(gateway) >= 15)
    });
    // A command without a gateway sees the same, and writes it into files.
    let other = replica(&database.url(), "other", &config);
    other.write("greet.py", "def run(): return 'hello'\n");
    other.write("tools.json", r#"{"tools": []}"#);
    assert_eq!(other.run("cluster pull").code, 0);
    assert_eq!(other.read("tools.json").matches("greet_").count(), 15);
    let refused = other.run("tools call greet");
    assert!(refused.stderr.contains("this project is a cluster"), "{}", refused.stderr);
    let refused = other.run("callers list");
    assert!(refused.stderr.contains("changed by its replicas"), "{}", refused.stderr);
}

/// A killed replica is reported, and the others go on. A replica can be drained from anywhere.
#[test]
fn replicas_come_and_go() {
    let database = shared_server().create_database();
    let [a, b, mut c] = start(&database, &json!({}));
    let all_agree = || {
        let now = status(&a);
        now["agree"] == true && live(&a) == ["a", "b", "c"]
    };
    wait_until("three replicas", all_agree);
    let mut killed = b;
    killed.signal("-KILL");
    killed.wait_for_exit();
    let start = Instant::now();
    wait_until("the dead one", || live(&a) == ["a", "c"]);
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    assert_eq!(c.call(OWNER, "echo", &json!({ "message": "x" })).status, 200);
    // Another process with a name that is in use does not start.
    let twin = replica(&database.url(), "a", &json!({})).run("serve --listen 127.0.0.1:0");
    assert_eq!(twin.code, 78);
    assert!(twin.stderr.contains("a replica named `a` is running already"), "{}", twin.stderr);
    let drained = a.program.run("cluster drain c");
    assert_eq!(drained.code, 0, "{}", drained.stderr);
    assert_eq!(c.wait_for_exit(), Some(0));
    wait_until("it left", || live(&a) == ["a"]);
    assert_eq!(a.program.run("cluster drain nobody").code, 1);
    // A replica with another configuration says so, and so do the others.
    let differs = Gateway::serve(replica(&database.url(), "d", &json!({ "taint_window": "7m" })));
    wait_until("the disagreement", || status(&a)["disagreeing"] == json!(["d"]));
    let ready = differs.get("/readyz", OWNER);
    assert_eq!((ready.status, &ready.json()["cluster"]["disagreeing"]), (200, &json!(["a"])), "{ready:?}");
    let listed = a.program.run("cluster status --json");
    assert_eq!(
        (listed.code, serde_json::from_str::<Json>(&listed.stdout).expect("JSON")["agree"].clone()),
        (1, json!(false))
    );
}

/// Without the database, calls go on, changes are refused, and the gateway stays ready.
#[test]
fn calls_go_on_without_the_database() {
    let mut server = TestServer::start();
    let url = server.create_database().url();
    let limited = json!({ "tools": [{ "name": "echo", "rate_limit": { "max_calls": 4, "window_ms": 600_000 } }],
        "cluster": { "stale_keys": "1s" } });
    let replicas = ["a", "b"].map(|name| Gateway::serve(replica(&url, name, &limited)));
    let [a, b] = &replicas;
    wait_until("both", || live(a).len() == 2 && live(b).len() == 2);
    let added = a.post("/v1/callers", OWNER, &json!({ "id": "ann", "permissions": ["s:*"] }));
    let key = added.json()["key"].as_str().expect("a key").to_owned();
    wait_until("the key", || b.get("/v1/me", &key).status == 200);
    server.signal_all("-STOP");
    let away =
        |gateway: &Gateway| gateway.get("/readyz", OWNER).json()["cluster"]["database"]["available"] == false;
    wait_until("the outage", || away(a) && away(b));
    assert_eq!(a.get("/readyz", OWNER).status, 200);
    let refused = a.post("/v1/callers", OWNER, &json!({ "id": "bob", "permissions": [] }));
    assert_eq!(refused.status, 503, "{refused:?}");
    // Each replica admits its share of the limit.
    let admitted = |gateway: &Gateway| {
        (0..4).filter(|_| gateway.call(OWNER, "echo", &json!({ "message": "x" })).status == 200).count()
    };
    assert_eq!((admitted(a), admitted(b)), (2, 2));
    // A key that could have been revoked does not count for long.
    wait_until("the stale key", || a.get("/v1/me", &key).status == 503);
    server.signal_all("-CONT");
    wait_until("the end of the outage", || !away(a) && !away(b));
    wait_until("the key again", || a.get("/v1/me", &key).status == 200);
    let added = a.post("/v1/callers", OWNER, &json!({ "id": "bob", "permissions": [] }));
    assert_eq!(added.status, 201, "{added:?}");
    // After a crash of the database, too.
    server.crash();
    wait_until("a change", || {
        a.post("/v1/callers", OWNER, &json!({ "id": "eve", "permissions": [] })).status == 201
    });
    wait_until("the change at the other", || b.get("/v1/callers", OWNER).body.contains("\"eve\""));
}

/// A result that taints a session is withheld if that cannot be stored and a rule decides by it.
#[test]
fn taint_that_cannot_be_stored_withholds_the_result() {
    let server = TestServer::start();
    let url = server.create_database().url();
    let policy =
        r#"@id("tainted") forbid(principal, action == Action::"call", resource) when { context.tainted };"#;
    let program = replica(&url, "a", &json!({ "policy": "policy.cedar", "taint_window": "1ms" }));
    program.write("policy.cedar", policy);
    let gateway = Gateway::serve(program);
    // The call is decided while the database is there, and ends without it.
    let file = gateway.program.path("go");
    let arguments = json!({ "fault": "until", "message": file });
    let result = thread::scope(|scope| {
        let call = scope.spawn(|| gateway.call(OWNER, "echo", &arguments));
        wait_until("the call", || !gateway.seen().is_empty());
        server.signal_all("-STOP");
        wait_until("the outage", || {
            gateway.get("/readyz", OWNER).json()["cluster"]["database"]["available"] == false
        });
        fs_err::write(&file, "").expect("the folder is ours");
        call.join().expect("it ends")
    });
    assert!(!result.body.contains("there it is"), "{result:?}");
    assert_eq!(result.code(), "storage_unavailable", "{result:?}");
    // Every session counts as tainted.
    let refused = gateway.call(OWNER, "echo", &json!({ "message": "x" }));
    assert!(refused.body.contains("the policy forbids it"), "{refused:?}");
    server.signal_all("-CONT");
    wait_until("a clean call", || gateway.call(OWNER, "echo", &json!({ "message": "x" })).status == 200);
}

/// Wrong settings are refused at the start, with a way out.
#[test]
fn wrong_settings_are_refused() {
    let database = shared_server().create_database();
    let url = database.url();
    let refused = |program: Program, message: &str| {
        let run = program.run("serve --listen 127.0.0.1:0");
        assert!(run.code == 78 && run.stderr.contains(message), "{}: {}", run.code, run.stderr);
    };
    let owner = json!({ "id": "owner", "permissions": ["*:*", "policy:write"] });
    let first = Gateway::serve(replica(&url, "a", &json!({ "callers": [owner] })));
    let other_secret = json!({ "cluster": { "secret": SECRET.replace('0', "f") } });
    refused(replica(&url, "b", &other_secret), "`cluster.secret` is not that of the other replicas");
    let text = replica(&url, "b", &json!({})).read("toolgate.yaml");
    refused(Program::new(&[("toolgate.yaml", &text)]), "the owner has no key");
    let without_placement = replica(&url, "b", &json!({}));
    let text = without_placement.read("toolgate.yaml").replace(",\"placement\":\"each\"", "");
    without_placement.write("toolgate.yaml", text);
    refused(without_placement, "has no `placement`");
    let policy = first.request(
        "PUT /v1/policy",
        &[&format!("X-API-Key: {OWNER}"), "Content-Type: application/json"],
        &json!({ "text": "permit(principal, action, resource);" }).to_string(),
    );
    assert_eq!(policy.status, 409, "{policy:?}");
    let nowhere = replica("postgres://%2Fnowhere/x", "b", &json!({})).run("serve --listen 127.0.0.1:0");
    assert!(nowhere.code == 1 && nowhere.stderr.contains("unavailable"), "{}", nowhere.stderr);
}
