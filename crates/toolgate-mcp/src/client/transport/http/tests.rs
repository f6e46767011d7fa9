//! Streamable HTTP against well-behaved and misbehaving servers.

use std::io::Write;
use std::sync::atomic::AtomicBool;

use serde_json::json;
use tokio::sync::Notify;
use toolgate_types::Secret;

use super::super::testing::{
    Server, TestRequest, TestResponse, chunked, empty, events, header, hold, id_and_method, result, until,
    whole,
};
use super::*;

fn link(server: &Server) -> Link {
    open(server.options(), ScanLimits::default()).unwrap()
}

fn quick(server: &Server, silence: Duration) -> Link {
    let options = RemoteOptions { sse_read_timeout: silence, ..server.options() };
    open(options, ScanLimits { size: 1 << 20, depth: 64 }).unwrap()
}

/// Error of the first request to a server that always answers the same.
async fn error_of(answer: impl Fn(TestRequest) -> TestResponse + Send + Sync + 'static) -> LinkError {
    error_after(Duration::from_secs(5), answer).await
}

async fn error_after(
    silence: Duration,
    answer: impl Fn(TestRequest) -> TestResponse + Send + Sync + 'static,
) -> LinkError {
    let server = Server::start(move |request| std::future::ready(answer(request))).await;
    first_error(quick(&server, silence)).await
}

/// As [`error_of`], with the client that is used for TLS; a user in the URL selects it too.
async fn error_with_reqwest(
    answer: impl Fn(TestRequest) -> TestResponse + Send + Sync + 'static,
) -> LinkError {
    let server = Server::start(move |request| std::future::ready(answer(request))).await;
    let mut options = server.options();
    options.url.set_username("ann").unwrap();
    first_error(open(options, ScanLimits { size: 1 << 20, depth: 64 }).unwrap()).await
}

async fn first_error(mut link: Link) -> LinkError {
    link.request(1, "tools/call", None).await;
    // Messages other than the response are delivered before the failure.
    loop {
        match link.next().await {
            LinkEvent::Message(_) | LinkEvent::StreamMessage(..) => {}
            LinkEvent::Failed(1, error) => return error,
            other => panic!("{other:?}"),
        }
    }
}

async fn json_of(request: TestRequest) -> TestResponse {
    let (id, method) = id_and_method(&request);
    if method.starts_with("notifications/") {
        return empty(202);
    }
    whole(200, "application/json", result(&id))
}

#[tokio::test]
async fn json_response() {
    let server = Server::start(async |request: TestRequest| {
        assert_eq!(header(&request, "accept"), Some("application/json, text/event-stream"));
        assert_eq!(header(&request, "content-type"), Some("application/json"));
        assert_eq!(header(&request, "x-key"), Some("k"));
        assert_eq!(request.uri().query(), Some("key=hidden"));
        json_of(request).await
    })
    .await;
    let headers =
        vec![("X-Key".to_owned(), Secret::new("k")), ("Accept".to_owned(), Secret::new("text/html"))];
    let mut link = open(RemoteOptions { headers, ..server.options() }, ScanLimits::default()).unwrap();
    for id in 1..=3 {
        link.request(id, "tools/call", None).await;
        assert_eq!(link.message().await["id"], id);
    }
}

#[tokio::test]
async fn event_stream_response_keeps_its_order() {
    let server = Server::start(async |request: TestRequest| {
        let (id, _) = id_and_method(&request);
        let note = |n| {
            format!("event: message\ndata: {}\n\n", json!({ "jsonrpc": "2.0", "method": "n", "params": n }))
        };
        let notes: String = (0..50).map(note).collect();
        events(&format!("id: 0\ndata:\n\n: hello\n\n{notes}data: {}\n\n", result(&id)))
    })
    .await;
    let mut link = link(&server);
    link.request(1, "tools/call", None).await;
    for n in 0..50 {
        assert_eq!(link.message().await["params"], n);
    }
    assert_eq!(link.message().await["id"], 1);
}

