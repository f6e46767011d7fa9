//! What comes over the wire: what is not a request, not for us, not JSON, or not the same to every reader.

use std::io::{Read as _, Write as _};

use serde_json::{Value as Json, json};

use crate::door::{Door, OWNER, request};

/// A body for a call, whose arguments are a text.
fn arguments(text: &str) -> String {
    format!(r#"{{"arguments":{text}}}"#)
}

fn posted(door: &Door, body: &str) -> (u16, String) {
    door.post_text("/v1/tools/echo/call", OWNER, body).told()
}

#[test]
fn bodies_that_are_too_much() {
    let door = Door::open(&json!({}));
    let large = arguments(&format!(r#"{{"message":"{}"}}"#, "x".repeat(10 << 20)));
    assert_eq!(posted(&door, &large), (413, "too_large".to_owned()));
    let keys: Vec<_> = (0..1_000_000).map(|n| format!(r#""{n}":0"#)).collect();
    assert_eq!(posted(&door, &arguments(&format!("{{{}}}", keys.join(",")))), (413, "too_large".to_owned()));
    let invalid = (400, "invalid_request".to_owned());
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(posted(&door, &arguments(&format!(r#"{{"x":{deep}}}"#))), invalid);
    assert_eq!(posted(&door, &"{\"a\":".repeat(100_000)), invalid);
    assert_eq!(posted(&door, &format!("[{}{{}}]", "{},".repeat(100_000))), invalid);
    // Without a length, it is counted as it comes.
    let key = format!("X-API-Key: {OWNER}");
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, " ".repeat(1 << 20));
    let head = request(
        "POST /v1/tools/echo/call",
        &[&key, "Content-Type: application/json", "Transfer-Encoding: chunked"],
        "",
    );
    let answer = door.raw(format!("{head}{}0\r\n\r\n", chunk.repeat(6)).as_bytes());
    assert!(answer.is_none_or(|answer| answer.status == 413));
    assert!(door.seen().is_empty());
    assert_eq!(door.call(OWNER, "echo", &json!({ "message": "x" })).status, 200);
}

#[test]
fn bodies_that_two_readers_could_understand_differently() {
    let door = Door::open(&json!({}));
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
        let told = posted(&door, bad);
        assert_eq!((told.0, told.1.as_str()), (400, "invalid_request"), "{bad}");
    }
    let key = format!("X-API-Key: {OWNER}");
    let mut bytes = request(
        "POST /v1/tools/echo/call",
        &[&key, "Content-Type: application/json", "Content-Length: 4"],
        "",
    )
    .into_bytes();
    bytes.extend(b"{\"\xff\"");
    assert_eq!(door.raw(&bytes).map(|answer| answer.status), Some(400));
    assert!(door.seen().is_empty());
}

/// A number is what it was, digit by digit, on its way to the server and back.
#[test]
fn numbers_stay_as_they_are_written() {
    let door = Door::open(&json!({}));
    let numbers = r#"{"fault":"verbatim","a":9007199254740993,"b":12345678901234567890123,"c":1.0,"d":-0,"e":1E2,"z":1,"f":0.1e-7,"text":"\u0000ä\"" }"#;
    let answer = door.post_text("/v1/tools/echo/call", OWNER, &arguments(numbers));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.contains(&format!(r#""data":{numbers},"#)), "{}", answer.body);
    // What comes from the server is held to the same.
    for bad in [r#"{"n":1e400}"#, r#"{"n":NaN}"#, r#"{"t":"\ud800"}"#, r#"{"a":1,"a":2}"#] {
        let answer = door.call(OWNER, "echo", &json!({ "fault": "raw", "message": bad }));
        assert_eq!(answer.json()["error"]["code"], "invalid_output", "{bad}: {answer:?}");
    }
    let good = door.call(OWNER, "echo", &json!({ "fault": "raw", "message": r#"{"n":1.50}"# }));
    assert!(good.body.contains(r#""data":{"n":1.50}"#), "{}", good.body);
}

#[test]
fn requests_that_are_not_for_us() {
    let door = Door::open(&json!({}));
    let key = format!("X-API-Key: {OWNER}");
    let status = |headers: &[&str]| {
        let headers: Vec<_> =
            headers.iter().chain(&[key.as_str(), "Content-Type: application/json"]).copied().collect();
        let answer = door.request("POST /v1/tools/echo/call", &headers, r#"{"arguments":{"message":"x"}}"#);
        assert!(!answer.head.contains("access-control"), "{answer:?}");
        answer.status
    };
    let own = format!("Host: 127.0.0.1:{}", door.port);
    let origin = format!("Origin: http://127.0.0.1:{}", door.port);
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
    let preflight = door.request(
        "OPTIONS /v1/tools/echo/call",
        &["Origin: http://evil.test", "Access-Control-Request-Method: POST"],
        "",
    );
    assert_eq!(preflight.status, 403);
    assert!(!preflight.head.contains("access-control"), "{preflight:?}");
    assert_eq!(status(&["Content-Encoding: gzip"]), 415);
    let plain =
        door.request("POST /v1/tools/echo/call", &[&key, "Content-Type: text/plain"], r#"{"arguments":{}}"#);
    assert_eq!(plain.told(), (415, "unsupported_media_type".to_owned()));
    assert_eq!(door.seen().len(), 3);
}

#[test]
fn heads_that_are_too_much() {
    let door = Door::open(&json!({}));
    let many: Vec<_> = (0..200).map(|n| format!("X-Header-{n}: x")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert_eq!(door.request("GET /healthz", &many[..40], "").status, 200);
    let status = |bytes: &str| door.raw(bytes.as_bytes()).map(|answer| answer.status);
    assert_eq!(status(&request("GET /healthz", &many, "")), Some(431));
    let long = format!("X-Long: {}", "x".repeat(64 << 10));
    assert!(matches!(status(&request("GET /healthz", &[&long], "")), Some(431) | None));
    // A second request hidden in the first is none.
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
        let told = status(&format!("{first}0\r\n\r\n{hidden}"));
        assert!(told.is_none_or(|told| (400..500).contains(&told)), "{bad:?}: {told:?}");
    }
    let call = request("POST /v1/tools/echo/call", &[&key, json], r#"{"arguments":{"message":"bare"}}"#);
    let bare = call.replace("json\r\n", "json\n");
    assert_ne!(bare, call);
    let refused = door.raw(bare.as_bytes()).expect("an answer");
    assert!(refused.status == 400 && refused.body.contains("end each line with CR LF"), "{refused:?}");
    // Behind a good one, too, whatever stood in its body.
    for (first, body) in [("GET /healthz", ""), ("POST /v1/tools/nothing/call", "{\n\n}")] {
        let first = request(first, &[&key, json], body).replace("Connection: close\r\n", "");
        let (mut stream, mut told) = (door.connect(), vec![0; 64 << 10]);
        stream.write_all(first.as_bytes()).expect("it listens");
        let length = stream.read(&mut told).expect("an answer");
        stream.write_all(bare.as_bytes()).expect("it listens");
        told.truncate(length);
        let _ = stream.read_to_end(&mut told);
        let told = String::from_utf8_lossy(&told);
        assert_eq!(told.matches("HTTP/1.1 ").count(), 1, "{told}");
    }
    assert!(door.seen().is_empty(), "{:?}", door.seen());
}

/// The ids of a request come back, and go on to the server.
#[test]
fn ids_come_back() {
    let door = Door::open(&json!({}));
    let key = format!("X-API-Key: {OWNER}");
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let call = |headers: &[&str], context: Json| {
        let headers: Vec<_> =
            headers.iter().chain(&[key.as_str(), "Content-Type: application/json"]).copied().collect();
        let body = json!({ "arguments": { "message": "x" }, "context": context });
        door.request("POST /v1/tools/echo/call", &headers, &body.to_string())
    };
    let traceparent = format!("traceparent: 00-{trace}-00f067aa0ba902b7-01");
    for answer in [
        call(&["X-Correlation-Id: order-7", &traceparent], json!({})),
        call(&["X-Correlation-Id: order-7"], json!({ "traceId": trace, "correlationId": "other" })),
        call(
            &[],
            json!({ "traceId": trace, "correlationId": "order-7", "userId": "ann", "agentId": "a", "agentVersion": "1", "metadata": { "a": 1 } }),
        ),
    ] {
        let metadata = &answer.json()["metadata"];
        assert_eq!((&metadata["correlationId"], &metadata["traceId"]), (&json!("order-7"), &json!(trace)));
        assert_eq!(answer.header("x-correlation-id"), Some("order-7"));
        assert!(
            answer.header("traceparent").is_some_and(|parent| parent.starts_with(&format!("00-{trace}-")))
        );
    }
    let meta = &door.seen()[0]["message"]["params"]["_meta"];
    assert_eq!(meta["toolgate/correlationId"], "order-7");
    for bad in ["a b", "a%0d%0aX-Admin: 1", &"x".repeat(129), &"x".repeat(4 << 10), "ä", ""] {
        let answer = call(&[&format!("X-Correlation-Id: {bad}")], json!({}));
        let id = answer.header("x-correlation-id").expect("an id").to_owned();
        assert_eq!((answer.status, id.len()), (200, 36), "{bad} became {id}");
    }
    let error = door.request("GET /nothing", &["X-Correlation-Id: lost"], "").json();
    assert_eq!(error["error"]["correlationId"], "lost");
    assert_eq!(door.executions("grep=order-7").len(), 3);
    // The newest comes first: those with ids of ours, and the three before them.
    let from_client: Vec<_> = door
        .executions("limit=1000")
        .iter()
        .map(|call| call["begin"]["correlation_from_client"] == true)
        .collect();
    assert_eq!(from_client, [[false; 3], [false; 3], [true; 3]].concat());
}
