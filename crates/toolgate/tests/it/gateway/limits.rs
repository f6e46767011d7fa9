//! Limits: concurrency, rates, connections, and clients that disconnect or stall.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, HttpResponse, OWNER, project, request, wait_until};

/// Two callers, with the keys `key-of-ann` and `key-of-bob`.
fn two_callers() -> Json {
    json!([
        { "id": "ann", "permissions": ["s:*"], "api_key": "key-of-ann" },
        { "id": "bob", "permissions": ["s:*"], "api_key": "key-of-bob" },
    ])
}

/// Ten calls run, some wait, and the rest gets 429 with `Retry-After`; two callers share the slots.
#[test]
fn five_hundred_concurrent_calls() {
    const SLOW: u64 = 200;
    let gateway = Gateway::start(&json!({ "max_concurrent": 10, "callers": two_callers() }));
    let slow = json!({ "fault": "late", "after": SLOW });
    let keys = ["key-of-ann", "key-of-bob"];
    let good = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let full = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for n in 0..500 {
            let (gateway, slow, good, full) = (&gateway, &slow, &good, &full);
            scope.spawn(move || {
                let answer = gateway.call(keys[n % 2], "echo", slow);
                match answer.status_and_code() {
                    (200, _) => good[n % 2].fetch_add(1, Ordering::Relaxed),
                    (429, code) => {
                        assert_eq!(code, "overloaded");
                        assert_eq!(answer.header("retry-after"), Some("1"), "{answer:?}");
                        full.fetch_add(1, Ordering::Relaxed)
                    }
                    _ => panic!("{answer:?}"),
                };
            });
        }
    });
    let [ann, bob] = good.map(AtomicUsize::into_inner);
    let full = full.into_inner();
    assert_eq!(ann + bob + full, 500);
    assert!(full > 0, "no call was rejected");
    assert!(ann.min(bob) * 3 >= ann.max(bob) * 2, "ann {ann}, bob {bob}");
    assert_eq!(gateway.seen().len(), ann + bob, "rejected calls did not reach the server");
    // The server delays its responses: within one delay it gets at most ten calls.
    let mut times: Vec<_> = gateway.seen().iter().filter_map(|seen| seen["at"].as_u64()).collect();
    times.sort_unstable();
    let most =
        times.iter().map(|end| times.iter().filter(|at| (end - SLOW + 3..=*end).contains(at)).count()).max();
    assert_eq!(most, Some(10));
    assert_eq!(
        gateway.executions("status=overloaded&limit=1000").len(),
        full,
        "each of them is written down"
    );
    assert_eq!(gateway.call(OWNER, "echo", &json!({ "message": "x" })).status, 200);
}

/// The calls of one caller leave slots for another.
#[test]
fn one_caller_cannot_take_all_slots() {
    let program = project(&json!({ "max_concurrent": 2, "callers": two_callers() }));
    let gate = program.path("gate");
    let gateway = Gateway::serve(program);
    let waits = json!({ "fault": "until", "message": gate });
    std::thread::scope(|scope| {
        for _ in 0..150 {
            scope.spawn(|| gateway.call("key-of-ann", "echo", &waits));
        }
        gateway.wait("a full line", |gateway| !gateway.executions("caller=ann&status=overloaded").is_empty());
        let bob = scope.spawn(|| gateway.call("key-of-bob", "echo", &json!({ "message": "x" })));
        gateway.program.write("gate", "");
        assert_eq!(bob.join().expect("it ends").status, 200);
    });
}

