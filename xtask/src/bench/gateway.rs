//! `cargo xtask bench gateway`: what a call costs that goes through `toolgate serve`, all of its stages on.
//!
//! A load and an upstream of `testkit` stand at both ends; between them, in turns, nothing, nginx and Toolgate, and
//! other gateways where they are found. Invariant: contenders take turns in every cell, so that a busy machine is as
//! busy for one as for the other, and the same bytes are sent to each.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use self::contender::{Contender, Place};
use crate::metadata::Metadata;
use crate::program;
use crate::scratch::Scratch;

mod chart;
mod contender;
mod hung;
mod memory;
mod nginx;
mod report;

/// How `bench gateway` runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// `gateway`: fewer cells and one turn each, in about a minute.
    #[arg(long)]
    quick: bool,
    /// `gateway`: measure this `toolgate`, and with the `testkit` beside it, in place of building them.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// `gateway`: build without the slow link, which is a little slower and has the names that `perf` shows.
    #[arg(long, conflicts_with = "binary")]
    no_lto: bool,
}

/// What is measured, built.
struct Built {
    toolgate: PathBuf,
    testkit: PathBuf,
    /// The gateway that is two halves of a library; not there where nothing is built.
    chain: Option<PathBuf>,
    /// How `toolgate` was built, for who reads the figures.
    profile: String,
    /// What was written goes here.
    results: PathBuf,
}

/// A tool and so many connections.
#[derive(Debug, Clone, Copy, Serialize)]
struct Cell {
    tool: &'static str,
    /// What the table calls it.
    #[serde(rename = "kind")]
    name: &'static str,
    legacy: bool,
    connections: u32,
    #[serde(skip)]
    turns: u32,
    #[serde(skip)]
    measure_ms: u32,
}

/// What one turn of the load told.
#[derive(Debug, Clone, Deserialize)]
struct Turn {
    calls: u64,
    seconds: f64,
    bytes: u64,
    cpu_seconds: Option<f64>,
    p50_us: f64,
    p99_us: f64,
    errors: u64,
    error: Option<String>,
}

/// All turns of one contender in one cell.
#[derive(Debug, Clone, Serialize)]
struct Figure {
    #[serde(flatten)]
    cell: Cell,
    contender: &'static str,
    calls: u64,
    calls_per_second: f64,
    /// Of all processes of what stands between; absent where nothing does.
    cpu_us_per_call: Option<f64>,
    cpu_ns_per_byte: Option<f64>,
    p50_us: f64,
    p99_us: f64,
    errors: u64,
    error: Option<String>,
}

/// Time for connections to be made and caches to fill.
const WARMUP_MS: u32 = 200;

fn cells(quick: bool) -> Vec<Cell> {
    let cell = |tool, turns, measure_ms| {
        move |connections| Cell { tool, name: tool, legacy: false, connections, turns, measure_ms }
    };
    // Clients with sessions, and calls of which none may be lost or made twice.
    let sessions = |turns| {
        move |connections| Cell { name: "sessions", legacy: true, ..cell("small", turns, 800)(connections) }
    };
    if quick {
        let small = [1, 16, 64].map(cell("small", 1, 1_000));
        let others = [
            cell("kib64", 1, 800)(16),
            cell("mib1", 1, 800)(16),
            sessions(1)(16),
            cell("changes", 1, 800)(16),
        ];
        return small.into_iter().chain(others).collect();
    }
    let all = [1, 16, 64, 256];
    let small = all.map(cell("small", 3, 1_000)).into_iter();
    let large = all.map(cell("kib64", 2, 700)).into_iter().chain(all.map(cell("mib1", 2, 700)));
    let others = [1, 16, 64].map(sessions(2)).into_iter().chain([1, 16, 64].map(cell("changes", 2, 800)));
    small.chain(large).chain(others).collect()
}

pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let built = build(options)?;
    let scratch = Scratch::new("bench-gateway")?;
    let load_before = super::load_average();
    let place = Place { built: &built, folder: scratch.path() };
    println!("bench `gateway`: memory …");
    let memory = memory::measure(&place)?;
    println!("bench `gateway`: one of {} servers hangs …", hung::SERVERS);
    let hung = hung::measure(&place)?;
    let upstream = contender::upstream(&place)?;
    let (contenders, absent) = contender::all(&place, upstream.port)?;
    let mut figures = Vec::new();
    for cell in cells(options.quick) {
        println!("bench `gateway`: {}, {} connections …", cell.name, cell.connections);
        figures.extend(measure(&built, cell, &contenders)?);
    }
    let report = report::Report {
        binary: built.profile.clone(),
        quick: options.quick,
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        load_before: load_before.unwrap_or_default(),
        load_after: super::load_average().unwrap_or_default(),
        contenders: contenders.iter().map(|contender| (contender.name, contender.what.clone())).collect(),
        absent,
        memory,
        hung,
        figures,
    };
    report.print();
    report.write(&built.results)
}

