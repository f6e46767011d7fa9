//! Connections per caller: state stays with its owner, and processes and sessions are bounded.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, project, wait_until};
use crate::support::mcp_client::{McpSession, call_message};
use crate::support::test_server::{TestServer, processes_left, processes_with, testkit};

const ANN: &str = "key-of-ann";
const BOB: &str = "key-of-bob";

/// Starts a gateway with one server and the callers ann and bob.
fn gateway(server: &Json) -> Gateway {
    let mut server = server.clone();
    server["name"] = json!("s");
    server["mode"] = json!("dynamic");
    server["default_tool_config"] = json!({ "max_instances": 64, "timeout": "50s" });
    let caller = |id: &str, key: &str| json!({ "id": id, "permissions": ["*:*"], "api_key": key });
    let callers = json!([caller("ann", ANN), caller("bob", BOB), caller("carl", "key-of-carl")]);
    Gateway::serve(project(&json!({ "mcps": [server], "callers": callers })))
}

/// A stateful child process. The marker is in its environment.
fn stateful(marker: &str, more: &Json) -> Json {
    let mut server =
        json!({ "command": testkit(), "args": ["stateful"], "env": { "ISOLATION_TEST": marker } });
    server.as_object_mut().expect("keys").extend(more.as_object().expect("keys").clone());
    server
}

fn marker(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// Processes of the server, without those that watch over them.
fn server_processes(marker: &str) -> usize {
    let is_server = |process: &u32| {
        let line = fs_err::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).next().is_some_and(|program| program.ends_with(b"testkit"))
    };
    processes_with(&format!("ISOLATION_TEST={marker}")).iter().filter(|process| is_server(process)).count()
}

/// The text of a result, over REST or MCP.
fn text(response: &Json) -> String {
    let text = response["data"][0]["text"].as_str().or(response["result"]["content"][0]["text"].as_str());
    text.unwrap_or_else(|| panic!("{response}")).to_owned()
}

/// Calls a tool of the stateful server; returns the process and the notes.
fn call(gateway: &Gateway, key: &str, tool: &str, message: &str) -> (String, BTreeSet<String>) {
    let answer = text(&gateway.call(key, tool, &json!({ "message": message })).json());
    notes(&answer)
}

fn notes(answer: &str) -> (String, BTreeSet<String>) {
    let (process, notes) = answer.split_once(':').expect("a process and notes");
    (process.to_owned(), notes.split_whitespace().map(str::to_owned).collect())
}

fn connections(gateway: &Gateway) -> u64 {
    gateway.get("/v1/servers/s", OWNER).json()["connections"].as_u64().expect("a number")
}

/// Makes interleaved calls of two callers; each sees its own notes, all of them, and no others.
fn interleave(gateway: &Gateway, calls: usize) {
    std::thread::scope(|scope| {
        for (key, name) in [(ANN, "ann"), (BOB, "bob")] {
            scope.spawn(move || {
                let mut expected = BTreeSet::new();
                for number in 0..calls / 2 {
                    let note = format!("{name}-{number}");
                    expected.insert(note.clone());
                    assert_eq!(call(gateway, key, "remember", &note).1, expected);
                }
            });
        }
    });
}

#[test]
fn processes_keep_the_state_of_their_caller() {
    let marker = marker("stdio");
    let mut gateway = gateway(&stateful(&marker, &json!({})));
    assert_eq!((connections(&gateway), server_processes(&marker)), (1, 1));
    call(&gateway, ANN, "recall", "");
    assert_eq!((connections(&gateway), server_processes(&marker)), (1, 1), "one caller has one process");
    interleave(&gateway, 1_000);
    assert_eq!((connections(&gateway), server_processes(&marker)), (2, 2));
    gateway.signal("-TERM");
    assert_eq!(gateway.wait_for_exit(), Some(0));
    assert_eq!(processes_left(&format!("ISOLATION_TEST={marker}")), 0);
}

#[test]
fn http_sessions_keep_the_state_of_their_caller() {
    let kit = TestServer::start("good session=each");
    let mut gateway = gateway(&json!({ "url": kit.url("http", "mcp") }));
    interleave(&gateway, 200);
    assert_eq!(connections(&gateway), 2);
    let requests = |method: &str| {
        let seen = kit.seen();
        seen.iter().filter(|seen| seen["message"]["method"] == method || seen["method"] == method).count()
    };
    assert_eq!(requests("initialize"), 2);
    gateway.signal("-TERM");
    assert_eq!(gateway.wait_for_exit(), Some(0));
    assert_eq!(requests("DELETE"), 2, "no session is left behind");
}

