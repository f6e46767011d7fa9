//! CPU time and allocations of one call through the pipeline, without the tool: with permissions only, with a policy
//! of twenty rules, and with the execution log (in memory, without the time of its own threads). Allocations and
//! instructions are compared with the baseline in `pipeline.json`. Run it with `cargo xtask bench pipeline`.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};
use toolgate_audit::ExecutionLog;
use toolgate_policy::{Policy, RuleSet};
use toolgate_runtime::runtime::RuntimeSetup;
use toolgate_runtime::{Operation, Runtime};
use toolgate_types::tool::RateLimit;
use toolgate_types::{CallLimits, Caller, HumanDuration, ToolSettings};
use toolgate_upstream::{BuiltinTool, RawJson};

/// Calls per measurement.
const CALLS: u32 = 20_000;

struct Case {
    name: &'static str,
    /// Number of rules, out of twenty, that can apply to the call. Rules for other callers and tools cost next to
    /// nothing, so the worst case is that all apply.
    rules: Option<u32>,
    /// True to record the call: two records are handed to the log and awaited.
    log: bool,
    /// Performance targets of the pipeline.
    micros: u64,
    allocations: u64,
}

const CASES: [Case; 4] = [
    Case { name: "permissions", rules: None, log: false, micros: 15, allocations: 60 },
    Case { name: "permissions, with the log", rules: None, log: true, micros: 15, allocations: 60 },
    Case { name: "20 rules, 5 apply", rules: Some(5), log: false, micros: 40, allocations: 0 },
    Case { name: "20 rules, all apply", rules: Some(20), log: false, micros: 40, allocations: 0 },
];

/// The baseline: figures that are the same on every machine.
const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/pipeline.json");

/// Growth against the baseline that counts as a regression.
const MAX_GROWTH: f64 = 1.1;

#[expect(clippy::print_stdout, reason = "the figures are what it is run for")]
fn main() -> std::process::ExitCode {
    let baseline: Map<String, Value> = fs_err::read_to_string(BASELINE)
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    let (mut now, mut worse) = (Map::new(), false);
    let folder = tempfile::tempdir_in(scratch()).expect("there is room for a log");
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it starts");
    for Case { name, rules, log, micros, allocations } in CASES {
        let runtime = tokio.block_on(started(rules, log.then(|| folder.path())));
        let caller = Caller::new("ann".parse().expect("an id"), vec!["*:*".parse().expect("a pattern")]);
        let call = async |request| {
            let called = runtime.execute(&caller, request).await;
            assert!(called.result.error.is_none(), "{:?}", called.result.error);
            called.steps
        };
        // The first call compiles the schemas.
        tokio.block_on(call(request()));
        let requests: Vec<_> = (0..CALLS).map(|_| request()).collect();
        let mut stages: Vec<(&str, u128)> = Vec::new();
        let (before, mut counter) = (cpu(), instructions());
        tokio.block_on(async {
            for request in requests {
                for (at, step) in call(request).await.into_iter().enumerate() {
                    match stages.get_mut(at) {
                        Some((_, nanos)) => *nanos += step.took.as_nanos(),
                        None => stages.push((step.stage.label(), step.took.as_nanos())),
                    }
                }
            }
        });
        let executed =
            counter.as_mut().and_then(|counter| counter.read().ok()).map(|all| all / u64::from(CALLS));
        let each = (cpu() - before) / CALLS;
        let one = request();
        let counted = allocation_counter::measure(|| drop(tokio.block_on(call(one))));
        let verdict = |met: bool| if met { "met" } else { "missed" };
        println!(
            "{name}: {each:.1?} CPU a call, bar {micros} µs: {}",
            verdict(each <= Duration::from_micros(micros))
        );
        let bar = match allocations {
            0 => String::new(),
            most => format!(", bar {most}: {}", verdict(counted.count_total <= most)),
        };
        println!("{name}: {} allocations of {} bytes a call{bar}", counted.count_total, counted.bytes_total);
        let stage =
            |(stage, nanos): &(&str, u128)| format!("{stage} {:.1}", *nanos as f64 / f64::from(CALLS) / 1e3);
        println!("{name}: µs by stage: {}", stages.iter().map(stage).collect::<Vec<_>>().join(", "));
        for (what, count) in [("allocations", Some(counted.count_total)), ("instructions", executed)] {
            let Some(count) = count else {
                println!("{name}: {what} cannot be counted on this system");
                continue;
            };
            now.entry(name).or_insert_with(|| json!({}))[what] = json!(count);
            if let Some(then) = baseline.get(name).and_then(|baseline| baseline[what].as_u64()) {
                let more = count as f64 / then as f64;
                worse |= more > MAX_GROWTH;
                println!("{name}: {count} {what}, {:+.1} % against the baseline", (more - 1.0) * 100.0);
            }
        }
    }
    if std::env::var_os("TOOLGATE_KEEP_FIGURES").is_some() {
        let text = serde_json::to_string_pretty(&now).expect("valid JSON");
        fs_err::write(BASELINE, text + "\n").expect("the file can be written");
        println!("baseline written to {BASELINE}");
    } else if worse {
        println!("a figure grew by more than 10 %; `TOOLGATE_KEEP_FIGURES=1` updates the baseline");
        return std::process::ExitCode::FAILURE;
    }
    std::process::ExitCode::SUCCESS
}

