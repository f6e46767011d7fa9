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

use self::contender::{BenchSetup, Contender, ContenderKind, LogLimit};
use self::cpus::CpuLayout;
use self::nginx::NginxSetup;
use crate::metadata::Metadata;
use crate::program;
use crate::scratch::ScratchDir;

mod bars;
mod baseline;
mod callgrind;
mod chart;
pub(super) mod console;
mod contender;
pub(super) mod counts;
mod cpus;
mod disk;
mod hung;
mod instrument;
mod memory;
mod nginx;
mod report;
mod startup;
mod syscalls;

/// Options of `bench gateway`.
#[derive(Debug, clap::Args)]
pub(crate) struct GatewayOptions {
    /// `gateway`: fewer cases and one turn each, in about a minute. `console`: without the log of 10,000,000 records.
    #[arg(long)]
    quick: bool,
    /// `gateway`, `console`: measure this `toolgate`, with the `testkit` beside it, instead of building them.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// `gateway`, `console`: build with thin LTO, which links faster, runs a little slower and keeps symbols for `perf`.
    #[arg(long, conflicts_with = "binary")]
    no_lto: bool,
    /// `gateway`, `counts`: store instructions and allocations per call in `benches/gateway.json`.
    #[arg(long)]
    update: bool,
    /// `counts`: count only this case, for example `small`; may be repeated [default: all of them].
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
}

impl GatewayOptions {
    /// The cases of `counts`.
    fn count_cases(&self) -> anyhow::Result<Vec<&'static counts::CountCase>> {
        let names: Vec<_> = counts::CASES.iter().map(|case| case.name).collect();
        if let Some(unknown) = self.case.iter().find(|name| !names.contains(&name.as_str())) {
            bail!("no such case: `{unknown}`\nhint: the cases are {}", names.join(", "));
        }
        let chosen =
            |case: &&counts::CountCase| self.case.is_empty() || self.case.iter().any(|it| it == case.name);
        Ok(counts::CASES.iter().filter(chosen).collect())
    }
}

/// The profile of counts: symbols are needed to name functions.
const COUNTS_PROFILE: &str = "profiling";

