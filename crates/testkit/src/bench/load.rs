//! `testkit bench load`: calls a tool over keep-alive connections, each as fast as it is answered (closed loop).
//!
//! Keys: `port=`, `path=`, `key=`, `tool=` (or `tools/list`), `era=legacy` for clients with sessions, `connections=`,
//! `warmup_ms=`, `measure_ms=`, and `pids=`, the processes whose CPU time is read at the start and the end of the
//! measurement. `calls=` makes this number of calls, without a warm-up, instead of measuring for a time. Prints one line
//! of JSON. Invariant: only calls answered within the measured time are counted.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::{JoinSet, LocalSet};

use super::histogram::Histogram;
use super::wire::{Connection, RequestTarget};
use super::{BenchOptions, SEED, print_line};

/// Number of distinct calls.
const CALLS: u64 = 64;
/// Phases of a run.
const WARM: u8 = 0;
const MEASURE: u8 = 1;
const STOP: u8 = 2;
/// Time limit for calls in flight after the measured time: calls that are never answered must not block the end.
const DRAIN_LIMIT: Duration = Duration::from_secs(3);
/// Time limit for a given number of calls. The gateway is instrumented then, and very slow.
const CALLS_LIMIT: Duration = Duration::from_secs(600);

/// State shared by all connections.
struct LoadPlan {
    target: RequestTarget,
    tool: String,
    legacy: bool,
    phase: AtomicU8,
    /// Calls not yet sent by any connection. `u64::MAX` if the run is limited by time.
    remaining: Cell<u64>,
}

/// Measurements of one connection.
struct CallStats {
    times: Histogram,
    bytes: u64,
    error: Option<String>,
}

pub(super) async fn run(keys: &BenchOptions) -> Result<(), String> {
    let connections = keys.number("connections", 1)?;
    let warmup = Duration::from_millis(keys.number("warmup_ms", 200)?);
    let measure = Duration::from_millis(keys.number("measure_ms", 1_000)?);
    let pids: Vec<&str> =
        keys.text("pids").unwrap_or_default().split(',').filter(|pid| !pid.is_empty()).collect();
    let calls = keys.number("calls", u64::MAX)?;
    let counted = calls != u64::MAX;
    let plan = Rc::new(LoadPlan {
        target: RequestTarget::from_options(keys)?,
        tool: keys.text("tool")?.to_owned(),
        legacy: keys.text("era") == Ok("legacy"),
        phase: AtomicU8::new(if counted { MEASURE } else { WARM }),
        remaining: Cell::new(calls),
    });
    let shared = Rc::new(if plan.legacy { Vec::new() } else { plan.requests(None) });
    LocalSet::new()
        .run_until(async {
            let mut tasks = JoinSet::new();
            for number in 0..connections {
                let mut connection = Connection::open(plan.target.port).await?;
                // Each client has its own session, whose ID is in all of its requests.
                let requests = if plan.legacy {
                    let session = connection.handshake(&plan.target).await?;
                    Rc::new(plan.requests(Some(&session)))
                } else {
                    Rc::clone(&shared)
                };
                tasks.spawn_local(run_client(Rc::clone(&plan), requests, connection, number as usize * 7));
            }
            if !counted {
                tokio::time::sleep(warmup).await;
            }
            let (before, start) = (cpu_times(&pids), now());
            plan.phase.store(MEASURE, Ordering::Relaxed);
            let ended = if counted {
                None
            } else {
                tokio::time::sleep(measure).await;
                let ended = (cpu_times(&pids), start.elapsed());
                plan.phase.store(STOP, Ordering::Relaxed);
                Some(ended)
            };
            let (mut times, mut bytes, mut errors) = (Histogram::new(), 0, Vec::new());
            let deadline = tokio::time::sleep(if counted { CALLS_LIMIT } else { DRAIN_LIMIT });
            tokio::pin!(deadline);
            loop {
                let tally = tokio::select! {
                    tally = tasks.join_next() => match tally {
                        Some(tally) => tally.map_err(|error| error.to_string())?,
                        None => break,
                    },
                    () = &mut deadline => {
                        errors.push(format!("{} calls were not answered", tasks.len()));
                        break;
                    }
                };
                times.merge(&tally.times);
                bytes += tally.bytes;
                errors.extend(tally.error);
            }
            let (after, took) = ended.unwrap_or_else(|| (cpu_times(&pids), start.elapsed()));
            let cpu = before.zip(after).map(|(before, after)| after.saturating_sub(before).as_secs_f64());
            print_line(&summary(&times, bytes, &errors, took, cpu).to_string())
        })
        .await
}

