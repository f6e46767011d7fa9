//! What servers do wrong over stdio, and what is left of it: the whole program against `testkit`.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Map, Value as Json, json};

use crate::program::{PATIENCE, Program, Run};
use crate::servers::{entry, left_behind, testkit};

/// A text with everything that a terminal or a reader can be fooled with: a colour, a title, a link,
/// the other direction, characters without a width, control characters of the second set.
const ESCAPES: &str = "\u{1b}[35mpink\u{1b}]0;title\u{7}\u{1b}]8;;http://x\u{1b}\\link\u{202e}tfel\u{2066}\
    \u{200b}\u{feff}\u{9b}2J\u{7f}\u{8}";

#[expect(clippy::disallowed_methods, reason = "servers misbehave in real time")]
fn now() -> Instant {
    Instant::now()
}

/// Waits until it holds, and says how long that took.
fn until(bound: Duration, what: &str, holds: impl Fn() -> bool) -> Duration {
    let start = now();
    while !holds() {
        assert!(start.elapsed() < bound, "{what} after {bound:?}");
        std::thread::yield_now();
    }
    start.elapsed()
}

fn project(servers: &Json) -> Program {
    Program::new(&[("mcp.json", &json!({ "servers": servers }).to_string())]).with("TOOLGATE_LOG", "off")
}

/// A server whose tools are given.
fn scripted(program: &Program, name: &str, tools: &[Json]) -> Json {
    program.write(name, json!({ "tools": tools }).to_string());
    json!({ "command": testkit(), "args": ["scripted", program.path(name)], "timeout": "20s" })
}

