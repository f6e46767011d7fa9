//! Streamable HTTP against servers that behave, and that do not.

use std::io::Write;
use std::sync::atomic::AtomicBool;

use serde_json::json;
use tokio::sync::Notify;
use toolgate_types::Secret;

use super::super::testing::{
    Answer, Asked, Server, asked, empty, events, header, hold, pieces, result, until, whole,
};
use super::*;

fn link(server: &Server) -> Link {
    open(server.options(), Limits::default()).unwrap()
}

fn quick(server: &Server, silence: Duration) -> Link {
    let options = RemoteOptions { sse_read_timeout: silence, ..server.options() };
    open(options, Limits { size: 1 << 20, depth: 64 }).unwrap()
}

/// What the first request gets from a server that always answers so.
async fn refusal(answer: impl Fn(Asked) -> Answer + Send + Sync + 'static) -> LinkError {
    refusal_after(Duration::from_secs(5), answer).await
}

async fn refusal_after(
    silence: Duration,
    answer: impl Fn(Asked) -> Answer + Send + Sync + 'static,
) -> LinkError {
    let server = Server::start(move |request| std::future::ready(answer(request))).await;
    refused(quick(&server, silence)).await
}

/// The same by the client that serves where there is TLS; a user in the address leads to it as well.
async fn refusal_of_other(answer: impl Fn(Asked) -> Answer + Send + Sync + 'static) -> LinkError {
    let server = Server::start(move |request| std::future::ready(answer(request))).await;
    let mut options = server.options();
    options.url.set_username("ann").unwrap();
    refused(open(options, Limits { size: 1 << 20, depth: 64 }).unwrap()).await
}

async fn refused(mut link: Link) -> LinkError {
    link.ask(1, "tools/call", None).await;
    // A message that is not the answer is passed on before the failure.
    loop {
        match link.next().await {
            Incoming::Message(_) | Incoming::During(..) => {}
            Incoming::Failed(1, error) => return error,
            other => panic!("{other:?}"),
        }
    }
}

async fn json_of(request: Asked) -> Answer {
    let (id, method) = asked(&request);
    if method.starts_with("notifications/") {
        return empty(202);
    }
    whole(200, "application/json", result(&id))
}

#[tokio::test]
async fn an_answer_as_json() {
    let server = Server::start(async |request: Asked| {
        assert_eq!(header(&request, "accept"), Some("application/json, text/event-stream"));
        assert_eq!(header(&request, "content-type"), Some("application/json"));
        assert_eq!(header(&request, "x-key"), Some("k"));
        assert_eq!(request.uri().query(), Some("key=hidden"));
        json_of(request).await
    })
    .await;
    let headers =
        vec![("X-Key".to_owned(), Secret::new("k")), ("Accept".to_owned(), Secret::new("text/html"))];
    let mut link = open(RemoteOptions { headers, ..server.options() }, Limits::default()).unwrap();
    for id in 1..=3 {
        link.ask(id, "tools/call", None).await;
        assert_eq!(link.message().await["id"], id);
    }
}

#[tokio::test]
async fn an_answer_as_events_keeps_its_order() {
    let server = Server::start(async |request: Asked| {
        let (id, _) = asked(&request);
        let note = |n| {
            format!("event: message\ndata: {}\n\n", json!({ "jsonrpc": "2.0", "method": "n", "params": n }))
        };
        let notes: String = (0..50).map(note).collect();
        events(&format!("id: 0\ndata:\n\n: hello\n\n{notes}data: {}\n\n", result(&id)))
    })
    .await;
    let mut link = link(&server);
    link.ask(1, "tools/call", None).await;
    for n in 0..50 {
        assert_eq!(link.message().await["params"], n);
    }
    assert_eq!(link.message().await["id"], 1);
}

