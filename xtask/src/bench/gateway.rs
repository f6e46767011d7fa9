//! `cargo xtask bench gateway`: the cost of a call through `toolgate serve`, with all of its stages on.
//!
//! `testkit` provides the load and the upstream server; between them are, in turns, nothing, nginx, Toolgate, and other
//! gateways if they are installed. Invariant: contenders take turns in every case, so that a busy machine affects all
//! of them alike, and each gets the same bytes.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use self::contender::{BenchPaths, Contender};
use crate::metadata::Metadata;
use crate::program;
use crate::scratch::ScratchDir;

mod chart;
mod contender;
mod hung;
mod memory;
mod nginx;
mod report;

/// Options of `bench gateway`.
#[derive(Debug, clap::Args)]
pub(crate) struct GatewayOptions {
    /// `gateway`: fewer cases and one turn each, in about a minute.
    #[arg(long)]
    quick: bool,
    /// `gateway`: measure this `toolgate`, with the `testkit` beside it, instead of building them.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// `gateway`: build with thin LTO, which links faster, runs a little slower and keeps symbols for `perf`.
    #[arg(long, conflicts_with = "binary")]
    no_lto: bool,
}

/// The programs of the benchmark, and the folder of its results.
struct GatewayBinaries {
    toolgate: PathBuf,
    testkit: PathBuf,
    /// A gateway of the client and the server of rmcp. Absent if `--binary` is given without one beside it.
    chain: Option<PathBuf>,
    /// The build of `toolgate`, for the report.
    profile: String,
    /// Folder of the report.
    results: PathBuf,
}

/// A tool and a number of connections.
#[derive(Debug, Clone, Copy, Serialize)]
struct LoadCase {
    tool: &'static str,
    /// The name in the table.
    #[serde(rename = "kind")]
    name: &'static str,
    legacy: bool,
    connections: u32,
    #[serde(skip)]
    turns: u32,
    #[serde(skip)]
    measure_ms: u32,
}

/// The output of one turn of the load.
#[derive(Debug, Clone, Deserialize)]
struct LoadResult {
    calls: u64,
    seconds: f64,
    bytes: u64,
    cpu_seconds: Option<f64>,
    p50_us: f64,
    p99_us: f64,
    errors: u64,
    error: Option<String>,
}

/// All turns of one contender in one case.
#[derive(Debug, Clone, Serialize)]
struct Measurement {
    #[serde(flatten)]
    case: LoadCase,
    contender: &'static str,
    calls: u64,
    calls_per_second: f64,
    /// CPU time of all processes of the contender. Absent for the direct connection.
    cpu_us_per_call: Option<f64>,
    cpu_ns_per_byte: Option<f64>,
    p50_us: f64,
    p99_us: f64,
    errors: u64,
    error: Option<String>,
}

/// Time to open connections and fill caches.
const WARMUP_MS: u32 = 200;

fn cases(quick: bool) -> Vec<LoadCase> {
    let case = |tool, turns, measure_ms| {
        move |connections| LoadCase { tool, name: tool, legacy: false, connections, turns, measure_ms }
    };
    // Clients with sessions; none of their calls may be lost or sent twice.
    let sessions = |turns| {
        move |connections| LoadCase {
            name: "sessions",
            legacy: true,
            ..case("small", turns, 800)(connections)
        }
    };
    if quick {
        let small = [1, 16, 64].map(case("small", 1, 1_000));
        let others = [
            case("kib64", 1, 800)(16),
            case("mib1", 1, 800)(16),
            sessions(1)(16),
            case("changes", 1, 800)(16),
        ];
        return small.into_iter().chain(others).collect();
    }
    let all = [1, 16, 64, 256];
    let small = all.map(case("small", 3, 1_000)).into_iter();
    let large = all.map(case("kib64", 2, 700)).into_iter().chain(all.map(case("mib1", 2, 700)));
    let others = [1, 16, 64].map(sessions(2)).into_iter().chain([1, 16, 64].map(case("changes", 2, 800)));
    small.chain(large).chain(others).collect()
}

pub(super) fn run(options: &GatewayOptions) -> anyhow::Result<()> {
    let built = build(options)?;
    let scratch = ScratchDir::new("bench-gateway")?;
    let load_before = super::load_average();
    let paths = BenchPaths { built: &built, folder: scratch.path() };
    println!("bench `gateway`: memory …");
    let memory = memory::measure(&paths)?;
    println!("bench `gateway`: one of {} servers hangs …", hung::SERVERS);
    let hung = hung::measure(&paths)?;
    let upstream = contender::upstream(&paths)?;
    let (contenders, absent) = contender::all(&paths, upstream.port)?;
    let mut measurements = Vec::new();
    for case in cases(options.quick) {
        println!("bench `gateway`: {}, {} connections …", case.name, case.connections);
        measurements.extend(measure(&built, case, &contenders)?);
    }
    let report = report::GatewayReport {
        binary: built.profile.clone(),
        quick: options.quick,
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        load_before: load_before.unwrap_or_default(),
        load_after: super::load_average().unwrap_or_default(),
        contenders: contenders
            .iter()
            .map(|contender| (contender.name, contender.description.clone()))
            .collect(),
        absent,
        memory,
        hung,
        measurements,
    };
    report.print();
    report.write(&built.results)
}

