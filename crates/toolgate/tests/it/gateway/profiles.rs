//! Profiles: the tools at `/mcp/NAME`, their names, and how calls are mapped back.

use std::io::{BufRead as _, BufReader, Write as _};

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, HttpResponse, OWNER, request, wait_until};
use crate::support::program::Program;
use crate::support::stdio_client::StdioClient;
use crate::support::test_server::testkit;

const ANN: &str = "a-key-that-ann-has-alone";
const BOB: &str = "a-key-that-bob-has-alone";

/// Starts a gateway with local tools, a scripted server and these profiles.
pub(crate) fn start_gateway(profiles: &Json, more: &Json) -> Gateway {
    Gateway::serve(project(profiles, more))
}

pub(crate) fn project(profiles: &Json, more: &Json) -> Program {
    let own = |name: &str, description: &str, schema: Json| {
        json!({ "name": name, "type": "local", "description": description, "input_schema": schema,
            "category": "query", "idempotent": true, "permissions": [if name == "time.now" { "clocks:read" } else { "tools:use" }], "config": { "script_path": "say.py" } })
    };
    let open = json!({ "type": "object", "properties": { "map": { "type": "object" }, "filter[name]": { "type": "string", "format": "email" } },
        "anyOf": [{ "required": ["map"] }, { "required": ["filter[name]"] }] });
    let tools = json!({ "tools": [
        own("time.now", "Says what time it is.", json!({ "type": "object", "properties": { "zone": { "type": "string" } }, "required": ["zone"] })),
        own("delete_all", "Deletes everything there is.", json!({ "type": "object" })),
        own(&format!("a_tool_with_a_long_name_{}_end", "x".repeat(60)), "Has a long name.", json!({ "type": "object" })),
        own("shapes", "Takes things of many shapes.", open),
    ] });
    let mut whole = json!({ "registries": { "tools": "tools/tools.json" }, "profiles": profiles, "callers": [
        { "id": "ann", "permissions": ["*:*"], "api_key": ANN },
        { "id": "bob", "permissions": ["clocks:read"], "api_key": BOB },
    ] });
    for (key, value) in more.as_object().into_iter().flatten() {
        whole[key] = value.clone();
    }
    let script = "def run(args):\n    return {'said': args}\n";
    let program = Program::new(&[
        ("toolgate.yaml", &whole.to_string()),
        ("tools/tools.json", &tools.to_string()),
        ("tools/say.py", script),
    ]);
    program.with("TOOLGATE_LOG", "off").with("TOOLGATE_API_KEY", OWNER)
}

/// Sends a request of the newest revision.
pub(crate) fn ask(gateway: &Gateway, endpoint: &str, key: &str, method: &str, params: &Json) -> HttpResponse {
    let mut params = params.clone();
    params["_meta"] = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {} });
    let name = params["name"].as_str().or(params["uri"].as_str()).unwrap_or_default();
    let headers = [
        format!("X-API-Key: {key}"),
        "Content-Type: application/json".to_owned(),
        "Accept: application/json, text/event-stream".to_owned(),
        "MCP-Protocol-Version: 2026-07-28".to_owned(),
        format!("Mcp-Method: {method}"),
        format!("Mcp-Name: {name}"),
    ];
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    gateway.request(&format!("POST {endpoint}"), &headers, &body.to_string())
}

pub(crate) fn list(gateway: &Gateway, endpoint: &str, key: &str) -> Vec<Json> {
    let response = ask(gateway, endpoint, key, "tools/list", &json!({})).json();
    response["result"]["tools"].as_array().unwrap_or_else(|| panic!("{response}")).clone()
}

pub(crate) fn names(gateway: &Gateway, endpoint: &str, key: &str) -> Vec<String> {
    list(gateway, endpoint, key)
        .iter()
        .map(|tool| tool["name"].as_str().expect("a name").to_owned())
        .collect()
}

pub(crate) fn call(gateway: &Gateway, endpoint: &str, name: &str, arguments: &Json) -> Json {
    ask(gateway, endpoint, OWNER, "tools/call", &json!({ "name": name, "arguments": arguments })).json()
}

