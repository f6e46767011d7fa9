//! The door for a while under many calls, and among servers that hang and flap, and clients that drip: what it holds does
//! not grow, and who has nothing to do with it notices nothing.
//!
//! Here for some seconds and without a look at the clock; [`crate::soak`] does the same for long, with figures.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::door::{Door, OWNER, project, until};
use crate::servers::testkit;

/// What a process holds.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) files: usize,
    children: usize,
    pub(crate) resident_kib: i64,
    /// In ticks, of which there are a hundred in a second.
    pub(crate) processor: u64,
}

impl Held {
    pub(crate) fn of(door: &Door) -> Self {
        let process = format!("/proc/{}", door.running.child.id());
        let read = |name: &str| fs_err::read_to_string(format!("{process}/{name}")).unwrap_or_default();
        let resident = read("status")
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
        let tasks = fs_err::read_dir(format!("{process}/task")).into_iter().flatten().flatten();
        let children = tasks.map(|task| read(&format!("task/{}/children", task.file_name().display())));
        Self {
            files: fs_err::read_dir(format!("{process}/fd")).map_or(0, Iterator::count),
            children: children.map(|children| children.split_whitespace().count()).sum(),
            resident_kib: resident.unwrap_or_default(),
            processor: {
                let stat = read("stat");
                let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
                fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
            },
        }
    }

    /// What it holds when nobody wants anything.
    pub(crate) fn at_rest(door: &Door) -> Self {
        door.wait("the end of all calls", |door| {
            door.get("/metrics", OWNER).body.contains("toolgate_calls_running 0")
        });
        Self::of(door)
    }
}

/// Servers over pipes, `s0` and so on; each has the mark of its name in its environment.
pub(crate) fn servers(count: usize) -> Vec<Json> {
    let server = |number: usize| {
        json!({ "name": format!("s{number}"), "command": testkit(), "args": ["faulty"], "mode": "dynamic",
            "env": { "TOOLGATE_TEST_NAME": format!("s{number}-of-{}", std::process::id()) },
            "default_tool_config": { "max_instances": 64, "timeout": "50s" } })
    };
    (0..count).map(server).collect()
}

pub(crate) fn ready(door: &Door, count: usize) {
    door.wait("all servers", |door| {
        let servers = door.get("/v1/servers", OWNER).json();
        let all = servers["servers"].as_array().expect("a list");
        all.iter().filter(|server| server["state"] == "ready").count() == count
    });
}

/// Every twentieth call goes wrong in one of these ways.
const FAULTS: [&str; 4] = ["is-error", "refuse", "raw", "twice"];

/// Calls until it is enough, so many in a second where that is said; gives what came of them, good and bad.
#[expect(clippy::disallowed_methods, reason = "calls come at their real time")]
pub(crate) fn calls(
    door: &Door,
    servers: usize,
    enough: impl Fn(usize) -> bool + Sync,
    rate: Option<f64>,
) -> [usize; 2] {
    let (number, start) = (AtomicUsize::new(0), Instant::now());
    let ended = [AtomicUsize::new(0), AtomicUsize::new(0)];
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let number = number.fetch_add(1, Ordering::Relaxed);
                    if enough(number) {
                        return;
                    }
                    if let Some(rate) = rate {
                        let due = Duration::from_secs_f64(number as f64 / rate);
                        std::thread::sleep(due.saturating_sub(start.elapsed()));
                    }
                    let fault = (number % 20 == 0).then(|| FAULTS[number / 20 % FAULTS.len()]);
                    let arguments = json!({ "message": "not JSON", "fault": fault.unwrap_or("none") });
                    let answer = door.call(OWNER, &format!("s{}__echo", number % servers), &arguments);
                    let good = answer.status == 200;
                    assert_eq!(good, fault.is_none_or(|fault| fault == "twice"), "{fault:?}: {answer:?}");
                    ended[usize::from(!good)].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    ended.map(AtomicUsize::into_inner)
}

/// What it holds after a while is what it held before, but for a little memory.
pub(crate) fn holds_no_more(door: &Door, before: &Held, most_kib: i64) {
    let after = Held::at_rest(door);
    assert!(after.files <= before.files + 8, "{before:?} {after:?}");
    assert_eq!(after.children, before.children, "{before:?} {after:?}");
    assert!(after.resident_kib - before.resident_kib <= most_kib, "{before:?} {after:?}");
    let run = door.program.run("log verify --json");
    assert_eq!(run.json()["whole"], true, "{run}");
}

#[test]
fn a_while_under_faults() {
    let door = Door::of(project(&json!({ "mcps": servers(5) })));
    ready(&door, 5);
    calls(&door, 5, |number| number >= 400, None);
    let before = Held::at_rest(&door);
    let [good, bad] = calls(&door, 5, |number| number >= 1_000, None);
    assert_eq!(good + bad, 1_000);
    assert!(bad > 30, "{bad}");
    holds_no_more(&door, &before, 32 << 10);
}

