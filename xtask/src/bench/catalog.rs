//! `cargo xtask bench catalog`: the time to connect to servers, discover and list their tools.
//!
//! Contenders take turns in one run, so that a busy machine affects both alike.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::{load_average, median_and_worst, ms, verdict};
use crate::metadata::Metadata;
use crate::program;
use crate::scratch::ScratchDir;

const RUNS: usize = 20;
const SERVERS: usize = 100;
/// The limits for the catalog.
const TIMES_RAW: f64 = 3.0;
const ALL_SERVERS: Duration = Duration::from_secs(3);
/// Number of tools, and the limit of the memory with them.
const MEMORY_MIB: [(usize, f64); 2] = [(1_000, 40.0), (10_000, 150.0)];

/// The programs of the benchmark.
struct CatalogBinaries {
    toolgate: PathBuf,
    testkit: PathBuf,
    raw_client: PathBuf,
}

pub(super) fn run() -> anyhow::Result<()> {
    let built = build()?;
    let scratch = ScratchDir::new("bench")?;
    println!("bench `catalog`");
    against_raw(&built, scratch.path())?;
    many_servers(&built, scratch.path())?;
    for (tools, most_mib) in MEMORY_MIB {
        memory(&built, scratch.path(), tools, most_mib)?;
    }
    println!("  tools/list from the catalog, CPU time, target at most 0.2 ms at 1,000 tools:");
    let mut bench =
        program::cargo(["bench", "--quiet", "--package", "toolgate-runtime", "--bench", "catalog"]);
    bench.env("TESTKIT", &built.testkit);
    for line in program::stdout(bench)?.lines() {
        println!("    {line}");
    }
    println!("  load average  {}", load_average().unwrap_or_else(|| "unknown".to_owned()));
    Ok(())
}

fn build() -> anyhow::Result<CatalogBinaries> {
    println!("Building the release binaries …");
    let builds = [
        &["build", "--release", "--package", "toolgate", "--package", "testkit"][..],
        &["build", "--release", "--package", "conformance-server", "--example", "raw_client"],
    ];
    for arguments in builds {
        if !program::stream(program::cargo(arguments))? {
            bail!("cargo {} failed", arguments.join(" "));
        }
    }
    let release = Metadata::read(Path::new("Cargo.toml"))?.target_directory.join("release");
    Ok(CatalogBinaries {
        toolgate: release.join("toolgate"),
        testkit: release.join("testkit"),
        raw_client: release.join("examples/raw_client"),
    })
}

/// Compares `toolgate tools list` with a client on the official SDK alone, on the same server.
fn against_raw(built: &CatalogBinaries, folder: &Path) -> anyhow::Result<()> {
    let (folder, tools) = project(built, folder, "one", 1, 20)?;
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    // The first run of each reads the binaries from disk and pins the tools, so it does not count.
    for run in 0..=RUNS {
        let (our, lines) = timed(toolgate(built, &folder).args(["tools", "list"]))?;
        let (theirs, same) =
            timed(Command::new(&built.raw_client).arg(&built.testkit).arg("scripted").arg(&tools))?;
        if (lines, same) != (20, 20) {
            bail!("{lines} and {same} lines were printed, expected 20 tools each");
        }
        if run > 0 {
            ours.push(our);
            raw.push(theirs);
        }
    }
    let ((our, our_worst), (theirs, their_worst)) = (median_and_worst(ours), median_and_worst(raw));
    let times = our.as_secs_f64() / theirs.as_secs_f64();
    println!("  one server, process start to output, {RUNS} runs in turns:");
    println!("    toolgate tools list   median {}, worst {}", ms(our), ms(our_worst));
    println!("    raw rmcp client       median {}, worst {}", ms(theirs), ms(their_worst));
    println!("    {times:.2} times, target at most {TIMES_RAW}: {}", verdict(times <= TIMES_RAW));
    Ok(())
}

