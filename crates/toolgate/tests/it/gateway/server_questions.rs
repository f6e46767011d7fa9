//! Questions of older servers in the middle of a call: who hears them, who does not, and who is told that they are over;
//! and the tasks that such servers make of calls.

use serde_json::{Value as Json, json};

use crate::client::{ACCEPT, Events, Session, asked, called};
use crate::door::{Door, OWNER, project};
use crate::kit::Kit;
use crate::servers::testkit;

const FORM: &str = r#"{ "elicitation": {} }"#;

fn session<'a>(door: &'a Door, capabilities: &str) -> Session<'a> {
    let capabilities = serde_json::from_str(capabilities).expect("JSON");
    Session::begin(door, OWNER, "2025-11-25", &capabilities)
}

/// A call of the tool that asks, with words by which its question is known.
fn asking(id: u32, words: &str) -> Json {
    called(id, "ask", &json!({ "message": words }))
}

/// The question on a stream, which must be this one.
fn question(stream: &mut Events, words: &str) -> Json {
    let question = stream.message();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    assert_eq!(question["params"]["message"], words, "{question}");
    question["id"].clone()
}

fn answer(session: &Session<'_>, id: &Json, size: u32) {
    let result = json!({ "action": "accept", "content": { "size": size } });
    let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
    assert_eq!(session.post(&answer).status, 202);
}

