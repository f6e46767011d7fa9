//! Running calls, their stages and progress, figures, events, and the state of the log.

use std::io::Write as _;

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, request};
use crate::support::mcp_client::{Event, EventStream};

fn gateway() -> Gateway {
    Gateway::start(&json!({ "callers": [
        { "id": "ann", "permissions": ["s:*"], "api_key": "ann-key" },
        { "id": "bob", "permissions": ["s:*"], "api_key": "bob-key" },
        { "id": "reader", "permissions": ["executions:read"], "api_key": "reads-key" },
        { "id": "op", "permissions": ["executions:cancel"], "api_key": "ops-key" },
    ] }))
}

/// Opens a stream of events.
fn open(gateway: &Gateway, first: &str, key: &str, headers: &[&str], body: &str) -> EventStream {
    let mut stream = gateway.connect();
    let key = format!("X-API-Key: {key}");
    let headers: Vec<_> = headers.iter().copied().chain([&*key]).collect();
    stream.write_all(request(first, &headers, body).as_bytes()).expect("it is sent");
    let stream = EventStream::read(stream);
    assert_eq!(stream.status, 200, "{first}");
    stream
}

/// Starts a call that ends once the file `gate` exists.
fn start_call(gateway: &Gateway, key: &str) -> (EventStream, String) {
    let gate = gateway.program.path("gate");
    let body = json!({ "arguments": { "fault": "until", "message": gate, "steps": 2 } }).to_string();
    let headers = ["Accept: text/event-stream", "Content-Type: application/json"];
    let mut stream = open(gateway, "POST /v1/tools/echo/call?trace=true", key, &headers, &body);
    let started = stream.event().expect("an event");
    assert_eq!(started.name.as_deref(), Some("started"), "{started:?}");
    let id = started.message()["callId"].as_str().expect("an id").to_owned();
    (stream, id)
}

fn named(stream: &mut EventStream, name: &str) -> Json {
    loop {
        let event: Event = stream.event().expect("an event");
        if event.name.as_deref() == Some(name) {
            return event.message();
        }
    }
}

fn delete(gateway: &Gateway, id: &str, key: &str) -> u16 {
    gateway.request(&format!("DELETE /v1/executions/{id}"), &[&format!("X-API-Key: {key}")], "").status
}

#[test]
fn running_calls_are_listed_and_cancelled() {
    let gateway = gateway();
    let (mut stream, id) = start_call(&gateway, "ann-key");
    assert_eq!(named(&mut stream, "progress")["progress"], 0);
    assert_eq!(named(&mut stream, "progress")["progress"], 1);
    let running = |query: &str| gateway.executions(&format!("state=running&{query}"));
    let call = &running("caller=ann&server=s&tool=ec*")[0];
    assert_eq!(
        (&call["id"], &call["state"], &call["caller"]),
        (&json!(id), &json!("running"), &json!("ann"))
    );
    assert_eq!((&call["stage"], &call["server"], &call["end"]), (&json!("record"), &json!("s"), &Json::Null));
    assert!(running("caller=bob").is_empty());
    let shown = gateway.get(&format!("/v1/executions/{id}"), OWNER).json();
    assert_eq!(
        (&shown["status"], &shown["state"], &shown["begin"]["call"]),
        (&json!("open"), &json!("running"), &json!(id))
    );
    // A call that a caller may not cancel looks like a missing one.
    assert_eq!(delete(&gateway, &id, "bob-key"), 404);
    assert_eq!(delete(&gateway, &id, "reads-key"), 409);
    assert_eq!(delete(&gateway, &id, "ops-key"), 202);
    let result = named(&mut stream, "result");
    assert_eq!((&result["error"]["code"], &result["metadata"]["callId"]), (&json!("cancelled"), &json!(id)));
    assert_eq!(result["error"]["message"], "the call was cancelled by `op`");
    assert!(stream.event().is_none(), "the result is the last event");
    gateway.wait("its end", |gateway| !gateway.executions("code=cancelled").is_empty());
    let call = gateway.get(&format!("/v1/executions/{id}"), OWNER).json();
    assert_eq!(
        (&call["state"], &call["code"], &call["end"]["attempts"]),
        (&json!("ended"), &json!("cancelled"), &json!(1))
    );
    assert_eq!(call["steps"][0]["stage"], "resolve");
    assert!(call["steps"].as_array().expect("stages").iter().any(|step| step["failed"] == true), "{call}");
    assert_eq!((delete(&gateway, &id, OWNER), delete(&gateway, &id, "ann-key")), (409, 404));
    // A caller cancels its own call.
    let (mut own, id) = start_call(&gateway, "ann-key");
    assert_eq!(delete(&gateway, &id, "ann-key"), 202);
    assert_eq!(named(&mut own, "result")["error"]["code"], "cancelled");
    // A client that leaves cancels its call, too, and its stages are recorded.
    let (left, id) = start_call(&gateway, "ann-key");
    drop(left);
    gateway.wait("its end", |gateway| !gateway.executions("status=abandoned").is_empty());
    let call = &gateway.executions("status=abandoned")[0];
    assert_eq!(call["id"], json!(id));
    assert!(call["steps"].as_array().is_some_and(|steps| steps.len() > 3), "{call}");
    assert!(running("").is_empty());
}

