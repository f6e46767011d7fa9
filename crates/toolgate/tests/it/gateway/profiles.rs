//! Profiles: what clients see at `/mcp/NAME`, by which names, and how calls find their way back.

use std::io::{BufRead as _, BufReader, Write as _};

use serde_json::{Value as Json, json};

use crate::door::{Answer, Door, OWNER, request, until};
use crate::program::Program;
use crate::servers::testkit;
use crate::stdio::Talk;

const ANN: &str = "a-key-that-ann-has-alone";
const BOB: &str = "a-key-that-bob-has-alone";

/// A door with own tools, a server that was scripted, and these profiles.
pub(crate) fn door(profiles: &Json, more: &Json) -> Door {
    Door::of(project(profiles, more))
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

/// A request of the newest revision.
pub(crate) fn ask(door: &Door, place: &str, key: &str, method: &str, params: &Json) -> Answer {
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
    door.request(&format!("POST {place}"), &headers, &body.to_string())
}

pub(crate) fn list(door: &Door, place: &str, key: &str) -> Vec<Json> {
    let answer = ask(door, place, key, "tools/list", &json!({})).json();
    answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
}

pub(crate) fn names(door: &Door, place: &str, key: &str) -> Vec<String> {
    list(door, place, key).iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

pub(crate) fn call(door: &Door, place: &str, name: &str, arguments: &Json) -> Json {
    ask(door, place, OWNER, "tools/call", &json!({ "name": name, "arguments": arguments })).json()
}

/// What the tool was given, or the error.
pub(crate) fn said(answer: &Json) -> Json {
    match answer["result"]["structuredContent"].get("said") {
        Some(said) => said.clone(),
        None if answer["error"].is_object() => answer["error"]["message"].clone(),
        None => answer["result"]["content"][0]["text"].clone(),
    }
}

#[test]
fn a_part_under_names_of_its_own() {
    let profiles = json!({
        "clock": { "description": "For the wall.", "tools": { "include": ["time.*", "shapes"],
            "as": { "time.now": { "name": "clock", "description": "The time, on the wall." } } } },
        "safe": { "provider": "openai", "tools": { "exclude": ["delete_*"] } },
    });
    let door = door(&profiles, &json!({}));
    assert_eq!(names(&door, "/mcp", OWNER).len(), 4);
    let clock = list(&door, "/mcp/clock", OWNER);
    assert_eq!(names(&door, "/mcp/clock", OWNER), ["clock", "shapes"]);
    assert_eq!(clock[0]["description"], "The time, on the wall.");
    assert_eq!(
        said(&call(&door, "/mcp/clock", "clock", &json!({ "zone": "UTC" }))),
        json!({ "zone": "UTC" })
    );
    // What is not part of it reads like what is not there; its own name is not a name here.
    for name in ["delete_all", "time.now", "no_such"] {
        let answer = call(&door, "/mcp/clock", name, &json!({}));
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert_eq!(answer["error"]["message"], format!("there is no tool `{name}`"), "{answer}");
    }
    // A mistake is told by the name that the client knows.
    let wrong = call(&door, "/mcp/clock", "clock", &json!({}));
    let text = wrong["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{wrong}"));
    assert!(text.contains("zone") && !text.contains("time.now"), "{text}");
    // The log has the tool under its own name, and what was refused.
    assert_eq!(door.executions("tool=time.now&status=success").len(), 1);
    assert!(door.executions("tool=clock").is_empty());
    assert_eq!(door.executions("tool=delete_all")[0]["end"]["error"]["code"], "tool_not_found");

    let safe = names(&door, "/mcp/safe", OWNER);
    assert!(safe.iter().all(|name| name.len() <= 64 && !name.contains('.')), "{safe:?}");
    assert_eq!(safe.len(), 3, "{safe:?}");
    for name in &safe[..2] {
        assert_eq!(
            said(&call(&door, "/mcp/safe", name, &json!({ "zone": "x" }))),
            json!({ "zone": "x" }),
            "{name}"
        );
    }
    let about = ask(&door, "/mcp/clock", OWNER, "server/discover", &json!({})).json();
    assert_eq!(about["result"]["instructions"], "# clock\nFor the wall.");
}

#[test]
fn schemas_that_providers_take_and_arguments_that_come_back() {
    let profiles = json!({
        "a": { "provider": "anthropic", "tools": ["shapes"] },
        "g": { "provider": "gemini", "tools": ["shapes"] },
    });
    let door = door(&profiles, &json!({}));
    for place in ["/mcp/a", "/mcp/g"] {
        let tool = list(&door, place, OWNER).remove(0);
        let schema = &tool["inputSchema"];
        assert!(schema.get("anyOf").is_none() && schema["type"] == "object", "{schema}");
        let properties = schema["properties"].as_object().unwrap();
        let name = properties.keys().find(|name| name.starts_with("filter_name_")).unwrap();
        let answer = call(&door, place, "shapes", &json!({ name: "ann@example.com" }));
        assert_eq!(said(&answer), json!({ "filter[name]": "ann@example.com" }), "{place}");
        // The true schema counts.
        let wrong = call(&door, place, "shapes", &json!({}));
        assert_eq!(wrong["result"]["isError"], true, "{wrong}");
        assert_eq!(
            wrong["result"]["_meta"]["toolgate/result"]["error"]["code"], "invalid_arguments",
            "{wrong}"
        );
    }
    let tool = list(&door, "/mcp/g", OWNER).remove(0);
    assert_eq!(tool["inputSchema"]["properties"]["map"]["type"], "string", "{tool}");
    let answer = call(&door, "/mcp/g", "shapes", &json!({ "map": "{\"a\":[1]}" }));
    assert_eq!(said(&answer), json!({ "map": { "a": [1] } }));
}

#[test]
fn tools_that_are_searched_for() {
    let profiles = json!({ "desk": { "exposure": "search", "description": "Clocks.", "provider": "openai",
        "tools": { "exclude": ["delete_*"], "as": { "time.now": { "name": "clock" } } } } });
    let door = door(&profiles, &json!({}));
    let place = "/mcp/desk";
    assert_eq!(names(&door, place, OWNER), ["search_tools", "describe_tool", "call_tool"]);
    let ask = |key: &str, tool: &str, arguments: Json| {
        ask(&door, place, key, "tools/call", &json!({ "name": tool, "arguments": arguments })).json()
    };
    let found = ask(OWNER, "search_tools", json!({ "query": "what time is it" }));
    assert_eq!(found["result"]["structuredContent"]["tools"][0]["name"], "clock", "{found}");
    let described = ask(OWNER, "describe_tool", json!({ "name": "clock" }));
    assert_eq!(
        described["result"]["structuredContent"]["inputSchema"]["required"],
        json!(["zone"]),
        "{described}"
    );
    let called = ask(OWNER, "call_tool", json!({ "name": "clock", "arguments": { "zone": "UTC" } }));
    assert_eq!(said(&called), json!({ "zone": "UTC" }), "{called}");
    assert!(called["result"]["_meta"]["toolgate/result"]["agentHints"].is_object(), "{called}");
    // What was found may be called without a way round, too.
    assert_eq!(said(&ask(OWNER, "clock", json!({ "zone": "x" }))), json!({ "zone": "x" }));
    assert_eq!(door.executions("tool=time.now").len(), 2);
    for name in ["delete_all", "time.now", "no_such"] {
        let missing = json!(format!("there is no tool `{name}`"));
        assert_eq!(said(&ask(OWNER, "call_tool", json!({ "name": name }))), missing, "{name}");
        assert_eq!(said(&ask(OWNER, "describe_tool", json!({ "name": name }))), missing, "{name}");
    }
    let gone = ask(OWNER, "search_tools", json!({ "query": "delete everything there is" }));
    assert!(!gone["result"].to_string().contains("delete_all"), "{gone}");
    // Who may not see a tool does not find it, and cannot call it.
    let found = ask(BOB, "search_tools", json!({ "query": "things of many shapes" }));
    assert!(!found["result"].to_string().contains("shapes"), "{found}");
    assert_eq!(
        said(&ask(BOB, "call_tool", json!({ "name": "shapes", "arguments": {} }))),
        json!("there is no tool `shapes`")
    );
    assert_eq!(
        said(&ask(BOB, "call_tool", json!({ "name": "clock", "arguments": { "zone": "b" } }))),
        json!({ "zone": "b" })
    );
    for (tool, arguments) in
        [("search_tools", json!({})), ("describe_tool", json!({})), ("call_tool", json!({}))]
    {
        assert_eq!(ask(OWNER, tool, arguments)["error"]["code"], -32602, "{tool}");
    }
}

#[test]
fn callers_and_their_profiles() {
    let profiles =
        json!({ "one": { "tools": ["time.now"] }, "two": { "tools": ["shapes"] }, "three": { "tools": [] } });
    let callers = json!([
        { "id": "ann", "permissions": ["*:*"], "api_key": ANN, "profile": "two" },
        { "id": "bob", "permissions": ["*:*"], "api_key": BOB, "profiles": ["one", "three"] },
    ]);
    let door = door(&profiles, &json!({ "callers": callers }));
    assert_eq!(names(&door, "/mcp", OWNER).len(), 4);
    assert_eq!(names(&door, "/mcp", ANN), ["shapes"]);
    assert_eq!(names(&door, "/mcp/one", ANN), ["time.now"]);
    assert_eq!(names(&door, "/mcp", BOB), ["time.now"]);
    assert!(names(&door, "/mcp/three", BOB).is_empty());
    // One that it may not use reads like one that is not there, whatever it does.
    for first in ["POST", "GET", "DELETE"] {
        let refused = |name: &str| {
            let headers = [
                format!("X-API-Key: {BOB}"),
                "Content-Type: application/json".to_owned(),
                "X-Correlation-Id: same".to_owned(),
            ];
            let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
            let answer = door.request(&format!("{first} /mcp/{name}"), &headers, "{}");
            // The message repeats the path of the request.
            (answer.status, answer.body.replace(name, "NAME"))
        };
        assert_eq!(refused("two"), refused("no-such"), "{first}");
        assert_eq!(refused("two").0, 404, "{first}");
    }
    for place in ["GET /sse/two", "GET /ws/two", "GET /sse/messages"] {
        let status = door.request(place, &[&format!("X-API-Key: {BOB}")], "").status;
        assert!([404, 405].contains(&status), "{place}: {status}");
    }
    // Whoever is not known is told nothing of either.
    for name in ["two", "no-such"] {
        assert_eq!(
            ask(&door, &format!("/mcp/{name}"), "wrong", "tools/list", &json!({})).status,
            401,
            "{name}"
        );
    }
}

/// Who is bound to profiles has their tools and no others over REST, too, and in every answer there.
#[test]
fn who_is_bound_to_profiles_has_no_more_over_rest() {
    let clock = json!({ "as": { "time.now": { "name": "clock" } }, "include": ["time.now"] });
    let profiles = json!({ "one": { "tools": clock }, "two": { "tools": ["shapes"] } });
    let callers = json!([
        { "id": "ann", "permissions": ["*:*"], "api_key": ANN, "profile": "one" },
        { "id": "bob", "permissions": ["*:*"], "api_key": BOB, "profiles": ["one"] },
    ]);
    let door = door(&profiles, &json!({ "callers": callers }));
    let listed = |key: &str| {
        let tools = door.get("/v1/tools", key).json()["tools"].take();
        let names = tools.as_array().expect("a list").iter().map(|tool| tool["name"].clone());
        names.collect::<Vec<_>>()
    };
    assert_eq!(listed(BOB), ["time.now"], "by its own name");
    assert_eq!(listed(ANN).len(), 4, "`profile` is what is shown at /mcp, and binds to nothing");
    let found = |key: &str| door.get("/v1/tools/search?q=shapes&limit=100", key).json()["tools"].to_string();
    assert!(found(ANN).contains("shapes") && !found(BOB).contains("shapes"), "{}", found(BOB));
    // What is no part of it reads like what is not there.
    let told = |name: &str| {
        let show = door.get(&format!("/v1/tools/{name}"), BOB);
        let call = door.call(BOB, name, &json!({}));
        let execute = door.post("/v1/tools/execute", BOB, &json!({ "name": name }));
        [show, call, execute].map(|answer| answer.told())
    };
    assert_eq!(told("shapes"), told("no-such"));
    assert_eq!(told("shapes"), [(); 3].map(|()| (404, "tool_not_found".to_owned())));
    assert_eq!(told("clock"), told("no-such"), "names of a profile are those of its own address");
    assert_eq!(door.call(BOB, "time.now", &json!({ "zone": "UTC" })).status, 200);
    // Whoever asks why is told.
    let why = |who: &str| {
        let why = door.post("/v1/policy/why", OWNER, &json!({ "caller": who, "tool": "shapes" })).json();
        (why["decision"].clone(), why["visible"].clone(), why["rules"].clone())
    };
    assert_eq!(why("bob"), (json!("deny"), json!(false), json!(["profiles"])));
    assert_eq!((why("ann").0, why("ann").1), (json!("allow"), json!(true)));
    // So does who has the command line, and uses the name of another.
    let run = door.program.run("tools list --as bob");
    assert!(run.stdout.contains("time.now") && !run.stdout.contains("shapes"), "{run}");
}

/// Begins a session of an older revision, and gives what it is known by.
fn session(door: &Door, place: &str) -> String {
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let began = door.post(place, OWNER, &body);
    began.session().unwrap_or_else(|| panic!("{began:?}")).to_owned()
}

#[test]
fn a_session_stays_at_its_door() {
    let profiles = json!({ "one": { "tools": ["time.now"] }, "two": { "tools": ["shapes"] } });
    let door = door(&profiles, &json!({}));
    let list = |place: &str, session: &str| {
        let headers = [
            format!("X-API-Key: {OWNER}"),
            "Content-Type: application/json".to_owned(),
            format!("Mcp-Session-Id: {session}"),
        ];
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
        let answer = door.request(&format!("POST {place}"), &headers, &body);
        (answer.status, answer.json()["result"]["tools"][0]["name"].clone())
    };
    for (own, name) in [("/mcp/one", "time.now"), ("/mcp/two", "shapes"), ("/mcp", "time.now")] {
        let session = session(&door, own);
        for place in ["/mcp/one", "/mcp/two", "/mcp"] {
            let due = if place == own { (200, json!(name)) } else { (404, Json::Null) };
            assert_eq!(list(place, &session), due, "of {own} at {place}");
        }
    }
}

#[test]
fn hints_as_text_where_a_profile_asks() {
    let profiles = json!({ "told": { "hints": "text" }, "quiet": {} });
    let door = door(&profiles, &json!({}));
    let blocks = |place: &str| {
        let answer = call(&door, place, "time.now", &json!({ "zone": "UTC" }));
        assert!(answer["result"]["_meta"]["toolgate/result"]["agentHints"].is_object(), "{answer}");
        assert_eq!(said(&answer), json!({ "zone": "UTC" }));
        answer["result"]["content"].as_array().unwrap().clone()
    };
    let (quiet, told) = (blocks("/mcp/quiet"), blocks("/mcp/told"));
    assert_eq!(told.len(), quiet.len() + 1, "{told:?}");
    let text = told.last().unwrap()["text"].as_str().unwrap();
    assert!(text.starts_with("Hints: confidence 0."), "{text}");
    let failed = call(&door, "/mcp/told", "time.now", &json!({}));
    let text = failed["result"]["content"].as_array().unwrap().last().unwrap()["text"].as_str().unwrap();
    assert!(text.contains("Next: `correct-arguments`"), "{text}");
}

#[test]
fn hints_name_tools_as_the_profile_does() {
    let follow_ups = json!({ "tools": [{ "name": "time.now", "mode": "strict", "follow_ups": [
        { "action": "shapes", "priority": "high" },
        { "action": "delete_all", "priority": "high" },
        { "action": "take-a-walk", "priority": "low", "after": ["shapes"] },
    ] }] });
    let profiles =
        json!({ "p": { "tools": { "exclude": ["delete_*"], "as": { "shapes": { "name": "forms" } } } } });
    let door = door(&profiles, &json!({ "toolbox": follow_ups }));
    let answer = call(&door, "/mcp/p", "time.now", &json!({ "zone": "UTC" }));
    let hints = &answer["result"]["_meta"]["toolgate/result"]["agentHints"];
    let actions: Vec<_> = hints["suggestedNextActions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|next| next["action"].as_str().unwrap())
        .collect();
    assert_eq!(actions, ["forms", "take-a-walk"], "{hints}");
    assert_eq!(hints["dependencies"][0]["dependsOn"], json!(["forms"]), "{hints}");
    assert!(!hints.to_string().contains("delete_all") && !hints.to_string().contains("shapes"), "{hints}");
}

#[test]
fn a_change_of_the_file_counts_at_once() {
    let profiles = json!({ "one": { "tools": ["time.now"] } });
    let door = door(&profiles, &json!({}));
    assert_eq!(names(&door, "/mcp/one", OWNER), ["time.now"]);
    let mut file: Json = serde_json::from_str(&door.program.read("toolgate.yaml")).unwrap();
    file["profiles"] = json!({ "one": { "tools": ["shapes", "time.now"] }, "two": { "tools": { "as": { "shapes": { "name": "forms" } } } } });
    door.program.write("toolgate.yaml", file.to_string());
    until("the change", || names(&door, "/mcp/one", OWNER).len() == 2);
    assert!(names(&door, "/mcp/two", OWNER).contains(&"forms".to_owned()));
    file["profiles"] = json!({});
    door.program.write("toolgate.yaml", file.to_string());
    until("the end", || ask(&door, "/mcp/one", OWNER, "tools/list", &json!({})).status == 404);
}

#[test]
fn prompts_and_resources_of_a_server() {
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
    let door = door(&profiles, &json!({ "toolbox": { "mcps": [server] } }));
    let ask = |place: &str, method: &str, params: Json| ask(&door, place, OWNER, method, &params).json();
    assert_eq!(names(&door, "/mcp/some", OWNER), ["echo"]);
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
    let templates = |place: &str| {
        ask(place, "resources/templates/list", json!({}))["result"]["resourceTemplates"].clone()
    };
    assert_eq!((templates("/mcp/some"), templates("/mcp/none")), (json!([]), json!([])));
    assert_eq!(templates("/mcp/any")[0]["uriTemplate"], "test://{id}");
    let read = |place: &str, uri: &str| {
        ask(place, "resources/read", json!({ "uri": uri }))["error"]["code"].as_i64()
    };
    for (place, uri, due) in [
        ("/mcp/some", "test://one", None),
        ("/mcp/some", "test://two", Some(-32602)),
        ("/mcp/none", "test://one", Some(-32602)),
        ("/mcp/any", "test://two", None),
        ("/mcp", "test://two", None),
    ] {
        assert_eq!(read(place, uri), due, "{place} {uri}");
    }
    // What a server wants models to know is told where something of it is shown.
    let about = |place: &str| ask(place, "server/discover", json!({}))["result"]["instructions"].clone();
    assert_eq!((about("/mcp/some"), about("/mcp/none")), (json!("# s\nbe kind"), Json::Null));
}

#[test]
fn a_client_hears_of_changes_of_what_it_sees() {
    let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
    let program =
        project(&json!({ "one": { "tools": ["one", "two"] }, "find": { "exposure": "search" } }), &json!({}));
    program.write("offer.json", json!({ "tools": [tool("one")] }).to_string());
    let server = json!({ "name": "s", "command": testkit(), "args": ["scripted", program.path("offer.json")], "mode": "dynamic", "default_tool_config": { "max_instances": 4 } });
    let mut file: Json = serde_json::from_str(&program.read("toolgate.yaml")).unwrap();
    file["toolbox"] = json!({ "mcps": [server] });
    program.write("toolgate.yaml", file.to_string());
    let mut door = Door::of(program);
    let streams = ["/mcp/one", "/mcp/find", "/mcp"].map(|place| listen(&door, place));
    // One change that the first does not see, and one that it does.
    let offer = |door: &Door, names: &[&str]| {
        let tools: Vec<_> = names.iter().map(|name| tool(name)).collect();
        door.program.write("offer.json", json!({ "tools": tools }).to_string());
    };
    let sees = |door: &Door, place: &str, name: &str| names(door, place, OWNER).contains(&name.to_owned());
    offer(&door, &["one", "other"]);
    until("the first change", || sees(&door, "/mcp", "other"));
    assert_eq!(names(&door, "/mcp/one", OWNER), ["one"]);
    offer(&door, &["one", "other", "two"]);
    until("the second change", || sees(&door, "/mcp/one", "two"));
    door.signal("-TERM");
    let heard = streams.map(|stream| {
        let lines = stream.lines().map_while(Result::ok);
        lines.filter(|line| line.contains("notifications/tools/list_changed")).count()
    });
    assert_eq!((heard[0], heard[1]), (1, 0), "{heard:?}");
    assert!(heard[2] >= 2, "{heard:?}");
    assert_eq!(door.ended(), Some(0));
}

/// What a session hears at a door.
fn listen(door: &Door, place: &str) -> BufReader<std::net::TcpStream> {
    let headers = [
        format!("X-API-Key: {OWNER}"),
        "Accept: text/event-stream".to_owned(),
        format!("Mcp-Session-Id: {}", session(door, place)),
    ];
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let mut stream = door.connect();
    stream.write_all(request(&format!("GET {place}"), &headers, "").as_bytes()).expect("it is sent");
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    // The first sign of life comes when it listens.
    while !line.starts_with(':') {
        line.clear();
        assert!(stream.read_line(&mut line).expect("a line") > 0, "it ended");
    }
    stream
}

#[test]
fn over_pipes_and_on_the_command_line() {
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
    let mut talk = Talk::with(&program, &["stdio", "--profile", "clock"]);
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {} });
    let listed = talk.ask(1, "tools/list", &json!({ "_meta": meta }));
    assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(1), "{listed}");
    let params = json!({ "name": "time_now_0fa1a4", "arguments": { "zone": "UTC" }, "_meta": meta });
    assert_eq!(said(&talk.ask(2, "tools/call", &params)), json!({ "zone": "UTC" }));
    let entry = program.run("connect claude-code --scope project --profile clock --dry-run");
    assert!(entry.stdout.contains("\"--profile\",") && entry.stdout.contains("\"clock\""), "{entry}");
    let entry = program.run(
        "connect claude-code --scope project --profile clock --dry-run --http http://127.0.0.1:7332/mcp",
    );
    assert!(entry.stdout.contains("http://127.0.0.1:7332/mcp/clock"), "{entry}");
}
