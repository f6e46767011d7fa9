//! The loads of [`crate::gateway::load`] in full size and duration; `cargo xtask soak` runs them.
//!
//! Each prints its figures next to the targets. Resource usage is asserted; times are not, because they depend on the
//! machine.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::gateway::load::{ResourceUsage, calls, holds_no_more, ready, servers, signal_first};
use crate::support::gateway::{Gateway, OWNER, project};

/// Returns the duration: `TOOLGATE_SOAK_SECONDS`, or the default.
fn span(seconds: u64) -> Duration {
    let configured = std::env::var("TOOLGATE_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(configured.unwrap_or(seconds))
}

/// Returns the full size, or the configured fraction of it.
fn size(whole: usize) -> usize {
    let part = std::env::var("TOOLGATE_SOAK_PART").ok().and_then(|text| text.parse::<usize>().ok());
    whole / part.unwrap_or(1)
}

/// Latencies of calls.
#[derive(Default)]
struct Latencies(Mutex<Vec<Duration>>);

impl Latencies {
    /// Returns a percentile.
    fn within(&self, of_hundred: usize) -> Duration {
        let mut all = self.0.lock().expect("the lock is not poisoned").clone();
        all.sort_unstable();
        all.get((all.len() * of_hundred / 100).min(all.len().saturating_sub(1))).copied().unwrap_or_default()
    }

    fn shown(&self) -> String {
        let count = self.0.lock().expect("the lock is not poisoned").len();
        let [half, most, all] = [50, 99, 100].map(|part| self.within(part));
        format!("{count} calls, p50 {half:.1?}, p99 {most:.1?}, {all:.1?} at most")
    }
}

/// Runs `one` at a fixed rate for a duration and records the latencies.
#[expect(clippy::disallowed_methods, reason = "calls come at their real time, and time is what is measured")]
fn steady(rate: f64, long: Duration, one: impl Fn(usize) + Sync) -> Latencies {
    let (times, number, start) = (Latencies::default(), AtomicUsize::new(0), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let number = number.fetch_add(1, Ordering::Relaxed);
                    let due = Duration::from_secs_f64(number as f64 / rate);
                    if due >= long {
                        return;
                    }
                    std::thread::sleep(due.saturating_sub(start.elapsed()));
                    let began = Instant::now();
                    one(number);
                    times.0.lock().expect("the lock is not poisoned").push(began.elapsed());
                }
            });
        }
    });
    times
}

fn good_call(gateway: &Gateway, tool: &str) {
    let answer = gateway.call(OWNER, tool, &json!({ "message": "x" }));
    assert_eq!(answer.status, 200, "{tool}: {answer:?}");
}

/// 50 servers, 300 calls a second, every twentieth with a fault.
#[test]
#[ignore = "takes an hour"]
#[expect(clippy::disallowed_methods, reason = "an hour is an hour")]
fn an_hour_under_faults() {
    let whole = span(3_600);
    let gateway = Gateway::serve(project(&json!({ "mcps": servers(50) })));
    ready(&gateway, 50);
    let start = Instant::now();
    calls(&gateway, 50, |_| start.elapsed() >= whole / 6, Some(300.0));
    let before = ResourceUsage::at_rest(&gateway);
    let began = Instant::now();
    let [good, bad] = calls(&gateway, 50, |_| start.elapsed() >= whole, Some(300.0));
    let rate = (good + bad) as f64 / began.elapsed().as_secs_f64();
    eprintln!(
        "{good} good calls, {bad} bad, {rate:.0} a second; before {before:?}, after {:?}",
        ResourceUsage::at_rest(&gateway)
    );
    holds_no_more(&gateway, &before, 8 << 10);
}