#[test]
fn stages_and_filters_of_executions() {
    let gateway = gateway();
    let traced = gateway
        .post(
            "/v1/tools/echo/call?trace=true",
            "ann-key",
            &json!({ "arguments": { "message": "a" },
            "context": { "sessionId": "s-1", "correlationId": "order-7" } }),
        )
        .json();
    let stages: Vec<_> =
        traced["steps"].as_array().expect("stages").iter().map(|step| &step["stage"]).collect();
    assert!(stages.contains(&&json!("invoke")) && traced["steps"][1]["note"].is_null(), "{traced}");
    assert_eq!(traced["steps"][1]["start"], traced["steps"][0]["micros"]);
    let plain = gateway.call("bob-key", "echo", &json!({ "message": "b" })).json();
    assert!(plain["steps"].is_null() && plain["metadata"]["callId"].is_string(), "{plain}");
    let owner = gateway.post("/v1/tools/echo/call?trace=true", OWNER, &json!({ "arguments": {} })).json();
    assert_eq!(owner["steps"][1]["note"], "permissions");
    assert_eq!(gateway.call("reads-key", "echo", &json!({})).status, 404);
    let count = |query: &str| gateway.executions(query).len();
    let trace = traced["metadata"]["traceId"].as_str().expect("a trace");
    for (query, calls) in [
        ("server=s", 4),
        ("server=other", 0),
        ("session=s-1", 1),
        ("correlation=order-7", 1),
        (&format!("trace={trace}"), 1),
        ("decision=deny", 1),
        ("decision=allow", 3),
        ("rule=permissions&caller=ann", 1),
        ("rule=none", 0),
        ("code=tool_not_found", 1),
        ("slower=1h", 0),
        ("slower=1us", 4),
    ] {
        assert_eq!(count(query), calls, "{query}");
    }
    let call = &gateway.executions("session=s-1&bodies=false")[0];
    assert!(call["begin"]["arguments"].is_null() && call["end"]["output"].is_null(), "{call}");
    assert!(gateway.executions("session=s-1")[0]["begin"]["arguments"].is_object());
    for bad in ["slower=long", "state=lost", "colour=red"] {
        assert_eq!(gateway.get(&format!("/v1/executions?{bad}"), OWNER).status, 400, "{bad}");
    }
    let listed = gateway.program.run("log --session s-1 --server s --json");
    assert_eq!(listed.stdout.lines().count(), 1, "{}", listed.stdout);
}

