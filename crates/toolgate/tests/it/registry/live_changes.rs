//! Tools and servers that change while `toolgate serve` runs: over HTTP, by commands and by edits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, HttpResponse, OWNER, wait_until};
use crate::support::program::Program;
use crate::support::test_server::{TestServer, entry, processes_left, testkit};

/// Creates a project with empty registries and a script; the owner may register commands, `writer` may not.
fn project(config: &Json) -> Program {
    let mut whole = json!({
        "registries": { "tools": "tools/tools.json", "mcp": "mcp.json" },
        "callers": [
            { "id": "owner", "permissions": ["*:*", "servers:exec"] },
            { "id": "star", "permissions": ["*:*"], "api_key": "star-key" },
            { "id": "writer", "permissions": ["tools:write", "servers:write", "servers:read"], "api_key": "writer-key" },
            { "id": "reader", "permissions": ["servers:read"], "api_key": "reader-key" },
        ],
    });
    for (key, value) in config.as_object().into_iter().flatten() {
        whole[key] = value.clone();
    }
    Program::new(&[
        ("toolgate.yaml", &whole.to_string()),
        ("tools/tools.json", "{\"tools\": []}\n"),
        ("tools/sum.py", ""),
        ("mcp.json", "{\"servers\": {}}\n"),
    ])
    .with("TOOLGATE_LOG", "off")
    .with("TOOLGATE_API_KEY", OWNER)
}

fn tool(name: &str) -> Json {
    json!({ "name": name, "description": "Adds.", "input_schema": { "type": "object" }, "script_path": "sum.py" })
}

fn with_name(name: &str, mut entry: Json) -> Json {
    entry["name"] = json!(name);
    entry
}

fn send(gateway: &Gateway, first: &str, key: &str, tag: Option<&str>, body: &Json) -> HttpResponse {
    let key = format!("X-API-Key: {key}");
    let tag = tag.map(|tag| format!("If-Match: {tag}"));
    let mut headers = vec![key.as_str(), "Content-Type: application/json"];
    headers.extend(tag.as_deref());
    let body = if body.is_null() { String::new() } else { body.to_string() };
    gateway.request(first, &headers, &body)
}

fn tag(response: &HttpResponse) -> String {
    response.header("etag").expect("a revision").to_owned()
}

#[test]
fn a_registered_server_is_usable_at_once() {
    let gateway = Gateway::serve(project(&json!({})));
    let before = tag(&gateway.get("/v1/servers", OWNER));
    let made = gateway.post("/v1/servers", OWNER, &with_name("kit", entry("good")));
    assert_eq!(made.status, 201, "{made:?}");
    let document = made.json();
    assert_eq!((&document["name"], &document["server"]["state"]), (&json!("kit"), &json!("ready")));
    assert_eq!(made.header("location"), Some("/v1/servers/kit"));
    assert_eq!(tag(&made), format!("\"{}\"", document["revision"].as_str().expect("a revision")));
    assert_ne!(tag(&made), before);
    let call_status = gateway.call(OWNER, "echo", &json!({ "message": "hello" }));
    assert_eq!(
        (call_status.status, &call_status.json()["data"][0]["text"]),
        (200, &json!("{\"message\":\"hello\"}")),
        "{call_status:?}"
    );
    let written: Json = serde_json::from_str(&gateway.program.read("mcp.json")).expect("JSON");
    assert_eq!(written["servers"]["kit"], entry("good"), "as it was sent");

    let again = gateway.post("/v1/servers", OWNER, &with_name("kit", entry("good")));
    assert_eq!(again.status_and_code(), (409, "already_exists".to_owned()));
    let patched = send(&gateway, "PATCH /v1/servers/kit", OWNER, None, &json!({ "tool_denylist": ["echo"] }));
    assert_eq!((patched.status, &patched.json()["server"]["state"]), (200, &json!("ready")), "{patched:?}");
    assert_eq!(gateway.call(OWNER, "echo", &json!({ "message": "hello" })).status, 404);
    let replaced = send(&gateway, "PUT /v1/servers/kit", OWNER, Some(&tag(&patched)), &entry("good"));
    assert_eq!(replaced.status, 200, "{replaced:?}");
    let renewed = send(&gateway, "POST /v1/servers/kit/reconnect", OWNER, None, &Json::Null);
    assert_eq!((renewed.status, &renewed.json()["state"]), (200, &json!("ready")), "{renewed:?}");
    assert_eq!(gateway.call(OWNER, "echo", &json!({ "message": "hello" })).status, 200);
    let gone = send(&gateway, "DELETE /v1/servers/kit", OWNER, None, &Json::Null);
    assert_eq!((gone.status, gone.body.as_str()), (204, ""));
    assert_eq!(tag(&gone), before, "the same texts have the same revision");
    assert_eq!(gateway.call(OWNER, "echo", &json!({})).status, 404);
    for first in ["GET /v1/servers/kit", "DELETE /v1/servers/kit", "POST /v1/servers/kit/reconnect"] {
        assert_eq!(
            send(&gateway, first, OWNER, None, &Json::Null).status_and_code(),
            (404, "not_found".to_owned()),
            "{first}"
        );
    }
}

