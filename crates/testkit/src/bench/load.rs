//! `testkit bench load`: calls over connections that stay open, each as fast as it is answered.
//!
//! Keys: `port=`, `path=`, `key=`, `tool=` (or `tools/list`), `era=legacy` for clients with sessions, `connections=`, `warmup_ms=`, `measure_ms=`, and `pids=`, the processes
//! whose processor time is read when measuring begins and ends. Tells one line of JSON. Invariant: what is counted
//! was answered within the time that is measured, by everybody who is counted.

use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::{JoinSet, LocalSet};

use super::histogram::Histogram;
use super::wire::{Connection, Target};
use super::{Keys, SEED, tell};

/// How many different calls there are.
const CALLS: u64 = 64;
/// The parts of a run.
const WARM: u8 = 0;
const MEASURE: u8 = 1;
const STOP: u8 = 2;

/// What all connections share.
struct Plan {
    target: Target,
    tool: String,
    legacy: bool,
    phase: AtomicU8,
}

/// What one connection saw.
struct Tally {
    times: Histogram,
    bytes: u64,
    error: Option<String>,
}

pub(super) async fn run(keys: &Keys) -> Result<(), String> {
    let connections = keys.number("connections", 1)?;
    let warmup = Duration::from_millis(keys.number("warmup_ms", 200)?);
    let measure = Duration::from_millis(keys.number("measure_ms", 1_000)?);
    let pids: Vec<&str> =
        keys.text("pids").unwrap_or_default().split(',').filter(|pid| !pid.is_empty()).collect();
    let plan = Rc::new(Plan {
        target: Target::of(keys)?,
        tool: keys.text("tool")?.to_owned(),
        legacy: keys.text("era") == Ok("legacy"),
        phase: AtomicU8::new(WARM),
    });
    let shared = Rc::new(if plan.legacy { Vec::new() } else { plan.requests(None) });
    LocalSet::new()
        .run_until(async {
            let mut tasks = JoinSet::new();
            for number in 0..connections {
                let mut connection = Connection::open(plan.target.port).await?;
                // Each has a session of its own, whose id stands in all of its requests.
                let requests = if plan.legacy {
                    let session = connection.handshake(&plan.target).await?;
                    Rc::new(plan.requests(Some(&session)))
                } else {
                    Rc::clone(&shared)
                };
                tasks.spawn_local(call(Rc::clone(&plan), requests, connection, number as usize * 7));
            }
            tokio::time::sleep(warmup).await;
            let (before, start) = (times(&pids), now());
            plan.phase.store(MEASURE, Ordering::Relaxed);
            tokio::time::sleep(measure).await;
            let (after, took) = (times(&pids), start.elapsed());
            plan.phase.store(STOP, Ordering::Relaxed);
            let (mut times, mut bytes, mut errors) = (Histogram::new(), 0, Vec::new());
            // Whoever never answers must not keep the run from its end.
            let patience = tokio::time::sleep(Duration::from_secs(3));
            tokio::pin!(patience);
            loop {
                let tally = tokio::select! {
                    tally = tasks.join_next() => match tally {
                        Some(tally) => tally.map_err(|error| error.to_string())?,
                        None => break,
                    },
                    () = &mut patience => {
                        errors.push(format!("{} calls were not answered", tasks.len()));
                        break;
                    }
                };
                times.merge(&tally.times);
                bytes += tally.bytes;
                errors.extend(tally.error);
            }
            let cpu = before.zip(after).map(|(before, after)| after.saturating_sub(before).as_secs_f64());
            tell(&told(&times, bytes, &errors, took, cpu).to_string())
        })
        .await
}

fn told(times: &Histogram, bytes: u64, errors: &[String], took: Duration, cpu: Option<f64>) -> Value {
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

impl Plan {
    /// All different calls, as bytes.
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

async fn call(plan: Rc<Plan>, requests: Rc<Vec<Vec<u8>>>, mut connection: Connection, first: usize) -> Tally {
    let mut tally = Tally { times: Histogram::new(), bytes: 0, error: None };
    let requests = requests.iter().cycle().skip(first);
    if let Err(why) = calls(&plan, requests, &mut connection, &mut tally).await {
        tally.error = Some(why);
    }
    tally
}

async fn calls(
    plan: &Plan,
    requests: impl Iterator<Item = &Vec<u8>>,
    connection: &mut Connection,
    tally: &mut Tally,
) -> Result<(), String> {
    let mut begin = Vec::new();
    let mut usual = None;
    for request in requests {
        if plan.phase.load(Ordering::Relaxed) == STOP {
            break;
        }
        let start = now();
        let length = connection.exchange(request, &mut begin).await?;
        let took = start.elapsed();
        check(&begin, length, *usual.get_or_insert(length))?;
        if plan.phase.load(Ordering::Relaxed) == MEASURE {
            tally.times.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            tally.bytes += length as u64;
        }
    }
    Ok(())
}

/// Fast answers are worth nothing where they are refusals. Those are short, so their beginning tells.
fn check(begin: &[u8], length: usize, usual: usize) -> Result<(), String> {
    let text = String::from_utf8_lossy(begin);
    if !text.contains(r#""result""#) || text.contains(r#""isError":true"#) {
        return Err(format!("not the result of a call: {text}"));
    }
    if length < usual / 2 {
        return Err(format!("{length} bytes came where {usual} did before"));
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "time is what is measured")]
fn now() -> Instant {
    Instant::now()
}

/// User and system time of processes together, and nothing where one of them cannot be seen.
fn times(pids: &[&str]) -> Option<Duration> {
    pids.iter().map(|pid| time(pid)).sum()
}

/// The kernel counts in hundredths of a second towards programs, on every architecture.
fn time(pid: &str) -> Option<Duration> {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name may hold spaces; after it comes field 3 of proc_pid_stat(5), and 14 and 15 are wanted.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field)?.parse::<u64>().ok();
    Some(Duration::from_millis(10 * (ticks(11)? + ticks(12)?)))
}

#[test]
fn refusals_and_results_that_lost_their_half_are_not_counted() {
    let good = br#"{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":false}}"#;
    assert_eq!(check(good, 100, 150), Ok(()));
    assert!(check(good, 100, 250).is_err());
    assert!(check(br#"{"result":{"content":[],"isError":true}}"#, 100, 100).is_err());
    assert!(check(br#"{"error":{"code":-32603,"message":"no"}}"#, 100, 100).is_err());
}
