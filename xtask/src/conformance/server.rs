//! The server side of the suite: Toolgate in front of a server with all the suite's fixtures, and an unrelated
//! one beside it, for each pair of client era and server.
//!
//! What counts is the difference: a scenario that the fixture server passes when the suite talks to it directly
//! must pass through Toolgate too, whatever revision and transport the server behind it has, and through a profile.
//! Invariant: a pair has processes of its own, so no pair sees what another one changed.

mod pair;
mod report;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, bail};
use clap::ValueEnum;

use super::Options;
use crate::metadata::Metadata;
use crate::{peers, program};
use report::Report;

/// How the server behind is reached, and what it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Fixture {
    Http,
    HttpLegacy,
    Stdio,
    StdioLegacy,
    Sse,
}

/// What the client speaks, and which suite says so.
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
    const ALL: [Self; 5] = [Self::Http, Self::HttpLegacy, Self::Stdio, Self::StdioLegacy, Self::Sse];

    fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::HttpLegacy => "http-legacy",
            Self::Stdio => "stdio",
            Self::StdioLegacy => "stdio-legacy",
            Self::Sse => "sse",
        }
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

    /// How many scenarios count.
    fn scored(self) -> usize {
        match self {
            Self::Legacy | Self::First => 30,
            Self::Modern => 37,
        }
    }
}

/// Scenarios that no gateway can pass, with the reason.
struct Impossible {
    /// The servers behind it that this is about.
    behind: fn(Fixture) -> bool,
    suite: Suite,
    scenarios: &'static [&'static str],
    reason: &'static str,
}

/// All of them. One that passes all the same is reported, so that the list does not grow old.
const IMPOSSIBLE: [Impossible; 2] = [
    Impossible {
        behind: Fixture::is_legacy,
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
        reason: "a server of the older revisions has no tasks of the extension",
    },
    Impossible {
        behind: Fixture::is_legacy,
        suite: Suite::Modern,
        scenarios: &["input-required-result-basic-elicitation", "input-required-result-ignore-extra-params"],
        reason: "the suite looks for the name that the fixture gives its question, and an older server gives it none",
    },
];

/// What is between the suite and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// Nothing.
    Direct,
    /// Toolgate, at `/mcp`.
    Through,
    /// Toolgate, at `/mcp/{profile}`; the profile has all that the fixture server offers, and nothing else.
    Profile,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Direct => "directly",
            Self::Through => "through Toolgate",
            Self::Profile => "through a profile",
        }
    }
}

/// One run of one suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    suite: Suite,
    fixture: Fixture,
    way: Way,
}

/// Where things are.
struct Places {
    /// The executables.
    debug: PathBuf,
    /// What the runs leave behind.
    logs: PathBuf,
}

/// `cargo xtask conformance --server`. Says whether all that passes directly passes.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let runs = runs(options)?;
    let places = prepare()?;
    let reports = run_all(&runs, options.scenario.as_deref(), &places)?;
    let reference = |suite| reports.get(&Run { suite, fixture: Fixture::Http, way: Way::Direct });
    let mut good = true;
    println!("{:<12} {:<14} {:<18} passed of scored, of others", "suite", "server", "");
    for (run, report) in &reports {
        let (suite, fixture, way) = (run.suite.name(), run.fixture.name(), run.way.name());
        println!("{suite:<12} {fixture:<14} {way:<18} {}", report.figures());
        let complaints = match reference(run.suite) {
            Some(reference) if run.way != Way::Direct => complaints(*run, report, reference),
            _ => report.failures().collect(),
        };
        for complaint in &complaints {
            println!("    {complaint}");
        }
        good &= complaints.is_empty();
        if run.way == Way::Direct && run.fixture == Fixture::Http && options.scenario.is_none() {
            let (scored, expected) = (report.scored(), run.suite.scored());
            if scored != expected {
                bail!("{scored} scenarios of {} count, and {expected} are known", run.suite.name());
            }
        }
    }
    println!("what each check saw is in {}", places.logs.display());
    Ok(good)
}

/// What to run: the direct run of the fixture that speaks all is what the others are measured by.
fn runs(options: &Options) -> anyhow::Result<Vec<Run>> {
    let fixtures = options.fixture.map_or(Fixture::ALL.to_vec(), |fixture| vec![fixture]);
    let suites = options.suite.map_or(Suite::ALL.to_vec(), |suite| vec![suite]);
    let mut runs = Vec::new();
    for suite in suites {
        let direct = |fixture| Run { suite, fixture, way: Way::Direct };
        if !options.direct {
            runs.push(direct(Fixture::Http));
            runs.extend(fixtures.iter().map(|fixture| Run { suite, fixture: *fixture, way: Way::Through }));
            // A profile stands before all servers alike: one of them says what it does to each revision.
            if suite != Suite::First && fixtures.contains(&Fixture::Http) {
                runs.push(Run { suite, fixture: Fixture::Http, way: Way::Profile });
            }
            continue;
        }
        // Two that speak no revision in common have nothing to say to each other.
        let reachable: &[_] =
            if suite == Suite::Modern { &[Fixture::Http] } else { &[Fixture::Http, Fixture::HttpLegacy] };
        runs.extend(reachable.iter().copied().filter(|fixture| fixtures.contains(fixture)).map(direct));
    }
    if runs.is_empty() {
        bail!("this suite cannot talk to that server directly\nhint: leave `--direct` out");
    }
    Ok(runs)
}

