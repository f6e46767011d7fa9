//! Every operation takes one pipeline: the same decision, record and taint over every front end.
//!
//! The access matrix is the product of operations, callers and front ends. The expected outcome is computed from the
//! permission that the operation needs, so that no cell is kept by hand.

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, project};
use crate::support::mcp_client::{EventStream, McpSession, WebSocket, request_message};
use crate::support::program::Program;
use crate::support::test_server::testkit;

/// Method, params and the name in the header `Mcp-Name` of an MCP request.
pub(super) type McpRequest = (&'static str, Json, &'static str);

/// A resource read, prompt get, completion, subscription or tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Tool,
    Resource,
    Prompt,
    Completion,
    Subscription,
}

/// The way an operation is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrontEnd {
    Session,
    NewestRevision,
    WebSocket,
    Rest,
    CommandLine,
}

pub(super) const OPERATIONS: [Operation; 5] =
    [Operation::Tool, Operation::Resource, Operation::Prompt, Operation::Completion, Operation::Subscription];
const FRONT_ENDS: [FrontEnd; 5] =
    [FrontEnd::Session, FrontEnd::NewestRevision, FrontEnd::WebSocket, FrontEnd::Rest, FrontEnd::CommandLine];
/// Callers with their permissions.
const CALLERS: [(&str, &[&str]); 6] = [
    ("none", &[]),
    ("other", &["other:*"]),
    ("reads", &["s:resources"]),
    ("prompts", &["s:prompts"]),
    ("calls", &["s:echo"]),
    ("all", &["s:*"]),
];

impl Operation {
    fn kind(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Resource => "resource",
            Self::Prompt => "prompt",
            Self::Completion => "completion",
            Self::Subscription => "subscription",
        }
    }

    fn permission(self) -> &'static str {
        match self {
            Self::Tool => "s:echo",
            Self::Resource | Self::Subscription => "s:resources",
            Self::Prompt | Self::Completion => "s:prompts",
        }
    }

    fn is_allowed(self, permissions: &[&str]) -> bool {
        permissions.contains(&self.permission()) || permissions.contains(&"s:*")
    }

    pub(super) fn mcp(self) -> McpRequest {
        match self {
            Self::Tool => ("tools/call", json!({ "name": "echo", "arguments": { "message": "x" } }), "echo"),
            Self::Resource => ("resources/read", json!({ "uri": "test://one" }), "test://one"),
            Self::Prompt => {
                ("prompts/get", json!({ "name": "greet", "arguments": { "who": "ann" } }), "greet")
            }
            Self::Completion => {
                let reference = json!({ "type": "ref/prompt", "name": "greet" });
                let params = json!({ "ref": reference, "argument": { "name": "who", "value": "a" } });
                ("completion/complete", params, "")
            }
            Self::Subscription => ("resources/subscribe", json!({ "uri": "test://one" }), "test://one"),
        }
    }
}

fn gateway() -> Gateway {
    let callers: Vec<_> = CALLERS
        .iter()
        .map(|(id, permissions)| json!({ "id": id, "permissions": permissions, "api_key": format!("key-of-{id}") }))
        .collect();
    Gateway::start(&json!({ "callers": callers }))
}

/// The `_meta` that the newest revision requires.
fn newest_meta() -> Json {
    json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {} })
}

/// Performs an operation. `None` if the front end does not have it.
fn perform(gateway: &Gateway, front_end: FrontEnd, caller: &str, operation: Operation) -> Option<bool> {
    perform_as(gateway, front_end, &format!("key-of-{caller}"), operation)
}

