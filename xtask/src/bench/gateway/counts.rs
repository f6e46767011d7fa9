//! `cargo xtask bench counts`: the cost of a call in instructions, allocations, system calls and context switches.
//!
//! The contender runs twice under an instrument, with different numbers of calls; the difference divided by the
//! difference of the calls is the cost of a call, without startup. Counts hardly depend on other work of the machine, so
//! two of them are kept in the repository (see `baseline`). Invariant: a count that cannot be measured
//! is reported with its reason, never as zero.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Serialize;

use super::baseline::{self, Baseline, BaselineCase};
use super::callgrind::{CallProfile, Profile};
use super::contender::{self, BenchSetup, Contender, ContenderKind, LogLimit};
use super::syscalls::SyscallSummary;
use super::{GatewayOptions, LoadCase, instrument};
use crate::scratch::ScratchDir;

/// Connections of the load.
const CONNECTIONS: u32 = 16;
/// Functions in the list of the most expensive ones.
const TOP_FUNCTIONS: usize = 40;
/// Longer names of functions are truncated.
const NAME_LENGTH: usize = 110;
/// Time limit for an instrumented process to end and to write its file.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// A kind of call that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CountCase {
    pub(super) name: &'static str,
    tool: &'static str,
    legacy: bool,
    /// Calls of the short run: enough to fill buffers and caches.
    fewer: u64,
    /// Calls that the long run makes in addition. Large results need fewer of them for the same accuracy.
    additional: u64,
    /// Calls for context switches; they are counted without an instrument.
    uninstrumented: u64,
}

/// All cases. The names are those of the other tables.
pub(super) const CASES: [CountCase; 5] = [
    CountCase {
        name: "small",
        tool: "small",
        legacy: false,
        fewer: 1_000,
        additional: 2_000,
        uninstrumented: 20_000,
    },
    CountCase {
        name: "sessions",
        tool: "small",
        legacy: true,
        fewer: 1_000,
        additional: 2_000,
        uninstrumented: 20_000,
    },
    CountCase {
        name: "default",
        tool: "changes",
        legacy: false,
        fewer: 500,
        additional: 1_000,
        uninstrumented: 2_000,
    },
    CountCase {
        name: "kib64",
        tool: "kib64",
        legacy: false,
        fewer: 200,
        additional: 400,
        uninstrumented: 4_000,
    },
    CountCase { name: "mib1", tool: "mib1", legacy: false, fewer: 32, additional: 64, uninstrumented: 300 },
];

/// The counts of one case of one contender, per call.
#[derive(Debug, Clone, Serialize)]
pub(super) struct CallCounts {
    pub(super) contender: &'static str,
    #[serde(rename = "kind")]
    pub(super) case: &'static str,
    /// User instructions without those of SHA-256.
    pub(super) instructions: Count,
    pub(super) sha256_instructions: Count,
    pub(super) allocations: Count,
    pub(super) system_calls: Count,
    pub(super) context_switches: Count,
    #[serde(skip)]
    functions: Vec<(String, f64)>,
    #[serde(skip)]
    system_calls_by_name: Vec<(String, f64)>,
}

/// A count, or the reason why it was not measured.
pub(super) type Count = Result<f64, String>;

/// Runs `bench counts`. Returns false if a figure rose.
pub(in crate::bench) fn run(options: &GatewayOptions) -> anyhow::Result<bool> {
    let cases = options.count_cases()?;
    let built = super::build(options, super::COUNTS_PROFILE)?;
    let scratch = ScratchDir::new("bench-counts")?;
    let setup =
        BenchSetup { built: &built, folder: scratch.path(), cpus: super::detect_cpus(), instrument: None };
    let mut counts = Vec::new();
    for case in cases {
        println!("bench `counts`: {} …", case.name);
        let count = measure(&setup, *case, ContenderKind::Toolgate(LogLimit::Whole))?;
        count.print_details();
        counts.push(count);
    }
    print_table(&counts);
    let load = crate::bench::load_average().unwrap_or_else(|| "unknown".to_owned());
    println!("  load average  {load}");
    println!(
        "  profiles      {}: `callgrind_annotate FILE` shows them",
        built.results.join("callgrind.*.out").display()
    );
    check_baseline(&counts, options.update)
}

