//! `toolgate tools search WORDS`: finds tools for a task and decides whether to use one.

use serde_json::{Value as Json, json};
use toolgate_redact::printable;
use toolgate_runtime::{ChoiceDecision, ListFilter, SearchHit, ToolChoice};

use crate::cli::{AnswerMode, ProjectArgs, SearchArgs};
use crate::command::app::{self, AppChoice};
use crate::output::{BOLD, DIM, Output, first_line};

/// Width of the bar that shows a score.
const BAR_WIDTH: usize = 10;

pub(crate) fn run(args: &SearchArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let words = args.words.join(" ");
    app::with_app(project, output, AppChoice::new(AnswerMode::Decline), async |app, errors| {
        let runtime = app.runtime();
        let who = app::find_caller(app, &args.caller)?;
        let hits = runtime.search(&who, &ListFilter::default(), &words, args.limit);
        let choice = runtime.choose(&who, &ListFilter::default(), &words);
        let catalog = runtime.catalog();
        let about = |hit: &SearchHit| catalog.resolve(&hit.name).map(|tool| first_line(&tool.description));
        if output.json {
            let hits: Vec<Json> = hits.iter().map(hit_json).collect();
            if args.decide {
                output.document(&decision_json(&choice, &hits))?;
            } else {
                output.document(&hits)?;
            }
        } else {
            let width = hits.iter().map(|hit| hit.name.len()).max().unwrap_or(0);
            for hit in &hits {
                let about = about(hit).unwrap_or_default();
                let (name, score) = (printable(&hit.name), &hit.score);
                output.result(&format!(
                    "{score:.2} {DIM}{}{DIM:#} {BOLD}{name:width$}{BOLD:#}  {about}\n",
                    bar(*score)
                ));
            }
            output.result(&format!("{}\n", decision_text(&choice)));
        }
        Ok(app::report_errors(&errors, output))
    })
}

fn hit_json(hit: &SearchHit) -> Json {
    json!({ "name": hit.name, "score": rounded(hit.score) })
}

fn decision_json(choice: &ToolChoice, hits: &[Json]) -> Json {
    let ToolChoice { decision, confidence, missing, hits: best, .. } = choice;
    let tool = best.first().filter(|_| *decision == ChoiceDecision::Tool).map(|hit| &hit.name);
    json!({
        "decision": decision.name(),
        "confidence": rounded(*confidence),
        "tool": tool,
        "missing": missing,
        "hits": hits,
    })
}

/// Rounds to four digits. An `f32` would otherwise print its binary representation error.
fn rounded(value: f32) -> f64 {
    (f64::from(value) * 10_000.0).round() / 10_000.0
}

fn bar(score: f32) -> String {
    let full = (score.clamp(0.0, 1.0) * BAR_WIDTH as f32).round() as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(BAR_WIDTH - full))
}

/// Formats the decision on one line.
fn decision_text(choice: &ToolChoice) -> String {
    let sure = format!("{:.0} % sure", choice.confidence * 100.0);
    let best = choice.hits.first().map(|hit| printable(&hit.name)).unwrap_or_default();
    match choice.decision {
        ChoiceDecision::Tool => format!("use {BOLD}{best}{BOLD:#} {DIM}({sure}){DIM:#}"),
        ChoiceDecision::None => {
            let why = if choice.needs_tool { "no tool fits" } else { "no tool is needed" };
            format!("{why} {DIM}({sure}){DIM:#}")
        }
        ChoiceDecision::Ask if choice.missing.is_empty() => {
            format!("ask the person: no tool fits well {DIM}({sure}){DIM:#}")
        }
        ChoiceDecision::Ask => {
            let missing: Vec<String> =
                choice.missing.iter().map(|name| format!("`{}`", printable(name))).collect();
            format!("ask the person: {BOLD}{best}{BOLD:#} needs {} {DIM}({sure}){DIM:#}", missing.join(", "))
        }
    }
}