/// Returns the arguments the tool received, or the error.
pub(crate) fn tool_output(response: &Json) -> Json {
    match response["result"]["structuredContent"].get("said") {
        Some(tool_output) => tool_output.clone(),
        None if response["error"].is_object() => response["error"]["message"].clone(),
        None => response["result"]["content"][0]["text"].clone(),
    }
}

#[test]
fn a_profile_renames_and_filters_tools() {
    let profiles = json!({
        "clock": { "description": "For the wall.", "tools": { "include": ["time.*", "shapes"],
            "as": { "time.now": { "name": "clock", "description": "The time, on the wall." } } } },
        "safe": { "provider": "openai", "tools": { "exclude": ["delete_*"] } },
    });
    let gateway = start_gateway(&profiles, &json!({}));
    assert_eq!(names(&gateway, "/mcp", OWNER).len(), 4);
    let clock = list(&gateway, "/mcp/clock", OWNER);
    assert_eq!(names(&gateway, "/mcp/clock", OWNER), ["clock", "shapes"]);
    assert_eq!(clock[0]["description"], "The time, on the wall.");
    assert_eq!(
        tool_output(&call(&gateway, "/mcp/clock", "clock", &json!({ "zone": "UTC" }))),
        json!({ "zone": "UTC" })
    );
    // Tools outside of the profile do not exist in it, nor do their original names.
    for name in ["delete_all", "time.now", "no_such"] {
        let response = call(&gateway, "/mcp/clock", name, &json!({}));
        assert_eq!(response["error"]["code"], -32602, "{response}");
        assert_eq!(response["error"]["message"], format!("there is no tool `{name}`"), "{response}");
    }
    // Errors use the name the client knows.
    let wrong = call(&gateway, "/mcp/clock", "clock", &json!({}));
    let text = wrong["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{wrong}"));
    assert!(text.contains("zone") && !text.contains("time.now"), "{text}");
    // Records have the original name, also of refused calls.
    assert_eq!(gateway.executions("tool=time.now&status=success").len(), 1);
    assert!(gateway.executions("tool=clock").is_empty());
    assert_eq!(gateway.executions("tool=delete_all")[0]["end"]["error"]["code"], "tool_not_found");

    let safe = names(&gateway, "/mcp/safe", OWNER);
    assert!(safe.iter().all(|name| name.len() <= 64 && !name.contains('.')), "{safe:?}");
    assert_eq!(safe.len(), 3, "{safe:?}");
    for name in &safe[..2] {
        assert_eq!(
            tool_output(&call(&gateway, "/mcp/safe", name, &json!({ "zone": "x" }))),
            json!({ "zone": "x" }),
            "{name}"
        );
    }
    let about = ask(&gateway, "/mcp/clock", OWNER, "server/discover", &json!({})).json();
    assert_eq!(about["result"]["instructions"], "# clock\nFor the wall.");
}

#[test]
fn schemas_are_adapted_and_arguments_mapped_back() {
    let profiles = json!({
        "a": { "provider": "anthropic", "tools": ["shapes"] },
        "g": { "provider": "gemini", "tools": ["shapes"] },
    });
    let gateway = start_gateway(&profiles, &json!({}));
    for endpoint in ["/mcp/a", "/mcp/g"] {
        let tool = list(&gateway, endpoint, OWNER).remove(0);
        let schema = &tool["inputSchema"];
        assert!(schema.get("anyOf").is_none() && schema["type"] == "object", "{schema}");
        let properties = schema["properties"].as_object().unwrap();
        let name = properties.keys().find(|name| name.starts_with("filter_name_")).unwrap();
        let response = call(&gateway, endpoint, "shapes", &json!({ name: "ann@example.com" }));
        assert_eq!(tool_output(&response), json!({ "filter[name]": "ann@example.com" }), "{endpoint}");
        // Arguments are validated against the original schema.
        let wrong = call(&gateway, endpoint, "shapes", &json!({}));
        assert_eq!(wrong["result"]["isError"], true, "{wrong}");
        assert_eq!(wrong["result"]["_meta"]["toolgate/result"]["next"], "correct-arguments", "{wrong}");
    }
    let tool = list(&gateway, "/mcp/g", OWNER).remove(0);
    assert_eq!(tool["inputSchema"]["properties"]["map"]["type"], "string", "{tool}");
    let response = call(&gateway, "/mcp/g", "shapes", &json!({ "map": "{\"a\":[1]}" }));
    assert_eq!(tool_output(&response), json!({ "map": { "a": [1] } }));
}

