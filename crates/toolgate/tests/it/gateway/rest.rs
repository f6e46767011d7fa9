//! REST API, keys, startup and shutdown.

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, project};
use crate::support::program::Program;
use crate::support::test_server::processes_left;

/// Callers with the keys `low-key` and `reads-key`.
fn callers() -> Json {
    json!([
        { "id": "low", "permissions": ["shop:*"], "api_key": "low-key" },
        { "id": "reader", "permissions": ["executions:read", "s:echo"], "api_key": "reads-key" },
    ])
}

#[test]
fn tools_are_listed_filtered_shown_and_called() {
    let tools = json!([{ "name": "echo", "category": "query", "tags": ["words"] }]);
    let gateway = Gateway::start(&json!({ "tools": tools }));
    let names = |query: &str| -> Vec<String> {
        let list = gateway.get(&format!("/v1/tools{query}"), OWNER).json();
        let name = |tool: &Json| tool["name"].as_str().expect("a name").to_owned();
        list["tools"].as_array().expect("a list").iter().map(name).collect()
    };
    assert_eq!(names(""), ["echo", "environment", "fail", "ask", "picture"]);
    assert_eq!(names("?server=s&category=query&tag=words"), ["echo"]);
    let next = |query: &str| gateway.get(&format!("/v1/tools{query}"), OWNER).json()["next"].clone();
    assert_eq!(
        (names("?limit=2"), next("?limit=2")),
        (vec!["echo".to_owned(), "environment".to_owned()], json!("2"))
    );
    assert_eq!(
        (names("?limit=3&cursor=2"), next("?limit=3&cursor=2")),
        (vec!["fail".to_owned(), "ask".to_owned(), "picture".to_owned()], Json::Null)
    );
    assert_eq!((names("?cursor=99"), next("")), (Vec::new(), Json::Null));
    assert_eq!(
        gateway.get("/v1/tools?cursor=x", OWNER).status_and_code(),
        (400, "invalid_request".to_owned())
    );
    assert!(names("?server=other").is_empty() && names("?tag=other").is_empty());
    assert_eq!(
        gateway.get("/v1/tools?colour=red", OWNER).status_and_code(),
        (400, "invalid_request".to_owned())
    );
    let tool = gateway.get("/v1/tools/s__echo", OWNER).json();
    assert_eq!(
        (&tool["name"], &tool["server"], &tool["state"]),
        (&json!("echo"), &json!("s"), &json!("ready"))
    );
    assert_eq!(tool["inputSchema"]["type"], "object");
    assert_eq!(gateway.get("/v1/tools/nothing", OWNER).status_and_code(), (404, "tool_not_found".to_owned()));
    let good = gateway.call(OWNER, "echo", &json!({ "message": "hello" }));
    let envelope = good.json();
    assert_eq!((good.status, &envelope["status"]), (200, &json!("success")));
    assert_eq!(envelope["data"][0]["text"], "hello");
    for member in ["agentHints", "metadata"] {
        assert!(envelope[member].is_object(), "{envelope}");
    }
    assert_eq!(
        gateway.call(OWNER, "echo", &json!({ "message": 1 })).status_and_code(),
        (422, "invalid_arguments".to_owned())
    );
    assert_eq!(
        gateway.call(OWNER, "nothing", &json!({})).status_and_code(),
        (404, "tool_not_found".to_owned())
    );
    // The same request in the format of another protocol.
    for body in [
        json!({ "name": "echo", "arguments": { "message": "hello" } }),
        json!({ "tool": "echo", "input": { "message": "hello" } }),
        json!({ "tool": "echo", "args": { "message": "hello" }, "context": { "sessionId": "1" } }),
    ] {
        let answer = gateway.post("/v1/tools/execute", OWNER, &body);
        assert_eq!(answer.json()["data"][0]["text"], "hello", "{answer:?}");
    }
    for body in [
        json!({}),
        json!({ "name": "echo", "tool": "echo" }),
        json!({ "name": "echo", "arguments": [] }),
        json!({ "name": "echo", "Arguments": {} }),
        json!({ "name": "echo", "context": { "sessionid": "1" } }),
        json!({ "name": "echo", "context": { "userId": "x".repeat(300) } }),
        json!(["echo"]),
    ] {
        assert_eq!(
            gateway.post("/v1/tools/execute", OWNER, &body).status_and_code(),
            (400, "invalid_request".to_owned()),
            "{body}"
        );
    }
    assert_eq!(gateway.get("/v1/tools/execute", OWNER).status_and_code(), (404, "tool_not_found".to_owned()));
    assert_eq!(gateway.get("/v1/nothing", OWNER).status_and_code(), (404, "not_found".to_owned()));
    assert_eq!(
        gateway.post("/v1/servers/s", OWNER, &json!({})).status_and_code(),
        (405, "method_not_allowed".to_owned())
    );
}

