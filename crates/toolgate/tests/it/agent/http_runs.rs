//! Runs over HTTP: they continue without a watcher, can be watched again, and end with the gateway or the key.

use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::agent::{ScriptedModel, call};
use crate::support::gateway::{Gateway, OWNER, request};

/// A turn whose call ends once the file `go` exists.
fn blocking_turn(file: &str) -> Json {
    json!({ "text": "Let me see.", "calls": [call("c1", "echo", json!({ "fault": "until", "message": file }))] })
}

/// Starts a gateway with an agent; `ann` and `bob` may start runs.
fn start_gateway(model: &ScriptedModel) -> Gateway {
    let caller = |id: &str| json!({ "id": id, "permissions": ["s:*", "runs:start"], "api_key": format!("key-of-{id}") });
    Gateway::start(&json!({ "agent": { "model": model.model() }, "callers": [caller("ann"), caller("bob")] }))
}

/// Starts a model and a gateway. The first call waits for the file `go` in the returned folder.
fn waiting(more: &[Json]) -> (ScriptedModel, Gateway, TempDir) {
    let folder = TempDir::new().expect("the temporary folder can be written to");
    let mut turns = vec![blocking_turn(&folder.path().join("go").display().to_string())];
    turns.extend(more.iter().cloned());
    let model = ScriptedModel::start(&json!(turns));
    let gateway = start_gateway(&model);
    (model, gateway, folder)
}

/// An event: its number, if any, and its data.
type Event = (Option<u64>, Json);

/// The events of a response, as a stream.
struct RunStream(BufReader<TcpStream>);

impl RunStream {
    fn open(gateway: &Gateway, first: &str, headers: &[&str], body: &str) -> Self {
        let mut connection = gateway.connect();
        connection.write_all(request(first, headers, body).as_bytes()).expect("it is sent");
        let mut reader = BufReader::new(connection);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).expect("an answer") > 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        Self(reader)
    }

    fn of(gateway: &Gateway, key: &str, run: &str, after: Option<u64>) -> Self {
        let (key, after) =
            (format!("X-API-Key: {key}"), after.map(|after| format!("Last-Event-ID: {after}")));
        let headers: Vec<&str> = std::iter::once(key.as_str()).chain(after.as_deref()).collect();
        Self::open(gateway, &format!("GET /v1/runs/{run}/events"), &headers, "")
    }

    fn start(gateway: &Gateway, key: &str, task: &Json) -> Self {
        let key = format!("X-API-Key: {key}");
        Self::open(gateway, "POST /v1/runs", &[&key, "Content-Type: application/json"], &task.to_string())
    }

    fn next(&mut self) -> Option<Event> {
        let mut number = None;
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).expect("it is read") == 0 {
                return None;
            }
            if let Some(id) = line.strip_prefix("id: ") {
                number = Some(id.trim().parse().expect("a number"));
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((number, serde_json::from_str(data).expect("JSON")));
            }
        }
    }

    fn wait_until(&mut self, name: &str) -> Event {
        loop {
            let event = self.next().unwrap_or_else(|| panic!("`{name}` did not come"));
            if event.1["event"] == name {
                return event;
            }
        }
    }

    fn rest(mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.next()).collect()
    }
}

/// Returns the names of the stored events.
fn names(events: &[Event]) -> Vec<&str> {
    events
        .iter()
        .filter(|(number, _)| number.is_some())
        .map(|(_, event)| event["event"].as_str().expect("a name"))
        .collect()
}

fn state(gateway: &Gateway, key: &str, run: &str) -> String {
    let shown = gateway.get(&format!("/v1/runs/{run}"), key).json();
    shown["state"].as_str().unwrap_or_else(|| panic!("{shown}")).to_owned()
}

fn stop(gateway: &Gateway, key: &str, run: &str) -> u16 {
    gateway.request(&format!("DELETE /v1/runs/{run}"), &[&format!("X-API-Key: {key}")], "").status
}

