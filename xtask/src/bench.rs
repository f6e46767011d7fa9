//! `cargo xtask bench`: what the release binary costs.
//!
//! Invariant: it prints and never judges. A time depends on the machine and on what else runs there,
//! so the load stands beside it, and no time fails anything.

use std::fs;
use std::io::{Read, pipe};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::metadata::Metadata;
use crate::program;
use crate::scratch::Scratch;

mod catalog;
pub(crate) mod gateway;
mod mistakes;

/// The benchmarks.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Name {
    /// `toolgate check` on 500 lines with many mistakes.
    Check,
    /// Servers connected, discovered and listed; the catalog's memory and answers.
    Catalog,
    /// The road of a call, without the tool: processor time and allocations.
    Road,
    /// Changes of a registry of 10,000 tools, with 64 clients.
    Registry,
    /// The execution log: records a second, the time it adds to a call, the time a question takes.
    Log,
    /// Tools of one's own: a Python worker that is there, and a program that is started.
    Scripts,
    /// Tool search: a query at 100, 1,000 and 10,000 tools, an index built, one tool changed.
    Search,
    /// A turn of the agent, without the model and the tool.
    Agent,
    /// Calls through `toolgate serve`, beside the direct connection and nginx.
    Gateway,
}

/// Processor time that one `toolgate check` may take, so that an editor can run it on every save.
const CHECK_BAR: Duration = Duration::from_millis(50);

/// Enough for a median that repeats.
const RUNS: u32 = 30;

/// The kernel counts in hundredths of a second towards programs, on every architecture.
const TICK: Duration = Duration::from_millis(10);

/// One run of a child.
struct Run {
    wall: Duration,
    /// Time on a processor, of the child's main thread. Absent where there is no `/proc`.
    cpu: Option<Duration>,
    output: String,
    code: Option<i32>,
}

/// Runs one benchmark, or all of them.
pub(crate) fn run(name: Option<Name>, options: &gateway::Options) -> anyhow::Result<bool> {
    if matches!(name, None | Some(Name::Check)) {
        check()?;
    }
    if matches!(name, None | Some(Name::Catalog)) {
        catalog::run()?;
    }
    if matches!(name, None | Some(Name::Road)) {
        road()?;
    }
    if matches!(name, None | Some(Name::Registry)) {
        registry()?;
    }
    if matches!(name, None | Some(Name::Log)) {
        log()?;
    }
    if matches!(name, None | Some(Name::Scripts)) {
        scripts()?;
    }
    if matches!(name, None | Some(Name::Search)) {
        search()?;
    }
    if matches!(name, None | Some(Name::Agent)) {
        agent()?;
    }
    if matches!(name, None | Some(Name::Gateway)) {
        gateway::run(options)?;
    }
    Ok(true)
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

fn agent() -> anyhow::Result<()> {
    println!("Building the benchmark …");
    let bench = program::cargo(["bench", "--quiet", "--package", "toolgate-agent", "--bench", "turn"]);
    let told = program::stdout(bench)?;
    println!("bench `agent`: a turn with one call, the journal and the road included");
    told.lines().for_each(|line| println!("  {line}"));
    Ok(())
}

fn road() -> anyhow::Result<()> {
    println!("Building the benchmark …");
    let bench = program::cargo(["bench", "--quiet", "--package", "toolgate-runtime", "--bench", "road"]);
    let told = program::stdout(bench)?;
    println!("bench `road`: a call of a function of ours with 300 bytes of arguments");
    told.lines().for_each(|line| println!("  {line}"));
    println!("  load average  {}", load_average().unwrap_or_else(|| "unknown".to_owned()));
    Ok(())
}

fn registry() -> anyhow::Result<()> {
    println!("Building the benchmark …");
    let bench = program::cargo(["bench", "--quiet", "--package", "toolgate-config", "--bench", "registry"]);
    let told = program::stdout(bench)?;
    println!("bench `registry`: checked, written, synced and in use before it is acknowledged");
    told.lines().for_each(|line| println!("  {line}"));
    println!("  load average  {}", load_average().unwrap_or_else(|| "unknown".to_owned()));
    Ok(())
}

/// How many records the questions go over.
const LOG_RECORDS: &str = "1000000";

fn log() -> anyhow::Result<()> {
    println!("Building the benchmark …");
    let mut bench = program::cargo(["bench", "--quiet", "--package", "toolgate-audit", "--bench", "log"]);
    bench.env("LOG_RECORDS", LOG_RECORDS);
    let told = program::stdout(bench)?;
    println!(
        "bench `log`: records of calls with 80 bytes of arguments; the questions go over {LOG_RECORDS} of them"
    );
    told.lines().for_each(|line| println!("  {line}"));
    println!("  bars          50,000 records/s written; 50 µs p50 added to a call that may be repeated");
    println!("  load average  {}", load_average().unwrap_or_else(|| "unknown".to_owned()));
    Ok(())
}

fn scripts() -> anyhow::Result<()> {
    println!("Building the benchmark …");
    let bench = program::cargo(["bench", "--quiet", "--package", "toolgate-runtime", "--bench", "scripts"]);
    let told = program::stdout(bench)?;
    println!("bench `scripts`: calls of tools of one's own, the whole road included");
    told.lines().for_each(|line| println!("  {line}"));
    println!("  load average  {}", load_average().unwrap_or_else(|| "unknown".to_owned()));
    Ok(())
}

fn search() -> anyhow::Result<()> {
    println!("Building the benchmark …");
    let bench = program::cargo(["bench", "--quiet", "--package", "toolgate-search", "--bench", "search"]);
    let told = program::stdout(bench)?;
    println!("bench `search`: processor time, median and p99 of the queries of eval/gold.jsonl");
    told.lines().for_each(|line| println!("  {line}"));
    println!("  bars          a query 100 µs, 300 µs, 2 ms; 10,000 tools built in 1 s; one changed 1 ms");
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

    let scratch = Scratch::new("bench")?;
    let file = scratch.path().join("toolgate.yaml");
    let broken = mistakes::config();
    fs::write(&file, &broken.text).with_context(|| format!("cannot write {}", file.display()))?;

    // The first run reads the binary from the disk, which is not what is measured.
    let first = run_once(&binary, scratch.path())?;
    let before = children_cpu();
    let runs: Vec<Run> =
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
            println!("  CPU per run   not measured: there is no /proc here");
            None
        }
    };
    let (median, worst) = median_and_worst(runs.iter().map(|run| run.wall).collect());
    println!("  wall per run  median {}, worst {}", ms(median), ms(worst));
    let code = first.code.map_or_else(|| "none, a signal".to_owned(), |code| code.to_string());
    let told = problems(&first.output);
    println!("  problems      {told} of {} reported, exit code {code}", broken.mistakes);
    println!("  binary        {:.2} MiB", size as f64 / f64::from(1 << 20));
    println!("  load average  {}", load_average().unwrap_or_else(|| "unknown".to_owned()));
    let verdict = match median_cpu {
        _ if told != broken.mistakes => "missed",
        Some(time) => verdict(time <= CHECK_BAR),
        None => "unknown",
    };
    println!("  bar           at most {} CPU per run, every problem reported: {verdict}", ms(CHECK_BAR));
    Ok(())
}

