//! `toolgate eval GOLD.jsonl`: measures the accuracy of the tool search on labelled queries.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use serde_json::Value as Json;
use toolgate_redact::printable;
use toolgate_runtime::ToolState;
use toolgate_search::ToolEntry;
use toolgate_search::eval::{CatalogSample, EvalMetrics, EvalReport, GoldLine, evaluate, parse_catalogs};

use crate::cli::{AnswerMode, EvalArgs, ProjectArgs};
use crate::command::app::{self, AppChoice};
use crate::output::{BOLD, DIM, Output, display_path, error_with_hint};
use crate::{DONE, FAILED};

/// Bytes of a file that is read.
const MAX_BYTES: u64 = 256 << 20;
/// Queries between two progress messages.
const PROGRESS_STEP: usize = 50;

type Catalogs = BTreeMap<String, Vec<ToolEntry>>;

pub(crate) fn run(args: &EvalArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let lines = read_gold(args)?;
    match &args.tools {
        Some(file) => {
            let text = read(file)?;
            let parsed: Json =
                serde_json::from_str(&text).with_context(|| format!("{} is not JSON", display_path(file)))?;
            let catalogs = parse_catalogs(&parsed).ok_or_else(|| {
                error_with_hint(
                    format!("{} contains no tools", display_path(file)),
                    "expected a list of tools as in `tools/list`, or {\"catalogs\": {NAME: [tools]}}",
                )
            })?;
            measure(args, &lines, &catalogs, output)
        }
        None => app::with_app(project, output, AppChoice::new(AnswerMode::Decline), async |app, errors| {
            let runtime = app.runtime();
            let who = app::find_caller(app, &args.caller)?;
            let catalog = runtime.catalog();
            let visible =
                catalog.tools().filter(|tool| tool.state == ToolState::Ready && runtime.may_see(&who, tool));
            let catalogs =
                BTreeMap::from([(String::new(), visible.map(|tool| tool.search_entry()).collect())]);
            let code = measure(args, &lines, &catalogs, output)?;
            Ok(app::report_errors(&errors, output).max(code))
        }),
    }
}

fn measure(args: &EvalArgs, lines: &[GoldLine], catalogs: &Catalogs, output: &Output) -> anyhow::Result<u8> {
    let sample = args.catalog_size.map(|size| CatalogSample { size: size.get(), seed: args.seed });
    let is_watched = std::io::stderr().is_terminal();
    let tell = |done: usize| {
        if is_watched && (done.is_multiple_of(PROGRESS_STEP) || done == lines.len()) {
            output.control("\r");
            output.message(&format!("{DIM}{done} of {}{DIM:#}", lines.len()));
            if done == lines.len() {
                output.control("\r\x1b[K");
            }
        }
    };
    let answers = evaluate(catalogs, lines, sample, tell).map_err(|error| {
        let known: Vec<&str> = catalogs.keys().map(String::as_str).collect();
        let message = format!("line {} names an unknown catalog: `{}`", error.line, error.catalog);
        error_with_hint(message, format!("available: {}", known.join(", ")))
    })?;
    let report = EvalReport::compute(&answers);
    let missed = missed_minimums(args, &report.all);
    if output.json {
        output.document(&report)?;
    } else {
        output.result(&report_text(&report));
        if args.wrong {
            for answer in answers.iter().filter(|answer| !answer.is_correct()) {
                let first =
                    answer.choice.hits.first().map_or("nothing".to_owned(), |hit| printable(&hit.name));
                let chosen = answer.choice.decision.name();
                let (query, right) = (&answer.line.query, printable(&answer.line.tools.join(" or ")));
                output.result(&format!("{chosen} {BOLD}{first}{BOLD:#} for {query:?}, not {right}\n"));
            }
        }
    }
    for text in &missed {
        output.message(&format!("{text}\n"));
    }
    Ok(if missed.is_empty() { DONE } else { FAILED })
}

