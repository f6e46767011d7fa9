//! `toolgate plan FILE…`: shows the effect of changed files on access before they are in use.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use serde_json::json;
use toolgate_app::access_rules;
use toolgate_audit::{CallFilter, LogReader};
use toolgate_config::{Config, LoadOutcome, load, load_rules, load_with_overlay};
use toolgate_redact::printable;
use toolgate_runtime::access_diff::{AccessChange, AccessView};
use toolgate_runtime::replay::DecisionKind;

use crate::cli::{AnswerMode, PlanArgs, ProjectArgs};
use crate::command::app::AppChoice;
use crate::command::{app, log, policy};
use crate::output::{BOLD, Output, error_with_hint};
use crate::owner_key;
use crate::{DONE, FAILED, INVALID_CONFIG};

/// Largest file that is read.
const MAX_FILE_BYTES: u64 = 64 << 20;

pub(crate) fn run(args: &PlanArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let environment = owner_key::environment();
    let LoadOutcome { config, report } = load(&project.folder, project.file.as_deref(), &environment);
    let Some(current) = config else {
        output.message(&report.render());
        return Ok(INVALID_CONFIG);
    };
    let texts = candidate_texts(args, &current)?;
    let loaded = load_with_overlay(&project.folder, project.file.as_deref(), &environment, texts);
    let LoadOutcome { config: candidate, report } = loaded;
    output.message(&report.render());
    let Some(candidate) = candidate else {
        if output.json {
            output.document(&json!({ "ok": false, "problems": report.entries() }))?;
        }
        return Ok(INVALID_CONFIG);
    };
    check_policy_used(args, &candidate)?;
    let filter = CallFilter { since: args.since, ..CallFilter::default() };
    let readers: Vec<_> = log::log_folders(project, output).iter().map(LogReader::new).collect();
    app::with_app(project, output, AppChoice::new(AnswerMode::Decline), async |app, errors| {
        // Tools of a failed server are missing; the summary counts their calls as skipped.
        app::report_errors(&errors, output);
        let runtime = app.runtime();
        let (before, after) = (access_rules(&current), access_rules(&candidate));
        let changes = runtime.compare_access(
            AccessView { rules: &before, profiles: &current.profiles, groups: &current.groups },
            AccessView { rules: &after, profiles: &candidate.profiles, groups: &candidate.groups },
        );
        let queries = readers.iter().map(|reader| reader.query(filter.clone()));
        let queries = queries.collect::<Result<Vec<_>, _>>()?;
        let replay = runtime.replay(&after, queries.into_iter().flatten())?;
        if output.json {
            output.document(&json!({ "ok": true, "access": changes, "calls": replay }))?;
        } else {
            output.result(&changes_text(&changes));
            output.result(&policy::replay_text(&replay));
        }
        let is_unchanged = changes.is_empty() && replay.flips.is_empty();
        Ok(if is_unchanged { DONE } else { FAILED })
    })
}

/// Reads the candidate files, by the path of the file that each would replace.
fn candidate_texts(args: &PlanArgs, current: &Config) -> anyhow::Result<BTreeMap<PathBuf, Arc<str>>> {
    let mut texts = BTreeMap::new();
    for file in &args.files {
        let replaced = match file.extension().and_then(|extension| extension.to_str()) {
            Some("cedar") => {
                let policy = current.policy.as_ref().map_or("policy.cedar", |policy| &policy.path);
                current.project.join(policy)
            }
            Some("yaml" | "yml") => match current.files.first() {
                Some(name) if is_yaml(name) => current.project.join(name),
                _ => current.project.join("toolgate.yaml"),
            },
            _ => {
                let message = format!("`{}` is neither a project file nor a policy", file.display());
                return Err(error_with_hint(message, "name a `.yaml` or a `.cedar` file"));
            }
        };
        let read = toolgate_state::read_regular(file, MAX_FILE_BYTES);
        let text = read.with_context(|| format!("cannot read `{}`", file.display()))?;
        let text = String::from_utf8(text).with_context(|| format!("`{}` is not UTF-8", file.display()))?;
        if texts.insert(replaced.clone(), text.into()).is_some() {
            bail!("two files would replace `{}`", replaced.display());
        }
    }
    Ok(texts)
}

/// Checks that the candidate uses the given policy: its project file may name another one.
fn check_policy_used(args: &PlanArgs, candidate: &Config) -> anyhow::Result<()> {
    let given = args.files.iter().find(|file| file.extension().is_some_and(|extension| extension == "cedar"));
    let Some(given) = given else { return Ok(()) };
    let (rules, _) = load_rules(given, &owner_key::environment());
    let used = candidate.policy.as_ref().map(|policy| policy.version.as_str());
    if rules.is_some_and(|rules| used == Some(rules.version())) {
        return Ok(());
    }
    let message = format!("the project file does not use `{}`", given.display());
    Err(error_with_hint(message, "its key `policy` names another file; plan one of the two at a time"))
}

fn is_yaml(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// Lists the changes, one line per caller and kind of change.
fn changes_text(changes: &[AccessChange]) -> String {
    let mut lines: BTreeMap<(String, DecisionKind, DecisionKind), Vec<String>> = BTreeMap::new();
    for AccessChange { caller, group, tool, from, to } in changes {
        let subject = match (caller, group) {
            (Some(caller), _) => printable(caller),
            (None, Some(group)) => format!("members of {}", printable(group)),
            (None, None) => String::new(),
        };
        lines.entry((subject, *from, *to)).or_default().push(printable(tool));
    }
    let line = |((subject, from, to), tools): (&(String, DecisionKind, DecisionKind), &Vec<String>)| {
        let verb = match (from, to) {
            (DecisionKind::Deny, _) => "gains",
            (_, DecisionKind::Deny) => "loses",
            _ => "changes",
        };
        let (from, to) = (from.label(), to.label());
        format!("{BOLD}{subject}{BOLD:#} {verb} ({from} → {to}): {}\n", tools.join(", "))
    };
    if lines.is_empty() {
        return "no caller gains or loses a tool\n".to_owned();
    }
    lines.iter().map(line).collect()
}