fn perform_as(gateway: &Gateway, front_end: FrontEnd, key: &str, operation: Operation) -> Option<bool> {
    let caller = key.trim_start_matches("key-of-");
    let (method, params, name) = operation.mcp();
    let works = |answer: &Json| answer["result"].is_object() && answer["result"]["isError"] != true;
    Some(match (front_end, operation) {
        (FrontEnd::Session, _) => {
            let session = McpSession::begin(gateway, key, "2025-11-25", &json!({}));
            works(&session.post(&request_message(1, method, &params)).json())
        }
        (FrontEnd::WebSocket, _) => {
            let mut socket = WebSocket::open(gateway, key);
            let about = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": { "name": "t", "version": "1" } });
            socket.send(&request_message(1, "initialize", &about).to_string());
            socket.next();
            socket.send(&request_message(2, method, &params).to_string());
            works(&serde_json::from_str(&socket.next()).expect("JSON"))
        }
        // The newest revision subscribes on a stream of its own.
        (FrontEnd::NewestRevision, Operation::Subscription) => {
            let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {
                "_meta": newest_meta(), "notifications": { "resourceSubscriptions": ["test://one"] } } });
            let key = format!("X-API-Key: {key}");
            let headers = [
                key.as_str(),
                "Accept: application/json, text/event-stream",
                "Content-Type: application/json",
                "MCP-Protocol-Version: 2026-07-28",
                "Mcp-Method: subscriptions/listen",
            ];
            let mut stream = gateway.connect();
            let request = crate::support::gateway::request("POST /mcp", &headers, &body.to_string());
            std::io::Write::write_all(&mut stream, request.as_bytes()).expect("it is sent");
            let accepted = EventStream::read(stream).message();
            accepted["params"]["notifications"]["resourceSubscriptions"] == json!(["test://one"])
        }
        (FrontEnd::NewestRevision, _) => {
            let mut params = params;
            params["_meta"] = newest_meta();
            let (key, method_header) = (format!("X-API-Key: {key}"), format!("Mcp-Method: {method}"));
            let name = format!("Mcp-Name: {name}");
            let mut headers = vec![
                key.as_str(),
                "Accept: application/json, text/event-stream",
                "Content-Type: application/json",
                "MCP-Protocol-Version: 2026-07-28",
                method_header.as_str(),
            ];
            if name.len() > "Mcp-Name: ".len() {
                headers.push(&name);
            }
            let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
            works(&gateway.request("POST /mcp", &headers, &body.to_string()).json())
        }
        (FrontEnd::Rest, Operation::Tool) => {
            gateway.call(key, "echo", &json!({ "message": "x" })).status == 200
        }
        (FrontEnd::Rest, Operation::Resource) => {
            gateway.get("/v1/resources/read?uri=test%3A%2F%2Fone", key).status == 200
        }
        (FrontEnd::Rest, Operation::Prompt) => {
            let body = json!({ "name": "greet", "arguments": { "who": "ann" } });
            gateway.post("/v1/prompts/get", key, &body).status == 200
        }
        (FrontEnd::CommandLine, Operation::Tool) => {
            gateway.program.run(&format!("tools call echo message=x --as {caller}")).code == 0
        }
        (FrontEnd::CommandLine, Operation::Resource) => {
            gateway.program.run(&format!("resources read s test://one --as {caller}")).code == 0
        }
        (FrontEnd::CommandLine, Operation::Prompt) => {
            gateway.program.run(&format!("prompts get s greet who=ann --as {caller}")).code == 0
        }
        (FrontEnd::Rest | FrontEnd::CommandLine, Operation::Completion | Operation::Subscription) => {
            return None;
        }
    })
}

#[test]
fn each_operation_is_decided_and_recorded_over_each_front_end() {
    let gateway = gateway();
    for (caller, permissions) in CALLERS {
        for operation in OPERATIONS {
            for front_end in FRONT_ENDS {
                // Each command starts the server anew; two callers are enough for that path.
                if front_end == FrontEnd::CommandLine && !["none", "all"].contains(&caller) {
                    continue;
                }
                let records = || {
                    let filter = format!("kind={}&caller={caller}&limit=1000", operation.kind());
                    gateway.executions(&filter).len()
                };
                let before = records();
                let Some(works) = perform(&gateway, front_end, caller, operation) else { continue };
                let expected = operation.is_allowed(permissions);
                assert_eq!(works, expected, "{operation:?} by {caller} over {front_end:?}");
                assert_eq!(records(), before + 1, "{operation:?} by {caller} over {front_end:?}");
            }
        }
    }
}

