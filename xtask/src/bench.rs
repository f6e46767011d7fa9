//! `cargo xtask bench`: benchmarks of the release binary.
//!
//! Invariant: it prints measurements and never fails because of a time. Times depend on the machine and its other work,
//! so the load average is printed too. `gateway` and `counts` fail if instructions or allocations of a call rise.

use std::fs;
use std::io::{Read, pipe};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::metadata::Metadata;
use crate::program;
use crate::scratch::ScratchDir;

mod catalog;
pub(crate) mod gateway;
mod mistakes;

/// The benchmarks.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum BenchmarkName {
    /// `toolgate check` on 500 lines with many mistakes.
    Check,
    /// Servers connected, discovered and listed; memory and latency of the catalog.
    Catalog,
    /// The pipeline of a call, without the tool: CPU time and allocations.
    Pipeline,
    /// Changes of a registry of 10,000 tools, with 64 clients.
    Registry,
    /// The execution log: records per second, latency added to a call, latency of queries.
    Log,
    /// Your own tools: a warm Python worker, and a program that is started for the call.
    Scripts,
    /// Tool search: a query over 100, 1,000 and 10,000 tools, building an index, changing one tool.
    Search,
    /// A turn of the agent, without the model and the tool.
    Agent,
    /// Calls through `toolgate serve`, compared with a direct connection and nginx.
    Gateway,
    /// Instructions, allocations, system calls and context switches of a call; part of `gateway`.
    Counts,
    /// The web console: pages, queries of a long log, a browser, and consoles beside a load. Not part of a run of all.
    Console,
}

/// Maximum CPU time of one `toolgate check`, so that an editor can run it on every save.
const CHECK_TARGET: Duration = Duration::from_millis(50);

/// Runs of `check`: enough for a stable median.
const RUNS: u32 = 30;

/// Linux reports times to programs in hundredths of a second, on every architecture.
const TICK: Duration = Duration::from_millis(10);

/// One run of `toolgate check`.
struct CheckRun {
    wall: Duration,
    /// CPU time of the main thread. Absent without `/proc`.
    cpu: Option<Duration>,
    output: String,
    code: Option<i32>,
}