fn build(options: &GatewayOptions) -> anyhow::Result<GatewayBinaries> {
    let target = Metadata::read(&program::root().join("Cargo.toml"))?.target_directory;
    let results = target.join("bench");
    fs::create_dir_all(&results).with_context(|| format!("cannot create {}", results.display()))?;
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
        return Ok(GatewayBinaries { toolgate, testkit, chain, profile, results });
    }
    println!("Building: cargo {} …", arguments.join(" "));
    if !program::stream(program::cargo(&arguments))? {
        bail!("cargo {} failed", arguments.join(" "));
    }
    let chain = Some(built.join("conformance-server"));
    Ok(GatewayBinaries { toolgate, testkit: built.join("testkit"), chain, profile, results })
}

/// Measures one case: every contender once, then every contender again.
fn measure(
    built: &GatewayBinaries,
    case: LoadCase,
    contenders: &[Contender],
) -> anyhow::Result<Vec<Measurement>> {
    let contenders: Vec<_> = contenders.iter().filter(|contender| contender.is_measured_in(case)).collect();
    let mut turns: Vec<Vec<LoadResult>> = vec![Vec::new(); contenders.len()];
    for _ in 0..case.turns {
        for (contender, turns) in contenders.iter().zip(&mut turns) {
            turns.push(run_load(built, case, contender)?);
        }
    }
    Ok(contenders
        .iter()
        .zip(turns)
        .map(|(contender, turns)| Measurement::of(case, contender.name, &turns))
        .collect())
}

fn run_load(built: &GatewayBinaries, case: LoadCase, contender: &Contender) -> anyhow::Result<LoadResult> {
    run_load_with_tool(built, case, case.tool, contender)
}

/// Runs the load for one turn, with calls of this tool.
fn run_load_with_tool(
    built: &GatewayBinaries,
    case: LoadCase,
    tool: &str,
    contender: &Contender,
) -> anyhow::Result<LoadResult> {
    let mut load = Command::new(&built.testkit);
    load.args(["bench", "load"]).args(contender.load_arguments());
    load.arg(format!("tool={tool}")).arg(format!("connections={}", case.connections));
    load.args(case.legacy.then_some("era=legacy"));
    load.arg(format!("warmup_ms={WARMUP_MS}")).arg(format!("measure_ms={}", case.measure_ms));
    load.arg(format!("pids={}", contender.pids().join(","))).stderr(Stdio::inherit());
    let output = program::stdout(load)?;
    serde_json::from_str(&output).with_context(|| format!("the load output `{output}`"))
}

impl Measurement {
    fn of(case: LoadCase, contender: &'static str, turns: &[LoadResult]) -> Self {
        let calls: u64 = turns.iter().map(|turn| turn.calls).sum();
        let bytes: u64 = turns.iter().map(|turn| turn.bytes).sum();
        let seconds: f64 = turns.iter().map(|turn| turn.seconds).sum();
        let cpu = turns.iter().map(|turn| turn.cpu_seconds).sum::<Option<f64>>().filter(|cpu| *cpu > 0.0);
        let per = |all: f64, number: u64| (number > 0).then(|| all / number as f64);
        Self {
            case,
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
fn adds_up_turns_and_takes_the_median_of_their_quantiles() {
    let turn = |calls, p50_us, cpu_seconds| LoadResult {
        calls,
        seconds: 1.0,
        bytes: calls * 100,
        cpu_seconds,
        p50_us,
        p99_us: 9.0,
        errors: 0,
        error: None,
    };
    let case =
        LoadCase { tool: "small", name: "small", legacy: false, connections: 1, turns: 3, measure_ms: 1 };
    let turns = [turn(100, 5.0, Some(0.1)), turn(300, 1.0, Some(0.2)), turn(200, 2.0, Some(0.3))];
    let measurement = Measurement::of(case, "toolgate", &turns);
    assert_eq!((measurement.calls, measurement.calls_per_second, measurement.p50_us), (600, 200.0, 2.0));
    assert!(measurement.cpu_us_per_call.is_some_and(|us| (us - 1_000.0).abs() < 1e-6));
    assert_eq!(Measurement::of(case, "direct", &[turn(100, 5.0, None)]).cpu_us_per_call, None);
}