#[test]
fn a_changed_definition_is_approved() {
    let gateway = Gateway::serve(project(&json!({})));
    let mut held = with_name("kit", entry("good"));
    held["approved"] = json!(false);
    assert_eq!(gateway.post("/v1/servers", OWNER, &held).status, 201);
    let call_status = || gateway.call(OWNER, "echo", &json!({ "message": "hello" })).status;
    assert_ne!(call_status(), 200, "the definition is not approved");
    let path = "POST /v1/servers/kit/approve";
    assert_eq!(send(&gateway, path, "reader-key", None, &json!({})).status, 403);
    let stale = json!({ "tools": [{ "name": "echo", "hash": "another" }] });
    assert_eq!(
        send(&gateway, path, "writer-key", None, &stale).status_and_code(),
        (412, "conflict".to_owned())
    );
    let unknown = json!({ "tools": [{ "name": "nothing" }] });
    assert_eq!(
        send(&gateway, path, "writer-key", None, &unknown).status_and_code(),
        (404, "not_found".to_owned())
    );
    let approved = send(&gateway, path, "writer-key", None, &json!({}));
    assert_eq!((approved.status, &approved.json()["approved"]), (200, &json!(true)), "{approved:?}");
    assert_eq!(call_status(), 200);
}

#[test]
fn tools_are_registered_changed_and_removed() {
    let gateway = Gateway::serve(project(&json!({})));
    let made = gateway.post("/v1/tools", "writer-key", &tool("sum"));
    assert_eq!(made.status, 201, "{made:?}");
    let shown = gateway.get("/v1/tools/sum", OWNER);
    assert_eq!((&shown.json()["name"], tag(&shown)), (&json!("sum"), tag(&made)));
    let patch = json!({ "description": "Adds numbers." });
    let patched = send(&gateway, "PATCH /v1/tools/sum", "writer-key", Some(&tag(&made)), &patch);
    assert_eq!(patched.status, 200, "{patched:?}");
    assert_eq!(gateway.get("/v1/tools/sum", OWNER).json()["description"], "Adds numbers.");
    let stale = send(&gateway, "PUT /v1/tools/sum", "writer-key", Some(&tag(&made)), &tool("sum"));
    assert_eq!(stale.status_and_code(), (412, "conflict".to_owned()));
    assert_eq!((tag(&stale), tag(&patched)), (tag(&patched), tag(&gateway.get("/v1/tools", OWNER))));
    // Invalid entries, each with its error.
    let bad =
        json!({ "name": "bad", "input_schema": { "type": "object" }, "colour": "red", "timeout": "soon" });
    let refused = gateway.post("/v1/tools", "writer-key", &bad);
    assert_eq!(refused.status_and_code(), (422, "invalid".to_owned()), "{refused:?}");
    let problems = refused.json()["error"]["problems"].as_array().expect("problems").clone();
    assert!(problems.len() >= 3, "{problems:?}");
    assert!(problems.iter().all(|problem| problem["message"].is_string()), "{problems:?}");
    let other = send(&gateway, "PUT /v1/tools/sum", "writer-key", None, &tool("other"));
    assert_eq!(other.status_and_code(), (422, "invalid".to_owned()));
    for (first, key, status) in [
        ("DELETE /v1/tools/sum", "reader-key", 403),
        ("DELETE /v1/tools/nothing", "writer-key", 404),
        ("DELETE /v1/tools/execute", "writer-key", 404),
        ("DELETE /v1/tools/sum", "writer-key", 204),
    ] {
        assert_eq!(send(&gateway, first, key, None, &Json::Null).status, status, "{first}");
    }
    assert_eq!(gateway.post("/v1/tools", "reader-key", &tool("x")).status, 403);
    assert_eq!(gateway.program.read("tools/tools.json"), "{\"tools\": []}\n");
}