#[tokio::test]
async fn session_from_handshake_to_delete() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&seen);
    let server = Server::start(move |request: TestRequest| {
        let log = Arc::clone(&log);
        async move {
            let method = id_and_method(&request).1;
            let session = header(&request, "mcp-session-id").unwrap_or("-");
            let version = header(&request, "mcp-protocol-version").unwrap_or("-");
            log.lock().push(format!("{} {method} {session} {version}", request.method()));
            if request.method() == Method::GET {
                return events("data: {\"jsonrpc\":\"2.0\",\"method\":\"unasked\"}\n\n");
            }
            let mut answer = json_of(request).await;
            if method == "initialize" {
                answer.headers_mut().insert("mcp-session-id", HeaderValue::from_static("s1"));
            }
            answer
        }
    })
    .await;
    let mut link = link(&server);
    link.request(1, "initialize", None).await;
    link.message().await;
    link.outbox.send(LinkCommand::Revision(Revision::V2025_11_25)).await.unwrap();
    link.notify("notifications/initialized").await;
    assert_eq!(link.message().await["method"], "unasked");
    link.request(2, "tools/list", None).await;
    link.message().await;
    link.outbox.send(LinkCommand::Close).await.unwrap();
    assert!(matches!(link.end().await, LinkError::Closed));
    let seen = seen.lock().clone();
    let expected = [
        "POST initialize - -",
        "POST notifications/initialized s1 2025-11-25",
        "GET  s1 2025-11-25",
        "POST tools/list s1 2025-11-25",
        "DELETE  s1 2025-11-25",
    ];
    assert_eq!(seen, expected);
}

/// Requests after the handshake do not overtake `notifications/initialized`.
#[tokio::test]
async fn requests_wait_for_the_end_of_the_handshake() {
    let slow = Arc::new(AtomicBool::new(false));
    let server = Server::start(move |request: TestRequest| {
        let slow = Arc::clone(&slow);
        async move {
            if id_and_method(&request).1.starts_with("notifications/") {
                sleep(Duration::from_millis(100)).await;
                slow.store(true, Ordering::SeqCst);
                return empty(202);
            }
            let kind = if slow.load(Ordering::SeqCst) { "application/json" } else { "text/too-early" };
            whole(200, kind, result(&id_and_method(&request).0))
        }
    })
    .await;
    let mut link = link(&server);
    link.notify("notifications/initialized").await;
    link.request(1, "tools/list", None).await;
    assert_eq!(link.message().await["id"], 1);
}

#[tokio::test]
async fn newest_revision_headers() {
    let server = Server::start(async |request: TestRequest| {
        assert_eq!(request.method(), Method::POST);
        let headers = ["mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id"];
        let headers = headers.map(|name| header(&request, name).unwrap_or("-").to_owned());
        whole(
            200,
            "application/json",
            json!({ "id": id_and_method(&request).0, "result": headers }).to_string(),
        )
    })
    .await;
    let mut link = link(&server);
    link.request(1, "server/discover", None).await;
    assert_eq!(link.message().await["result"], json!(["2026-07-28", "server/discover", "-", "-"]));
    link.request(2, "initialize", None).await;
    assert_eq!(link.message().await["result"], json!(["-", "-", "-", "-"]));
    link.outbox.send(LinkCommand::Revision(Revision::V2026_07_28)).await.unwrap();
    link.request(3, "tools/call", Some("größe")).await;
    let name = "=?base64?Z3LDtsOfZQ==?=";
    assert_eq!(link.message().await["result"], json!(["2026-07-28", "tools/call", name, "-"]));
}

#[test]
fn encodes_header_values() {
    let check = |text: &str, expected: &str| assert_eq!(header_value(text), expected.as_bytes());
    check("git.log", "git.log");
    check("a b", "a b");
    check(" a", "=?base64?IGE=?=");
    check("a\nb", "=?base64?YQpi?=");
    check("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?=");
}

#[tokio::test]
async fn cancelling_closes_the_stream() {
    let (closed, began) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (on_close, on_begin) = (Arc::clone(&closed), Arc::clone(&began));
    let server = Server::start(move |_| {
        let (sender, answer) = chunked("text/event-stream");
        let (closed, began) = (Arc::clone(&on_close), Arc::clone(&on_begin));
        began.notify_one();
        hold(sender, move || closed.notify_one());
        std::future::ready(answer)
    })
    .await;
    let mut link = link(&server);
    link.request(1, "tools/call", None).await;
    began.notified().await;
    link.outbox.send(LinkCommand::Cancel(1)).await.unwrap();
    timeout(Duration::from_millis(200), closed.notified()).await.expect("the stream is closed in time");
    link.outbox.send(LinkCommand::Close).await.unwrap();
    assert!(matches!(link.end().await, LinkError::Closed));
}