#[tokio::test]
async fn a_session_from_begin_to_end() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&seen);
    let server = Server::start(move |request: Asked| {
        let log = Arc::clone(&log);
        async move {
            let method = asked(&request).1;
            let session = header(&request, "mcp-session-id").unwrap_or("-");
            let version = header(&request, "mcp-protocol-version").unwrap_or("-");
            log.lock().unwrap().push(format!("{} {method} {session} {version}", request.method()));
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
    link.ask(1, "initialize", None).await;
    link.message().await;
    link.outbox.send(Outgoing::Revision(Revision::V2025_11_25)).await.unwrap();
    link.tell("notifications/initialized").await;
    assert_eq!(link.message().await["method"], "unasked");
    link.ask(2, "tools/list", None).await;
    link.message().await;
    link.outbox.send(Outgoing::Close).await.unwrap();
    assert!(matches!(link.end().await, LinkError::Closed));
    let seen = seen.lock().unwrap().clone();
    let expected = [
        "POST initialize - -",
        "POST notifications/initialized s1 2025-11-25",
        "GET  s1 2025-11-25",
        "POST tools/list s1 2025-11-25",
        "DELETE  s1 2025-11-25",
    ];
    assert_eq!(seen, expected);
}

/// A request that follows the end of the handshake does not overtake it.
#[tokio::test]
async fn the_handshake_arrives_first() {
    let slow = Arc::new(AtomicBool::new(false));
    let server = Server::start(move |request: Asked| {
        let slow = Arc::clone(&slow);
        async move {
            if asked(&request).1.starts_with("notifications/") {
                sleep(Duration::from_millis(100)).await;
                slow.store(true, Ordering::SeqCst);
                return empty(202);
            }
            let kind = if slow.load(Ordering::SeqCst) { "application/json" } else { "text/too-early" };
            whole(200, kind, result(&asked(&request).0))
        }
    })
    .await;
    let mut link = link(&server);
    link.tell("notifications/initialized").await;
    link.ask(1, "tools/list", None).await;
    assert_eq!(link.message().await["id"], 1);
}

#[tokio::test]
async fn headers_of_the_newest_revision() {
    let server = Server::start(async |request: Asked| {
        assert_eq!(request.method(), Method::POST);
        let headers = ["mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id"];
        let headers = headers.map(|name| header(&request, name).unwrap_or("-").to_owned());
        whole(200, "application/json", json!({ "id": asked(&request).0, "result": headers }).to_string())
    })
    .await;
    let mut link = link(&server);
    link.ask(1, "server/discover", None).await;
    assert_eq!(link.message().await["result"], json!(["2026-07-28", "server/discover", "-", "-"]));
    link.ask(2, "initialize", None).await;
    assert_eq!(link.message().await["result"], json!(["-", "-", "-", "-"]));
    link.outbox.send(Outgoing::Revision(Revision::V2026_07_28)).await.unwrap();
    link.ask(3, "tools/call", Some("größe")).await;
    let name = "=?base64?Z3LDtsOfZQ==?=";
    assert_eq!(link.message().await["result"], json!(["2026-07-28", "tools/call", name, "-"]));
}

#[test]
fn values_in_headers() {
    let check = |text: &str, expected: &str| assert_eq!(header_value(text), expected);
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
        let (sender, answer) = pieces("text/event-stream");
        let (closed, began) = (Arc::clone(&on_close), Arc::clone(&on_begin));
        began.notify_one();
        hold(sender, move || closed.notify_one());
        std::future::ready(answer)
    })
    .await;
    let mut link = link(&server);
    link.ask(1, "tools/call", None).await;
    began.notified().await;
    link.outbox.send(Outgoing::Cancel(1)).await.unwrap();
    timeout(Duration::from_millis(200), closed.notified()).await.expect("the stream is closed in time");
    link.outbox.send(Outgoing::Close).await.unwrap();
    assert!(matches!(link.end().await, LinkError::Closed));
}

/// A server that works on an answer in silence hears of it as well.
#[tokio::test]
async fn cancelling_closes_what_has_not_answered() {
    let (began, gone) = (Arc::new(Notify::new()), mpsc::channel::<()>(1));
    let (sender, mut gone) = gone;
    let on_begin = Arc::clone(&began);
    let (sender, once) = (Mutex::new(Some(sender)), std::future::pending::<Answer>);
    let server = Server::start(move |_| {
        let held = sender.lock().unwrap().take();
        let began = Arc::clone(&on_begin);
        async move {
            began.notify_one();
            let _held = held;
            once().await
        }
    })
    .await;
    let link = link(&server);
    link.ask(1, "tools/call", None).await;
    began.notified().await;
    link.outbox.send(Outgoing::Cancel(1)).await.unwrap();
    let closed = timeout(Duration::from_millis(200), gone.recv()).await;
    assert_eq!(closed.expect("the request is dropped in time"), None);
}

#[tokio::test]
async fn a_connection_that_breaks() {
    let error = refusal_of_other(|_| {
        let mut answer = whole(200, "application/json", "{");
        answer.headers_mut().insert("content-encoding", HeaderValue::from_static("gzip"));
        answer
    });
    let error = error.await.to_string();
    assert!(error.contains("sent what cannot be decompressed"), "{error}");
}

#[tokio::test]
async fn redirects_are_refused() {
    let second = Server::start(json_of).await;
    for status in [301, 302, 303, 307, 308] {
        let location = format!("http://{}/", second.address);
        let error = refusal(move |_| {
            let mut answer = empty(status);
            answer.headers_mut().insert("location", HeaderValue::try_from(location.clone()).unwrap());
            answer
        })
        .await;
        assert!(matches!(error, LinkError::Redirect(_)), "{error:?}");
    }
    assert_eq!(second.hits(), 0);
}