/// 100 servers, one of which hangs: 500 calls a second to the others, and ten lists.
#[test]
#[ignore = "takes a minute"]
fn one_of_a_hundred_hangs() {
    let (count, long) = (size(100), span(60) / 2);
    let gateway = Gateway::serve(project(&json!({ "mcps": servers(count) })));
    ready(&gateway, count);
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {} } } })
    .to_string();
    let key = format!("X-API-Key: {OWNER}");
    let headers = [
        key.as_str(),
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        "MCP-Protocol-Version: 2026-07-28",
        "Mcp-Method: tools/list",
    ];
    let both = || {
        std::thread::scope(|scope| {
            let lists = scope.spawn(|| {
                steady(10.0, long, |_| assert_eq!(gateway.request("POST /mcp", &headers, &list).status, 200))
            });
            let other = |number: usize| format!("s{}__echo", 1 + number % (count - 1));
            let calls = steady(500.0, long, |number| good_call(&gateway, &other(number)));
            (calls, lists.join().expect("it ends"))
        })
    };
    let idle = both();
    signal_first("-STOP");
    std::thread::scope(|scope| {
        let hangs = scope.spawn(|| gateway.call(OWNER, "s0__echo", &json!({ "message": "x" })).status);
        gateway.wait("the call", |gateway| {
            gateway.get("/metrics", OWNER).body.contains("toolgate_calls_running 1")
        });
        let hung = both();
        eprintln!("all well:  {}; lists: {}", idle.0.shown(), idle.1.shown());
        eprintln!("one hangs: {}; lists: {}", hung.0.shown(), hung.1.shown());
        eprintln!(
            "bars: p99 at most {:.1?}, that of lists at most 5ms",
            idle.0.within(99).mul_f64(1.1) + Duration::from_millis(1)
        );
        signal_first("-CONT");
        let ended = hangs.join().expect("it ends");
        assert!([200, 504].contains(&ended), "it went on, or had waited too long: {ended}");
    });
}

/// An MCP server in this process that is up for two seconds and down for two.
struct FlappingServer {
    port: u16,
    /// Times of connection attempts in milliseconds since the start: failed ones, or the first request of a handshake.
    /// Every request has its own connection here.
    connects: Arc<Mutex<Vec<u128>>>,
}

/// Duration of each up and down phase.
const FLAP: Duration = Duration::from_secs(2);

impl FlappingServer {
    fn start(number: usize, start: Instant, over: &Arc<AtomicBool>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let connects = Arc::new(Mutex::new(Vec::new()));
        let (seen, over) = (Arc::clone(&connects), Arc::clone(over));
        // Each has its own phase, so that they do not all flap at once.
        let shift = Duration::from_millis((number * 37 % 4_000) as u64);
        let is_there = move || ((start.elapsed() + shift).as_millis() / FLAP.as_millis()).is_multiple_of(2);
        let small = || std::thread::Builder::new().stack_size(128 << 10);
        let accept = move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let seen = Arc::clone(&seen);
                let tried =
                    move || seen.lock().expect("the lock is not poisoned").push(start.elapsed().as_millis());
                if is_there() {
                    let over = Arc::clone(&over);
                    let goes_on = move || is_there() && !over.load(Ordering::SeqCst);
                    small().spawn(move || drop(answer(stream, goes_on, tried))).expect("a thread");
                } else {
                    tried();
                }
            }
        };
        small().spawn(accept).expect("a thread");
        Self { port, connects }
    }
}

/// Answers one request; holds listening streams open while the server is up.
fn answer(mut stream: TcpStream, is_there: impl Fn() -> bool, tried: impl Fn()) -> std::io::Result<()> {
    stream.set_read_timeout(Some(FLAP))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut head, mut line) = (String::new(), String::new());
    while reader.read_line(&mut line)? > 2 {
        head.push_str(&line.to_ascii_lowercase());
        line.clear();
    }
    if head.starts_with("get") {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")?;
        while is_there() {
            std::thread::sleep(Duration::from_millis(50));
        }
        return Ok(());
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    let message: Json = serde_json::from_slice(&body).unwrap_or_default();
    if message["method"] == "server/discover" {
        tried();
    }
    let result = match message["method"].as_str() {
        Some("initialize") => json!({ "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": { "tools": {} }, "serverInfo": { "name": "f", "version": "1" } }),
        Some("tools/list") => json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] }),
        _ => Json::Null,
    };
    let (status, text) = match (&message["id"], &result) {
        (Json::Null, _) => ("202 Accepted", String::new()),
        (id, Json::Null) => {
            let error = json!({ "code": -32601, "message": "what?" });
            ("200 OK", json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string())
        }
        (id, _) => ("200 OK", json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string()),
    };
    let length = text.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}"
    )
}

