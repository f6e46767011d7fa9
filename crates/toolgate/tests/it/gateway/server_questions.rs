//! Elicitation by servers with sessions: routing, withdrawal and capabilities; and tasks.

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, project};
use crate::support::mcp_client::{ACCEPT, EventStream, McpSession, call_message, request_message};
use crate::support::test_server::{TestServer, testkit};

const FORM: &str = r#"{ "elicitation": {} }"#;

fn session<'a>(gateway: &'a Gateway, capabilities: &str) -> McpSession<'a> {
    let capabilities = serde_json::from_str(capabilities).expect("JSON");
    McpSession::begin(gateway, OWNER, "2025-11-25", &capabilities)
}

/// Returns a call of the tool that asks, with a message to recognize the question.
fn ask_call(id: u32, words: &str) -> Json {
    call_message(id, "ask", &json!({ "message": words }))
}

/// Reads the question from a stream and checks its message.
fn question(stream: &mut EventStream, words: &str) -> Json {
    let question = stream.message();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    assert_eq!(question["params"]["message"], words, "{question}");
    question["id"].clone()
}

fn answer(session: &McpSession<'_>, id: &Json, size: u32) {
    let result = json!({ "action": "accept", "content": { "size": size } });
    let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
    assert_eq!(session.post(&answer).status, 202);
}