/// Runs one benchmark, or all of them.
pub(crate) fn run(name: Option<BenchmarkName>, options: &gateway::GatewayOptions) -> anyhow::Result<bool> {
    if matches!(name, None | Some(BenchmarkName::Check)) {
        check()?;
    }
    if matches!(name, None | Some(BenchmarkName::Catalog)) {
        catalog::run()?;
    }
    if matches!(name, None | Some(BenchmarkName::Pipeline)) {
        pipeline()?;
    }
    if matches!(name, None | Some(BenchmarkName::Registry)) {
        registry()?;
    }
    if matches!(name, None | Some(BenchmarkName::Log)) {
        log()?;
    }
    if matches!(name, None | Some(BenchmarkName::Scripts)) {
        scripts()?;
    }
    if matches!(name, None | Some(BenchmarkName::Search)) {
        search()?;
    }
    if matches!(name, None | Some(BenchmarkName::Agent)) {
        agent()?;
    }
    match name {
        None | Some(BenchmarkName::Gateway) => gateway::run(options),
        Some(BenchmarkName::Counts) => gateway::counts::run(options),
        Some(BenchmarkName::Console) => gateway::console::run(options).map(|()| true),
        Some(_) => Ok(true),
    }
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

fn agent() -> anyhow::Result<()> {
    println!("Building the benchmark …");
    let bench = program::cargo(["bench", "--quiet", "--package", "toolgate-agent", "--bench", "turn"]);
    let output = program::stdout(bench)?;
    println!("bench `agent`: a turn with one call, with the journal and the pipeline");
    output.lines().for_each(|line| println!("  {line}"));
    Ok(())
}

fn pipeline() -> anyhow::Result<()> {
    println!("Building the benchmark …");
    let bench = program::cargo(["bench", "--quiet", "--package", "toolgate-runtime", "--bench", "pipeline"]);
    let output = program::stdout(bench)?;
    println!("bench `pipeline`: a call of an in-process function with 300 bytes of arguments");
    output.lines().for_each(|line| println!("  {line}"));
    println!("  load average  {}", load_average().unwrap_or_else(|| "unknown".to_owned()));
    Ok(())
}

fn registry() -> anyhow::Result<()> {
    println!("Building the benchmark …");
    let bench = program::cargo(["bench", "--quiet", "--package", "toolgate-config", "--bench", "registry"]);
    let output = program::stdout(bench)?;
    println!("bench `registry`: checked, written, synced and in use before it is acknowledged");
    output.lines().for_each(|line| println!("  {line}"));
    println!("  load average  {}", load_average().unwrap_or_else(|| "unknown".to_owned()));
    Ok(())
}

/// Number of records that the queries read.
const LOG_RECORDS: &str = "1000000";

fn log() -> anyhow::Result<()> {
    println!("Building the benchmark …");
    let mut bench = program::cargo(["bench", "--quiet", "--package", "toolgate-audit", "--bench", "log"]);
    bench.env("LOG_RECORDS", LOG_RECORDS);
    let output = program::stdout(bench)?;
    println!(
        "bench `log`: records of calls with 80 bytes of arguments; the queries read {LOG_RECORDS} of them"
    );
    output.lines().for_each(|line| println!("  {line}"));
    println!("  targets       50,000 records/s written; 50 µs p50 added to an idempotent call");
    println!("  load average  {}", load_average().unwrap_or_else(|| "unknown".to_owned()));
    Ok(())
}

fn scripts() -> anyhow::Result<()> {
    println!("Building the benchmark …");
    let bench = program::cargo(["bench", "--quiet", "--package", "toolgate-runtime", "--bench", "scripts"]);
    let output = program::stdout(bench)?;
    println!("bench `scripts`: calls of your own tools, with the whole pipeline");
    output.lines().for_each(|line| println!("  {line}"));
    println!("  load average  {}", load_average().unwrap_or_else(|| "unknown".to_owned()));
    Ok(())
}

fn search() -> anyhow::Result<()> {
    println!("Building the benchmark …");
    let bench = program::cargo(["bench", "--quiet", "--package", "toolgate-search", "--bench", "search"]);
    let output = program::stdout(bench)?;
    println!("bench `search`: CPU time, median and p99 of the queries of eval/gold.jsonl");
    output.lines().for_each(|line| println!("  {line}"));
    println!("  targets       a query 100 µs, 300 µs, 2 ms; 10,000 tools built in 1 s; one changed 1 ms");
    println!("  load average  {}", load_average().unwrap_or_else(|| "unknown".to_owned()));
    Ok(())
}

fn check() -> anyhow::Result<()> {
    println!("Building the release binary …");
    if !program::stream(program::cargo(["build", "--release", "--package", "toolgate"]))? {
        bail!("the release binary does not build");
    }
    let target = Metadata::read(Path::new("Cargo.toml"))?.target_directory;
    let binary = target.join("release").join(format!("toolgate{}", std::env::consts::EXE_SUFFIX));
    let size = fs::metadata(&binary).with_context(|| format!("cannot read {}", binary.display()))?.len();

    let scratch = ScratchDir::new("bench")?;
    let file = scratch.path().join("toolgate.yaml");
    let broken = mistakes::config();
    fs::write(&file, &broken.text).with_context(|| format!("cannot write {}", file.display()))?;

    // The first run reads the binary from disk, so it does not count.
    let first = run_once(&binary, scratch.path())?;
    let before = children_cpu();
    let runs: Vec<CheckRun> =
        (0..RUNS).map(|_| run_once(&binary, scratch.path())).collect::<anyhow::Result<_>>()?;
    let mean = before.zip(children_cpu()).map(|(before, after)| (after - before) / RUNS);

    println!("bench `check`: {RUNS} runs on {} lines with mistakes", broken.text.lines().count());
    let cpu: Option<Vec<_>> = runs.iter().map(|run| run.cpu).collect();
    let median_cpu = match (cpu, mean) {
        (Some(times), Some(mean)) => {
            let (median, worst) = median_and_worst(times);
            println!("  CPU per run   median {}, worst {}, mean of all {}", ms(median), ms(worst), ms(mean));
            Some(median.max(mean))
        }
        (None, Some(mean)) => {
            println!("  CPU per run   mean of all {}", ms(mean));
            Some(mean)
        }
        (_, None) => {
            println!("  CPU per run   not measured: no /proc on this system");
            None
        }
    };
    let (median, worst) = median_and_worst(runs.iter().map(|run| run.wall).collect());
    println!("  wall per run  median {}, worst {}", ms(median), ms(worst));
    let code = first.code.map_or_else(|| "none, a signal".to_owned(), |code| code.to_string());
    let reported = problems(&first.output);
    println!("  problems      {reported} of {} reported, exit code {code}", broken.mistakes);
    println!("  binary        {:.2} MiB", size as f64 / f64::from(1 << 20));
    println!("  load average  {}", load_average().unwrap_or_else(|| "unknown".to_owned()));
    let verdict = match median_cpu {
        _ if reported != broken.mistakes => "missed",
        Some(time) => verdict(time <= CHECK_TARGET),
        None => "unknown",
    };
    println!("  target        at most {} CPU per run, every problem reported: {verdict}", ms(CHECK_TARGET));
    Ok(())
}

/// Runs `check` once.
fn run_once(binary: &Path, folder: &Path) -> anyhow::Result<CheckRun> {
    let (mut reader, writer) = pipe().context("cannot create a pipe")?;
    let mut command = Command::new(binary);
    command.arg("-C").arg(folder).arg("check");
    // The user's own configuration must not affect the benchmark.
    command.env("HOME", folder).env("XDG_CONFIG_HOME", folder.join("none"));
    command.stdin(Stdio::null()).stdout(writer.try_clone().context("cannot copy a pipe")?).stderr(writer);
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {}", binary.display()))?;
    // The command owns the write ends of the pipe; the read below ends only after they are closed.
    drop(command);
    let mut output = Vec::new();
    reader.read_to_end(&mut output).context("cannot read the output of a child process")?;
    let cpu = cpu_of_zombie(child.id());
    let status = child.wait().context("cannot wait for the child")?;
    let wall = start.elapsed();
    Ok(CheckRun { wall, cpu, output: String::from_utf8_lossy(&output).into_owned(), code: status.code() })
}

/// Returns the CPU time of a child process that has exited but was not waited for: the kernel keeps its
/// count, in nanoseconds, until then.
fn cpu_of_zombie(id: u32) -> Option<Duration> {
    for _ in 0..10_000 {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        if fields_after_name(&stat)?.first() == Some(&"Z") {
            let counts = fs::read_to_string(format!("/proc/{id}/schedstat")).ok()?;
            let nanoseconds = counts.split_whitespace().next()?.parse().ok()?;
            return Some(Duration::from_nanos(nanoseconds));
        }
        thread::sleep(Duration::from_micros(100));
    }
    None
}

/// Returns user and system time of all children waited for so far, with all their threads. In steps of
/// [`TICK`], so only a sum over many runs is meaningful.
fn children_cpu() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let fields = fields_after_name(&stat)?;
    // Fields 16 and 17 of proc_pid_stat(5), cutime and cstime; the first one here is its field 3.
    let user: u32 = fields.get(13)?.parse().ok()?;
    let system: u32 = fields.get(14)?.parse().ok()?;
    Some(TICK * (user + system))
}

