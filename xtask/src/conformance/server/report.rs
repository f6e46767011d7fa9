//! The results of the suite, from its output folder: a folder per scenario, with its checks.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

/// One check of a scenario.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SuiteCheck {
    id: String,
    status: String,
    error_message: Option<String>,
}

/// The result of a scenario, with the reason if it failed.
#[derive(Debug, Default)]
struct ScenarioResult {
    failed: Option<String>,
    scored: bool,
}

/// The results of a run.
#[derive(Debug, Default)]
pub(super) struct SuiteReport {
    scenarios: BTreeMap<String, ScenarioResult>,
}

impl SuiteReport {
    /// Reads the folder of a run. The output of the suite lists the unscored scenarios.
    pub(super) fn read(folder: &Path, printed: &str) -> anyhow::Result<Self> {
        let unscored = unscored(printed);
        let mut scenarios = BTreeMap::new();
        let entries = fs::read_dir(folder)
            .with_context(|| format!("the suite left nothing in {}:\n{printed}", folder.display()))?;
        for entry in entries {
            let path = entry.with_context(|| format!("cannot list {}", folder.display()))?.path();
            let Some(name) = path.file_name().and_then(|name| scenario(name.to_str()?)) else { continue };
            let file = path.join("checks.json");
            let failed = match fs::read(&file) {
                Ok(text) => {
                    let checks: Vec<SuiteCheck> = serde_json::from_slice(&text)
                        .with_context(|| format!("cannot read {}", file.display()))?;
                    failure(&checks)
                }
                Err(error) if error.kind() == ErrorKind::NotFound => Some("was aborted".to_owned()),
                Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
            };
            scenarios.insert(name.to_owned(), ScenarioResult { failed, scored: !unscored.contains(&name) });
        }
        Ok(Self { scenarios })
    }

    /// Number of scored scenarios.
    pub(super) fn scored(&self) -> usize {
        self.scenarios.values().filter(|scenario| scenario.scored).count()
    }

    /// Passed and total, scored and unscored: `30/30, 3/3`.
    pub(super) fn figures(&self) -> String {
        let count = |scored: bool| {
            let these = || self.scenarios.values().filter(|scenario| scenario.scored == scored);
            let passed = these().filter(|scenario| scenario.failed.is_none()).count();
            format!("{passed}/{}", these().count())
        };
        format!("{}, {}", count(true), count(false))
    }

    pub(super) fn passed(&self) -> impl Iterator<Item = &str> {
        let passed = self.scenarios.iter().filter(|(_, scenario)| scenario.failed.is_none());
        passed.map(|(name, _)| name.as_str())
    }

    pub(super) fn failures(&self) -> impl Iterator<Item = String> {
        let failed =
            self.scenarios.iter().filter_map(|(name, scenario)| Some((name, scenario.failed.as_ref()?)));
        failed.map(|(name, why)| format!("{name}: {why}"))
    }

    /// Returns the reason if this scenario did not pass.
    pub(super) fn failure(&self, scenario: &str) -> Option<&str> {
        match self.scenarios.get(scenario) {
            Some(scenario) => scenario.failed.as_deref(),
            None => Some("did not run"),
        }
    }

    #[cfg(test)]
    pub(super) fn of(results: &[(&str, &str)]) -> Self {
        let scenarios = results.iter().map(|(name, why)| {
            let failed = (!why.is_empty()).then(|| (*why).to_owned());
            ((*name).to_owned(), ScenarioResult { failed, scored: true })
        });
        Self { scenarios: scenarios.collect() }
    }
}

/// Returns the scenario of a folder such as `server-tools-list-2026-11-15T20-04-52-737Z`.
fn scenario(folder: &str) -> Option<&str> {
    let named = folder.strip_prefix("server-")?;
    let at = named.len().checked_sub("-2026-11-15T20-04-52-737Z".len())?;
    named.get(..at).filter(|_| named.as_bytes()[at] == b'-')
}

/// Counts warnings too: the suite warns about unmet recommendations, and a gateway must not add any.
fn failure(checks: &[SuiteCheck]) -> Option<String> {
    let bad: Vec<String> = checks
        .iter()
        .filter(|check| check.status == "FAILURE" || check.status == "WARNING")
        .map(|check| format!("{}: {}", check.id, short(check.error_message.as_deref().unwrap_or_default())))
        .collect();
    (!bad.is_empty()).then(|| bad.join("\n        "))
}

/// Shortens a reason: some quote whole messages.
fn short(reason: &str) -> String {
    let line = reason.lines().next().unwrap_or("no reason given");
    match line.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// Returns the scenarios below `Not scored for`, for example `  ✓ server-sse-polling (pending)`.
fn unscored(printed: &str) -> Vec<&str> {
    let (_, rest) = printed.split_once("Not scored for").unwrap_or_default();
    let lines = rest.lines().filter_map(|line| line.trim_start().strip_prefix(['✓', '✗']));
    lines.filter_map(|line| line.trim().rsplit_once(" (").map(|(name, _)| name)).collect()
}

#[test]
fn a_folder_is_named_after_its_scenario() {
    assert_eq!(scenario("server-tools-list-2026-11-15T20-04-52-737Z"), Some("tools-list"));
    assert_eq!(scenario("server-server-initialize-2026-11-15T20-04-52-737Z"), Some("server-initialize"));
    assert_eq!(scenario("notes"), None);
    assert_eq!(scenario("server-x"), None);
}

#[test]
fn finds_unscored_scenarios() {
    let printed = "✓ ping: 1 passed, 0 failed\n\nNot scored for 2025-11-25: 2 scenario(s) run.\n  \
        ✓ server-sse-polling (pending)\n  ✗ tasks-lifecycle (extension)\n";
    assert_eq!(unscored(printed), ["server-sse-polling", "tasks-lifecycle"]);
    assert_eq!(unscored("✓ ping: 1 passed, 0 failed\n"), [""; 0]);
}

#[test]
fn reports_failures_and_warnings_only() {
    let check = |status: &str| SuiteCheck {
        id: "a".into(),
        status: status.into(),
        error_message: Some("why".into()),
    };
    let all = ["SUCCESS", "FAILURE", "WARNING", "SKIPPED", "INFO"].map(check);
    assert_eq!(failure(&all).as_deref(), Some("a: why\n        a: why"));
    assert_eq!(failure(&all[..1]), None);
    assert_eq!(short(&format!("{}\nmore", "ä".repeat(300))), format!("{}…", "ä".repeat(200)));
    assert_eq!(short(""), "no reason given");
}
