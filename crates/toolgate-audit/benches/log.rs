//! Costs of the log: records per second, latency added to a call, and query times.
//!
//! `cargo bench -p toolgate-audit`. Targets: 50,000 records of 300 bytes per second, 50 µs added to a repeatable call,
//! one sync for others. `LOG_RECORDS` sets the number of records that the queries run over.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "this is a benchmark"
)]

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use toolgate_audit::{
    CallBegin, CallEnd, CallFilter, CallStatus, Decision, Durability, ExecutionLog, HistoryWindow,
    LogOptions, LogReader, StageTime,
};
use toolgate_json::RawJson;
use toolgate_types::call::Stage;

const ARGUMENTS: &str = r#"{"path":"/srv/docs/readme.md","limit":20,"query":"a few words to look for"}"#;
const OUTPUT: &str = r#"{"content":[{"type":"text","text":"a short answer of some words"}]}"#;

fn begin<'a>(call: &'a str, tool: &'a str, arguments: &'a RawJson, rules: &'a [String]) -> CallBegin<'a> {
    CallBegin {
        operation: Default::default(),
        tainted: false,
        deprecated: false,
        user: None,
        agent_version: None,
        call,
        caller: "ann@example.com",
        tool,
        session: None,
        correlation: "0197c2f0-7f3e-7abc-9def-0123456789ab",
        correlation_from_client: false,
        trace: "4bf92f3577b34da6a3ce929d0e0e4736",
        server: Some("files"),
        definition: None,
        decision: Decision::Allow,
        rules,
        asked: None,
        refused_by: None,
        identity: Default::default(),
        arguments,
        secret: None,
    }
}

async fn call(
    log: &ExecutionLog,
    tool: &str,
    // Of the begin record. The pipeline never waits for the sync of an end.
    durability: Durability,
    bodies: &(RawJson, RawJson, Vec<String>),
) {
    let id = log.new_call_id();
    let mut open = log.begin(&begin(&id, tool, &bodies.0, &bodies.2), durability).await.unwrap();
    open.acknowledged().await.unwrap();
    let stages = [Stage::Resolve, Stage::Authorize, Stage::Invoke];
    let stages = stages.map(|stage| StageTime { stage, took: Duration::from_micros(12), note: None });
    let end = CallEnd {
        status: CallStatus::Success,
        error: None,
        attempts: 1,
        cached: false,
        took: Duration::from_micros(fastrand::u64(100..20_000)),
        stages: &stages,
        output: Some(&bodies.1),
        secret: None,
        upstream: None,
    };
    open.end(&end, Durability::Written).await.unwrap();
}

fn bodies() -> (RawJson, RawJson, Vec<String>) {
    (
        RawJson::from_trusted(ARGUMENTS.to_owned()),
        RawJson::from_trusted(OUTPUT.to_owned()),
        vec!["permissions".to_owned()],
    )
}

/// Measures records per second with the given number of concurrent callers.
async fn throughput(log: &ExecutionLog, callers: u64, calls: u64, durability: Durability) -> f64 {
    let mut tasks = JoinSet::new();
    let started = Instant::now();
    for caller in 0..callers {
        let log = log.clone();
        tasks.spawn(async move {
            let bodies = bodies();
            let tool = if caller == 0 { "files.rare" } else { "files.read" };
            for _ in 0..calls / callers {
                call(&log, tool, durability, &bodies).await;
            }
        });
    }
    tasks.join_all().await;
    (calls * 2) as f64 / started.elapsed().as_secs_f64()
}

/// Measures the microseconds for both records of a call: median and 99th percentile.
async fn latency(log: &ExecutionLog, calls: usize, durability: Durability) -> (f64, f64) {
    let bodies = bodies();
    let mut times = Vec::new();
    for _ in 0..calls {
        let started = Instant::now();
        call(log, "files.read", durability, &bodies).await;
        times.push(started.elapsed());
    }
    times.sort();
    let micros = |share: usize| times[times.len() * share / 100].as_secs_f64() * 1e6;
    (micros(50), micros(99))
}

