//! The loads of [`crate::loads`] as large and as long as they are meant to be; `cargo xtask soak` runs them.
//!
//! Each prints its figures beside its bars. What is held is asserted; times are not, since they are the machine's as well.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::door::{Door, OWNER, project};
use crate::loads::{Held, calls, holds_no_more, ready, servers, signal_first};

/// How long one is to run: what the variable says, or what it is meant to.
fn span(seconds: u64) -> Duration {
    let said = std::env::var("TOOLGATE_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(said.unwrap_or(seconds))
}

/// How many there are: as many as are meant, or that part of them.
fn size(whole: usize) -> usize {
    let part = std::env::var("TOOLGATE_SOAK_PART").ok().and_then(|text| text.parse::<usize>().ok());
    whole / part.unwrap_or(1)
}

/// How long calls took.
#[derive(Default)]
struct Times(Mutex<Vec<Duration>>);

impl Times {
    /// The time within which so many of a hundred ended.
    fn within(&self, of_hundred: usize) -> Duration {
        let mut all = self.0.lock().expect("nobody panics with it").clone();
        all.sort_unstable();
        all.get((all.len() * of_hundred / 100).min(all.len().saturating_sub(1))).copied().unwrap_or_default()
    }

    fn shown(&self) -> String {
        let count = self.0.lock().expect("nobody panics with it").len();
        let [half, most, all] = [50, 99, 100].map(|part| self.within(part));
        format!("{count} calls, p50 {half:.1?}, p99 {most:.1?}, {all:.1?} at most")
    }
}

/// Does something so many times in a second, for so long; says how long each took.
#[expect(clippy::disallowed_methods, reason = "calls come at their real time, and time is what is measured")]
fn steady(rate: f64, long: Duration, one: impl Fn(usize) + Sync) -> Times {
    let (times, number, start) = (Times::default(), AtomicUsize::new(0), Instant::now());
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
                    times.0.lock().expect("nobody panics with it").push(began.elapsed());
                }
            });
        }
    });
    times
}

fn good_call(door: &Door, tool: &str) {
    let answer = door.call(OWNER, tool, &json!({ "message": "x" }));
    assert_eq!(answer.status, 200, "{tool}: {answer:?}");
}

/// Fifty servers, 300 calls a second, every twentieth of which goes wrong.
#[test]
#[ignore = "takes an hour"]
#[expect(clippy::disallowed_methods, reason = "an hour is an hour")]
fn an_hour_under_faults() {
    let whole = span(3_600);
    let door = Door::of(project(&json!({ "mcps": servers(50) })));
    ready(&door, 50);
    let start = Instant::now();
    calls(&door, 50, |_| start.elapsed() >= whole / 6, Some(300.0));
    let before = Held::at_rest(&door);
    let began = Instant::now();
    let [good, bad] = calls(&door, 50, |_| start.elapsed() >= whole, Some(300.0));
    let rate = (good + bad) as f64 / began.elapsed().as_secs_f64();
    eprintln!(
        "{good} good calls, {bad} bad, {rate:.0} a second; before {before:?}, after {:?}",
        Held::at_rest(&door)
    );
    holds_no_more(&door, &before, 8 << 10);
}