/// Concurrent changes: distinct names, one name, and outdated revisions.
#[test]
fn concurrent_changes() {
    let (distinct, same, stale) = (500, 500, 100);
    let gateway = Gateway::serve(project(&json!({ "serve": { "max_body": "1MiB" } })));
    let next = AtomicUsize::new(0);
    let first = tag(&gateway.post("/v1/tools", OWNER, &tool("base")));
    assert_eq!(gateway.post("/v1/tools", OWNER, &tool("later")).status, 201);
    let work = || {
        let mut counts = BTreeMap::new();
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let (what, response) = match n {
                n if n >= distinct + same + stale => return counts,
                // The kinds are interleaved.
                n if n % 11 == 0 && n / 11 < stale => {
                    ("stale", send(&gateway, "PUT /v1/tools/base", OWNER, Some(&first), &tool("base")))
                }
                n if n % 2 == 0 => {
                    ("distinct", gateway.post("/v1/tools", OWNER, &tool(&format!("tool_{n}"))))
                }
                _ => ("same", gateway.post("/v1/tools", OWNER, &tool("same"))),
            };
            *counts.entry((what, response.status)).or_insert(0) += 1;
        }
    };
    let mut counts: BTreeMap<(&str, u16), usize> = BTreeMap::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..64).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            for (what, count) in thread.join().expect("no panic") {
                *counts.entry(what).or_insert(0) += count;
            }
        }
    });
    let expected = [("distinct", 201, 500), ("same", 201, 1), ("same", 409, 499), ("stale", 412, 100)];
    let expected: BTreeMap<_, _> =
        expected.into_iter().map(|(what, status, count)| ((what, status), count)).collect();
    assert_eq!(counts, expected);
    let written: Json = serde_json::from_str(&gateway.program.read("tools/tools.json")).expect("JSON");
    let names = |list: &Json| {
        let mut names: Vec<_> =
            list["tools"].as_array().expect("a list").iter().map(|tool| tool["name"].to_string()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&written).len(), distinct + 3);
    assert_eq!(
        names(&written),
        names(&gateway.get("/v1/tools", OWNER).json()),
        "the file equals the served state"
    );
}

/// Registering commands needs an explicit permission.
#[test]
fn registering_commands_needs_a_named_permission() {
    let gateway = Gateway::serve(project(&json!({})));
    let marker = format!("TESTKIT_LOG={}", gateway.program.path("spawned").display());
    let mut server = with_name("kit", entry("faulty"));
    server["env"] = json!({ "TESTKIT_LOG": gateway.program.path("spawned") });
    let shell = json!({ "name": "kit", "command": "sh", "args": ["-c", format!("touch {}", gateway.program.path("spawned").display())] });
    let package = json!({ "name": "kit", "server": "some-package" });
    let file = json!({ "name": "kit", "url": "https://8.8.8.8/", "env_file": "/etc/hostname" });
    for entry in [&server, &shell, &package, &file, &json!({ "name": "kit", "type": "stdio" })] {
        for key in ["writer-key", "star-key"] {
            let refused = gateway.post("/v1/servers", key, entry);
            assert_eq!(refused.status_and_code(), (403, "unauthorized".to_owned()), "{entry}");
            let expected = r#"bearer error="insufficient_scope", scope="servers:exec""#;
            assert_eq!(refused.header("www-authenticate"), Some(expected));
        }
    }
    assert!(!gateway.program.path("spawned").exists() && processes_left(&marker) == 0, "nothing was started");
    assert_eq!(gateway.program.read("mcp.json"), "{\"servers\": {}}\n");
    // Shell metacharacters are passed unchanged.
    let words = ["; touch spawned", "$(touch spawned)", "`touch spawned`", "a b"];
    let mut args = vec!["faulty"];
    args.extend(words);
    server["args"] = json!(args);
    let made = gateway.post("/v1/servers", OWNER, &server);
    assert_eq!((made.status, &made.json()["server"]["state"]), (201, &json!("ready")), "{made:?}");
    let process = fs_err::read_dir("/proc").expect("Linux").filter_map(|entry| {
        let path = entry.ok()?.path();
        let environment = fs_err::read(path.join("environ")).ok()?;
        let ours = environment.windows(marker.len()).any(|part| part == marker.as_bytes());
        ours.then(|| fs_err::read_to_string(path.join("cmdline")).ok()).flatten()
    });
    let mut lines: Vec<Vec<String>> = process
        .map(|line| line.trim_end_matches('\0').split('\0').skip(1).map(ToOwned::to_owned).collect())
        .collect();
    lines.retain(|line| line.first().is_some_and(|word| word == "faulty"));
    assert_eq!(lines, [args], "{}", testkit().display());
    // Without the permission, a caller cannot change such an entry but can remove it.
    let patch = |body: Json| send(&gateway, "PATCH /v1/servers/kit", "writer-key", None, &body).status;
    assert_eq!((patch(json!({ "args": [] })), patch(json!({ "trusted": true }))), (403, 403));
    assert_eq!(send(&gateway, "DELETE /v1/servers/kit", "writer-key", None, &Json::Null).status, 204);
    wait_until("the end of its process", || processes_left(&marker) == 0);
}