/// Returns the text of a result.
fn result_text(result: &Json) -> &str {
    result["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

/// Two clients have a question each and answer in reverse order.
fn two_at_once(gateway: &Gateway) {
    let (ann, bob) = (session(gateway, FORM), session(gateway, FORM));
    let mut to_ann = ann.stream(&ask_call(1, "Ann?"));
    let for_ann = question(&mut to_ann, "Ann?");
    let mut to_bob = bob.stream(&ask_call(1, "Bob?"));
    let for_bob = question(&mut to_bob, "Bob?");
    // An answer by the other client is ignored.
    let mut forged = for_ann.clone();
    answer(&bob, &json!(99), 13);
    if for_ann == for_bob {
        forged = json!(98);
    }
    answer(&bob, &forged, 13);
    answer(&bob, &for_bob, 2);
    let end = to_bob.message();
    assert!(result_text(&end).contains(r#""size":2"#), "{end}");
    answer(&ann, &for_ann, 1);
    let end = to_ann.message();
    assert!(result_text(&end).contains(r#""size":1"#), "{end}");
    assert!(to_ann.next().is_none() && to_bob.next().is_none(), "no other message");
}

#[test]
fn over_http_a_question_comes_on_the_stream_of_its_call() {
    let kit = TestServer::start("good");
    let servers = json!([{ "name": "s", "url": kit.url("http", "mcp"), "mode": "dynamic",
        "default_tool_config": { "max_instances": 8, "timeout": "50s" } }]);
    let gateway = Gateway::start(&json!({ "mcps": servers }));
    two_at_once(&gateway);
    two_at_once(&gateway);
}

#[test]
fn over_stdio_ambiguous_questions_are_refused() {
    let gateway = Gateway::start(&json!({}));
    let file = gateway.program.path("go");
    let (ann, bob) = (session(&gateway, FORM), session(&gateway, FORM));
    // With calls of two clients in one process, a question cannot be attributed.
    let started = gateway.seen().len();
    let waiting = std::thread::scope(|scope| {
        let call = call_message(1, "echo", &json!({ "fault": "until", "message": file }));
        let bob = &bob;
        let waiting = scope.spawn(move || bob.post(&call));
        gateway.wait("the first call", |gateway| gateway.seen().len() > started);
        let refused = ann.post(&ask_call(2, "Ann?")).json();
        assert!(result_text(&refused).contains("does not say which one it belongs to"), "{refused}");
        // From here on the server is known to ask, and concurrent clients get a process each.
        let mut stream = ann.stream(&ask_call(3, "Ann again?"));
        let id = question(&mut stream, "Ann again?");
        answer(&ann, &id, 7);
        let end = stream.message();
        assert!(result_text(&end).contains(r#""size":7"#), "{end}");
        fs_err::write(&file, "").expect("it can be written");
        waiting.join().expect("it is answered")
    });
    // A JSON response, not a stream: nothing else was sent.
    assert_eq!(result_text(&waiting.json()), "there it is");
    two_at_once(&gateway);
}

#[test]
fn a_withdrawn_question_is_cancelled() {
    let gateway = Gateway::start(&json!({}));
    let file = gateway.program.path("withdraw");
    let ann = session(&gateway, FORM);
    let mut stream = ann.stream(&call_message(1, "ask", &json!({ "withdraw": file })));
    let id = question(&mut stream, "How large?");
    fs_err::write(&file, "").expect("it can be written");
    let notice = stream.message();
    assert_eq!(
        (&notice["method"], &notice["params"]["requestId"]),
        (&json!("notifications/cancelled"), &id),
        "{notice}"
    );
    assert_eq!(result_text(&stream.message()), "withdrawn");
    answer(&ann, &id, 1);
    assert_eq!(ann.post(&request_message(2, "ping", &json!({}))).json()["result"], json!({}));
}

/// URL elicitation is refused for clients without the capability.
#[test]
fn undeclared_elicitation_modes_are_refused() {
    let gateway = Gateway::start(&json!({}));
    let call = call_message(1, "ask", &json!({ "mode": "url" }));
    for capabilities in [FORM, r#"{ "elicitation": { "form": {} } }"#] {
        let refused = session(&gateway, capabilities).post(&call).json();
        assert!(result_text(&refused).contains("with the mode `url`"), "{refused}");
    }
    let both = session(&gateway, r#"{ "elicitation": { "form": {}, "url": {} } }"#);
    let mut stream = both.stream(&call);
    let question = stream.message();
    assert_eq!(question["params"]["url"], "https://example.com/", "{question}");
    let accepted = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept" } });
    assert_eq!(both.post(&accepted).status, 202);
    assert_eq!(result_text(&stream.message()), r#"{"action":"accept"}"#);
}

/// No client is asked to open a URL of another application, or one without TLS.
#[test]
fn urls_that_browsers_must_not_open_are_refused() {
    let gateway = Gateway::start(&json!({}));
    let client = session(&gateway, r#"{ "elicitation": { "form": {}, "url": {} } }"#);
    for url in ["file:///etc/passwd", "javascript:alert(1)", "vscode://file/x", "http://example.com/"] {
        let refused = client.post(&call_message(1, "ask", &json!({ "mode": "url", "url": url }))).json();
        assert!(result_text(&refused).contains("is not opened in a browser"), "{url}: {refused}");
    }
}

/// A request state is valid for its caller, its call, and once.
#[test]
fn request_states_are_bound_to_their_call() {
    let callers = json!([{ "id": "bob", "permissions": ["*:*"], "api_key": "key-of-bob" }]);
    let gateway = Gateway::start(&json!({ "server": { "args": ["faulty", "modern"] }, "callers": callers }));
    let call = |key: &str, tool: &str, more: &Json| {
        let mut call = call_message(1, tool, &json!({ "message": "Whose?" }));
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
        gateway.request("POST /mcp", &headers, &call.to_string()).json()
    };
    let pending = call(OWNER, "ask", &json!({}));
    assert_eq!(pending["result"]["resultType"], "input_required", "{pending}");
    let state = pending["result"]["requestState"].as_str().expect("a state").to_owned();
    assert!(!state.contains("Whose?"), "{state}");
    let answered =
        |state: &str| json!({ "requestState": state, "inputResponses": { "size": { "action": "accept" } } });
    let seen = gateway.seen().len();
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
    assert_eq!(gateway.seen().len(), seen, "no forged state reached the server");
    let end = call(OWNER, "ask", &answered(&state));
    let given: Json = serde_json::from_str(result_text(&end)).expect("JSON");
    assert_eq!(given["state"], r#"{"step":1,"of":"Whose?"}"#, "as the server gave it");
    assert_eq!(given["said"]["size"]["action"], "accept");
    assert_eq!(call(OWNER, "ask", &answered(&state))["error"]["code"], -32602, "a second time");
    assert_eq!(gateway.seen().len(), seen + 1);
}

/// Callers see their own tasks, on all servers, and no others.
#[test]
fn tasks_are_listed_to_their_owner() {
    let servers: Vec<_> = ["one", "two"]
        .map(|name| {
            json!({ "name": name, "command": testkit(), "args": ["tasks"], "mode": "dynamic",
            "default_tool_config": { "max_instances": 8, "timeout": "50s" } })
        })
        .into();
    let callers = json!([{ "id": "bob", "permissions": ["*:*"], "api_key": "key-of-bob" }]);
    let gateway = Gateway::serve(project(&json!({ "mcps": servers, "callers": callers })));
    let begin =
        |key: &str, revision: &str| McpSession::begin(&gateway, key, revision, &json!({ "tasks": {} }));
    let (ann, bob) = (begin(OWNER, "2025-11-25"), begin("key-of-bob", "2025-11-25"));
    let start = |session: &McpSession<'_>, tool: &str, message: String| {
        let mut call = call_message(1, tool, &json!({ "message": message }));
        call["params"]["task"] = json!({ "ttl": 60000 });
        let begun = session.post(&call).json();
        begun["result"]["task"]["taskId"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned()
    };
    let page = |session: &McpSession<'_>, cursor: Option<&Json>| {
        let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
        session.post(&request_message(2, "tasks/list", &params)).json()["result"].clone()
    };
    let statuses = |page: &Json| -> Vec<String> {
        let all = page["tasks"].as_array().unwrap_or_else(|| panic!("{page}"));
        all.iter().map(|task| task["statusMessage"].as_str().expect("words").to_owned()).collect()
    };
    assert!(statuses(&page(&ann, None)).is_empty());
    let gone = start(&ann, "one__echo", "first".to_owned());
    for number in 0..50 {
        start(&ann, if number < 25 { "two__echo" } else { "one__echo" }, format!("number {number}"));
    }
    start(&bob, "one__echo", "Bob's".to_owned());
    let first = page(&ann, None);
    assert_eq!(statuses(&first).len(), 50, "{first}");
    assert_eq!(statuses(&first)[0], "number 49", "the newest first");
    assert!(first["tasks"][0].get("_meta").is_none());
    let second = page(&ann, Some(&first["nextCursor"]));
    assert_eq!((statuses(&second), &second["nextCursor"]), (vec!["first".to_owned()], &Json::Null));
    assert_eq!(statuses(&page(&bob, None)), ["Bob's"]);
    let cancelled = ann.post(&request_message(3, "tasks/cancel", &json!({ "taskId": gone }))).json();
    assert_eq!(cancelled["result"]["status"], "cancelled", "{cancelled}");
    assert!(statuses(&page(&ann, Some(&first["nextCursor"]))).is_empty(), "cancelled tasks are not listed");
    let bad = ann.post(&request_message(4, "tasks/list", &json!({ "cursor": "x" }))).json();
    assert_eq!(bad["error"]["code"], -32602, "{bad}");
    let older = begin(OWNER, "2025-06-18").post(&request_message(5, "tasks/list", &json!({}))).json();
    assert_eq!(older["error"]["code"], -32601, "a revision without tasks: {older}");
}
