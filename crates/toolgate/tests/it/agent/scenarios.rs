//! Agent scenarios from end to end: the executable, real tools, real MCP servers and a scripted model.

use serde_json::{Value as Json, json};

use crate::agent::{ScriptedModel, call, events, project, results, run, stream};
use crate::support::gateway::{Gateway, OWNER};
use crate::support::program::{Program, RunOutput};
use crate::support::scripts::write_script;
use crate::support::search_engine::SearchEngine;
use crate::support::test_server::{TestServer, entry, testkit};
use crate::support::third_party::{package, peers, text};

/// A model with one turn of calls and an answer.
fn calls(calls: Vec<Json>) -> ScriptedModel {
    ScriptedModel::start(&json!([{ "calls": calls }, { "text": "Done." }]))
}

/// Creates a project of one `agent.yaml` with these tools, named by their keys.
fn agent_yaml(model: &ScriptedModel, tools: Json) -> Program {
    let agent = json!({ "name": "helper", "model": model.model(), "instructions": { "inline": "Be kind." }, "tools": tools });
    Program::new(&[("agent.yaml", &agent.to_string())])
}

#[test]
fn web_search_runs_only_when_the_model_calls_it() {
    let engine = SearchEngine::good(
        &json!({ "results": [{ "title": "Seoul", "url": "https://weather.example", "content": "21 degrees, clear" }] }),
    );
    let search = json!({ "web_search": { "provider": "searxng", "url": engine.url() } });
    let model = ScriptedModel::start(&json!([
        { "calls": [call("c1", "web_search", json!({ "query": "weather in Seoul today" }))] },
        { "text": "It is 21 degrees and clear in Seoul." },
        { "text": "Paris." },
    ]));
    let program = project(&model, &search);
    let first = run(&program, "what is the weather in Seoul today?");
    assert!(results(&first)[0].contains("21 degrees, clear"), "{first}");
    let second = run(&program, "what is the capital of France?");
    assert!(results(&second).is_empty() && second.stdout.contains("Paris."), "{second}");
    assert_eq!(engine.requests().len(), 1, "the second task needs no search");
}

#[test]
fn code_is_run_and_its_failure_reported() {
    let sums = "import csv\nprint(sum(int(row['n']) for row in csv.DictReader(open('data.csv'))))";
    let good =
        json!({ "language": "python", "code": sums, "files": [{ "path": "data.csv", "text": "n\n3\n4\n" }] });
    let bad = json!({ "language": "python", "code": "raise ValueError('no such column')" });
    let model = calls(vec![call("c1", "code_execution", good), call("c2", "code_execution", bad)]);
    let program = project(&model, &json!({ "code_execution": { "enabled": true, "timeout": "1m" } }));
    let ran = run(&program, "sum up this CSV file");
    let results = results(&ran);
    assert!(results[0].contains('7'), "{ran}");
    assert!(results[1].contains("no such column"), "{ran}");
}

#[test]
fn added_tools_are_used_and_removed_ones_are_not() {
    let model = ScriptedModel::start(&json!([
        { "calls": [call("c1", "hello_world", json!({ "name": "Ann" }))] },
        { "text": "Hello." },
        { "text": "There is no such tool." },
    ]));
    let program = project(&model, &json!({ "registries": { "tools": "tools/tools.json" } }));
    program.write("tools/tools.json", "{\"tools\": []}");
    write_script(&program, "hello.py", "def run(name: str):\n    return {\"greeting\": \"hello \" + name}\n");
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } }).to_string();
    let added = program.run_list(&[
        "tools",
        "add",
        "hello_world",
        "--script",
        "hello.py",
        "--description",
        "Greets somebody by name.",
        "--input-schema",
        &schema,
    ]);
    assert_eq!(added.code, 0, "{added}");
    let ran = run(&program, "greet Ann");
    assert!(results(&ran)[0].contains("hello Ann"), "{ran}");
    assert_eq!(program.run("tools remove hello_world --yes").code, 0);
    assert!(results(&run(&program, "greet Bob")).is_empty());
    let names = |at: usize| model.seen()[at]["tools"].to_string();
    assert!(names(0).contains("hello_world") && !names(2).contains("hello_world"));
}

