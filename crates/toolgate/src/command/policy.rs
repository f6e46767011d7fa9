//! `toolgate policy test FILE`: decides recorded calls again with other rules.

use serde_json::json;
use toolgate_audit::{CallFilter, LogReader};
use toolgate_config::load_rules;
use toolgate_redact::printable;
use toolgate_runtime::Policy;
use toolgate_runtime::replay::{DecisionChange, ReplayReport};
use toolgate_runtime::runtime::AccessRules;

use crate::cli::{AnswerMode, PolicyCommand, PolicyTestArgs, ProjectArgs};
use crate::command::app::AppChoice;
use crate::command::{app, log};
use crate::output::{BOLD, DIM, Output};
use crate::owner_key;
use crate::{DONE, FAILED, INVALID_CONFIG};

pub(crate) fn run(command: &PolicyCommand, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    match command {
        PolicyCommand::Test(args) => test(args, project, output),
    }
}

fn test(args: &PolicyTestArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let (rules, report) = load_rules(&args.rules, &owner_key::environment());
    let Some(rules) = rules else {
        output.message(&report.render());
        if output.json {
            output.document(&json!({ "ok": false, "problems": report.entries() }))?;
        }
        return Ok(INVALID_CONFIG);
    };
    output.message(&report.render());
    let version = rules.version().to_owned();
    let policy = Policy::new(Some(rules));
    let filter = CallFilter {
        tool: args.tool.clone(),
        caller: args.caller.clone(),
        since: args.since,
        ..CallFilter::default()
    };
    let readers: Vec<_> = log::log_folders(project, output).iter().map(LogReader::new).collect();
    app::with_app(project, output, AppChoice::new(AnswerMode::Decline), async |app, errors| {
        let runtime = app.runtime();
        // Tools of a failed server are missing; the summary counts their calls as skipped.
        app::report_errors(&errors, output);
        let queries = readers.iter().map(|reader| reader.query(filter.clone()));
        let queries = queries.collect::<Result<Vec<_>, _>>()?;
        let callers = runtime.access_rules().callers.clone();
        let rules = AccessRules { callers, policy };
        let replay = runtime.replay(&rules, queries.into_iter().flatten())?;
        if output.json {
            let mut document = serde_json::to_value(&replay)?;
            document["policy"] = json!(version);
            output.document(&document)?;
        } else {
            output.result(&replay_text(&replay));
        }
        Ok(if replay.flips.is_empty() { DONE } else { FAILED })
    })
}

pub(crate) fn replay_text(replay: &ReplayReport) -> String {
    let line = |flip: &DecisionChange| {
        let DecisionChange { caller, tool, from, to, certain, count, rules, call } = flip;
        let (caller, tool, call) = (printable(caller), printable(tool), printable(call));
        let by =
            if rules.is_empty() { String::new() } else { format!(" by {}", printable(&rules.join(", "))) };
        let doubt = if *certain { "" } else { ", uncertain: the record does not have all arguments" };
        let (from, to, calls) = (from.label(), to.label(), calls(*count));
        format!(
            "{BOLD}{from} → {to}{BOLD:#}  {caller}  {tool}  {calls}{by}{doubt}{DIM}, for example {call}{DIM:#}\n"
        )
    };
    let mut text: String = replay.flips.iter().map(line).collect();
    let flipped: u64 = replay.flips.iter().map(|flip| flip.count).sum();
    let certain: u64 = replay.flips.iter().filter(|flip| flip.certain).map(|flip| flip.count).sum();
    let ReplayReport { replayed, uncertain, gone, .. } = replay;
    text.push_str(&format!(
        "{}: {flipped} would change, {} would not; {uncertain} with incomplete arguments in \
         the record, of which {} would change\n",
        calls(*replayed),
        replayed - flipped,
        flipped - certain,
    ));
    if *gone > 0 {
        let gone = calls(*gone);
        text.push_str(&format!("{gone} skipped: the tool or the caller no longer exists\n"));
    }
    text
}

fn calls(count: u64) -> String {
    format!("{count} {}", if count == 1 { "call" } else { "calls" })
}
