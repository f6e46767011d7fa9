//! The server side of the suite: Toolgate in front of a server with all fixtures of the suite, or of the everything-server
//! of an SDK, and an unrelated server beside it, for each pair of client revision and server.
//!
//! A scenario that passes when the suite talks to the fixture server directly must also pass through Toolgate, for
//! every revision and transport of the server behind it, and through a profile. Invariant: each pair has its own
//! processes, so pairs do not affect each other.

mod pair;
mod report;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, bail};
use clap::ValueEnum;

use super::ConformanceOptions;
use crate::metadata::Metadata;
use crate::{peers, program};
use report::SuiteReport;

/// Transport and protocol revision of the server behind Toolgate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Fixture {
    Http,
    HttpLegacy,
    Stdio,
    StdioLegacy,
    Sse,
    /// The everything-server of the Python SDK.
    PythonSdk,
    /// A server on the TypeScript SDK.
    TypescriptSdk,
}

/// Protocol revision of the client, or the version of the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Suite {
    #[value(name = "2025-11-25")]
    Legacy,
    #[value(name = "2026-07-28")]
    Modern,
    #[value(name = "0.1.16")]
    First,
}

impl Fixture {
    const ALL: [Self; 7] = [
        Self::Http,
        Self::HttpLegacy,
        Self::Stdio,
        Self::StdioLegacy,
        Self::Sse,
        Self::PythonSdk,
        Self::TypescriptSdk,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::HttpLegacy => "http-legacy",
            Self::Stdio => "stdio",
            Self::StdioLegacy => "stdio-legacy",
            Self::Sse => "sse",
            Self::PythonSdk => "python-sdk",
            Self::TypescriptSdk => "typescript-sdk",
        }
    }

    /// The server whose direct run is the reference: the same one, if others wrote it.
    fn reference(self) -> Self {
        if self.is_of_others() { self } else { Self::Http }
    }

    /// Returns true for a server that others wrote.
    fn is_of_others(self) -> bool {
        matches!(self, Self::PythonSdk | Self::TypescriptSdk)
    }

    fn is_legacy(self) -> bool {
        matches!(self, Self::HttpLegacy | Self::StdioLegacy | Self::Sse)
    }
}

impl Suite {
    const ALL: [Self; 3] = [Self::Legacy, Self::Modern, Self::First];

    fn name(self) -> &'static str {
        match self {
            Self::Legacy => "2025-11-25",
            Self::Modern => "2026-07-28",
            Self::First => "0.1.16",
        }
    }

    /// Number of scored scenarios.
    fn scored(self) -> usize {
        match self {
            Self::Legacy | Self::First => 30,
            Self::Modern => 37,
        }
    }
}

/// Scenarios that no gateway can pass, with the reason.
struct ExpectedFailure {
    /// The servers behind Toolgate for which the scenarios fail.
    applies_to: fn(Fixture) -> bool,
    suite: Suite,
    scenarios: &'static [&'static str],
    reason: &'static str,
}

/// All expected failures. One that passes is reported, so that the list stays correct.
const EXPECTED_FAILURES: [ExpectedFailure; 2] = [
    ExpectedFailure {
        applies_to: Fixture::is_legacy,
        suite: Suite::Modern,
        scenarios: &[
            "tasks-lifecycle",
            "tasks-capability-negotiation",
            "tasks-wire-fields",
            "tasks-request-state-removal",
            "tasks-mrtr-input",
            "tasks-request-headers",
            "tasks-dispatch-and-envelope",
            "tasks-required-task-error",
            "tasks-mrtr-composition",
        ],
        reason: "servers of older revisions do not have the tasks extension",
    },
    ExpectedFailure {
        applies_to: Fixture::is_legacy,
        suite: Suite::Modern,
        scenarios: &["input-required-result-basic-elicitation", "input-required-result-ignore-extra-params"],
        reason: "the suite expects the id that the fixture gives its question, and an older server has no such id",
    },
];

/// The path from the suite to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Route {
    /// No gateway.
    Direct,
    /// Toolgate, at `/mcp`.
    Gateway,
    /// Toolgate, at `/mcp/{profile}`; the profile has everything of the fixture server, and nothing else.
    Profile,
}

impl Route {
    fn name(self) -> &'static str {
        match self {
            Self::Direct => "directly",
            Self::Gateway => "through Toolgate",
            Self::Profile => "through a profile",
        }
    }
}

/// One run of one suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SuiteRun {
    suite: Suite,
    fixture: Fixture,
    route: Route,
}

/// Folders of a run.
struct SuitePaths {
    /// Folder of the executables.
    debug: PathBuf,
    /// Folder of the logs.
    logs: PathBuf,
}