/// The keys of a tool that decide which program runs need the permission to run programs, in every spelling.
#[test]
fn the_program_of_a_tool_needs_a_named_permission() {
    let gateway = Gateway::serve(project(&json!({})));
    gateway.program.write("tools/other.py", "");
    let plain =
        |name: &str| json!({ "name": name, "description": "Adds.", "input_schema": { "type": "object" } });
    let with = |name: &str, key: &str, value: Json| {
        let mut entry = plain(name);
        entry[key] = value;
        entry
    };
    let refused = |first: &str, key: &str, body: &Json| {
        let response = send(&gateway, first, key, None, body);
        assert_eq!(response.status_and_code(), (403, "unauthorized".to_owned()), "{first} {key} {body}");
        let expected = r#"bearer error="insufficient_scope", scope="servers:exec""#;
        assert_eq!(response.header("www-authenticate"), Some(expected), "{first} {key} {body}");
    };
    let programs = [
        ("env", json!({ "PYTHONWARNINGS": "all:0:antigravity.x:0:0", "BROWSER": "/bin/sh -c id #%s" })),
        ("env", json!({ "BASH_ENV": "x.sh" })),
        ("env", json!({ "LD_PRELOAD": "x.so" })),
        ("env", json!({ "PATH": "/tmp" })),
        ("script_path", json!("other.py")),
        ("config", json!({ "script_path": "other.py" })),
        ("config", json!({ "scriptPath": "other.py" })),
        ("entrypoint", json!("main")),
        ("function", json!("main")),
    ];
    for key in ["writer-key", "star-key"] {
        for (member, value) in &programs {
            refused("POST /v1/tools", key, &with("sum", member, value.clone()));
        }
    }
    // The default script, written out or not, is the one that the operator put there for this tool.
    assert_eq!(gateway.post("/v1/tools", "writer-key", &tool("sum")).status, 201);
    assert_eq!(send(&gateway, "PUT /v1/tools/sum", "writer-key", None, &plain("sum")).status, 200);
    for (member, value) in &programs {
        refused("PATCH /v1/tools/sum", "writer-key", &json!({ *member: value }));
        refused("PUT /v1/tools/sum", "writer-key", &with("sum", member, value.clone()));
    }
    let patch = |key: &str, body: Json| send(&gateway, "PATCH /v1/tools/sum", key, None, &body).status;
    assert_eq!(patch(OWNER, json!({ "env": { "A": "1" }, "script_path": "other.py" })), 200);
    assert_eq!(patch("writer-key", json!({ "description": "Adds two.", "script_path": "other.py" })), 200);
    refused("PATCH /v1/tools/sum", "star-key", &json!({ "env": null }));
    refused("PUT /v1/tools/sum", "star-key", &tool("sum"));
    // A foreign vocabulary, translated when the entry is read, is no way around.
    refused(
        "POST /v1/tools",
        "star-key",
        &json!({ "name": "foreign", "description": "Adds.", "risk": "read",
        "inputs": { "type": "object" }, "script_path": "other.py" }),
    );
    assert_eq!(send(&gateway, "DELETE /v1/tools/sum", "writer-key", None, &Json::Null).status, 204);
}

