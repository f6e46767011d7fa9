//! The pipeline of a call: permissions, policy, egress, retries and hints.

use serde_json::{Value as Json, json};

use crate::support::program::{Program, RunOutput};
use crate::support::test_server::testkit;

/// Creates a project with one server, `bank`, with a `testkit` mode and more config.
fn project(mode: &str, config: Json) -> Program {
    let program = Program::new(&[]).with("TOOLGATE_LOG", "off");
    let log = program.path("seen");
    let mut toolbox = json!({ "mcps": [{
        "name": "bank", "command": testkit(), "args": [mode], "env": { "TESTKIT_LOG": log },
        "mode": "dynamic", "default_tool_config": { "max_instances": 5, "timeout": "10s" } }] });
    if let Some(tools) = config.get("tools") {
        toolbox["tools"] = tools.clone();
    }
    let mut project = json!({ "toolbox": toolbox });
    for key in ["callers", "egress"] {
        if let Some(value) = config.get(key) {
            project[key] = value.clone();
        }
    }
    program.write("toolgate.yaml", project.to_string());
    program
}

/// Returns the number of calls the server got.
fn calls(program: &Program) -> usize {
    let Ok(seen) = fs_err::read_to_string(program.path("seen")) else { return 0 };
    seen.lines().filter(|line| line.contains(r#""method":"tools/call""#)).count()
}

fn code(run: &RunOutput) -> String {
    run.json()["error"]["code"].as_str().unwrap_or("none").to_owned()
}

const CALLERS: &str = r#"[
    { "id": "owner", "permissions": ["*:*"] },
    { "id": "reader", "permissions": ["bank:read"] },
    { "id": "stranger", "permissions": ["shop:*"] }
]"#;

fn callers() -> Json {
    serde_json::from_str(CALLERS).expect("it is JSON")
}

#[test]
fn a_missing_permission_is_named_and_nothing_is_sent() {
    let tools = json!([{ "name": "echo", "permissions": ["bank:read", "bank:pay"] }]);
    let program = project("good", json!({ "callers": callers(), "tools": tools }));
    let run = program.run("tools call bank__echo text=x --as reader --json");
    assert_eq!((run.code, code(&run)), (1, "unauthorized".to_owned()), "{run}");
    let message = run.json()["error"]["message"].as_str().expect("a text").to_owned();
    assert_eq!(message, "tool `echo` may not be called: the caller lacks `bank:pay`");
    assert_eq!(calls(&program), 0);
    let run = program.run("tools call bank__echo text=x --json");
    assert_eq!((run.code, code(&run)), (0, "none".to_owned()), "{run}");
    assert_eq!(calls(&program), 1);
    let run = program.run("tools call bank__echo text=x --as nobody");
    assert!(run.stderr.contains("there is no caller `nobody`"), "{run}");
}

/// A tool the caller may not see is indistinguishable from one that does not exist.
#[test]
fn hidden_tools_look_nonexistent() {
    let program = project("good", json!({ "callers": callers() }));
    let error_text = |tool: &str| {
        let run = program.run(&format!("tools call bank__{tool} --args {{}} --as stranger --json"));
        let mut error = run.json()["error"].clone();
        error.as_object_mut().expect("an error").remove("correlationId");
        serde_json::to_string(&error).expect("JSON").replace(tool, "TOOL")
    };
    assert_eq!(error_text("echo"), error_text("environment"));
    assert!(error_text("echo").contains("there is no tool `bank__TOOL`"), "{}", error_text("echo"));
    let listed = |caller: &str| {
        program.run(&format!("tools list --json --as {caller}")).json().as_array().map(Vec::len)
    };
    assert_eq!((listed("stranger"), listed("reader"), listed("owner")), (Some(0), Some(0), Some(5)));
    assert_eq!(calls(&program), 0);
}

#[test]
fn rules_permit_forbid_ask_and_fail() {
    let program = project("good", json!({ "callers": callers() }));
    let code_of_call = |rules: &str, caller: &str, text: &str| {
        program.write("policy.cedar", rules);
        let run = program.run(&format!("tools call bank__echo n={text} --as {caller} --json"));
        if run.code == 78 { "refused".to_owned() } else { code(&run) }
    };
    let permit = r#"@id("all") permit(principal, action, resource == Tool::"echo");"#;
    let big = r#"(principal, action == Action::"call", resource) when { context.numbers.hasTag("n") && context.numbers.getTag("n") > 100 };"#;
    assert_eq!(code_of_call(permit, "stranger", "1"), "none");
    assert_eq!(code_of_call(&permit.replace("echo", "other"), "stranger", "1"), "tool_not_found");
    assert_eq!(code_of_call(&format!("forbid{big}"), "owner", "1"), "none");
    assert_eq!(code_of_call(&format!("{permit} forbid{big}"), "owner", "500"), "unauthorized");
    // Tests have no terminal to approve at.
    assert_eq!(code_of_call(&format!(r#"@ask("That much?") forbid{big}"#), "owner", "500"), "unauthorized");
    let overflow = r#"permit(principal, action, resource) when { context.numbers.hasTag("n") && context.numbers.getTag("n") + 9223372036854775807 > 0 };"#;
    assert_eq!(code_of_call(overflow, "owner", "5"), "unauthorized", "a rule that fails denies");
    assert_eq!(
        code_of_call("permit(principal, action, resource) when { resource.colour == 1 };", "owner", "1"),
        "refused"
    );
}

/// The spelling of a number and the shape of an argument do not get past a rule.
#[test]
fn rules_apply_to_every_spelling_and_shape() {
    let program = project("good", json!({ "callers": callers() }));
    program.write(
        "policy.cedar",
        r#"
        forbid(principal, action == Action::"call", resource)
          when { context.numbers.hasTag("n") && context.numbers.getTag("n") > 100 };
        forbid(principal, action == Action::"call", resource)
          when { context.arguments.hasTag("to") && context.arguments.getTag("to") == "x" };"#,
    );
    let code_with = |arguments: &str| {
        code(&program.run_list(&["tools", "call", "bank__echo", "--args", arguments, "--json"]))
    };
    for allowed in [r#"{"n":1e2}"#, r#"{"n":100.0}"#, r#"{"to":"y"}"#, "{}"] {
        assert_eq!(code_with(allowed), "none", "{allowed}");
    }
    let before = calls(&program);
    for denied in [
        r#"{"n":1e7}"#,
        r#"{"n":10000010e-1}"#,
        r#"{"n":99999999999999999999}"#,
        r#"{"n":100.5}"#,
        r#"{"n":"5000"}"#,
        r#"{"n":[5000]}"#,
        r#"{"to":["x"]}"#,
        r#"{"to":{"address":"x"}}"#,
    ] {
        assert_eq!(code_with(denied), "unauthorized", "{denied}");
    }
    assert_eq!(calls(&program), before, "nothing was sent");
}

#[test]
fn why_explains_a_decision() {
    let program = project("good", json!({ "callers": callers() }));
    program.write("policy.cedar", r#"@id("no-big-sums") forbid(principal, action == Action::"call", resource) when { context.numbers.hasTag("n") && context.numbers.getTag("n") > 100 };"#);
    let run = program.run_list(&["why", "owner", "bank__echo", r#"{"n": 500}"#]);
    assert_eq!(run.code, 1);
    let shown = run.stdout.lines().take(3).collect::<Vec<_>>().join("\n");
    assert_eq!(shown, "deny: owner and bank__echo\n  requires bank:echo: granted\n  decided by: no-big-sums");
    let run = program.run("why reader bank__echo --json");
    let why = run.json();
    assert_eq!((run.code, &why["decision"], &why["visible"]), (1, &json!("deny"), &json!(false)));
    assert_eq!(why["permissions"], json!([{ "permission": "bank:echo", "given": false }]));
    assert_eq!(program.run("why owner bank__echo").code, 0);
    assert_eq!(calls(&program), 0, "nothing was called");
}

/// Canaries and likely credentials are not sent, and the error does not repeat them.
#[test]
fn secrets_in_arguments_are_not_sent() {
    let egress = json!({ "canaries": ["CNRY-7f3a9"], "secrets": true });
    let program = project("good", json!({ "egress": egress }));
    for secret in ["CNRY-7f3a9", "AKIAIOSFODNN7EXAMPLE"] {
        let run = program.run(&format!("tools call bank__echo text={secret} --json"));
        assert_eq!(code(&run), "unauthorized", "{run}");
        assert_eq!(run.json()["error"]["stage"], "egress");
        assert!(!run.stdout.contains(secret) && !run.stderr.contains(secret), "{run}");
    }
    assert_eq!(calls(&program), 0);
    assert_eq!(program.run("tools call bank__echo text=harmless").code, 0);
}

/// A call that may have reached the server is retried only if it is idempotent.
#[test]
fn only_idempotent_calls_are_retried_after_a_crash() {
    let program = project("dies", json!({}));
    let run = program.run("tools call bank__echo text=x --json");
    assert_eq!(calls(&program), 1, "{run}");
    let error = &run.json()["error"];
    assert_eq!(
        (&error["code"], &error["outcome"], &error["retryable"]),
        (&json!("provider_failure"), &json!("unknown"), &json!(false))
    );
    assert!(error["message"].as_str().expect("a text").contains("its process exited with code 3"), "{error}");
    let next = &run.json()["agentHints"]["suggestedNextActions"][0];
    assert_eq!((&next["action"], &next["priority"]), (&json!("check-outcome"), &json!("critical")));
    let program = project("dies", json!({ "tools": [{ "name": "echo", "idempotent": true }] }));
    let run = program.run("tools call bank__echo text=x --json --trace");
    assert_eq!(calls(&program), 4, "{run}");
    assert_eq!(code(&run), "provider_failure");
}

#[test]
fn invalid_arguments_are_not_sent() {
    let program = project("good", json!({}));
    let run = program.run("tools call bank__ask --json --args {\"deep\":[[[[1]]]]}");
    assert_eq!(code(&run), "none", "{run}");
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    for bad in [deep.as_str(), r#"{"a":1,"a":2}"#, r#"{"a":1e400}"#, r#"{"a":"\ud800"}"#] {
        let before = calls(&program);
        let run = program.run_list(&["tools", "call", "bank__echo", "--args", bad]);
        assert_eq!(run.code, 1, "{bad}: {run}");
        assert!(run.stderr.contains("`--args` is not valid JSON"), "{run}");
        assert_eq!(calls(&program), before);
    }
    // JSON in place of `name=value` gets a hint.
    let run = program.run_list(&["tools", "call", "bank__echo", r#"{"text":"x"}"#]);
    assert!(run.code != 0 && run.stderr.contains("pass a whole JSON object with `--args`"), "{run}");
}

#[test]
fn trace_shows_the_stages() {
    let program = project(
        "good",
        json!({ "tools": [{ "name": "echo", "rate_limit": { "max_calls": 5, "window_ms": 60000 } }] }),
    );
    let run = program.run("tools call bank__echo text=x --trace");
    let stages: Vec<_> = run
        .stderr
        .lines()
        .filter_map(|line| line.contains(" µs").then(|| line.split_whitespace().next())?)
        .collect();
    assert_eq!(
        stages,
        [
            "resolve",
            "authorize",
            "validate_input",
            "rate_limit",
            "slots",
            "record",
            "invoke",
            "convert",
            "hints"
        ],
        "{run}"
    );
    let run = program.run("tools call bank__echo text=x --trace --json");
    let document = run.json();
    assert_eq!(document["trace"].as_array().map(Vec::len), Some(9), "{run}");
    assert_eq!(document["trace"][1]["note"], "permissions");
    assert_eq!(document["metadata"]["serviceVersion"], env!("CARGO_PKG_VERSION"));
}

/// Statistics and follow-up tools are known to the next process.
#[test]
fn statistics_outlive_the_process() {
    // Tools that may change anything are not suggested from habit.
    let tools = json!([{ "name": "environment", "category": "query" }]);
    let program = project("good", json!({ "tools": tools }));
    let hints = |line: &str| program.run(line).json()["agentHints"].clone();
    let first = hints("tools call bank__echo text=x --json");
    for _ in 0..5 {
        hints("tools call bank__environment --json");
        hints("tools call bank__echo text=x --json");
    }
    let later = hints("tools call bank__echo text=x --json");
    assert!(later["confidence"].as_f64() > first["confidence"].as_f64(), "{first} {later}");
    assert!(later["reasoning"].as_str().is_some_and(|text| text.contains("6 of 6 calls")), "{later}");
    let next: Vec<_> = later["suggestedNextActions"].as_array().expect("a list").iter().collect();
    assert!(next.iter().any(|next| next["action"] == "environment"), "{later}");
}