/// Cancelling also reaches a server that has not started to respond.
#[tokio::test]
async fn cancelling_closes_a_request_without_response() {
    let (began, dropped) = (Arc::new(Notify::new()), mpsc::channel::<()>(1));
    let (sender, mut dropped) = dropped;
    let on_begin = Arc::clone(&began);
    let (sender, once) = (Mutex::new(Some(sender)), std::future::pending::<TestResponse>);
    let server = Server::start(move |_| {
        let held = sender.lock().take();
        let began = Arc::clone(&on_begin);
        async move {
            began.notify_one();
            let _held = held;
            once().await
        }
    })
    .await;
    let link = link(&server);
    link.request(1, "tools/call", None).await;
    began.notified().await;
    link.outbox.send(LinkCommand::Cancel(1)).await.unwrap();
    let closed = timeout(Duration::from_millis(200), dropped.recv()).await;
    assert_eq!(closed.expect("the request is dropped in time"), None);
}

#[tokio::test]
async fn undecodable_body_is_an_error() {
    let error = error_with_reqwest(|_| {
        let mut answer = whole(200, "application/json", "{");
        answer.headers_mut().insert("content-encoding", HeaderValue::from_static("gzip"));
        answer
    });
    let error = error.await.to_string();
    assert!(error.contains("sent a body that cannot be decompressed"), "{error}");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let second = Server::start(json_of).await;
    for status in [301, 302, 303, 307, 308] {
        let location = format!("http://{}/", second.address);
        let error = error_of(move |_| {
            let mut answer = empty(status);
            answer.headers_mut().insert("location", HeaderValue::try_from(location.clone()).unwrap());
            answer
        })
        .await;
        assert!(matches!(error, LinkError::Redirect(_)), "{error:?}");
    }
    assert_eq!(second.hits(), 0);
}

#[tokio::test]
async fn redirects_within_the_origin_are_followed() {
    for status in [301, 302, 307, 308] {
        let server = Server::start(move |request: TestRequest| async move {
            if request.uri().path() == "/mcp/" {
                assert_eq!(request.method(), "POST", "the method stays");
                return json_of(request).await;
            }
            let mut answer = empty(status);
            answer.headers_mut().insert("location", HeaderValue::from_static("/mcp/"));
            answer
        })
        .await;
        let mut link = link(&server);
        link.request(1, "tools/call", None).await;
        let answer = link.next().await;
        assert!(
            matches!(answer, LinkEvent::Message(_) | LinkEvent::StreamMessage(..)),
            "{status}: {answer:?}"
        );
    }
    let endless = error_of(|_| {
        let mut answer = empty(307);
        answer.headers_mut().insert("location", HeaderValue::from_static("/again"));
        answer
    });
    assert!(endless.await.to_string().contains("redirects more than 5 times"));
    // The request was executed, and must not be executed again.
    let see_other = error_of(|_| {
        let mut answer = empty(303);
        answer.headers_mut().insert("location", HeaderValue::from_static("/result"));
        answer
    });
    assert!(matches!(see_other.await, LinkError::Redirect(_)));
}

/// Sends chunks endlessly; counts the bytes sent.
fn flood(
    kind: &'static str,
    start: &'static str,
) -> (Arc<AtomicUsize>, impl Fn(TestRequest) -> TestResponse + Send + Sync) {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let answer = move |_| {
        let (sender, answer) = chunked(kind);
        let count = Arc::clone(&count);
        std::thread::spawn(move || {
            let _ = sender.blocking_send(Bytes::from_static(start.as_bytes()));
            while sender.blocking_send(vec![b'x'; 64 << 10].into()).is_ok()
                && count.load(Ordering::SeqCst) < 64 << 20
            {
                count.fetch_add(64 << 10, Ordering::SeqCst);
            }
        });
        answer
    };
    (sent, answer)
}

#[tokio::test]
async fn oversized_bodies_are_rejected_early() {
    for (kind, start) in [("application/json", "\""), ("text/event-stream", "data: ")] {
        let (sent, answer) = flood(kind, start);
        let error = error_of(answer).await;
        assert!(matches!(error, LinkError::TooLarge(1_048_576)), "{error:?}");
        // Bytes beyond the limit are in the socket buffers.
        let sent = sent.load(Ordering::SeqCst);
        assert!(sent < 16 << 20, "{sent}");
    }
}