/// The permissions that a tool requires can be changed only by a caller that has the old and the new ones.
#[test]
fn the_permissions_of_a_tool_are_changed_by_those_who_have_them() {
    let gateway = Gateway::serve(project(&json!({ "callers": [
        { "id": "writer", "permissions": ["tools:write", "tools:sum"], "api_key": "writer-key" },
        { "id": "both", "permissions": ["tools:write", "tools:sum", "bank:pay"], "api_key": "both-key" },
    ] })));
    let mut guarded = tool("sum");
    guarded["permissions"] = json!(["bank:pay"]);
    let scopes = json!({ "name": "sum", "description": "Adds.", "inputs": { "type": "object" },
        "scopeRequirement": { "requiredScopes": ["bank:pay"] } });
    let status = |first: &str, key: &str, body: &Json| {
        let response = send(&gateway, first, key, None, body);
        let challenge = response.header("www-authenticate").unwrap_or_default().to_owned();
        assert!(response.status != 403 || challenge.contains("bank:pay"), "{response:?}");
        response.status
    };
    assert_eq!(status("POST /v1/tools", "writer-key", &guarded), 403, "a permission that it lacks");
    assert_eq!(status("POST /v1/tools", "writer-key", &scopes), 403, "in other words");
    assert_eq!(status("POST /v1/tools", "both-key", &guarded), 201);
    let none = json!({ "permissions": null });
    for body in [&none, &json!({ "permissions": [] }), &json!({ "permissions": ["tools:sum"] })] {
        assert_eq!(status("PATCH /v1/tools/sum", "writer-key", body), 403, "{body}");
    }
    assert_eq!(status("PUT /v1/tools/sum", "writer-key", &tool("sum")), 403);
    assert_eq!(status("DELETE /v1/tools/sum", "writer-key", &Json::Null), 403, "removed and added again");
    assert_eq!(status("PATCH /v1/tools/sum", "writer-key", &json!({ "description": "Adds two." })), 200);
    assert_eq!(status("PUT /v1/tools/sum", "writer-key", &guarded), 200, "the same permissions");
    assert_eq!(status("PATCH /v1/tools/sum", "both-key", &none), 200);
    assert_eq!(
        status("PATCH /v1/tools/sum", "both-key", &json!({ "permissions": ["bank:pay", "tools:sum"] })),
        200
    );
    assert_eq!(status("DELETE /v1/tools/sum", "both-key", &Json::Null), 204);
}

/// With an allowlist of commands, no other command runs: by a new entry, a change or another key.
#[test]
fn the_command_allowlist_applies_to_every_change() {
    let program = project(&json!({ "serve": { "allow_commands": [testkit()] } }));
    let other = json!({ "command": "sh", "args": ["-c", "exec cat"], "enabled": false });
    program.write("mcp.json", json!({ "servers": { "of_the_files": other } }).to_string());
    let gateway = Gateway::serve(program);
    let spawned = gateway.program.path("spawned");
    let shell = json!({ "command": "sh", "args": ["-c", format!("touch {}", spawned.display())] });
    let refused = |first: &str, body: &Json| {
        let response = send(&gateway, first, OWNER, None, body);
        assert_eq!(
            response.status_and_code(),
            (422, "command_refused".to_owned()),
            "{first} {body}: {response:?}"
        );
    };
    refused("POST /v1/servers", &with_name("kit", shell.clone()));
    refused("POST /v1/servers", &with_name("kit", json!({ "server": "some-package" })));
    refused("POST /v1/servers", &with_name("kit", json!({ "type": "stdio" })));
    let mut both = with_name("kit", entry("faulty"));
    both["server"] = json!("some-package");
    refused("POST /v1/servers", &both);
    let message = gateway.post("/v1/servers", OWNER, &both).json()["error"]["message"].take();
    assert_eq!(message, "`server` is not allowed with `serve.allow_commands`", "the command is allowed");
    refused("PATCH /v1/servers/of_the_files", &json!({ "enabled": true, "args": ["-c", "true"] }));
    assert_eq!(gateway.post("/v1/servers", OWNER, &with_name("kit", entry("faulty"))).status, 201);
    refused("PATCH /v1/servers/kit", &shell);
    refused("PUT /v1/servers/kit", &shell);
    assert_eq!(
        send(&gateway, "PATCH /v1/servers/kit", OWNER, None, &json!({ "args": ["good"] })).status,
        200
    );
    assert!(!spawned.exists());
    // The missing permission is reported first.
    assert_eq!(gateway.post("/v1/servers", "writer-key", &with_name("new", shell)).status, 403);
}

