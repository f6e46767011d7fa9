//! Edits of the configuration while the gateway runs: taken over as a whole, or rejected as a whole.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, project, wait_until};
use crate::support::mcp_client::{McpSession, call_message};
use crate::support::program::Program;

/// Concurrent clients of the test of policy edits.
const CLIENTS: usize = 64;

/// Rules that permit the calls of `ann`, each under two names.
fn rules(version: &str) -> String {
    format!(
        "@id(\"{version}-1\") permit(principal == Caller::\"ann\", action, resource == Tool::\"echo\");\n\
         @id(\"{version}-2\") permit(principal, action, resource) when {{ principal.id == \"ann\" }};\n"
    )
}

/// Edits the project file.
fn edit(program: &Program, change: impl FnOnce(&mut Json)) {
    let mut config: Json = serde_json::from_str(&program.read("toolgate.yaml")).expect("JSON");
    change(&mut config);
    program.write("toolgate.yaml", config.to_string());
}

fn open_stream(gateway: &Gateway, key: &str) -> BufReader<TcpStream> {
    let head = format!("GET /sse HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n");
    let mut stream = BufReader::new(gateway.connect());
    stream.get_mut().write_all(head.as_bytes()).expect("it is sent");
    let mut line = String::new();
    stream.read_line(&mut line).expect("an answer");
    assert!(line.contains(" 200 "), "{line}");
    stream
}

/// Reads to the end of the stream, which must come before the read timeout.
fn ends(mut stream: BufReader<TcpStream>) -> bool {
    stream.read_to_end(&mut Vec::new()).is_ok()
}

/// With many clients calling, each call is decided by all of the old rules or by all of the new ones.
#[test]
#[expect(clippy::disallowed_methods, reason = "the time until an edit counts is reported")]
fn a_policy_edit_counts_at_once_and_never_by_half() {
    let caller = |id: &str| json!({ "id": id, "api_key": format!("key-of-{id}") });
    let program = project(&json!({ "callers": [caller("ann"), caller("bob")] }));
    program.write("policy.cedar", rules("old"));
    let gateway = Gateway::serve(program);
    let (stop, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let response = gateway.call("key-of-ann", "echo", &json!({ "message": "x" }));
                    assert_eq!(response.status, 200, "{response:?}");
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        wait_until("calls of every client", || calls.load(Ordering::Relaxed) > 2 * CLIENTS);
        assert_eq!(gateway.call("key-of-bob", "echo", &json!({})).status, 404);
        let permit_bob = "permit(principal == Caller::\"bob\", action, resource);\n";
        gateway.program.write("policy.cedar", rules("new") + permit_bob);
        let edited = Instant::now();
        wait_until("the new rules", || gateway.call("key-of-bob", "echo", &json!({})).status == 200);
        eprintln!("the edit counted after at most {:?}, with {CLIENTS} clients", edited.elapsed());
        let until_now = calls.load(Ordering::Relaxed);
        wait_until("calls under the new rules", || calls.load(Ordering::Relaxed) > until_now + CLIENTS);
        stop.store(true, Ordering::Relaxed);
    });
    let shown = gateway.program.run("log --json --caller ann --limit 1000000").stdout;
    let (mut old, mut new) = (0, 0);
    for line in shown.lines() {
        let call: Json = serde_json::from_str(line).expect("JSON");
        let mut rules: Vec<_> = call["begin"]["rules"].as_array().expect("rules").clone();
        rules.sort_by_key(ToString::to_string);
        match Json::from(rules) {
            rules if rules == json!(["old-1", "old-2"]) => old += 1,
            rules if rules == json!(["new-1", "new-2"]) => new += 1,
            rules => panic!("decided by half: {rules}"),
        }
    }
    assert!(old > 2 * CLIENTS && new > CLIENTS, "{old} calls before, {new} after");
    // The same edit is recorded, between the calls.
    assert_eq!(gateway.program.run("log verify").code, 0);
}

