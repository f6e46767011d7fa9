//! `toolgate eval GOLD.jsonl`: how often the right tool is chosen, on queries of which it is known.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use serde_json::Value as Json;
use toolgate_runtime::ToolState;
use toolgate_search::Entry;
use toolgate_search::eval::{Figures, Line, Report, Sample, answers, catalogs};

use crate::cli::{Answers, EvalArgs, Project};
use crate::command::{live, tools};
use crate::output::{BOLD, DIM, Output, hinted, shown_path};
use crate::{DONE, FAILED};

/// Bytes of a file that are read.
const MOST_BYTES: u64 = 256 << 20;
/// Lines between two words about how far it is.
const STEP: usize = 50;

type Catalogs = BTreeMap<String, Vec<Entry>>;

pub(crate) fn run(args: &EvalArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let lines = gold(args)?;
    match &args.tools {
        Some(file) => {
            let text = read(file)?;
            let parsed: Json =
                serde_json::from_str(&text).with_context(|| format!("{} is not JSON", shown_path(file)))?;
            let catalogs = catalogs(&parsed).ok_or_else(|| {
                hinted(
                    format!("{} holds no tools", shown_path(file)),
                    "it should be a list of tools as `tools/list` has them, or {\"catalogs\": {NAME: [tools]}}",
                )
            })?;
            measured(args, &lines, &catalogs, output)
        }
        None => live::with(
            project,
            output,
            Answers::Decline,
            |_| true,
            async |runtime, errors| {
                let who = tools::caller(&runtime, &args.caller)?;
                let catalog = runtime.catalog();
                let seen = catalog
                    .tools()
                    .filter(|tool| tool.state == ToolState::Ready && runtime.may_see(&who, tool));
                let catalogs = BTreeMap::from([(String::new(), seen.map(|tool| tool.entry()).collect())]);
                let code = measured(args, &lines, &catalogs, output)?;
                Ok(live::tell(&errors, output).max(code))
            },
        ),
    }
}

fn measured(args: &EvalArgs, lines: &[Line], catalogs: &Catalogs, output: &Output) -> anyhow::Result<u8> {
    let sample = args.catalog_size.map(|size| Sample { size: size.get(), seed: args.seed });
    let is_watched = std::io::stderr().is_terminal();
    let tell = |done: usize| {
        if is_watched && (done.is_multiple_of(STEP) || done == lines.len()) {
            let end = if done == lines.len() { "\r\x1b[K" } else { "" };
            output.message(&format!("\r{DIM}{done} of {}{DIM:#}{end}", lines.len()));
        }
    };
    let answers = answers(catalogs, lines, sample, tell).map_err(|error| {
        let known: Vec<&str> = catalogs.keys().map(String::as_str).collect();
        let message =
            format!("line {} asks of the catalog `{}`, which is not there", error.line, error.catalog);
        hinted(message, format!("there are: {}", known.join(", ")))
    })?;
    let report = Report::of(&answers);
    let missed = missed(args, &report.all);
    if output.json {
        output.document(&report)?;
    } else {
        output.result(&shown(&report));
        if args.wrong {
            for answer in answers.iter().filter(|answer| !answer.is_right()) {
                let first = answer.choice.hits.first().map(|hit| hit.name.as_str()).unwrap_or("nothing");
                let chosen = answer.choice.decision.name();
                let (query, right) = (&answer.line.query, answer.line.tools.join(" or "));
                output.result(&format!("{chosen} {BOLD}{first}{BOLD:#} for {query:?}, not {right}\n"));
            }
        }
    }
    for text in &missed {
        output.message(&format!("{text}\n"));
    }
    Ok(if missed.is_empty() { DONE } else { FAILED })
}