/// A rate limit applies to the caller, across connections and sessions.
#[test]
#[expect(clippy::disallowed_methods, reason = "an allowance grows with real time")]
fn a_thousand_connections_share_one_rate_limit() {
    let rate = json!({ "max_calls": 100, "window_ms": 3_600_000 });
    let tools = json!([{ "name": "echo", "rate_limit": rate }]);
    let gateway = Gateway::start(&json!({ "callers": two_callers(), "tools": tools }));
    let start = Instant::now();
    let (good, limited) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..50 {
            let (gateway, good, limited) = (&gateway, &good, &limited);
            scope.spawn(move || {
                for n in 0..20 {
                    let body = json!({ "arguments": { "message": "x" }, "context": { "sessionId": format!("{thread}/{n}") } });
                    let answer = gateway.post("/v1/tools/echo/call", "key-of-ann", &body);
                    match answer.status_and_code() {
                        (200, _) => good.fetch_add(1, Ordering::Relaxed),
                        (429, code) => {
                            assert_eq!(code, "rate_limited");
                            assert!(answer.header("retry-after").is_some(), "{answer:?}");
                            limited.fetch_add(1, Ordering::Relaxed)
                        }
                        _ => panic!("{answer:?}"),
                    };
                }
            });
        }
    });
    // One token is added every 36 seconds.
    let more = start.elapsed().as_secs() / 36 + 1;
    let (good, limited) = (good.into_inner(), limited.into_inner());
    assert!((100..=100 + more).contains(&(good as u64)), "{good}");
    assert_eq!(good + limited, 1000);
    assert_eq!(gateway.seen().len(), good);
    assert_eq!(
        gateway.call("key-of-bob", "echo", &json!({ "message": "x" })).status,
        200,
        "it is ann's alone"
    );
}

