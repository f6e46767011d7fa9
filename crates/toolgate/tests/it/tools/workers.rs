//! Tools of one's own behind `toolgate serve`: workers that stay, many calls at once, and nothing left behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value as Json, json};

use crate::door::{Door, OWNER, until};
use crate::program::Program;
use crate::program::peak_of;
use crate::scripts::{project, write_script};
use crate::servers::left_behind;

fn door(program: Program) -> Door {
    Door::of(program.with("TOOLGATE_LOG", "off").with("TOOLGATE_API_KEY", OWNER))
}

/// The variable by which the processes of one test are found, for the entry of a tool and for the search.
fn marker(test: &str) -> (Json, String) {
    let value = format!("{}-{test}", std::process::id());
    (json!({ "TOOLGATE_TEST_MARKER": value }), format!("TOOLGATE_TEST_MARKER={value}"))
}

fn text(door: &Door, tool: &str, arguments: &Json) -> String {
    let answer = door.call(OWNER, tool, arguments);
    let envelope = answer.json();
    envelope["data"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer:?}")).to_owned()
}

#[test]
fn a_worker_stays_until_its_file_changes() {
    let counts = "count = 0\ndef run(args):\n  global count\n  count += 1\n  return f'{count}'";
    let door = door(project(&[("counts.py", counts, json!({}))]));
    for n in 1..=3 {
        assert_eq!(text(&door, "counts", &json!({})), n.to_string());
    }
    write_script(&door.program, "counts.py", &counts.replace("{count}", "new {count}"));
    assert_eq!(text(&door, "counts", &json!({})), "new 1");
    assert_eq!(text(&door, "counts", &json!({})), "new 2");
    // One that fails stays; one that is broken is told of, and the next good one is taken.
    write_script(&door.program, "counts.py", "def run(args:");
    assert_eq!(door.call(OWNER, "counts", &json!({})).code(), "tool_execution_error");
    write_script(&door.program, "counts.py", counts);
    assert_eq!(text(&door, "counts", &json!({})), "1");
    fs_err::remove_file(door.program.path("tools/counts.py")).expect("it is there");
    assert!(door.call(OWNER, "counts", &json!({})).body.contains("does not exist"));
}

#[test]
fn a_call_that_runs_ends_as_it_began() {
    let source = "import os, time\ndef run(args):\n  open('began', 'w').close()\n  \
        while not os.path.exists('go'): time.sleep(0.01)\n  return 'old'";
    let door = door(project(&[("tool.py", source, json!({ "parallel_capable": true }))]));
    thread::scope(|scope| {
        let old = scope.spawn(|| text(&door, "tool", &json!({})));
        until("the call begins", || door.program.path("tools/began").exists());
        write_script(&door.program, "tool.py", "def run(args): return 'new'");
        assert_eq!(text(&door, "tool", &json!({})), "new");
        door.program.write("tools/go", "");
        assert_eq!(old.join().expect("it answers"), "old");
    });
    assert_eq!(text(&door, "tool", &json!({})), "new");
}

#[test]
fn a_worker_that_is_lost_is_replaced() {
    let source = "import os, time\ndef run(args):\n  how = args.get('how')\n  if how == 'die': os._exit(3)\n  \
        if how == 'hang': time.sleep(600)\n  if how == 'fill': bytearray(4 << 30)\n  \
        if how == 'raise': raise ValueError('no')\n  return str(os.getpid())";
    let door = door(project(&[("tool.py", source, json!({ "timeout": "2s" }))]));
    let process = || {
        // A new one may take longer to start than a call may take.
        let mut id = Json::Null;
        until("an answer", || {
            id = door.call(OWNER, "tool", &json!({})).json()["data"][0]["text"].take();
            !id.is_null()
        });
        id
    };
    let first = process();
    assert_eq!(process(), first);
    assert_eq!(door.call(OWNER, "tool", &json!({ "how": "raise" })).code(), "tool_execution_error");
    assert_eq!(process(), first, "a failure is no reason to start another");
    let mut last = first;
    for (how, code) in
        [("die", "tool_execution_error"), ("hang", "timeout"), ("fill", "tool_execution_error")]
    {
        assert_eq!(door.call(OWNER, "tool", &json!({ "how": how })).code(), code, "{how}");
        let next = process();
        assert_ne!(next, last, "{how}");
        last = next;
    }
}

#[test]
fn a_tool_that_loads_slowly_is_there_for_a_later_call() {
    // Whoever calls it first has no time to wait; nobody would ever be served if the start ended with the call.
    let source = "import os, time\nopen(f'loading-{os.getpid()}', 'w').close()\n\
        while not os.path.exists('go'): time.sleep(0.01)\ndef run(args): return 'loaded'";
    let door = door(project(&[("slow.py", source, json!({ "timeout": "1s" }))]));
    for _ in 0..2 {
        assert_eq!(door.call(OWNER, "slow", &json!({})).code(), "timeout");
    }
    let loads = fs_err::read_dir(door.program.path("tools")).expect("a folder").filter(|entry| {
        let entry = entry.as_ref().expect("an entry");
        entry.file_name().to_string_lossy().starts_with("loading-")
    });
    assert_eq!(loads.count(), 1, "the second call waits for what the first began");
    door.program.write("tools/go", "");
    until("it is loaded", || door.call(OWNER, "slow", &json!({})).status == 200);
}

