//! Times of queries with and without an index, over a log of one day.
//!
//! `LOG_RECORDS=1000000 cargo bench -p toolgate-audit --bench index`. Bars: a page of a log of 1,000,000 records in 50 ms;
//! one call by id, or the rarest filter, of 10,000,000 records in 200 ms. With `LOG_INDEX_ONLY`, only the queries with an
//! index are measured. With `LOG_FOLDER`, the log of the last hours is written there, the ids of some of its calls are
//! printed, and nothing is measured: `cargo xtask bench console` shows that log.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "this is a benchmark"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use toolgate_audit::{
    CallBegin, CallEnd, CallFailure, CallFilter, CallStatus, Clock, Decision, Durability, ExecutionLog,
    LogIndexer, LogOptions, LogReader, StageTime,
};
use toolgate_json::RawJson;
use toolgate_types::call::Stage;
use toolgate_types::{CallError, ErrorCode};

/// A clock that goes on with every call, so that all calls are of one day.
struct DayClock(AtomicI64);

impl Clock for DayClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_microsecond(self.0.fetch_add(800, Ordering::Relaxed)).unwrap()
    }

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
}

async fn call(log: &ExecutionLog, number: u64, calls: u64) -> String {
    let (id, correlation) = (log.new_call_id(), format!("{:032x}", fastrand::u128(..)));
    let trace = format!("{:032x}", fastrand::u128(..));
    let is_rare = number == calls / 3;
    let (tool, caller) = (format!("files.tool{}", number % 200), format!("caller{}", fastrand::u32(..20)));
    let session = format!("session-{}", number / 40);
    let server = format!("server{}", number % 10);
    let arguments = RawJson::from_trusted(format!(r#"{{"path":"/srv/docs/readme{number}.md","limit":20}}"#));
    let output =
        RawJson::from_trusted(r#"{"content":[{"type":"text","text":"a short answer of words"}]}"#.to_owned());
    let rules = [if is_rare { "rare-rule" } else { "permissions" }.to_owned()];
    let begin = CallBegin {
        operation: Default::default(),
        tainted: false,
        deprecated: false,
        user: None,
        agent_version: None,
        call: &id,
        caller: if is_rare { "rare-caller" } else { &caller },
        tool: if is_rare { "rare.tool" } else { &tool },
        session: Some(&session),
        correlation: &correlation,
        correlation_from_client: false,
        trace: &trace,
        server: Some(if is_rare { "rare" } else { &server }),
        definition: None,
        decision: Decision::Allow,
        rules: &rules,
        asked: None,
        refused_by: None,
        identity: Default::default(),
        arguments: &arguments,
        secret: None,
    };
    let mut open = log.begin(&begin, Durability::Written).await.unwrap();
    open.acknowledged().await.unwrap();
    let stages =
        [Stage::Resolve, Stage::Authorize, Stage::ValidateInput, Stage::Slots, Stage::Record, Stage::Invoke];
    let stages = stages.map(|stage| StageTime { stage, took: Duration::from_micros(12), note: None });
    let error = CallError::new(ErrorCode::OutputTooLarge, Stage::Invoke, "too large");
    let end = CallEnd {
        status: if is_rare { CallStatus::Error } else { CallStatus::Success },
        error: is_rare.then(|| CallFailure::from(&error)),
        attempts: 1,
        cached: false,
        took: Duration::from_micros(if is_rare { 90_000_000 } else { fastrand::u64(100..20_000) }),
        stages: &stages,
        output: Some(&output),
        secret: None,
        upstream: None,
    };
    open.end(&end, Durability::Written).await.unwrap();
    id
}

fn measure(folder: &Path, what: &str, mut query: impl FnMut() -> usize) {
    evict(folder);
    let (mut times, mut cpu) = (Vec::new(), Vec::new());
    let mut count = 0;
    // The first run reads from the disk.
    while times.len() < 6 && times.iter().sum::<Duration>() < Duration::from_secs(20) {
        let (started, before) = (Instant::now(), cpu_time());
        count = query();
        times.push(started.elapsed());
        cpu.push(cpu_time() - before);
    }
    let millis = |time: &Duration| time.as_secs_f64() * 1e3;
    let (cold, worst) = (millis(&times[0]), millis(times[1..].iter().max().unwrap_or(&times[0])));
    let cpu = millis(cpu.iter().max().unwrap());
    println!(
        "  {what:<30} {cold:>9.2} ms from the disk, {worst:>9.2} ms at most then, {cpu:>8.2} ms of CPU, {count} calls"
    );
}

/// CPU time of this thread: unlike times, it depends little on other work of the machine.
fn cpu_time() -> Duration {
    let counts = fs_err::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(counts.split(' ').next().unwrap().parse().unwrap())
}

/// Removes the files of the log from the page cache.
fn evict(folder: &Path) {
    for file in fs_err::read_dir(folder).unwrap() {
        let file = fs_err::File::open(file.unwrap().path()).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(file.file(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
}

fn queries(folder: &Path, ids: &[String], until: Timestamp) {
    let reader = LogReader::new(folder);
    let page = || CallFilter { newest_first: true, limit: Some(50), ..CallFilter::default() };
    let text = |text: &str| Some(text.to_owned());
    let count = |filter: CallFilter| reader.query(filter).unwrap().map(Result::unwrap).count();
    for (name, filter) in [
        ("the last 50", page()),
        ("50 of the middle of the day", CallFilter { until: Some(until), ..page() }),
        ("50 of a tool", CallFilter { tool: text("files.tool7"), ..page() }),
        (
            "50 of a caller and a server",
            CallFilter { caller: text("caller3"), server: text("server3"), ..page() },
        ),
        (
            "50 of a caller and a tool",
            CallFilter { caller: text("caller3"), tool: text("files.tool3"), ..page() },
        ),
        ("the only call of a tool", CallFilter { tool: text("rare.tool"), ..page() }),
        ("the only call of a server", CallFilter { server: text("rare"), ..page() }),
        ("the only call of a rule", CallFilter { rule: text("rare-rule"), ..page() }),
        ("the only error with a code", CallFilter { code: text("output_too_large"), ..page() }),
        ("the only slow call", CallFilter { slower_micros: Some(60_000_000), ..page() }),
        ("the 40 calls of a session", CallFilter { session: text("session-7"), ..page() }),
        ("calls without an end", CallFilter { status: text("open"), ..page() }),
        ("a tool that was never called", CallFilter { tool: text("none"), ..page() }),
        ("a text that is nowhere", CallFilter { grep: text("nowhere"), ..page() }),
    ] {
        measure(folder, name, || count(filter.clone()));
    }
    let mut ids = ids.iter().cycle();
    measure(folder, "one call by id", || usize::from(reader.show(ids.next().unwrap()).unwrap().is_some()));
    measure(folder, "an id that does not exist", || {
        usize::from(reader.show("00000000000000000000000000ff").unwrap().is_some())
    });
}

fn main() {
    let records: u64 =
        std::env::var("LOG_RECORDS").ok().and_then(|count| count.parse().ok()).unwrap_or(200_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let kept = std::env::var_os("LOG_FOLDER");
    let temporary = tempfile::tempdir().unwrap();
    let folder = kept.as_ref().map_or(temporary.path(), Path::new);
    let start: Timestamp = match kept {
        Some(_) => Timestamp::now() - jiff::SignedDuration::from_hours(6),
        None => "2026-11-15T00:00:00Z".parse().unwrap(),
    };
    let clock = Arc::new(DayClock(start.as_microsecond().into()));
    let log = ExecutionLog::open(folder, LogOptions { clock: clock.clone(), ..LogOptions::default() });
    let log = log.unwrap();
    let calls = records / 2;
    let started = Instant::now();
    let ids = runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..16 {
            let log = log.clone();
            tasks.spawn(async move {
                let mut ids = Vec::new();
                for number in (task..calls).step_by(16) {
                    let id = call(&log, number, calls).await;
                    if number % (calls / 5) == 0 {
                        ids.push(id);
                    }
                }
                ids
            });
        }
        tasks.join_all().await.concat()
    });
    let took = started.elapsed();
    drop(log);
    if kept.is_some() {
        ids.iter().for_each(|id| println!("{id}"));
        return;
    }
    let file = folder.join("2026-11-15.jsonl");
    let bytes = fs_err::metadata(&file).unwrap().len();
    println!("{records} records, {} MiB, written in {:.1} s", bytes >> 20, took.as_secs_f64());
    let until =
        Timestamp::from_microsecond(i64::midpoint(start.as_microsecond(), clock.now().as_microsecond()));
    let until = until.unwrap();
    if std::env::var_os("LOG_INDEX_ONLY").is_none() {
        println!("without an index");
        queries(folder, &ids, until);
    }
    let started = Instant::now();
    LogIndexer::new(folder).update(&|| true).unwrap();
    let took = started.elapsed();
    let index = fs_err::metadata(folder.join("2026-11-15.index")).map_or(0, |index| index.len());
    let each = took.as_secs_f64() * 1e6 / records as f64;
    println!("indexed in {:.2} s ({each:.2} µs a record), {} KiB", took.as_secs_f64(), index >> 10);
    queries(folder, &ids, until);
}