/// Counts user-space instructions of this thread. `None` if the system does not allow it.
fn instructions() -> Option<perf_event::Counter> {
    let mut counter = perf_event::Builder::new(perf_event::events::Hardware::INSTRUCTIONS).build().ok()?;
    counter.enable().ok()?;
    Some(counter)
}

/// A folder in memory if there is one: disk costs are measured elsewhere.
fn scratch() -> std::path::PathBuf {
    let memory = std::path::PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

async fn started(rules: Option<u32>, log: Option<&Path>) -> Runtime {
    let log = log.map(|folder| {
        ExecutionLog::open(folder, toolgate_audit::LogOptions::default()).expect("it can be written")
    });
    let runtime = Runtime::new(RuntimeSetup { log, ..setup(rules) });
    runtime.discover(|_| {}).await.expect("no servers to wait for");
    runtime
}

/// About 300 bytes of arguments.
fn request() -> Operation {
    let arguments = json!({ "path": "projects/reports/2026/november/summary-of-the-month.md", "mode": "append",
        "lines": ["a line of text that says something", "another one that says more", "the last one"],
        "limit": 100, "options": { "create": true, "backup": false, "encoding": "utf-8" }, "note": "x".repeat(60) });
    Operation::tool("echo".to_owned(), RawJson::from_value(&arguments))
}

fn setup(rules: Option<u32>) -> RuntimeSetup {
    let schema = json!({ "type": "object", "required": ["path"], "properties": {
        "path": { "type": "string", "maxLength": 200 }, "mode": { "enum": ["append", "replace"] },
        "lines": { "type": "array", "items": { "type": "string" } }, "limit": { "type": "integer", "minimum": 1 },
        "options": { "type": "object", "properties": { "create": { "type": "boolean" } } }, "note": { "type": "string" } } });
    let reply = RawJson::from_value(&json!({ "content": [{ "type": "text", "text": "done" }] }));
    let echo = BuiltinTool::query(
        "echo".parse().expect("a name"),
        "Says it back.",
        RawJson::from_value(&schema),
        move |_| {
            let reply = reply.clone();
            Box::pin(async move { Ok(reply) })
        },
    );
    let mut settings = ToolSettings::new("echo".parse().expect("a name"));
    let max_calls = NonZeroU32::new(100_000_000).expect("not zero");
    settings.rate_limit = Some(RateLimit { max_calls, window: HumanDuration::from_secs(60) });
    let policy = rules.map(|apply| {
        let rule = |n: u32| {
            let principal = if n < apply { "principal".to_owned() } else { format!("principal == Caller::\"c{n}\"") };
            format!(
                r#"forbid({principal}, action, resource) when {{ context.arguments.hasTag("path") && context.arguments.getTag("path") like "/etc/{n}*" }};"#
            )
        };
        RuleSet::new(&(0..20).map(rule).collect::<String>()).expect("the rules are valid")
    });
    RuntimeSetup {
        builtins: vec![echo],
        settings: vec![settings],
        limits: CallLimits {
            max_concurrent: NonZeroU32::new(10).expect("not zero"),
            ..CallLimits::default()
        },
        policy: Policy::new(policy),
        ..RuntimeSetup::default()
    }
}

/// CPU time of this thread, on which all calls run.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