/// An edit of callers and policy together: calls that were decided by the callers of one configuration and the policy of
/// the other would be refused.
#[test]
fn an_edit_of_callers_and_policy_is_one_swap() {
    /// Each edit changes the group and the policy that allows this group alone.
    const EDITS: usize = 12;
    let only = |group: &str, other: &str| {
        format!(
            "@id(\"{group}\") permit(principal in Group::\"{group}\", action, resource);\n\
             @id(\"not-{other}\") forbid(principal in Group::\"{other}\", action, resource);\n"
        )
    };
    let settings = |round: usize| {
        let group = ["one", "two"][round % 2];
        json!({ "callers": [{ "id": "ann", "groups": [group], "api_key": "key-of-ann" }],
                "groups": { "one": {}, "two": {} }, "policy": format!("{group}.cedar") })
    };
    let program = project(&settings(0));
    program.write("one.cedar", only("one", "two"));
    program.write("two.cedar", only("two", "one"));
    let gateway = Gateway::serve(program);
    let (stop, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (gateway, stop, calls) = (&gateway, &stop, &calls);
            scope.spawn(move || {
                let session = McpSession::begin(gateway, "key-of-ann", "2025-11-25", &json!({}));
                while !stop.load(Ordering::Relaxed) {
                    let message = json!({ "message": "x" });
                    let response = if client % 2 == 0 {
                        gateway.call("key-of-ann", "echo", &message)
                    } else {
                        session.post(&call_message(2, "echo", &message))
                    };
                    let is_allowed = response.status == 200 && response.body.contains(r#""text":"x""#);
                    assert!(is_allowed, "{} {}", response.status, response.body);
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 1..=EDITS {
            let before = calls.load(Ordering::Relaxed);
            wait_until("calls of every client", || calls.load(Ordering::Relaxed) > before + CLIENTS);
            edit(&gateway.program, |config| {
                let members = config.as_object_mut().expect("a map");
                members.extend(settings(round).as_object().expect("a map").clone());
            });
            let why = json!({ "tool": "echo", "caller": "ann" });
            let rules = Json::from(vec![["one", "two"][round % 2]]);
            gateway.wait("the edit", |gateway| {
                gateway.post("/v1/policy/why", OWNER, &why).json()["rules"] == rules
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Callers, groups, limits and hosts are taken over; a removed caller loses its access and its streams.
#[test]
fn callers_and_limits_change_while_running() {
    let caller = |id: &str, permission: &str| json!({ "id": id, "permissions": [permission], "api_key": format!("key-of-{id}") });
    let gateway = Gateway::start(&json!({ "callers": [caller("ann", "s:echo"), caller("bob", "s:*")] }));
    let call = |key: &str, tool: &str| gateway.call(key, tool, &json!({ "message": "x" })).status;
    assert_eq!((call("key-of-ann", "echo"), call("key-of-ann", "fail")), (200, 403));
    let (of_ann, of_bob) = (open_stream(&gateway, "key-of-ann"), open_stream(&gateway, "key-of-bob"));
    edit(&gateway.program, |config| {
        config["groups"] = json!({ "ops": { "permissions": ["s:fail"] } });
        config["callers"] = json!([caller("ann", "s:echo"), caller("eve", "s:echo")]);
        config["callers"][0]["groups"] = json!(["ops"]);
        config["serve"] =
            json!({ "hosts": ["tools.example.com"], "rate_limit": { "per_caller": 5, "window": "1h" } });
    });
    gateway.wait("the permission of the group", |_| call("key-of-ann", "fail") == 200);
    assert_eq!((call("key-of-eve", "echo"), call("key-of-bob", "echo")), (200, 401), "a removed caller");
    assert!(ends(of_bob) && ends(of_ann), "streams end with the rights that they were opened with");
    let key = format!("X-API-Key: {OWNER}");
    let named = gateway.request("GET /v1/tools", &[&key, "Host: tools.example.com"], "");
    assert_eq!(named.status, 200, "the host name is new");
    gateway.wait("the rate limit", |_| call("key-of-eve", "echo") == 429);
}

/// An invalid edit changes nothing, and says so in the log, on stderr and to `check --running`.
#[test]
fn an_invalid_edit_is_rejected_as_a_whole() {
    let callers = json!([{ "id": "ann", "permissions": ["s:*"], "api_key": "key-of-ann" }]);
    let gateway = Gateway::start(&json!({ "callers": callers }));
    let call = |key: &str| gateway.call(key, "echo", &json!({ "message": "x" })).status;
    let running = || gateway.program.run("check --running");
    assert_eq!((call("key-of-ann"), running().code), (200, 0));
    // The caller is removed and the policy is wrong: neither counts.
    let before = gateway.program.read("toolgate.yaml");
    gateway
        .program
        .write("policy.cedar", "permit(principal, action, resource) when { principal.colour == 1 };");
    edit(&gateway.program, |config| config["callers"] = json!([]));
    let reported = |words: [&str; 2]| {
        let stderr = gateway.program.read("~/stderr");
        stderr.lines().any(|line| words.iter().all(|word| line.contains(word)))
    };
    gateway.wait("the reason", |_| reported(["not reloaded", "colour"]));
    let refused = running();
    assert_eq!(refused.code, 78, "{refused}");
    assert!(refused.stdout.contains("colour") && refused.stdout.contains("policy.cedar:1"), "{refused}");
    assert_eq!(call("key-of-ann"), 200, "the old configuration is in use");
    let log = gateway.program.run("log export").stdout;
    assert!(log.contains(r#""kind":"reload_rejected""#), "{log}");
    // A section that needs a restart is named, and the rest of the edit counts.
    gateway.program.write("policy.cedar", r#"forbid(principal == Caller::"eve", action, resource);"#);
    gateway.program.write("toolgate.yaml", before);
    edit(&gateway.program, |config| {
        config["serve"] = json!({ "listen": "127.0.0.1:1" });
        config["callers"][0]["api_key"] = json!("new-key-of-ann");
    });
    gateway.wait("the section", |_| reported(["restart", "`serve.listen`"]));
    assert_eq!((call("new-key-of-ann"), call("key-of-ann")), (200, 401));
    let state = gateway.program.run("check --running --json");
    assert_eq!((state.code, &state.json()["needsRestart"]), (0, &json!(["serve.listen"])), "{state}");
    assert_eq!(state.json()["rejected"], json!([]));
}

/// A plan shows the effect of an edit, and changes nothing.
#[test]
fn a_plan_shows_gained_and_lost_tools() {
    let config = json!({ "groups": { "ops": {} }, "callers": [
        { "id": "ann", "permissions": ["s:echo"] }, { "id": "bob", "permissions": ["s:*"] }] });
    let program = project(&config);
    assert_eq!(program.run("tools call echo message=x --as ann").code, 0);
    program.write("new.yaml", program.read("toolgate.yaml").replace("\"s:echo\"", "\"s:fail\""));
    program.write(
        "new.cedar",
        r#"@id("no-bob") forbid(principal == Caller::"bob", action, resource == Tool::"echo");
           permit(principal in Group::"ops", action, resource == Tool::"echo");"#,
    );
    let planned = program.run("plan new.yaml new.cedar");
    assert_eq!(planned.code, 1, "{planned}");
    for line in [
        "ann gains (deny → allow): fail",
        "ann loses (allow → deny): echo",
        "bob loses (allow → deny): echo",
        "members of ops gains (deny → allow): echo",
        "allow → deny  ann  echo  1 call",
    ] {
        assert!(planned.stdout.contains(line), "{line}: {planned}");
    }
    let shown = program.run("plan new.cedar --json").json();
    let of_bob = json!({ "caller": "bob", "tool": "echo", "from": "allow", "to": "deny" });
    assert!(shown["access"].as_array().expect("a list").contains(&of_bob), "{shown}");
    program.write("same.yaml", program.read("toolgate.yaml"));
    let unchanged = program.run("plan same.yaml");
    assert_eq!(unchanged.code, 0, "{unchanged}");
    program.write("bad.cedar", "permit(principal, action);");
    assert_eq!(program.run("plan bad.cedar").code, 78);
    assert!(!program.path("policy.cedar").exists(), "nothing was changed");
}