/// A watcher that joins in the middle of a turn gets the text so far; one that joins again is told that its text is void.
#[test]
fn a_watcher_that_joins_gets_the_text_so_far() {
    let folder = TempDir::new().expect("the temporary folder can be written to");
    let file = folder.path().join("rest");
    let model =
        ScriptedModel::start(&json!([{ "text": "The first half, and the second half.", "waits": file }]));
    let gateway = start_gateway(&model);
    let mut started = RunStream::start(&gateway, "key-of-ann", &json!({ "task": "write" }));
    let (last, begun) = started.wait_until("begun");
    let run = begun["run"].as_str().expect("an id").to_owned();
    let mut text = String::new();
    while !text.contains("half") {
        let (_, event) = started.wait_until("text");
        text.push_str(event["text"].as_str().expect("text"));
    }
    let (_, joined) = RunStream::of(&gateway, "key-of-ann", &run, None).wait_until("text");
    assert!(joined["text"].as_str().is_some_and(|joined| joined.starts_with(&text)), "{joined}");
    let mut again = RunStream::of(&gateway, "key-of-ann", &run, last);
    assert_eq!(again.next().expect("an event").1["event"], "again");
    assert_eq!(again.next().expect("an event").1["text"], joined["text"]);
    fs_err::write(&file, "").expect("it can be written");
    let (_, said) = again.wait_until("said");
    assert_eq!(said["text"], "The first half, and the second half.");
}

#[test]
fn a_run_continues_after_its_watcher_disconnects() {
    let (_model, gateway, folder) = waiting(&[json!({ "text": "It is there." })]);
    let mut watched = RunStream::start(&gateway, "key-of-ann", &json!({ "task": "wait" }));
    let (_, begun) = watched.wait_until("begun");
    let (call_number, _) = watched.wait_until("call");
    drop(watched);
    let run = begun["run"].as_str().expect("an id").to_owned();
    assert_eq!(state(&gateway, "key-of-ann", &run), "running");
    let path = format!("/v1/runs/{run}/events");
    assert_eq!(gateway.get(&path, "key-of-bob").status, 404, "the run belongs to ann");
    let all = std::thread::scope(|scope| {
        let mut watched = RunStream::of(&gateway, "key-of-ann", &run, None);
        let mut seen = vec![watched.wait_until("begun")];
        let rest = scope.spawn(move || watched.rest());
        fs_err::write(folder.path().join("go"), "").expect("it can be written");
        seen.extend(rest.join().expect("it ends"));
        seen
    });
    assert_eq!(names(&all), ["begun", "said", "call", "result", "said", "ended"]);
    let (_, ended) = all.last().expect("an end");
    assert_eq!((&ended["reason"], &ended["answer"]), (&json!("done"), &json!("It is there.")), "{ended}");
    // After the end: all events, and the events after `Last-Event-ID`.
    let kept =
        |events: Vec<Event>| events.into_iter().filter(|(number, _)| number.is_some()).collect::<Vec<_>>();
    let all = kept(all);
    assert_eq!(RunStream::of(&gateway, "key-of-ann", &run, None).rest(), all);
    let later = RunStream::of(&gateway, "key-of-ann", &run, call_number).rest();
    assert_eq!(names(&later), ["result", "said", "ended"]);
    assert_eq!(later, all[3..]);
    assert_eq!(RunStream::of(&gateway, OWNER, &run, None).rest().len(), all.len(), "with `runs:read`");
    let bad = gateway.request(&format!("GET {path}"), &["X-API-Key: key-of-ann", "Last-Event-ID: x"], "");
    assert_eq!(bad.status, 400);
    // The last event is written before the run gives up its journal.
    gateway.wait("the end of the run", |gateway| state(gateway, "key-of-ann", &run) == "done");
    assert_eq!(stop(&gateway, "key-of-ann", &run), 409, "the run has ended");
}

#[test]
fn a_run_is_stopped_by_its_owner_and_resumed() {
    let (_model, gateway, folder) = waiting(&[json!({ "text": "It is there." })]);
    let mut watched = RunStream::start(&gateway, "key-of-ann", &json!({ "task": "wait" }));
    let (_, begun) = watched.wait_until("begun");
    watched.wait_until("call");
    let run = begun["run"].as_str().expect("an id").to_owned();
    let resume = json!({ "resume": run });
    assert_eq!(gateway.post("/v1/runs", "key-of-ann", &resume).status, 409, "the run continues");
    assert_eq!(stop(&gateway, "key-of-bob", &run), 404);
    assert_eq!(stop(&gateway, "key-of-ann", &run), 202);
    let rest = watched.rest();
    let (_, ended) = rest.last().expect("an end");
    assert_eq!((&ended["event"], &ended["reason"]), (&json!("ended"), &json!("interrupted")), "{ended}");
    gateway.wait("the end", |gateway| stop(gateway, "key-of-ann", &run) == 409);
    assert_eq!(state(&gateway, "key-of-ann", &run), "interrupted");
    fs_err::write(folder.path().join("go"), "").expect("it can be written");
    let resumed = RunStream::start(&gateway, "key-of-ann", &resume).rest();
    let (_, ended) = resumed.last().expect("an end");
    assert_eq!((&ended["reason"], &ended["answer"]), (&json!("done"), &json!("It is there.")), "{resumed:?}");
    let began: Vec<_> = resumed
        .iter()
        .filter(|(_, event)| event["event"] == "begun")
        .map(|(_, event)| &event["resumed"])
        .collect();
    assert_eq!(began, [&json!(false), &json!(true)], "from the beginning of the run on");
}