/// The same over the REST API, for later runs.
#[test]
fn a_tool_added_over_http_is_used_by_the_next_run() {
    let model = ScriptedModel::start(&json!([
        { "calls": [call("c1", "hello_world", json!({ "name": "Ann" }))] },
        { "text": "Hello." },
        { "text": "There is no such tool." },
    ]));
    let program = crate::support::gateway::project(
        &json!({ "agent": { "model": model.model() }, "registries": { "tools": "tools/tools.json" } }),
    );
    program.write("tools/tools.json", "{\"tools\": []}");
    write_script(
        &program,
        "hello_world.py",
        "def run(name: str):\n    return {\"greeting\": \"hello \" + name}\n",
    );
    let gateway = Gateway::serve(program);
    let tool = json!({ "name": "hello_world", "description": "Greets somebody by name.",
        "input_schema": { "type": "object", "properties": { "name": { "type": "string" } } } });
    let added = gateway.post("/v1/tools", OWNER, &tool);
    assert_eq!(added.status, 201, "{added:?}");
    let first = stream(&gateway, OWNER, &json!({ "task": "greet Ann" }));
    assert!(first.contains("hello Ann"), "{first}");
    let key = format!("X-API-Key: {OWNER}");
    let removed = gateway.request("DELETE /v1/tools/hello_world", &[&key], "");
    assert!((200..300).contains(&removed.status), "{removed:?}");
    stream(&gateway, OWNER, &json!({ "task": "greet Bob" }));
    let names = |at: usize| model.seen()[at]["tools"].to_string();
    assert!(names(0).contains("hello_world") && !names(2).contains("hello_world"));
}

#[test]
fn a_resource_is_found_and_read() {
    let model = calls(vec![
        call("c1", "list_resources", json!({})),
        call("c2", "read_resource", json!({ "uri": "test://one" })),
    ]);
    let program = project(&model, &json!({ "registries": { "mcp": "mcp.json" } }));
    let kit = TestServer::start("good");
    program.write("mcp.json", json!({ "servers": { "kit": { "url": kit.url("http", "mcp") } } }).to_string());
    let results = results(&run(&program, "what does the document say?"));
    assert!(results[0].contains("kit: test://one · one"), "{results:?}");
    assert_eq!(results[1], "[test://one]\nthe content");
}