/// Runs `cargo xtask conformance --server`. Returns true if every scenario that passes directly passes.
pub(crate) fn run(options: &ConformanceOptions) -> anyhow::Result<bool> {
    let runs = runs(options)?;
    let paths = prepare()?;
    let mut reports = run_all(&runs, options.scenario.as_deref(), &paths)?;
    repeat_failed(&runs, &mut reports, options.scenario.as_deref(), &paths)?;
    let mut good = true;
    println!("{:<12} {:<14} {:<18} passed of scored, of others", "suite", "server", "");
    for (run, report) in &reports {
        let (suite, fixture, route) = (run.suite.name(), run.fixture.name(), run.route.name());
        println!("{suite:<12} {fixture:<14} {route:<18} {}", report.figures());
        let problems = problems_of(*run, report, &reports);
        for problem in &problems {
            println!("    {problem}");
        }
        good &= problems.is_empty();
        if run.route == Route::Direct && run.fixture == Fixture::Http && options.scenario.is_none() {
            let (scored, expected) = (report.scored(), run.suite.scored());
            if scored != expected {
                bail!("{} has {scored} scored scenarios, expected {expected}", run.suite.name());
            }
        }
    }
    println!("the logs of the checks are in {}", paths.logs.display());
    Ok(good)
}

/// Lists the runs. The direct run of the fixture with all revisions is the reference for the others.
fn runs(options: &ConformanceOptions) -> anyhow::Result<Vec<SuiteRun>> {
    let fixtures = options.fixture.map_or(Fixture::ALL.to_vec(), |fixture| vec![fixture]);
    let suites = options.suite.map_or(Suite::ALL.to_vec(), |suite| vec![suite]);
    let mut runs = Vec::new();
    for suite in suites {
        let direct = |fixture| SuiteRun { suite, fixture, route: Route::Direct };
        if !options.direct {
            // A suite and a server without a common revision cannot talk without Toolgate.
            let is_reachable =
                |fixture: &Fixture| suite != Suite::Modern || *fixture != Fixture::TypescriptSdk;
            let fixtures: Vec<_> = fixtures.iter().copied().filter(is_reachable).collect();
            let mut references: Vec<_> = fixtures.iter().map(|fixture| fixture.reference()).collect();
            references.sort_unstable();
            references.dedup();
            runs.extend(references.into_iter().map(direct));
            runs.extend(fixtures.iter().map(|fixture| SuiteRun {
                suite,
                fixture: *fixture,
                route: Route::Gateway,
            }));
            // Profiles work alike for all servers, so one server is enough for each revision.
            if suite != Suite::First && fixtures.contains(&Fixture::Http) {
                runs.push(SuiteRun { suite, fixture: Fixture::Http, route: Route::Profile });
            }
            continue;
        }
        // A client and a server without a common revision cannot talk.
        let reachable: &[_] = if suite == Suite::Modern {
            &[Fixture::Http, Fixture::PythonSdk]
        } else {
            &[Fixture::Http, Fixture::HttpLegacy, Fixture::PythonSdk, Fixture::TypescriptSdk]
        };
        runs.extend(reachable.iter().copied().filter(|fixture| fixtures.contains(fixture)).map(direct));
    }
    if runs.is_empty() {
        bail!("this suite cannot talk to that server directly\nhint: omit `--direct`");
    }
    Ok(runs)
}

/// Builds the executables and clears the logs.
fn prepare() -> anyhow::Result<SuitePaths> {
    if !peers::are_installed() {
        bail!("the suite is not installed\nhint: `cargo xtask test --only peers` installs it");
    }
    // With the arguments of the integration tests, so that cargo has already built them by now.
    let built = program::capture(program::cargo(["test", "--workspace", "--test", "it", "--no-run"]))?;
    if !built.success {
        bail!("{}", built.output);
    }
    let target = Metadata::read(Path::new("Cargo.toml"))?.target_directory;
    let logs = target.join("conformance/server");
    if logs.exists() {
        std::fs::remove_dir_all(&logs).with_context(|| format!("cannot remove {}", logs.display()))?;
    }
    Ok(SuitePaths { debug: target.join("debug"), logs })
}

/// Runs several suites at a time: a suite mostly waits.
fn run_all(
    runs: &[SuiteRun],
    scenario: Option<&str>,
    paths: &SuitePaths,
) -> anyhow::Result<BTreeMap<SuiteRun, SuiteReport>> {
    let queue: Mutex<VecDeque<SuiteRun>> = Mutex::new(runs.iter().copied().collect());
    let reports = Mutex::new(Ok(BTreeMap::new()));
    let workers = thread::available_parallelism().map_or(2, |cores| cores.get() * 2);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let next = || queue.lock().expect("no holder panics").pop_front();
                while let Some(run) = next() {
                    let report = pair::run(run, scenario, paths);
                    let mut reports = reports.lock().expect("no holder panics");
                    match (&mut *reports, report) {
                        (Ok(reports), Ok(report)) => drop(reports.insert(run, report)),
                        (Ok(_), Err(error)) => *reports = Err(error),
                        (Err(_), _) => return,
                    }
                }
            });
        }
    });
    reports.into_inner().expect("no holder panics")
}