#[test]
fn lists_show_what_a_caller_may_use_and_are_recorded() {
    let gateway = gateway();
    for (caller, permissions) in CALLERS {
        let key = format!("key-of-{caller}");
        let count =
            |path: &str, list: &str| gateway.get(path, &key).json()[list].as_array().expect("a list").len();
        let sees = |operation: Operation| usize::from(operation.is_allowed(permissions));
        assert_eq!(count("/v1/resources", "resources"), sees(Operation::Resource), "{caller}");
        assert_eq!(count("/v1/resources", "templates"), sees(Operation::Resource), "{caller}");
        assert_eq!(count("/v1/prompts", "prompts"), sees(Operation::Prompt), "{caller}");
        assert_eq!(count("/v1/tools", "tools") > 0, sees(Operation::Tool) == 1, "{caller}");
        assert_eq!(gateway.get("/v1/tools/search?q=echo", &key).status, 200);
        assert_eq!(gateway.get("/v1/tools/echo", &key).status == 200, sees(Operation::Tool) == 1, "{caller}");
        let lists = gateway.executions(&format!("kind=list&caller={caller}"));
        let names: Vec<_> = lists.iter().rev().map(|list| list["begin"]["tool"].as_str()).collect();
        let expected =
            ["resources/list", "resources/list", "prompts/list", "tools/list", "tools/search", "tools/show"];
        assert_eq!(names, expected.map(Some), "{caller}");
    }
    assert_eq!(gateway.executions("caller=all").len(), 0, "lists are shown only by their kind");
}

#[test]
fn rules_and_egress_apply_to_resources_and_prompts() {
    let program = project(&json!({ "egress": { "canaries": ["the blue heron"] } }));
    program.write(
        "policy.cedar",
        r#"@id("not-one") forbid(principal, action == Action::"read", resource == Resource::"test://one");
           @id("not-bob") forbid(principal, action == Action::"get", resource is Prompt)
             when { context.arguments.hasTag("who") && context.arguments.getTag("who") == "bob" };"#,
    );
    let gateway = Gateway::serve(program);
    let read = |uri: &str| gateway.get(&format!("/v1/resources/read?uri={uri}"), OWNER);
    let prompt = |who: &str| {
        gateway.post("/v1/prompts/get", OWNER, &json!({ "name": "greet", "arguments": { "who": who } }))
    };
    let one = read("test://one");
    assert_eq!(one.status_and_code(), (403, "unauthorized".to_owned()));
    assert!(one.json()["error"]["message"].as_str().is_some_and(|text| text.contains("not-one")), "{one:?}");
    assert_eq!(read("test://two").status, 200, "the template allows it");
    assert_eq!(prompt("bob").status_and_code(), (403, "unauthorized".to_owned()));
    assert_eq!(prompt("ann").status, 200);
    let blocked = prompt("tell them: the blue heron");
    assert_eq!(blocked.status_and_code(), (403, "unauthorized".to_owned()));
    assert_eq!(blocked.json()["error"]["stage"], "egress");
    assert_eq!(read("nothing://here").status_and_code(), (404, "not_found".to_owned()));
    // Parameters and `_meta` members that are only passed on are checked too, their names included.
    let session = McpSession::begin(&gateway, OWNER, "2025-11-25", &json!({}));
    for (method, params) in [
        ("tools/call", json!({ "name": "echo", "_meta": { "x": "the blue heron" } })),
        ("tools/call", json!({ "name": "echo", "_meta": { "the blue heron": 1 } })),
        ("tools/call", json!({ "name": "echo", "extra": ["the blue heron"] })),
        ("tools/call", json!({ "name": "echo", "the blue heron": {} })),
        ("prompts/get", json!({ "name": "greet", "_meta": { "x": "the blue heron" } })),
    ] {
        session.post(&request_message(1, method, &params));
        let last = &gateway.executions("limit=1")[0];
        assert_eq!(last["end"]["error"]["stage"], "egress", "{params}: {last}");
    }
    assert!(!gateway.program.read("seen").contains("heron"), "nothing reached the server");
}

/// A rule about tainted sessions holds for subscriptions, which belong to the session that asks for them.
#[test]
fn subscriptions_belong_to_their_session() {
    let program = project(&json!({}));
    program.write(
        "policy.cedar",
        r#"@id("tainted") forbid(principal, action == Action::"read", resource) when { context.tainted };"#,
    );
    let gateway = Gateway::serve(program);
    let session = McpSession::begin(&gateway, OWNER, "2025-11-25", &json!({}));
    let subscribe = |session: &McpSession<'_>| {
        let params = json!({ "uri": "test://one" });
        session.post(&request_message(1, "resources/subscribe", &params)).json()["result"].is_object()
    };
    assert!(subscribe(&McpSession::begin(&gateway, OWNER, "2025-11-25", &json!({}))));
    session.post(&request_message(1, "tools/call", &json!({ "name": "echo" })));
    assert!(!subscribe(&session), "the tool call tainted the session");
    let last = &gateway.executions("kind=subscription&limit=1")[0]["begin"];
    assert_eq!((&last["tainted"], last["session"].is_string()), (&json!(true), true), "{last}");
}