#[test]
fn a_run_ends_when_the_gateway_stops() {
    let (_model, mut gateway, _folder) = waiting(&[]);
    let mut watched = RunStream::start(&gateway, "key-of-ann", &json!({ "task": "wait" }));
    watched.wait_until("call");
    gateway.signal("-TERM");
    let rest = watched.rest();
    assert_eq!(rest.last().expect("an end").1["reason"], "interrupted", "{rest:?}");
    assert_eq!(gateway.wait_for_exit(), Some(0));
    let runs = gateway.program.run("runs --json").json();
    let shown =
        gateway.program.run(&format!("runs show {} --json", runs[0]["run"].as_str().expect("an id"))).json();
    let last = shown["entries"].as_array().and_then(|all| all.last()).expect("a line");
    assert_eq!((&last["kind"], &last["reason"]), (&json!("ended"), &json!("interrupted")), "{shown}");
}

#[test]
fn a_run_ends_when_its_key_is_revoked() {
    let (_model, gateway, _folder) = waiting(&[]);
    let made =
        gateway.post("/v1/callers", OWNER, &json!({ "id": "eve", "permissions": ["s:*", "runs:start"] }));
    let key = made.json()["key"].as_str().unwrap_or_else(|| panic!("{made:?}")).to_owned();
    let mut watched = RunStream::start(&gateway, &key, &json!({ "task": "wait" }));
    let run = watched.wait_until("begun").1["run"].as_str().expect("an id").to_owned();
    watched.wait_until("call");
    drop(watched);
    let removed = gateway.request("DELETE /v1/callers/eve", &[&format!("X-API-Key: {OWNER}")], "");
    assert_eq!(removed.status, 204, "{removed:?}");
    gateway.wait("the end of the run", |gateway| state(gateway, OWNER, &run) == "interrupted");
}

/// Prompts of the instructions are read with the rights of the caller that started the run.
#[test]
fn prompts_need_a_permission_of_the_caller() {
    let model = ScriptedModel::start(&json!([{ "text": "Done." }, { "text": "Done." }]));
    let caller = |id: &str, all: &str| json!({ "id": id, "permissions": [all, "runs:start"], "api_key": format!("key-of-{id}") });
    let gateway = Gateway::start(&json!({ "server": { "args": ["good"] },
        "agent": { "model": model.model(), "prompts": ["s/greet"] },
        "callers": [caller("ann", "s:echo"), caller("bob", "s:*")] }));
    for (id, greets) in [("ann", false), ("bob", true)] {
        RunStream::start(&gateway, &format!("key-of-{id}"), &json!({ "task": "go" })).wait_until("ended");
        let seen = model.seen().last().expect("a request").to_string();
        assert_eq!(seen.contains("Greet everyone."), greets, "{id}: {seen}");
    }
}

#[test]
fn concurrent_runs_are_limited() {
    let model = ScriptedModel::start(&json!(vec![json!({ "silent": true }); 40]));
    let gateway = start_gateway(&model);
    let task = json!({ "task": "wait" });
    let mut runs = Vec::new();
    for _ in 0..8 {
        let mut watched = RunStream::start(&gateway, "key-of-ann", &task);
        runs.push(watched.wait_until("begun").1["run"].as_str().expect("an id").to_owned());
    }
    let full = |key: &str| {
        let full = gateway.post("/v1/runs", key, &task);
        assert_eq!(full.status_and_code(), (429, "overloaded".to_owned()), "{full:?}");
    };
    full("key-of-ann");
    // One caller does not take the slots of others; all callers together take at most 32.
    for caller in ["one", "two", "three"] {
        let made =
            gateway.post("/v1/callers", OWNER, &json!({ "id": caller, "permissions": ["runs:start"] }));
        let key = made.json()["key"].as_str().unwrap_or_else(|| panic!("{made:?}")).to_owned();
        for _ in 0..8 {
            RunStream::start(&gateway, &key, &task).wait_until("begun");
        }
    }
    full("key-of-bob");
    assert_eq!(stop(&gateway, "key-of-ann", &runs[0]), 202);
    gateway.wait("a place", |gateway| stop(gateway, "key-of-ann", &runs[0]) == 409);
    RunStream::start(&gateway, "key-of-bob", &task).wait_until("begun");
}