fn build(options: &Options) -> anyhow::Result<Built> {
    let target = Metadata::read(&program::root().join("Cargo.toml"))?.target_directory;
    let results = target.join("bench");
    fs::create_dir_all(&results).with_context(|| format!("cannot make {}", results.display()))?;
    let profile = if options.no_lto || options.binary.is_some() { "profiling" } else { "release" };
    let built = target.join(profile);
    let mut arguments =
        vec!["build", "--profile", profile, "--package", "testkit", "--package", "conformance-server"];
    let (toolgate, profile) = match &options.binary {
        Some(binary) => (binary.clone(), format!("as given: {}", binary.display())),
        None => {
            arguments.extend(["--package", "toolgate"]);
            (built.join("toolgate"), format!("this tree, profile `{profile}`"))
        }
    };
    let beside = options.binary.as_ref().map(|binary| binary.with_file_name("testkit"));
    if let Some(testkit) = beside.filter(|testkit| testkit.exists()) {
        let chain = Some(testkit.with_file_name("conformance-server")).filter(|chain| chain.exists());
        return Ok(Built { toolgate, testkit, chain, profile, results });
    }
    println!("Building: cargo {} …", arguments.join(" "));
    if !program::stream(program::cargo(&arguments))? {
        bail!("cargo {} failed", arguments.join(" "));
    }
    let chain = Some(built.join("conformance-server"));
    Ok(Built { toolgate, testkit: built.join("testkit"), chain, profile, results })
}

/// One cell: every contender once, then every contender again.
fn measure(built: &Built, cell: Cell, contenders: &[Contender]) -> anyhow::Result<Vec<Figure>> {
    let contenders: Vec<_> = contenders.iter().filter(|contender| contender.takes_part(cell)).collect();
    let mut turns: Vec<Vec<Turn>> = vec![Vec::new(); contenders.len()];
    for _ in 0..cell.turns {
        for (contender, turns) in contenders.iter().zip(&mut turns) {
            turns.push(turn(built, cell, contender)?);
        }
    }
    Ok(contenders
        .iter()
        .zip(turns)
        .map(|(contender, turns)| Figure::of(cell, contender.name, &turns))
        .collect())
}

fn turn(built: &Built, cell: Cell, contender: &Contender) -> anyhow::Result<Turn> {
    turn_of(built, cell, cell.tool, contender)
}

/// One turn of a load that calls this tool.
fn turn_of(built: &Built, cell: Cell, tool: &str, contender: &Contender) -> anyhow::Result<Turn> {
    let mut load = Command::new(&built.testkit);
    load.args(["bench", "load"]).args(contender.keys());
    load.arg(format!("tool={tool}")).arg(format!("connections={}", cell.connections));
    load.args(cell.legacy.then_some("era=legacy"));
    load.arg(format!("warmup_ms={WARMUP_MS}")).arg(format!("measure_ms={}", cell.measure_ms));
    load.arg(format!("pids={}", contender.pids().join(","))).stderr(Stdio::inherit());
    let told = program::stdout(load)?;
    serde_json::from_str(&told).with_context(|| format!("the load told `{told}`"))
}

impl Figure {
    fn of(cell: Cell, contender: &'static str, turns: &[Turn]) -> Self {
        let calls: u64 = turns.iter().map(|turn| turn.calls).sum();
        let bytes: u64 = turns.iter().map(|turn| turn.bytes).sum();
        let seconds: f64 = turns.iter().map(|turn| turn.seconds).sum();
        let cpu = turns.iter().map(|turn| turn.cpu_seconds).sum::<Option<f64>>().filter(|cpu| *cpu > 0.0);
        let per = |all: f64, number: u64| (number > 0).then(|| all / number as f64);
        Self {
            cell,
            contender,
            calls,
            calls_per_second: calls as f64 / seconds,
            cpu_us_per_call: cpu.and_then(|cpu| per(cpu * 1e6, calls)),
            cpu_ns_per_byte: cpu.and_then(|cpu| per(cpu * 1e9, bytes)),
            p50_us: median(turns.iter().map(|turn| turn.p50_us).collect()),
            p99_us: median(turns.iter().map(|turn| turn.p99_us).collect()),
            errors: turns.iter().map(|turn| turn.errors).sum(),
            error: turns.iter().find_map(|turn| turn.error.clone()),
        }
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

#[test]
fn turns_are_added_up_and_their_quantiles_have_a_middle() {
    let turn = |calls, p50_us, cpu_seconds| Turn {
        calls,
        seconds: 1.0,
        bytes: calls * 100,
        cpu_seconds,
        p50_us,
        p99_us: 9.0,
        errors: 0,
        error: None,
    };
    let cell = Cell { tool: "small", name: "small", legacy: false, connections: 1, turns: 3, measure_ms: 1 };
    let turns = [turn(100, 5.0, Some(0.1)), turn(300, 1.0, Some(0.2)), turn(200, 2.0, Some(0.3))];
    let figure = Figure::of(cell, "toolgate", &turns);
    assert_eq!((figure.calls, figure.calls_per_second, figure.p50_us), (600, 200.0, 2.0));
    assert!(figure.cpu_us_per_call.is_some_and(|us| (us - 1_000.0).abs() < 1e-6));
    assert_eq!(Figure::of(cell, "direct", &[turn(100, 5.0, None)]).cpu_us_per_call, None);
}
