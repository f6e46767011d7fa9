//! The part of the REST API that a console needs: policy, definitions that wait, tests and imports of servers.

use std::thread;

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, HttpResponse, OWNER, wait_until};
use crate::support::program::Program;
use crate::support::test_server::{entry, processes_left, testkit};

const RULES: &str =
    "@id(\"free\") permit(principal == Caller::\"ann\", action == Action::\"call\", resource);\n";

/// Creates a project with one server, `s`, whose tools are in the file `tools`.
fn project() -> Program {
    let callers = json!([
        { "id": "owner", "permissions": ["*:*", "servers:exec", "policy:write"], "groups": ["ops"] },
        { "id": "star", "permissions": ["*:*"], "api_key": "key-of-star" },
        { "id": "reader", "permissions": ["servers:read", "policy:read"], "api_key": "key-of-reader" },
        { "id": "ann", "permissions": [], "api_key": "key-of-ann" },
    ]);
    let config = json!({ "registries": { "tools": "tools.json", "mcp": "mcp.json" }, "callers": callers,
        "groups": { "ops": { "permissions": ["s:*"] } } });
    let program = Program::new(&[
        ("toolgate.yaml", &config.to_string()),
        ("tools.json", "{\"tools\": []}\n"),
        ("policy.cedar", RULES),
    ])
    .with("TOOLGATE_LOG", "off")
    .with("TOOLGATE_API_KEY", OWNER);
    offer(&program, &json!({ "type": "object" }));
    let args = ["scripted", &program.path("tools").display().to_string()];
    let server = json!({ "command": testkit(), "args": args, "timeout": "10s",
        "env": { "API_KEY": "a-very-secret-value", "LEVEL": "debug" } });
    program.write("mcp.json", json!({ "servers": { "s": server } }).to_string());
    program
}

fn offer(program: &Program, schema: &Json) {
    let sum = json!({ "name": "sum", "description": "Adds two numbers.", "inputSchema": schema });
    program.write("tools.new", json!({ "tools": [sum], "notify": 1 }).to_string());
    fs_err::rename(program.path("tools.new"), program.path("tools")).expect("it was just written");
}

fn send(gateway: &Gateway, first: &str, tag: Option<&str>, body: &Json) -> HttpResponse {
    let (key, tag) = (format!("X-API-Key: {OWNER}"), tag.map(|tag| format!("If-Match: {tag}")));
    let mut headers = vec![key.as_str(), "Content-Type: application/json"];
    headers.extend(tag.as_deref());
    gateway.request(first, &headers, &body.to_string())
}

#[test]
fn the_policy_is_checked_replayed_and_replaced() {
    let gateway = Gateway::serve(project());
    assert_eq!(gateway.call("key-of-ann", "sum", &json!({})).status, 200);
    let shown = gateway.get("/v1/policy", "key-of-reader");
    let (document, tag) = (shown.json(), shown.header("etag").expect("a hash").to_owned());
    assert_eq!((&document["text"], &document["inUse"]), (&json!(RULES), &json!(true)));
    assert_eq!(tag, format!("{}", document["hash"]));

    let wrong = json!({ "text": "permit(principal, action, resource);\npermit(principal, action, resource) when { principal.x };\n" });
    let checked = gateway.post("/v1/policy/check", "key-of-reader", &wrong).json();
    assert_eq!((&checked["ok"], &checked["problems"][0]["line"]), (&json!(false), &json!(2)), "{checked}");
    assert!(checked["problems"][0]["column"].as_u64().is_some_and(|column| column > 1), "{checked}");
    let refused = send(&gateway, "PUT /v1/policy", Some(&tag), &wrong);
    assert_eq!(
        (refused.status, &refused.json()["error"]["problems"][0]["line"]),
        (422, &json!(2)),
        "{refused:?}"
    );
    assert_eq!(gateway.program.read("policy.cedar"), RULES);

    let forbid = json!({ "text": "@id(\"no\") forbid(principal == Caller::\"ann\", action, resource);\n" });
    assert_eq!(gateway.post("/v1/policy/replay", "key-of-reader", &forbid).status, 403, "it reads records");
    let replayed = send(&gateway, "POST /v1/policy/replay", None, &forbid).json();
    let flip = &replayed["calls"]["flips"][0];
    assert_eq!(
        (&flip["caller"], &flip["from"], &flip["to"]),
        (&json!("ann"), &json!("allow"), &json!("deny"))
    );
    assert_eq!((&replayed["complete"], &replayed["access"][0]["caller"]), (&json!(true), &json!("ann")));

    assert_eq!(
        gateway.request("PUT /v1/policy", &["X-API-Key: key-of-star"], &forbid.to_string()).status,
        403
    );
    assert_eq!(send(&gateway, "PUT /v1/policy", Some("\"sha256:0\""), &forbid).status, 412);
    let replaced = send(&gateway, "PUT /v1/policy", Some(&tag), &forbid);
    assert_eq!((replaced.status, &replaced.json()["inUse"]), (200, &json!(true)), "{replaced:?}");
    assert_ne!(gateway.call("key-of-ann", "sum", &json!({})).status, 200, "it is in use");
    let versions = gateway.get("/v1/policy/versions", OWNER).json();
    assert_eq!(
        (&versions["versions"][0]["hash"], &versions["versions"][0]["by"]),
        (&document["hash"], &json!("owner"))
    );
    let hash = document["hash"].as_str().expect("a hash");
    assert_eq!(gateway.get(&format!("/v1/policy/versions/{hash}"), OWNER).json()["text"], RULES);
    assert_eq!(send(&gateway, "PUT /v1/policy", None, &json!({ "text": "// nothing\n" })).status, 422);
}

