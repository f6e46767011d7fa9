//! `toolgate tools search WORDS`: which tools fit, and what to do.

use serde_json::{Value as Json, json};
use toolgate_runtime::{Choice, Decision, Hit};

use crate::cli::{Answers, Project, SearchArgs};
use crate::command::servers::first_line;
use crate::command::{live, tools};
use crate::output::{BOLD, DIM, Output};

/// Signs of the bar that shows a score.
const BAR: usize = 10;

pub(crate) fn run(args: &SearchArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let words = args.words.join(" ");
    live::with(
        project,
        output,
        Answers::Decline,
        |_| true,
        async |runtime, errors| {
            let who = tools::caller(&runtime, &args.caller)?;
            let hits = runtime.search(&who, &words, args.limit);
            let choice = runtime.choose(&who, &words);
            let catalog = runtime.catalog();
            let about =
                |hit: &Hit| catalog.resolve(&hit.name).map(|tool| first_line(&tool.description).to_owned());
            if output.json {
                let hits: Vec<Json> = hits.iter().map(document).collect();
                if args.decide {
                    output.document(&decided(&choice, &hits))?;
                } else {
                    output.document(&hits)?;
                }
            } else {
                let width = hits.iter().map(|hit| hit.name.len()).max().unwrap_or(0);
                for hit in &hits {
                    let about = about(hit).unwrap_or_default();
                    let Hit { name, score } = hit;
                    output.result(&format!(
                        "{score:.2} {DIM}{}{DIM:#} {BOLD}{name:width$}{BOLD:#}  {about}\n",
                        bar(*score)
                    ));
                }
                output.result(&format!("{}\n", advice(&choice)));
            }
            Ok(live::tell(&errors, output))
        },
    )
}

fn document(hit: &Hit) -> Json {
    json!({ "name": hit.name, "score": rounded(hit.score) })
}

fn decided(choice: &Choice, hits: &[Json]) -> Json {
    let Choice { decision, confidence, missing, hits: best } = choice;
    let tool = best.first().filter(|_| *decision == Decision::Tool).map(|hit| &hit.name);
    json!({
        "decision": decision.name(),
        "confidence": rounded(*confidence),
        "tool": tool,
        "missing": missing,
        "hits": hits,
    })
}

/// Four places: more say nothing, and a float would show how it is stored.
fn rounded(value: f32) -> f64 {
    (f64::from(value) * 10_000.0).round() / 10_000.0
}

fn bar(score: f32) -> String {
    let full = (score.clamp(0.0, 1.0) * BAR as f32).round() as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(BAR - full))
}

/// What to do, in a line.
fn advice(choice: &Choice) -> String {
    let sure = format!("{:.0} % sure", choice.confidence * 100.0);
    let best = choice.hits.first().map(|hit| hit.name.as_str()).unwrap_or_default();
    match choice.decision {
        Decision::Tool => format!("use {BOLD}{best}{BOLD:#} {DIM}({sure}){DIM:#}"),
        Decision::None => format!("no tool is needed {DIM}({sure}){DIM:#}"),
        Decision::Ask if choice.missing.is_empty() => {
            format!("ask the person: no tool fits well {DIM}({sure}){DIM:#}")
        }
        Decision::Ask => {
            let missing: Vec<String> = choice.missing.iter().map(|name| format!("`{name}`")).collect();
            format!("ask the person: {BOLD}{best}{BOLD:#} needs {} {DIM}({sure}){DIM:#}", missing.join(", "))
        }
    }
}