#[test]
fn executions_are_paginated() {
    let gateway = Gateway::start(&json!({}));
    for n in 0..5 {
        assert_eq!(gateway.call(OWNER, "echo", &json!({ "message": format!("number {n}") })).status, 200);
    }
    gateway.call(OWNER, "echo", &json!({ "fault": "is-error", "message": "no" }));
    let message_of =
        |call: &Json| call["begin"]["arguments"]["message"].as_str().unwrap_or_default().to_owned();
    assert_eq!(gateway.executions("status=error").iter().map(message_of).collect::<Vec<_>>(), ["no"]);
    assert_eq!(gateway.executions("grep=number%203&since=1h&tool=echo&caller=owner").len(), 1);
    assert!(gateway.executions("until=2020-01-01").is_empty() && gateway.executions("tool=other").is_empty());
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = gateway.get(&format!("/v1/executions?limit=2&status=success{cursor}"), OWNER).json();
        pages.push(page["executions"].as_array().expect("a list").iter().map(message_of).collect::<Vec<_>>());
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(pages, [vec!["number 4", "number 3"], vec!["number 2", "number 1"], vec!["number 0"]]);
    let one = &gateway.executions("limit=1")[0];
    let id = one["begin"]["call"].as_str().expect("an id");
    assert_eq!(gateway.get(&format!("/v1/executions/{id}"), OWNER).json(), *one);
    assert_eq!(gateway.get("/v1/executions/nothing", OWNER).status_and_code(), (404, "not_found".to_owned()));
    for bad in ["since=tomorrow", "cursor=x", "limit=x", "colour=red"] {
        assert_eq!(
            gateway.get(&format!("/v1/executions?{bad}"), OWNER).status_and_code(),
            (400, "invalid_request".to_owned()),
            "{bad}"
        );
    }
    // The command line reads the same log.
    let run = gateway.program.run("log --json --status error");
    assert_eq!(run.stdout.lines().count(), 1, "{run}");
}