#[test]
fn the_matrix_has_callers_groups_and_tools() {
    let gateway = Gateway::serve(project());
    let matrix = gateway.get("/v1/policy/matrix?server=s", "key-of-reader").json();
    assert_eq!(matrix["tools"], json!(["sum"]));
    let rows = matrix["rows"].as_array().expect("rows");
    let decided: Vec<_> = rows
        .iter()
        .map(|row| format!("{} {}", row["caller"], row["decisions"][0]).replace('"', ""))
        .collect();
    assert_eq!(decided, ["ann allow", "owner allow", "reader deny", "star allow", "ops allow"]);
    let page = gateway.get("/v1/policy/matrix?limit=2&cursor=2&caller=&tools=1", "key-of-reader");
    assert_eq!(page.json()["rows"], json!([]), "no caller has an empty id");
    let page = gateway.get("/v1/policy/matrix?limit=2&cursor=2", "key-of-reader").json();
    assert_eq!((&page["rows"][0]["caller"], &page["next"]), (&json!("reader"), &json!("4")));
}

#[test]
fn a_waiting_definition_is_shown_with_misfits_and_rejected() {
    let gateway = Gateway::serve(project());
    for arguments in [json!({ "id": 1 }), json!({ "name": "x" })] {
        assert_eq!(gateway.call(OWNER, "sum", &arguments).status, 200);
    }
    let change = |required: &str| {
        offer(&gateway.program, &json!({ "type": "object", "required": [required] }));
        let reconnected = send(&gateway, "POST /v1/servers/s/reconnect", None, &json!({}));
        assert_eq!(reconnected.status, 200, "{reconnected:?}");
    };
    let waiting = |key: &str| gateway.get("/v1/servers/s/waiting", key).json();
    change("id");
    wait_until("the change waits", || waiting(OWNER)["waiting"].as_array().is_some_and(|all| all.len() == 1));
    let document = waiting(OWNER);
    let one = &document["waiting"][0];
    assert_eq!(
        (&one["name"], &one["class"], &one["cause"]),
        (&json!("sum"), &json!("breaking"), &json!("changed"))
    );
    assert_eq!(
        (&one["is"]["inputSchema"]["required"], &one["was"]["inputSchema"]["required"]),
        (&json!(["id"]), &Json::Null)
    );
    assert_eq!(one["misfits"]["count"], 1, "{one}");
    assert_eq!(one["misfits"]["callers"], json!([{ "caller": "owner", "count": 1 }]));
    assert!(waiting("key-of-reader")["waiting"][0]["misfits"].is_null(), "records need a permission");

    let reject = |hash: &Json| {
        let body = json!({ "tools": [{ "name": "sum", "hash": hash }] });
        send(&gateway, "POST /v1/servers/s/reject", None, &body).status
    };
    assert_eq!((reject(&json!("other")), reject(&one["hash"])), (412, 200));
    let after = waiting(OWNER);
    assert_eq!((&after["waiting"], &after["rejected"][0]["rejected"]["by"]), (&json!([]), &json!("owner")));
    let run = gateway.program.run("servers approve s --yes");
    assert!(run.stdout.contains("no tool of s waits for approval"), "{run}");
    change("other");
    wait_until("another change waits", || {
        waiting(OWNER)["waiting"].as_array().is_some_and(|all| all.len() == 1)
    });
    let run = gateway.program.run("servers reject s sum --yes");
    assert_eq!((run.code, run.stdout.as_str()), (0, "rejected s: 1 definitions\n"), "{run}");
    let run = gateway.program.run("servers approve s sum --yes");
    assert_eq!(run.code, 0, "{run}");
    wait_until("it can be called", || gateway.call(OWNER, "sum", &json!({ "other": 1 })).status == 200);
}