/// Runs `check` once and waits for it.
fn run_once(binary: &Path, folder: &Path) -> anyhow::Result<Run> {
    let (mut reader, writer) = pipe().context("cannot make a pipe")?;
    let mut command = Command::new(binary);
    command.arg("-C").arg(folder).arg("check");
    // The user's own configuration must not take part.
    command.env("HOME", folder).env("XDG_CONFIG_HOME", folder.join("none"));
    command.stdin(Stdio::null()).stdout(writer.try_clone().context("cannot copy a pipe")?).stderr(writer);
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {}", binary.display()))?;
    // The command owns the write ends; the read below ends only once they are closed.
    drop(command);
    let mut output = Vec::new();
    reader.read_to_end(&mut output).context("cannot read what the child says")?;
    let cpu = cpu_of_zombie(child.id());
    let status = child.wait().context("cannot wait for the child")?;
    let wall = start.elapsed();
    Ok(Run { wall, cpu, output: String::from_utf8_lossy(&output).into_owned(), code: status.code() })
}

/// The time on a processor of a child that has ended but was not waited for: the kernel keeps its
/// count, in nanoseconds, exactly as long.
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

/// User and system time of all children waited for so far, all their threads included. In steps of
/// [`TICK`], so only a sum over many runs says something.
fn children_cpu() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let fields = fields_after_name(&stat)?;
    // Fields 16 and 17 of proc_pid_stat(5), cutime and cstime; the first one here is its field 3.
    let user: u32 = fields.get(13)?.parse().ok()?;
    let system: u32 = fields.get(14)?.parse().ok()?;
    Some(TICK * (user + system))
}

/// The fields after the program's name, which may itself hold spaces and parentheses.
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

/// A problem begins with a line such as `error: unknown key`.
fn problems(output: &str) -> usize {
    output.lines().filter(|line| line.starts_with("error: ") || line.starts_with("warning: ")).count()
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

#[test]
fn a_name_with_a_parenthesis_does_not_shift_the_fields() {
    let stat = "42 (a) b) Z 1 2";
    assert_eq!(fields_after_name(stat).unwrap(), ["Z", "1", "2"]);
}

#[test]
fn the_median_is_the_middle_and_the_worst_the_last() {
    let times = [5, 1, 9].map(Duration::from_millis).to_vec();
    assert_eq!(median_and_worst(times), (Duration::from_millis(5), Duration::from_millis(9)));
}

#[test]
fn problems_are_counted_by_their_first_line() {
    assert_eq!(problems("error: a\n  --> f:1:1\nhint: error: b\nwarning: c\n"), 2);
}