/// Repeats runs with problems, one at a time: the suite has time limits of its own, and several suites at once on a busy
/// machine miss them. A problem counts if it is there again.
fn repeat_failed(
    runs: &[SuiteRun],
    reports: &mut BTreeMap<SuiteRun, SuiteReport>,
    scenario: Option<&str>,
    paths: &SuitePaths,
) -> anyhow::Result<()> {
    // The direct runs come first in each suite; the others are compared with them.
    for run in runs {
        let Some(report) = reports.get(run) else { continue };
        let problems = problems_of(*run, report, reports);
        if problems.is_empty() {
            continue;
        }
        let (suite, fixture, route) = (run.suite.name(), run.fixture.name(), run.route.name());
        println!("{suite} {fixture} {route} is repeated alone: {}", problems.join("; "));
        let repeated = SuitePaths { debug: paths.debug.clone(), logs: paths.logs.join("repeated") };
        reports.insert(*run, pair::run(*run, scenario, &repeated)?);
    }
    Ok(())
}

/// Lists the problems of a run: for a direct run its failures, otherwise the differences from the direct run.
fn problems_of(
    run: SuiteRun,
    report: &SuiteReport,
    reports: &BTreeMap<SuiteRun, SuiteReport>,
) -> Vec<String> {
    let reference = SuiteRun { suite: run.suite, fixture: run.fixture.reference(), route: Route::Direct };
    match reports.get(&reference) {
        Some(reference) if run.route != Route::Direct => problems(run, report, reference),
        // A server of others is as it is: the runs through Toolgate are compared with it.
        _ if run.fixture.is_of_others() => Vec::new(),
        _ => report.failures().collect(),
    }
}

/// Lists scenarios that pass directly and fail through Toolgate, and expected failures that pass.
fn problems(run: SuiteRun, report: &SuiteReport, reference: &SuiteReport) -> Vec<String> {
    let expected_failure = |scenario: &str| {
        let mut rows =
            EXPECTED_FAILURES.iter().filter(|row| (row.applies_to)(run.fixture) && row.suite == run.suite);
        rows.find(|row| row.scenarios.contains(&scenario)).map(|row| row.reason)
    };
    let mut problems = Vec::new();
    for scenario in reference.passed() {
        match (expected_failure(scenario), report.failure(scenario)) {
            (None, Some(why)) => problems.push(format!("{scenario}: {why}")),
            (Some(reason), None) => problems.push(format!("{scenario} passes, but is listed: {reason}")),
            _ => {}
        }
    }
    problems
}

#[test]
fn reports_scenarios_that_pass_directly_and_fail_through_toolgate() {
    let report = |results: &[(&str, &str)]| SuiteReport::of(results);
    let reference = report(&[("ping", ""), ("tasks-lifecycle", ""), ("caching", "is broken")]);
    let check = |fixture, results: &[(&str, &str)], expected: &[&str]| {
        let run = SuiteRun { suite: Suite::Modern, fixture, route: Route::Gateway };
        assert_eq!(problems(run, &report(results), &reference), expected);
    };
    let all = [("ping", ""), ("tasks-lifecycle", ""), ("caching", "is broken")];
    check(Fixture::Http, &all, &[]);
    check(Fixture::Http, &[("ping", "no pong")], &["ping: no pong", "tasks-lifecycle: did not run"]);
    check(Fixture::Sse, &[("ping", ""), ("tasks-lifecycle", "what?")], &[]);
    let listed = format!("tasks-lifecycle passes, but is listed: {}", EXPECTED_FAILURES[0].reason);
    check(Fixture::Sse, &all, &[&listed]);
}

#[test]
fn each_revision_runs_through_a_profile() {
    let through = |options: &ConformanceOptions| {
        let mut runs = runs(options).expect("there is something to run");
        runs.retain(|run| run.route == Route::Profile);
        runs.iter().map(|run| (run.suite, run.fixture)).collect::<Vec<_>>()
    };
    let all = [(Suite::Legacy, Fixture::Http), (Suite::Modern, Fixture::Http)];
    assert_eq!(through(&ConformanceOptions::default()), all);
    assert_eq!(
        through(&ConformanceOptions { fixture: Some(Fixture::Sse), ..ConformanceOptions::default() }),
        []
    );
    assert_eq!(
        through(&ConformanceOptions { suite: Some(Suite::Modern), ..ConformanceOptions::default() }),
        all[1..]
    );
}
