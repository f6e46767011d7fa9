//! `toolgate doctor`: what it finds, and what it says to do.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use insta::assert_snapshot;
use serde_json::{Value as Json, json};

use crate::support::gateway::Gateway;
use crate::support::program::{Program, RunOutput};
use crate::support::test_server::testkit;

/// Replaces the version and addresses.
fn neutral(run: &RunOutput, address: &str) -> String {
    run.to_string().replace(env!("CARGO_PKG_VERSION"), "[version]").replace(address, "[address]")
}

#[test]
fn a_good_project_has_no_problems() {
    // An address of this process alone: no other program takes the port between two commands.
    let id = std::process::id();
    let free = format!("127.{}.{}.{}:7332", 64 + id / 62_500 % 128, id / 250 % 250, id % 250 + 1);
    let config = json!({ "serve": { "listen": free }, "toolbox": { "mcps": [
        { "name": "s", "command": testkit(), "args": ["good"], "mode": "dynamic",
          "default_tool_config": { "max_instances": 1, "timeout": "5s" } }] } });
    let program = Program::new(&[("toolgate.yaml", &config.to_string())]);
    let before = program.files();
    let run = program.run("doctor");
    assert_snapshot!(neutral(&run, &free).replace(&testkit().display().to_string(), "testkit"), @r"
    exit code 0
    ----- stdout
    good     version: toolgate [version]; no gateway is running
    good     configuration: valid, from toolgate.yaml
    good     runtime: `testkit` of server `s` is installed
    good     keys: `toolgate serve` creates an owner key at its first start
    good     port: [address] is free for `toolgate serve`
    good     permissions: no other user can change the project
    ----- stderr
    next: connect to the servers with `toolgate servers`
    ");
    assert!(program.files() == before, "it writes nothing");
    let gateway = Gateway::with(program, "serve --json");
    let run = gateway.program.run("doctor --json");
    let checks = run.json()["checks"].clone();
    let messages: Vec<_> = checks
        .as_array()
        .expect("a list")
        .iter()
        .map(|check| check["message"].as_str().unwrap_or_default())
        .collect();
    assert!(
        messages.iter().any(|message| message.contains("the running gateway has the same")),
        "{messages:?}"
    );
    assert!(
        messages.iter().any(|message| message.contains("a gateway of this project runs")),
        "{messages:?}"
    );
    assert_eq!((run.code, &run.json()["ok"]), (0, &json!(true)));
}

#[test]
fn every_problem_has_a_hint() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address");
    let config = json!({ "serve": { "listen": address }, "toolbox": { "mcps": [
        { "name": "a", "command": "no-such-program", "mode": "strict" },
        { "name": "b", "server": "@scope/package", "mode": "strict" },
        { "name": "c", "url": "http://127.0.0.1:1/mcp", "mode": "strict" }] } });
    let program =
        Program::new(&[("toolgate.yaml", &config.to_string()), (".env", "A=1\n")]).with("PATH", "/nowhere");
    let mode = |name: &str, mode| {
        fs_err::set_permissions(program.path(name), std::fs::Permissions::from_mode(mode))
            .expect("it is ours");
    };
    mode(".env", 0o644);
    mode("toolgate.yaml", 0o666);
    assert_snapshot!(neutral(&program.run("doctor"), &address.to_string()), @r"
    exit code 1
    ----- stdout
    good     version: toolgate [version]; no gateway is running
    good     configuration: valid, from toolgate.yaml, .env
    problem  runtime: `no-such-program` of server `a` was not found
      hint: install it, or name its full path in the configuration
    problem  runtime: `npx` of server `b` was not found
      hint: install Node.js: https://nodejs.org
    problem  network: 127.0.0.1:1 of server `c` cannot be reached: Connection refused (os error 111)
      hint: check the URL, the network and the DNS; is it behind a proxy?
    good     keys: `toolgate serve` creates an owner key at its first start
    problem  port: `toolgate serve` cannot listen on [address]: Address already in use (os error 98)
      hint: stop the program that has it, or set `serve.listen`
    problem  permissions: other users can change [project]/toolgate.yaml
      hint: run `chmod go-w [project]/toolgate.yaml`
    warning  permissions: other users can read [project]/.env
      hint: run `chmod 600 [project]/.env`
    ----- stderr
    ");
    let document = program.run("doctor --json").json();
    let problems =
        document["checks"].as_array().expect("a list").iter().filter(|check| check["status"] != "good");
    assert!(
        problems.clone().count() >= 5 && problems.clone().all(|check| check["hint"].is_string()),
        "{document:#}"
    );
    assert_eq!(document["ok"], Json::Bool(false));
    // An invalid configuration has its own exit code.
    let program = Program::new(&[("toolgate.yaml", "toolbox: 1\n")]);
    let run = program.run("doctor");
    assert_eq!(run.code, 78, "{run}");
    assert!(run.stdout.contains("run `toolgate check` to see the problems"), "{run}");
}