/// Builds what is needed, and makes room.
fn prepare() -> anyhow::Result<Places> {
    if !peers::are_installed() {
        bail!("the suite is not installed\nhint: `cargo xtask test --only peers` installs it");
    }
    // Built as for the tests of the executables, which cargo has done by now.
    let built = program::capture(program::cargo(["test", "--workspace", "--test", "it", "--no-run"]))?;
    if !built.success {
        bail!("{}", built.output);
    }
    let target = Metadata::read(Path::new("Cargo.toml"))?.target_directory;
    let logs = target.join("conformance/server");
    if logs.exists() {
        std::fs::remove_dir_all(&logs).with_context(|| format!("cannot remove {}", logs.display()))?;
    }
    Ok(Places { debug: target.join("debug"), logs })
}

/// Runs all, some at a time: a suite mostly waits.
fn run_all(runs: &[Run], scenario: Option<&str>, places: &Places) -> anyhow::Result<BTreeMap<Run, Report>> {
    let waiting: Mutex<VecDeque<Run>> = Mutex::new(runs.iter().copied().collect());
    let reports = Mutex::new(Ok(BTreeMap::new()));
    let workers = thread::available_parallelism().map_or(2, |cores| cores.get() * 2);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let next = || waiting.lock().expect("nobody panics with it").pop_front();
                while let Some(run) = next() {
                    let report = pair::run(run, scenario, places);
                    let mut reports = reports.lock().expect("nobody panics with it");
                    match (&mut *reports, report) {
                        (Ok(reports), Ok(report)) => drop(reports.insert(run, report)),
                        (Ok(_), Err(error)) => *reports = Err(error),
                        (Err(_), _) => return,
                    }
                }
            });
        }
    });
    reports.into_inner().expect("nobody panics with it")
}

/// What is worse through Toolgate than directly, and what is better than it can be.
fn complaints(run: Run, report: &Report, reference: &Report) -> Vec<String> {
    let impossible = |scenario: &str| {
        let mut rows = IMPOSSIBLE.iter().filter(|row| (row.behind)(run.fixture) && row.suite == run.suite);
        rows.find(|row| row.scenarios.contains(&scenario)).map(|row| row.reason)
    };
    let mut complaints = Vec::new();
    for scenario in reference.passed() {
        match (impossible(scenario), report.failure(scenario)) {
            (None, Some(why)) => complaints.push(format!("{scenario}: {why}")),
            (Some(reason), None) => complaints.push(format!("{scenario} passes, but is listed: {reason}")),
            _ => {}
        }
    }
    complaints
}

#[test]
fn what_passes_directly_and_not_through_is_told() {
    let report = |results: &[(&str, &str)]| Report::of(results);
    let reference = report(&[("ping", ""), ("tasks-lifecycle", ""), ("caching", "is broken")]);
    let check = |fixture, results: &[(&str, &str)], expected: &[&str]| {
        let run = Run { suite: Suite::Modern, fixture, way: Way::Through };
        assert_eq!(complaints(run, &report(results), &reference), expected);
    };
    let all = [("ping", ""), ("tasks-lifecycle", ""), ("caching", "is broken")];
    check(Fixture::Http, &all, &[]);
    check(Fixture::Http, &[("ping", "no pong")], &["ping: no pong", "tasks-lifecycle: did not run"]);
    check(Fixture::Sse, &[("ping", ""), ("tasks-lifecycle", "what?")], &[]);
    let listed = format!("tasks-lifecycle passes, but is listed: {}", IMPOSSIBLE[0].reason);
    check(Fixture::Sse, &all, &[&listed]);
}

#[test]
fn each_revision_is_looked_at_through_a_profile() {
    let through = |options: &Options| {
        let mut runs = runs(options).expect("there is something to run");
        runs.retain(|run| run.way == Way::Profile);
        runs.iter().map(|run| (run.suite, run.fixture)).collect::<Vec<_>>()
    };
    let all = [(Suite::Legacy, Fixture::Http), (Suite::Modern, Fixture::Http)];
    assert_eq!(through(&Options::default()), all);
    assert_eq!(through(&Options { fixture: Some(Fixture::Sse), ..Options::default() }), []);
    assert_eq!(through(&Options { suite: Some(Suite::Modern), ..Options::default() }), all[1..]);
}