/// Compares the counts of Toolgate with the stored ones, or stores them. Returns false if a figure rose.
pub(super) fn check_baseline(counts: &[CallCounts], update: bool) -> anyhow::Result<bool> {
    let measured: Vec<_> = counts
        .iter()
        .filter(|counts| counts.contender == ContenderKind::Toolgate(LogLimit::Whole).name())
        .filter_map(|counts| {
            let (instructions, allocations) =
                (counts.instructions.clone().ok()?, counts.allocations.clone().ok()?);
            Some((counts.case, BaselineCase { instructions, allocations }))
        })
        .collect();
    let stored = Baseline::read()?;
    if update {
        stored.update(&measured)?;
        println!("  next          commit {}, with the reason for each change in the message", baseline::FILE);
        return Ok(true);
    }
    let comparison = stored.compare(&measured);
    comparison.notes.iter().for_each(|note| println!("  note          {note}"));
    comparison.rises.iter().for_each(|rise| println!("  error         {rise}"));
    if !comparison.rises.is_empty() {
        println!(
            "  next          find the cause in the list of functions; if the rise is intended, run `cargo xtask bench \
             counts --update` and commit {}",
            baseline::FILE
        );
    } else if !comparison.notes.is_empty() {
        println!("  next          `cargo xtask bench counts --update`, then commit {}", baseline::FILE);
    } else {
        println!(
            "  counts        no figure rose by more than 10 % against {}: nothing to do",
            baseline::FILE
        );
    }
    Ok(comparison.rises.is_empty())
}

/// Counts one case of one contender.
pub(super) fn measure(
    setup: &BenchSetup<'_>,
    case: CountCase,
    kind: ContenderKind,
) -> anyhow::Result<CallCounts> {
    let folder = setup.folder.join(format!("counts-{}-{}", kind.name(), case.name).replace(' ', "-"));
    fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let setup = BenchSetup { folder: &folder, ..*setup };
    let reason = |error: anyhow::Error| format!("{error:#}");
    let profile = profile(&setup, case, kind).map_err(reason);
    let system_calls = system_calls(&setup, case, kind).map_err(reason);
    let of_profile = |figure: fn(&CallProfile) -> f64| profile.as_ref().map(figure).map_err(Clone::clone);
    Ok(CallCounts {
        contender: kind.name(),
        case: case.name,
        instructions: of_profile(|profile| profile.instructions),
        sha256_instructions: of_profile(|profile| profile.sha256_instructions),
        allocations: of_profile(|profile| profile.allocations),
        system_calls: system_calls
            .as_ref()
            .map(|calls| calls.iter().map(|(_, count)| count).sum())
            .map_err(Clone::clone),
        context_switches: context_switches(&setup, case, kind).map_err(reason),
        functions: profile.map(|profile| profile.functions).unwrap_or_default(),
        system_calls_by_name: system_calls.unwrap_or_default(),
    })
}

fn profile(setup: &BenchSetup<'_>, case: CountCase, kind: ContenderKind) -> anyhow::Result<CallProfile> {
    let mut profiles = Vec::new();
    for (run, calls) in [("fewer", case.fewer), ("more", case.fewer + case.additional)] {
        let folder = run_folder(setup, &format!("callgrind-{run}"))?;
        let file = folder.join("callgrind.out");
        let instrument = instrument::callgrind(&file)?;
        run_calls(
            &BenchSetup { folder: &folder, instrument: Some(&instrument), ..*setup },
            case,
            kind,
            calls,
        )?;
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        profiles.push(Profile::parse(&text));
        let kept = setup.built.results.join(format!("callgrind.{}.{}.out", kind.name(), case.name));
        fs::write(&kept, text).with_context(|| format!("cannot write {}", kept.display()))?;
    }
    let [fewer, more] = &profiles[..] else { bail!("two runs make two profiles") };
    Ok(more.per_call(fewer, case.additional))
}

fn system_calls(
    setup: &BenchSetup<'_>,
    case: CountCase,
    kind: ContenderKind,
) -> anyhow::Result<Vec<(String, f64)>> {
    let mut summaries = Vec::new();
    for (run, calls) in [("fewer", case.fewer), ("more", case.fewer + case.additional)] {
        let folder = run_folder(setup, &format!("strace-{run}"))?;
        let file = folder.join("strace.out");
        let instrument = instrument::strace(&file)?;
        run_calls(
            &BenchSetup { folder: &folder, instrument: Some(&instrument), ..*setup },
            case,
            kind,
            calls,
        )?;
        summaries.push(read_summary(&file)?);
    }
    let [fewer, more] = &summaries[..] else { bail!("two runs make two summaries") };
    Ok(more.per_call(fewer, case.additional))
}