/// Returns the fields after the program's name, which may itself contain spaces and parentheses.
fn fields_after_name(stat: &str) -> Option<Vec<&str>> {
    let (_, rest) = stat.rsplit_once(')')?;
    Some(rest.split_whitespace().collect())
}

fn load_average() -> Option<String> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let averages: Vec<_> = text.split_whitespace().take(3).collect();
    Some(averages.join(" "))
}

fn median_and_worst(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() - 1])
}

/// Counts problems: each begins with a line such as `error: unknown key`.
fn problems(output: &str) -> usize {
    output.lines().filter(|line| line.starts_with("error: ") || line.starts_with("warning: ")).count()
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

#[test]
fn parentheses_in_a_program_name_do_not_shift_the_fields() {
    let stat = "42 (a) b) Z 1 2";
    assert_eq!(fields_after_name(stat).unwrap(), ["Z", "1", "2"]);
}

#[test]
fn returns_the_median_and_the_worst() {
    let times = [5, 1, 9].map(Duration::from_millis).to_vec();
    assert_eq!(median_and_worst(times), (Duration::from_millis(5), Duration::from_millis(9)));
}

#[test]
fn counts_problems_by_their_first_line() {
    assert_eq!(problems("error: a\n  --> f:1:1\nhint: error: b\nwarning: c\n"), 2);
}