/// A closed connection cancels the call: the server is notified, the log has it, the slot is free.
#[test]
fn a_disconnect_cancels_the_call() {
    let gateway = Gateway::start(&json!({ "tools": [{ "name": "echo", "max_instances": 1 }] }));
    let body = json!({ "arguments": { "fault": "never" } }).to_string();
    let key = format!("X-API-Key: {OWNER}");
    let mut stream = gateway.connect();
    let headers = [key.as_str(), "Content-Type: application/json"];
    stream.write_all(request("POST /v1/tools/echo/call", &headers, &body).as_bytes()).expect("it is sent");
    gateway.wait("the call", |gateway| gateway.seen().len() == 1);
    // Another call waits in the queue and is cancelled as well.
    let mut second = gateway.connect();
    second.write_all(request("POST /v1/tools/echo/call", &headers, &body).as_bytes()).expect("it is sent");
    gateway.wait("both", |gateway| gateway.get("/metrics", OWNER).body.contains("toolgate_calls_running 2"));
    drop(second);
    gateway.wait("the log says so", |gateway| gateway.executions("status=cancelled").len() == 1);
    let call = &gateway.executions("status=cancelled")[0];
    assert_eq!(call["end"]["error"]["outcome"], "not_started", "{call}");
    drop(stream);
    let cancelled = || gateway.program.read("seen").contains(r#""method":"notifications/cancelled""#);
    wait_until("the cancellation of the server", cancelled);
    gateway.wait("the log says so", |gateway| gateway.executions("status=cancelled").len() == 2);
    let call = &gateway.executions("status=cancelled")[1];
    assert_eq!(
        (&call["end"]["status"], &call["end"]["error"]["outcome"]),
        (&json!("abandoned"), &json!("unknown"))
    );
    let next = gateway.call(OWNER, "echo", &json!({ "message": "next" }));
    assert_eq!(next.json()["data"][0]["text"], "next", "the slot is free");
    let metrics = gateway.get("/metrics", OWNER).body;
    assert!(metrics.contains(r#"{tool="echo",status="abandoned",code=""} 2"#), "{metrics}");
}

/// Every key of `serve` in the project file.
#[test]
fn the_project_file_configures_the_gateway() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
    let serve = json!({ "listen": free.to_string(), "hosts": ["Tools.Example.com"], "max_body": "1KiB",
        "max_connections": 6, "max_connections_per_address": 4 });
    let gateway = Gateway::with(project(&json!({ "serve": serve })), "serve --json");
    assert_eq!(gateway.port, free.port());
    let key = format!("X-API-Key: {OWNER}");
    let status = |host: &str| gateway.request("GET /v1/tools", &[&key, &format!("Host: {host}")], "").status;
    assert_eq!((status("tools.example.com:443"), status("tools.example.org")), (200, 403));
    assert_eq!(gateway.call(OWNER, "echo", &json!({ "message": "x".repeat(900) })).status, 200);
    assert_eq!(
        gateway.call(OWNER, "echo", &json!({ "message": "x".repeat(1100) })).status_and_code(),
        (413, "too_large".to_owned())
    );
    // Earlier connections may still be closing: then one of these was refused, and the fifth is accepted.
    wait_until("the fifth has no place", || {
        let _idle: Vec<_> = (0..4).map(|_| gateway.connect()).collect();
        gateway.raw(b"").map(|answer| answer.status) == Some(503)
    });
    gateway.wait("a place", |gateway| {
        gateway.raw(request("GET /healthz", &[], "").as_bytes()).is_some_and(|it| it.status == 200)
    });
}

/// Requests have rate limits per client address and per caller.
#[test]
fn requests_are_rate_limited() {
    let open = |limit: &str| {
        let limit = json!({ limit: 3, "window": "1h" });
        Gateway::start(&json!({ "serve": { "rate_limit": limit }, "callers": two_callers() }))
    };
    let statuses = |gateway: &Gateway, key: &str| {
        (0..4).map(|_| gateway.get("/v1/tools", key).status).collect::<Vec<_>>()
    };
    let by_caller = open("per_caller");
    assert_eq!(statuses(&by_caller, "key-of-ann"), [200, 200, 200, 429]);
    let over = by_caller.get("/v1/tools", "key-of-ann");
    assert_eq!(
        (over.status_and_code(), over.header("retry-after").is_some()),
        ((429, "rate_limited".to_owned()), true)
    );
    assert_eq!(statuses(&by_caller, "key-of-bob"), [200, 200, 200, 429], "bob has his own");
    assert_eq!(by_caller.get("/healthz", "").status, 200);
    let by_address = open("per_address");
    assert_eq!(statuses(&by_address, "key-of-ann"), [200, 200, 200, 429]);
    assert_eq!(by_address.get("/v1/tools", "key-of-bob").status, 429, "bob has the same client address");
}

/// Anonymous requests are accepted from this machine only, unless configured.
#[test]
fn anonymous_is_limited_to_loopback() {
    let status = |serve: Json| {
        let callers = json!([{ "id": "anonymous", "permissions": ["s:*"] }]);
        let gateway = Gateway::start(&json!({ "serve": serve, "callers": callers }));
        let direct = gateway.request("GET /v1/tools", &[], "").status;
        (direct, gateway.request("GET /v1/tools", &["X-Forwarded-For: 10.0.0.1"], "").status)
    };
    assert_eq!(status(json!({})), (200, 401));
    assert_eq!(status(json!({ "anonymous": "loopback" })), (200, 401));
    assert_eq!(status(json!({ "anonymous": "everywhere" })), (200, 200));
}

#[test]
fn connections_are_limited() {
    let serve = json!({ "max_connections": 3, "max_connections_per_address": 100 });
    let gateway = Gateway::start(&json!({ "serve": serve }));
    // One client address never gets all connections.
    let _idle: Vec<_> = (0..2).map(|_| gateway.connect()).collect();
    wait_until("no place", || gateway.raw(b"").map(|answer| answer.status) == Some(503));
}

/// Slow request heads and bodies time out.
#[test]
#[expect(clippy::disallowed_methods, reason = "what is too slow takes real time")]
fn slow_requests_time_out() {
    let gateway = Gateway::start(&json!({}));
    let key = format!("X-API-Key: {OWNER}");
    let half = format!("POST /v1/tools/echo/call HTTP/1.1\r\nHost: localhost\r\n{key}\r\n");
    let start = Instant::now();
    let mut head = gateway.connect();
    head.write_all(half.as_bytes()).expect("it is sent");
    let mut body = gateway.connect();
    let rest = "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    body.write_all(format!("{half}{rest}").as_bytes()).expect("it is sent");
    let answer = HttpResponse::read(&mut BufReader::new(body)).expect("an answer");
    assert_eq!(answer.status_and_code(), (408, "timeout".to_owned()));
    let mut response = Vec::new();
    head.read_to_end(&mut response).expect("it is closed");
    assert!(start.elapsed() >= Duration::from_secs(9), "closed too early: {:?}", start.elapsed());
    assert!(gateway.seen().is_empty());
}

/// The backlog of the listener holds many connections, so that clients need no SYN retry.
#[test]
fn the_backlog_holds_many_connections() {
    const MANY: usize = 1_000;
    let gateway = Gateway::start(&json!({ "serve": { "max_connections_per_address": 2 * MANY } }));
    gateway.signal("-STOP");
    let address = ([127, 0, 0, 1], gateway.port).into();
    let waiting: Result<Vec<_>, _> =
        (0..MANY).map(|_| TcpStream::connect_timeout(&address, Duration::from_millis(900))).collect();
    gateway.signal("-CONT");
    assert_eq!(waiting.expect("the backlog has room").len(), MANY);
    assert_eq!(gateway.get("/healthz", "").status, 200);
}