/// Waits for the summary: strace writes it after its program has ended.
fn read_summary(file: &Path) -> anyhow::Result<SyscallSummary> {
    let start = Instant::now();
    while start.elapsed() < STOP_LIMIT {
        let text = fs::read_to_string(file).unwrap_or_default();
        if let Some(summary) = SyscallSummary::parse(&text) {
            return Ok(summary);
        }
        thread::sleep(Duration::from_millis(20));
    }
    bail!("strace wrote no summary to {}", file.display())
}

fn context_switches(setup: &BenchSetup<'_>, case: CountCase, kind: ContenderKind) -> anyhow::Result<f64> {
    let folder = run_folder(setup, "switches")?;
    let setup = BenchSetup { folder: &folder, ..*setup };
    let upstream = contender::upstream(&setup)?;
    let contender = contender::start(&setup, upstream.port, kind)?;
    send_calls(&setup, case, &contender, u64::from(CONNECTIONS))?;
    let before = contender.context_switches().context("no /proc on this system")?;
    send_calls(&setup, case, &contender, case.uninstrumented)?;
    let after = contender.context_switches().context("no /proc on this system")?;
    Ok(after.saturating_sub(before) as f64 / case.uninstrumented as f64)
}

fn run_folder(setup: &BenchSetup<'_>, name: &str) -> anyhow::Result<std::path::PathBuf> {
    let folder = setup.folder.join(name);
    fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Starts a contender, makes this number of calls and ends it.
fn run_calls(setup: &BenchSetup<'_>, case: CountCase, kind: ContenderKind, calls: u64) -> anyhow::Result<()> {
    let upstream = contender::upstream(setup)?;
    let contender = contender::start(setup, upstream.port, kind)?;
    send_calls(setup, case, &contender, calls)?;
    contender.stop(STOP_LIMIT)
}

fn send_calls(
    setup: &BenchSetup<'_>,
    case: CountCase,
    contender: &Contender,
    calls: u64,
) -> anyhow::Result<()> {
    let load = LoadCase {
        tool: case.tool,
        name: case.name,
        legacy: case.legacy,
        connections: CONNECTIONS,
        turns: 1,
        measure_ms: 0,
    };
    let result = super::run_load_with_calls(setup, load, contender, calls)?;
    if let Some(error) = result.error {
        bail!("a call failed: {error}");
    }
    anyhow::ensure!(result.calls == calls, "{} of {calls} calls were made", result.calls);
    Ok(())
}

/// Prints the counts of all contenders and cases.
pub(super) fn print_table(counts: &[CallCounts]) {
    println!(
        "  {:<10} {:<10} {:>12} {:>12} {:>12} {:>12} {:>12}   per call, {CONNECTIONS} connections",
        "", "", "instructions", "of SHA-256", "allocations", "system calls", "ctx switches"
    );
    for counts in counts {
        let figures = [
            show(&counts.instructions, 0),
            show(&counts.sha256_instructions, 0),
            show(&counts.allocations, 1),
            show(&counts.system_calls, 2),
            show(&counts.context_switches, 2),
        ];
        let mut row = format!("  {:<10} {:<10}", counts.case, counts.contender);
        figures.iter().for_each(|figure| {
            let _ = write!(row, " {figure:>12}");
        });
        println!("{row}");
        let mut reasons: Vec<_> = [&counts.instructions, &counts.system_calls, &counts.context_switches]
            .into_iter()
            .filter_map(|count| count.as_ref().err())
            .collect();
        reasons.dedup();
        reasons.iter().for_each(|reason| println!("    not measured: {reason}"));
    }
    println!(
        "    instructions: user mode, without those of SHA-256: Valgrind has no hardware support for it"
    );
}

fn show(count: &Count, decimals: usize) -> String {
    count.as_ref().map_or_else(|_| "–".to_owned(), |count| format!("{count:.decimals$}"))
}

impl CallCounts {
    /// Prints the most expensive functions and the system calls.
    fn print_details(&self) {
        let all: f64 = self.functions.iter().map(|(_, cost)| cost).sum();
        println!("  {}: instructions per call of the functions themselves, {all:.0} in all", self.case);
        for (name, cost) in self.functions.iter().take(TOP_FUNCTIONS) {
            println!("    {cost:>9.0} {:>5.1} %  {}", cost / all * 100.0, truncate(name));
        }
        let calls = self.system_calls_by_name.iter().filter(|(_, count)| *count >= 0.005);
        let calls: Vec<_> = calls.map(|(name, count)| format!("{name} {count:.2}")).collect();
        println!("    system calls: {}", calls.join(", "));
    }
}

fn truncate(name: &str) -> String {
    match name.char_indices().nth(NAME_LENGTH) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}
