//! Script tools behind `toolgate serve`: workers, concurrent calls and cleanup.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, wait_until};
use crate::support::program::{Program, peak_of};
use crate::support::scripts::{project, write_script};
use crate::support::test_server::processes_left;

fn start_gateway(program: Program) -> Gateway {
    Gateway::serve(program.with("TOOLGATE_LOG", "off").with("TOOLGATE_API_KEY", OWNER))
}

/// Returns a variable that marks the processes of a test.
fn marker(test: &str) -> (Json, String) {
    let value = format!("{}-{test}", std::process::id());
    (json!({ "TOOLGATE_TEST_MARKER": value }), format!("TOOLGATE_TEST_MARKER={value}"))
}

fn text(gateway: &Gateway, tool: &str, arguments: &Json) -> String {
    let answer = gateway.call(OWNER, tool, arguments);
    let envelope = answer.json();
    envelope["data"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer:?}")).to_owned()
}

#[test]
fn a_worker_stays_until_its_file_changes() {
    let counts = "count = 0\ndef run(args):\n  global count\n  count += 1\n  return f'{count}'";
    let gateway = start_gateway(project(&[("counts.py", counts, json!({}))]));
    for n in 1..=3 {
        assert_eq!(text(&gateway, "counts", &json!({})), n.to_string());
    }
    write_script(&gateway.program, "counts.py", &counts.replace("{count}", "new {count}"));
    assert_eq!(text(&gateway, "counts", &json!({})), "new 1");
    assert_eq!(text(&gateway, "counts", &json!({})), "new 2");
    // A failing worker stays; a broken file is reported, and the next valid one is used.
    write_script(&gateway.program, "counts.py", "def run(args:");
    assert_eq!(gateway.call(OWNER, "counts", &json!({})).code(), "tool_unusable");
    write_script(&gateway.program, "counts.py", counts);
    assert_eq!(text(&gateway, "counts", &json!({})), "1");
    fs_err::remove_file(gateway.program.path("tools/counts.py")).expect("the file exists");
    assert!(gateway.call(OWNER, "counts", &json!({})).body.contains("does not exist"));
}

#[test]
fn a_running_call_keeps_its_version() {
    let source = "import os, time\ndef run(args):\n  open('began', 'w').close()\n  \
        while not os.path.exists('go'): time.sleep(0.01)\n  return 'old'";
    let gateway = start_gateway(project(&[("tool.py", source, json!({ "parallel_capable": true }))]));
    thread::scope(|scope| {
        let old = scope.spawn(|| text(&gateway, "tool", &json!({})));
        wait_until("the call begins", || gateway.program.path("tools/began").exists());
        write_script(&gateway.program, "tool.py", "def run(args): return 'new'");
        assert_eq!(text(&gateway, "tool", &json!({})), "new");
        gateway.program.write("tools/go", "");
        assert_eq!(old.join().expect("it answers"), "old");
    });
    assert_eq!(text(&gateway, "tool", &json!({})), "new");
}

#[test]
fn a_killed_worker_is_replaced() {
    let source = "import os, time\ndef run(args):\n  how = args.get('how')\n  if how == 'die': os._exit(3)\n  \
        if how == 'hang': time.sleep(600)\n  if how == 'fill': bytearray(4 << 30)\n  \
        if how == 'raise': raise ValueError('no')\n  return str(os.getpid())";
    let gateway = start_gateway(project(&[("tool.py", source, json!({ "timeout": "2s" }))]));
    let process = || {
        // A new worker may need longer to start than the call timeout.
        let mut id = Json::Null;
        wait_until("an answer", || {
            id = gateway.call(OWNER, "tool", &json!({})).json()["data"][0]["text"].take();
            !id.is_null()
        });
        id
    };
    let first = process();
    assert_eq!(process(), first);
    assert_eq!(gateway.call(OWNER, "tool", &json!({ "how": "raise" })).code(), "tool_execution_error");
    assert_eq!(process(), first, "a failure is no reason to start another");
    let mut last = first;
    for (how, code) in
        [("die", "tool_execution_error"), ("hang", "timeout"), ("fill", "tool_execution_error")]
    {
        assert_eq!(gateway.call(OWNER, "tool", &json!({ "how": how })).code(), code, "{how}");
        let next = process();
        assert_ne!(next, last, "{how}");
        last = next;
    }
}

