//! SIGKILL of `toolgate serve` under load: every response and every call to a server is in the log.

use std::collections::HashSet;
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, HttpResponse, OWNER, project, request};
use crate::support::program::HANG_TIMEOUT;

#[test]
fn killed_under_load() {
    kills(4);
}

#[test]
#[ignore = "takes some minutes"]
fn two_hundred_kills_of_the_gateway() {
    kills(200);
}

/// Makes one call; returns `None` without a response.
fn call(port: u16, message: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(HANG_TIMEOUT)).ok()?;
    let body = json!({ "arguments": { "message": message } }).to_string();
    let key = format!("X-API-Key: {OWNER}");
    let headers = [key.as_str(), "Content-Type: application/json"];
    stream.write_all(request("POST /v1/tools/echo/call", &headers, &body).as_bytes()).ok()?;
    HttpResponse::read(&mut BufReader::new(stream)).map(|response| response.status)
}

/// The kill must hit at an arbitrary moment, so nothing is waited for.
fn kills(times: usize) {
    let mut program = project(&json!({}));
    let (number, answered) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    for kill in 0..times {
        // Records of repeatable calls are not synced before the call; both kinds are tested.
        let tools = json!([{ "name": "echo", "idempotent": kill % 2 == 0 }]);
        let text = fs_err::read_to_string(program.path("toolgate.yaml")).expect("the file exists");
        let mut config: Json = serde_json::from_str(&text).expect("JSON");
        config["toolbox"]["tools"] = tools;
        program.write("toolgate.yaml", config.to_string());
        let Gateway { program: back, running, port } = Gateway::serve(program);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    loop {
                        let message = format!("m{}", number.fetch_add(1, Ordering::Relaxed));
                        match call(port, &message) {
                            Some(200) => answered.lock().expect("the lock is not poisoned").push(message),
                            Some(status) => panic!("{status} for {message}"),
                            None => return,
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(fastrand::u64(100..600)));
            drop(running);
        });
        program = back;
    }
    let gateway = Gateway::serve(program);
    let verified = gateway.program.run("log verify");
    assert_eq!(verified.code, 0, "{verified}");
    let logged = gateway.program.run("log --json --limit 1000000");
    let calls: Vec<Json> =
        logged.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let message = |call: &Json| call["begin"]["arguments"]["message"].as_str().map(str::to_owned);
    let begun: HashSet<_> = calls.iter().filter_map(message).collect();
    let ended: HashSet<_> =
        calls.iter().filter(|call| call["end"]["status"] == "success").filter_map(message).collect();
    let answered = answered.into_inner().expect("the lock is not poisoned");
    assert!(answered.len() > times, "{} calls were answered", answered.len());
    let lost: Vec<_> = answered.iter().filter(|message| !ended.contains(*message)).collect();
    assert!(lost.is_empty(), "answered and not in the log: {lost:?}");
    let seen = gateway.seen();
    assert!(seen.len() >= answered.len(), "the server records its requests");
    let unrecorded: Vec<_> = seen
        .iter()
        .filter_map(|seen| seen["message"]["params"]["arguments"]["message"].as_str().map(str::to_owned))
        .filter(|message| !begun.contains(message))
        .collect();
    assert!(unrecorded.is_empty(), "sent and not in the log: {unrecorded:?}");
}