/// 1,000 servers that are up for two seconds and down for two, for ten minutes.
#[test]
#[ignore = "takes ten minutes"]
#[expect(clippy::disallowed_methods, reason = "ten minutes are ten minutes")]
fn a_thousand_servers_flap() {
    let (count, long) = (size(1_000), span(600));
    let (start, over) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let all: Vec<_> = (0..count).map(|number| FlappingServer::start(number, start, &over)).collect();
    let mut flapping = json!({});
    for (number, one) in all.iter().enumerate() {
        let url = format!("http://127.0.0.1:{}/mcp", one.port);
        flapping[format!("f{number}")] = json!({ "url": url, "startup": "optional" });
    }
    let alone = Gateway::serve(project(&json!({ "mcps": servers(1) })));
    ready(&alone, 1);
    let idle = steady(50.0, Duration::from_secs(10), |_| good_call(&alone, "echo"));
    let resident = ResourceUsage::at_rest(&alone).resident_kib;
    drop(alone);
    let program = project(&json!({ "mcps": servers(1), "registries": { "mcp": "mcp.json" } }));
    program.write("mcp.json", json!({ "servers": flapping }).to_string());
    let gateway = Gateway::serve(program);
    gateway.wait("the first server", |gateway| {
        gateway.call(OWNER, "s0__echo", &json!({ "message": "x" })).status == 200
    });
    let (began, before) = (start.elapsed().as_millis(), ResourceUsage::of(&gateway));
    let busy = steady(50.0, long, |_| good_call(&gateway, "s0__echo"));
    let (ended, after) = (start.elapsed().as_millis(), ResourceUsage::of(&gateway));
    let seconds = (ended - began) as f64 / 1_000.0;
    // The backoff grows in the first minutes.
    let settled = began + (ended - began) / 3;
    let mut times: Vec<u128> = all
        .iter()
        .flat_map(|one| one.connects.lock().expect("the lock is not poisoned").clone())
        .filter(|at| (settled..ended).contains(at))
        .collect();
    times.sort_unstable();
    let most = times.chunk_by(|one, next| one / 100 == next / 100).map(<[u128]>::len).max().unwrap_or(0);
    let mean = times.len() as f64 / (seconds / 1.5 * 10.0);
    let outages = seconds / 1.5 / (2.0 * FLAP.as_secs_f64()) * count as f64;
    let cores = (after.processor - before.processor) as f64 / 100.0 / seconds;
    eprintln!(
        "alone: {}; among {count} that flap: {}; target: 1.5 times the p99",
        idle.shown(),
        busy.shown()
    );
    eprintln!(
        "{:.1} attempts for each outage; {most} at most in 100 ms, {mean:.1} in the mean; target: 3 times",
        times.len() as f64 / outages
    );
    eprintln!(
        "{cores:.2} cores, target: 1; {} MiB more than without them, target: 128; {} files before, {} after",
        (after.resident_kib - resident) >> 10,
        before.files,
        after.files
    );
    over.store(true, Ordering::SeqCst);
    assert!(after.resident_kib - resident <= 128 << 10, "{resident} KiB alone, {after:?}");
    assert!(after.files <= before.files.max(3 * count) + 64, "{before:?} {after:?}");
}

