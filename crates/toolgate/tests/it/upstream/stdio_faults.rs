//! Misbehaving stdio servers: the executable against `testkit`.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Map, Value as Json, json};

use crate::support::program::{HANG_TIMEOUT, Program, RunOutput};
use crate::support::test_server::{entry, processes_left, processes_with, testkit};

/// Sequences that deceive a terminal or a reader: a colour, a title, a link, bidi overrides, zero-width characters and
/// C1 controls.
const ESCAPES: &str = "\u{1b}[35mpink\u{1b}]0;title\u{7}\u{1b}]8;;http://x\u{1b}\\link\u{202e}tfel\u{2066}\
    \u{200b}\u{feff}\u{9b}2J\u{7f}\u{8}";

#[expect(clippy::disallowed_methods, reason = "servers misbehave in real time")]
fn now() -> Instant {
    Instant::now()
}

/// Waits until a condition holds; returns the time it took.
fn wait_until(bound: Duration, what: &str, holds: impl Fn() -> bool) -> Duration {
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

/// Writes the tools of a scripted server; returns its entry.
fn scripted(program: &Program, name: &str, tools: &[Json]) -> Json {
    program.write(name, json!({ "tools": tools }).to_string());
    json!({ "command": testkit(), "args": ["scripted", program.path(name)], "timeout": "20s" })
}

/// Returns the name, state and reason of every tool, one per line.
fn tools(run: &RunOutput) -> String {
    let line = |tool: &Json| {
        let reason = tool["reason"].as_str().map(|reason| format!(": {reason}")).unwrap_or_default();
        format!("{} {}{reason}", tool["name"], tool["state"]).replace('"', "")
    };
    run.json().as_array().expect("a list").iter().map(line).collect::<Vec<_>>().join("\n")
}

/// 99 good servers do not wait for a silent one. The limits are wide because the machine may be busy; idle, it takes
/// seconds.
#[test]
fn one_silent_server_of_a_hundred() {
    let marker = format!("silent-{}", std::process::id());
    let mut servers = Map::new();
    for n in 0..100 {
        let mut server = entry(if n == 50 { "silent" } else { "good" });
        server["timeout"] = json!(if n == 50 { "4s" } else { "120s" });
        server["startup"] = json!("required");
        server["env"] = json!({ "TOOLGATE_TEST_MARKER": marker });
        servers.insert(format!("server{n}"), server);
    }
    let program = project(&Json::Object(servers));
    let start = now();
    // A gateway names every server as soon as it is done.
    let mut command = program.command(&["serve", "--listen", "127.0.0.1:0"]);
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
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
    println!("99 of 100 ready after {last_ready:?}, the silent one given up after {unavailable:?}");
    assert_eq!(ready, 99);
    assert!(last_ready < HANG_TIMEOUT, "{last_ready:?}");
    assert!(unavailable >= Duration::from_secs(4), "it had its time: {unavailable:?}");
    assert!(unavailable < HANG_TIMEOUT, "and not more: {unavailable:?}");
    wait_until(Duration::from_secs(5), "processes are left", || processes_left(&marker) == 0);
}

#[test]
fn responses_with_foreign_ids_are_ignored() {
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
        // The timeout of one second, and the time to start and stop a server on a busy machine.
        assert!(run.took < HANG_TIMEOUT, "{fault}: {:?}", run.took);
    }
}

#[test]
fn noise_between_responses_is_ignored() {
    let program = project(&json!({ "s": entry("noisy") }));
    for n in 0..10 {
        let run = program.run(&format!("tools call s__echo number={n}"));
        assert_eq!(run.stdout, format!("{{\"number\":{n}}}\n"), "{}", run.stderr);
    }
}

#[test]
fn a_server_that_dies_during_a_call_is_reported_at_once() {
    let program = project(&json!({ "s": entry("faulty") }));
    for (fault, how) in
        [("exit", "exited with code 3; it wrote: boom"), ("crash", "was killed by signal 11 (SIGSEGV)")]
    {
        let run = program.run(&format!("tools call s__echo message=boom fault={fault}"));
        let expected = format!("MCP server `s` ended before it answered: its process {how}");
        assert!(run.code == 1 && run.stderr.contains(&expected), "{fault}: {}", run.stderr);
        assert!(run.took < HANG_TIMEOUT, "{fault}: {:?}", run.took);
    }
}

