//! The gateway under load, with servers that hang or flap and slow clients: its resource usage does not grow, and other
//! calls are not affected.
//!
//! These tests take seconds and assert no times; [`crate::gateway::soak`] runs the same loads for long and prints
//! figures.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, project, wait_until};
use crate::support::test_server::testkit;

/// Resource usage of a process.
#[derive(Debug)]
pub(crate) struct ResourceUsage {
    pub(crate) files: usize,
    children: usize,
    pub(crate) resident_kib: i64,
    /// CPU time in ticks of 10 ms.
    pub(crate) processor: u64,
}

impl ResourceUsage {
    pub(crate) fn of(gateway: &Gateway) -> Self {
        let process = format!("/proc/{}", gateway.running.child.id());
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

    /// Returns the usage of an idle gateway.
    pub(crate) fn at_rest(gateway: &Gateway) -> Self {
        gateway.wait("the end of all calls", |gateway| {
            gateway.get("/metrics", OWNER).body.contains("toolgate_calls_running 0")
        });
        Self::of(gateway)
    }
}

/// Returns `count` stdio servers named `s0` and so on; each has its name in its environment.
pub(crate) fn servers(count: usize) -> Vec<Json> {
    let server = |number: usize| {
        json!({ "name": format!("s{number}"), "command": testkit(), "args": ["faulty"], "mode": "dynamic",
            "env": { "TOOLGATE_TEST_NAME": format!("s{number}-of-{}", std::process::id()) },
            "default_tool_config": { "max_instances": 64, "timeout": "50s" } })
    };
    (0..count).map(server).collect()
}

pub(crate) fn ready(gateway: &Gateway, count: usize) {
    gateway.wait("all servers", |gateway| {
        let servers = gateway.get("/v1/servers", OWNER).json();
        let all = servers["servers"].as_array().expect("a list");
        all.iter().filter(|server| server["state"] == "ready").count() == count
    });
}

/// Every twentieth call has one of these faults.
const FAULTS: [&str; 4] = ["is-error", "refuse", "raw", "twice"];

/// Makes calls until `enough`, at a rate if given; returns the numbers of successes and failures.
#[expect(clippy::disallowed_methods, reason = "calls come at their real time")]
pub(crate) fn calls(
    gateway: &Gateway,
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
                    let answer = gateway.call(OWNER, &format!("s{}__echo", number % servers), &arguments);
                    let good = answer.status == 200;
                    assert_eq!(good, fault.is_none_or(|fault| fault == "twice"), "{fault:?}: {answer:?}");
                    ended[usize::from(!good)].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    ended.map(AtomicUsize::into_inner)
}

/// Fails if the usage has grown, except for a little memory.
pub(crate) fn holds_no_more(gateway: &Gateway, before: &ResourceUsage, most_kib: i64) {
    let after = ResourceUsage::at_rest(gateway);
    assert!(after.files <= before.files + 8, "{before:?} {after:?}");
    assert_eq!(after.children, before.children, "{before:?} {after:?}");
    assert!(after.resident_kib - before.resident_kib <= most_kib, "{before:?} {after:?}");
    let run = gateway.program.run("log verify --json");
    assert_eq!(run.json()["whole"], true, "{run}");
}

#[test]
fn usage_does_not_grow_under_faults() {
    let gateway = Gateway::serve(project(&json!({ "mcps": servers(5) })));
    ready(&gateway, 5);
    calls(&gateway, 5, |number| number >= 400, None);
    let before = ResourceUsage::at_rest(&gateway);
    let [good, bad] = calls(&gateway, 5, |number| number >= 1_000, None);
    assert_eq!(good + bad, 1_000);
    assert!(bad > 30, "{bad}");
    holds_no_more(&gateway, &before, 32 << 10);
}

/// Sends a signal to the first server.
#[expect(clippy::disallowed_methods, reason = "a signal, without unsafe code")]
pub(crate) fn signal_first(name: &str) {
    let mark = format!("TOOLGATE_TEST_NAME=s0-of-{}", std::process::id());
    for process in crate::support::test_server::processes_with(&mark) {
        let sent = Command::new("kill").args([name, &process.to_string()]).status();
        assert!(sent.expect("`kill` is installed").success());
    }
}

/// One of many servers hangs. Only its own calls wait.
#[test]
fn a_hanging_server_delays_only_its_own_calls() {
    let gateway = Gateway::serve(project(&json!({ "mcps": servers(20) })));
    ready(&gateway, 20);
    signal_first("-STOP");
    std::thread::scope(|scope| {
        let hangs = scope.spawn(|| gateway.call(OWNER, "s0__echo", &json!({ "message": "x" })));
        gateway.wait("the call", |gateway| {
            gateway.get("/metrics", OWNER).body.contains("toolgate_calls_running 1")
        });
        for round in 0..5 {
            for server in 1..20 {
                let answer = gateway.call(OWNER, &format!("s{server}__echo"), &json!({ "message": "x" }));
                assert_eq!(answer.status, 200, "{round}: {answer:?}");
            }
            let tools = gateway.get("/v1/tools", OWNER).json();
            assert_eq!(tools["tools"].as_array().map(Vec::len), Some(100), "its tools are still listed");
        }
        assert!(!hangs.is_finished(), "it hangs all the while");
        signal_first("-CONT");
        assert_eq!(hangs.join().expect("it ends").status, 200);
    });
}

/// Flapping servers are retried with backoff, and other servers are not affected.
#[test]
#[expect(clippy::disallowed_methods, reason = "pauses between attempts are real")]
fn flapping_servers_are_retried_with_backoff() {
    const FLAPPING: usize = 30;
    let over = Arc::new(AtomicBool::new(false));
    let (mut flapping, mut counts) = (json!({}), Vec::new());
    for number in 0..FLAPPING {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let (count, over) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&over));
        counts.push(Arc::clone(&count));
        // Connections are accepted and closed.
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
    let gateway = Gateway::serve(program);
    let start = Instant::now();
    ready(&gateway, 1);
    let before = ResourceUsage::of(&gateway);
    wait_until("four attempts each", || counts.iter().all(|count| count.load(Ordering::SeqCst) >= 4));
    for _ in 0..50 {
        assert_eq!(gateway.call(OWNER, "s0__echo", &json!({ "message": "x" })).status, 200);
    }
    let most = counts.iter().map(|count| count.load(Ordering::SeqCst)).max().unwrap_or_default();
    // Each attempt makes two connections: for the newest revision, then for the previous one.
    let due = 2 * (4 + usize::try_from(start.elapsed().as_secs()).expect("not for ever") + 1);
    assert!(most <= due, "{most} connections, {due} at most");
    let after = ResourceUsage::of(&gateway);
    assert!(after.files <= before.files + FLAPPING + 8, "{before:?} {after:?}");
    assert!(after.resident_kib <= before.resident_kib + (128 << 10), "{before:?} {after:?}");
    over.store(true, Ordering::SeqCst);
}