fn summary(times: &Histogram, bytes: u64, errors: &[String], took: Duration, cpu: Option<f64>) -> Value {
    let us = |nanoseconds: u64| nanoseconds as f64 / 1_000.0;
    json!({
        "calls": times.count(),
        "seconds": took.as_secs_f64(),
        "bytes": bytes,
        "cpu_seconds": cpu,
        "mean_us": times.mean() / 1_000.0,
        "p50_us": us(times.quantile(0.5)),
        "p99_us": us(times.quantile(0.99)),
        "longest_us": us(times.longest()),
        "errors": errors.len(),
        "error": errors.first(),
    })
}

impl LoadPlan {
    /// Encodes all distinct calls.
    fn requests(&self, session: Option<&[String]>) -> Vec<Vec<u8>> {
        let mut random = fastrand::Rng::with_seed(SEED);
        let mut word = || (0..8).map(|_| random.lowercase()).collect::<String>();
        let requests = (0..CALLS).map(|id| {
            let query = (0..6).map(|_| word()).collect::<Vec<_>>().join(" ");
            let arguments = json!({ "query": query, "limit": id % 100 + 1, "tags": [word(), word()] });
            match session {
                Some(session) => self.target.in_session(session, id + 1, &self.tool, &arguments),
                None => self.target.call(id, &self.tool, &arguments),
            }
        });
        requests.collect()
    }
}

async fn run_client(
    plan: Rc<LoadPlan>,
    requests: Rc<Vec<Vec<u8>>>,
    mut connection: Connection,
    first: usize,
) -> CallStats {
    let mut tally = CallStats { times: Histogram::new(), bytes: 0, error: None };
    let requests = requests.iter().cycle().skip(first);
    if let Err(why) = send_calls(&plan, requests, &mut connection, &mut tally).await {
        tally.error = Some(why);
    }
    tally
}

async fn send_calls(
    plan: &LoadPlan,
    requests: impl Iterator<Item = &Vec<u8>>,
    connection: &mut Connection,
    tally: &mut CallStats,
) -> Result<(), String> {
    let mut begin = Vec::new();
    let mut expected = None;
    for request in requests {
        if plan.phase.load(Ordering::Relaxed) == STOP || plan.remaining.get() == 0 {
            break;
        }
        plan.remaining.update(|remaining| remaining - 1);
        let start = now();
        let length = connection.exchange(request, &mut begin).await?;
        let took = start.elapsed();
        check(&begin, length, *expected.get_or_insert(length))?;
        if plan.phase.load(Ordering::Relaxed) == MEASURE {
            tally.times.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            tally.bytes += length as u64;
        }
    }
    Ok(())
}

/// Rejects error responses, which must not count as fast calls. They are short, so the beginning of a response
/// suffices.
fn check(begin: &[u8], length: usize, expected: usize) -> Result<(), String> {
    let text = String::from_utf8_lossy(begin);
    if !text.contains(r#""result""#) || text.contains(r#""isError":true"#) {
        return Err(format!("not the result of a call: {text}"));
    }
    if length < expected / 2 {
        return Err(format!("got {length} bytes, earlier responses had {expected}"));
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "time is what is measured")]
fn now() -> Instant {
    Instant::now()
}

/// Returns the CPU time, user and system, of all processes; `None` if one of them is gone.
fn cpu_times(pids: &[&str]) -> Option<Duration> {
    pids.iter().map(|pid| cpu_time(pid)).sum()
}

/// Reads the CPU time of a process. The kernel reports it in hundredths of a second on every architecture.
fn cpu_time(pid: &str) -> Option<Duration> {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name may contain spaces. After it comes field 3 of proc_pid_stat(5); fields 14 and 15 are needed.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field)?.parse::<u64>().ok();
    Some(Duration::from_millis(10 * (ticks(11)? + ticks(12)?)))
}

#[test]
fn rejects_errors_and_short_results() {
    let good = br#"{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":false}}"#;
    assert_eq!(check(good, 100, 150), Ok(()));
    assert!(check(good, 100, 250).is_err());
    assert!(check(br#"{"result":{"content":[],"isError":true}}"#, 100, 100).is_err());
    assert!(check(br#"{"error":{"code":-32603,"message":"no"}}"#, 100, 100).is_err());
}
