//! Tools and servers that are registered, changed and removed while `toolgate serve` runs: over HTTP, by commands that
//! find it running, and by hand.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value as Json, json};

use crate::door::{Answer, Door, OWNER, until};
use crate::kit::Kit;
use crate::program::Program;
use crate::servers::{entry, left_behind, testkit};

/// A project with empty registries and a script; the owner may say what runs, `writer` may not.
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

fn named(name: &str, mut entry: Json) -> Json {
    entry["name"] = json!(name);
    entry
}

fn send(door: &Door, first: &str, key: &str, tag: Option<&str>, body: &Json) -> Answer {
    let key = format!("X-API-Key: {key}");
    let tag = tag.map(|tag| format!("If-Match: {tag}"));
    let mut headers = vec![key.as_str(), "Content-Type: application/json"];
    headers.extend(tag.as_deref());
    let body = if body.is_null() { String::new() } else { body.to_string() };
    door.request(first, &headers, &body)
}

fn tag(answer: &Answer) -> String {
    answer.header("etag").expect("a revision").to_owned()
}

#[test]
fn a_server_that_is_registered_is_usable_at_once() {
    let door = Door::of(project(&json!({})));
    let before = tag(&door.get("/v1/servers", OWNER));
    let made = door.post("/v1/servers", OWNER, &named("kit", entry("good")));
    assert_eq!(made.status, 201, "{made:?}");
    let document = made.json();
    assert_eq!((&document["name"], &document["server"]["state"]), (&json!("kit"), &json!("ready")));
    assert_eq!(made.header("location"), Some("/v1/servers/kit"));
    assert_eq!(tag(&made), format!("\"{}\"", document["revision"].as_str().expect("a revision")));
    assert_ne!(tag(&made), before);
    let called = door.call(OWNER, "echo", &json!({ "message": "hello" }));
    assert_eq!(
        (called.status, &called.json()["data"][0]["text"]),
        (200, &json!("{\"message\":\"hello\"}")),
        "{called:?}"
    );
    let written: Json = serde_json::from_str(&door.program.read("mcp.json")).expect("JSON");
    assert_eq!(written["servers"]["kit"], entry("good"), "as it was sent");

    let again = door.post("/v1/servers", OWNER, &named("kit", entry("good")));
    assert_eq!(again.told(), (409, "already_exists".to_owned()));
    let patched = send(&door, "PATCH /v1/servers/kit", OWNER, None, &json!({ "tool_denylist": ["echo"] }));
    assert_eq!((patched.status, &patched.json()["server"]["state"]), (200, &json!("ready")), "{patched:?}");
    assert_eq!(door.call(OWNER, "echo", &json!({ "message": "hello" })).status, 404);
    let replaced = send(&door, "PUT /v1/servers/kit", OWNER, Some(&tag(&patched)), &entry("good"));
    assert_eq!(replaced.status, 200, "{replaced:?}");
    let renewed = send(&door, "POST /v1/servers/kit/reconnect", OWNER, None, &Json::Null);
    assert_eq!((renewed.status, &renewed.json()["state"]), (200, &json!("ready")), "{renewed:?}");
    assert_eq!(door.call(OWNER, "echo", &json!({ "message": "hello" })).status, 200);
    let gone = send(&door, "DELETE /v1/servers/kit", OWNER, None, &Json::Null);
    assert_eq!((gone.status, gone.body.as_str()), (204, ""));
    assert_eq!(tag(&gone), before, "the same texts have the same revision");
    assert_eq!(door.call(OWNER, "echo", &json!({})).status, 404);
    for first in ["GET /v1/servers/kit", "DELETE /v1/servers/kit", "POST /v1/servers/kit/reconnect"] {
        assert_eq!(
            send(&door, first, OWNER, None, &Json::Null).told(),
            (404, "not_found".to_owned()),
            "{first}"
        );
    }
}

