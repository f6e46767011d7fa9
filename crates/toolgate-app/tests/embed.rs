//! A program that embeds Toolgate: calls, records, gateways and agents without a terminal.
//!
//! The test executable is also its own shim, so it has a `main` function and uses libtest-mimic.
#![expect(clippy::unwrap_used, reason = "a test that the harness cannot run")]

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use libtest_mimic::{Arguments, Trial};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use toolgate_app::socket::{Method, send_request};
use toolgate_app::{
    App, AppError, Caller, Environment, LogMode, Project, ServeControl, ServeEnd, StateFolder,
};

#[path = "../examples/embed.rs"]
#[expect(dead_code, reason = "the example has a main of its own")]
mod example;

type Test = (&'static str, fn(&Runtime));

const TESTS: &[Test] = &[
    ("the_example_calls_a_tool", the_example_calls_a_tool),
    ("an_invalid_project_names_its_problems", an_invalid_project_names_its_problems),
    ("without_a_log_nothing_is_written", without_a_log_nothing_is_written),
    ("servers_can_be_left_out", servers_can_be_left_out),
    ("an_agent_runs_without_a_model", an_agent_runs_without_a_model),
    ("a_gateway_serves_and_drains", a_gateway_serves_and_drains),
    ("a_weak_owner_key_is_rejected", a_weak_owner_key_is_rejected),
    ("a_pipe_serves_one_caller", a_pipe_serves_one_caller),
];

fn main() -> ExitCode {
    if let Some(code) = toolgate_app::run_shim() {
        return code;
    }
    let trials = TESTS.iter().map(|(name, test)| {
        Trial::test(*name, || {
            test(&Runtime::new()?);
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// Copies `examples/quickstart` to a new folder.
fn quickstart() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/quickstart");
    fs_err::create_dir(folder.path().join("tools")).unwrap();
    for file in
        ["toolgate.yaml", "mcp.json", "tools/tools.json", "tools/word_count.py", "tools/disk_usage.sh"]
    {
        fs_err::copy(source.join(file), folder.path().join(file)).unwrap();
    }
    folder
}

fn load(folder: &Path) -> Project {
    Project::load(folder, None, environment(&[])).unwrap()
}

/// The environment of this process, with some variables replaced.
fn environment(variables: &[(&str, &str)]) -> Environment {
    let mut environment = Environment::from_process();
    environment.variables.remove("TOOLGATE_API_KEY");
    let pairs = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    environment.variables.extend(pairs);
    environment
}

fn the_example_calls_a_tool(tokio: &Runtime) {
    let project = quickstart();
    let result = tokio.block_on(example::count_words(project.path(), "one two three")).unwrap();
    assert_eq!(result["data"], json!({ "lines": 1, "words": 3, "characters": 13 }), "{result}");
    assert!(project.path().join(".toolgate/log/1").is_dir(), "calls are recorded");
}

fn an_invalid_project_names_its_problems(_: &Runtime) {
    let project = quickstart();
    fs_err::write(project.path().join("toolgate.yaml"), "nmae: x\n").unwrap();
    let error = Project::load(project.path(), None, environment(&[])).unwrap_err().to_string();
    assert!(error.contains("`nmae`") && error.contains("toolgate.yaml:1"), "{error}");
}

fn without_a_log_nothing_is_written(tokio: &Runtime) {
    let project = quickstart();
    tokio.block_on(async {
        let app = App::builder(load(project.path())).log(LogMode::Off).build().unwrap();
        let names = app
            .run(async |app| {
                app.discover().await.unwrap();
                app.runtime().catalog().tools().map(|tool| tool.name.clone()).collect::<Vec<_>>()
            })
            .await;
        assert!(names.contains(&"word_count".to_owned()), "{names:?}");
    });
    assert!(!project.path().join(".toolgate").exists());
}

fn servers_can_be_left_out(tokio: &Runtime) {
    let project = quickstart();
    let servers = r#"{ "servers": { "absent": { "command": "/does/not/exist" } } }"#;
    fs_err::write(project.path().join("mcp.json"), servers).unwrap();
    tokio.block_on(async {
        let builder = || App::builder(load(project.path())).log(LogMode::Off);
        let all = builder().build().unwrap();
        assert_eq!(all.run(async |app| app.discover().await.unwrap().len()).await, 1);
        let none = builder().servers(|name| name != "absent").build().unwrap();
        assert_eq!(none.run(async |app| app.discover().await.unwrap().len()).await, 0);
    });
}

fn an_agent_runs_without_a_model(tokio: &Runtime) {
    let project = quickstart();
    let end = tokio.block_on(async {
        let (app, agent) = App::builder(load(project.path())).build_agent(None).unwrap();
        app.run(async |app| {
            app.discover().await.unwrap();
            let mut run = agent.begin(app.caller(Caller::OWNER).unwrap()).unwrap();
            let task = toolgate_agent::model::Part::Text { text: "count the words of 'one two'".to_owned() };
            run.ask(vec![task], &|_| {}).await
        })
        .await
    });
    assert_eq!(end.reason, toolgate_agent::EndReason::Done, "{end:?}");
}

fn a_gateway_serves_and_drains(tokio: &Runtime) {
    let project = quickstart();
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&events);
    tokio.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gateway = App::builder(load(project.path()))
            .on_event(move |event| sink.lock().unwrap().push(event.to_string()))
            .build_gateway()
            .await
            .unwrap();
        assert!(gateway.new_owner_key().is_some(), "the first start creates a key");
        let state = StateFolder::of(project.path());
        let (opened, open) = tokio::sync::oneshot::channel();
        // Stops once a request on the command socket has found the tools.
        let mut stop_when = Some(async {
            open.await.unwrap();
            let (status, tools) =
                send_request(&state, Method::GET, "/v1/tools", None).await.unwrap().unwrap();
            assert!(status.is_success(), "{tools}");
            assert!(tools.to_string().contains("word_count"), "{tools}");
        });
        let control = ServeControl {
            on_open: |url: &str| {
                assert!(url.starts_with("http://127.0.0.1:"), "{url}");
                opened.send(()).map_err(|()| std::io::ErrorKind::BrokenPipe.into())
            },
            reload: async || std::future::pending().await,
            stop: async || match stop_when.take() {
                Some(checked) => checked.await,
                None => std::future::pending().await,
            },
            commands: None,
        };
        assert_eq!(gateway.serve(listener, control).await.unwrap(), ServeEnd::Drained);
    });
    let events = events.lock().unwrap();
    assert_eq!(events.last().unwrap(), "stopping: no new calls are accepted, 0 running", "{events:?}");
    assert!(!project.path().join(".toolgate/socket").exists());
}

fn a_weak_owner_key_is_rejected(tokio: &Runtime) {
    let project = quickstart();
    let loaded =
        Project::load(project.path(), None, environment(&[("TOOLGATE_API_KEY", "changeme")])).unwrap();
    let error = tokio.block_on(App::builder(loaded).build_gateway()).err().unwrap();
    assert!(matches!(error, AppError::Keys(_)) && error.is_invalid_config(), "{error}");
    assert!(error.hint().unwrap().contains("openssl rand"), "{error}");
}

fn a_pipe_serves_one_caller(tokio: &Runtime) {
    let project = quickstart();
    tokio.block_on(async {
        let pipe = App::builder(load(project.path())).build_pipe().await.unwrap();
        let caller = pipe.app().caller(Caller::OWNER).unwrap();
        let (client, server) = tokio::io::duplex(1 << 16);
        let (input, output) = tokio::io::split(server);
        let (answers, mut requests) = tokio::io::split(client);
        let talk = async {
            let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
                "protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": { "name": "test", "version": "1" } } });
            requests.write_all(format!("{request}\n").as_bytes()).await.unwrap();
            let answer = BufReader::new(answers).lines().next_line().await.unwrap().unwrap();
            assert!(answer.contains("serverInfo"), "{answer}");
        };
        pipe.serve((caller, None), input, output, talk).await.unwrap();
    });
}
