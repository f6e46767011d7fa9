//! Runs over HTTP: they go on whoever watches, can be watched again, and end when they should.

use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::agent::{ScriptedModel, call};
use crate::door::{Door, OWNER, request};

/// A turn whose call ends when there is a file `go`.
fn waits(file: &str) -> Json {
    json!({ "text": "Let me see.", "calls": [call("c1", "echo", json!({ "fault": "until", "message": file }))] })
}

/// A door with an agent; `ann` and `bob` may begin runs.
fn door(model: &ScriptedModel) -> Door {
    let caller = |id: &str| json!({ "id": id, "permissions": ["s:*", "runs:start"], "api_key": format!("key-of-{id}") });
    Door::open(&json!({ "agent": { "model": model.model() }, "callers": [caller("ann"), caller("bob")] }))
}

/// A model and a door, where the first call waits for a file `go` in the folder that comes along.
fn waiting(more: &[Json]) -> (ScriptedModel, Door, TempDir) {
    let folder = TempDir::new().expect("the temporary folder can be written to");
    let mut turns = vec![waits(&folder.path().join("go").display().to_string())];
    turns.extend(more.iter().cloned());
    let model = ScriptedModel::start(&json!(turns));
    let door = door(&model);
    (model, door, folder)
}

/// An event: its number, where it has one, and what it says.
type Event = (Option<u64>, Json);

/// The events of an answer, as they come.
struct Watched(BufReader<TcpStream>);