/// Sends a signal to the first of the servers.
#[expect(clippy::disallowed_methods, reason = "a signal, without unsafe code")]
pub(crate) fn signal_first(name: &str) {
    let mark = format!("TOOLGATE_TEST_NAME=s0-of-{}", std::process::id());
    for process in crate::servers::processes_with(&mark) {
        let sent = Command::new("kill").args([name, &process.to_string()]).status();
        assert!(sent.expect("there is `kill`").success());
    }
}

/// One of many servers stops in the middle of everything. Only who calls it waits.
#[test]
fn a_server_that_hangs_is_in_nobodys_way() {
    let door = Door::of(project(&json!({ "mcps": servers(20) })));
    ready(&door, 20);
    signal_first("-STOP");
    std::thread::scope(|scope| {
        let hangs = scope.spawn(|| door.call(OWNER, "s0__echo", &json!({ "message": "x" })));
        door.wait("the call", |door| door.get("/metrics", OWNER).body.contains("toolgate_calls_running 1"));
        for round in 0..5 {
            for server in 1..20 {
                let answer = door.call(OWNER, &format!("s{server}__echo"), &json!({ "message": "x" }));
                assert_eq!(answer.status, 200, "{round}: {answer:?}");
            }
            let tools = door.get("/v1/tools", OWNER).json();
            assert_eq!(tools["tools"].as_array().map(Vec::len), Some(100), "its tools are still listed");
        }
        assert!(!hangs.is_finished(), "it hangs all the while");
        signal_first("-CONT");
        assert_eq!(hangs.join().expect("it ends").status, 200);
    });
}

/// Servers that come and go are tried again a few times and then now and then, and the others do not notice.
#[test]
#[expect(clippy::disallowed_methods, reason = "pauses between attempts are real")]
fn servers_that_flap() {
    const FLAPPING: usize = 30;
    let over = Arc::new(AtomicBool::new(false));
    let (mut flapping, mut counts) = (json!({}), Vec::new());
    for number in 0..FLAPPING {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let (count, over) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&over));
        counts.push(Arc::clone(&count));
        // Whoever connects is let in, and sent away.
        std::thread::spawn(move || {
            for _ in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::SeqCst);
                if over.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        flapping[format!("f{number}")] =
            json!({ "url": format!("http://127.0.0.1:{port}/mcp"), "startup": "optional" });
    }
    let program = project(&json!({ "mcps": servers(1), "registries": { "mcp": "mcp.json" } }));
    program.write("mcp.json", json!({ "servers": flapping }).to_string());
    let door = Door::of(program);
    let start = Instant::now();
    ready(&door, 1);
    let before = Held::of(&door);
    until("four attempts each", || counts.iter().all(|count| count.load(Ordering::SeqCst) >= 4));
    for _ in 0..50 {
        assert_eq!(door.call(OWNER, "s0__echo", &json!({ "message": "x" })).status, 200);
    }
    let most = counts.iter().map(|count| count.load(Ordering::SeqCst)).max().unwrap_or_default();
    // Two connections for an attempt: the newest revision is asked for, and then the one before.
    let due = 2 * (4 + usize::try_from(start.elapsed().as_secs()).expect("not for ever") + 1);
    assert!(most <= due, "{most} connections, {due} at most");
    let after = Held::of(&door);
    assert!(after.files <= before.files + FLAPPING + 8, "{before:?} {after:?}");
    assert!(after.resident_kib <= before.resident_kib + (128 << 10), "{before:?} {after:?}");
    over.store(true, Ordering::SeqCst);
}

/// Hundreds that send a head byte by byte and never come to its end: they are closed, and others are served meanwhile.
#[test]
#[expect(clippy::disallowed_methods, reason = "what is too slow takes real time")]
fn many_that_drip() {
    const DRIPPING: usize = 400;
    let door = Door::open(&json!({}));
    assert_eq!(door.call(OWNER, "echo", &json!({ "message": "x" })).status, 200);
    let before = Held::at_rest(&door);
    let mut dripping: Vec<_> = (0..DRIPPING).map(|_| door.connect()).collect();
    let head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ";
    let start = Instant::now();
    for stream in &mut dripping {
        stream.write_all(head).expect("it is sent");
    }
    for round in 0..10 {
        for stream in &mut dripping {
            // Whom it has closed already cannot be written to.
            let _ = stream.write_all(b"x");
        }
        for _ in 0..10 {
            assert_eq!(door.call(OWNER, "echo", &json!({ "message": "x" })).status, 200, "{round}");
        }
    }
    let during = Held::of(&door);
    assert!(during.resident_kib <= before.resident_kib + (64 << 10), "{before:?} {during:?}");
    for mut stream in dripping {
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 408"), "{}", said.escape_ascii());
        // Each has six to ten seconds; what is more is the machine's.
        let held = start.elapsed();
        assert!((5..20).contains(&held.as_secs()), "{held:?}");
    }
    door.wait("their places", |door| Held::of(door).files <= before.files + 8);
}