#[test]
fn tools_are_searched() {
    let profiles = json!({ "desk": { "exposure": "search", "description": "Clocks.", "provider": "openai",
        "tools": { "exclude": ["delete_*"], "as": { "time.now": { "name": "clock" } } } } });
    let gateway = start_gateway(&profiles, &json!({}));
    let endpoint = "/mcp/desk";
    assert_eq!(names(&gateway, endpoint, OWNER), ["search_tools", "describe_tool", "call_tool"]);
    let ask = |key: &str, tool: &str, arguments: Json| {
        ask(&gateway, endpoint, key, "tools/call", &json!({ "name": tool, "arguments": arguments })).json()
    };
    let found = ask(OWNER, "search_tools", json!({ "query": "what time is it" }));
    assert_eq!(found["result"]["structuredContent"]["tools"][0]["name"], "clock", "{found}");
    let described = ask(OWNER, "describe_tool", json!({ "name": "clock" }));
    assert_eq!(
        described["result"]["structuredContent"]["inputSchema"]["required"],
        json!(["zone"]),
        "{described}"
    );
    let result = ask(OWNER, "call_tool", json!({ "name": "clock", "arguments": { "zone": "UTC" } }));
    assert_eq!(tool_output(&result), json!({ "zone": "UTC" }), "{result}");
    assert!(result["result"].get("_meta").is_none(), "{result}");
    // A found tool can also be called directly.
    assert_eq!(tool_output(&ask(OWNER, "clock", json!({ "zone": "x" }))), json!({ "zone": "x" }));
    assert_eq!(gateway.executions("tool=time.now").len(), 2);
    for name in ["delete_all", "time.now", "no_such"] {
        let missing = json!(format!("there is no tool `{name}`"));
        assert_eq!(tool_output(&ask(OWNER, "call_tool", json!({ "name": name }))), missing, "{name}");
        assert_eq!(tool_output(&ask(OWNER, "describe_tool", json!({ "name": name }))), missing, "{name}");
    }
    let gone = ask(OWNER, "search_tools", json!({ "query": "delete everything there is" }));
    assert!(!gone["result"].to_string().contains("delete_all"), "{gone}");
    // A caller without the permission neither finds nor calls the tool.
    let found = ask(BOB, "search_tools", json!({ "query": "things of many shapes" }));
    assert!(!found["result"].to_string().contains("shapes"), "{found}");
    assert_eq!(
        tool_output(&ask(BOB, "call_tool", json!({ "name": "shapes", "arguments": {} }))),
        json!("there is no tool `shapes`")
    );
    assert_eq!(
        tool_output(&ask(BOB, "call_tool", json!({ "name": "clock", "arguments": { "zone": "b" } }))),
        json!({ "zone": "b" })
    );
    for (tool, arguments) in
        [("search_tools", json!({})), ("describe_tool", json!({})), ("call_tool", json!({}))]
    {
        assert_eq!(ask(OWNER, tool, arguments)["error"]["code"], -32602, "{tool}");
    }
}