/// A hundred servers, one of which stops: 500 calls a second to the others, and ten lists.
#[test]
#[ignore = "takes a minute"]
fn one_of_a_hundred_hangs() {
    let (count, long) = (size(100), span(60) / 2);
    let door = Door::of(project(&json!({ "mcps": servers(count) })));
    ready(&door, count);
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
                steady(10.0, long, |_| assert_eq!(door.request("POST /mcp", &headers, &list).status, 200))
            });
            let other = |number: usize| format!("s{}__echo", 1 + number % (count - 1));
            let calls = steady(500.0, long, |number| good_call(&door, &other(number)));
            (calls, lists.join().expect("it ends"))
        })
    };
    let idle = both();
    signal_first("-STOP");
    std::thread::scope(|scope| {
        let hangs = scope.spawn(|| door.call(OWNER, "s0__echo", &json!({ "message": "x" })).status);
        door.wait("the call", |door| door.get("/metrics", OWNER).body.contains("toolgate_calls_running 1"));
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

/// An MCP server in this process that is there for two seconds, and away for two.
struct Flapping {
    port: u16,
    /// When somebody tried to connect, in milliseconds since the beginning: in vain, or with the first request of a
    /// handshake. Every request has a connection of its own here.
    connects: Arc<Mutex<Vec<u128>>>,
}

/// How long one is there, and how long it is away.
const FLAP: Duration = Duration::from_secs(2);

impl Flapping {
    fn start(number: usize, start: Instant, over: &Arc<AtomicBool>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let connects = Arc::new(Mutex::new(Vec::new()));
        let (seen, over) = (Arc::clone(&connects), Arc::clone(over));
        // Each has its own time, so that they do not all go at once.
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
                    move || seen.lock().expect("nobody panics with it").push(start.elapsed().as_millis());
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

/// Answers one request; holds the stream that a client listens on, as long as the server is there.
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

/// A thousand servers that are there for two seconds and away for two, for ten minutes.
#[test]
#[ignore = "takes ten minutes"]
#[expect(clippy::disallowed_methods, reason = "ten minutes are ten minutes")]
fn a_thousand_servers_flap() {
    let (count, long) = (size(1_000), span(600));
    let (start, over) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let all: Vec<_> = (0..count).map(|number| Flapping::start(number, start, &over)).collect();
    let mut flapping = json!({});
    for (number, one) in all.iter().enumerate() {
        let url = format!("http://127.0.0.1:{}/mcp", one.port);
        flapping[format!("f{number}")] = json!({ "url": url, "startup": "optional" });
    }
    let alone = Door::of(project(&json!({ "mcps": servers(1) })));
    ready(&alone, 1);
    let idle = steady(50.0, Duration::from_secs(10), |_| good_call(&alone, "echo"));
    let resident = Held::at_rest(&alone).resident_kib;
    drop(alone);
    let program = project(&json!({ "mcps": servers(1), "registries": { "mcp": "mcp.json" } }));
    program.write("mcp.json", json!({ "servers": flapping }).to_string());
    let door = Door::of(program);
    door.wait("the first server", |door| {
        door.call(OWNER, "s0__echo", &json!({ "message": "x" })).status == 200
    });
    let (began, before) = (start.elapsed().as_millis(), Held::of(&door));
    let busy = steady(50.0, long, |_| good_call(&door, "s0__echo"));
    let (ended, after) = (start.elapsed().as_millis(), Held::of(&door));
    let seconds = (ended - began) as f64 / 1_000.0;
    // Pauses grow in the first minutes, and with them what is usual.
    let settled = began + (ended - began) / 3;
    let mut times: Vec<u128> = all
        .iter()
        .flat_map(|one| one.connects.lock().expect("nobody panics with it").clone())
        .filter(|at| (settled..ended).contains(at))
        .collect();
    times.sort_unstable();
    let most = times.chunk_by(|one, next| one / 100 == next / 100).map(<[u128]>::len).max().unwrap_or(0);
    let mean = times.len() as f64 / (seconds / 1.5 * 10.0);
    let outages = seconds / 1.5 / (2.0 * FLAP.as_secs_f64()) * count as f64;
    let cores = (after.processor - before.processor) as f64 / 100.0 / seconds;
    eprintln!("alone: {}; among {count} that flap: {}; bar: 1.5 times the p99", idle.shown(), busy.shown());
    eprintln!(
        "{:.1} attempts for each outage; {most} at most in 100 ms, {mean:.1} in the mean; bar: 3 times",
        times.len() as f64 / outages
    );
    eprintln!(
        "{cores:.2} cores, bar: 1; {} MiB more than without them, bar: 128; {} files before, {} after",
        (after.resident_kib - resident) >> 10,
        before.files,
        after.files
    );
    over.store(true, Ordering::SeqCst);
    assert!(after.resident_kib - resident <= 128 << 10, "{resident} KiB alone, {after:?}");
    assert!(after.files <= before.files.max(3 * count) + 64, "{before:?} {after:?}");
}

/// Five thousand that send a byte of a head every five seconds, and come again when they are closed.
#[test]
#[ignore = "takes a minute"]
#[expect(clippy::disallowed_methods, reason = "what is too slow takes real time")]
fn five_thousand_drip() {
    const THREADS: usize = 4;
    let (count, long) = (size(5_000), span(60));
    let room = json!({ "max_connections": count + 500, "max_connections_per_address": count + 400 });
    let door = Door::open(&json!({ "serve": room }));
    let idle = steady(200.0, Duration::from_secs(10), |_| good_call(&door, "echo"));
    let before = Held::at_rest(&door);
    let (over, oldest) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let (most, closed, slowest) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Duration::ZERO));
    let came = AtomicUsize::new(0);
    let busy = std::thread::scope(|scope| {
        for _ in 0..THREADS {
            // One opens and another watches: who waits for a connection cannot see when the others end.
            let (opened, fresh) = std::sync::mpsc::channel();
            let (ended, gone) = std::sync::mpsc::channel();
            (0..count / THREADS).for_each(|_| ended.send(()).expect("it is here"));
            scope.spawn(|| {
                let opened = opened;
                for () in gone {
                    let since = Instant::now();
                    let mut stream = door.connect();
                    let mut slowest = slowest.lock().expect("nobody panics with it");
                    *slowest = slowest.max(since.elapsed());
                    drop(slowest);
                    let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ");
                    let _ = stream.set_nonblocking(true);
                    came.fetch_add(1, Ordering::Relaxed);
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
                        // Each at its own time, ten a second and a byte in five, or the looks at all of them would be
                        // what the good calls wait for.
                        number += 1;
                        if !(round + number).is_multiple_of(10) {
                            return true;
                        }
                        if (round + number).is_multiple_of(500) {
                            let _ = stream.write_all(b"x");
                        }
                        // Until it is closed there is nothing to read; a goodbye may come first.
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
                oldest.lock().expect("nobody panics with it").push(lived);
            });
        }
        let watched = scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let held = usize::try_from(Held::of(&door).resident_kib).unwrap_or_default();
                most.fetch_max(held, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(250));
            }
        });
        // What is measured is how it is among them, not how all of them come at once.
        while came.load(Ordering::Relaxed) < count {
            std::thread::sleep(Duration::from_millis(10));
        }
        let busy = steady(200.0, long, |_| good_call(&door, "echo"));
        over.store(true, Ordering::SeqCst);
        watched.join().expect("it ends");
        busy
    });
    let more = (i64::try_from(most.into_inner()).unwrap_or_default() - before.resident_kib) >> 10;
    let lived = oldest.into_inner().expect("nobody panics with it").into_iter().max().unwrap_or_default();
    let closed = closed.into_inner();
    eprintln!("nobody drips: {}; {count} drip: {}; bar: twice the p99", idle.shown(), busy.shown());
    let slowest = slowest.into_inner().expect("nobody panics with it");
    eprintln!(
        "{closed} were closed, each within {lived:.1?} of its opening, bar: 11s; {slowest:.1?} at most to open one"
    );
    eprintln!("{more} MiB more at most, bar: 64");
    // Nobody needs to be closed before ten seconds.
    assert!(closed >= count || long < Duration::from_secs(12), "each of them was closed: {closed}");
    assert!(more <= 64, "{more} MiB");
}