#[test]
fn external_schema_references_are_not_fetched() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.set_nonblocking(true).expect("the listener is nonblocking");
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
    s__remote quarantined: its schema refers to `[url]/schema`, which is not part of it; run `toolgate servers approve s` to review and approve it
    s__file quarantined: its schema refers to `file:///etc/passwd`, which is not part of it; run `toolgate servers approve s` to review and approve it
    s__based quarantined: its schema refers to `other.json`, which is not part of it; run `toolgate servers approve s` to review and approve it
    s__dynamic quarantined: its schema refers to `[url]/dynamic`, which is not part of it; run `toolgate servers approve s` to review and approve it
    dialect ready
    ");
    for name in ["good", "s__remote", "s__based", "dialect"] {
        program.run(&format!("tools call {name} a=1"));
    }
    let visit = listener.accept();
    assert!(visit.is_err(), "a connection was made: {visit:?}");
}

/// Returns a schema in which every level refers to the one below several times.
fn nested_schema(count: usize, times: usize) -> Json {
    let below = |level: usize| json!({ "$ref": format!("#/$defs/d{level}") });
    let mut defs = Map::from_iter([("d0".to_owned(), json!({ "type": "string" }))]);
    for level in 1..=count {
        defs.insert(format!("d{level}"), json!({ "allOf": vec![below(level - 1); times] }));
    }
    json!({ "type": "object", "$defs": defs, "properties": { "a": below(count) } })
}

