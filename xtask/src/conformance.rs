//! The official conformance suite of MCP, with `toolgate` as the client under test; as the server in [`server`].
//!
//! The suite is installed with the peers, at a fixed version. Invariant: it passes only if every scored scenario of a
//! revision passes, and if their number is the expected one; a suite that runs nothing must not pass.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::metadata::Metadata;
use crate::step::{Console, Outcome};
use crate::{peers, program};

pub(crate) mod server;

/// `cargo xtask conformance`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ConformanceOptions {
    /// Test Toolgate as the server, in front of one with all fixtures of the suite. Default: as the client.
    #[arg(long)]
    server: bool,
    /// Use only this server behind Toolgate.
    #[arg(long, requires = "server")]
    fixture: Option<server::Fixture>,
    /// Run only this suite.
    #[arg(long, requires = "server")]
    suite: Option<server::Suite>,
    /// Run only this scenario.
    #[arg(long, requires = "server", value_name = "NAME")]
    scenario: Option<String>,
    /// Test the fixture server itself, without Toolgate.
    #[arg(long, requires = "server")]
    direct: bool,
}

/// Runs the command. Returns true if the suite passed.
pub(crate) fn run(options: &ConformanceOptions) -> anyhow::Result<bool> {
    if options.server {
        return server::run(options);
    }
    match step(&mut Console::stdout())? {
        Outcome::Failed(output) => {
            println!("{output}");
            Ok(false)
        }
        Outcome::Passed => Ok(true),
        Outcome::PassedWith(figures) => {
            println!("{figures}");
            Ok(true)
        }
    }
}

/// Revisions with scored client scenarios, each with its number of scenarios.
const SUITES: [(&str, usize); 2] = [("2025-11-25", 18), ("2026-07-28", 32)];

/// Scenarios that the suite does not score and that must pass, too.
const REQUIRED_UNSCORED: [&str; 5] = [
    "auth/dpop",
    "auth/dpop-nonce",
    "auth/enterprise-managed-authorization",
    "auth/wif-jwt-bearer",
    "json-schema-2020-12-preservation",
];

/// The result of the suite.
#[derive(Debug, PartialEq, Eq)]
struct SuiteScore {
    /// Number of scored scenarios.
    scored: usize,
    /// Scored and [required](REQUIRED_UNSCORED) scenarios that failed.
    failed: Vec<String>,
    /// Required scenarios that passed.
    required: usize,
}

/// The conformance step of `cargo xtask test`.
pub(crate) fn step(_: &mut Console<impl Write>) -> anyhow::Result<Outcome> {
    if !peers::are_installed() {
        bail!("the suite is not installed\nhint: `cargo xtask test --only peers` installs it");
    }
    // With the arguments of the integration tests, so that cargo has already built it by now.
    let built = program::capture(program::cargo(["test", "--workspace", "--test", "it", "--no-run"]))?;
    if !built.success {
        return Ok(Outcome::Failed(built.output));
    }
    let target = Metadata::read(Path::new("Cargo.toml"))?.target_directory;
    let mut figures = Vec::new();
    for (revision, expected) in SUITES {
        let logs = target.join("conformance").join(revision);
        match fs::remove_dir_all(&logs) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", logs.display()));
            }
            _ => {}
        }
        let run = program::capture(command(revision, &target, &logs))?;
        let SuiteScore { scored, failed, required } = score(&run.output);
        let is_complete = scored == expected && required == REQUIRED_UNSCORED.len();
        if !run.success || !is_complete || !failed.is_empty() {
            // Without a summary the output has the reason; with one it is too long to show.
            let output = if scored == 0 { run.output } else { String::new() };
            let passed = (scored + REQUIRED_UNSCORED.len()).saturating_sub(failed.len());
            let expected = expected + REQUIRED_UNSCORED.len();
            let which: String = failed.iter().map(|name| format!("\nfailed: {name}")).collect();
            return Ok(Outcome::Failed(format!(
                "{output}{passed} of {expected} scored and required scenarios of {revision} passed{which}\n\
                 hint: the logs of the scenarios are in {}",
                logs.display()
            )));
        }
        figures.push(format!("{scored} of {expected} of {revision}, and {required} unscored"));
    }
    if !server::run(&ConformanceOptions::default())? {
        return Ok(Outcome::Failed(
            "the server side of the suite failed; the table above lists the failures".to_owned(),
        ));
    }
    Ok(Outcome::PassedWith(format!("scored scenarios: {}", figures.join(", "))))
}

