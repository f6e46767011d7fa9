//! HTTP: invalid, oversized or ambiguous requests.

use std::io::{Read as _, Write as _};

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, request};

/// Returns the body of a call with these arguments.
fn arguments(text: &str) -> String {
    format!(r#"{{"arguments":{text}}}"#)
}

fn post_call(gateway: &Gateway, body: &str) -> (u16, String) {
    gateway.post_text("/v1/tools/echo/call", OWNER, body).status_and_code()
}

#[test]
fn rejects_oversized_bodies() {
    let gateway = Gateway::start(&json!({}));
    let large = arguments(&format!(r#"{{"message":"{}"}}"#, "x".repeat(10 << 20)));
    assert_eq!(post_call(&gateway, &large), (413, "too_large".to_owned()));
    let keys: Vec<_> = (0..1_000_000).map(|n| format!(r#""{n}":0"#)).collect();
    assert_eq!(
        post_call(&gateway, &arguments(&format!("{{{}}}", keys.join(",")))),
        (413, "too_large".to_owned())
    );
    let invalid = (400, "invalid_request".to_owned());
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(post_call(&gateway, &arguments(&format!(r#"{{"x":{deep}}}"#))), invalid);
    assert_eq!(post_call(&gateway, &"{\"a\":".repeat(100_000)), invalid);
    assert_eq!(post_call(&gateway, &format!("[{}{{}}]", "{},".repeat(100_000))), invalid);
    // Without a content length, the body is counted as it arrives.
    let key = format!("X-API-Key: {OWNER}");
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, " ".repeat(1 << 20));
    let head = request(
        "POST /v1/tools/echo/call",
        &[&key, "Content-Type: application/json", "Transfer-Encoding: chunked"],
        "",
    );
    let response = gateway.raw(format!("{head}{}0\r\n\r\n", chunk.repeat(6)).as_bytes());
    assert!(response.is_none_or(|response| response.status == 413));
    assert!(gateway.seen().is_empty());
    assert_eq!(gateway.call(OWNER, "echo", &json!({ "message": "x" })).status, 200);
}

#[test]
fn rejects_ambiguous_json() {
    let gateway = Gateway::start(&json!({}));
    for bad in [
        r#"{"arguments":{"message":"a"},"arguments":{"message":"b"}}"#,
        r#"{"arguments":{"message":"a","message":"b"}}"#,
        r#"{"arguments":{"message":"a","mess\u0061ge":"b"}}"#,
        r#"{"arguments":{"x":[{"y":1,"y":2}]}}"#,
        r#"{"arguments":{"message":"a"},"Arguments":{"message":"b"}}"#,
        r#"{"argumentſ":{"message":"a"}}"#,
        r#"{"arguments":{"number":NaN}}"#,
        r#"{"arguments":{"number":1e400}}"#,
        r#"{"arguments":{"number":Infinity}}"#,
        r#"{"arguments":{"message":"\ud800"}}"#,
        r#"{"arguments":{"message":"a"}"#,
        r#"{"arguments":{"message":"a"}} {}"#,
        r#"[{"arguments":{"message":"a"}}]"#,
        "",
        "null",
    ] {
        let reply = post_call(&gateway, bad);
        assert_eq!((reply.0, reply.1.as_str()), (400, "invalid_request"), "{bad}");
    }
    let key = format!("X-API-Key: {OWNER}");
    let mut bytes = request(
        "POST /v1/tools/echo/call",
        &[&key, "Content-Type: application/json", "Content-Length: 4"],
        "",
    )
    .into_bytes();
    bytes.extend(b"{\"\xff\"");
    assert_eq!(gateway.raw(&bytes).map(|response| response.status), Some(400));
    assert!(gateway.seen().is_empty());
}

/// Numbers keep every digit on the way to the server and back.
#[test]
fn numbers_keep_their_digits() {
    let gateway = Gateway::start(&json!({}));
    let numbers = r#"{"fault":"verbatim","a":9007199254740993,"b":12345678901234567890123,"c":1.0,"d":-0,"e":1E2,"z":1,"f":0.1e-7,"text":"\u0000ä\"" }"#;
    let response = gateway.post_text("/v1/tools/echo/call", OWNER, &arguments(numbers));
    assert_eq!(response.status, 200, "{response:?}");
    assert!(response.body.contains(&format!(r#""data":{numbers},"#)), "{}", response.body);
    // The same holds for numbers from the server.
    for bad in [r#"{"n":1e400}"#, r#"{"n":NaN}"#, r#"{"t":"\ud800"}"#, r#"{"a":1,"a":2}"#] {
        let response = gateway.call(OWNER, "echo", &json!({ "fault": "raw", "message": bad }));
        assert_eq!(response.json()["error"]["code"], "invalid_output", "{bad}: {response:?}");
    }
    let good = gateway.call(OWNER, "echo", &json!({ "fault": "raw", "message": r#"{"n":1.50}"# }));
    assert!(good.body.contains(r#""data":{"n":1.50}"#), "{}", good.body);
}

#[test]
fn rejects_requests_for_other_hosts_and_origins() {
    let gateway = Gateway::start(&json!({}));
    let key = format!("X-API-Key: {OWNER}");
    let status = |headers: &[&str]| {
        let headers: Vec<_> =
            headers.iter().chain(&[key.as_str(), "Content-Type: application/json"]).copied().collect();
        let response =
            gateway.request("POST /v1/tools/echo/call", &headers, r#"{"arguments":{"message":"x"}}"#);
        assert!(!response.head.contains("access-control"), "{response:?}");
        response.status
    };
    let own = format!("Host: 127.0.0.1:{}", gateway.port);
    let origin = format!("Origin: http://127.0.0.1:{}", gateway.port);
    assert_eq!((status(&[]), status(&[&own]), status(&[&own, &origin])), (200, 200, 200));
    for bad in [
        &["Host: evil.test"][..],
        &["Host: localhost.evil.test"],
        &["Host: 169.254.169.254"],
        &["Origin: http://evil.test"],
        &["Origin: null"],
        &["Origin: http://localhost.evil"],
        &["Origin: http://localhost", "Origin: http://localhost"],
    ] {
        assert_eq!(status(bad), 403, "{bad:?}");
    }
    let preflight = gateway.request(
        "OPTIONS /v1/tools/echo/call",
        &["Origin: http://evil.test", "Access-Control-Request-Method: POST"],
        "",
    );
    assert_eq!(preflight.status, 403);
    assert!(!preflight.head.contains("access-control"), "{preflight:?}");
    assert_eq!(status(&["Content-Encoding: gzip"]), 415);
    let plain = gateway.request(
        "POST /v1/tools/echo/call",
        &[&key, "Content-Type: text/plain"],
        r#"{"arguments":{}}"#,
    );
    assert_eq!(plain.status_and_code(), (415, "unsupported_media_type".to_owned()));
    assert_eq!(gateway.seen().len(), 3);
}

#[test]
fn rejects_oversized_or_ambiguous_heads() {
    let gateway = Gateway::start(&json!({}));
    let many: Vec<_> = (0..200).map(|n| format!("X-Header-{n}: x")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert_eq!(gateway.request("GET /healthz", &many[..40], "").status, 200);
    let status = |bytes: &str| gateway.raw(bytes.as_bytes()).map(|response| response.status);
    assert_eq!(status(&request("GET /healthz", &many, "")), Some(431));
    let long = format!("X-Long: {}", "x".repeat(64 << 10));
    assert!(matches!(status(&request("GET /healthz", &[&long], "")), Some(431) | None));
    // A request smuggled in the body of the first one is not served.
    let key = format!("X-API-Key: {OWNER}");
    let json = "Content-Type: application/json";
    for bad in [
        vec!["Content-Length: 4", "Transfer-Encoding: chunked"],
        vec!["Content-Length: 4", "Content-Length: 5"],
        vec!["Content-Length: +4"],
        vec!["Transfer-Encoding: xchunked"],
        vec!["X-Folded: a\r\n b"],
        vec!["X-Space : a"],
        vec!["X-Bare: a\nX-More: b"],
    ] {
        let headers: Vec<_> = [key.as_str(), json].into_iter().chain(bad.iter().copied()).collect();
        let hidden =
            request("POST /v1/tools/echo/call", &[&key, json], r#"{"arguments":{"message":"hidden"}}"#);
        let first = request("POST /v1/tools/nothing/call", &headers, "").replace("Connection: close\r\n", "");
        let reply = status(&format!("{first}0\r\n\r\n{hidden}"));
        assert!(reply.is_none_or(|reply| (400..500).contains(&reply)), "{bad:?}: {reply:?}");
    }
    let call = request("POST /v1/tools/echo/call", &[&key, json], r#"{"arguments":{"message":"bare"}}"#);
    let bare = call.replace("json\r\n", "json\n");
    assert_ne!(bare, call);
    let refused = gateway.raw(bare.as_bytes()).expect("an answer");
    assert!(refused.status == 400 && refused.body.contains("end each line with CR LF"), "{refused:?}");
    // Also after a valid request with a body.
    for (first, body) in [("GET /healthz", ""), ("POST /v1/tools/nothing/call", "{\n\n}")] {
        let first = request(first, &[&key, json], body).replace("Connection: close\r\n", "");
        let (mut stream, mut reply) = (gateway.connect(), vec![0; 64 << 10]);
        stream.write_all(first.as_bytes()).expect("it listens");
        let length = stream.read(&mut reply).expect("an answer");
        stream.write_all(bare.as_bytes()).expect("it listens");
        reply.truncate(length);
        let _ = stream.read_to_end(&mut reply);
        let reply = String::from_utf8_lossy(&reply);
        let statuses: Vec<_> = reply.lines().filter_map(|line| line.split_once("HTTP/1.1 ")).collect();
        assert_eq!(statuses.len(), 2, "{reply}");
        assert_eq!(statuses[1].1, "400 Bad Request", "{reply}");
    }
    assert!(gateway.seen().is_empty(), "{:?}", gateway.seen());
}

/// Not even root finds the owner's key in the environment block of the gateway.
#[test]
#[cfg(target_os = "linux")]
fn the_owner_key_leaves_the_environment() {
    let gateway = Gateway::start(&json!({}));
    assert_eq!(gateway.get("/v1/tools", OWNER).status, 200, "the key is valid");
    let process = gateway.running.child.id();
    match fs_err::read(format!("/proc/{process}/environ")) {
        Ok(block) => {
            let block = String::from_utf8_lossy(&block);
            assert!(block.contains("TOOLGATE_LOG=off") && !block.contains(OWNER), "{block}");
        }
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
    }
    // Nor in the file that handed it over.
    for entry in fs_err::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten() {
        let is_handover = fs_err::read_link(entry.path())
            .is_ok_and(|target| target.to_string_lossy().starts_with("/memfd:toolgate-api-key"));
        assert!(!is_handover || fs_err::read(entry.path()).is_ok_and(|key| key.is_empty()));
    }
}

/// The ids of a request are returned and forwarded to the server.
#[test]
fn correlation_and_trace_ids_are_returned() {
    let gateway = Gateway::start(&json!({}));
    let key = format!("X-API-Key: {OWNER}");
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let call = |headers: &[&str], context: Json| {
        let headers: Vec<_> =
            headers.iter().chain(&[key.as_str(), "Content-Type: application/json"]).copied().collect();
        let body = json!({ "arguments": { "message": "x" }, "context": context });
        gateway.request("POST /v1/tools/echo/call", &headers, &body.to_string())
    };
    let traceparent = format!("traceparent: 00-{trace}-00f067aa0ba902b7-01");
    for response in [
        call(&["X-Correlation-Id: order-7", &traceparent], json!({})),
        call(&["X-Correlation-Id: order-7"], json!({ "traceId": trace, "correlationId": "other" })),
        call(
            &[],
            json!({ "traceId": trace, "correlationId": "order-7", "userId": "ann", "agentId": "owner", "agentVersion": "1", "metadata": { "a": 1 } }),
        ),
    ] {
        let metadata = &response.json()["metadata"];
        assert_eq!((&metadata["correlationId"], &metadata["traceId"]), (&json!("order-7"), &json!(trace)));
        assert_eq!(response.header("x-correlation-id"), Some("order-7"));
        assert!(
            response.header("traceparent").is_some_and(|parent| parent.starts_with(&format!("00-{trace}-")))
        );
    }
    let meta = &gateway.seen()[0]["message"]["params"]["_meta"];
    assert_eq!(meta["toolgate/correlationId"], "order-7");
    for bad in ["a b", "a%0d%0aX-Admin: 1", &"x".repeat(129), &"x".repeat(4 << 10), "ä", ""] {
        let response = call(&[&format!("X-Correlation-Id: {bad}")], json!({}));
        let id = response.header("x-correlation-id").expect("an id").to_owned();
        assert_eq!((response.status, id.len()), (200, 36), "{bad} became {id}");
    }
    let error = gateway.request("GET /nothing", &["X-Correlation-Id: lost"], "").json();
    assert_eq!(error["error"]["correlationId"], "lost");
    assert_eq!(gateway.executions("grep=order-7").len(), 3);
    // Newest first: six requests with generated ids, then three with ids of the client.
    let from_client: Vec<_> = gateway
        .executions("limit=1000")
        .iter()
        .map(|call| call["begin"]["correlation_from_client"] == true)
        .collect();
    assert_eq!(from_client, [[false; 3], [false; 3], [true; 3]].concat());
}