/// Sends pieces without an end; says how much went out.
fn flood(
    kind: &'static str,
    start: &'static str,
) -> (Arc<AtomicUsize>, impl Fn(Asked) -> Answer + Send + Sync) {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let answer = move |_| {
        let (sender, answer) = pieces(kind);
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
async fn large_bodies_are_refused_early() {
    for (kind, start) in [("application/json", "\""), ("text/event-stream", "data: ")] {
        let (sent, answer) = flood(kind, start);
        let error = refusal(answer).await;
        assert!(matches!(error, LinkError::TooLarge(1_048_576)), "{error:?}");
        // What is beyond the limit is in the buffers of the system.
        let sent = sent.load(Ordering::SeqCst);
        assert!(sent < 16 << 20, "{sent}");
    }
}

#[tokio::test]
async fn a_compressed_bomb_is_refused() {
    for (kind, start) in [("application/json", "\""), ("text/event-stream", "data: ")] {
        let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        bomb.write_all(start.as_bytes()).unwrap();
        for _ in 0..32 {
            bomb.write_all(&[b'x'; 1 << 20]).unwrap();
        }
        let bomb = Bytes::from(bomb.finish().unwrap());
        assert!(bomb.len() < 512 << 10);
        let error = refusal_of_other(move |request| {
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
async fn silence_is_given_up() {
    let since = Instant::now();
    let error = refusal_after(Duration::from_millis(100), |_| {
        let (sender, answer) = pieces("text/event-stream");
        hold(sender, || ());
        answer
    })
    .await;
    assert!(matches!(error, LinkError::Silent), "{error:?}");
    assert!(since.elapsed() < Duration::from_secs(2));
}

/// Comments and single bytes count as life, but not for ever.
#[tokio::test]
async fn a_drip_is_given_up() {
    let check = async |kind: &'static str, drip: &'static str| {
        let since = Instant::now();
        let error = refusal_after(Duration::from_millis(400), move |_| {
            let (sender, answer) = pieces(kind);
            std::thread::spawn(move || {
                while sender.blocking_send(Bytes::from_static(drip.as_bytes())).is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            answer
        })
        .await;
        assert!(matches!(error, LinkError::Silent), "{error:?}");
        let took = since.elapsed();
        assert!(took >= Duration::from_secs(4) && took < Duration::from_secs(8), "{took:?}");
    };
    tokio::join!(check("text/event-stream", ": ping\n\n"), check("application/json", " "));
}

#[tokio::test]
async fn refusals_say_what_the_server_said() {
    let check = async |answer: fn() -> Answer, expected: &str| {
        let error = refusal(move |_| answer()).await;
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
        &format!("{at} `text/html` where JSON or events are due; is it the address of an MCP server?"),
    )
    .await;
    check(|| empty(202), "the server took the request without an answer (status 000)").await;
    check(
        || whole(200, "application/json", "{\"id\":9,\"result\":{}}"),
        "the server answered, but not to this request",
    )
    .await;
    check(|| events("data: {\"id\":9}\n\n"), "the server ended the stream before its answer").await;
}

#[tokio::test]
async fn a_login_is_asked_for() {
    let error = refusal(|request| {
        let (id, _) = asked(&request);
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
async fn an_error_of_the_protocol_is_a_message() {
    let server = Server::start(async |request: Asked| {
        let (id, _) = asked(&request);
        let error =
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "no such method" } });
        whole(404, "application/json", error.to_string())
    })
    .await;
    let mut link = link(&server);
    link.ask(1, "nothing", None).await;
    assert_eq!(link.message().await["error"]["code"], -32601);
}

#[tokio::test]
async fn a_lost_session_ends_the_link() {
    let server = Server::start(async |request: Asked| {
        if asked(&request).1 == "initialize" {
            let mut answer = json_of(request).await;
            answer.headers_mut().insert("mcp-session-id", HeaderValue::from_static("s1"));
            return answer;
        }
        whole(404, "text/plain", "session not found")
    })
    .await;
    let mut link = link(&server);
    link.ask(1, "initialize", None).await;
    link.message().await;
    link.ask(2, "tools/list", None).await;
    assert!(matches!(link.failure(2).await, LinkError::Status { status: 404, .. }));
    assert!(matches!(link.end().await, LinkError::Status { status: 404, .. }));
}

#[tokio::test]
async fn a_stream_is_taken_up_again() {
    let asked_with: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&asked_with);
    let server = Server::start(move |request: Asked| {
        let mut log = log.lock().unwrap();
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
    link.ask(1, "tools/call", None).await;
    assert_eq!(link.message().await["method"], "n");
    assert_eq!(link.message().await["id"], 1);
    assert_eq!(*asked_with.lock().unwrap(), ["a", "b", "b"]);
    assert!(since.elapsed() >= Duration::from_millis(60));
}

#[tokio::test]
async fn a_stream_that_brings_nothing_is_not_taken_up_for_ever() {
    let server = Server::start(async |request: Asked| {
        if request.method() == Method::POST { events("id: a\nretry: 1\ndata:\n\n") } else { events("") }
    })
    .await;
    let mut link = link(&server);
    link.ask(1, "tools/call", None).await;
    assert!(link.failure(1).await.to_string().ends_with("could not be taken up again"));
    assert!(server.hits() <= 2 + RESUMPTIONS as usize, "{}", server.hits());
}

/// The stream of what the server says unasked is kept, behind its last event where that works.
#[tokio::test]
async fn listening_goes_on() {
    let asked_with: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&asked_with);
    let server = Server::start(move |request: Asked| {
        let mut log = log.lock().unwrap();
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
    link.outbox.send(Outgoing::Revision(Revision::V2025_06_18)).await.unwrap();
    link.tell("notifications/initialized").await;
    for method in ["n1", "n2", "n5"] {
        assert_eq!(link.message().await["method"], method);
    }
    until(|| asked_with.lock().unwrap().len() == 7).await;
    assert_eq!(*asked_with.lock().unwrap(), ["-", "1", "2", "2", "-", "5", "-"]);
    // Without that stream the link is as good as before.
    link.outbox.send(Outgoing::Close).await.unwrap();
    assert!(matches!(link.end().await, LinkError::Closed));
}

/// Many whose streams end at the same moment do not come back at the same one, and none before it was asked to.
#[tokio::test]
async fn listeners_come_back_one_by_one() {
    const ASKED: Duration = Duration::from_millis(400);
    let came: Arc<Mutex<HashMap<String, Vec<Instant>>>> = Arc::default();
    let log = Arc::clone(&came);
    let server = Server::start(move |request: Asked| {
        std::future::ready(match header(&request, "x-who") {
            Some(who) if request.method() == Method::GET => {
                log.lock().unwrap().entry(who.to_owned()).or_default().push(Instant::now());
                events("retry: 400\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\n")
            }
            _ => empty(202),
        })
    })
    .await;
    let mut links = Vec::new();
    for who in 0..30 {
        let headers = vec![("X-Who".to_owned(), Secret::new(who.to_string()))];
        let link = open(RemoteOptions { headers, ..server.options() }, Limits::default()).unwrap();
        link.outbox.send(Outgoing::Revision(Revision::V2025_06_18)).await.unwrap();
        link.tell("notifications/initialized").await;
        links.push(link);
    }
    let waited = || -> Vec<_> {
        came.lock().unwrap().values().filter_map(|times| Some(*times.get(1)? - *times.first()?)).collect()
    };
    until(|| waited().len() == 30).await;
    let (first, last) = (waited().into_iter().min().unwrap(), waited().into_iter().max().unwrap());
    assert!(first >= ASKED && last - first > ASKED / 5, "{first:?} {last:?}");
}

#[tokio::test]
async fn nobody_listens() {
    let mut options = RemoteOptions::new(Url::parse("http://ann:secret@127.0.0.1:1/mcp?key=secret").unwrap());
    options.connect_timeout = Duration::from_secs(2);
    let mut link = open(options, Limits::default()).unwrap();
    link.ask(1, "tools/list", None).await;
    let error = link.failure(1).await.to_string();
    assert!(error.starts_with("cannot connect to `http://127.0.0.1:1/mcp`: "), "{error}");
    assert!(!error.contains("secret"));
}

#[tokio::test]
async fn many_at_once_all_get_their_answer() {
    let server = Server::start(json_of).await;
    let mut link = link(&server);
    let mut left: std::collections::HashSet<i64> = (0..200).collect();
    for id in 0..200 {
        link.ask(id, "tools/call", None).await;
    }
    while !left.is_empty() {
        assert!(left.remove(&link.message().await["id"].as_i64().unwrap()));
    }
    until(|| server.hits() == 200).await;
}

#[test]
fn which_message_is_the_answer() {
    let check = |text: &str, expected: bool| assert_eq!(answers(text.as_bytes(), 7), expected, "{text}");
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
fn what_cannot_be_opened() {
    let open = |url: &str, name: &str| {
        let options = RemoteOptions::new(Url::parse(url).unwrap());
        let headers = vec![(name.to_owned(), Secret::new("v\n"))];
        open(RemoteOptions { headers, ..options }, Limits::default()).unwrap_err().to_string()
    };
    assert_eq!(
        open("ws://h/?k=s", "x"),
        "`ws://h/` is not an address for this transport, which takes `http://` and `https://`"
    );
    assert_eq!(open("http://h/", "x"), "header `x` has a name or a value that cannot be sent");
}