/// A denied operation replays as denied, even if its caller may not know of the target.
#[test]
fn denied_operations_replay_as_denied() {
    let gateway = gateway();
    for operation in OPERATIONS {
        for front_end in [FrontEnd::Session, FrontEnd::Rest] {
            perform(&gateway, front_end, "none", operation);
        }
    }
    gateway.get("/v1/resources/read?uri=test%3A%2F%2Fone&server=s", "key-of-none");
    gateway.post("/v1/prompts/get", "key-of-none", &json!({ "name": "greet", "server": "s" }));
    gateway.program.write("policy.cedar", "");
    let replay = gateway.program.run("policy test policy.cedar --json").json();
    assert_eq!(replay["flips"], json!([]), "{replay}");
    assert!(replay["replayed"].as_u64().is_some_and(|count| count >= 4), "{replay}");
}

/// Text of an untrusted server taints, whichever operation brought it.
#[test]
fn resources_and_prompts_of_untrusted_servers_taint() {
    let server = |name: &str, trusted: bool| {
        json!({ "name": name, "command": testkit(), "args": ["good"], "trusted": trusted, "mode": "dynamic",
            "default_tool_config": { "max_instances": 5, "timeout": "30s" } })
    };
    let program = project(&json!({ "mcps": [server("web", false), server("bank", true)],
        "tools": [{ "name": "echo", "category": "mutation" }] }));
    program.write(
        "policy.cedar",
        r#"@id("tainted") forbid(principal, action == Action::"call", resource) when { context.tainted };"#,
    );
    let gateway = Gateway::serve(program);
    let operations = [
        ("resources/read", json!({ "uri": "test://one" })),
        ("prompts/get", json!({ "name": "greet", "arguments": { "who": "ann" } })),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "greet" },
                "argument": { "name": "who", "value": "a" } }),
        ),
    ];
    for (method, params) in operations {
        let session = McpSession::begin(&gateway, OWNER, "2025-11-25", &json!({}));
        let call = |session: &McpSession<'_>| {
            let params = json!({ "name": "bank__echo", "arguments": { "message": "pay" } });
            session.post(&request_message(2, "tools/call", &params)).json()["result"]["isError"] == true
        };
        assert!(!call(&session), "nothing was read yet");
        let answer = session.post(&request_message(1, method, &params)).json();
        assert!(answer["result"].is_object(), "{answer}");
        assert!(call(&session), "{method} taints");
        let other = McpSession::begin(&gateway, OWNER, "2025-11-25", &json!({}));
        assert!(!call(&other), "another session read nothing");
    }
    let denied = gateway.executions("status=unauthorized");
    assert!(!denied.is_empty() && denied.iter().all(|call| call["begin"]["tainted"] == true), "{denied:?}");
    // The same rules decide the recorded calls in the same way, because taint is recorded.
    let replay = gateway.program.run("policy test policy.cedar --json");
    assert_eq!(replay.json()["flips"], json!([]), "{replay}");
}

/// A rule that denies all calls after untrusted text.
const NO_CALLS_AFTER_TAINT: &str =
    r#"@id("tainted") forbid(principal, action == Action::"call", resource) when { context.tainted };"#;

/// Without a session, taint belongs to the caller and ends with its window.
#[test]
fn taint_without_a_session_lasts_for_its_window() {
    let program = project(&json!({ "taint_window": "2s" }));
    program.write("policy.cedar", NO_CALLS_AFTER_TAINT);
    let gateway = Gateway::serve(program);
    let call = |front_end| perform_as(&gateway, front_end, OWNER, Operation::Tool).expect("it has tools");
    assert!(call(FrontEnd::NewestRevision), "nothing was read yet");
    assert!(!call(FrontEnd::NewestRevision) && !call(FrontEnd::Rest), "the caller is tainted");
    gateway.wait("the end of the window", |_| call(FrontEnd::Rest));
    assert!(!call(FrontEnd::NewestRevision));
}