/// Returns messages for the minimums that were missed.
fn missed_minimums(args: &EvalArgs, figures: &EvalMetrics) -> Vec<String> {
    let bars = [
        ("--min-top1", args.min_top1, figures.top1),
        ("--min-recall5", args.min_recall5, figures.recall5),
        ("--min-tool-top1", args.min_tool_top1, figures.tool.top1),
        ("--min-none-recall", args.min_none_recall, figures.none.recall),
        ("--min-ask-recall", args.min_ask_recall, figures.ask.recall),
    ];
    let below = |(name, bar, is): (&str, Option<f64>, Option<f64>)| {
        let bar = bar?;
        // A minimum for a metric that was not measured counts as missed.
        (is.unwrap_or(0.0) < bar).then(|| format!("below {name} {bar}: {}", format_share(is)))
    };
    bars.into_iter().filter_map(below).collect()
}

fn read_gold(args: &EvalArgs) -> anyhow::Result<Vec<GoldLine>> {
    let EvalArgs { gold, suite, .. } = args;
    let text = read(gold)?;
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let line: GoldLine = serde_json::from_str(line)
            .map_err(|error| anyhow!("{}:{}: {error}", display_path(gold), at + 1))
            .context("cannot read a line of the gold set")?;
        lines.push(line);
    }
    if let Some(suite) = suite {
        lines.retain(|line| line.suite == *suite);
    }
    if lines.is_empty() {
        bail!("{} contains no queries to measure", display_path(gold));
    }
    Ok(lines)
}

fn read(path: &Path) -> anyhow::Result<String> {
    let size = fs_err::metadata(path)?.len();
    if size > MAX_BYTES {
        bail!("{} has {size} bytes; the limit is {MAX_BYTES}", display_path(path));
    }
    Ok(fs_err::read_to_string(path)?)
}

fn report_text(report: &EvalReport) -> String {
    let mut text = String::new();
    let all = ("all".to_owned(), &report.all);
    let suites = report.suites.iter().map(|(name, figures)| (format!("suite {name}"), figures));
    let languages = report.languages.iter().map(|(name, figures)| (format!("language {name}"), figures));
    for (name, figures) in std::iter::once(all).chain(suites).chain(languages) {
        let EvalMetrics { n, top1, recall5, need, tool, multi, none, ask, .. } = figures;
        let _ = writeln!(
            text,
            "{BOLD}{name}{BOLD:#}: {n} lines, right {}, need recognised {}, recall@5 {}",
            format_share(*top1),
            format_share(*need),
            format_share(*recall5)
        );
        for (name, recalled) in [("tool", tool), ("multi", multi)].into_iter().filter(|(_, one)| one.n > 0) {
            let (top1, first, recall5) =
                (format_share(recalled.top1), format_share(recalled.first), format_share(recalled.recall5));
            let _ = writeln!(
                text,
                "  {name:5} {:4}  chosen {top1}, first {first}, recall@5 {recall5}, asked about {}",
                recalled.n,
                format_share(recalled.asked)
            );
            if recalled.arguments.is_some() {
                let _ = writeln!(text, "        arguments right {}", format_share(recalled.arguments));
            }
        }
        for (name, judged) in [("none", none), ("ask", ask)].into_iter().filter(|(_, one)| one.n > 0) {
            let (precision, recall) = (format_share(judged.precision), format_share(judged.recall));
            let _ = writeln!(text, "  {name:5} {:4}  precision {precision}, recall {recall}", judged.n);
        }
    }
    text.push_str(&confusion(&report.all));
    let confidence = &report.all.confidence;
    let _ = writeln!(
        text,
        "\nmean confidence {}, calibration error {}",
        format_share(confidence.mean),
        format_share(confidence.error)
    );
    for bin in &confidence.bins {
        let _ = writeln!(
            text,
            "  {:4} lines  confidence {}, right {}",
            bin.n,
            format_share(bin.confidence),
            format_share(bin.right)
        );
    }
    text
}

/// Formats the confusion matrix: expected against chosen.
fn confusion(figures: &EvalMetrics) -> String {
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

fn format_share(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}"))
}