#[test]
fn what_a_server_changed_is_let_through() {
    let door = Door::of(project(&json!({})));
    let mut held = named("kit", entry("good"));
    held["approved"] = json!(false);
    assert_eq!(door.post("/v1/servers", OWNER, &held).status, 201);
    let called = || door.call(OWNER, "echo", &json!({ "message": "hello" })).status;
    assert_ne!(called(), 200, "nobody has looked at it");
    let path = "POST /v1/servers/kit/approve";
    assert_eq!(send(&door, path, "reader-key", None, &json!({})).status, 403);
    let stale = json!({ "tools": [{ "name": "echo", "hash": "another" }] });
    assert_eq!(send(&door, path, "writer-key", None, &stale).told(), (412, "conflict".to_owned()));
    let unknown = json!({ "tools": [{ "name": "nothing" }] });
    assert_eq!(send(&door, path, "writer-key", None, &unknown).told(), (404, "not_found".to_owned()));
    let approved = send(&door, path, "writer-key", None, &json!({}));
    assert_eq!((approved.status, &approved.json()["approved"]), (200, &json!(true)), "{approved:?}");
    assert_eq!(called(), 200);
}

#[test]
fn tools_are_registered_changed_and_removed() {
    let door = Door::of(project(&json!({})));
    let made = door.post("/v1/tools", "writer-key", &tool("sum"));
    assert_eq!(made.status, 201, "{made:?}");
    let shown = door.get("/v1/tools/sum", OWNER);
    assert_eq!((&shown.json()["name"], tag(&shown)), (&json!("sum"), tag(&made)));
    let patch = json!({ "description": "Adds numbers." });
    let patched = send(&door, "PATCH /v1/tools/sum", "writer-key", Some(&tag(&made)), &patch);
    assert_eq!(patched.status, 200, "{patched:?}");
    assert_eq!(door.get("/v1/tools/sum", OWNER).json()["description"], "Adds numbers.");
    let stale = send(&door, "PUT /v1/tools/sum", "writer-key", Some(&tag(&made)), &tool("sum"));
    assert_eq!(stale.told(), (412, "conflict".to_owned()));
    assert_eq!((tag(&stale), tag(&patched)), (tag(&patched), tag(&door.get("/v1/tools", OWNER))));
    // Everything that is wrong, each with what it is.
    let bad =
        json!({ "name": "bad", "input_schema": { "type": "object" }, "colour": "red", "timeout": "soon" });
    let refused = door.post("/v1/tools", "writer-key", &bad);
    assert_eq!(refused.told(), (422, "invalid".to_owned()), "{refused:?}");
    let problems = refused.json()["error"]["problems"].as_array().expect("problems").clone();
    assert!(problems.len() >= 3, "{problems:?}");
    assert!(problems.iter().all(|problem| problem["message"].is_string()), "{problems:?}");
    let other = send(&door, "PUT /v1/tools/sum", "writer-key", None, &tool("other"));
    assert_eq!(other.told(), (422, "invalid".to_owned()));
    for (first, key, status) in [
        ("DELETE /v1/tools/sum", "reader-key", 403),
        ("DELETE /v1/tools/nothing", "writer-key", 404),
        ("DELETE /v1/tools/execute", "writer-key", 404),
        ("DELETE /v1/tools/sum", "writer-key", 204),
    ] {
        assert_eq!(send(&door, first, key, None, &Json::Null).status, status, "{first}");
    }
    assert_eq!(door.post("/v1/tools", "reader-key", &tool("x")).status, 403);
    assert_eq!(door.program.read("tools/tools.json"), "{\"tools\": []}\n");
}