/// Hundreds of clients send their request heads byte by byte: they time out, and other clients are served meanwhile.
#[test]
#[expect(clippy::disallowed_methods, reason = "what is too slow takes real time")]
fn slow_clients_time_out() {
    const DRIPPING: usize = 400;
    let gateway = Gateway::start(&json!({}));
    assert_eq!(gateway.call(OWNER, "echo", &json!({ "message": "x" })).status, 200);
    let before = ResourceUsage::at_rest(&gateway);
    let mut dripping: Vec<_> = (0..DRIPPING).map(|_| gateway.connect()).collect();
    let head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ";
    let start = Instant::now();
    for stream in &mut dripping {
        stream.write_all(head).expect("it is sent");
    }
    for round in 0..10 {
        for stream in &mut dripping {
            // Writes to closed connections fail.
            let _ = stream.write_all(b"x");
        }
        for _ in 0..10 {
            assert_eq!(gateway.call(OWNER, "echo", &json!({ "message": "x" })).status, 200, "{round}");
        }
    }
    let during = ResourceUsage::of(&gateway);
    assert!(during.resident_kib <= before.resident_kib + (64 << 10), "{before:?} {during:?}");
    for mut stream in dripping {
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        assert!(response.is_empty() || response.starts_with(b"HTTP/1.1 408"), "{}", response.escape_ascii());
        // Each gets six to ten seconds; the rest is slack for a busy machine.
        let held = start.elapsed();
        assert!((5..20).contains(&held.as_secs()), "{held:?}");
    }
    gateway.wait("their places", |gateway| ResourceUsage::of(gateway).files <= before.files + 8);
}