/// Chooses the processors, or says why processes are not pinned.
fn detect_cpus() -> Option<CpuLayout> {
    match CpuLayout::detect() {
        Ok(cpus) => {
            println!("Processors: {}", cpus.description());
            Some(cpus)
        }
        Err(why) => {
            println!("Processes are not pinned: {why}");
            None
        }
    }
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

impl LoadCase {
    /// A case of the newest protocol revision.
    const fn new(name: &'static str, tool: &'static str, connections: u32, measure_ms: u32) -> Self {
        Self { tool, name, legacy: false, connections, turns: 1, measure_ms }
    }

    /// Returns true if each call waits for the disk in Toolgate.
    fn is_durable(&self) -> bool {
        self.tool == DEFAULT_TOOL
    }
}

/// The tool that the configuration says nothing about.
const DEFAULT_TOOL: &str = "changes";

/// The cases. `sessions` are clients of an older protocol revision; `default` calls a tool that must not be repeated.
fn cases(quick: bool) -> Vec<LoadCase> {
    let case = LoadCase::new;
    let old = |name, tool, connections, measure_ms| LoadCase {
        legacy: true,
        ..case(name, tool, connections, measure_ms)
    };
    if quick {
        let mut cases: Vec<_> =
            [1, 16, 64].map(|connections| case("small", "small", connections, 800)).into();
        cases.extend(["kib64", "mib1"].map(|tool| case(tool, tool, 16, 600)));
        cases.push(old("sessions", "small", 16, 600));
        cases.push(case("default", DEFAULT_TOOL, 1, 600));
        return cases;
    }
    let all = [1, 16, 64, 256];
    let mut cases = Vec::new();
    cases.extend(all.map(|connections| LoadCase { turns: 3, ..case("small", "small", connections, 1_000) }));
    for tool in ["kib64", "mib1"] {
        cases.extend(all.map(|connections| case(tool, tool, connections, 800)));
    }
    cases.extend(all.map(|connections| old("sessions", "small", connections, 800)));
    cases.extend(all.map(|connections| case("default", DEFAULT_TOOL, connections, 800)));
    // One number of connections suffices to see that the revision costs the same with other tools.
    cases.push(old("kib64 old", "kib64", 16, 800));
    cases.push(old("mib1 old", "mib1", 16, 800));
    cases.push(old("default old", DEFAULT_TOOL, 16, 800));
    cases.into_iter().map(|case| LoadCase { turns: case.turns.max(2), ..case }).collect()
}

/// Runs `bench gateway`. Returns false if instructions or allocations rose.
pub(super) fn run(options: &GatewayOptions) -> anyhow::Result<bool> {
    let built = build(options, if options.no_lto { COUNTS_PROFILE } else { "release" })?;
    let counted = build(options, COUNTS_PROFILE)?;
    let scratch = ScratchDir::new("bench-gateway")?;
    let load_before = super::load_average().unwrap_or_default();
    let cpus = detect_cpus();
    let setup = BenchSetup { built: &built, folder: scratch.path(), cpus, instrument: None };
    println!("bench `gateway`: counts …");
    let counts = count(&BenchSetup { built: &counted, ..setup }, options.quick)?;
    println!("bench `gateway`: cold start …");
    let startup = startup::measure(&setup)?;
    println!("bench `gateway`: memory …");
    let memory = memory::measure(&setup)?;
    println!("bench `gateway`: one of {} servers hangs …", hung::SERVERS);
    let hung = hung::measure(&setup)?;
    let upstream = contender::upstream(&setup)?;
    let (contenders, absent) = contender::all(&setup, upstream.port)?;
    let (mut measurements, mut sync_us) = (Vec::new(), f64::INFINITY);
    for case in cases(options.quick) {
        println!("bench `gateway`: {}, {} connections …", case.name, case.connections);
        measurements.extend(measure(&setup, case, &contenders)?);
        if case.is_durable() && case.connections == 1 {
            sync_us = sync_us.min(disk::shortest_sync_us(&setup)?);
        }
    }
    let report = report::GatewayReport {
        binary: built.profile.clone(),
        quick: options.quick,
        processors: cpus.map_or_else(|| "not pinned".to_owned(), CpuLayout::description),
        load_before,
        load_after: super::load_average().unwrap_or_default(),
        contenders: contenders
            .iter()
            .map(|contender| (contender.name, contender.description.clone()))
            .collect(),
        absent,
        memory,
        startup,
        sync_us,
        hung,
        measurements,
        counts,
    };
    report.print();
    report.write(&built.results)?;
    counts::check_baseline(&report.counts, options.update)
}

/// Counts the calls of Toolgate and, in a full run, of the contenders that instruments can follow.
fn count(setup: &BenchSetup<'_>, quick: bool) -> anyhow::Result<Vec<counts::CallCounts>> {
    let toolgate = ContenderKind::Toolgate(LogLimit::Whole);
    let others = [ContenderKind::Nginx(NginxSetup::Tuned), ContenderKind::Rmcp];
    let mut all = Vec::new();
    for case in counts::CASES {
        let is_small = case.name == "small";
        if quick && !is_small {
            continue;
        }
        all.push(counts::measure(setup, case, toolgate)?);
        if !quick && is_small {
            for kind in others {
                all.push(counts::measure(setup, case, kind)?);
            }
        }
    }
    Ok(all)
}

/// Builds the programs, or takes those of `--binary`.
fn build(options: &GatewayOptions, profile: &str) -> anyhow::Result<GatewayBinaries> {
    let target = Metadata::read(&program::root().join("Cargo.toml"))?.target_directory;
    let results = target.join("bench");
    fs::create_dir_all(&results).with_context(|| format!("cannot create {}", results.display()))?;
    let profile = if options.binary.is_some() { COUNTS_PROFILE } else { profile };
    let built = target.join(profile);
    let (toolgate, described) = match &options.binary {
        Some(binary) => (binary.clone(), format!("as given: {}", binary.display())),
        None => {
            // Alone, as in a release: the other programs would turn on features of shared dependencies.
            cargo_build(profile, &["toolgate"])?;
            (built.join("toolgate"), format!("this tree, profile `{profile}`"))
        }
    };
    let beside = options.binary.as_ref().map(|binary| binary.with_file_name("testkit"));
    if let Some(testkit) = beside.filter(|testkit| testkit.exists()) {
        let chain = Some(testkit.with_file_name("conformance-server")).filter(|chain| chain.exists());
        return Ok(GatewayBinaries { toolgate, testkit, chain, profile: described, results });
    }
    cargo_build(profile, &["testkit", "conformance-server"])?;
    let chain = Some(built.join("conformance-server"));
    Ok(GatewayBinaries { toolgate, testkit: built.join("testkit"), chain, profile: described, results })
}

fn cargo_build(profile: &str, packages: &[&str]) -> anyhow::Result<()> {
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    let arguments: Vec<_> = ["build", "--profile", profile].into_iter().chain(packages).collect();
    println!("Building: cargo {} …", arguments.join(" "));
    if !program::stream(program::cargo(&arguments))? {
        bail!("cargo {} failed", arguments.join(" "));
    }
    Ok(())
}

/// Measures one case: every contender once, then every contender again.
fn measure(
    setup: &BenchSetup<'_>,
    case: LoadCase,
    contenders: &[Contender],
) -> anyhow::Result<Vec<Measurement>> {
    let contenders: Vec<_> = contenders.iter().filter(|contender| contender.is_measured_in(case)).collect();
    let mut turns: Vec<Vec<LoadResult>> = vec![Vec::new(); contenders.len()];
    for _ in 0..case.turns {
        for (contender, turns) in contenders.iter().zip(&mut turns) {
            turns.push(run_load_with_tool(setup, case, case.tool, contender)?);
        }
    }
    Ok(contenders
        .iter()
        .zip(turns)
        .map(|(contender, turns)| Measurement::of(case, contender.name, &turns))
        .collect())
}

/// Runs the load for one turn, with calls of this tool.
fn run_load_with_tool(
    setup: &BenchSetup<'_>,
    case: LoadCase,
    tool: &str,
    contender: &Contender,
) -> anyhow::Result<LoadResult> {
    let mut load = load_command(setup, case, tool, contender);
    load.arg(format!("warmup_ms={WARMUP_MS}")).arg(format!("measure_ms={}", case.measure_ms));
    run_load(load)
}

/// Runs the load until it has made this number of calls.
fn run_load_with_calls(
    setup: &BenchSetup<'_>,
    case: LoadCase,
    contender: &Contender,
    calls: u64,
) -> anyhow::Result<LoadResult> {
    let mut load = load_command(setup, case, case.tool, contender);
    load.arg(format!("calls={calls}"));
    run_load(load)
}

fn load_command(setup: &BenchSetup<'_>, case: LoadCase, tool: &str, contender: &Contender) -> Command {
    let mut load = setup.testkit_command();
    load.args(["bench", "load"]).args(contender.load_arguments());
    load.arg(format!("tool={tool}")).arg(format!("connections={}", case.connections));
    load.args(case.legacy.then_some("era=legacy"));
    load.arg(format!("pids={}", contender.pids().join(","))).stderr(Stdio::inherit());
    load
}

fn run_load(load: Command) -> anyhow::Result<LoadResult> {
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