/// URLs of private networks are refused in every notation, unless allowed.
#[test]
fn private_networks_are_refused() {
    let kit = TestServer::start("good");
    let server = |url: &str| json!({ "name": "kit", "url": url });
    let urls = [
        &kit.url("http", "mcp"),
        "http://0x7f.1/",
        "http://[::ffff:169.254.169.254]/",
        "http://localhost/",
        "ws://10.0.0.1/",
        "file:///etc/passwd",
    ];
    {
        let gateway = Gateway::serve(project(&json!({})));
        for url in urls {
            let refused = gateway.post("/v1/servers", OWNER, &server(url));
            assert_eq!(refused.status_and_code(), (422, "ssrf_blocked".to_owned()), "{url}");
        }
        assert_eq!(kit.count("connected"), 0, "no request was sent");
        assert_eq!(gateway.program.read("mcp.json"), "{\"servers\": {}}\n");
    }
    let gateway = Gateway::serve(project(&json!({ "serve": { "allow_networks": ["127.0.0.0/8"] } })));
    let made = gateway.post("/v1/servers", "writer-key", &server(urls[0]));
    assert_eq!((made.status, &made.json()["server"]["state"]), (201, &json!("ready")), "{made:?}");
    let written: Json = serde_json::from_str(&gateway.program.read("mcp.json")).expect("JSON");
    assert_eq!(
        written["servers"]["kit"]["allow_networks"],
        json!(["127.0.0.0/8"]),
        "checked on every connection"
    );
    for change in [json!({ "allow_networks": ["0.0.0.0/0"] }), json!({ "allow_networks": null })] {
        let patched = send(&gateway, "PATCH /v1/servers/kit", "writer-key", None, &change);
        assert_eq!(patched.status_and_code(), (422, "invalid".to_owned()), "{change}");
    }
    for url in &urls[2..3] {
        let patched = send(&gateway, "PATCH /v1/servers/kit", "writer-key", None, &json!({ "url": url }));
        assert_eq!(patched.status_and_code(), (422, "ssrf_blocked".to_owned()), "{url}");
    }
}

/// An entry registered over HTTP reads no environment variables beyond those in the files.
#[test]
fn environment_variables_are_not_readable() {
    let program = project(&json!({})).with("SECRET_OF_MINE", "s3cr3t-value").with("TOKEN", "t0k3n-value");
    program.write(
        "mcp.json",
        r#"{"servers": {"known": {"url": "https://8.8.8.8/", "headers": {"Authorization": "Bearer ${TOKEN}"}, "enabled": true, "startup": "lazy"}}}"#,
    );
    let gateway = Gateway::serve(program);
    let server = |header: &str| json!({ "name": "new", "url": "https://8.8.4.4/", "headers": { "X-A": header }, "startup": "lazy", "enabled": false });
    for header in
        ["${SECRET_OF_MINE}", "${env:SECRET_OF_MINE}", "${NOTHING:-${SECRET_OF_MINE}}", "${userHome}"]
    {
        let refused = gateway.post("/v1/servers", OWNER, &server(header));
        assert_eq!(refused.status_and_code(), (422, "invalid".to_owned()), "{header}");
        assert!(!refused.body.contains("s3cr3t"), "{refused:?}");
    }
    let made = gateway.post("/v1/servers", OWNER, &server("${TOKEN}"));
    assert_eq!(made.status, 201, "{made:?}");
    assert!(!made.body.contains("t0k3n-value"), "{made:?}");
    let written = gateway.program.read("mcp.json");
    assert!(written.contains("\"${TOKEN}\"") && !written.contains("t0k3n-value"), "{written}");
}