fn ask(what: &str, folder: &Path, filter: CallFilter) {
    let started = Instant::now();
    let count = LogReader::new(folder).query(filter).unwrap().map(Result::unwrap).count();
    println!("{what:<44} {:>9.2} ms, {count} calls", started.elapsed().as_secs_f64() * 1e3);
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let records: u64 =
        std::env::var("LOG_RECORDS").ok().and_then(|count| count.parse().ok()).unwrap_or(200_000);
    let secrets = ["hunter22hunter22", "correct horse battery", "0123456789abcdefXYZ"];
    let secrets = secrets.map(toolgate_types::Secret::new).to_vec();
    let log = ExecutionLog::open(folder.path(), LogOptions { secrets, ..LogOptions::default() }).unwrap();

    for callers in [1, 16, 64, 512] {
        let calls = (records / 8).max(1000);
        let rate = runtime.block_on(throughput(&log, callers, calls, Durability::Written));
        println!("{:<44} {rate:>9.0} records/s", format!("written, {callers} callers"));
    }
    for callers in [16, 64, 512] {
        let rate = runtime.block_on(throughput(&log, callers, 4000, Durability::Synced));
        println!("{:<44} {rate:>9.0} records/s", format!("synced, {callers} callers"));
    }
    for (name, durability, calls) in
        [("written", Durability::Written, 5000), ("synced", Durability::Synced, 200)]
    {
        // On a task, as in a server: waking the thread that blocks on the runtime would add to the latency.
        let log = log.clone();
        let task = runtime.spawn(async move { latency(&log, calls, durability).await });
        let (p50, p99) = runtime.block_on(task).unwrap();
        println!("{:<44} {p50:>9.1} µs p50, {p99:.1} µs p99", format!("{name}, both records of one call"));
    }

    let words =
        "some words of a long text, with a name: a value and https://example.test/a?b=c\n".repeat(13_000);
    let numbers: Vec<_> = (0..100_000).map(|number| -f64::from(number) / 7.0).collect();
    let rows = serde_json::json!({ "id": 12345, "title": "a short title", "tags": ["a", "b"], "key": "x-1" });
    let rows = vec![rows; 15_000];
    for (name, body) in [
        ("one text", RawJson::from_value(&words)),
        ("numbers", RawJson::from_value(&numbers)),
        ("objects", RawJson::from_value(&rows)),
    ] {
        let size = body.bytes().len() / 1024;
        let started = Instant::now();
        let bodies = (RawJson::from_trusted("{}".to_owned()), body, Vec::new());
        runtime.block_on(call(&log, "files.large", Durability::Written, &bodies));
        println!(
            "{:<44} {:>9.2} ms",
            format!("a body of {size} KiB, {name}"),
            started.elapsed().as_secs_f64() * 1e3
        );
    }

    let truncated = tempfile::tempdir().unwrap();
    let options = LogOptions { max_body: 64 << 10, ..LogOptions::default() };
    let short = ExecutionLog::open(truncated.path(), options).unwrap();
    let bodies = (RawJson::from_trusted("{}".to_owned()), RawJson::from_value(&words), Vec::new());
    let times = (0..50).map(|_| {
        let started = Instant::now();
        runtime.block_on(call(&short, "files.large", Durability::Written, &bodies));
        started.elapsed()
    });
    let best = times.min().unwrap_or_default().as_secs_f64() * 1e3;
    println!("{:<44} {best:>9.2} ms, the best of 50", "one text of 1 MiB, 64 KiB recorded");

    let written = runtime.block_on(throughput(&log, 512, records / 2, Durability::Written));
    drop(log);
    println!("{:<44} {written:>9.0} records/s", format!("written, {records} more"));
    let started = Instant::now();
    let verified = toolgate_audit::verify::verify(folder.path()).unwrap();
    assert_eq!(verified.faults, []);
    let size: u64 =
        fs_err::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    let mean = size / verified.records;
    println!("{:<44} {:>9} of {mean} bytes", "records", verified.records);
    println!("{:<44} {:>9.2} ms", "verify all", started.elapsed().as_secs_f64() * 1e3);
    let last = || CallFilter { newest_first: true, limit: Some(50), ..CallFilter::default() };
    let tool = |tool: &str| Some(tool.to_owned());
    ask("the last 50", folder.path(), last());
    ask("the last 50 of a tool", folder.path(), CallFilter { tool: tool("files.read"), ..last() });
    ask("the last 50 of a rare tool", folder.path(), CallFilter { tool: tool("files.rare"), ..last() });
    ask("a tool that was never called", folder.path(), CallFilter { tool: tool("files.none"), ..last() });
    ask("a word that is nowhere", folder.path(), CallFilter { grep: tool("nowhere"), ..last() });
    let started = Instant::now();
    let stats = LogReader::new(folder.path()).stats(&CallFilter::default()).unwrap();
    println!("{:<44} {:>9.2} ms, {} tools", "stats", started.elapsed().as_secs_f64() * 1e3, stats.len());
    let started = Instant::now();
    let recent = HistoryWindow { since: None, calls: 10_000, bytes: u64::MAX };
    let history = LogReader::new(folder.path()).history(&recent).unwrap();
    let took = started.elapsed().as_secs_f64() * 1e3;
    println!("{:<44} {took:>9.2} ms, {} tools", "history of 10,000 calls", history.tools.len());
}