/// Distinct names, one name, and changes that depend on what is not there any more, all at once.
#[test]
fn many_at_once() {
    let (distinct, same, stale) = (500, 500, 100);
    let door = Door::of(project(&json!({ "serve": { "max_body": "1MiB" } })));
    let next = AtomicUsize::new(0);
    let first = tag(&door.post("/v1/tools", OWNER, &tool("base")));
    assert_eq!(door.post("/v1/tools", OWNER, &tool("later")).status, 201);
    let work = || {
        let mut counts = BTreeMap::new();
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let (what, answer) = match n {
                n if n >= distinct + same + stale => return counts,
                // Each kind among the others.
                n if n % 11 == 0 && n / 11 < stale => {
                    ("stale", send(&door, "PUT /v1/tools/base", OWNER, Some(&first), &tool("base")))
                }
                n if n % 2 == 0 => ("distinct", door.post("/v1/tools", OWNER, &tool(&format!("tool_{n}")))),
                _ => ("same", door.post("/v1/tools", OWNER, &tool("same"))),
            };
            *counts.entry((what, answer.status)).or_insert(0) += 1;
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
    let written: Json = serde_json::from_str(&door.program.read("tools/tools.json")).expect("JSON");
    let names = |list: &Json| {
        let mut names: Vec<_> =
            list["tools"].as_array().expect("a list").iter().map(|tool| tool["name"].to_string()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&written).len(), distinct + 3);
    assert_eq!(names(&written), names(&door.get("/v1/tools", OWNER).json()), "the file is what is served");
}

/// Who may say what runs on this machine, and how it runs.
#[test]
fn what_runs_is_said_by_whom_it_was_given_by_name() {
    let door = Door::of(project(&json!({})));
    let marker = format!("TESTKIT_LOG={}", door.program.path("spawned").display());
    let mut server = named("kit", entry("faulty"));
    server["env"] = json!({ "TESTKIT_LOG": door.program.path("spawned") });
    let shell = json!({ "name": "kit", "command": "sh", "args": ["-c", format!("touch {}", door.program.path("spawned").display())] });
    let package = json!({ "name": "kit", "server": "some-package" });
    let file = json!({ "name": "kit", "url": "https://8.8.8.8/", "env_file": "/etc/hostname" });
    for entry in [&server, &shell, &package, &file, &json!({ "name": "kit", "type": "stdio" })] {
        for key in ["writer-key", "star-key"] {
            let refused = door.post("/v1/servers", key, entry);
            assert_eq!(refused.told(), (403, "unauthorized".to_owned()), "{entry}");
            let expected = r#"bearer error="insufficient_scope", scope="servers:exec""#;
            assert_eq!(refused.header("www-authenticate"), Some(expected));
        }
    }
    assert!(!door.program.path("spawned").exists() && left_behind(&marker) == 0, "nothing was started");
    assert_eq!(door.program.read("mcp.json"), "{\"servers\": {}}\n");
    // Words that a shell would do something with arrive as they are.
    let words = ["; touch spawned", "$(touch spawned)", "`touch spawned`", "a b"];
    let mut args = vec!["faulty"];
    args.extend(words);
    server["args"] = json!(args);
    let made = door.post("/v1/servers", OWNER, &server);
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
    // Whoever may not say what runs may not change it either, and may take it away.
    let patch = |body: Json| send(&door, "PATCH /v1/servers/kit", "writer-key", None, &body).status;
    assert_eq!((patch(json!({ "args": [] })), patch(json!({ "trusted": true }))), (403, 403));
    assert_eq!(send(&door, "DELETE /v1/servers/kit", "writer-key", None, &Json::Null).status, 204);
    until("the end of its process", || left_behind(&marker) == 0);
}

/// Where programs are listed, no other runs: not by a new entry, not by changing one, not by another key.
#[test]
fn programs_that_may_be_registered() {
    let program = project(&json!({ "serve": { "allow_commands": [testkit()] } }));
    let other = json!({ "command": "sh", "args": ["-c", "exec cat"], "enabled": false });
    program.write("mcp.json", json!({ "servers": { "of_the_files": other } }).to_string());
    let door = Door::of(program);
    let spawned = door.program.path("spawned");
    let shell = json!({ "command": "sh", "args": ["-c", format!("touch {}", spawned.display())] });
    let refused = |first: &str, body: &Json| {
        let answer = send(&door, first, OWNER, None, body);
        assert_eq!(answer.told(), (422, "command_refused".to_owned()), "{first} {body}: {answer:?}");
    };
    refused("POST /v1/servers", &named("kit", shell.clone()));
    refused("POST /v1/servers", &named("kit", json!({ "server": "some-package" })));
    refused("POST /v1/servers", &named("kit", json!({ "type": "stdio" })));
    let mut both = named("kit", entry("faulty"));
    both["server"] = json!("some-package");
    refused("POST /v1/servers", &both);
    refused("PATCH /v1/servers/of_the_files", &json!({ "enabled": true, "args": ["-c", "true"] }));
    assert_eq!(door.post("/v1/servers", OWNER, &named("kit", entry("faulty"))).status, 201);
    refused("PATCH /v1/servers/kit", &shell);
    refused("PUT /v1/servers/kit", &shell);
    assert_eq!(send(&door, "PATCH /v1/servers/kit", OWNER, None, &json!({ "args": ["good"] })).status, 200);
    assert!(!spawned.exists());
    // Who may not say what runs is told that first.
    assert_eq!(door.post("/v1/servers", "writer-key", &named("new", shell)).status, 403);
}

/// Addresses that lead inside are refused however they are spelled; networks that are allowed are not.
#[test]
fn registered_addresses_lead_outside() {
    let kit = Kit::start("good");
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
        let door = Door::of(project(&json!({})));
        for url in urls {
            let refused = door.post("/v1/servers", OWNER, &server(url));
            assert_eq!(refused.told(), (422, "ssrf_blocked".to_owned()), "{url}");
        }
        assert_eq!(kit.count("connected"), 0, "nobody was asked");
        assert_eq!(door.program.read("mcp.json"), "{\"servers\": {}}\n");
    }
    let door = Door::of(project(&json!({ "serve": { "allow_networks": ["127.0.0.0/8"] } })));
    let made = door.post("/v1/servers", "writer-key", &server(urls[0]));
    assert_eq!((made.status, &made.json()["server"]["state"]), (201, &json!("ready")), "{made:?}");
    for url in &urls[2..3] {
        let patched = send(&door, "PATCH /v1/servers/kit", "writer-key", None, &json!({ "url": url }));
        assert_eq!(patched.told(), (422, "ssrf_blocked".to_owned()), "{url}");
    }
}