#[test]
fn whoever_leaves_takes_the_call_along() {
    let (env, found) = marker("leaves");
    let keys = json!({ "env": env, "timeout": "50s" });
    let door = door(project(&[
        ("cold.sh", "#!/bin/sh\ntouch cold\nsleep 600\n", keys.clone()),
        ("warm.py", "import time\ndef run(args):\n  open('warm', 'w').close()\n  time.sleep(600)", keys),
    ]));
    for tool in ["cold", "warm"] {
        let body = json!({ "arguments": {} }).to_string();
        let first = format!("POST /v1/tools/{tool}/call");
        let headers = [&format!("X-API-Key: {OWNER}"), "Content-Type: application/json"];
        let mut stream = door.connect();
        let request = crate::door::request(&first, &headers, &body);
        std::io::Write::write_all(&mut stream, request.as_bytes()).expect("it is sent");
        until("the call begins", || door.program.path(&format!("tools/{tool}")).exists());
        assert!(left_behind(&found) > 0);
        drop(stream);
        until("all of it is gone", || left_behind(&found) == 0);
    }
}

#[test]
fn what_serves_leaves_nothing_behind() {
    for signal in ["-TERM", "-KILL"] {
        let (env, found) = marker(&format!("stop{signal}"));
        let source =
            "import subprocess\nchild = subprocess.Popen(['sleep', '600'])\ndef run(args): return 'x'";
        let mut door = door(project(&[("tool.py", source, json!({ "env": env }))]));
        text(&door, "tool", &json!({}));
        assert!(left_behind(&found) > 1, "a worker is kept, and what it started");
        door.signal(signal);
        door.ended();
        until("nothing is left", || left_behind(&found) == 0);
    }
}

#[test]
fn a_tool_that_is_removed_or_changed_ends_its_workers() {
    let (env, found) = marker("removed");
    let (_, found_other) = marker("changed");
    let door = door(project(&[("tool.py", "def run(args): return 'x'", json!({ "env": env }))]));
    text(&door, "tool", &json!({}));
    let tools = door.program.read("tools/tools.json");
    let changed = tools.replace("-removed", "-changed");
    door.program.write("tools/tools.json", changed);
    until("the new entry is used", || {
        text(&door, "tool", &json!({}));
        left_behind(&found) == 0
    });
    assert!(left_behind(&found_other) > 0);
    door.program.write("tools/tools.json", "{\"tools\": []}");
    until("its workers are gone", || left_behind(&found_other) == 0);
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
    let mut door = door(program);
    let good = AtomicUsize::new(0);
    let thousand = || {
        thread::scope(|scope| {
            for caller in 0..CALLERS {
                let (door, good) = (&door, &good);
                scope.spawn(move || {
                    for call in 0..1000 / CALLERS {
                        let n = caller * 1000 + call;
                        let answer =
                            door.call(OWNER, &format!("tool{}", (caller + call) % 10), &json!({ "n": n }));
                        assert_eq!(answer.json()["data"]["n"], n, "{answer:?}");
                        good.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let status = fs_err::read_to_string(format!("/proc/{}/status", door.running.child.id())).unwrap();
        peak_of(&status).unwrap()
    };
    let first = thousand();
    let third = (thousand(), thousand()).1;
    assert!(third < first + (16 << 20), "from {first} to {third} bytes");
    assert_eq!(good.load(Ordering::Relaxed), 3000);
    // Two workers each at most, each below its shim. One that makes room for another is still on its way out.
    until("two workers each at most", || left_behind(&found) <= 10 * 2 * 2);
    assert_eq!(door.executions("status=error&limit=1").len(), 0);
    door.signal("-TERM");
    assert_eq!(door.ended(), Some(0));
    until("nothing is left", || left_behind(&found) == 0);
}

#[test]
fn calls_that_time_out_leave_nothing() {
    let (env, found) = marker("late");
    let keys = json!({ "env": env, "timeout": "0.2s", "parallel_capable": true, "max_instances": 16 });
    let door = door(project(&[
        ("cold.sh", "#!/bin/sh\nsleep 60\n", keys.clone()),
        ("warm.py", "import time\ndef run(args): time.sleep(60)", keys),
    ]));
    let id = door.running.child.id();
    let open = || fs_err::read_dir(format!("/proc/{id}/fd")).map_or(0, Iterator::count);
    door.call(OWNER, "cold", &json!({}));
    until("the first is gone", || left_behind(&found) == 0);
    let before = open();
    thread::scope(|scope| {
        for _ in 0..10 {
            let door = &door;
            scope.spawn(move || {
                for n in 0..10 {
                    let tool = if n % 5 == 0 { "warm" } else { "cold" };
                    let code = door.call(OWNER, tool, &json!({})).code();
                    assert!(["timeout", "overloaded"].contains(&code.as_str()), "{code}");
                }
            });
        }
    });
    // A worker that was loaded when its call had gone is kept for the next one, as long as there is the tool.
    door.program.write("tools/tools.json", "{\"tools\": []}");
    until("no process is left", || left_behind(&found) == 0);
    until("no zombie is left", || zombies_of(id) == 0);
    until("no descriptor is left", || open() <= before + 2);
}

/// Children that have ended and were not looked at.
fn zombies_of(parent: u32) -> usize {
    let is_zombie = |entry: std::io::Result<fs_err::DirEntry>| {
        let stat = entry.ok().and_then(|entry| fs_err::read_to_string(entry.path().join("stat")).ok());
        let stat = stat.unwrap_or_default();
        let rest = stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned()).unwrap_or_default();
        rest.starts_with(&format!("Z {parent} "))
    };
    fs_err::read_dir("/proc").expect("Linux").filter_map(|entry| is_zombie(entry).then_some(())).count()
}