#[tokio::test]
async fn compression_bomb_is_rejected() {
    for (kind, start) in [("application/json", "\""), ("text/event-stream", "data: ")] {
        let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        bomb.write_all(start.as_bytes()).unwrap();
        for _ in 0..32 {
            bomb.write_all(&[b'x'; 1 << 20]).unwrap();
        }
        let bomb = Bytes::from(bomb.finish().unwrap());
        assert!(bomb.len() < 512 << 10);
        let error = error_with_reqwest(move |request| {
            assert!(header(&request, "accept-encoding").unwrap().contains("gzip"));
            let mut answer = whole(200, kind, bomb.clone());
            answer.headers_mut().insert("content-encoding", HeaderValue::from_static("gzip"));
            answer
        })
        .await;
        assert!(matches!(error, LinkError::TooLarge(1_048_576)), "{error:?}");
    }
}

#[tokio::test]
async fn silent_stream_times_out() {
    let since = Instant::now();
    let error = error_after(Duration::from_millis(100), |_| {
        let (sender, answer) = chunked("text/event-stream");
        hold(sender, || ());
        answer
    })
    .await;
    assert!(matches!(error, LinkError::IdleTimeout), "{error:?}");
    assert!(since.elapsed() < Duration::from_secs(2));
}

/// Comments and single bytes keep a stream open, but not forever.
#[tokio::test]
async fn slow_stream_times_out() {
    let check = async |kind: &'static str, drip: &'static str| {
        let since = Instant::now();
        let error = error_after(Duration::from_millis(400), move |_| {
            let (sender, answer) = chunked(kind);
            std::thread::spawn(move || {
                while sender.blocking_send(Bytes::from_static(drip.as_bytes())).is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            answer
        })
        .await;
        assert!(matches!(error, LinkError::IdleTimeout), "{error:?}");
        let took = since.elapsed();
        assert!(took >= Duration::from_secs(4) && took < Duration::from_secs(8), "{took:?}");
    };
    tokio::join!(check("text/event-stream", ": ping\n\n"), check("application/json", " "));
}

#[tokio::test]
async fn errors_show_the_response_of_the_server() {
    let check = async |answer: fn() -> TestResponse, expected: &str| {
        let error = error_of(move |_| answer()).await;
        assert_eq!(error.to_string().replace(|c: char| c.is_ascii_digit(), "0"), expected);
    };
    let at = "`http://000.0.0.0:00000/mcp` answers with";
    check(|| whole(500, "text/plain", "it broke\x1b[0m"), "the server answered 000: it broke[0m").await;
    check(|| whole(503, "text/html", "<html>"), "the server answered 000").await;
    check(
        || whole(400, "application/json", "{\"error\":\"no\"}"),
        "the server answered 000: {\"error\":\"no\"}",
    )
    .await;
    check(
        || whole(200, "text/html; charset=utf-8", "<html>"),
        &format!("{at} `text/html` instead of JSON or events; is this the URL of an MCP server?"),
    )
    .await;
    check(|| empty(202), "the server accepted the request without a response (status 000)").await;
    check(
        || whole(200, "application/json", "{\"id\":9,\"result\":{}}"),
        "the server returned a response to another request",
    )
    .await;
    check(|| events("data: {\"id\":9}\n\n"), "the server ended the stream before its response").await;
}

#[tokio::test]
async fn unauthorized_response_keeps_its_challenge() {
    let error = error_of(|request| {
        let (id, _) = id_and_method(&request);
        let body =
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32001, "message": "who are you" } });
        let mut answer = whole(401, "application/json", body.to_string());
        answer.headers_mut().insert("www-authenticate", HeaderValue::from_static("Bearer scope=\"x\""));
        answer
    })
    .await;
    let LinkError::Status { status: 401, challenge: Some(challenge), .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(challenge, "Bearer scope=\"x\"");
}

#[tokio::test]
async fn json_rpc_error_with_error_status_is_a_response() {
    let server = Server::start(async |request: TestRequest| {
        let (id, _) = id_and_method(&request);
        let error =
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "no such method" } });
        whole(404, "application/json", error.to_string())
    })
    .await;
    let mut link = link(&server);
    link.request(1, "nothing", None).await;
    assert_eq!(link.message().await["error"]["code"], -32601);
}