/// Scripts must be in the folder of `tools.json`.
#[test]
fn scripts_stay_in_their_folder() {
    let gateway = Gateway::serve(project(&json!({})));
    std::os::unix::fs::symlink("/bin/sh", gateway.program.path("tools/link.py")).expect("a link");
    let before = tag(&gateway.get("/v1/tools", OWNER));
    let long = "x".repeat(300);
    for script in ["../../bin/sh", "a/../sum.py", "/bin/sh", "x\0.py", "con.py ", long.as_str(), "link.py"] {
        let mut entry = tool("bad");
        entry["script_path"] = json!(script);
        let refused = gateway.post("/v1/tools", OWNER, &entry);
        assert_eq!(refused.status, 422, "{script:?}: {refused:?}");
    }
    assert_eq!(tag(&gateway.get("/v1/tools", OWNER)), before);
}

/// Manual edits are applied; invalid ones are neither used nor overwritten.
#[test]
fn manual_edits_and_api_changes_coexist() {
    let gateway = Gateway::serve(project(&json!({})));
    let is_there = |name: &str| gateway.get(&format!("/v1/tools/{name}"), OWNER).status == 200;
    gateway.program.write("tools/tools.json", json!({ "tools": [tool("by_hand")] }).to_string());
    wait_until("the tool that was written", || is_there("by_hand"));
    let broken = "{ \"tools\": [ ";
    gateway.program.write("tools/tools.json", broken);
    let refused = gateway.post("/v1/tools", OWNER, &tool("sum"));
    assert_eq!(refused.status_and_code(), (409, "configuration_refused".to_owned()), "{refused:?}");
    assert_eq!(refused.json()["error"]["problems"][0]["place"], "tools/tools.json:1:12", "{refused:?}");
    assert!(is_there("by_hand") && !is_there("sum"), "the last valid state stays");
    assert_eq!(gateway.program.read("tools/tools.json"), broken);
    gateway.program.write("tools/tools.json", json!({ "tools": [tool("mended")] }).to_string());
    let made = gateway.post("/v1/tools", OWNER, &tool("sum"));
    assert_eq!(made.status, 201, "{made:?}");
    assert!(is_there("mended") && is_there("sum") && !is_there("by_hand"));
}

/// An editor or a full disk may leave a file without its content. Nothing is removed because of that.
#[test]
fn lost_project_files_keep_the_last_state() {
    let mut server = with_name("kit", entry("good"));
    server["mode"] = json!("dynamic");
    server["default_tool_config"] = json!({});
    let gateway = Gateway::serve(project(&json!({ "toolbox": { "mcps": [server] } })));
    let file = gateway.program.path("toolgate.yaml");
    let original = gateway.program.read("toolgate.yaml");
    let is_refused = || {
        let change = json!({ "description": "Sums." });
        send(&gateway, "PATCH /v1/tools/sum", OWNER, None, &change).status != 200
    };
    assert_eq!(gateway.post("/v1/tools", OWNER, &tool("sum")).status, 201);
    let has_tools = || gateway.call(OWNER, "echo", &json!({ "message": "hello" })).status == 200;
    assert!(has_tools());
    let half = &original[..original.len() / 2];
    let comments = "# the rest was lost\n\n  # here too\n";
    for text in
        ["", " \n\t\n", comments, "---\n# nothing\n...\n", "null # nothing\n", "\u{feff}# nothing\n", half]
    {
        gateway.program.write("toolgate.yaml", text);
        wait_until("the refusal", || is_refused() || !has_tools());
        assert!(has_tools(), "{text:?} removed the tools");
        gateway.program.write("toolgate.yaml", &original);
        wait_until("the original", || !is_refused());
    }
    fs_err::remove_file(&file).expect("it is our file");
    wait_until("the refusal", || is_refused() || !has_tools());
    assert!(has_tools(), "removing the file removed the tools");
}

/// Returns the output of a command without its revision.
fn output_of(program: &Program, line: &str) -> String {
    let run = program.run(line);
    let text = format!("{} {}{}", run.code, run.stdout, run.stderr);
    match text.split_once("revision ") {
        Some((before, after)) => format!("{before}revision R{}", &after[16..]),
        None => text,
    }
}