#[test]
fn figures_count_calls_and_survive_a_restart() {
    let mut gateway = gateway();
    for _ in 0..3 {
        gateway.call("ann-key", "echo", &json!({ "message": "a" }));
    }
    gateway.call("bob-key", "echo", &json!({ "message": "b" }));
    gateway.call("bob-key", "no-such-tool", &json!({}));
    let figures =
        |gateway: &Gateway, key: &str, query: &str| gateway.get(&format!("/v1/figures{query}"), key).json();
    let all = figures(&gateway, "reads-key", "?by=caller");
    let total = |figures: &Json| (figures["total"]["calls"].as_u64(), figures["total"]["refused"].as_u64());
    assert_eq!(total(&all), (Some(5), Some(1)), "{all}");
    assert_eq!(all["total"]["errors"], json!({ "tool_not_found": 1 }));
    assert_eq!((&all["groups"][0]["name"], &all["groups"][0]["calls"]), (&json!("ann"), &json!(3)));
    let durations = all["total"]["durations"].as_array().expect("buckets");
    assert_eq!(durations.len(), all["bounds"].as_array().expect("bounds").len() + 1);
    let steps = all["steps"].as_array().expect("steps").iter().map(|step| step["calls"].as_u64());
    assert_eq!(steps.map(Option::unwrap_or_default).sum::<u64>(), 5);
    // Without `executions:read`, a caller sees its own calls.
    let own = figures(&gateway, "bob-key", "?server=s");
    assert_eq!((total(&own), &own["caller"]), ((Some(1), Some(0)), &json!("bob")));
    assert_eq!(gateway.get("/v1/figures?caller=ann", "bob-key").status, 403);
    assert_eq!(total(&figures(&gateway, OWNER, "?tool=ec*&since=6h&step=1h")), (Some(4), Some(0)));
    assert_eq!(gateway.get("/v1/figures?by=colour", OWNER).status, 400);
    // The end of a call is in the log before its answer.
    gateway.signal("-TERM");
    assert_eq!(gateway.wait_for_exit(), Some(0));
    let gateway = Gateway::serve(gateway.program);
    gateway.wait("the figures", |gateway| figures(gateway, OWNER, "")["complete"] == true);
    let again = figures(&gateway, OWNER, "?by=server&since=7d");
    assert_eq!(total(&again), (Some(5), Some(1)), "{again}");
    assert_eq!(
        (&again["groups"][0]["name"], &again["groups"][0]["calls"]),
        (&json!("s"), &json!(4)),
        "{again}"
    );
}

#[test]
fn events_show_each_caller_what_it_may_see() {
    let gateway = gateway();
    let mut all = open(&gateway, "GET /v1/events", OWNER, &[], "");
    let mut ann = open(&gateway, "GET /v1/events?kinds=executions,server,tool", "ann-key", &[], "");
    let first = all.event().expect("an event");
    assert_eq!(first.name.as_deref(), Some("open"));
    assert_eq!(ann.event().expect("an event").name.as_deref(), Some("open"));
    gateway.call("bob-key", "echo", &json!({ "message": "b" }));
    gateway.call("bob-key", "no-such-tool", &json!({}));
    loop {
        let counts = named(&mut all, "executions");
        if counts["ended"] == 2 {
            assert_eq!((&counts["errors"], &counts["refused"]), (&json!(1), &json!(1)), "{counts}");
            break;
        }
    }
    gateway.call("ann-key", "echo", &json!({ "message": "a" }));
    loop {
        let event = ann.event().expect("an event");
        assert_eq!(event.name.as_deref(), Some("executions"), "{event:?}");
        if event.message()["ended"] == 1 {
            assert!(event.message()["running"].is_null());
            break;
        }
        assert_eq!(event.message()["ended"], 0, "calls of bob are not shown to ann: {event:?}");
    }
    let made = gateway.post("/v1/callers", OWNER, &json!({ "id": "new", "permissions": [] }));
    assert_eq!(made.status, 201);
    named(&mut all, "caller");
    assert_eq!(gateway.post("/v1/servers/s/reconnect", OWNER, &json!({})).status, 200);
    assert_eq!(named(&mut all, "server")["name"], "s");
    // A stream that reconnects gets what it missed, or is told to load everything.
    let id = first.id.expect("an id");
    let mut again = open(&gateway, "GET /v1/events", OWNER, &[&format!("Last-Event-ID: {id}")], "");
    named(&mut again, "caller");
    let mut other = open(&gateway, "GET /v1/events", OWNER, &["Last-Event-ID: 1-1"], "");
    assert_eq!(other.event().expect("an event").name.as_deref(), Some("reload"));
    assert_eq!(gateway.get("/v1/events?kinds=colour", OWNER).status, 400);
}

#[test]
fn log_tells_its_state_and_is_verified() {
    let gateway = gateway();
    gateway.call(OWNER, "echo", &json!({ "message": "a" }));
    let log = |gateway: &Gateway| gateway.get("/v1/log", "reads-key").json();
    let before = log(&gateway);
    assert_eq!(
        (&before["writable"], &before["verified"]["state"]),
        (&json!(true), &json!("never")),
        "{before}"
    );
    assert_eq!(before["last"]["seq"], before["records"]);
    assert_eq!(before["days"].as_array().map(Vec::len), Some(1));
    assert_eq!(gateway.post("/v1/log/verify", "ann-key", &json!({})).status, 403);
    assert_eq!(gateway.post("/v1/log/verify", "reads-key", &json!({})).status, 202);
    gateway.wait("the verification", |gateway| log(gateway)["verified"]["state"] == "intact");
    let after = log(&gateway);
    assert_eq!(after["writers"][0]["verifiedSeq"], after["verified"]["records"], "{after}");
}