/// The bars that were not reached.
fn missed(args: &EvalArgs, figures: &Figures) -> Vec<String> {
    let bars = [
        ("--min-top1", args.min_top1, figures.top1),
        ("--min-recall5", args.min_recall5, figures.recall5),
        ("--min-tool-top1", args.min_tool_top1, figures.tool.top1),
        ("--min-none-recall", args.min_none_recall, figures.none.recall),
        ("--min-ask-recall", args.min_ask_recall, figures.ask.recall),
    ];
    let below = |(name, bar, is): (&str, Option<f64>, Option<f64>)| {
        let bar = bar?;
        // A bar for what was not measured is not reached.
        (is.unwrap_or(0.0) < bar).then(|| format!("below {name} {bar}: {}", share(is)))
    };
    bars.into_iter().filter_map(below).collect()
}

fn gold(args: &EvalArgs) -> anyhow::Result<Vec<Line>> {
    let EvalArgs { gold, suite, .. } = args;
    let text = read(gold)?;
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let line: Line = serde_json::from_str(line)
            .map_err(|error| anyhow!("{}:{}: {error}", shown_path(gold), at + 1))
            .context("a line of the gold set cannot be read")?;
        lines.push(line);
    }
    if let Some(suite) = suite {
        lines.retain(|line| line.suite == *suite);
    }
    if lines.is_empty() {
        bail!("{} holds no line to measure", shown_path(gold));
    }
    Ok(lines)
}

fn read(path: &Path) -> anyhow::Result<String> {
    let size = fs_err::metadata(path)?.len();
    if size > MOST_BYTES {
        bail!("{} has {size} bytes, and {MOST_BYTES} are read at most", shown_path(path));
    }
    Ok(fs_err::read_to_string(path)?)
}

fn shown(report: &Report) -> String {
    let mut text = String::new();
    let all = ("all".to_owned(), &report.all);
    let suites = report.suites.iter().map(|(name, figures)| (format!("suite {name}"), figures));
    let languages = report.languages.iter().map(|(name, figures)| (format!("language {name}"), figures));
    for (name, figures) in std::iter::once(all).chain(suites).chain(languages) {
        let Figures { n, top1, recall5, tool, multi, none, ask, .. } = figures;
        let _ = writeln!(
            text,
            "{BOLD}{name}{BOLD:#}: {n} lines, right {}, recall@5 {}",
            share(*top1),
            share(*recall5)
        );
        for (name, recalled) in [("tool", tool), ("multi", multi)].into_iter().filter(|(_, one)| one.n > 0) {
            let (top1, first, recall5) =
                (share(recalled.top1), share(recalled.first), share(recalled.recall5));
            let _ = writeln!(
                text,
                "  {name:5} {:4}  chosen {top1}, first {first}, recall@5 {recall5}",
                recalled.n
            );
        }
        for (name, judged) in [("none", none), ("ask", ask)].into_iter().filter(|(_, one)| one.n > 0) {
            let (precision, recall) = (share(judged.precision), share(judged.recall));
            let _ = writeln!(text, "  {name:5} {:4}  precision {precision}, recall {recall}", judged.n);
        }
    }
    text.push_str(&confusion(&report.all));
    let told = &report.all.confidence;
    let _ = writeln!(text, "\nconfidence {} in the mean, off by {}", share(told.mean), share(told.error));
    for bin in &told.bins {
        let _ =
            writeln!(text, "  {:4} lines  said {}, were right {}", bin.n, share(bin.told), share(bin.right));
    }
    text
}

/// What was expected, and what was chosen.
fn confusion(figures: &Figures) -> String {
    const CHOSEN: [&str; 4] = ["tool", "other tool", "none", "ask"];
    let mut text = format!("\n{:9}", "expected");
    CHOSEN.iter().for_each(|name| text.push_str(&format!("{name:>12}")));
    text.push('\n');
    for (kind, row) in &figures.confusion {
        let name = format!("{kind:?}").to_lowercase();
        let _ = write!(text, "{name:9}");
        CHOSEN.iter().for_each(|name| text.push_str(&format!("{:>12}", row.get(name).unwrap_or(&0))));
        text.push('\n');
    }
    text
}

fn share(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}"))
}