/// Runs all scenarios of a revision.
fn command(revision: &str, target: &Path, logs: &Path) -> Command {
    let installed = peers::folder().join("npm/node_modules");
    let client = program::root().join("crates/toolgate/tests/conformance/client.sh");
    let mut command = Command::new(installed.join("node/bin/node"));
    command
        .arg(installed.join("@modelcontextprotocol/conformance/dist/index.js"))
        .args(["client", "--requirements", revision, "--command"])
        .arg(client)
        .arg("--output-dir")
        .arg(logs)
        .env("TOOLGATE", target.join("debug/toolgate"))
        .current_dir(program::root());
    command
}

/// Parses the summary: a line per scenario such as `✓ tools_call: 2 passed, 0 failed`, then the unscored scenarios,
/// for example `  ✗ auth/dpop (extension)`.
fn score(output: &str) -> SuiteScore {
    let summary = output.split("=== SUITE SUMMARY ===").nth(1).unwrap_or_default();
    let (all, rest) = summary.split_once("Not scored for").unwrap_or((summary, ""));
    let marked = |line: &str| line.trim_start().strip_prefix(['✓', '✗']).map(|line| line.trim().to_owned());
    let unscored: Vec<String> = rest
        .lines()
        .filter_map(marked)
        .filter_map(|line| line.rsplit_once(" (").map(|(name, _)| name.to_owned()))
        .collect();
    let mut score = SuiteScore { scored: 0, failed: Vec::new(), required: 0 };
    for line in all.lines().filter_map(marked) {
        let Some((name, counts)) = line.rsplit_once(": ") else { continue };
        let has_passed = counts.split(", ").any(|count| count == "0 failed");
        let is_required = REQUIRED_UNSCORED.contains(&name);
        match unscored.iter().any(|unscored| unscored == name) {
            true if is_required => score.required += usize::from(has_passed),
            true => continue,
            false => score.scored += 1,
        }
        if !has_passed {
            score.failed.push(name.to_owned());
        }
    }
    score
}

#[test]
fn counts_scored_and_failed_scenarios() {
    let check = |output: &str, scored, failed: &[&str], required| {
        let failed = failed.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(score(output), SuiteScore { scored, failed, required }, "{output}");
    };
    let summary = "✗ noise: 0 passed, 1 failed\n=== SUITE SUMMARY ===\n\n\
        ✓ tools_call: 2 passed, 0 failed\n\
        ✗ request-metadata: 4 passed, 0 failed, 1 warnings\n\
        ✗ auth/scope-step-up: 3 passed, 10 failed\n\
        ✗ auth/dpop: 9 passed, 3 failed\n\
        ✓ auth/dpop-nonce: 9 passed, 0 failed\n\
        ✗ auth/other: 0 passed, 3 failed\n\n\
        Total: 18 passed, 13 failed, 1 warnings\n\n\
        Not scored for 2026-07-28: 1 scenario(s) run, 1 failing. These do not affect conformance.\n  \
        ✗ auth/dpop (extension)\n  \
        ✓ auth/dpop-nonce (extension)\n  \
        ✗ auth/other (extension)\n";
    check(summary, 3, &["auth/scope-step-up", "auth/dpop"], 1);
    check("=== SUITE SUMMARY ===\n✓ initialize: 1 passed, 0 failed\n", 1, &[], 0);
    check("Error: no such revision\n", 0, &[], 0);
}