/// A caller that taints more sessions than are remembered gets no clean ones, and affects no other caller.
#[test]
fn unknown_sessions_count_as_tainted_beyond_the_bound() {
    let caller = |id: &str| json!({ "id": id, "permissions": ["s:*"], "api_key": format!("key-of-{id}") });
    let program = project(&json!({ "callers": [caller("ann"), caller("bob")] }));
    program.write("policy.cedar", NO_CALLS_AFTER_TAINT);
    let gateway = Gateway::serve(program);
    let call = |session: &McpSession<'_>| {
        let (method, params, _) = Operation::Tool.mcp();
        session.post(&request_message(1, method, &params)).json()["result"]["isError"] != true
    };
    let open = |id: &str| McpSession::begin(&gateway, &format!("key-of-{id}"), "2025-11-25", &json!({}));
    let (first, of_bob) = (open("ann"), open("bob"));
    assert!(call(&first) && call(&of_bob), "nothing was read yet");
    for number in 1..=1_000 {
        assert!(call(&open("ann")), "session {number}");
    }
    assert!(!call(&open("ann")), "an unknown session");
    assert!(!call(&first) && !call(&of_bob), "their taint is not forgotten");
    assert!(call(&open("bob")), "bob has few sessions");
}

/// `check` names a rule that nothing can make fire.
#[test]
fn check_warns_about_rules_that_never_fire() {
    let program = project(&json!({ "server": { "trusted": true } }));
    program.write("policy.cedar", NO_CALLS_AFTER_TAINT);
    let run = program.run("check");
    assert_eq!(run.code, 0, "{run}");
    assert!(run.stderr.contains("rule `tainted` can never fire: every server is trusted"), "{run}");
}

/// A stored result keeps its owner and its origin, over every route to it.
#[test]
fn stored_results_belong_to_their_caller_and_keep_their_origin() {
    let program = project(&json!({
        "results": { "max_inline": "1KiB" },
        "callers": [{ "id": "ann", "permissions": ["s:*"], "api_key": "key-of-ann" },
            { "id": "bob", "permissions": ["s:*"], "api_key": "key-of-bob" }] }));
    program.write(
        "policy.cedar",
        r#"@id("tainted") forbid(principal == Caller::"ann", action == Action::"read", resource) when { context.tainted };"#,
    );
    let gateway = Gateway::serve(program);
    let called = gateway.call("key-of-ann", "echo", &json!({ "message": "x".repeat(4_000) })).json();
    let uri =
        called["agentHints"]["suggestedNextActions"][0]["data"]["uri"].as_str().expect("a URI").to_owned();
    let id = uri.rsplit('/').next().expect("an id").to_owned();
    let read = |key: &str| gateway.get(&format!("/v1/results/{id}"), key);
    assert_eq!(
        read("key-of-bob").status_and_code(),
        (404, "not_found".to_owned()),
        "the result of another caller"
    );
    // The call tainted ann, whose reads a rule then forbids: this route is no way around it.
    assert_eq!(read("key-of-ann").status_and_code(), (403, "unauthorized".to_owned()));
    // A session that only reads the stored result is tainted by it.
    let session = McpSession::begin(&gateway, "key-of-ann", "2025-11-25", &json!({}));
    let read = |session: &McpSession<'_>| {
        session.post(&request_message(1, "resources/read", &json!({ "uri": uri }))).json()["result"]
            .is_object()
    };
    assert!(read(&session), "the session has read nothing yet");
    assert!(!read(&session), "the stored result is text of an untrusted server");
}

#[test]
fn the_log_selects_operations_by_kind() {
    let program: &Program = &project(&json!({}));
    assert_eq!(program.run("resources read s test://one").code, 0);
    assert_eq!(program.run("prompts get s greet who=ann").code, 0);
    let kinds = |arguments: &str| {
        let output = program.run(arguments).stdout;
        let lines = output.lines().map(|line| serde_json::from_str::<Json>(line).expect("JSON"));
        lines.map(|call| call["begin"]["operation"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(kinds("log --json"), ["resource", "prompt"]);
    assert_eq!(kinds("log --kind prompt --json"), ["prompt"]);
    assert_eq!(kinds("log --kind tool --json"), Vec::<Json>::new());
    assert_eq!(program.run("log --kind nonsense").code, 2);
}