#[test]
fn servers_in_agent_yaml_get_their_configuration() {
    let model = calls(vec![call("c1", "environment", json!({}))]);
    let server = json!({ "type": "mcp", "name": "kit", "command": testkit(), "args": ["good"], "encoding": "utf-8",
        "env": { "API_KEY": "${MY_API_KEY}" }, "envFile": "more.env", "config": { "allowed_directories": ["/workspace/data"] } });
    let program = agent_yaml(&model, json!([server])).with("MY_API_KEY", "k3y-of-the-server");
    program.write("more.env", "FROM_FILE=yes\n");
    let ran = run(&program, "show it");
    let shown = &results(&ran)[0];
    for part in [
        "API_KEY=k3y-of-the-server",
        "FROM_FILE=yes",
        "MCP_CONFIG={\"allowed_directories\":[\"/workspace/data\"]}",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(model.seen()[0]["messages"][0]["content"].as_str().unwrap().contains("Be kind."));
    let unset = agent_yaml(&model, json!([server])).run("check");
    assert_eq!(unset.code, 78, "{unset}");
    assert!(
        unset.stderr.contains("`MY_API_KEY` is not set") || unset.stdout.contains("`MY_API_KEY` is not set"),
        "{unset}"
    );
}

#[test]
fn tool_names_are_adapted_for_the_model() {
    let model = calls(vec![call("c1", "good", json!({}))]);
    let server = json!({ "type": "mcp", "name": "kit", "command": testkit(), "args": ["poisoned"] });
    let program = agent_yaml(&model, json!([server]));
    run(&program, "go");
    let names = model.seen()[0]["tools"].to_string();
    assert!(names.contains("\"my-tool-") && names.contains("\"good\""), "{names}");
    let only = json!([server, "good"]);
    let program = agent_yaml(&model, only);
    run(&program, "go");
    let names = model.seen().last().unwrap()["tools"].to_string();
    assert!(names.contains("\"good\"") && !names.contains("\"my-tool-"), "{names}");
}

#[test]
fn failing_servers_are_reported_and_the_run_continues() {
    let model = calls(vec![
        call("c1", "fine__echo", json!({ "message": "hi" })),
        call("c2", "dying__echo", json!({})),
        call("c3", "fine__fail", json!({})),
        call("c4", "slow__echo", json!({})),
    ]);
    let server = |name: &str, command: Json, mode: &str| json!({ "type": "mcp", "name": name, "command": command, "args": [mode], "request_timeout": "2s" });
    let tools = json!([
        server("fine", json!(testkit()), "good"),
        server("absent", json!("/no/such/program"), "x"),
        server("dying", json!(testkit()), "dies"),
        server("slow", json!(testkit()), "silent"),
    ]);
    let program = agent_yaml(&model, tools);
    let ran = run(&program, "go");
    let results = results(&ran);
    assert!(results[0].contains("\"message\":\"hi\""), "{ran}");
    assert!(
        results[1].starts_with("error provider_failure: ") && results[1].contains("may have taken effect"),
        "{ran}"
    );
    assert!(results[2].starts_with("error tool_execution_error: it did not work"), "{ran}");
    assert!(results[3].starts_with("error "), "{ran}");
    assert!(ran.stderr.contains("/no/such/program"), "the command is named: {ran}");
}

#[test]
fn http_sse_and_websocket_servers_behave_alike() {
    let model = calls(
        ["http", "sse", "ws"]
            .map(|name| call(name, &format!("{name}__echo"), json!({ "message": name })))
            .into(),
    );
    let kit = TestServer::start("good");
    let tools = json!([
        { "type": "mcp", "name": "http", "transport": "http", "url": kit.url("http", "mcp"), "terminate_on_close": true,
            "headers": { "Authorization": "Bearer ${TOKEN}" } },
        { "type": "mcp", "name": "sse", "transport": "sse", "url": kit.url("http", "sse"), "timeout": "5s", "sse_read_timeout": "1m" },
        { "type": "mcp", "name": "ws", "transport": "websocket", "url": kit.url("ws", "ws") },
    ]);
    let program = agent_yaml(&model, tools).with("TOKEN", "t0ken-of-the-server");
    let results = results(&run(&program, "go"));
    for (result, name) in results.iter().zip(["http", "sse", "ws"]) {
        assert!(result.starts_with(&format!("{{\"message\":\"{name}\"}}")), "{results:?}");
    }
    let seen = kit.seen();
    let authorized = |seen: &Json| seen["headers"].to_string().contains("Bearer t0ken-of-the-server");
    assert!(seen.iter().any(authorized), "the header is sent");
    // Requests without a path came over the WebSocket, all over one connection.
    let by_socket = seen.iter().filter(|seen| seen["event"] == "request" && seen["path"].is_null());
    let used: Vec<_> = by_socket.map(|seen| (&seen["connection"], &seen["message"]["method"])).collect();
    assert!(used.iter().any(|(_, method)| **method == "tools/call"), "{used:?}");
    assert!(used.iter().all(|(connection, _)| *connection == used[0].0), "{used:?}");
}

#[test]
fn request_timeouts_of_http_servers_apply() {
    let model = calls(vec![call("c1", "busy__echo", json!({})), call("c2", "mute__echo", json!({}))]);
    // One server sends progress forever, the other sends SSE comments.
    let (busy, mute) = (TestServer::start("progress"), TestServer::start("comments"));
    // This one accepts connections and sends nothing.
    let away = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let at = format!("http://{}/mcp", away.local_addr().expect("it is bound"));
    let tools = json!([
        { "type": "mcp", "name": "away", "transport": "http", "url": at, "timeout": "700ms" },
        { "type": "mcp", "name": "busy", "transport": "http", "url": busy.url("http", "mcp"), "request_timeout": "1s" },
        { "type": "mcp", "name": "mute", "transport": "http", "url": mute.url("http", "mcp"), "sse_read_timeout": "150ms" },
    ]);
    let ran = run(&agent_yaml(&model, tools), "go");
    let results = results(&ran);
    assert!(ran.stderr.contains("700ms"), "{ran}");
    assert!(results[0].contains("no answer within 1s"), "{ran}");
    assert!(results[1].contains("sent nothing for too long"), "{ran}");
}

#[test]
#[ignore = "needs the servers that `cargo xtask test` installs"]
fn the_filesystem_server_is_used() {
    let peers = peers();
    let model = ScriptedModel::start(&json!([]));
    let program = agent_yaml(&model, json!([]));
    let folder = text(&program.project).to_owned();
    program.write("note.txt", "the crab is in the garden");
    let path = format!("{folder}/note.txt");
    let model = calls(vec![call("c1", "files__read_text_file", json!({ "path": path }))]);
    let mut server = package(&peers, "server-filesystem", &[&folder]);
    server["type"] = "mcp".into();
    server["name"] = "files".into();
    let agent = json!({ "name": "helper", "model": model.model(), "tools": [server] });
    program.write("agent.yaml", agent.to_string());
    let ran = run(&program, "where is the crab?");
    assert!(results(&ran)[0].contains("the crab is in the garden"), "{ran}");
}

#[test]
fn the_policy_blocks_sending_after_untrusted_content() {
    let rule = "@id(\"strangers\") forbid(principal, action == Action::\"call\", resource) when { context.tainted && resource.server != \"\" };";
    let model = ScriptedModel::start(&json!([
        { "calls": [call("c1", "echo", json!({ "message": "one" }))] },
        { "calls": [call("c2", "echo", json!({ "message": "two" }))] },
        { "text": "" },
        { "calls": [call("c3", "echo", json!({ "message": "three" }))] },
        { "text": "I may not." },
        { "calls": [call("c4", "echo", json!({ "message": "four" }))] },
        { "text": "A new run may." },
    ]));
    let program = project(&model, &json!({ "registries": { "mcp": "mcp.json" } }));
    program.write("mcp.json", json!({ "servers": { "kit": entry("good") } }).to_string());
    program.write("policy.cedar", rule);
    let texts = |run: &RunOutput| -> Vec<String> {
        let results = events(run).into_iter().filter(|event| event["event"] == "result");
        results.map(|event| event["text"].as_str().unwrap().to_owned()).collect()
    };
    let first = run(&program, "go");
    let results = texts(&first);
    assert!(
        results[0].contains("\"one\"") && results[1].contains("the policy forbids it: strangers"),
        "{first}"
    );
    let id = program.run("runs --json").json()[0]["run"].as_str().unwrap().to_owned();
    let resumed = program.run_list(&["run", "--json", "--resume", &id]);
    assert!(
        texts(&resumed)[0].contains("the policy forbids it: strangers"),
        "also after a resume: {resumed}"
    );
    let fresh = run(&program, "again");
    assert!(texts(&fresh)[0].contains("\"four\""), "another run has read nothing: {fresh}");
}

#[test]
fn runs_over_http_act_as_their_caller() {
    let model = ScriptedModel::start(&json!([
        { "calls": [call("c1", "echo", json!({ "message": "hi" }))] },
        { "text": "It says hi." },
        { "calls": [call("c2", "echo", json!({ "message": "hi" }))] },
        { "text": "I may not." },
    ]));
    let callers = json!([
        { "id": "ann", "permissions": ["kit:*", "runs:start"], "api_key": "key-of-ann" },
        { "id": "bob", "permissions": ["runs:start"], "api_key": "key-of-bob" },
        { "id": "eve", "permissions": ["kit:*"], "api_key": "key-of-eve" },
    ]);
    let gateway = Gateway::start(&json!({ "agent": { "model": model.model() }, "callers": callers,
        "toolbox": { "mcps": [{ "name": "kit", "mode": "dynamic", "default_tool_config": {}, "command": testkit(), "args": ["good"] }] } }));
    let task = json!({ "task": "say hi" });
    let answer = stream(&gateway, "key-of-ann", &task);
    let data = answer.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Json> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
    let end = events.last().unwrap();
    assert_eq!(
        (&end["event"], &end["answer"], &end["calls"]),
        (&json!("ended"), &json!("It says hi."), &json!(1)),
        "{answer}"
    );
    assert!(answer.contains("event: begun\ndata: {\"event\":\"begun\""), "{answer}");
    // The same policy applies: a caller without the permission cannot have the agent call the tool.
    let answer = stream(&gateway, "key-of-bob", &task);
    assert!(answer.contains("error tool_not_found"), "{answer}");
    assert_eq!(gateway.post("/v1/runs", "key-of-eve", &task).status, 403);
    // Callers see their own runs only.
    let own = |key: &str| gateway.get("/v1/runs", key).json()["runs"].as_array().unwrap().len();
    assert_eq!([own("key-of-ann"), own("key-of-bob"), own("key-of-eve"), own(OWNER)], [1, 1, 0, 2]);
    let id = end["run"].as_str().unwrap();
    let show = |key: &str| gateway.get(&format!("/v1/runs/{id}"), key);
    assert_eq!(show("key-of-ann").json()["entries"][1]["kind"], "asked");
    assert_eq!([show("key-of-bob").status, show(OWNER).status], [404, 200]);
    let resume = json!({ "resume": id });
    assert_eq!(gateway.post("/v1/runs", "key-of-bob", &resume).status, 404);
    assert_eq!(gateway.post("/v1/runs", "key-of-ann", &resume).status, 409, "it has ended");
    for wrong in
        [json!({}), json!({ "task": " " }), json!({ "task": "x", "resume": "y" }), json!({ "tasks": "x" })]
    {
        assert_eq!(gateway.post("/v1/runs", "key-of-ann", &wrong).status, 400, "{wrong}");
    }
}

#[test]
fn a_skill_is_read_when_needed() {
    let model = calls(vec![
        call("c1", "load_skill", json!({ "name": "reports" })),
        call("c2", "read_skill_file", json!({ "skill": "reports", "path": "scripts/sum.py" })),
        call("c3", "read_skill_file", json!({ "skill": "reports", "path": "../../toolgate.yaml" })),
    ]);
    let program = project(&model, &json!({}));
    program.write(
        "skills/reports/SKILL.md",
        "---\nname: reports\ndescription: Sums up tables.\n---\nRun scripts/sum.py.\n",
    );
    program.write("skills/reports/scripts/sum.py", "print(7)");
    program.write("skills/broken/SKILL.md", "no front matter");
    let ran = run(&program, "sum up");
    let results = results(&ran);
    assert_eq!(results[0], "Run scripts/sum.py.\n\n[files: scripts/sum.py]");
    assert_eq!(results[1], "print(7)");
    assert_eq!(
        results[2],
        "error tool_execution_error: `../../toolgate.yaml` is not a file of skill `reports`\n[next: correct-arguments (read the tool's error message and correct the arguments)]"
    );
    assert!(ran.stderr.contains("skill ignored: "), "{ran}");
    let prompt = model.seen()[0]["messages"][0]["content"].as_str().unwrap().to_owned();
    assert!(prompt.contains("- reports: Sums up tables.") && !prompt.contains("Run scripts"), "{prompt}");
}

/// The agent's own tools are decided by the policy and recorded, like every tool.
#[test]
fn tools_of_the_agent_take_the_pipeline() {
    let model = calls(vec![
        call("c1", "load_skill", json!({ "name": "reports" })),
        call("c2", "read_resource", json!({ "uri": "test://one" })),
        call("c3", "search_tools", json!({ "query": "echo" })),
    ]);
    let program = project(&model, &json!({ "registries": { "mcp": "mcp.json" } }));
    let kit = TestServer::start("good");
    program.write("mcp.json", json!({ "servers": { "kit": { "url": kit.url("http", "mcp") } } }).to_string());
    program.write(
        "skills/reports/SKILL.md",
        "---\nname: reports\ndescription: Sums up tables.\n---\nRun scripts/sum.py.\n",
    );
    program.write(
        "policy.cedar",
        r#"@id("no-skills") forbid(principal, action == Action::"call", resource == Tool::"load_skill");
           @id("no-reads") forbid(principal, action == Action::"read", resource);"#,
    );
    let ran = run(&program, "sum up");
    let results = results(&ran);
    assert!(results[0].contains("no-skills") && !results[0].contains("sum.py"), "{ran}");
    assert!(results[1].contains("no-reads"), "{ran}");
    let decision = |tool: &str, kind: &str| {
        let logged = program.run(&format!("log --kind {kind} --tool {tool} --json"));
        logged.json()["begin"]["decision"].as_str().map(str::to_owned)
    };
    assert_eq!(decision("load_skill", "tool").as_deref(), Some("deny"));
    assert_eq!(decision("test://one", "resource").as_deref(), Some("deny"));
    assert_eq!(decision("search_tools", "tool").as_deref(), Some("allow"));
}

#[test]
fn a_script_of_a_skill_is_run_by_code_execution() {
    let script = "import csv\nprint(sum(int(row['n']) for row in csv.DictReader(open('data.csv'))))\n";
    let run_it = json!({ "language": "python", "code": script, "files": [{ "path": "data.csv", "text": "n\n3\n4\n" }] });
    let model = ScriptedModel::start(&json!([
        { "calls": [call("c1", "load_skill", json!({ "name": "reports" }))] },
        { "calls": [call("c2", "read_skill_file", json!({ "skill": "reports", "path": "scripts/sum.py" }))] },
        { "calls": [call("c3", "code_execution", run_it)] },
        { "text": "It is 7." },
    ]));
    let program = project(&model, &json!({ "code_execution": { "enabled": true, "timeout": "1m" } }));
    program.write(
        "skills/reports/SKILL.md",
        "---\nname: reports\ndescription: Sums up tables.\n---\nRun scripts/sum.py.\n",
    );
    program.write("skills/reports/scripts/sum.py", script);
    let ran = run(&program, "sum up this table");
    let results = results(&ran);
    assert_eq!(results[1], script, "the model gets the script unchanged and passes it on: {ran}");
    assert!(results[2].contains("\"stdout\":\"7\\n\"") || results[2].starts_with('7'), "{ran}");
    // The call takes the same pipeline as every call.
    assert!(program.run("log --tool code_execution --json").stdout.contains("csv.DictReader"));
}

/// A server sends `tools/list_changed` during a run: the next turn has the new tools.
#[test]
fn changed_tools_are_seen_by_the_next_turn() {
    let model = ScriptedModel::start(&json!([
        { "calls": [call("c1", "change", json!({}))] },
        { "calls": [call("c2", "second", json!({}))] },
        { "text": "Done." },
    ]));
    let program =
        project(&model, &json!({ "registries": { "mcp": "mcp.json", "tools": "tools/tools.json" } }));
    let file = program.path("offered");
    let offered = |names: &[&str]| {
        let tool = |name: &&str| json!({ "name": name, "description": "A tool.", "inputSchema": { "type": "object" } });
        json!({ "tools": names.iter().map(tool).collect::<Vec<_>>() }).to_string()
    };
    program.write("offered", offered(&["first"]));
    program.write("offered.next", offered(&["second"]));
    let server = json!({ "command": testkit(), "args": ["scripted", file] });
    program.write("mcp.json", json!({ "servers": { "s": server } }).to_string());
    let change = json!({ "name": "change", "description": "Changes what the server has.", "script_path": "change.sh",
        "input_schema": { "type": "object" }, "env": { "FILE": file } });
    program.write("tools/tools.json", json!({ "tools": [change] }).to_string());
    // The server polls the file a hundred times a second.
    let script = "#!/bin/sh\ncat > /dev/null\nmv \"$FILE.next\" \"$FILE\"\nsleep 0.3\necho '{}'\n";
    write_script(&program, "change.sh", script);
    let ran = run(&program, "go");
    assert!(results(&ran)[1].contains("called \"second\""), "{ran}");
    let names = |at: usize| model.seen()[at]["tools"].to_string();
    assert!(names(0).contains("\"first\"") && !names(0).contains("\"second\""), "{}", names(0));
    assert!(names(1).contains("\"second\"") && !names(1).contains("\"first\""), "{}", names(1));
}

/// `terminate_on_close` decides if the HTTP session of a server ends with the run.
#[test]
fn terminate_on_close_ends_the_session_with_the_run() {
    for (ends, key) in [
        (true, json!({})),
        (true, json!({ "terminate_on_close": true })),
        (false, json!({ "terminate_on_close": false })),
    ] {
        let model = calls(vec![call("c1", "echo", json!({ "message": "hi" }))]);
        let kit = TestServer::start("good session=the-one");
        let mut server =
            json!({ "type": "mcp", "name": "kit", "transport": "http", "url": kit.url("http", "mcp") });
        server.as_object_mut().expect("a map").extend(key.as_object().expect("a map").clone());
        let ran = run(&agent_yaml(&model, json!([server])), "go");
        assert!(results(&ran)[0].contains("\"hi\""), "{ran}");
        let seen = kit.seen();
        let deleted: Vec<_> = seen.iter().filter(|seen| seen["method"] == "DELETE").collect();
        assert_eq!(!deleted.is_empty(), ends, "{key}: {seen:?}");
        assert!(deleted.iter().all(|seen| seen["headers"]["mcp-session-id"] == "the-one"), "{deleted:?}");
    }
}