#[test]
fn a_slow_import_is_ready_for_a_later_call() {
    // The first call times out; the worker would never get ready if its start ended with the call.
    let source = "import os, time\nopen(f'loading-{os.getpid()}', 'w').close()\n\
        while not os.path.exists('go'): time.sleep(0.01)\ndef run(args): return 'loaded'";
    let gateway = start_gateway(project(&[("slow.py", source, json!({ "timeout": "1s" }))]));
    for _ in 0..2 {
        assert_eq!(gateway.call(OWNER, "slow", &json!({})).code(), "timeout");
    }
    let loads = fs_err::read_dir(gateway.program.path("tools")).expect("a folder").filter(|entry| {
        let entry = entry.as_ref().expect("an entry");
        entry.file_name().to_string_lossy().starts_with("loading-")
    });
    assert_eq!(loads.count(), 1, "the second call waits for the worker of the first");
    gateway.program.write("tools/go", "");
    wait_until("it is loaded", || gateway.call(OWNER, "slow", &json!({})).status == 200);
}

#[test]
fn a_disconnect_ends_the_call() {
    let (env, found) = marker("leaves");
    let keys = json!({ "env": env, "timeout": "50s" });
    let gateway = start_gateway(project(&[
        ("cold.sh", "#!/bin/sh\ntouch cold\nsleep 600\n", keys.clone()),
        ("warm.py", "import time\ndef run(args):\n  open('warm', 'w').close()\n  time.sleep(600)", keys),
    ]));
    for tool in ["cold", "warm"] {
        let body = json!({ "arguments": {} }).to_string();
        let first = format!("POST /v1/tools/{tool}/call");
        let headers = [&format!("X-API-Key: {OWNER}"), "Content-Type: application/json"];
        let mut stream = gateway.connect();
        let request = crate::support::gateway::request(&first, &headers, &body);
        std::io::Write::write_all(&mut stream, request.as_bytes()).expect("it is sent");
        wait_until("the call begins", || gateway.program.path(&format!("tools/{tool}")).exists());
        assert!(processes_left(&found) > 0);
        drop(stream);
        wait_until("all of it is gone", || processes_left(&found) == 0);
    }
}

#[test]
fn no_process_is_left_after_shutdown() {
    for signal in ["-TERM", "-KILL"] {
        let (env, found) = marker(&format!("stop{signal}"));
        let source =
            "import subprocess\nchild = subprocess.Popen(['sleep', '600'])\ndef run(args): return 'x'";
        let mut gateway = start_gateway(project(&[("tool.py", source, json!({ "env": env }))]));
        text(&gateway, "tool", &json!({}));
        assert!(processes_left(&found) > 1, "the worker and its child run");
        gateway.signal(signal);
        gateway.wait_for_exit();
        wait_until("nothing is left", || processes_left(&found) == 0);
    }
}

#[test]
fn removed_and_changed_tools_end_their_workers() {
    let (env, found) = marker("removed");
    let (_, found_other) = marker("changed");
    let gateway = start_gateway(project(&[("tool.py", "def run(args): return 'x'", json!({ "env": env }))]));
    text(&gateway, "tool", &json!({}));
    let tools = gateway.program.read("tools/tools.json");
    let changed = tools.replace("-removed", "-changed");
    gateway.program.write("tools/tools.json", changed);
    wait_until("the new entry is used", || {
        text(&gateway, "tool", &json!({}));
        processes_left(&found) == 0
    });
    assert!(processes_left(&found_other) > 0);
    gateway.program.write("tools/tools.json", "{\"tools\": []}");
    wait_until("its workers are gone", || processes_left(&found_other) == 0);
}