/// What a call gave.
fn said(result: &Json) -> &str {
    result["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

/// Two clients with a question each at the same time, who answer in the other order.
fn two_at_once(door: &Door) {
    let (ann, bob) = (session(door, FORM), session(door, FORM));
    let mut to_ann = ann.stream(&asking(1, "Ann?"));
    let for_ann = question(&mut to_ann, "Ann?");
    let mut to_bob = bob.stream(&asking(1, "Bob?"));
    let for_bob = question(&mut to_bob, "Bob?");
    // An answer from the wrong side is none.
    let mut forged = for_ann.clone();
    answer(&bob, &json!(99), 13);
    if for_ann == for_bob {
        forged = json!(98);
    }
    answer(&bob, &forged, 13);
    answer(&bob, &for_bob, 2);
    let end = to_bob.message();
    assert!(said(&end).contains(r#""size":2"#), "{end}");
    answer(&ann, &for_ann, 1);
    let end = to_ann.message();
    assert!(said(&end).contains(r#""size":1"#), "{end}");
    assert!(to_ann.next().is_none() && to_bob.next().is_none(), "nothing else came");
}

#[test]
fn over_http_a_question_comes_on_the_stream_of_its_call() {
    let kit = Kit::start("good");
    let servers = json!([{ "name": "s", "url": kit.url("http", "mcp"), "mode": "dynamic",
        "default_tool_config": { "max_instances": 8, "timeout": "50s" } }]);
    let door = Door::open(&json!({ "mcps": servers }));
    two_at_once(&door);
    two_at_once(&door);
}

#[test]
fn over_a_pipe_nobody_hears_what_could_be_for_others() {
    let door = Door::open(&json!({}));
    let file = door.program.path("go");
    let (ann, bob) = (session(&door, FORM), session(&door, FORM));
    // While two have calls at one process, a question could be for either, so it is for none.
    let started = door.seen().len();
    let waiting = std::thread::scope(|scope| {
        let call = called(1, "echo", &json!({ "fault": "until", "message": file }));
        let bob = &bob;
        let waiting = scope.spawn(move || bob.post(&call));
        door.wait("the first call", |door| door.seen().len() > started);
        let refused = ann.post(&asking(2, "Ann?")).json();
        assert!(said(&refused).contains("does not say which one it belongs to"), "{refused}");
        // From now on it is known to ask, and whoever comes while others are there gets a process of its own.
        let mut stream = ann.stream(&asking(3, "Ann again?"));
        let id = question(&mut stream, "Ann again?");
        answer(&ann, &id, 7);
        let end = stream.message();
        assert!(said(&end).contains(r#""size":7"#), "{end}");
        fs_err::write(&file, "").expect("it can be written");
        waiting.join().expect("it is answered")
    });
    // A document, not a stream: nothing was said to it.
    assert_eq!(said(&waiting.json()), "there it is");
    two_at_once(&door);
}

#[test]
fn a_question_that_is_withdrawn() {
    let door = Door::open(&json!({}));
    let file = door.program.path("withdraw");
    let ann = session(&door, FORM);
    let mut stream = ann.stream(&called(1, "ask", &json!({ "withdraw": file })));
    let id = question(&mut stream, "How large?");
    fs_err::write(&file, "").expect("it can be written");
    let told = stream.message();
    assert_eq!(
        (&told["method"], &told["params"]["requestId"]),
        (&json!("notifications/cancelled"), &id),
        "{told}"
    );
    assert_eq!(said(&stream.message()), "withdrawn");
    answer(&ann, &id, 1);
    assert_eq!(ann.post(&asked(2, "ping", &json!({}))).json()["result"], json!({}));
}

/// A client that did not declare that it opens pages is sent to none.
#[test]
fn ways_of_asking_that_a_client_did_not_declare() {
    let door = Door::open(&json!({}));
    let call = called(1, "ask", &json!({ "mode": "url" }));
    for capabilities in [FORM, r#"{ "elicitation": { "form": {} } }"#] {
        let refused = session(&door, capabilities).post(&call).json();
        assert!(said(&refused).contains("with the mode `url`"), "{refused}");
    }
    let both = session(&door, r#"{ "elicitation": { "form": {}, "url": {} } }"#);
    let mut stream = both.stream(&call);
    let question = stream.message();
    assert_eq!(question["params"]["url"], "https://example.com/", "{question}");
    let accepted = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept" } });
    assert_eq!(both.post(&accepted).status, 202);
    assert_eq!(said(&stream.message()), r#"{"action":"accept"}"#);
}

/// A state that a server gives out is good for who got it, for what it was given, and once.
#[test]
fn states_go_back_where_they_came_from() {
    let callers = json!([{ "id": "bob", "permissions": ["*:*"], "api_key": "key-of-bob" }]);
    let door = Door::open(&json!({ "server": { "args": ["faulty", "modern"] }, "callers": callers }));
    let call = |key: &str, tool: &str, more: &Json| {
        let mut call = called(1, tool, &json!({ "message": "Whose?" }));
        call["params"]["_meta"] = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } } });
        for (name, value) in more.as_object().expect("members") {
            call["params"][name] = value.clone();
        }
        let headers = [
            &format!("X-API-Key: {key}"),
            ACCEPT,
            "Content-Type: application/json",
            "MCP-Protocol-Version: 2026-07-28",
            "Mcp-Method: tools/call",
            &format!("Mcp-Name: {tool}"),
        ];
        door.request("POST /mcp", &headers, &call.to_string()).json()
    };
    let asked = call(OWNER, "ask", &json!({}));
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let state = asked["result"]["requestState"].as_str().expect("a state").to_owned();
    assert!(!state.contains("Whose?"), "{state}");
    let answered =
        |state: &str| json!({ "requestState": state, "inputResponses": { "size": { "action": "accept" } } });
    let seen = door.seen().len();
    let forged = [
        (OWNER, "ask", state.replace("tg2.e", "tg2.f")),
        (OWNER, "ask", r#"{"step":1}"#.to_owned()),
        ("key-of-bob", "ask", state.clone()),
        (OWNER, "echo", state.clone()),
    ];
    for (key, tool, state) in forged {
        let refused = call(key, tool, &answered(&state));
        assert_eq!(refused["error"]["code"], -32602, "{key} {tool}: {refused}");
    }
    assert_eq!(door.seen().len(), seen, "none of them reached the server");
    let end = call(OWNER, "ask", &answered(&state));
    let given: Json = serde_json::from_str(said(&end)).expect("JSON");
    assert_eq!(given["state"], r#"{"step":1,"of":"Whose?"}"#, "as the server gave it");
    assert_eq!(given["said"]["size"]["action"], "accept");
    assert_eq!(call(OWNER, "ask", &answered(&state))["error"]["code"], -32602, "a second time");
    assert_eq!(door.seen().len(), seen + 1);
}

/// The tasks of a caller are listed to it, wherever they are, and to nobody else.
#[test]
fn tasks_are_listed_to_whose_they_are() {
    let servers: Vec<_> = ["one", "two"]
        .map(|name| {
            json!({ "name": name, "command": testkit(), "args": ["tasks"], "mode": "dynamic",
            "default_tool_config": { "max_instances": 8, "timeout": "50s" } })
        })
        .into();
    let callers = json!([{ "id": "bob", "permissions": ["*:*"], "api_key": "key-of-bob" }]);
    let door = Door::of(project(&json!({ "mcps": servers, "callers": callers })));
    let begin = |key: &str, revision: &str| Session::begin(&door, key, revision, &json!({ "tasks": {} }));
    let (ann, bob) = (begin(OWNER, "2025-11-25"), begin("key-of-bob", "2025-11-25"));
    let start = |session: &Session<'_>, tool: &str, message: String| {
        let mut call = called(1, tool, &json!({ "message": message }));
        call["params"]["task"] = json!({ "ttl": 60000 });
        let begun = session.post(&call).json();
        begun["result"]["task"]["taskId"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned()
    };
    let page = |session: &Session<'_>, cursor: Option<&Json>| {
        let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
        session.post(&asked(2, "tasks/list", &params)).json()["result"].clone()
    };
    let told = |page: &Json| -> Vec<String> {
        let all = page["tasks"].as_array().unwrap_or_else(|| panic!("{page}"));
        all.iter().map(|task| task["statusMessage"].as_str().expect("words").to_owned()).collect()
    };
    assert!(told(&page(&ann, None)).is_empty());
    let gone = start(&ann, "one__echo", "first".to_owned());
    for number in 0..50 {
        start(&ann, if number < 25 { "two__echo" } else { "one__echo" }, format!("number {number}"));
    }
    start(&bob, "one__echo", "Bob's".to_owned());
    let first = page(&ann, None);
    assert_eq!(told(&first).len(), 50, "{first}");
    assert_eq!(told(&first)[0], "number 49", "the newest first");
    assert!(first["tasks"][0].get("_meta").is_none());
    let second = page(&ann, Some(&first["nextCursor"]));
    assert_eq!((told(&second), &second["nextCursor"]), (vec!["first".to_owned()], &Json::Null));
    assert_eq!(told(&page(&bob, None)), ["Bob's"]);
    let cancelled = ann.post(&asked(3, "tasks/cancel", &json!({ "taskId": gone }))).json();
    assert_eq!(cancelled["result"]["status"], "cancelled", "{cancelled}");
    assert!(told(&page(&ann, Some(&first["nextCursor"]))).is_empty(), "what is gone is not listed");
    let bad = ann.post(&asked(4, "tasks/list", &json!({ "cursor": "x" }))).json();
    assert_eq!(bad["error"]["code"], -32602, "{bad}");
    let older = begin(OWNER, "2025-06-18").post(&asked(5, "tasks/list", &json!({}))).json();
    assert_eq!(older["error"]["code"], -32601, "a revision without tasks: {older}");
}
