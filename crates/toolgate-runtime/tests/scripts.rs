//! Workers of Python tools over time: as many as are needed, and none when nobody needs them.
//!
//! The test executable is its own shim, so it has no harness.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a test that the harness cannot run")]
#![expect(clippy::disallowed_methods, reason = "real processes run in real time")]

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use serde_json::value::RawValue;
use toolgate_policy::Policy;
use toolgate_runtime::runtime::Setup;
use toolgate_runtime::{CallRequest, NobodyApproves, Origin, Runtime};
use toolgate_types::egress::EgressRules;
use toolgate_types::tool::{Level, Script};
use toolgate_types::{
    ByteSize, Caller, HumanDuration, Limits, OnCollision, Text, ToolDefinition, ToolLimits,
};
use toolgate_upstream::process::shim;
use toolgate_upstream::{Logins, Nobody, Raw, Trace};

/// Only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);
const MARKER: &str = "TOOLGATE_TEST_MARKER";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let first = args.next().unwrap_or_default();
    match first.to_str() {
        Some("shim") => return shim::main(args),
        // What other tools ask of a test executable.
        Some("--list") => {
            println!("workers_come_and_go: test");
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    // One thread, since the clock is set forward.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(workers_come_and_go());
    println!("test workers_come_and_go ... ok");
    ExitCode::SUCCESS
}

async fn workers_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tool.py");
    // It goes on when three of them are there.
    let source = "import os, time\ndef run(args):\n  open(f'came-{os.getpid()}', 'w').close()\n  \
        while len([name for name in os.listdir('.') if name.startswith('came')]) < 3: time.sleep(0.01)\n  return 'x'\n";
    fs_err::write(&file, source).unwrap();
    let mut tool = tool("tool", file);
    tool.script.env.insert(MARKER.to_owned(), Some(Text::plain(marker())));
    let runtime = Runtime::new(setup(vec![tool]));
    runtime.discover(|_| {}).await.unwrap();

    join_all((0..3).map(|_| call(&runtime, "tool"))).await;
    let grown = processes();
    assert!(grown >= 3, "{grown}");
    for _ in 0..5 {
        call(&runtime, "tool").await;
    }
    assert_eq!(processes(), grown, "those that are there are used again");

    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(50)).await;
    tokio::time::resume();
    call(&runtime, "tool").await;
    assert_eq!(processes(), grown, "they are kept for a while");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(15)).await;
    tokio::time::resume();
    until("those that nobody needed are gone", || processes() < grown && processes() > 0).await;
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

/// All that were started for the tool, their shims included.
fn processes() -> usize {
    let wanted = format!("{MARKER}={}", marker());
    let ours = |entry: std::io::Result<fs_err::DirEntry>| {
        let environment = entry.ok().and_then(|entry| fs_err::read(entry.path().join("environ")).ok())?;
        environment.split(|byte| *byte == 0).any(|one| one == wanted.as_bytes()).then_some(())
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
        contract: Level::Standard,
        version: "1.0.0".to_owned(),
        input_schema: RawValue::from_string(r#"{"type":"object"}"#.to_owned()).expect("JSON"),
        output_schema: None,
        script: Script::new(file),
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

fn setup(own: Vec<ToolDefinition>) -> Setup {
    Setup {
        apis: Vec::new(),
        read_document: |_| Err(String::new()),
        builtins: vec![],
        own,
        settings: vec![],
        servers: vec![],
        limits: Limits {
            max_concurrent: NonZeroU32::new(16).expect("not zero"),
            default_timeout: HumanDuration::from_secs(60),
            max_output: ByteSize::from_mib(4),
            on_collision: OnCollision::Qualify,
        },
        logins: Logins { folder: None, person: None },
        questions: Arc::new(Nobody),
        lock: None,
        secrets: vec![],
        callers: vec![],
        policy: Policy::new(None),
        approver: Arc::new(NobodyApproves),
        egress: EgressRules::default(),
        results: None,
        profiles: Arc::default(),
    }
}

async fn call(runtime: &Runtime, name: &str) -> String {
    let caller =
        Caller { id: "ann".parse().expect("an id"), permissions: vec!["*:*".parse().expect("a pattern")] };
    let request = CallRequest {
        name: name.to_owned(),
        arguments: Raw::of(&json!({ "text": "hello" })).into(),
        trace: Trace::fresh(),
        origin: Origin::default(),
        whole: true,
    };
    let called = runtime.call(&caller, request).await;
    assert!(called.result.error.is_none(), "{:?}", called.result.error);
    called.reply.expect("a reply").get().to_owned()
}
