//! Cost of own tools: a Python function in a running worker, and an executable that is started per call, compared with
//! the same program started without Toolgate. Run it with `cargo xtask bench scripts`.
//!
//! The benchmark executable is also its own shim. Measurements alternate, so that both see the same machine load.
#![expect(clippy::print_stdout, reason = "the figures are what it is run for")]
#![expect(clippy::disallowed_methods, reason = "it measures real programs in real time")]

use std::io::Write;
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use serde_json::value::RawValue;
use toolgate_runtime::runtime::RuntimeSetup;
use toolgate_runtime::{Operation, Runtime};
use toolgate_types::tool::{ContractLevel, ScriptSpec};
use toolgate_types::{CallLimits, Caller, HumanDuration, ToolDefinition, ToolLimits};
use toolgate_upstream::RawJson;
use toolgate_upstream::process::shim;

const WARM_CALLS: usize = 3_000;
const COLD_CALLS: usize = 200;
/// Targets: duration of a warm call, and of a cold call relative to a bare start of the program.
const WARM: Duration = Duration::from_micros(500);
const COLD: f64 = 3.0;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|first| first == "shim") {
        return shim::main(args);
    }
    let folder = tempfile::tempdir().expect("there is room");
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    tokio.expect("it starts").block_on(measure(folder.path()));
    ExitCode::SUCCESS
}

async fn measure(folder: &Path) {
    let python = written(folder, "python.py", "def run(args):\n    return {'text': args['text']}\n");
    let shell = written(folder, "shell.sh", "#!/bin/sh\nread -r arguments\necho \"$arguments\"\n");
    let binary = folder.join("binary");
    fs_err::copy("/bin/cat", &binary).expect("there is a program");
    let own = vec![tool("python", python), tool("shell", shell.clone()), tool("binary", binary.clone())];
    let runtime = Runtime::new(setup(own));
    runtime.discover(|_| {}).await.expect("it starts");

    let first = timed(call(&runtime, "python")).await;
    println!("a Python tool, first call: {first:.1?}");
    let mut times = Vec::with_capacity(WARM_CALLS);
    for _ in 0..WARM_CALLS {
        times.push(timed(call(&runtime, "python")).await);
    }
    let (median, late) = quantiles(times);
    let verdict = |met: bool| if met { "met" } else { "missed" };
    println!(
        "a Python tool, warm: p50 {median:.1?}, p99 {late:.1?}; bar p50 {WARM:?}: {}",
        verdict(median <= WARM)
    );

    for (name, file) in [("binary", &binary), ("shell", &shell)] {
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..COLD_CALLS {
            bare.push(timed(async { started(file) }).await);
            ours.push(timed(call(&runtime, name)).await);
        }
        let ((ours, ours_late), (bare, bare_late)) = (quantiles(ours), quantiles(bare));
        let times = ours.as_secs_f64() / bare.as_secs_f64();
        println!(
            "a {name}, cold: p50 {ours:.1?}, p99 {ours_late:.1?}; bare p50 {bare:.1?}, p99 {bare_late:.1?}; \
             {times:.1} times, bar {COLD}: {}",
            verdict(times <= COLD)
        );
    }
    runtime.stop().await;
}

async fn timed<T>(work: impl Future<Output = T>) -> Duration {
    let start = Instant::now();
    work.await;
    start.elapsed()
}

/// Runs the program with the same input and no overhead.
fn started(file: &Path) {
    let mut child = Command::new(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(b"{\"text\":\"hello\"}\n").expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert!(!output.stdout.is_empty());
}

fn written(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs_err::write(&path, text).expect("there is room");
    fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is our file");
    path
}

fn quantiles(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() * 99 / 100])
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
