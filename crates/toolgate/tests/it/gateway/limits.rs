//! The door under many: what runs at once, who has how much, who leaves, who does nothing.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::door::{Answer, Door, OWNER, project, request, until};

/// Two callers, with the keys `key-of-ann` and `key-of-bob`.
fn two() -> Json {
    json!([
        { "id": "ann", "permissions": ["s:*"], "api_key": "key-of-ann" },
        { "id": "bob", "permissions": ["s:*"], "api_key": "key-of-bob" },
    ])
}

/// Ten run, a line waits, whoever finds it full is told at once when to come again; and two share what there is.
#[test]
fn five_hundred_at_once() {
    const SLOW: u64 = 200;
    let door = Door::open(&json!({ "max_concurrent": 10, "callers": two() }));
    let slow = json!({ "fault": "late", "after": SLOW });
    let keys = ["key-of-ann", "key-of-bob"];
    let good = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let full = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for n in 0..500 {
            let (door, slow, good, full) = (&door, &slow, &good, &full);
            scope.spawn(move || {
                let answer = door.call(keys[n % 2], "echo", slow);
                match answer.told() {
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
    assert!(full > 0, "nobody was turned away");
    assert!(ann.min(bob) * 3 >= ann.max(bob) * 2, "ann {ann}, bob {bob}");
    assert_eq!(door.seen().len(), ann + bob, "who was turned away reached nobody");
    // The server answers so much later than it hears: in any such time it hears of ten calls at most.
    let mut times: Vec<_> = door.seen().iter().filter_map(|seen| seen["at"].as_u64()).collect();
    times.sort_unstable();
    let most =
        times.iter().map(|end| times.iter().filter(|at| (end - SLOW + 3..=*end).contains(at)).count()).max();
    assert_eq!(most, Some(10));
    assert_eq!(door.executions("status=overloaded&limit=1000").len(), full, "each of them is written down");
    assert_eq!(door.call(OWNER, "echo", &json!({ "message": "x" })).status, 200);
}

/// One caller's flood leaves room for another.
#[test]
fn one_flood_drowns_nobody() {
    let program = project(&json!({ "max_concurrent": 2, "callers": two() }));
    let gate = program.path("gate");
    let door = Door::of(program);
    let waits = json!({ "fault": "until", "message": gate });
    std::thread::scope(|scope| {
        for _ in 0..150 {
            scope.spawn(|| door.call("key-of-ann", "echo", &waits));
        }
        door.wait("a full line", |door| !door.executions("caller=ann&status=overloaded").is_empty());
        let bob = scope.spawn(|| door.call("key-of-bob", "echo", &json!({ "message": "x" })));
        door.program.write("gate", "");
        assert_eq!(bob.join().expect("it ends").status, 200);
    });
}

/// An allowance is the caller's, whatever connections and sessions it uses.
#[test]
#[expect(clippy::disallowed_methods, reason = "an allowance grows with real time")]
fn a_thousand_connections_have_one_allowance() {
    let rate = json!({ "max_calls": 100, "window_ms": 3_600_000 });
    let tools = json!([{ "name": "echo", "rate_limit": rate }]);
    let door = Door::open(&json!({ "callers": two(), "tools": tools }));
    let start = Instant::now();
    let (good, limited) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..50 {
            let (door, good, limited) = (&door, &good, &limited);
            scope.spawn(move || {
                for n in 0..20 {
                    let body = json!({ "arguments": { "message": "x" }, "context": { "sessionId": format!("{thread}/{n}") } });
                    let answer = door.post("/v1/tools/echo/call", "key-of-ann", &body);
                    match answer.told() {
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
    // One more comes with every thirty-six seconds.
    let more = start.elapsed().as_secs() / 36 + 1;
    let (good, limited) = (good.into_inner(), limited.into_inner());
    assert!((100..=100 + more).contains(&(good as u64)), "{good}");
    assert_eq!(good + limited, 1000);
    assert_eq!(door.seen().len(), good);
    assert_eq!(door.call("key-of-bob", "echo", &json!({ "message": "x" })).status, 200, "it is ann's alone");
}

/// Whoever leaves takes the call along: the server is told, the log says so, the slot is free.
#[test]
fn who_leaves_takes_the_call_along() {
    let door = Door::open(&json!({ "tools": [{ "name": "echo", "max_instances": 1 }] }));
    let body = json!({ "arguments": { "fault": "never" } }).to_string();
    let key = format!("X-API-Key: {OWNER}");
    let mut stream = door.connect();
    let headers = [key.as_str(), "Content-Type: application/json"];
    stream.write_all(request("POST /v1/tools/echo/call", &headers, &body).as_bytes()).expect("it is sent");
    door.wait("the call", |door| door.seen().len() == 1);
    // Another one waits for its turn, and leaves as well.
    let mut second = door.connect();
    second.write_all(request("POST /v1/tools/echo/call", &headers, &body).as_bytes()).expect("it is sent");
    door.wait("both", |door| door.get("/metrics", OWNER).body.contains("toolgate_calls_running 2"));
    drop(second);
    door.wait("the log says so", |door| door.executions("status=cancelled").len() == 1);
    let call = &door.executions("status=cancelled")[0];
    assert_eq!(call["end"]["error"]["outcome"], "not_started", "{call}");
    drop(stream);
    let cancelled = || door.program.read("seen").contains(r#""method":"notifications/cancelled""#);
    until("the server is told", cancelled);
    door.wait("the log says so", |door| door.executions("status=cancelled").len() == 2);
    let call = &door.executions("status=cancelled")[1];
    assert_eq!(
        (&call["end"]["status"], &call["end"]["error"]["outcome"]),
        (&json!("abandoned"), &json!("unknown"))
    );
    let next = door.call(OWNER, "echo", &json!({ "message": "next" }));
    assert_eq!(next.json()["data"][0]["text"], "next", "the slot is free");
    let metrics = door.get("/metrics", OWNER).body;
    assert!(metrics.contains(r#"{tool="echo",status="abandoned",code=""} 2"#), "{metrics}");
}

/// `serve` in the project file: each of its keys.
#[test]
fn the_door_is_kept_as_the_project_says() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
    let serve = json!({ "listen": free.to_string(), "hosts": ["Tools.Example.com"], "max_body": "1KiB",
        "max_connections": 6, "max_connections_per_address": 4 });
    let door = Door::with(project(&json!({ "serve": serve })), "serve --json");
    assert_eq!(door.port, free.port());
    let key = format!("X-API-Key: {OWNER}");
    let status = |host: &str| door.request("GET /v1/tools", &[&key, &format!("Host: {host}")], "").status;
    assert_eq!((status("tools.example.com:443"), status("tools.example.org")), (200, 403));
    assert_eq!(door.call(OWNER, "echo", &json!({ "message": "x".repeat(900) })).status, 200);
    assert_eq!(
        door.call(OWNER, "echo", &json!({ "message": "x".repeat(1100) })).told(),
        (413, "too_large".to_owned())
    );
    // The connections before may be on their way out: then one of these had no place, and there is one for the fifth.
    until("the fifth has no place", || {
        let _idle: Vec<_> = (0..4).map(|_| door.connect()).collect();
        door.raw(b"").map(|answer| answer.status) == Some(503)
    });
    door.wait("a place", |door| {
        door.raw(request("GET /healthz", &[], "").as_bytes()).is_some_and(|it| it.status == 200)
    });
}

/// Requests have an allowance too, whatever they ask for: that of an address, and that of a caller.
#[test]
fn requests_have_an_allowance() {
    let open = |limit: &str| {
        let limit = json!({ limit: 3, "window": "1h" });
        Door::open(&json!({ "serve": { "rate_limit": limit }, "callers": two() }))
    };
    let statuses =
        |door: &Door, key: &str| (0..4).map(|_| door.get("/v1/tools", key).status).collect::<Vec<_>>();
    let by_caller = open("per_caller");
    assert_eq!(statuses(&by_caller, "key-of-ann"), [200, 200, 200, 429]);
    let over = by_caller.get("/v1/tools", "key-of-ann");
    assert_eq!((over.told(), over.header("retry-after").is_some()), ((429, "rate_limited".to_owned()), true));
    assert_eq!(statuses(&by_caller, "key-of-bob"), [200, 200, 200, 429], "bob has his own");
    assert_eq!(by_caller.get("/healthz", "").status, 200);
    let by_address = open("per_address");
    assert_eq!(statuses(&by_address, "key-of-ann"), [200, 200, 200, 429]);
    assert_eq!(by_address.get("/v1/tools", "key-of-bob").status, 429, "bob is at the same address");
}

/// Who says nothing of itself comes from this machine, unless it is said otherwise.
#[test]
fn how_far_anonymous_reaches() {
    let status = |serve: Json| {
        let callers = json!([{ "id": "anonymous", "permissions": ["s:*"] }]);
        let door = Door::open(&json!({ "serve": serve, "callers": callers }));
        let direct = door.request("GET /v1/tools", &[], "").status;
        (direct, door.request("GET /v1/tools", &["X-Forwarded-For: 10.0.0.1"], "").status)
    };
    assert_eq!(status(json!({})), (200, 401));
    assert_eq!(status(json!({ "anonymous": "loopback" })), (200, 401));
    assert_eq!(status(json!({ "anonymous": "everywhere" })), (200, 200));
}

#[test]
fn there_are_so_many_places_and_no_more() {
    let serve = json!({ "max_connections": 3, "max_connections_per_address": 100 });
    let door = Door::open(&json!({ "serve": serve }));
    // One address never has all of them.
    let _idle: Vec<_> = (0..2).map(|_| door.connect()).collect();
    until("no place", || door.raw(b"").map(|answer| answer.status) == Some(503));
}

/// A head that does not come to its end, and a body that does not come, are given up.
#[test]
#[expect(clippy::disallowed_methods, reason = "what is too slow takes real time")]
fn who_drips_is_left() {
    let door = Door::open(&json!({}));
    let key = format!("X-API-Key: {OWNER}");
    let half = format!("POST /v1/tools/echo/call HTTP/1.1\r\nHost: localhost\r\n{key}\r\n");
    let start = Instant::now();
    let mut head = door.connect();
    head.write_all(half.as_bytes()).expect("it is sent");
    let mut body = door.connect();
    let rest = "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    body.write_all(format!("{half}{rest}").as_bytes()).expect("it is sent");
    let answer = Answer::read(&mut BufReader::new(body)).expect("an answer");
    assert_eq!(answer.told(), (408, "timeout".to_owned()));
    let mut said = Vec::new();
    head.read_to_end(&mut said).expect("it is closed");
    assert!(start.elapsed() >= Duration::from_secs(9), "nobody is hurried: {:?}", start.elapsed());
    assert!(door.seen().is_empty());
}

/// Whoever comes while many others do gets a connection at once, and not when its system tries again a second later.
#[test]
fn many_may_wait_to_be_taken() {
    const MANY: usize = 1_000;
    let door = Door::open(&json!({ "serve": { "max_connections_per_address": 2 * MANY } }));
    door.signal("-STOP");
    let address = ([127, 0, 0, 1], door.port).into();
    let waiting: Result<Vec<_>, _> =
        (0..MANY).map(|_| TcpStream::connect_timeout(&address, Duration::from_millis(900))).collect();
    door.signal("-CONT");
    assert_eq!(waiting.expect("there is a place in the line").len(), MANY);
    assert_eq!(door.get("/healthz", "").status, 200);
}
