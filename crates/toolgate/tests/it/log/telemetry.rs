//! OTLP traces of calls, over HTTP in JSON.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value as Json, json};

use crate::support::program::{HANG_TIMEOUT, Program};
use crate::support::test_server::testkit;

/// A collector that is overloaded at first. Sends the request line, headers and body of each request.
fn collector() -> (String, Receiver<(String, String, Json)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = format!("http://{}", listener.local_addr().expect("it has one"));
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for (count, stream) in listener.incoming().enumerate() {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let (mut first, mut headers, mut length) = (String::new(), String::new(), 0);
            stream.read_line(&mut first).expect("a request");
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).expect("a header");
                if line.trim().is_empty() {
                    break;
                }
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a number");
                }
                headers.push_str(&line);
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).expect("the body");
            let status = if count == 0 { "503 Service Unavailable" } else { "200 OK" };
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}");
            stream.get_mut().write_all(answer.as_bytes()).expect("it listens");
            if count > 0 {
                let body = serde_json::from_slice(&body).expect("JSON");
                if sender.send((first, headers, body)).is_err() {
                    return;
                }
            }
        }
    });
    (address, receiver)
}

fn project(more: &[(&str, Json)]) -> Program {
    let program = Program::new(&[]).with("TOOLGATE_LOG", "off");
    let server = json!({ "name": "bank", "command": testkit(), "args": ["good"], "mode": "dynamic",
        "env": { "TESTKIT_LOG": program.path("seen") },
        "default_tool_config": { "max_instances": 5, "timeout": "60s" } });
    let mut project = json!({ "toolbox": { "mcps": [server] } });
    for (key, value) in more {
        project[*key] = value.clone();
    }
    program.write("toolgate.yaml", project.to_string());
    program
}

#[test]
fn a_call_becomes_two_spans() {
    let (address, requests) = collector();
    let telemetry = json!({ "otlp_endpoint": address, "headers": { "X-Key": "sesame-open" }, "service_name": "our-gate" });
    let program = project(&[("telemetry", telemetry)]);
    let run = program.run("tools call bank__echo text=precious --json");
    assert_eq!(run.code, 0, "{run}");
    let (first, headers, body) =
        requests.recv_timeout(HANG_TIMEOUT).expect("spans arrive after a failed attempt");
    assert_eq!(first.trim(), "POST /v1/traces HTTP/1.1");
    assert!(headers.to_lowercase().contains("x-key: sesame-open"), "{headers}");
    assert!(headers.to_lowercase().contains("content-type: application/json"), "{headers}");
    let resource = &body["resourceSpans"][0];
    assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "our-gate");
    let spans = resource["scopeSpans"][0]["spans"].as_array().expect("spans");
    let names: Vec<_> = spans.iter().map(|span| span["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["execute_tool echo", "tools/call echo"]);
    assert_eq!(spans[0]["traceId"], run.json()["metadata"]["traceId"]);
    assert_eq!(spans[1]["parentSpanId"], spans[0]["spanId"]);
    assert!(!body.to_string().contains("precious"), "arguments are not in spans");
    let seen = fs_err::read_to_string(program.path("seen")).expect("the server was called");
    let traceparent =
        format!("00-{}-{}-01", spans[1]["traceId"].as_str().unwrap(), spans[1]["spanId"].as_str().unwrap());
    assert!(seen.contains(&traceparent), "the server got {traceparent}: {seen}");
    let stages: Vec<_> = spans[0]["events"]
        .as_array()
        .expect("events")
        .iter()
        .map(|event| event["name"].as_str().unwrap())
        .collect();
    assert!(stages.starts_with(&["resolve", "authorize", "validate_input"]), "{stages:?}");
}

/// The standard OpenTelemetry variables.
#[test]
fn the_standard_variables_are_used() {
    let (address, requests) = collector();
    let program = project(&[])
        .with("OTEL_EXPORTER_OTLP_ENDPOINT", &address)
        .with("OTEL_EXPORTER_OTLP_HEADERS", "x-key=sesame, x-other=1")
        .with("OTEL_SERVICE_NAME", "by-variable");
    let denied = program.run("tools call bank__echo text=x --as stranger --json");
    assert_eq!(denied.code, 1, "{denied}");
    let run = program.run("tools call bank__echo --args {\"text\":5} --json");
    let (_, headers, body) = requests.recv_timeout(HANG_TIMEOUT).expect("spans arrive");
    assert!(headers.to_lowercase().contains("x-other: 1"), "{headers}");
    let text = body.to_string();
    assert!(text.contains("by-variable") && text.contains("execute_tool echo"), "{text} {run}");
    let quiet = program.with("OTEL_SDK_DISABLED", "true");
    quiet.run("tools call bank__echo text=x --json");
    assert!(requests.try_recv().is_err(), "nothing is sent");
}

/// An unreachable collector does not delay calls, and the loss is reported.
#[test]
fn an_unreachable_collector() {
    let gone = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let telemetry = json!({ "otlp_endpoint": format!("http://{gone}"), "timeout": "1s" });
    let program = project(&[("telemetry", telemetry)]).with("TOOLGATE_LOG", "warn");
    let run = program.run("tools call bank__echo text=x --json");
    assert_eq!((run.code, run.json()["status"].as_str()), (0, Some("success")), "{run}");
    assert!(run.stderr.contains("trace collector"), "{run}");
}