#[tokio::test]
async fn unknown_session_closes_the_link() {
    let server = Server::start(async |request: TestRequest| {
        if id_and_method(&request).1 == "initialize" {
            let mut answer = json_of(request).await;
            answer.headers_mut().insert("mcp-session-id", HeaderValue::from_static("s1"));
            return answer;
        }
        whole(404, "text/plain", "session not found")
    })
    .await;
    let mut link = link(&server);
    link.request(1, "initialize", None).await;
    link.message().await;
    link.request(2, "tools/list", None).await;
    assert!(matches!(link.failure(2).await, LinkError::SessionLost { status: 404 }));
    assert!(matches!(link.end().await, LinkError::SessionLost { status: 404 }));
}

#[tokio::test]
async fn stream_is_resumed() {
    let asked_with: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&asked_with);
    let server = Server::start(move |request: TestRequest| {
        let mut log = log.lock();
        let answer = if request.method() == Method::POST {
            events("id: a\nretry: 60\ndata:\n\n")
        } else {
            log.push(header(&request, "last-event-id").unwrap_or_default().to_owned());
            match log.len() {
                1 => events("id: b\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\n"),
                2 => events(""),
                _ => events(&format!("data: {}\n\n", result(&json!(1)))),
            }
        };
        std::future::ready(answer)
    })
    .await;
    let mut link = link(&server);
    let since = Instant::now();
    link.request(1, "tools/call", None).await;
    assert_eq!(link.message().await["method"], "n");
    assert_eq!(link.message().await["id"], 1);
    assert_eq!(*asked_with.lock(), ["a", "b", "b"]);
    assert!(since.elapsed() >= Duration::from_millis(60));
}

#[tokio::test]
async fn resuming_empty_streams_is_limited() {
    let server = Server::start(async |request: TestRequest| {
        if request.method() == Method::POST { events("id: a\nretry: 1\ndata:\n\n") } else { events("") }
    })
    .await;
    let mut link = link(&server);
    link.request(1, "tools/call", None).await;
    assert!(link.failure(1).await.to_string().ends_with("could not be resumed"));
    assert!(server.hits() <= 2 + MAX_RESUMES as usize, "{}", server.hits());
}

/// The stream of server-initiated messages is reopened, after its last event if possible.
#[tokio::test]
async fn listen_stream_is_reopened() {
    let asked_with: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&asked_with);
    let server = Server::start(move |request: TestRequest| {
        let mut log = log.lock();
        if request.method() == Method::POST {
            return std::future::ready(empty(202));
        }
        log.push(header(&request, "last-event-id").unwrap_or("-").to_owned());
        let note =
            |n: usize| format!("retry: 50\nid: {n}\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"n{n}\"}}\n\n");
        std::future::ready(match log.len() {
            1 | 2 | 5 => events(&note(log.len())),
            3 => empty(503),
            4 => empty(400),
            _ => empty(405),
        })
    })
    .await;
    let mut link = link(&server);
    link.outbox.send(LinkCommand::Revision(Revision::V2025_06_18)).await.unwrap();
    link.notify("notifications/initialized").await;
    for method in ["n1", "n2", "n5"] {
        assert_eq!(link.message().await["method"], method);
    }
    until(|| asked_with.lock().len() == 7).await;
    assert_eq!(*asked_with.lock(), ["-", "1", "2", "2", "-", "5", "-"]);
    // The link works without that stream.
    link.outbox.send(LinkCommand::Close).await.unwrap();
    assert!(matches!(link.end().await, LinkError::Closed));
}

/// Streams that end at the same time are reopened with jitter, and never before the requested delay.
#[tokio::test]
async fn listen_streams_reopen_with_jitter() {
    const ASKED: Duration = Duration::from_millis(400);
    let arrivals: Arc<Mutex<HashMap<String, Vec<Instant>>>> = Arc::default();
    let log = Arc::clone(&arrivals);
    let server = Server::start(move |request: TestRequest| {
        std::future::ready(match header(&request, "x-who") {
            Some(who) if request.method() == Method::GET => {
                log.lock().entry(who.to_owned()).or_default().push(Instant::now());
                events("retry: 400\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\n")
            }
            _ => empty(202),
        })
    })
    .await;
    let mut links = Vec::new();
    for who in 0..30 {
        let headers = vec![("X-Who".to_owned(), Secret::new(who.to_string()))];
        let link = open(RemoteOptions { headers, ..server.options() }, ScanLimits::default()).unwrap();
        link.outbox.send(LinkCommand::Revision(Revision::V2025_06_18)).await.unwrap();
        link.notify("notifications/initialized").await;
        links.push(link);
    }
    let waited = || -> Vec<_> {
        arrivals.lock().values().filter_map(|times| Some(*times.get(1)? - *times.first()?)).collect()
    };
    until(|| waited().len() == 30).await;
    let (first, last) = (waited().into_iter().min().unwrap(), waited().into_iter().max().unwrap());
    assert!(first >= ASKED && last - first > ASKED / 5, "{first:?} {last:?}");
}