/// An entry that comes over HTTP reads no variable that the files do not read.
#[test]
fn variables_of_the_process_stay_there() {
    let program = project(&json!({})).with("SECRET_OF_MINE", "s3cr3t-value").with("TOKEN", "t0k3n-value");
    program.write(
        "mcp.json",
        r#"{"servers": {"known": {"url": "https://8.8.8.8/", "headers": {"Authorization": "Bearer ${TOKEN}"}, "enabled": true, "startup": "lazy"}}}"#,
    );
    let door = Door::of(program);
    let server = |header: &str| json!({ "name": "new", "url": "https://8.8.4.4/", "headers": { "X-A": header }, "startup": "lazy", "enabled": false });
    for header in
        ["${SECRET_OF_MINE}", "${env:SECRET_OF_MINE}", "${NOTHING:-${SECRET_OF_MINE}}", "${userHome}"]
    {
        let refused = door.post("/v1/servers", OWNER, &server(header));
        assert_eq!(refused.told(), (422, "invalid".to_owned()), "{header}");
        assert!(!refused.body.contains("s3cr3t"), "{refused:?}");
    }
    let made = door.post("/v1/servers", OWNER, &server("${TOKEN}"));
    assert_eq!(made.status, 201, "{made:?}");
    assert!(!made.body.contains("t0k3n-value"), "{made:?}");
    let written = door.program.read("mcp.json");
    assert!(written.contains("\"${TOKEN}\"") && !written.contains("t0k3n-value"), "{written}");
}

/// Scripts are files beside `tools.json`, and nothing else.
#[test]
fn scripts_stay_in_their_folder() {
    let door = Door::of(project(&json!({})));
    std::os::unix::fs::symlink("/bin/sh", door.program.path("tools/link.py")).expect("a link");
    let before = tag(&door.get("/v1/tools", OWNER));
    let long = "x".repeat(300);
    for script in ["../../bin/sh", "a/../sum.py", "/bin/sh", "x\0.py", "con.py ", long.as_str(), "link.py"] {
        let mut entry = tool("bad");
        entry["script_path"] = json!(script);
        let refused = door.post("/v1/tools", OWNER, &entry);
        assert_eq!(refused.status, 422, "{script:?}: {refused:?}");
    }
    assert_eq!(tag(&door.get("/v1/tools", OWNER)), before);
}

/// What somebody writes by hand is taken over; what is wrong is neither used nor written over.
#[test]
fn edits_by_hand_and_changes_go_together() {
    let door = Door::of(project(&json!({})));
    let is_there = |name: &str| door.get(&format!("/v1/tools/{name}"), OWNER).status == 200;
    door.program.write("tools/tools.json", json!({ "tools": [tool("by_hand")] }).to_string());
    until("the tool that was written", || is_there("by_hand"));
    let broken = "{ \"tools\": [ ";
    door.program.write("tools/tools.json", broken);
    let refused = door.post("/v1/tools", OWNER, &tool("sum"));
    assert_eq!(refused.told(), (409, "configuration_refused".to_owned()), "{refused:?}");
    assert_eq!(refused.json()["error"]["problems"][0]["place"], "tools/tools.json:1:12", "{refused:?}");
    assert!(is_there("by_hand") && !is_there("sum"), "the last good state goes on");
    assert_eq!(door.program.read("tools/tools.json"), broken);
    door.program.write("tools/tools.json", json!({ "tools": [tool("mended")] }).to_string());
    let made = door.post("/v1/tools", OWNER, &tool("sum"));
    assert_eq!(made.status, 201, "{made:?}");
    assert!(is_there("mended") && is_there("sum") && !is_there("by_hand"));
}