#[test]
fn event_streams_keep_the_state_of_their_caller() {
    let kit = TestServer::start("good session=each");
    let mut gateway = gateway(&json!({ "url": kit.url("http", "sse"), "transport": "sse" }));
    interleave(&gateway, 200);
    assert_eq!(connections(&gateway), 2);
    gateway.signal("-TERM");
    assert_eq!(gateway.wait_for_exit(), Some(0));
    kit.wait("the end of all connections", |kit| kit.count("closed") == kit.count("connected"));
}

#[test]
fn shared_servers_have_one_process() {
    let marker = marker("shared");
    let gateway = gateway(&stateful(&marker, &json!({ "isolation": "shared" })));
    call(&gateway, ANN, "remember", "one");
    assert!(call(&gateway, BOB, "recall", "").1.contains("one"));
    assert_eq!((connections(&gateway), server_processes(&marker)), (1, 1));
}

#[test]
fn sessions_of_one_caller_can_be_isolated() {
    let marker = marker("session");
    let gateway = gateway(&stateful(&marker, &json!({ "isolation": "session" })));
    let begin = || McpSession::begin(&gateway, ANN, "2025-11-25", &json!({}));
    let call = |session: &McpSession<'_>, tool: &str, message: &str| {
        notes(&text(&session.post(&call_message(1, tool, &json!({ "message": message }))).json())).1
    };
    let (first, second) = (begin(), begin());
    call(&first, "remember", "one");
    call(&second, "remember", "two");
    assert_eq!(call(&first, "recall", ""), BTreeSet::from(["one".to_owned()]));
    assert_eq!(call(&second, "recall", ""), BTreeSet::from(["two".to_owned()]));
    assert_eq!(server_processes(&marker), 2);
    assert_eq!(second.delete(), 204);
    gateway.wait("the end of its process", |gateway| connections(gateway) == 1);
    wait_until("the process is gone", || server_processes(&marker) == 1);
    assert_eq!(call(&first, "recall", ""), BTreeSet::from(["one".to_owned()]));
}

#[test]
fn idle_connections_are_closed() {
    let marker = marker("idle");
    let gateway = gateway(&stateful(&marker, &json!({ "idle_timeout": "1s" })));
    call(&gateway, ANN, "remember", "one");
    let before = call(&gateway, BOB, "remember", "two");
    gateway.wait("the end of an idle connection", |gateway| connections(gateway) == 1);
    wait_until("the process is gone", || server_processes(&marker) == 1);
    let after = call(&gateway, BOB, "recall", "");
    assert!(after.1.is_empty() && after.0 != before.0, "a new process: {after:?}");
    assert!(call(&gateway, ANN, "recall", "").1.contains("one"), "the first caller has the main connection");
}

/// Many sessions start a bounded number of processes, and other callers are served.
#[test]
fn connections_are_bounded() {
    let marker = marker("bounded");
    let server = stateful(&marker, &json!({ "isolation": "session", "max_connections": 2 }));
    let gateway = gateway(&server);
    let is_done = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !is_done.load(Ordering::Relaxed) {
                most = server_processes(&marker).max(most);
            }
            most
        });
        let callers: Vec<_> = (0..4)
            .map(|thread| {
                let gateway = &gateway;
                scope.spawn(move || {
                    let session = |number: usize| {
                        let context = json!({ "sessionId": format!("{thread}-{number}") });
                        let body = json!({ "arguments": { "message": "x" }, "context": context });
                        let key = if thread == 0 { BOB } else { ANN };
                        gateway.post("/v1/tools/remember/call", key, &body).json()
                    };
                    (0..6).map(session).collect::<Vec<_>>()
                })
            })
            .collect();
        let answers: Vec<_> = callers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_done.store(true, Ordering::Relaxed);
        for answer in answers.into_iter().flat_map(|answers| answers.expect("it is served")) {
            assert_eq!(notes(&text(&answer)).1.len(), 1, "a session of its own: {answer}");
        }
        watcher.join().expect("it counts")
    });
    assert!((2..=3).contains(&most), "{most} processes");
    assert!(connections(&gateway) <= 3);
}

