//! The worker pool of Python tools: it grows with the load and shrinks to zero when idle.
//!
//! The test executable is also its own shim, so it has a `main` function.
#![expect(clippy::unwrap_used, reason = "a test")]
#![expect(clippy::disallowed_methods, reason = "real processes run in real time")]

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use libtest_mimic::{Arguments, Trial};
use serde_json::json;
use serde_json::value::RawValue;
use toolgate_runtime::runtime::RuntimeSetup;
use toolgate_runtime::{Operation, Runtime};
use toolgate_types::tool::{ContractLevel, ScriptSpec};
use toolgate_types::{CallLimits, Caller, ConfigString, HumanDuration, ToolDefinition, ToolLimits};
use toolgate_upstream::RawJson;
use toolgate_upstream::process::shim;

/// Only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);
const MARKER: &str = "TOOLGATE_TEST_MARKER";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|first| first == "shim") {
        return shim::main(args);
    }
    let test = Trial::test("workers_come_and_go", || {
        // A single thread, because the test advances the clock.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(workers_come_and_go());
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![test]).exit_code()
}

async fn workers_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tool.py");
    // Each call waits until three workers run.
    let source = "import os, time\ndef run(args):\n  open(f'came-{os.getpid()}', 'w').close()\n  \
        while len([name for name in os.listdir('.') if name.startswith('came')]) < 3: time.sleep(0.01)\n  return 'x'\n";
    fs_err::write(&file, source).unwrap();
    let mut tool = tool("tool", file);
    tool.script.env.insert(MARKER.to_owned(), Some(ConfigString::plain(marker())));
    let runtime = Runtime::new(setup(vec![tool]));
    runtime.discover(|_| {}).await.unwrap();

    join_all((0..3).map(|_| call(&runtime, "tool"))).await;
    let grown = processes();
    assert!(grown >= 3, "{grown}");
    for _ in 0..5 {
        call(&runtime, "tool").await;
    }
    assert_eq!(processes(), grown, "workers are reused");

    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(50)).await;
    tokio::time::resume();
    call(&runtime, "tool").await;
    assert_eq!(processes(), grown, "idle workers are kept for a while");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(15)).await;
    tokio::time::resume();
    until("idle workers are gone", || processes() < grown && processes() > 0).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    until("all are gone", || processes() == 0).await;
    call(&runtime, "tool").await;
    assert!(processes() > 0, "another is started");
    runtime.stop().await;
    assert_eq!(processes(), 0);
}

fn marker() -> String {
    format!("workers-{}", std::process::id())
}

/// Number of processes started for the tool, including shims.
fn processes() -> usize {
    let variable = format!("{MARKER}={}", marker());
    let ours = |entry: std::io::Result<fs_err::DirEntry>| {
        let environment = entry.ok().and_then(|entry| fs_err::read(entry.path().join("environ")).ok())?;
        environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes()).then_some(())
    };
    fs_err::read_dir("/proc").unwrap().filter_map(ours).count()
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn tool(name: &str, file: PathBuf) -> ToolDefinition {
    ToolDefinition {
        name: name.parse().expect("a name"),
        description: "Does something.".to_owned(),
        contract: ContractLevel::Standard,
        version: "1.0.0".to_owned(),
        input_schema: RawValue::from_string(r#"{"type":"object"}"#.to_owned()).expect("JSON"),
        output_schema: None,
        script: ScriptSpec::new(file),
        limits: ToolLimits { parallel_capable: Some(true), ..ToolLimits::default() },
        permissions: vec![],
        category: None,
        response_time: None,
        cache_ttl: None,
        idempotent: true,
        examples: vec![],
        tags: vec![],
        rate_limit: None,
        deprecated: None,
        follow_ups: vec![],
    }
}

fn setup(own: Vec<ToolDefinition>) -> RuntimeSetup {
    RuntimeSetup {
        own: own.into_iter().map(Arc::new).collect(),
        limits: CallLimits {
            max_concurrent: NonZeroU32::new(16).expect("not zero"),
            default_timeout: HumanDuration::from_secs(60),
            ..CallLimits::default()
        },
        ..RuntimeSetup::default()
    }
}

async fn call(runtime: &Runtime, name: &str) -> String {
    let caller = Caller::new("ann".parse().expect("an id"), vec!["*:*".parse().expect("a pattern")]);
    let request = Operation {
        full_result: true,
        ..Operation::tool(name.to_owned(), RawJson::from_value(&json!({ "text": "hello" })))
    };
    let called = runtime.execute(&caller, request).await;
    assert!(called.result.error.is_none(), "{:?}", called.result.error);
    called.reply.expect("a reply").as_str().to_owned()
}
