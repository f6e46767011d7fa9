//! Limits: concurrency, rates, connections, and clients that disconnect or stall.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, HttpResponse, OWNER, project, request, wait_until};
use crate::support::mcp_client::{ACCEPT, EventStream, McpSession, WebSocket, call_message, request_message};

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
fn a_thousand_connections_share_one_rate_limit() {
    let rate = json!({ "max_calls": 100, "window_ms": 3_600_000 });
    let tools = json!([{ "name": "echo", "rate_limit": rate }]);
    let gateway = Gateway::start(&json!({ "callers": two_callers(), "tools": tools }));
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
    let (good, limited) = (good.into_inner(), limited.into_inner());
    assert_eq!(good, 100);
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
    assert!(metrics.contains(r#"{tool="echo",server="s",status="abandoned",code=""} 2"#), "{metrics}");
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

/// A limit of 20 per 2 s admits 20 in 2 s, not 39: requests are sent as fast as they are answered.
#[test]
#[expect(clippy::disallowed_methods, reason = "a window is a span of real time")]
fn no_window_has_more_requests_than_the_limit() {
    const WINDOW: Duration = Duration::from_secs(2);
    let limit = json!({ "per_caller": 20, "window": "2s" });
    let gateway = Gateway::start(&json!({ "serve": { "rate_limit": limit }, "callers": two_callers() }));
    let start = Instant::now();
    let mut admitted = 0;
    loop {
        let status = gateway.get("/v1/tools", "key-of-ann").status;
        // An answer after the window says nothing about when the request was admitted.
        if start.elapsed() >= WINDOW {
            break;
        }
        admitted += usize::from(status == 200);
    }
    assert_eq!(admitted, 20);
}

/// Messages on a WebSocket count against the rate limits; each that is over them is rejected.
#[test]
fn messages_on_a_websocket_are_rate_limited() {
    let limit = json!({ "per_caller": 10, "window": "1h" });
    let gateway = Gateway::start(&json!({ "serve": { "rate_limit": limit }, "callers": two_callers() }));
    let mut socket = WebSocket::open(&gateway, "key-of-ann");
    let params = json!({ "protocolVersion": "2025-03-26", "capabilities": {},
        "clientInfo": { "name": "t", "version": "1" } });
    socket.send(&request_message(0, "initialize", &params).to_string());
    assert!(socket.next().contains("protocolVersion"));
    // The upgrade and the handshake are two, a notification is the third; two of a batch are the fourth and fifth.
    socket.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
    let ping = |id: u32| request_message(id, "ping", &json!({}));
    socket.send(&json!([ping(1), ping(2)]).to_string());
    for id in 3..20 {
        socket.send(&ping(id).to_string());
    }
    let mut answers: Vec<Json> =
        (1..20).map(|_| serde_json::from_str(&socket.next()).expect("a message")).collect();
    answers.sort_by_key(|answer| answer["id"].as_u64());
    let (good, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.get("result").is_some());
    assert_eq!(good.len(), 7, "{answers:?}");
    for answer in &refused {
        assert_eq!(answer["error"]["code"], -32029, "{answer}");
        assert_eq!(answer["error"]["data"]["code"], "rate_limited", "{answer}");
    }
    assert_eq!(gateway.get("/v1/tools", "key-of-ann").status, 429, "it is the same limit");
    assert_eq!(gateway.get("/v1/tools", "key-of-bob").status, 200);
}

/// Members of a batch count one by one, and a batch over the limit is not executed.
#[test]
fn members_of_a_batch_are_rate_limited() {
    let limit = json!({ "per_caller": 10, "window": "1h" });
    let gateway = Gateway::start(&json!({ "serve": { "rate_limit": limit }, "callers": two_callers() }));
    let session = McpSession::begin(&gateway, "key-of-ann", "2025-03-26", &json!({}));
    let batch = |count: u32| {
        let calls = (0..count).map(|id| call_message(id, "echo", &json!({ "message": "x" })));
        session.post(&Json::Array(calls.collect()))
    };
    assert_eq!(batch(5).status, 200);
    let over = batch(5);
    assert_eq!(over.status_and_code(), (429, "rate_limited".to_owned()), "{over:?}");
    assert!(over.header("retry-after").is_some());
    assert_eq!(gateway.seen().len(), 5, "nothing of the second batch ran");
    // The refused batch itself was a request.
    assert_eq!((batch(3).status, batch(1).status), (200, 429));
}

/// Streams and WebSockets have a limit per caller, and a closed one makes room.
#[test]
fn streams_are_limited_per_caller() {
    let gateway = Gateway::start(&json!({
        "serve": { "max_streams_per_caller": 2 },
        "callers": two_callers(),
    }));
    let status = |first: &str, key: &str| {
        let key = format!("X-API-Key: {key}");
        let upgrade = [
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        ];
        let headers: Vec<_> = [key.as_str(), ACCEPT].into_iter().chain(upgrade).collect();
        let request = request(first, &headers, "").replacen("Connection: close", "Connection: Upgrade", 1);
        let mut stream = gateway.connect();
        stream.write_all(request.as_bytes()).expect("it is sent");
        EventStream::read(stream).status
    };
    let session = McpSession::begin(&gateway, "key-of-ann", "2025-06-18", &json!({}));
    let first = session.listen(None);
    let second = WebSocket::open(&gateway, "key-of-ann");
    assert_eq!(first.status, 200);
    assert_eq!((status("GET /sse", "key-of-ann"), status("GET /ws", "key-of-ann")), (429, 429));
    assert_eq!(session.listen(None).status, 429);
    assert_eq!(status("GET /sse", "key-of-bob"), 200, "bob has streams of his own");
    drop(first);
    gateway.wait("room for a stream", |_| session.listen(None).status == 200);
    drop(second);
    gateway.wait("room for a WebSocket", |_| status("GET /ws", "key-of-ann") == 101);
}

/// Anonymous requests are accepted from this machine only, unless configured, and never for other people: not through a
/// proxy that is not trusted, and not for the pages of other origins.
#[test]
fn anonymous_is_limited_to_direct_requests() {
    let statuses = |serve: Json| {
        let callers = json!([{ "id": "anonymous", "permissions": ["s:*"] }]);
        let gateway = Gateway::start(&json!({ "serve": serve, "callers": callers }));
        let status = |headers: &[&str]| gateway.request("GET /v1/tools", headers, "").status;
        let proxied = [
            "Forwarded: for=10.0.0.1",
            "X-Forwarded-For: 10.0.0.1",
            "X-Forwarded-Proto: https",
            "X-Forwarded: 10.0.0.1",
            "Forwarded-For: 10.0.0.1",
            "X-Original-Forwarded-For: 10.0.0.1",
            "X-Real-IP: 10.0.0.1",
            "X-Client-IP: 10.0.0.1",
            "X-Cluster-Client-IP: 10.0.0.1",
            "True-Client-IP: 10.0.0.1",
            "CF-Connecting-IP: 10.0.0.1",
            "X-Envoy-External-Address: 10.0.0.1",
            "CDN-Loop: cloudflare",
            "Proxy-Connection: keep-alive",
            "Via: 1.1 p",
        ];
        let proxied = proxied.map(|header| status(&[header]));
        assert!(proxied.iter().all(|status| *status == proxied[0]), "{proxied:?}");
        (status(&[]), proxied[0], status(&["Sec-Fetch-Site: cross-site"]))
    };
    assert_eq!(statuses(json!({})), (200, 401, 401));
    assert_eq!(
        statuses(json!({ "anonymous": "loopback", "trusted_proxies": ["127.0.0.1"] })),
        (401, 401, 401)
    );
    assert_eq!(statuses(json!({ "anonymous": "everywhere" })), (200, 401, 401));
    assert_eq!(
        statuses(json!({ "anonymous": "everywhere", "trusted_proxies": ["127.0.0.0/8"] })),
        (200, 200, 401)
    );
}

/// Wrong keys of an address are refused for a minute, but never a right key from there.
#[test]
fn a_right_key_works_after_wrong_ones() {
    let gateway = Gateway::start(&json!({}));
    let status = |key: &str| gateway.get("/v1/tools", key).status;
    let wrong: Vec<u16> = (0..7).map(|n| status(&format!("wrong-key-{n}"))).collect();
    assert_eq!(wrong, [401, 401, 401, 401, 401, 429, 429]);
    assert_eq!(status(OWNER), 200);
    assert_eq!(status("wrong-key-8"), 429, "the right key changes nothing for wrong ones");
}

/// A trusted proxy names the client: limits and wrong keys count per client, and a client cannot choose its address.
#[test]
fn clients_behind_a_trusted_proxy_have_their_own_limits() {
    let serve = |proxies: Json| {
        json!({ "trusted_proxies": proxies, "max_connections_per_address": 1,
        "rate_limit": { "per_address": 3, "window": "1h" } })
    };
    let start = |proxies: Json| Gateway::start(&json!({ "serve": serve(proxies), "callers": two_callers() }));
    let status = |gateway: &Gateway, forwarded: &str| {
        let headers = ["X-API-Key: key-of-ann", &format!("X-Forwarded-For: {forwarded}")];
        gateway.raw(request("GET /v1/tools", &headers, "").as_bytes()).map(|answer| answer.status)
    };
    let trusting = start(json!(["127.0.0.1"]));
    // More connections than one address may have.
    let _idle: Vec<_> = (0..5).map(|_| trusting.connect()).collect();
    let mut statuses = (0..4).map(|n| status(&trusting, &format!("1.2.3.{n}, 203.0.113.7")));
    assert!(statuses.by_ref().take(3).all(|status| status == Some(200)));
    assert_eq!(statuses.next(), Some(Some(429)), "its own address does not help");
    assert_eq!(status(&trusting, "203.0.113.8"), Some(200), "another client");
    // A client without the proxy is not believed.
    let other = start(json!(["10.0.0.1"]));
    let mut statuses = (0..4).map(|n| {
        let mut answer = None;
        // The connection before may still be closing; then this one is refused, and maybe reset.
        wait_until("a connection", || {
            answer = status(&other, &format!("203.0.113.{n}"));
            answer.is_some_and(|status| status != 503)
        });
        answer
    });
    assert!(statuses.by_ref().take(3).all(|status| status == Some(200)));
    assert_eq!(statuses.next(), Some(Some(429)));
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