/// A caller that is not served in time learns why.
#[test]
fn a_full_server_is_reported() {
    let marker = marker("full");
    let server = stateful(&marker, &json!({ "args": ["faulty"], "max_connections": 1, "timeout": "2s" }));
    let gateway = gateway(&server);
    assert_eq!(gateway.call("key-of-carl", "echo", &json!({})).status, 200, "it has the main connection");
    let file = gateway.program.path("go");
    std::thread::scope(|scope| {
        let waiting =
            scope.spawn(|| gateway.call(ANN, "echo", &json!({ "fault": "until", "message": file })));
        gateway.wait("the first call", |gateway| connections(gateway) == 2);
        let refused = gateway.call(BOB, "echo", &json!({}));
        assert_eq!(refused.status_and_code(), (429, "overloaded".to_owned()), "{refused:?}");
        let error = &refused.json()["error"];
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|text| text.contains("all of its 1 connections are in use"))
        );
        assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("max_connections")), "{error}");
        fs_err::write(&file, "").expect("it can be written");
        assert_eq!(waiting.join().expect("it is answered").status, 200);
    });
    assert_eq!(gateway.call(BOB, "echo", &json!({})).status, 200, "the idle connection makes room");
    assert!(server_processes(&marker) <= 2);
}

/// A connection that fails does not affect those of other callers.
#[test]
fn a_crash_affects_its_caller_alone() {
    let marker = marker("crash");
    let gateway = gateway(&stateful(&marker, &json!({ "args": ["faulty"] })));
    let echo = |key: &str| gateway.call(key, "echo", &json!({ "message": "hello" }));
    assert_eq!((echo(ANN).status, echo(BOB).status), (200, 200));
    let before: BTreeSet<_> = processes_with(&format!("ISOLATION_TEST={marker}")).into_iter().collect();
    let file = gateway.program.path("go");
    std::thread::scope(|scope| {
        let bob = scope.spawn(|| gateway.call(BOB, "echo", &json!({ "fault": "until", "message": file })));
        for _ in 0..3 {
            let ended = gateway.call(ANN, "echo", &json!({ "fault": "exit", "message": "boom" }));
            assert_eq!(ended.code(), "provider_failure", "{ended:?}");
            assert_eq!(echo(BOB).status, 200, "the other caller has its own process");
        }
        fs_err::write(&file, "").expect("it can be written");
        assert_eq!(bob.join().expect("it is answered").status, 200);
    });
    assert_eq!(echo(ANN).status, 200);
    let after: BTreeSet<_> = processes_with(&format!("ISOLATION_TEST={marker}")).into_iter().collect();
    assert!(after.intersection(&before).count() > 0, "the process of the other caller goes on");
}