/// The output of a command, without its revision.
fn said(program: &Program, line: &str) -> String {
    let run = program.run(line);
    let text = format!("{} {}{}", run.code, run.stdout, run.stderr);
    match text.split_once("revision ") {
        Some((before, after)) => format!("{before}revision R{}", &after[16..]),
        None => text,
    }
}

/// Commands say the same and end the same, whether a server runs or not; with one they are in use at once.
#[test]
fn commands_go_to_the_server_that_runs() {
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
    let mut door = Door::of(project(&json!({})));
    let socket = door.program.path(".toolgate/socket");
    let kind = fs_err::symlink_metadata(&socket).expect("a socket");
    assert!(kind.file_type().is_socket() && kind.permissions().mode() & 0o777 == 0o600, "{kind:?}");
    for line in lines {
        assert_eq!(said(&door.program, line), said(&alone, line), "{line}");
        assert_eq!(door.program.read("tools/tools.json"), alone.read("tools/tools.json"), "{line}");
        assert_eq!(door.program.read("mcp.json"), alone.read("mcp.json"), "{line}");
    }
    let add = "tools add sum --script sum.py --description Adds. --json";
    let (by_server, by_files) = (door.program.run(add).json(), alone.run(add).json());
    assert_eq!((&by_server["via"], &by_files["via"]), (&json!("server"), &json!("files")));
    assert_eq!(by_server["revision"], by_files["revision"]);
    assert_eq!(door.get("/v1/tools/sum", OWNER).status, 200, "it is in use when the command ends");
    // No key, and another host: whoever can open the socket can write the files.
    let kit = format!("servers add kit -- {} good", testkit().display());
    assert_eq!(door.program.run(&kit).code, 0, "it runs here, and its owner said so");
    assert_eq!(door.call(OWNER, "echo", &json!({ "message": "hello" })).status, 200);
    // What is broken is told alike, too.
    for program in [&door.program, &alone] {
        program.write("tools/tools.json", "{ \"tools\": [ ");
    }
    let line = "tools remove sum --yes";
    assert_eq!((said(&door.program, line), door.program.run(line).code), (said(&alone, line), 78));
    // A second one goes without, and takes nothing away when it ends.
    door.program.write("tools/tools.json", "{\"tools\": []}\n");
    let second = door.program.start("serve --json --listen 127.0.0.1:0");
    second.line(|line| line.starts_with('{'));
    drop(second);
    assert!(socket.exists());
    door.signal("-TERM");
    assert_eq!(door.ended(), Some(0));
    assert!(!socket.exists(), "it is taken away at the end");
}

/// What a server that was killed left behind stops nobody; one that does not answer is told, and nothing is written.
#[test]
fn sockets_that_nobody_serves() {
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
    let door = Door::of(program);
    let run = door.program.run("tools update sum --set description=Sums. --json");
    assert_eq!((run.code, &run.json()["via"]), (0, &json!("server")), "{run}");
}

/// Secrets that come with a later change are hidden like those that were there at the start.
#[test]
fn secrets_that_come_later() {
    let door = Door::of(project(&json!({ "egress": { "secrets": true } })));
    let secret = "plain-words-of-mine";
    let kit = format!("servers add kit --env API_TOKEN={secret} -- {} good", testkit().display());
    let call = || door.call(OWNER, "echo", &json!({ "message": format!("it is {secret}") }));
    assert_eq!(door.program.run(&kit).code, 0);
    let refused = call();
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(refused.body.contains("must not leave") && !refused.body.contains(secret), "{refused:?}");
    let written = door.executions("limit=5");
    assert_eq!(written.len(), 1);
    assert!(!json!(written).to_string().contains(secret), "{written:?}");
}
