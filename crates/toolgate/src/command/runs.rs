//! `toolgate runs`: lists past runs of the agent, and shows one.

use serde_json::{Value as Json, json};
use toolgate_agent::journal::{JournalEntry, RunSummary, parts_text};
use toolgate_agent::model::CallArguments;
use toolgate_app::run_store;
use toolgate_config::load;
use toolgate_redact::printable;

use crate::cli::{ProjectArgs, RunsArgs, RunsCommand};
use crate::command::agent;
use crate::command::agent::printer::usage_text;
use crate::output::{BOLD, DIM, Output, quoted_lines};
use crate::owner_key;
use crate::{DONE, INVALID_CONFIG};

pub(crate) fn run(args: &RunsArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let loaded = load(&project.folder, project.file.as_deref(), &owner_key::environment());
    let Some(config) = loaded.config else {
        output.message(&loaded.report.render());
        return Ok(INVALID_CONFIG);
    };
    let runs = run_store(&config);
    match &args.command {
        None => list(&runs.list()?, args.limit, output),
        Some(RunsCommand::Show(args)) => {
            let id = runs.resolve(&args.id).map_err(agent::run_error)?;
            show(&id, &runs.read(&id)?, output)
        }
    }
}

fn list(all: &[RunSummary], limit: usize, output: &Output) -> anyhow::Result<u8> {
    let all = &all[..all.len().min(limit)];
    if output.json {
        output.document(&all)?;
        return Ok(DONE);
    }
    for one in all {
        let task: String =
            one.task.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(80).collect();
        let RunSummary { run, began, state, .. } = one;
        let (caller, model) = (printable(&one.caller), printable(&one.model));
        output.result(&format!(
            "{BOLD}{run}{BOLD:#}  {state:12}  {}\n  {DIM}{began} · {caller} · {model} · {}{DIM:#}\n",
            printable(&task),
            usage_text(&one.spent)
        ));
    }
    if all.is_empty() {
        output.message("no runs yet\n");
    } else {
        output
            .next_step("see a run with `toolgate runs show ID`, continue it with `toolgate run --resume ID`");
    }
    Ok(DONE)
}

fn show(id: &str, entries: &[JournalEntry], output: &Output) -> anyhow::Result<u8> {
    if output.json {
        output.document(&json!({ "run": id, "entries": entries }))?;
        return Ok(DONE);
    }
    for entry in entries {
        let text = match entry {
            JournalEntry::Started { at, caller, model, .. } => {
                let (caller, model) = (printable(caller), printable(model));
                format!("{DIM}{at} started as {caller} with {model}{DIM:#}")
            }
            JournalEntry::UserMessage { parts } => {
                format!("{BOLD}> {}{BOLD:#}", quoted_lines(&parts_text(parts)))
            }
            JournalEntry::Reply { text, calls, .. } => {
                let calls = calls.iter().map(|call| {
                    let arguments = match &call.arguments {
                        CallArguments::Object(arguments) => Json::Object(arguments.clone()).to_string(),
                        CallArguments::Unusable(why) => format!("(invalid arguments: {why})"),
                    };
                    format!("  {DIM}▸ {} {}{DIM:#}", printable(&call.name), printable(&arguments))
                });
                let text = Some(quoted_lines(text)).filter(|text| !text.trim().is_empty());
                text.into_iter().chain(calls).collect::<Vec<_>>().join("\n")
            }
            JournalEntry::Result { output, took_ms, .. } => {
                let mark = if output.failed { "✗" } else { "✓" };
                format!(
                    "  {mark} {} · {took_ms:.0} ms\n    {}",
                    printable(&output.name),
                    quoted_lines(&parts_text(&output.parts))
                )
            }
            JournalEntry::ModelChanged { model } => {
                format!("{DIM}the next turns go to {}{DIM:#}", printable(model))
            }
            JournalEntry::Undone {} => format!("{DIM}the last message was taken back{DIM:#}"),
            JournalEntry::Resumed { at } => format!("{DIM}{at} resumed{DIM:#}"),
            JournalEntry::Ended { at, reason, error, spent: used, .. } => {
                let error = error.as_ref().map(|error| format!(": {}", printable(error))).unwrap_or_default();
                format!("{DIM}{at} {}{error} · {}{DIM:#}", reason.label(), usage_text(used))
            }
            JournalEntry::ProgramCalls { calls, .. } => {
                format!("  {DIM}the program made {calls} calls{DIM:#}")
            }
            JournalEntry::Intent { .. }
            | JournalEntry::ToolsFound { .. }
            | JournalEntry::ToolsOffered { .. } => continue,
        };
        output.result(&format!("{text}\n"));
    }
    Ok(DONE)
}