#[test]
fn callers_are_bound_to_profiles() {
    let profiles =
        json!({ "one": { "tools": ["time.now"] }, "two": { "tools": ["shapes"] }, "three": { "tools": [] } });
    let callers = json!([
        { "id": "ann", "permissions": ["*:*"], "api_key": ANN, "profile": "two" },
        { "id": "bob", "permissions": ["*:*"], "api_key": BOB, "profiles": ["one", "three"] },
    ]);
    let gateway = start_gateway(&profiles, &json!({ "callers": callers }));
    assert_eq!(names(&gateway, "/mcp", OWNER).len(), 4);
    assert_eq!(names(&gateway, "/mcp", ANN), ["shapes"]);
    assert_eq!(names(&gateway, "/mcp/one", ANN), ["time.now"]);
    assert_eq!(names(&gateway, "/mcp", BOB), ["time.now"]);
    assert!(names(&gateway, "/mcp/three", BOB).is_empty());
    // A forbidden profile looks like one that does not exist, for every method.
    for first in ["POST", "GET", "DELETE"] {
        let refused = |name: &str| {
            let headers = [
                format!("X-API-Key: {BOB}"),
                "Content-Type: application/json".to_owned(),
                "X-Correlation-Id: same".to_owned(),
            ];
            let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
            let response = gateway.request(&format!("{first} /mcp/{name}"), &headers, "{}");
            // The message repeats the path of the request.
            (response.status, response.body.replace(name, "NAME"))
        };
        assert_eq!(refused("two"), refused("no-such"), "{first}");
        assert_eq!(refused("two").0, 404, "{first}");
    }
    for endpoint in ["GET /sse/two", "GET /ws/two", "GET /sse/messages"] {
        let status = gateway.request(endpoint, &[&format!("X-API-Key: {BOB}")], "").status;
        assert!([404, 405].contains(&status), "{endpoint}: {status}");
    }
    // Unauthenticated requests cannot tell them apart.
    for name in ["two", "no-such"] {
        assert_eq!(
            ask(&gateway, &format!("/mcp/{name}"), "wrong", "tools/list", &json!({})).status,
            401,
            "{name}"
        );
    }
}

/// Callers bound to profiles get only the tools of these over REST.
#[test]
fn bound_callers_see_only_their_profiles_over_rest() {
    let clock = json!({ "as": { "time.now": { "name": "clock" } }, "include": ["time.now"] });
    let profiles = json!({ "one": { "tools": clock }, "two": { "tools": ["shapes"] } });
    let callers = json!([
        { "id": "ann", "permissions": ["*:*"], "api_key": ANN, "profile": "one" },
        { "id": "bob", "permissions": ["*:*"], "api_key": BOB, "profiles": ["one"] },
    ]);
    let gateway = start_gateway(&profiles, &json!({ "callers": callers }));
    let listed = |key: &str| {
        let tools = gateway.get("/v1/tools", key).json()["tools"].take();
        let names = tools.as_array().expect("a list").iter().map(|tool| tool["name"].clone());
        names.collect::<Vec<_>>()
    };
    assert_eq!(listed(BOB), ["time.now"], "by its own name");
    assert_eq!(listed(ANN).len(), 4, "`profile` selects what `/mcp` shows and binds nothing");
    let found =
        |key: &str| gateway.get("/v1/tools/search?q=shapes&limit=100", key).json()["tools"].to_string();
    assert!(found(ANN).contains("shapes") && !found(BOB).contains("shapes"), "{}", found(BOB));
    // Tools outside of the profile do not exist.
    let errors_for = |name: &str| {
        let show = gateway.get(&format!("/v1/tools/{name}"), BOB);
        let call = gateway.call(BOB, name, &json!({}));
        let execute = gateway.post("/v1/tools/execute", BOB, &json!({ "name": name }));
        [show, call, execute].map(|response| response.status_and_code())
    };
    assert_eq!(errors_for("shapes"), errors_for("no-such"));
    assert_eq!(errors_for("shapes"), [(); 3].map(|()| (404, "tool_not_found".to_owned())));
    assert_eq!(
        errors_for("clock"),
        errors_for("no-such"),
        "names of a profile are valid at its own endpoint only"
    );
    assert_eq!(gateway.call(BOB, "time.now", &json!({ "zone": "UTC" })).status, 200);
    // `why` explains it.
    let why = |who: &str| {
        let why = gateway.post("/v1/policy/why", OWNER, &json!({ "caller": who, "tool": "shapes" })).json();
        (why["decision"].clone(), why["visible"].clone(), why["rules"].clone())
    };
    assert_eq!(why("bob"), (json!("deny"), json!(false), json!(["profiles"])));
    assert_eq!((why("ann").0, why("ann").1), (json!("allow"), json!(true)));
    // Profiles apply on the command line as well.
    let run = gateway.program.run("tools list --as bob");
    assert!(run.stdout.contains("time.now") && !run.stdout.contains("shapes"), "{run}");
}