impl Watched {
    fn open(door: &Door, first: &str, headers: &[&str], body: &str) -> Self {
        let mut connection = door.connect();
        connection.write_all(request(first, headers, body).as_bytes()).expect("it is sent");
        let mut reader = BufReader::new(connection);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).expect("an answer") > 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        Self(reader)
    }

    fn of(door: &Door, key: &str, run: &str, after: Option<u64>) -> Self {
        let (key, after) =
            (format!("X-API-Key: {key}"), after.map(|after| format!("Last-Event-ID: {after}")));
        let headers: Vec<&str> = std::iter::once(key.as_str()).chain(after.as_deref()).collect();
        Self::open(door, &format!("GET /v1/runs/{run}/events"), &headers, "")
    }

    fn begun(door: &Door, key: &str, task: &Json) -> Self {
        let key = format!("X-API-Key: {key}");
        Self::open(door, "POST /v1/runs", &[&key, "Content-Type: application/json"], &task.to_string())
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

    fn until(&mut self, name: &str) -> Event {
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

/// Those that are kept, by their names.
fn names(events: &[Event]) -> Vec<&str> {
    events
        .iter()
        .filter(|(number, _)| number.is_some())
        .map(|(_, event)| event["event"].as_str().expect("a name"))
        .collect()
}

fn state(door: &Door, key: &str, run: &str) -> String {
    let shown = door.get(&format!("/v1/runs/{run}"), key).json();
    shown["state"].as_str().unwrap_or_else(|| panic!("{shown}")).to_owned()
}

fn stop(door: &Door, key: &str, run: &str) -> u16 {
    door.request(&format!("DELETE /v1/runs/{run}"), &[&format!("X-API-Key: {key}")], "").status
}

#[test]
fn a_run_goes_on_when_its_watcher_leaves_and_is_watched_again() {
    let (_model, door, folder) = waiting(&[json!({ "text": "It is there." })]);
    let mut watched = Watched::begun(&door, "key-of-ann", &json!({ "task": "wait" }));
    let (_, begun) = watched.until("begun");
    let (called, _) = watched.until("call");
    drop(watched);
    let run = begun["run"].as_str().expect("an id").to_owned();
    assert_eq!(state(&door, "key-of-ann", &run), "running");
    let path = format!("/v1/runs/{run}/events");
    assert_eq!(door.get(&path, "key-of-bob").status, 404, "it is somebody else's");
    let all = std::thread::scope(|scope| {
        let mut watched = Watched::of(&door, "key-of-ann", &run, None);
        let mut seen = vec![watched.until("begun")];
        let rest = scope.spawn(move || watched.rest());
        fs_err::write(folder.path().join("go"), "").expect("it can be written");
        seen.extend(rest.join().expect("it ends"));
        seen
    });
    assert_eq!(names(&all), ["begun", "said", "call", "result", "said", "ended"]);
    let (_, ended) = all.last().expect("an end");
    assert_eq!((&ended["reason"], &ended["answer"]), (&json!("done"), &json!("It is there.")), "{ended}");
    // The same when all is over: the whole, and what came after the event that was seen last.
    let kept =
        |events: Vec<Event>| events.into_iter().filter(|(number, _)| number.is_some()).collect::<Vec<_>>();
    let all = kept(all);
    assert_eq!(Watched::of(&door, "key-of-ann", &run, None).rest(), all);
    let later = Watched::of(&door, "key-of-ann", &run, called).rest();
    assert_eq!(names(&later), ["result", "said", "ended"]);
    assert_eq!(later, all[3..]);
    assert_eq!(Watched::of(&door, OWNER, &run, None).rest().len(), all.len(), "with `runs:read`");
    let bad = door.request(&format!("GET {path}"), &["X-API-Key: key-of-ann", "Last-Event-ID: x"], "");
    assert_eq!(bad.status, 400);
    assert_eq!(state(&door, "key-of-ann", &run), "done");
    assert_eq!(stop(&door, "key-of-ann", &run), 409, "nobody works on it");
}

#[test]
fn a_run_is_stopped_by_whose_it_is_and_goes_on_later() {
    let (_model, door, folder) = waiting(&[json!({ "text": "It is there." })]);
    let mut watched = Watched::begun(&door, "key-of-ann", &json!({ "task": "wait" }));
    let (_, begun) = watched.until("begun");
    watched.until("call");
    let run = begun["run"].as_str().expect("an id").to_owned();
    let resume = json!({ "resume": run });
    assert_eq!(door.post("/v1/runs", "key-of-ann", &resume).status, 409, "it goes on");
    assert_eq!(stop(&door, "key-of-bob", &run), 404);
    assert_eq!(stop(&door, "key-of-ann", &run), 202);
    let rest = watched.rest();
    let (_, ended) = rest.last().expect("an end");
    assert_eq!((&ended["event"], &ended["reason"]), (&json!("ended"), &json!("interrupted")), "{ended}");
    door.wait("the end", |door| stop(door, "key-of-ann", &run) == 409);
    assert_eq!(state(&door, "key-of-ann", &run), "interrupted");
    fs_err::write(folder.path().join("go"), "").expect("it can be written");
    let resumed = Watched::begun(&door, "key-of-ann", &resume).rest();
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
fn a_run_ends_with_the_door_and_says_so() {
    let (_model, mut door, _folder) = waiting(&[]);
    let mut watched = Watched::begun(&door, "key-of-ann", &json!({ "task": "wait" }));
    watched.until("call");
    door.signal("-TERM");
    let rest = watched.rest();
    assert_eq!(rest.last().expect("an end").1["reason"], "interrupted", "{rest:?}");
    assert_eq!(door.ended(), Some(0));
    let runs = door.program.run("runs --json").json();
    let shown =
        door.program.run(&format!("runs show {} --json", runs[0]["run"].as_str().expect("an id"))).json();
    let last = shown["entries"].as_array().and_then(|all| all.last()).expect("a line");
    assert_eq!((&last["kind"], &last["reason"]), (&json!("ended"), &json!("interrupted")), "{shown}");
}

#[test]
fn a_run_ends_with_the_key_that_began_it() {
    let (_model, door, _folder) = waiting(&[]);
    let made = door.post("/v1/callers", OWNER, &json!({ "id": "eve", "permissions": ["s:*", "runs:start"] }));
    let key = made.json()["key"].as_str().unwrap_or_else(|| panic!("{made:?}")).to_owned();
    let mut watched = Watched::begun(&door, &key, &json!({ "task": "wait" }));
    let run = watched.until("begun").1["run"].as_str().expect("an id").to_owned();
    watched.until("call");
    drop(watched);
    let removed = door.request("DELETE /v1/callers/eve", &[&format!("X-API-Key: {OWNER}")], "");
    assert_eq!(removed.status, 204, "{removed:?}");
    door.wait("the end of the run", |door| state(door, OWNER, &run) == "interrupted");
}

#[test]
fn so_many_runs_go_on_at_once() {
    let model = ScriptedModel::start(&json!(vec![json!({ "silent": true }); 40]));
    let door = door(&model);
    let task = json!({ "task": "wait" });
    let mut runs = Vec::new();
    for _ in 0..32 {
        let mut watched = Watched::begun(&door, "key-of-ann", &task);
        runs.push(watched.until("begun").1["run"].as_str().expect("an id").to_owned());
    }
    let full = door.post("/v1/runs", "key-of-bob", &task);
    assert_eq!(full.told(), (429, "overloaded".to_owned()), "{full:?}");
    assert_eq!(stop(&door, "key-of-ann", &runs[0]), 202);
    door.wait("a place", |door| stop(door, "key-of-ann", &runs[0]) == 409);
    Watched::begun(&door, "key-of-bob", &task).until("begun");
}