/// Name and state of every tool, a line each; with the reason where there is one.
fn tools(run: &Run) -> String {
    let line = |tool: &Json| {
        let reason = tool["reason"].as_str().map(|reason| format!(": {reason}")).unwrap_or_default();
        format!("{} {}{reason}", tool["name"], tool["state"]).replace('"', "")
    };
    run.json().as_array().expect("a list").iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Ninety-nine good servers do not wait for the one that says nothing. The bounds are wide, as the
/// machine of a test is busy; on an idle one it is seconds.
#[test]
fn one_silent_server_of_a_hundred() {
    let marker = format!("silent-{}", std::process::id());
    let mut servers = Map::new();
    for n in 0..100 {
        let mut server = entry(if n == 50 { "silent" } else { "good" });
        server["timeout"] = json!(if n == 50 { "4s" } else { "120s" });
        server["env"] = json!({ "TOOLGATE_TEST_MARKER": marker });
        servers.insert(format!("server{n}"), server);
    }
    let program = project(&Json::Object(servers));
    let start = now();
    let mut command = program.command(&["servers", "--json"]);
    let mut child =
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the executable starts");
    let (mut ready, mut last_ready, mut unavailable) = (0, Duration::ZERO, Duration::ZERO);
    let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
    for line in stderr.lines().map_while(Result::ok) {
        if line.starts_with("ready ") {
            (ready, last_ready) = (ready + 1, start.elapsed());
        } else if line.starts_with("unavailable server50") {
            unavailable = start.elapsed();
        }
    }
    assert!(child.wait().expect("it ends").success());
    println!("99 of 100 ready after {last_ready:?}, the silent one given up after {unavailable:?}");
    assert_eq!(ready, 99);
    assert!(last_ready < PATIENCE, "{last_ready:?}");
    assert!(unavailable >= Duration::from_secs(4), "it had its time: {unavailable:?}");
    assert!(unavailable < PATIENCE, "and not more: {unavailable:?}");
    until(Duration::from_secs(5), "processes are left", || left_behind(&marker) == 0);
}

#[test]
fn answers_that_are_not_for_the_question() {
    let mut server = entry("faulty");
    server["request_timeout"] = json!("1s");
    let program = project(&json!({ "s": server }));
    let call =
        |fault: &str| program.run(&format!("tools call s__echo message=mine after=2000 fault={fault}"));
    assert_eq!(call("twice").stdout, "mine\n", "the first answer counts");
    for fault in ["next-id", "text-id", "late", "never"] {
        let run = call(fault);
        assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{fault}: {}", run.stderr);
        assert!(run.stderr.contains("no answer within 1s"), "{fault}: {}", run.stderr);
        // The second of the call, and the time to start and to stop a server on a busy machine.
        assert!(run.took < PATIENCE, "{fault}: {:?}", run.took);
    }
}

#[test]
fn noise_between_the_answers() {
    let program = project(&json!({ "s": entry("noisy") }));
    for n in 0..10 {
        let run = program.run(&format!("tools call s__echo number={n}"));
        assert_eq!(run.stdout, format!("{{\"number\":{n}}}\n"), "{}", run.stderr);
    }
}

#[test]
fn a_server_that_dies_in_a_call_is_told_at_once() {
    let program = project(&json!({ "s": entry("faulty") }));
    for (fault, how) in
        [("exit", "exited with code 3; it wrote: boom"), ("crash", "was killed by signal 11 (SIGSEGV)")]
    {
        let run = program.run(&format!("tools call s__echo message=boom fault={fault}"));
        let expected = format!("MCP server `s` ended before it answered: its process {how}");
        assert!(run.code == 1 && run.stderr.contains(&expected), "{fault}: {}", run.stderr);
        assert!(run.took < PATIENCE, "{fault}: {:?}", run.took);
    }
}

#[test]
fn a_schema_that_leads_elsewhere_is_not_followed() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.set_nonblocking(true).expect("it can be asked without waiting");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let tool = |name: &str, schema: Json| json!({ "name": name, "inputSchema": schema });
    let refer = |to: &str| json!({ "type": "object", "properties": { "a": { "$ref": to } } });
    let program = project(&json!({}));
    let server = scripted(
        &program,
        "offered",
        &[
            tool(
                "good",
                json!({ "type": "object", "properties": { "a": {}, "b": { "$ref": "#/properties/a" } } }),
            ),
            tool("remote", refer(&format!("{url}/schema"))),
            tool("file", refer("file:///etc/passwd")),
            tool(
                "based",
                json!({ "$id": format!("{url}/base/"), "type": "object", "allOf": [{ "$ref": "other.json" }] }),
            ),
            tool(
                "dynamic",
                json!({ "type": "object", "allOf": [{ "$dynamicRef": format!("{url}/dynamic") }] }),
            ),
            tool("dialect", json!({ "$schema": format!("{url}/dialect"), "type": "object" })),
        ],
    );
    program.write("mcp.json", json!({ "servers": { "s": server } }).to_string());
    let shown = tools(&program.run("tools list --json")).replace(&url, "[url]");
    insta::assert_snapshot!(shown, @r"
    good ready
    s__remote quarantined: its schema refers to `[url]/schema`, which is not part of it
    s__file quarantined: its schema refers to `file:///etc/passwd`, which is not part of it
    s__based quarantined: its schema refers to `other.json`, which is not part of it
    s__dynamic quarantined: its schema refers to `[url]/dynamic`, which is not part of it
    dialect ready
    ");
    for name in ["good", "s__remote", "s__based", "dialect"] {
        program.run(&format!("tools call {name} a=1"));
    }
    let visit = listener.accept();
    assert!(visit.is_err(), "somebody came: {visit:?}");
}

/// Every level refers to the one below, so many times.
fn levels(count: usize, times: usize) -> Json {
    let below = |level: usize| json!({ "$ref": format!("#/$defs/d{level}") });
    let mut defs = Map::from_iter([("d0".to_owned(), json!({ "type": "string" }))]);
    for level in 1..=count {
        defs.insert(format!("d{level}"), json!({ "allOf": vec![below(level - 1); times] }));
    }
    json!({ "type": "object", "$defs": defs, "properties": { "a": below(count) } })
}

#[test]
fn schemas_that_explode_are_held_back_one_by_one() {
    let tool = |name: &str, schema: Json| json!({ "name": name, "inputSchema": schema });
    let branches: Vec<_> = (0..10_000).map(|n| json!({ "const": n })).collect();
    let program = project(&json!({}));
    let bombs = scripted(
        &program,
        "bombs",
        &[
            tool("good", json!({ "type": "object" })),
            tool("doubling26", levels(26, 2)),
            tool("doubling60", levels(60, 2)),
            tool("branches", json!({ "type": "object", "properties": { "a": { "anyOf": branches } } })),
            tool("chain", levels(500, 1)),
        ],
    );
    program.write("mcp.json", json!({ "servers": { "bombs": bombs } }).to_string());
    let run = program.run("tools list --json");
    insta::assert_snapshot!(tools(&run), @r"
    good ready
    bombs__doubling26 quarantined: its schema grows past 10000 parts when its references are followed
    bombs__doubling60 quarantined: its schema grows past 10000 parts when its references are followed
    bombs__branches quarantined: its schema is larger than 65536 bytes
    bombs__chain quarantined: its schema has more than 2000 parts
    ");
    println!("listed after {:?}", run.took);
    assert!(run.took < PATIENCE, "{:?}", run.took);
    // A message nested this deep is not read at all, which is no matter of other servers. It is not
    // deeper, as `testkit` reads it too.
    let deep = (0..100).fold(json!({}), |inner, _| json!({ "not": inner }));
    let deep = scripted(&program, "deep", &[tool("deep", deep)]);
    program.write("mcp.json", json!({ "servers": { "deep": deep, "bombs": bombs } }).to_string());
    let run = program.run("tools list --json");
    assert!(tools(&run).contains("good ready"), "{run}");
    assert!(run.took < PATIENCE, "{:?}", run.took);
    assert!(run.stderr.contains("nested deeper than 64 levels"), "{}", run.stderr);
}

/// Nothing that moves a cursor or hides text, be it in JSON, which has escapes for it. What styles
/// our own words is allowed.
fn assert_visible(what: &str, run: &Run) {
    for (stream, text) in [("stdout", &run.stdout), ("stderr", &run.stderr)] {
        let styles = ["0", "1", "2", "31", "32"].map(|code| format!("\u{1b}[{code}m"));
        let text = styles.iter().fold(text.clone(), |text, style| text.replace(style, ""));
        let hidden = text.chars().find(|c| {
            (c.is_control() && *c != '\n') || matches!(c, '\u{200b}' | '\u{202e}' | '\u{2066}' | '\u{feff}')
        });
        assert_eq!(hidden, None, "{what}, {stream}: {text:?}");
    }
}

#[test]
fn nothing_that_fools_a_terminal_gets_through() {
    let program = project(&json!({}));
    let tool = |name: String, description: String| {
        json!({ "name": name, "title": ESCAPES, "description": description,
            "inputSchema": { "type": "object", "properties": { "a": { "description": ESCAPES } } } })
    };
    let offered = scripted(
        &program,
        "offered",
        &[
            tool(format!("named{ESCAPES}"), "fine".to_owned()),
            tool("described".to_owned(), ESCAPES.to_owned()),
            tool("fine".to_owned(), "fine".to_owned()),
        ],
    );
    program.write("complain.sh", format!("printf '%s\\n' '{ESCAPES}' >&2; exit 3"));
    let complains = json!({ "command": "sh", "args": [program.path("complain.sh")], "timeout": "10s" });
    // Alone, as an attempt that fails is followed by others.
    program.write("mcp.json", json!({ "servers": { "complains": complains } }).to_string());
    let run = program.run("servers --color always");
    assert!(run.stdout.contains("it wrote: pinklink"), "its last words are shown: {run}");
    assert_visible("stderr of a server", &run);
    let servers = json!({ "offered": offered, "faulty": entry("faulty") });
    program.write("mcp.json", json!({ "servers": servers }).to_string());
    for line in
        ["servers", "tools list", "tools list --json", "tools show offered__described", "tools show fine"]
    {
        // A terminal gets what a file does not, where escapes are left out on the way.
        for color in ["always", "never"] {
            assert_visible(line, &program.run(&format!("{line} --color {color}")));
        }
    }
    for fault in ["none", "structured", "refuse"] {
        let arguments = json!({ "message": ESCAPES, "fault": fault }).to_string();
        let run =
            program.run_list(&["tools", "call", "faulty__echo", "--color", "always", "--args", &arguments]);
        assert!(run.stdout.contains("pink") || run.stderr.contains("pink"), "{fault} was shown: {run}");
        assert_visible(fault, &run);
        let run = program.run_list(&["tools", "call", "faulty__echo", "--json", "--args", &arguments]);
        assert_visible(fault, &run);
        // A program gets all of it.
        let said = run.json().pointer("/data/0/text").cloned();
        assert_eq!(said, (fault == "none").then(|| json!(ESCAPES)));
    }
}

#[test]
fn sigkill_of_toolgate_leaves_no_server() {
    let marker = format!("sigkill-{}", std::process::id());
    let mut servers = Map::new();
    for n in 0..20 {
        let mut server = entry("stubborn");
        server["timeout"] = json!("60s");
        server["env"] = json!({ "TOOLGATE_TEST_MARKER": marker });
        servers.insert(format!("server{n}"), server);
    }
    // The one that is waited for.
    let mut silent = entry("silent");
    silent["timeout"] = json!("60s");
    servers.insert("silent".to_owned(), silent);
    let program = project(&Json::Object(servers));
    let mut command = program.command(&["tools", "list"]);
    let mut child =
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the executable starts");
    let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
    let ready =
        stderr.lines().map_while(Result::ok).filter(|line| line.starts_with("ready ")).take(20).count();
    assert_eq!(ready, 20);
    assert!(left_behind(&marker) >= 20, "all of them run");
    child.kill().expect("it still runs");
    child.wait().expect("it was ours");
    let took = until(PATIENCE, "servers are left", || left_behind(&marker) == 0);
    println!("20 servers were gone {took:?} after their parent was killed");
}