#[test]
fn a_thousand_calls_over_ten_tools() {
    const CALLERS: usize = 50;
    let (env, found) = marker("thousand");
    let keys = json!({ "env": env, "parallel_capable": true, "max_instances": 2 });
    let source = "import os\ndef run(args):\n  return {'n': args['n'], 'pid': os.getpid()}";
    let files: Vec<_> = (0..10).map(|n| format!("tool{n}.py")).collect();
    let tools: Vec<_> = files.iter().map(|file| (file.as_str(), source, keys.clone())).collect();
    let program = project(&tools);
    program.write(
        "toolgate.yaml",
        json!({ "registries": { "tools": "tools/tools.json" }, "toolbox": { "max_concurrent": 64 } })
            .to_string(),
    );
    let mut gateway = start_gateway(program);
    let good = AtomicUsize::new(0);
    let thousand = || {
        thread::scope(|scope| {
            for caller in 0..CALLERS {
                let (gateway, good) = (&gateway, &good);
                scope.spawn(move || {
                    for call in 0..1000 / CALLERS {
                        let n = caller * 1000 + call;
                        let answer =
                            gateway.call(OWNER, &format!("tool{}", (caller + call) % 10), &json!({ "n": n }));
                        assert_eq!(answer.json()["data"]["n"], n, "{answer:?}");
                        good.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let status = fs_err::read_to_string(format!("/proc/{}/status", gateway.running.child.id())).unwrap();
        peak_of(&status).unwrap()
    };
    let first = thousand();
    let third = (thousand(), thousand()).1;
    assert!(third < first + (16 << 20), "from {first} to {third} bytes");
    assert_eq!(good.load(Ordering::Relaxed), 3000);
    // At most two workers each, each below its shim. One that is being replaced may still be ending.
    wait_until("two workers each at most", || processes_left(&found) <= 10 * 2 * 2);
    assert_eq!(gateway.executions("status=error&limit=1").len(), 0);
    gateway.signal("-TERM");
    assert_eq!(gateway.wait_for_exit(), Some(0));
    wait_until("nothing is left", || processes_left(&found) == 0);
}

#[test]
fn timed_out_calls_leave_no_process() {
    let (env, found) = marker("late");
    let keys = json!({ "env": env, "timeout": "0.2s", "parallel_capable": true, "max_instances": 16 });
    let gateway = start_gateway(project(&[
        ("cold.sh", "#!/bin/sh\nsleep 60\n", keys.clone()),
        ("warm.py", "import time\ndef run(args): time.sleep(60)", keys),
    ]));
    let id = gateway.running.child.id();
    let open = || fs_err::read_dir(format!("/proc/{id}/fd")).map_or(0, Iterator::count);
    gateway.call(OWNER, "cold", &json!({}));
    wait_until("the first is gone", || processes_left(&found) == 0);
    let before = open();
    thread::scope(|scope| {
        for _ in 0..10 {
            let gateway = &gateway;
            scope.spawn(move || {
                for n in 0..10 {
                    let tool = if n % 5 == 0 { "warm" } else { "cold" };
                    let code = gateway.call(OWNER, tool, &json!({})).code();
                    assert!(["timeout", "overloaded"].contains(&code.as_str()), "{code}");
                }
            });
        }
    });
    // A worker that got ready after its call is kept for the next one while the tool exists.
    gateway.program.write("tools/tools.json", "{\"tools\": []}");
    wait_until("no process is left", || processes_left(&found) == 0);
    wait_until("no zombie is left", || zombies_of(id) == 0);
    wait_until("no descriptor is left", || open() <= before + 2);
}

/// Counts zombie children.
fn zombies_of(parent: u32) -> usize {
    let is_zombie = |entry: std::io::Result<fs_err::DirEntry>| {
        let stat = entry.ok().and_then(|entry| fs_err::read_to_string(entry.path().join("stat")).ok());
        let stat = stat.unwrap_or_default();
        let rest = stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned()).unwrap_or_default();
        rest.starts_with(&format!("Z {parent} "))
    };
    fs_err::read_dir("/proc").expect("Linux").filter_map(|entry| is_zombie(entry).then_some(())).count()
}