/// A server of both eras is spoken to in the older one for a client that can only be asked there.
#[test]
fn the_revision_fits_the_client() {
    let server = |more: Json| {
        let mut server = json!({ "command": testkit(), "args": ["stateful", "dual"] });
        server.as_object_mut().expect("keys").extend(more.as_object().expect("keys").clone());
        gateway(&server)
    };
    let ask = |gateway: &Gateway, capabilities: &Json| {
        let session = McpSession::begin(gateway, ANN, "2025-11-25", capabilities);
        let call = call_message(1, "ask", &json!({ "message": "How large?" }));
        if capabilities == &json!({}) {
            return text(&session.post(&call).json());
        }
        let mut stream = session.stream(&call);
        let question = stream.message();
        assert_eq!(question["method"], "elicitation/create", "{question}");
        let result = json!({ "action": "accept", "content": { "size": 7 } });
        assert_eq!(
            session.post(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result })).status,
            202
        );
        text(&stream.message())
    };
    let revision = |gateway: &Gateway| gateway.get("/v1/servers/s", OWNER).json()["protocolVersion"].clone();
    let automatic = server(json!({}));
    assert_eq!(revision(&automatic), "2026-07-28");
    assert!(ask(&automatic, &json!({ "elicitation": {} })).contains(r#""size":7"#));
    assert_eq!(ask(&automatic, &json!({})), "clients can only be asked in a session");
    let fixed = server(json!({ "protocol": "2025-06-18" }));
    assert_eq!(revision(&fixed), "2025-06-18");
    assert!(ask(&fixed, &json!({ "elicitation": {} })).contains(r#""size":7"#));
    assert_eq!(connections(&fixed), 1);
}

/// Calls a tool, and answers requests for roots with this one. Returns the answer, and the number of requests.
fn call_with_root(session: &McpSession<'_>, root: &str) -> (String, usize) {
    let mut stream = session.stream(&call_message(1, "echo", &json!({})));
    let mut requests = 0;
    loop {
        let message = stream.message();
        if message["method"] != "roots/list" {
            return (text(&message), requests);
        }
        requests += 1;
        let result = json!({ "roots": [{ "uri": root }] });
        assert_eq!(
            session.post(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })).status,
            202
        );
    }
}

/// A server gets the roots of the client behind a request, and learns of their changes.
#[test]
fn roots_belong_to_the_client() {
    let gateway = gateway(&json!({ "command": testkit(), "args": ["rooted"] }));
    let roots = json!({ "roots": { "listChanged": true } });
    let ann = McpSession::begin(&gateway, ANN, "2025-11-25", &roots);
    let bob = McpSession::begin(&gateway, BOB, "2025-11-25", &roots);
    for (session, root) in [(&ann, "file:///ann"), (&bob, "file:///bob")] {
        let (known, requests) = call_with_root(session, root);
        assert!(known.contains(root) && requests > 0, "{known}");
    }
    let again = |session: &McpSession<'_>| text(&session.post(&call_message(2, "echo", &json!({}))).json());
    assert!(
        again(&ann).contains("file:///ann") && again(&bob).contains("file:///bob"),
        "not requested again"
    );
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" });
    assert_eq!(ann.post(&changed).status, 202);
    let (known, requests) = call_with_root(&ann, "file:///moved");
    assert!(known.contains("file:///moved") && requests == 1, "{known}");
    assert!(again(&bob).contains("file:///bob"));
    let other = McpSession::begin(&gateway, ANN, "2025-11-25", &roots);
    let (known, _) = call_with_root(&other, "file:///other");
    assert!(known.contains("file:///other") && !known.contains("moved"), "{known}");
}

/// The log level of a client reaches the connection of its caller, and no other.
#[test]
fn log_levels_belong_to_the_client() {
    let gateway = gateway(&stateful(&marker("levels"), &json!({})));
    let begin = |key| McpSession::begin(&gateway, key, "2025-11-25", &json!({}));
    let recall = |session: &McpSession<'_>| {
        notes(&text(&session.post(&call_message(1, "recall", &json!({ "message": "" }))).json())).1
    };
    let set = |session: &McpSession<'_>, level: &str| {
        let params = json!({ "level": level });
        let message = json!({ "jsonrpc": "2.0", "id": 2, "method": "logging/setLevel", "params": params });
        assert_eq!(session.post(&message).json()["result"], json!({}));
    };
    let (ann, bob) = (begin(ANN), begin(BOB));
    assert!(recall(&ann).is_empty() && recall(&bob).is_empty(), "no client has set a level");
    set(&ann, "debug");
    set(&bob, "error");
    for (session, level) in [(&ann, "level-debug"), (&bob, "level-error")] {
        assert_eq!(recall(session), BTreeSet::from([level.to_owned()]));
    }
}

/// The environment of a process can name its caller, for a server that stores its state in a file.
#[test]
fn the_environment_names_the_caller() {
    let server =
        json!({ "command": testkit(), "args": ["good"], "env": { "NOTES": "/notes/{caller}.json" } });
    let gateway = gateway(&server);
    for (key, id) in [(ANN, "ann"), (BOB, "bob")] {
        let environment = text(&gateway.call(key, "environment", &json!({})).json());
        assert!(environment.contains(&format!("NOTES=/notes/{id}.json")), "{environment}");
    }
    assert_eq!(connections(&gateway), 3, "the lists are read by a process of no caller");
    let mut shared = server;
    shared["isolation"] = json!("shared");
    let program = crate::support::test_server::project(json!({ "s": shared }));
    let run = program.run("check");
    assert!(
        run.stderr.contains("`{caller}` in `env` does not go with `isolation: shared`"),
        "{}",
        run.stderr
    );
}