/// Permissions are checked on every path, and errors reveal nothing else.
#[test]
fn permissions_of_every_path() {
    let gateway = Gateway::start(&json!({ "callers": callers() }));
    let id = {
        gateway.call(OWNER, "echo", &json!({ "message": "x" }));
        gateway.executions("limit=1")[0]["begin"]["call"].as_str().expect("an id").to_owned()
    };
    let why = json!({ "tool": "echo" });
    let call = json!({ "arguments": { "message": "x" } });
    let execute = json!({ "name": "echo", "arguments": { "message": "x" } });
    // Without a key, an invalid key, a caller without permissions, a reader, the owner.
    for (method, path, body, expected) in [
        ("GET", "/healthz", None, [200, 200, 200, 200, 200]),
        ("GET", "/readyz", None, [200, 200, 200, 200, 200]),
        ("GET", "/metrics", None, [401, 401, 403, 403, 200]),
        ("GET", "/v1/tools", None, [401, 401, 200, 200, 200]),
        ("GET", "/v1/tools/echo", None, [401, 401, 404, 200, 200]),
        ("GET", "/v1/tools/nothing", None, [401, 401, 404, 404, 404]),
        ("POST", "/v1/tools/echo/call", Some(&call), [401, 401, 404, 200, 200]),
        ("POST", "/v1/tools/fail/call", Some(&call), [401, 401, 404, 403, 200]),
        ("POST", "/v1/tools/execute", Some(&execute), [401, 401, 404, 200, 200]),
        ("GET", "/v1/servers", None, [401, 401, 403, 403, 200]),
        ("GET", "/v1/executions", None, [401, 401, 403, 200, 200]),
        ("GET", &format!("/v1/executions/{id}"), None, [401, 401, 403, 200, 200]),
        ("POST", "/v1/policy/why", Some(&why), [401, 401, 403, 403, 200]),
    ] {
        let keys = [None, Some("no-such-key"), Some("low-key"), Some("reads-key"), Some(OWNER)];
        for (key, expected) in keys.into_iter().zip(expected) {
            let key = key.map(|key| format!("X-API-Key: {key}"));
            let headers: Vec<&str> =
                key.iter().map(String::as_str).chain(["Content-Type: application/json"]).collect();
            let body = body.map(ToString::to_string).unwrap_or_default();
            let answer = gateway.request(&format!("{method} {path}"), &headers, &body);
            // From the sixth failure within a minute on, invalid keys get 429.
            let fits =
                answer.status == expected || (expected == 401 && key.is_some() && answer.status == 429);
            assert!(fits, "{method} {path} with {key:?}: {answer:?}");
        }
    }
    let listed = |key: &str| gateway.get("/v1/tools", key).json()["tools"].as_array().map(Vec::len);
    assert_eq!((listed("low-key"), listed("reads-key"), listed(OWNER)), (Some(0), Some(1), Some(5)));
    let refused = gateway.get("/metrics", "reads-key");
    let expected = r#"bearer error="insufficient_scope", scope="metrics:read""#;
    assert_eq!(refused.header("www-authenticate"), Some(expected));
    assert_eq!(
        gateway.request("GET /v1/tools", &[], "").header("www-authenticate"),
        Some(r#"bearer realm="toolgate""#)
    );
    let body = json!({ "caller": "reader", "tool": "fail" });
    let why = gateway.post("/v1/policy/why", OWNER, &body).json();
    assert_eq!(
        (&why["decision"], &why["visible"], &why["caller"]),
        (&json!("deny"), &json!(false), &json!("reader"))
    );
    assert_eq!(gateway.post("/v1/policy/why", OWNER, &json!({ "caller": "x", "tool": "fail" })).status, 404);
    let servers = gateway.get("/v1/servers", OWNER).json();
    assert_eq!(
        (&servers["servers"][0]["name"], &servers["servers"][0]["state"]),
        (&json!("s"), &json!("ready"))
    );
}

#[test]
fn invalid_keys_are_rate_limited() {
    let gateway = Gateway::start(&json!({}));
    let statuses: Vec<_> = (0..7).map(|n| gateway.get("/v1/tools", &format!("wrong-{n}")).status).collect();
    assert_eq!(statuses, [401, 401, 401, 401, 401, 429, 429]);
    assert_eq!(gateway.get("/v1/tools", OWNER).status, 200, "a right key from the same address");
    let response = gateway.get("/v1/tools", "wrong");
    assert_eq!(response.status, 429, "and wrong ones still wait");
    let wait: u64 = response.header("retry-after").and_then(|wait| wait.parse().ok()).expect("a time");
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(gateway.get("/healthz", "").status, 200);
}

#[test]
fn a_key_is_generated_and_shown_once() {
    let program = Program::new(&[("toolgate.yaml", "{}")]).with("TOOLGATE_LOG", "off");
    let running = program.start("serve --json --listen 127.0.0.1:0");
    let (line, _) = running.line(|line| line.starts_with('{'));
    let ready: Json = serde_json::from_str(&line).expect("JSON");
    let key = ready["apiKey"].as_str().expect("a key").to_owned();
    let port = ready["address"].as_str().and_then(|address| address.rsplit(':').next()?.parse().ok());
    let gateway = Gateway { program, running, port: port.expect("a port") };
    // A key that was never used would be replaced at the next start.
    assert_eq!(gateway.get("/v1/tools", &key).status, 200);
    let Gateway { program, running, .. } = gateway;
    drop(running);
    assert!(key.len() > 43, "{key}");
    let kept = program.read(".toolgate/keys.json");
    assert!(!kept.contains(&key) && kept.contains("sha256"), "{kept}");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs_err::metadata(program.path(".toolgate/keys.json")).expect("the file exists").permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    let mut gateway = Gateway::serve(program);
    assert_eq!((gateway.get("/v1/tools", &key).status, gateway.get("/v1/tools", "other").status), (200, 401));
    assert_eq!(
        gateway.get("/readyz", &key).json()["ready"],
        true,
        "without servers there is nothing to wait for"
    );
    gateway.signal("-INT");
    assert_eq!(gateway.wait_for_exit(), Some(0));
}

#[test]
fn weak_keys_are_rejected_at_startup() {
    for bad in ["secret-api-key", "changeme", "admin", ""] {
        let program = Program::new(&[("toolgate.yaml", "{}")]).with("TOOLGATE_API_KEY", bad);
        let run = program.run("serve --listen 127.0.0.1:0");
        assert_eq!(run.code, 78, "{bad}: {run}");
        assert!(run.stderr.contains("well-known weak key"), "{run}");
    }
    let program = project(&json!({ "callers": [{ "id": "ci", "api_key": "changeme" }] }));
    let run = program.run("serve --listen 127.0.0.1:0");
    assert_eq!(run.code, 78, "{run}");
    assert!(!run.stderr.contains("changeme"), "{run}");
    let run =
        project(&json!({ "callers": [{ "id": "ci", "api_key": OWNER }] })).run("serve --listen 127.0.0.1:0");
    assert_eq!(run.code, 78, "{run}");
    assert!(run.stderr.contains("is also the key of caller `ci`"), "{run}");
    let program = Program::new(&[("toolgate.yaml", "{}"), (".toolgate/keys.json", "nonsense")]);
    let run = program.run("serve --listen 127.0.0.1:0");
    assert_eq!(run.code, 78, "{run}");
    assert!(run.stderr.contains("keys.json` is not a valid key file"), "{run}");
}

/// Keys can be configured as hashes; the anonymous caller has the permissions configured for it.
#[test]
fn hashed_keys_and_the_anonymous_caller() {
    let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let gateway = Gateway::start(&json!({ "callers": [
        { "id": "ci", "permissions": ["s:*"], "key_sha256": hash },
        { "id": "anonymous", "permissions": ["s:echo"] },
    ] }));
    let call = |headers: &[&str], tool: &str| {
        let headers: Vec<_> = headers.iter().chain(&["Content-Type: application/json"]).copied().collect();
        gateway
            .request(&format!("POST /v1/tools/{tool}/call"), &headers, r#"{"arguments":{"message":"x"}}"#)
            .status
    };
    assert_eq!((call(&["X-API-Key: abc"], "fail"), call(&["X-API-Key: abd"], "fail")), (200, 401));
    assert_eq!((call(&[], "echo"), call(&[], "fail")), (200, 403));
    assert_eq!(call(&["X-Forwarded-For: 10.1.1.1"], "echo"), 401, "a proxied client is not local");
    let callers: Vec<_> = gateway.executions("").iter().map(|call| call["begin"]["caller"].clone()).collect();
    assert_eq!(callers, ["anonymous", "anonymous", "ci"]);
}

/// The user and the version of the agent are in the record; a caller cannot call in the name of another agent.
#[test]
fn context_of_a_call_is_recorded() {
    let gateway = Gateway::start(&json!({}));
    let call = |context: Json| {
        gateway.post(
            "/v1/tools/execute",
            OWNER,
            &json!({ "tool_name": "echo", "args": { "message": "x" }, "context": context }),
        )
    };
    let known = json!({ "agentId": "owner", "userId": "ann", "agentVersion": "2.1" });
    assert_eq!(call(known).json()["status"], "success");
    let refused = call(json!({ "agentId": "someone", "userId": "ann" }));
    assert_eq!(refused.status, 400);
    assert_eq!(
        refused.json()["error"]["message"],
        "`agentId` in `context` is `someone`, but the caller is `owner`"
    );
    let executions = gateway.executions("");
    assert_eq!(executions.len(), 1, "nothing was executed for another agent: {executions:?}");
    let begin = &executions[0]["begin"];
    assert_eq!((&begin["user"], &begin["agent_version"]), (&json!("ann"), &json!("2.1")), "{begin}");
}

#[test]
fn health_readiness_and_metrics() {
    let gateway = Gateway::start(
        &json!({ "tools": [{ "name": "environment", "cacheable": true, "cache_ttl": "1h", "category": "query" }] }),
    );
    gateway.call(OWNER, "echo", &json!({ "message": "x" }));
    gateway.call(OWNER, "echo", &json!({ "fault": "is-error", "message": "no" }));
    gateway.call(OWNER, "environment", &json!({}));
    gateway.call(OWNER, "environment", &json!({}));
    gateway.call(OWNER, "made-up", &json!({}));
    let metrics = gateway.get("/metrics", OWNER).body;
    for line in [
        r#"toolgate_tool_executions_total{tool="echo",server="s",status="success",code=""} 1"#,
        r#"toolgate_tool_executions_total{tool="echo",server="s",status="error",code="tool_execution_error"} 1"#,
        r#"toolgate_tool_executions_total{tool="(unknown)",server="",status="error",code="tool_not_found"} 1"#,
        r#"tool_usage{tool_name="environment"} 2"#,
        r#"toolgate_tool_cache_hits_total{tool="environment",server="s"} 1"#,
        r#"toolgate_tool_duration_seconds_count{tool="echo",server="s"} 2"#,
        r#"toolgate_caller_executions_total{caller="owner",server="s",status="success"} 3"#,
        r#"toolgate_caller_executions_total{caller="owner",server="",status="error"} 1"#,
        "# TYPE tool_usage untyped",
        "toolgate_servers_ready 1",
        "toolgate_calls_running 0",
    ] {
        assert!(metrics.lines().any(|response| response == line), "{line} is not in {metrics}");
    }
    // An unavailable server is listed with its reason and next attempt, for callers with the permission.
    let lazy = json!([{ "name": "gone", "url": "http://127.0.0.1:1/mcp", "mode": "dynamic", "startup": "optional",
        "default_tool_config": { "max_instances": 1 } }]);
    let gateway = Gateway::start(&json!({ "mcps": lazy }));
    let ready = gateway.get("/readyz", OWNER);
    let response = ready.json();
    assert_eq!(
        (ready.status, &response["ready"], &response["down"]),
        (503, &json!(false), &json!(1)),
        "{response}"
    );
    assert_eq!(response["unavailable"][0]["name"], "gone");
    assert!(response["unavailable"][0]["reason"].is_string() && response["reason"].is_string(), "{response}");
    gateway.wait("the next try", |gateway| {
        gateway.get("/readyz", OWNER).json()["unavailable"][0]["nextTryInMs"].is_u64()
    });
    assert!(gateway.get("/readyz", "").json().get("unavailable").is_none());
}

/// Statistics are shared between the command line and the gateway.
#[test]
fn statistics_are_shared_with_the_command_line() {
    let program = project(&json!({}));
    for _ in 0..3 {
        assert_eq!(program.run("tools call s__echo message=x").code, 0);
    }
    let gateway = Gateway::serve(program);
    let envelope = gateway.call(OWNER, "echo", &json!({ "message": "x" })).json();
    let reasoning = envelope["agentHints"]["reasoning"].as_str().expect("a text");
    assert!(reasoning.contains("3 of 3 calls succeeded so far"), "{reasoning}");
}

/// Running calls complete, new ones are refused, and no process is left.
#[test]
fn shutdown_waits_for_running_calls() {
    let marker = "TOOLGATE_TEST=closes-when-all-have-ended";
    let (name, value) = marker.split_once('=').expect("a variable");
    let program = project(&json!({ "server": { "env": { name: value } } }));
    let gate = program.path("gate");
    let mut gateway = Gateway::serve(program);
    let waits = json!({ "fault": "until", "message": gate });
    std::thread::scope(|scope| {
        let calls: Vec<_> =
            (0..20).map(|_| scope.spawn(|| gateway.call(OWNER, "echo", &waits).status)).collect();
        gateway.wait("twenty calls", |gateway| running(gateway) == 20);
        gateway.signal("-TERM");
        gateway.wait("a no", |gateway| gateway.get("/readyz", OWNER).status == 503);
        let refused = gateway.call(OWNER, "echo", &json!({ "message": "x" }));
        assert_eq!(refused.status_and_code(), (503, "service_unavailable".to_owned()));
        assert!(refused.header("retry-after").is_some(), "{refused:?}");
        assert_eq!(gateway.get("/healthz", "").status, 200);
        gateway.program.write("gate", "");
        let statuses: Vec<_> = calls.into_iter().map(|call| call.join().expect("it ends")).collect();
        assert_eq!(statuses, [200; 20]);
    });
    assert_eq!(gateway.wait_for_exit(), Some(0));
    assert_eq!(processes_left(marker), 0);
    let run = gateway.program.run("log verify --json");
    assert_eq!((&run.json()["records"], &run.json()["whole"]), (&json!(41), &json!(true)), "{run}");
}

fn running(gateway: &Gateway) -> usize {
    let metrics = gateway.get("/metrics", OWNER).body;
    let count = metrics.lines().find_map(|line| line.strip_prefix("toolgate_calls_running "));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[test]
fn a_second_signal_stops_at_once() {
    let marker = "TOOLGATE_TEST=second-signal-ends-at-once";
    let (name, value) = marker.split_once('=').expect("a variable");
    let mut gateway = Gateway::serve(project(&json!({ "server": { "env": { name: value } } })));
    std::thread::scope(|scope| {
        let call = scope.spawn(|| {
            let body = json!({ "arguments": { "fault": "never" } }).to_string();
            let key = format!("X-API-Key: {OWNER}");
            let headers = [key.as_str(), "Content-Type: application/json"];
            gateway
                .raw(crate::support::gateway::request("POST /v1/tools/echo/call", &headers, &body).as_bytes())
        });
        // A call that was not sent yet would not be sent after the signal.
        gateway.wait("the call", |gateway| gateway.seen().len() == 1);
        gateway.signal("-TERM");
        gateway.wait("a no", |gateway| gateway.get("/readyz", OWNER).status == 503);
        gateway.signal("-TERM");
        assert!(call.join().expect("it ends").is_none(), "the connection is closed without a response");
    });
    assert_eq!(gateway.wait_for_exit(), Some(1));
    crate::support::gateway::wait_until("the end of the server", || processes_left(marker) == 0);
    let run = gateway.program.run("log --json");
    assert!(run.stdout.contains(r#""code":"cancelled""#), "{run}");
}

/// Startup errors are reported.
#[test]
fn startup_errors() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it is bound");
    let run = project(&json!({})).run(&format!("serve --listen {address}"));
    assert_eq!(run.code, 1, "{run}");
    assert!(run.stderr.contains(&format!("cannot listen on {address}")), "{run}");
    let run = project(&json!({ "server": { "args": ["broken"], "startup": "required" } }))
        .run("serve --listen 127.0.0.1:0");
    assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run}");
    assert!(run.stderr.contains("Failed to connect to MCP server 's'"), "{run}");
    assert_eq!(project(&json!({})).run("serve --listen nowhere").code, 2);
    let program = project(&json!({}));
    program.write("policy.cedar", "permit(principal, action, resource) when { resource.colour == 1 };");
    assert_eq!(program.run("serve --listen 127.0.0.1:0").code, 78);
}

/// Values masked in the log are masked over HTTP, and metrics have only the tool of a call.
#[test]
fn secrets_are_masked_over_http() {
    let gateway = Gateway::start(&json!({}));
    let secret = "AKIAIOSFODNN7EXAMPLE";
    let call = json!({ "message": secret, "fault": "is-error", "password": "correct horse" });
    let answer = gateway.call(OWNER, "echo", &call);
    assert!(!answer.json()["error"].to_string().contains(secret), "{answer:?}");
    for path in ["/v1/executions", "/metrics", "/v1/servers", "/v1/tools", "/readyz"] {
        let shown = gateway.get(path, OWNER);
        assert_eq!(shown.status, 200, "{path}");
        for hidden in [secret, "correct horse", OWNER] {
            assert!(!shown.body.contains(hidden), "{path} shows {hidden}: {}", shown.body);
        }
    }
    assert!(gateway.get("/v1/executions", OWNER).body.contains("***"), "a secret was masked");
}