/// Starts a session of an older revision and returns its id.
fn session(gateway: &Gateway, endpoint: &str) -> String {
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let began = gateway.post(endpoint, OWNER, &body);
    began.session().unwrap_or_else(|| panic!("{began:?}")).to_owned()
}

#[test]
fn a_session_belongs_to_its_endpoint() {
    let profiles = json!({ "one": { "tools": ["time.now"] }, "two": { "tools": ["shapes"] } });
    let gateway = start_gateway(&profiles, &json!({}));
    let list = |endpoint: &str, session: &str| {
        let headers = [
            format!("X-API-Key: {OWNER}"),
            "Content-Type: application/json".to_owned(),
            format!("Mcp-Session-Id: {session}"),
        ];
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
        let response = gateway.request(&format!("POST {endpoint}"), &headers, &body);
        (response.status, response.json()["result"]["tools"][0]["name"].clone())
    };
    for (own, name) in [("/mcp/one", "time.now"), ("/mcp/two", "shapes"), ("/mcp", "time.now")] {
        let session = session(&gateway, own);
        for endpoint in ["/mcp/one", "/mcp/two", "/mcp"] {
            let due = if endpoint == own { (200, json!(name)) } else { (404, Json::Null) };
            assert_eq!(list(endpoint, &session), due, "of {own} at {endpoint}");
        }
    }
}

/// Each mode of `hints`, for a result without anything to act on and for an error.
#[test]
fn hints_in_every_mode() {
    let profiles = json!({ "brief": { "hints": "brief" }, "off": { "hints": "off" }, "text": { "hints": "text" },
        "full": { "hints": "full" }, "default": {} });
    let gateway = start_gateway(&profiles, &json!({ "toolbox": { "hints": "off" } }));
    let results = |profile: &str| {
        let endpoint = if profile.is_empty() { "/mcp".to_owned() } else { format!("/mcp/{profile}") };
        let good = call(&gateway, &endpoint, "time.now", &json!({ "zone": "UTC" }))["result"].take();
        assert_eq!(good["content"].as_array().unwrap().len(), 1, "{good}");
        (good, call(&gateway, &endpoint, "time.now", &json!({}))["result"].take())
    };
    for none in ["", "off", "default"] {
        let (good, failed) = results(none);
        assert!(good.get("_meta").is_none() && failed.get("_meta").is_none(), "{none}: {good} {failed}");
        assert_eq!(failed["content"].as_array().unwrap().len(), 1, "{failed}");
    }
    let (good, failed) = results("brief");
    assert!(good.get("_meta").is_none(), "{good}");
    let brief = &failed["_meta"]["toolgate/result"];
    assert_eq!(brief["next"], "correct-arguments", "{failed}");
    assert_eq!(brief["reason"], "call it with valid arguments", "{failed}");
    assert!(brief["correlationId"].is_string() && failed["_meta"].to_string().len() <= 200, "{failed}");
    let (good, failed) = results("text");
    assert!(good.get("_meta").is_none() && failed.get("_meta").is_none(), "{good} {failed}");
    let line = failed["content"][1]["text"].as_str().unwrap();
    assert!(
        line.starts_with("[next: correct-arguments (call it with valid arguments); correlation id: "),
        "{line}"
    );
    let (good, failed) = results("full");
    for result in [&good, &failed] {
        let full = &result["_meta"]["toolgate/result"];
        assert!(full["agentHints"]["confidence"].is_number() && full["metadata"]["traceId"].is_string());
    }
    assert_eq!(failed["_meta"]["toolgate/result"]["error"]["code"], "invalid_arguments", "{failed}");
}