#[test]
fn exploding_schemas_are_quarantined_one_by_one() {
    let tool = |name: &str, schema: Json| json!({ "name": name, "inputSchema": schema });
    let branches: Vec<_> = (0..10_000).map(|n| json!({ "const": n })).collect();
    let program = project(&json!({}));
    let bombs = scripted(
        &program,
        "bombs",
        &[
            tool("good", json!({ "type": "object" })),
            tool("doubling26", nested_schema(26, 2)),
            tool("doubling60", nested_schema(60, 2)),
            tool("branches", json!({ "type": "object", "properties": { "a": { "anyOf": branches } } })),
            tool("chain", nested_schema(500, 1)),
        ],
    );
    program.write("mcp.json", json!({ "servers": { "bombs": bombs } }).to_string());
    let run = program.run("tools list --json");
    insta::assert_snapshot!(tools(&run), @r"
    good ready
    bombs__doubling26 quarantined: its schema grows past 10000 parts when its references are followed; run `toolgate servers approve bombs` to review and approve it
    bombs__doubling60 quarantined: its schema grows past 10000 parts when its references are followed; run `toolgate servers approve bombs` to review and approve it
    bombs__branches quarantined: its schema is larger than 65536 bytes; run `toolgate servers approve bombs` to review and approve it
    bombs__chain quarantined: its schema has more than 2000 parts; run `toolgate servers approve bombs` to review and approve it
    ");
    println!("listed after {:?}", run.took);
    assert!(run.took < HANG_TIMEOUT, "{:?}", run.took);
    // A message nested this deep is rejected, which affects no other server. It is not deeper because `testkit` parses
    // it too.
    let deep = (0..100).fold(json!({}), |inner, _| json!({ "not": inner }));
    let deep = scripted(&program, "deep", &[tool("deep", deep)]);
    program.write("mcp.json", json!({ "servers": { "deep": deep, "bombs": bombs } }).to_string());
    let run = program.run("tools list --json");
    assert!(tools(&run).contains("good ready"), "{run}");
    assert!(run.took < HANG_TIMEOUT, "{:?}", run.took);
    assert!(run.stderr.contains("nested deeper than 64 levels"), "{}", run.stderr);
}

/// Output has nothing that moves the cursor or hides text, also not escaped in JSON. Toolgate's own styles are allowed.
fn assert_visible(what: &str, run: &RunOutput) {
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
fn terminal_escapes_are_neutralized() {
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
    // One server only, because a failed attempt is retried.
    program.write("mcp.json", json!({ "servers": { "complains": complains } }).to_string());
    let run = program.run("servers --color always");
    assert!(run.stdout.contains("it wrote: pinklink"), "its stderr is shown: {run}");
    assert_visible("stderr of a server", &run);
    let servers = json!({ "offered": offered, "faulty": entry("faulty") });
    program.write("mcp.json", json!({ "servers": servers }).to_string());
    for line in
        ["servers", "tools list", "tools list --json", "tools show offered__described", "tools show fine"]
    {
        // On a terminal, where escapes are not stripped.
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
        // JSON output has all of it.
        let text = run.json().pointer("/data/0/text").cloned();
        assert_eq!(text, (fault == "none").then(|| json!(ESCAPES)));
    }
}

#[test]
fn sigkill_of_toolgate_leaves_no_server() {
    let marker = format!("sigkill-{}", std::process::id());
    let mut servers = Map::new();
    for n in 0..20 {
        let mut server = entry("stubborn");
        server["timeout"] = json!("60s");
        server["startup"] = json!("required");
        server["env"] = json!({ "TOOLGATE_TEST_MARKER": marker });
        servers.insert(format!("server{n}"), server);
    }
    // The process being waited for.
    let mut silent = entry("silent");
    silent["timeout"] = json!("60s");
    silent["startup"] = json!("required");
    servers.insert("silent".to_owned(), silent);
    let program = project(&Json::Object(servers));
    let mut command = program.command(&["serve", "--listen", "127.0.0.1:0"]);
    let mut child =
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the executable starts");
    let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
    let ready =
        stderr.lines().map_while(Result::ok).filter(|line| line.starts_with("ready ")).take(20).count();
    assert_eq!(ready, 20);
    assert!(processes_left(&marker) >= 20, "all of them run");
    child.kill().expect("it still runs");
    child.wait().expect("the process is a child");
    let took = wait_until(HANG_TIMEOUT, "servers are left", || processes_left(&marker) == 0);
    println!("20 servers were gone {took:?} after their parent was killed");
}

/// A server that logs without end cannot hide the lines of others, nor fill the disk.
#[test]
fn log_messages_of_a_server_are_rate_limited() {
    let server = json!({ "name": "s", "command": testkit(), "args": ["chatty"], "mode": "dynamic",
        "default_tool_config": { "max_instances": 1, "timeout": "9s" } });
    let program = crate::support::gateway::project(&json!({ "mcps": [server] })).with("TOOLGATE_LOG", "warn");
    let gateway = crate::support::gateway::Gateway::serve(program);
    let shown = || gateway.program.read("~/stderr");
    wait_until(HANG_TIMEOUT, "the count", || shown().contains("log lines of MCP server 's' were suppressed"));
    let (text, mut suppressed) = (shown(), 0);
    for line in text.lines().filter(|line| line.contains("were suppressed")) {
        let count = line.split_whitespace().find_map(|word| word.parse::<usize>().ok());
        suppressed += count.expect("a number");
    }
    let logged = text.lines().filter(|line| line.contains("is on fire")).count();
    assert!((1..=60).contains(&logged), "{logged} lines");
    assert!(suppressed + logged <= 5_000 && suppressed > 4_000, "{suppressed} suppressed, {logged} logged");
}

/// Descendants that left the session of their shim are found even if the shim is killed.
#[test]
fn sigkill_of_the_shim_leaves_no_process() {
    killed_shim(|program| Some(program.command(&WATCH)));
}

/// The same in a container, where Toolgate's own session and group belong to a process outside.
#[test]
fn sigkill_of_the_shim_leaves_no_process_in_a_container() {
    let wrapper = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let works = [wrapper.as_slice(), &["true"]].concat();
    killed_shim(|program| program.command_under(&wrapper, &works, &WATCH));
}

const WATCH: [&str; 3] = ["servers", "--watch", "--json"];

#[expect(clippy::disallowed_methods, reason = "a signal, without unsafe code")]
fn killed_shim(command: impl Fn(&Program) -> Option<std::process::Command>) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let marker = format!("orphans-{}-{number}-", std::process::id());
    let program = project(&json!({}));
    let Some(command) = command(&program) else { return };
    let hides = "setsid sh -c 'setsid sleep 900 & sleep 900' &\nsetsid sleep 900 &\nexec \"$@\"\n";
    program.write("server.sh", hides);
    let good = entry("good");
    let server = json!({ "command": "sh", "args": [program.path("server.sh"), good["command"], "good"],
        "timeout": "60s", "env": { "TOOLGATE_TEST_MARKER": marker } });
    let other = format!("bystander-{}-{number}-", std::process::id());
    let mut bystander = entry("good");
    bystander["env"] = json!({ "TOOLGATE_TEST_MARKER": other });
    program.write("mcp.json", json!({ "servers": { "s": server, "bystander": bystander } }).to_string());
    let _watch = program.start_command(command);
    let named = |pid: &u32, name: &str| {
        fs_err::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
    };
    wait_until(HANG_TIMEOUT, "no sleepers", || {
        processes_with(&marker).iter().filter(|pid| named(pid, "sleep")).count() == 3
            && processes_left(&other) == 2
    });
    // The server is started again after the kill, so only the processes of its first start must end.
    let first = processes_with(&marker);
    let shim = first.iter().find(|pid| named(pid, "toolgate-shim")).expect("a shim");
    let killed = std::process::Command::new("kill").args(["-KILL", &shim.to_string()]).status();
    assert!(killed.expect("`kill` is installed").success());
    wait_until(HANG_TIMEOUT, "processes are left", || {
        processes_with(&marker).iter().all(|pid| !first.contains(pid))
    });
    assert_eq!(processes_left(&other), 2, "other servers are not affected");
}