#[test]
fn servers_are_shown_and_sent_back_without_their_secrets() {
    let gateway = Gateway::serve(project());
    let server = gateway.get("/v1/servers/s", OWNER).json();
    assert_eq!(
        (&server["state"], &server["restarts"], &server["lastErrors"]),
        (&json!("ready"), &json!(0), &json!([]))
    );
    assert_eq!(server["source"], json!({ "kind": "registry", "file": "mcp.json", "editable": true }));
    let entry = &server["entry"];
    assert_eq!(entry["env"], json!({ "API_KEY": "***", "LEVEL": "debug" }));
    assert!(gateway.get("/v1/servers/s", "key-of-reader").json()["entry"].is_null());
    let mut edited = entry.clone();
    edited["env"]["LEVEL"] = json!("info");
    let put = send(&gateway, "PUT /v1/servers/s", None, &edited);
    assert_eq!(put.status, 200, "{put:?}");
    let written: Json = serde_json::from_str(&gateway.program.read("mcp.json")).expect("JSON");
    assert_eq!(written["servers"]["s"]["env"], json!({ "API_KEY": "a-very-secret-value", "LEVEL": "info" }));
    // A secret does not go to a URL of the choice of a caller that cannot read it.
    let sent = json!({ "url": "https://example.com/mcp", "env": { "API_KEY": "***" } });
    let refused = send(&gateway, "PUT /v1/servers/s", None, &sent);
    assert!(refused.status == 422 && refused.body.contains("leads to another host"), "{refused:?}");
    let mut tested = sent.clone();
    tested["name"] = json!("s");
    let refused = send(&gateway, "POST /v1/servers/test", None, &tested);
    assert!(refused.status == 422 && refused.body.contains("leads to another host"), "{refused:?}");
    let moved = json!({ "env": { "OTHER": "***" } });
    let refused = send(&gateway, "PATCH /v1/servers/s", None, &moved);
    assert_eq!((refused.status, refused.code()), (422, "invalid".to_owned()), "{refused:?}");
}