/// 5,000 clients send one byte of their request head every five seconds, and reconnect when closed.
#[test]
#[ignore = "takes a minute"]
#[expect(clippy::disallowed_methods, reason = "what is too slow takes real time")]
fn five_thousand_drip() {
    const THREADS: usize = 4;
    let (count, long) = (size(5_000), span(60));
    let room = json!({ "max_connections": count + 500, "max_connections_per_address": count + 400 });
    let gateway = Gateway::start(&json!({ "serve": room }));
    let idle = steady(200.0, Duration::from_secs(10), |_| good_call(&gateway, "echo"));
    let before = ResourceUsage::at_rest(&gateway);
    let (over, oldest) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let (most, closed, slowest) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Duration::ZERO));
    let saw = AtomicUsize::new(0);
    let busy = std::thread::scope(|scope| {
        for _ in 0..THREADS {
            // One thread connects and another reads: a blocking connect would hide when others are closed.
            let (opened, fresh) = std::sync::mpsc::channel();
            let (ended, gone) = std::sync::mpsc::channel();
            (0..count / THREADS).for_each(|_| ended.send(()).expect("it is here"));
            scope.spawn(|| {
                let opened = opened;
                for () in gone {
                    let since = Instant::now();
                    let mut stream = gateway.connect();
                    let mut slowest = slowest.lock().expect("the lock is not poisoned");
                    *slowest = slowest.max(since.elapsed());
                    drop(slowest);
                    let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ");
                    let _ = stream.set_nonblocking(true);
                    saw.fetch_add(1, Ordering::Relaxed);
                    if opened.send((stream, since)).is_err() {
                        break;
                    }
                }
            });
            scope.spawn(|| {
                let (fresh, ended) = (fresh, ended);
                let (mut all, mut lived) = (Vec::new(), Duration::ZERO);
                for round in 0_u32.. {
                    if over.load(Ordering::SeqCst) {
                        break;
                    }
                    all.extend(fresh.try_iter());
                    let mut number = 0;
                    all.retain_mut(|(stream, since): &mut (TcpStream, Instant)| {
                        // Each at its own time, ten a second: polling all at once would delay the measured calls.
                        number += 1;
                        if !(round + number).is_multiple_of(10) {
                            return true;
                        }
                        if (round + number).is_multiple_of(500) {
                            let _ = stream.write_all(b"x");
                        }
                        // Until the connection is closed there is nothing to read; a 408 may come first.
                        let is_over = loop {
                            match stream.read(&mut [0; 512]) {
                                Ok(0) => break true,
                                Ok(_) => {}
                                Err(error) => break error.kind() != std::io::ErrorKind::WouldBlock,
                            }
                        };
                        if is_over {
                            lived = lived.max(since.elapsed());
                            closed.fetch_add(1, Ordering::Relaxed);
                            let _ = ended.send(());
                        }
                        !is_over
                    });
                    std::thread::sleep(Duration::from_millis(10));
                }
                oldest.lock().expect("the lock is not poisoned").push(lived);
            });
        }
        let watched = scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let held = usize::try_from(ResourceUsage::of(&gateway).resident_kib).unwrap_or_default();
                most.fetch_max(held, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(250));
            }
        });
        // The steady state is measured, not the connection burst at the start.
        while saw.load(Ordering::Relaxed) < count {
            std::thread::sleep(Duration::from_millis(10));
        }
        let busy = steady(200.0, long, |_| good_call(&gateway, "echo"));
        over.store(true, Ordering::SeqCst);
        watched.join().expect("it ends");
        busy
    });
    let more = (i64::try_from(most.into_inner()).unwrap_or_default() - before.resident_kib) >> 10;
    let lived = oldest.into_inner().expect("the lock is not poisoned").into_iter().max().unwrap_or_default();
    let closed = closed.into_inner();
    eprintln!(
        "without slow clients: {}; with {count}: {}; target: twice the p99",
        idle.shown(),
        busy.shown()
    );
    let slowest = slowest.into_inner().expect("the lock is not poisoned");
    eprintln!(
        "{closed} were closed, each within {lived:.1?} of its opening, target: 11s; {slowest:.1?} at most to open one"
    );
    eprintln!("{more} MiB more at most, target: 64");
    // No connection is closed before ten seconds have passed.
    assert!(closed >= count || long < Duration::from_secs(12), "each of them was closed: {closed}");
    assert!(more <= 64, "{more} MiB");
}