/// Measures a hundred servers at once, then the same with one that never answers.
fn many_servers(built: &CatalogBinaries, folder: &Path) -> anyhow::Result<()> {
    let (folder, _) = project(built, folder, "many", SERVERS, 5)?;
    let mut all = Vec::new();
    for _ in 0..4 {
        let (took, lines) = timed(toolgate(built, &folder).args(["tools", "list"]))?;
        if lines != SERVERS * 5 {
            bail!("{lines} tools of {SERVERS} servers were listed");
        }
        all.push(took);
    }
    // The first run writes the pins.
    let first = all.remove(0);
    let (median, worst) = median_and_worst(all);
    println!("  {SERVERS} stdio servers connected, discovered and listed:");
    println!("    median {}, worst {}, the first, which pins them all, {}", ms(median), ms(worst), ms(first));
    println!("    target at most {}: {}", ms(ALL_SERVERS), verdict(median.max(first) <= ALL_SERVERS));

    let file = folder.join("mcp.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&file)?)?;
    config["servers"]["s50"]["args"] = json!(["silent"]);
    config["servers"]["s50"]["timeout"] = json!("5s");
    fs::write(&file, config.to_string()).with_context(|| format!("cannot write {}", file.display()))?;
    let start = Instant::now();
    let mut child = toolgate(built, &folder)
        .args(["tools", "list"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let stderr = BufReader::new(child.stderr.take().context("stderr is piped")?);
    let mut ready = Duration::ZERO;
    for line in stderr.lines().map_while(Result::ok).filter(|line| line.contains("ready")) {
        drop(line);
        ready = start.elapsed();
    }
    child.wait()?;
    println!("    with one of them silent the other 99 are ready after {}", ms(ready));
    Ok(())
}

/// Measures the start and the memory of a long-running process with many tools.
fn memory(built: &CatalogBinaries, folder: &Path, tools: usize, most_mib: f64) -> anyhow::Result<()> {
    let (folder, _) = project(built, folder, &format!("tools_{tools}"), 1, tools)?;
    let start = Instant::now();
    let mut command = toolgate(built, &folder);
    let mut child = command
        .args(["servers", "--watch", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
    let listed =
        stdout.lines().map_while(Result::ok).filter(|line| line.contains("\"tool\"")).take(tools).count();
    let started = start.elapsed();
    // Memory is idle after the last poll.
    std::thread::sleep(Duration::from_secs(3));
    let resident = resident_mib(child.id());
    let _ = child.kill();
    child.wait()?;
    match resident {
        Some(mib) => println!(
            "  {listed} tools: listed after {}, memory idle {mib:.1} MiB, target at most {most_mib} MiB: {}",
            ms(started),
            verdict(mib <= most_mib)
        ),
        None => println!("  memory: not measured, no /proc on this system"),
    }
    Ok(())
}

pub(super) fn resident_mib(id: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

/// Writes a project with servers of this many tools each. Returns its folder and the file of the tools.
fn project(
    built: &CatalogBinaries,
    folder: &Path,
    name: &str,
    servers: usize,
    tools: usize,
) -> anyhow::Result<(PathBuf, PathBuf)> {
    let folder = folder.join(name);
    fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let file = folder.join("tools");
    let tool = |n: usize| {
        let schema = json!({ "type": "object", "properties": { "id": { "type": "string", "description": "The id of the record." } }, "required": ["id"] });
        json!({ "name": format!("tool_{n}"), "description": format!("Looks up record {n} and returns it."), "inputSchema": schema })
    };
    let all = json!({ "tools": (0..tools).map(tool).collect::<Vec<_>>() });
    fs::write(&file, all.to_string()).with_context(|| format!("cannot write {}", file.display()))?;
    let server = json!({ "command": built.testkit, "args": ["scripted", file] });
    let servers: serde_json::Map<_, _> = (0..servers).map(|n| (format!("s{n}"), server.clone())).collect();
    let path = folder.join("mcp.json");
    fs::write(&path, json!({ "servers": servers }).to_string())
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok((folder, file))
}

fn toolgate(built: &CatalogBinaries, folder: &Path) -> Command {
    let mut command = Command::new(&built.toolgate);
    // The user's own configuration must not affect the benchmark.
    command.arg("-C").arg(folder).env("HOME", folder).env("XDG_CONFIG_HOME", folder.join("none"));
    command.env("TOOLGATE_LOG", "off");
    command
}

/// Returns the time from the start to the last line on stdout, and the number of lines.
fn timed(command: &mut Command) -> anyhow::Result<(Duration, usize)> {
    let start = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
    let (mut took, mut lines) = (Duration::ZERO, 0);
    for line in stdout.lines() {
        line.with_context(|| format!("cannot read the output of {command:?}"))?;
        (took, lines) = (start.elapsed(), lines + 1);
    }
    if !child.wait()?.success() {
        bail!("{command:?} failed");
    }
    Ok((took, lines))
}