#[test]
fn hints_use_the_names_of_the_profile() {
    let follow_ups = json!({ "tools": [{ "name": "time.now", "mode": "strict", "follow_ups": [
        { "action": "delete_all", "priority": "high" },
        { "action": "shapes", "priority": "high", "description": "Draw it." },
        { "action": "take-a-walk", "priority": "low", "after": ["shapes"] },
    ] }] });
    let tools = json!({ "exclude": ["delete_*"], "as": { "shapes": { "name": "forms" } } });
    let profiles = json!({ "full": { "hints": "full", "tools": tools }, "brief": { "tools": tools },
        "same": { "tools": { "exclude": ["delete_*"] } }, "text": { "hints": "text", "tools": tools } });
    let gateway = start_gateway(&profiles, &json!({ "toolbox": follow_ups }));
    let call = |endpoint: &str| call(&gateway, endpoint, "time.now", &json!({ "zone": "UTC" }));
    let hints = call("/mcp/full")["result"]["_meta"]["toolgate/result"]["agentHints"].take();
    let actions: Vec<_> = hints["suggestedNextActions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|next| next["action"].as_str().unwrap())
        .collect();
    assert_eq!(actions, ["forms", "take-a-walk"], "{hints}");
    assert_eq!(hints["dependencies"][0]["dependsOn"], json!(["forms"]), "{hints}");
    assert!(!hints.to_string().contains("delete_all") && !hints.to_string().contains("shapes"), "{hints}");
    let brief = |endpoint: &str| call(endpoint)["result"]["_meta"]["toolgate/result"].take();
    assert_eq!(brief("/mcp/brief"), json!({ "next": "forms", "reason": "Draw it." }));
    assert_eq!(brief("/mcp/same"), json!({ "next": "shapes", "reason": "Draw it." }));
    assert_eq!(
        brief("/mcp"),
        json!({ "next": "delete_all", "reason": "declared as a next step of this tool" })
    );
    let text = call("/mcp/text")["result"]["content"].take();
    assert_eq!(text.as_array().unwrap().last().unwrap()["text"], "[next: forms (Draw it.)]");
}

#[test]
fn file_changes_apply_at_once() {
    let profiles = json!({ "one": { "tools": ["time.now"] } });
    let gateway = start_gateway(&profiles, &json!({}));
    assert_eq!(names(&gateway, "/mcp/one", OWNER), ["time.now"]);
    let mut file: Json = serde_json::from_str(&gateway.program.read("toolgate.yaml")).unwrap();
    file["profiles"] = json!({ "one": { "tools": ["shapes", "time.now"] }, "two": { "tools": { "as": { "shapes": { "name": "forms" } } } } });
    gateway.program.write("toolgate.yaml", file.to_string());
    wait_until("the change", || names(&gateway, "/mcp/one", OWNER).len() == 2);
    assert!(names(&gateway, "/mcp/two", OWNER).contains(&"forms".to_owned()));
    file["profiles"] = json!({});
    gateway.program.write("toolgate.yaml", file.to_string());
    wait_until("the end", || ask(&gateway, "/mcp/one", OWNER, "tools/list", &json!({})).status == 404);
}

#[test]
fn prompts_and_resources_are_filtered() {
    let server = json!({ "name": "s", "command": testkit(), "args": ["good"], "mode": "dynamic", "default_tool_config": { "max_instances": 4 } });
    let profiles = json!({
        "some": {
            "tools": ["s__echo"],
            "prompts": { "as": { "greet": { "name": "welcome", "description": "Welcomes." } } },
            "resources": { "include": ["test://one"], "as": { "test://one": { "name": "first", "description": "The first." } } },
        },
        "none": { "tools": [], "prompts": [], "resources": [] },
        "any": { "tools": [], "resources": ["test://{id}"] },
    });
    let gateway = start_gateway(&profiles, &json!({ "toolbox": { "mcps": [server] } }));
    let ask =
        |endpoint: &str, method: &str, params: Json| ask(&gateway, endpoint, OWNER, method, &params).json();
    assert_eq!(names(&gateway, "/mcp/some", OWNER), ["echo"]);
    let prompts = ask("/mcp/some", "prompts/list", json!({}));
    assert_eq!(prompts["result"]["prompts"][0]["name"], "welcome", "{prompts}");
    assert_eq!(prompts["result"]["prompts"][0]["description"], "Welcomes.", "{prompts}");
    let arguments = json!({ "name": "welcome", "arguments": { "who": "Ann" } });
    let prompt = ask("/mcp/some", "prompts/get", arguments.clone());
    assert_eq!(prompt["result"]["messages"][0]["content"]["text"], "Greet Ann.", "{prompt}");
    assert_eq!(ask("/mcp/none", "prompts/get", arguments)["error"]["code"], -32602);
    assert_eq!(ask("/mcp/some", "prompts/get", json!({ "name": "greet" }))["error"]["code"], -32602);
    let resources = ask("/mcp/some", "resources/list", json!({}));
    assert_eq!(
        resources["result"]["resources"],
        json!([{ "uri": "test://one", "name": "first", "description": "The first." }])
    );
    let templates = |endpoint: &str| {
        ask(endpoint, "resources/templates/list", json!({}))["result"]["resourceTemplates"].clone()
    };
    assert_eq!((templates("/mcp/some"), templates("/mcp/none")), (json!([]), json!([])));
    assert_eq!(templates("/mcp/any")[0]["uriTemplate"], "test://{id}");
    let read = |endpoint: &str, uri: &str| {
        ask(endpoint, "resources/read", json!({ "uri": uri }))["error"]["code"].as_i64()
    };
    for (endpoint, uri, due) in [
        ("/mcp/some", "test://one", None),
        ("/mcp/some", "test://two", Some(-32602)),
        ("/mcp/none", "test://one", Some(-32602)),
        ("/mcp/any", "test://two", None),
        ("/mcp", "test://two", None),
    ] {
        assert_eq!(read(endpoint, uri), due, "{endpoint} {uri}");
    }
    // The instructions of a server are sent if the profile shows anything of it.
    let about =
        |endpoint: &str| ask(endpoint, "server/discover", json!({}))["result"]["instructions"].clone();
    assert_eq!((about("/mcp/some"), about("/mcp/none")), (json!("# s\nbe kind"), Json::Null));
}

#[test]
fn clients_are_notified_of_visible_changes() {
    let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
    let program =
        project(&json!({ "one": { "tools": ["one", "two"] }, "find": { "exposure": "search" } }), &json!({}));
    program.write("offer.json", json!({ "tools": [tool("one")] }).to_string());
    let server = json!({ "name": "s", "command": testkit(), "args": ["scripted", program.path("offer.json")], "mode": "dynamic", "default_tool_config": { "max_instances": 4 } });
    let mut file: Json = serde_json::from_str(&program.read("toolgate.yaml")).unwrap();
    file["toolbox"] = json!({ "mcps": [server] });
    program.write("toolgate.yaml", file.to_string());
    let mut gateway = Gateway::serve(program);
    let streams = ["/mcp/one", "/mcp/find", "/mcp"].map(|endpoint| listen(&gateway, endpoint));
    // One change that the first client cannot see, and one that it can.
    let offer = |gateway: &Gateway, names: &[&str]| {
        let tools: Vec<_> = names.iter().map(|name| tool(name)).collect();
        gateway.program.write("offer.json", json!({ "tools": tools }).to_string());
    };
    let sees = |gateway: &Gateway, endpoint: &str, name: &str| {
        names(gateway, endpoint, OWNER).contains(&name.to_owned())
    };
    offer(&gateway, &["one", "other"]);
    wait_until("the first change", || sees(&gateway, "/mcp", "other"));
    assert_eq!(names(&gateway, "/mcp/one", OWNER), ["one"]);
    offer(&gateway, &["one", "other", "two"]);
    wait_until("the second change", || sees(&gateway, "/mcp/one", "two"));
    gateway.signal("-TERM");
    let requests = streams.map(|stream| {
        let lines = stream.lines().map_while(Result::ok);
        lines.filter(|line| line.contains("notifications/tools/list_changed")).count()
    });
    assert_eq!((requests[0], requests[1]), (1, 0), "{requests:?}");
    assert!(requests[2] >= 2, "{requests:?}");
    assert_eq!(gateway.wait_for_exit(), Some(0));
}

/// Returns the notifications of a session.
fn listen(gateway: &Gateway, endpoint: &str) -> BufReader<std::net::TcpStream> {
    let headers = [
        format!("X-API-Key: {OWNER}"),
        "Accept: application/json, text/event-stream".to_owned(),
        "Content-Type: application/json".to_owned(),
        format!("Mcp-Session-Id: {}", session(gateway, endpoint)),
    ];
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    // Changes are sent after the first list.
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    assert_eq!(gateway.request(&format!("POST {endpoint}"), &headers, &list).status, 200);
    let mut stream = gateway.connect();
    stream.write_all(request(&format!("GET {endpoint}"), &headers, "").as_bytes()).expect("it is sent");
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    // The first comment is sent once the stream is open.
    while !line.starts_with(':') {
        line.clear();
        assert!(stream.read_line(&mut line).expect("a line") > 0, "it ended");
    }
    stream
}

#[test]
fn profiles_over_stdio_and_on_the_command_line() {
    let profiles = json!({
        "clock": { "provider": "openai", "tools": { "include": ["time.now", "nothing_such"], "as": { "time.now": { "description": "The time." } } } },
        "find": { "exposure": "search" },
    });
    let program = project(&profiles, &json!({}));
    let listed = program.run("tools list --profile clock");
    insta::assert_snapshot!(listed, @"
    exit code 0
    ----- stdout
    time_now_0fa1a4  The time.  time.now
    ----- stderr
    note: `nothing_such` matches no tool
    ");
    let json = program.run("tools list --profile clock --json").json();
    assert_eq!(json["tools"][0]["description"], "The time.", "{json}");
    assert_eq!(json["notes"], json!(["`nothing_such` matches no tool"]));
    insta::assert_snapshot!(program.run("tools list --profile find"), @"
    exit code 0
    ----- stdout
    time.now                                                                                  Says what time it is.
    delete_all                                                                                Deletes everything there is.
    a_tool_with_a_long_name_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_end  Has a long name.
    shapes                                                                                    Takes things of many shapes.
    ----- stderr
    clients see search_tools, describe_tool and call_tool, and reach these tools through them:
    ");
    insta::assert_snapshot!(program.run("tools list --profile clok"), @"
    exit code 1
    ----- stdout
    ----- stderr
    error: there is no profile `clok`
    hint: available: `clock`, `find`
    ");
    insta::assert_snapshot!(program.run("stdio --profile clok"), @"
    exit code 1
    ----- stdout
    ----- stderr
    error: there is no profile `clok`
    hint: available: `clock`, `find`
    ");
    let mut client = StdioClient::with(&program, &["stdio", "--profile", "clock"]);
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {} });
    let listed = client.ask(1, "tools/list", &json!({ "_meta": meta }));
    assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(1), "{listed}");
    let params = json!({ "name": "time_now_0fa1a4", "arguments": { "zone": "UTC" }, "_meta": meta });
    assert_eq!(tool_output(&client.ask(2, "tools/call", &params)), json!({ "zone": "UTC" }));
    let entry = program.run("connect claude-code --scope project --profile clock --dry-run");
    assert!(entry.stdout.contains("\"--profile\",") && entry.stdout.contains("\"clock\""), "{entry}");
    let entry = program.run(
        "connect claude-code --scope project --profile clock --dry-run --http http://127.0.0.1:7332/mcp",
    );
    assert!(entry.stdout.contains("http://127.0.0.1:7332/mcp/clock"), "{entry}");
}