#[test]
fn a_server_is_tested_without_being_registered() {
    let gateway = Gateway::serve(project());
    let named = |name: &str, mut entry: Json| {
        entry["name"] = json!(name);
        entry["env"] = json!({ "TEST_MARKER": "of-a-tested-server" });
        entry
    };
    let test = |key: &str, body: &Json| gateway.post("/v1/servers/test", key, body);
    assert_eq!(test("key-of-star", &named("kit", entry("good"))).status, 403, "it runs a program");
    let good = test(OWNER, &named("kit", entry("good"))).json();
    assert_eq!((&good["connected"], &good["reason"]), (&json!(true), &Json::Null), "{good}");
    assert!(good["counts"]["tools"].as_u64().is_some_and(|tools| tools > 0), "{good}");
    assert_eq!(good["tools"][0]["state"], "ready");
    let poisoned = test(OWNER, &named("bad", entry("poisoned"))).json();
    assert!(poisoned["counts"]["heldBack"].as_u64().is_some_and(|held| held > 0), "{poisoned}");
    let broken = test(OWNER, &named("broken", entry("broken"))).json();
    assert_eq!(broken["connected"], false);
    assert!(broken["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{broken}");
    let inside = json!({ "name": "inside", "url": "http://127.0.0.1:1/mcp" });
    assert_eq!(test(OWNER, &inside).code(), "ssrf_blocked");
    assert_eq!(test(OWNER, &json!({ "name": "x", "command": "x", "timeout": "soon" })).status, 422);
    wait_until("nothing is left of them", || processes_left("TEST_MARKER=of-a-tested-server") == 0);
    let servers = gateway.get("/v1/servers", OWNER).json();
    assert_eq!(servers["servers"].as_array().map(Vec::len), Some(1), "{servers}");
    assert!(!gateway.program.read("toolgate.lock").contains("\"kit\""), "nothing was pinned");
}

/// Callers that no file of the project has are part of a replay, and a change of the rules is all that changes their access.
#[test]
fn a_replay_knows_callers_that_were_created_meanwhile() {
    let gateway = Gateway::serve(project());
    let created =
        gateway.post("/v1/callers", OWNER, &json!({ "id": "carl", "permissions": ["tools:*", "s:*"] }));
    let key = created.json()["key"].as_str().expect("a key").to_owned();
    assert_eq!(gateway.call(&key, "sum", &json!({})).status, 200);
    let replay = |text: &str| gateway.post("/v1/policy/replay", OWNER, &json!({ "text": text })).json();
    let same = replay(RULES);
    assert_eq!((&same["calls"]["gone"], &same["calls"]["replayed"]), (&json!(0), &json!(1)), "{same}");
    assert_eq!((&same["access"], &same["calls"]["flips"]), (&json!([]), &json!([])), "{same}");
    let other = replay("forbid(principal == Caller::\"carl\", action, resource);\n");
    assert_eq!(other["calls"]["flips"][0]["caller"], "carl", "{other}");
    let removed = gateway.request("DELETE /v1/callers/carl", &[&format!("X-API-Key: {OWNER}")], "");
    assert_eq!(removed.status, 204, "{removed:?}");
    let after = replay(RULES);
    assert_eq!((&after["access"], &after["calls"]["gone"]), (&json!([]), &json!(1)), "{after}");
}

#[test]
fn pasted_servers_are_shown_and_registered() {
    let gateway = Gateway::serve(project());
    let pasted = json!({ "mcpServers": {
        "kit": { "command": testkit(), "args": ["good"], "env": { "LEVEL": "debug" }, "icon": "x" },
        "keyed": { "command": testkit(), "args": ["good"], "env": { "TOKEN": "pasted-secret-value" } },
        "s": { "command": "other" },
        "inside": { "url": "http://127.0.0.1:1/mcp" },
    } });
    let import = |key: &str, add: bool| {
        let body = json!({ "text": pasted.to_string(), "add": add });
        gateway.post("/v1/servers/import", key, &body).json()
    };
    let outcomes = |document: &Json| -> Vec<String> {
        let servers = document["servers"].as_array().expect("a list");
        let line = |one: &Json| {
            format!("{} {} {}", one["name"], one["outcome"], one["error"]["code"]).replace('"', "")
        };
        servers.iter().map(line).collect()
    };
    let planned = import(OWNER, false);
    assert_eq!(
        outcomes(&planned),
        ["kit planned null", "keyed failed invalid", "s skipped null", "inside failed ssrf_blocked"],
        "{planned}"
    );
    assert!(!planned.to_string().contains("pasted-secret-value"), "{planned}");
    assert!(planned["notes"][0]["message"].as_str().is_some_and(|note| note.contains("`icon`")), "{planned}");
    assert!(!gateway.program.read("mcp.json").contains("\"kit\""), "nothing was written");
    assert_eq!(outcomes(&import("key-of-star", true))[0], "kit failed unauthorized");
    let added = import(OWNER, true);
    assert_eq!(outcomes(&added)[..2], ["kit added null", "keyed failed invalid"]);
    let refused = &added["servers"][1]["error"];
    assert_eq!(
        refused["message"],
        "`env.TOKEN` is a secret: it would be in the file of the registry in plain text"
    );
    assert!(refused["hint"].as_str().is_some_and(|hint| hint.contains("toolgate credentials set keyed")));
    assert!(!gateway.program.read("mcp.json").contains("pasted-secret-value"));
    wait_until("it is ready", || gateway.get("/v1/servers/kit", OWNER).json()["state"] == "ready");
    let yaml = json!({ "text": "mcpServers:\n  web:\n    url: https://8.8.8.8/mcp\n" });
    assert_eq!(outcomes(&gateway.post("/v1/servers/import", OWNER, &yaml).json()), ["web planned null"]);
    let broken = json!({ "text": "{\"mcpServers\": {\n  \"a\": }" });
    let broken = gateway.post("/v1/servers/import", OWNER, &broken).json();
    assert_eq!((&broken["servers"], &broken["notes"][0]["line"]), (&json!([]), &json!(2)), "{broken}");
}

#[test]
fn an_approval_shows_the_call_and_its_end() {
    let program = project();
    let rule = "@id(\"sure\") @ask(\"Really?\") forbid(principal, action == Action::\"call\", resource);\n";
    program.write("policy.cedar", format!("{RULES}{rule}"));
    let config: Json = serde_json::from_str(&program.read("toolgate.yaml")).expect("JSON");
    let mut config = config;
    config["human_input"] = json!({});
    program.write("toolgate.yaml", config.to_string());
    let gateway = Gateway::serve(program);
    let open = || gateway.get("/v1/approvals", OWNER).json()["approvals"].clone();
    let called = thread::scope(|scope| {
        let call = scope.spawn(|| gateway.call("key-of-ann", "sum", &json!({ "id": 7 })));
        wait_until("a call waits", || open().as_array().is_some_and(|all| all.len() == 1));
        let question = open()[0].clone();
        assert_eq!((&question["rules"], &question["server"]), (&json!(["sure"]), &json!("s")), "{question}");
        assert!(question["policy"].as_str().is_some_and(|it| it.starts_with("sha256:")), "{question}");
        assert_eq!(question["tainted"], false);
        let path = format!("/v1/approvals/{}", question["id"].as_str().expect("an id"));
        let whole = gateway.get(&path, OWNER).json();
        assert_eq!(whole["call"]["arguments"], json!({ "id": 7 }));
        let correlation = whole["call"]["correlation"].clone();
        assert_eq!(gateway.post(&path, OWNER, &json!({ "approve": true })).status, 200);
        let ended = gateway.get(&path, OWNER).json();
        assert_eq!((&ended["state"], &ended["by"]), (&json!("accepted"), &json!("owner")));
        (call.join().expect("an answer"), correlation)
    });
    assert_eq!(called.0.status, 200);
    assert_eq!(called.0.header("x-correlation-id"), called.1.as_str(), "it leads to the record");
    assert_eq!(open(), json!([]));
    let ended = gateway.get("/v1/approvals?state=ended", OWNER).json();
    assert_eq!(ended["approvals"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_created_caller_is_changed() {
    let gateway = Gateway::serve(project());
    let made = gateway.post("/v1/callers", OWNER, &json!({ "id": "ci", "expires": "90d" })).json();
    let key = made["key"].as_str().expect("a key").to_owned();
    assert_eq!(gateway.call(&key, "sum", &json!({})).status, 404);
    let me = gateway.get("/v1/me", &key).json();
    assert_eq!(
        (&me["id"], &me["credential"], &me["management"]),
        (&json!("ci"), &json!("key/default"), &json!([]))
    );
    assert!(me["expires"].is_string(), "{me}");
    let patch = |body: &Json| send(&gateway, "PATCH /v1/callers/ci", None, body);
    let changed =
        patch(&json!({ "permissions": ["s:*"], "groups": ["ops"], "description": "nightly" })).json();
    assert_eq!((&changed["permissions"], &changed["description"]), (&json!(["s:*"]), &json!("nightly")));
    assert!(
        changed["lastUsed"].is_string() && changed["expires"].is_string() && changed["keys"] == 1,
        "{changed}"
    );
    assert_eq!(gateway.call(&key, "sum", &json!({})).status, 200, "it counts at once");
    assert!(patch(&json!({ "description": null })).json().get("description").is_none());
    assert_eq!(patch(&json!({ "groups": ["none"] })).status, 422);
    let star = ["X-API-Key: key-of-star", "Content-Type: application/json"];
    let grant = json!({ "permissions": ["policy:write"] }).to_string();
    assert_eq!(gateway.request("PATCH /v1/callers/ci", &star, &grant).status, 403, "it lacks the permission");
    assert_eq!(send(&gateway, "PATCH /v1/callers/ann", None, &json!({})).status, 409);
    let run = gateway.program.run("callers update ci --permission policy:read");
    assert_eq!((run.code, run.stdout.as_str()), (0, "changed ci\n"), "{run}");
    assert_eq!(gateway.get("/v1/me", &key).json()["management"], json!(["policy:read"]));
}