/// Commands have the same output with and without a running gateway; with one they apply at once.
#[test]
fn commands_use_the_running_gateway() {
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
    let lines = [
        "tools add sum --script sum.py --description Adds.",
        "tools add sum --script sum.py --description Adds.",
        "tools add bad --script ../sum.py --description Adds. --set colour=red",
        "tools update sum --set description=Sums.",
        "tools update other --set description=Sums.",
        "tools remove sum --yes --if-revision 0000000000000000",
        "servers add kit --url http://127.0.0.1:1/mcp --set startup=lazy --set enabled=false",
        "servers update kit --unset startup",
        "servers remove kit --yes",
        "tools remove sum --yes",
    ];
    let alone = project(&json!({}));
    let mut gateway = Gateway::serve(project(&json!({})));
    let socket = gateway.program.path(".toolgate/socket");
    let kind = fs_err::symlink_metadata(&socket).expect("a socket");
    assert!(kind.file_type().is_socket() && kind.permissions().mode() & 0o777 == 0o600, "{kind:?}");
    for line in lines {
        assert_eq!(output_of(&gateway.program, line), output_of(&alone, line), "{line}");
        assert_eq!(gateway.program.read("tools/tools.json"), alone.read("tools/tools.json"), "{line}");
        assert_eq!(gateway.program.read("mcp.json"), alone.read("mcp.json"), "{line}");
    }
    let add = "tools add sum --script sum.py --description Adds. --json";
    let (by_server, by_files) = (gateway.program.run(add).json(), alone.run(add).json());
    assert_eq!((&by_server["via"], &by_files["via"]), (&json!("server"), &json!("files")));
    assert_eq!(by_server["revision"], by_files["revision"]);
    assert_eq!(gateway.get("/v1/tools/sum", OWNER).status, 200, "it is in use when the command ends");
    // Without a key and with another host: access to the socket implies write access to the files.
    let kit = format!("servers add kit -- {} good", testkit().display());
    assert_eq!(gateway.program.run(&kit).code, 0, "the local owner may register commands");
    assert_eq!(gateway.call(OWNER, "echo", &json!({ "message": "hello" })).status, 200);
    // Errors are the same, too.
    for program in [&gateway.program, &alone] {
        program.write("tools/tools.json", "{ \"tools\": [ ");
    }
    let line = "tools remove sum --yes";
    assert_eq!(
        (output_of(&gateway.program, line), gateway.program.run(line).code),
        (output_of(&alone, line), 78)
    );
    // A second process runs without the socket and does not remove it.
    gateway.program.write("tools/tools.json", "{\"tools\": []}\n");
    let second = gateway.program.start("serve --json --listen 127.0.0.1:0");
    second.line(|line| line.starts_with('{'));
    drop(second);
    assert!(socket.exists());
    gateway.signal("-TERM");
    assert_eq!(gateway.wait_for_exit(), Some(0));
    assert!(!socket.exists(), "the socket is removed at shutdown");
}

/// A stale socket is ignored; one that does not respond is an error, and nothing is written.
#[test]
fn stale_and_unresponsive_sockets() {
    use std::os::unix::net::UnixListener;
    let program = project(&json!({}));
    fs_err::create_dir_all(program.path(".toolgate")).expect("a folder");
    let socket = program.path(".toolgate/socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let before = program.read("tools/tools.json");
    let run = program.run("tools add sum --script sum.py --description Adds.");
    assert_eq!(run.code, 1, "{run}");
    assert!(run.stderr.contains("does not respond") && run.stderr.contains("hint: "), "{run}");
    assert_eq!(program.read("tools/tools.json"), before);
    drop(listener);
    assert!(socket.exists(), "as after a kill");
    let run = program.run("tools add sum --script sum.py --description Adds. --json");
    assert_eq!((run.code, &run.json()["via"]), (0, &json!("files")), "{run}");
    let gateway = Gateway::serve(program);
    let run = gateway.program.run("tools update sum --set description=Sums. --json");
    assert_eq!((run.code, &run.json()["via"]), (0, &json!("server")), "{run}");
}

/// Secrets added by later changes are masked as well.
#[test]
fn secrets_added_later_are_masked() {
    let gateway = Gateway::serve(project(&json!({ "egress": { "secrets": true } })));
    let secret = "plain-words-of-mine";
    let kit = format!("servers add kit --env API_TOKEN={secret} -- {} good", testkit().display());
    let call = || gateway.call(OWNER, "echo", &json!({ "message": format!("it is {secret}") }));
    assert_eq!(gateway.program.run(&kit).code, 0);
    let refused = call();
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(refused.body.contains("must not be sent") && !refused.body.contains(secret), "{refused:?}");
    let written = gateway.executions("limit=5");
    assert_eq!(written.len(), 1);
    assert!(!json!(written).to_string().contains(secret), "{written:?}");
}
