//! `toolgate runs`: the runs of the agent, and what happened in one.

use serde_json::json;
use toolgate_agent::journal::{Entry, Summary, words};
use toolgate_config::{Environment, load};
use toolgate_types::clean::clean;

use crate::cli::{Project, RunsArgs, RunsCommand};
use crate::command::agent;
use crate::command::agent::printer::spent;
use crate::output::{BOLD, DIM, Output};
use crate::{DONE, REFUSED};

pub(crate) fn run(args: &RunsArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let loaded = load(&project.folder, project.file.as_deref(), &Environment::of_process());
    let Some(config) = loaded.config else {
        output.message(&loaded.report.render());
        return Ok(REFUSED);
    };
    let runs = agent::runs(&config);
    match &args.command {
        None => list(&runs.list()?, args.limit, output),
        Some(RunsCommand::Show(args)) => {
            let id = runs.resolve(&args.id).map_err(agent::untaken)?;
            show(&id, &runs.read(&id)?, output)
        }
    }
}

fn list(all: &[Summary], limit: usize, output: &Output) -> anyhow::Result<u8> {
    let all = &all[..all.len().min(limit)];
    if output.json {
        output.document(&all)?;
        return Ok(DONE);
    }
    for one in all {
        let task: String =
            one.task.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(80).collect();
        let Summary { run, began, caller, model, state, .. } = one;
        output.result(&format!(
            "{BOLD}{run}{BOLD:#}  {state:12}  {}\n  {DIM}{began} · {caller} · {model} · {}{DIM:#}\n",
            clean(&task),
            spent(&one.spent)
        ));
    }
    if all.is_empty() {
        output.message("there are no runs\n");
    } else {
        output.next("`toolgate runs show ID` tells what happened, `toolgate run --resume ID` goes on");
    }
    Ok(DONE)
}

fn show(id: &str, entries: &[Entry], output: &Output) -> anyhow::Result<u8> {
    if output.json {
        output.document(&json!({ "run": id, "entries": entries }))?;
        return Ok(DONE);
    }
    for entry in entries {
        let text = match entry {
            Entry::Begun { at, caller, model, .. } => {
                format!("{DIM}{at} begun as {caller} with {model}{DIM:#}")
            }
            Entry::Asked { parts } => format!("{BOLD}> {}{BOLD:#}", clean(&words(parts))),
            Entry::Said { text, calls, .. } => {
                let calls = calls.iter().map(|call| {
                    let arguments = serde_json::to_string(&call.arguments).unwrap_or_default();
                    format!("\n  {DIM}▸ {} {}{DIM:#}", clean(&call.name), clean(&arguments))
                });
                format!("{}{}", clean(text), calls.collect::<String>())
            }
            Entry::Result { output, took_ms, .. } => {
                let mark = if output.failed { "✗" } else { "✓" };
                format!(
                    "  {mark} {} · {took_ms:.0} ms\n    {}",
                    output.name,
                    clean(&words(&output.parts)).replace('\n', "\n    ")
                )
            }
            Entry::Resumed { at } => format!("{DIM}{at} goes on{DIM:#}"),
            Entry::Ended { at, reason, error, spent: used, .. } => {
                let error = error.as_ref().map(|error| format!(": {}", clean(error))).unwrap_or_default();
                format!("{DIM}{at} {}{error} · {}{DIM:#}", reason.label(), spent(used))
            }
            Entry::Intent { .. } | Entry::Found { .. } | Entry::Shown { .. } => continue,
        };
        output.result(&format!("{text}\n"));
    }
    Ok(DONE)
}