#[tokio::test]
async fn unreachable_server_is_reported() {
    let mut options = RemoteOptions::new(Url::parse("http://ann:secret@127.0.0.1:1/mcp?key=secret").unwrap());
    options.connect_timeout = Duration::from_secs(2);
    let mut link = open(options, ScanLimits::default()).unwrap();
    link.request(1, "tools/list", None).await;
    let error = link.failure(1).await.to_string();
    assert!(error.starts_with("cannot connect to `http://127.0.0.1:1/mcp`: "), "{error}");
    assert!(!error.contains("secret"));
}

#[tokio::test]
async fn concurrent_requests_all_get_responses() {
    let server = Server::start(json_of).await;
    let mut link = link(&server);
    let mut pending: std::collections::HashSet<i64> = (0..200).collect();
    for id in 0..200 {
        link.request(id, "tools/call", None).await;
    }
    while !pending.is_empty() {
        assert!(pending.remove(&link.message().await["id"].as_i64().unwrap()));
    }
    until(|| server.hits() == 200).await;
}

#[test]
fn recognises_the_response() {
    let check =
        |text: &str, expected: bool| assert_eq!(answers_request(text.as_bytes(), 7), expected, "{text}");
    check(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, true);
    check(r#"{"id": 7 ,"error":{}}"#, true);
    check(r#"{"id":7,"method":"sampling/createMessage"}"#, false);
    check(r#"{"id":"7","result":{}}"#, false);
    check(r#"{"id":70,"result":{"id":7}}"#, false);
    check(r#"[{"id":1,"result":{}},{"id":7,"result":{}}]"#, true);
    check(r#"[7, null]"#, false);
    check("", false);
}

#[test]
fn rejects_unsupported_urls_and_headers() {
    let open = |url: &str, name: &str| {
        let options = RemoteOptions::new(Url::parse(url).unwrap());
        let headers = vec![(name.to_owned(), Secret::new("v\n"))];
        open(RemoteOptions { headers, ..options }, ScanLimits::default()).unwrap_err().to_string()
    };
    assert_eq!(
        open("ws://h/?k=s", "x"),
        "unsupported URL `ws://h/`: this transport needs `http://` or `https://`"
    );
    assert_eq!(open("http://h/", "x"), "header `x` has an invalid name or value");
}

/// The number of concurrent requests is an option; further ones wait.
#[tokio::test]
async fn concurrent_requests_are_limited_by_the_options() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let options = RemoteOptions { max_concurrent: 3, ..RemoteOptions::new(url) };
    let link = open(options, ScanLimits::default()).unwrap();
    for id in 1..=5 {
        link.request(id, "ping", None).await;
    }
    let mut connections = Vec::new();
    while let Ok(accepted) = timeout(Duration::from_millis(300), listener.accept()).await {
        connections.push(accepted.unwrap());
    }
    assert_eq!(connections.len(), 3);
}

/// A list may be larger than other messages, as JSON and as an event.
#[tokio::test]
async fn lists_may_be_larger_than_other_messages() {
    for as_event in [false, true] {
        let server = Server::start(move |request: TestRequest| {
            let (id, _) = id_and_method(&request);
            let text = json!({ "jsonrpc": "2.0", "id": id, "result": { "tools": ["x".repeat(2 << 20)] } });
            std::future::ready(match as_event {
                true => events(&format!("data: {text}\n\n")),
                false => whole(200, "application/json", text.to_string()),
            })
        })
        .await;
        let mut link = quick(&server, Duration::from_secs(5));
        link.request(1, "tools/list", None).await;
        assert_eq!(link.message().await["id"], 1);
        link.request(2, "tools/call", None).await;
        let failure = link.failure(2).await;
        assert!(matches!(failure, LinkError::TooLarge(_)), "{failure:?}");
    }
}
