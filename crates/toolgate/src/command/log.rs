//! `toolgate log`: shows, verifies and exports the execution log.
//!
//! The log is in `.toolgate/log`, or in the folder set by `audit`. A log has a single writer, so each concurrent
//! process has its own subfolder. Readers merge them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use jiff::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};
use toolgate_audit::project::{ParseTimeError, ProjectLog, parse_time};
use toolgate_audit::read::{EndRecord, StageRecord, ToolStats, TruncatedBody};
use toolgate_audit::{CallFilter, LogReader, LoggedCall, verify};
use toolgate_config::load;
use toolgate_redact::printable;
use toolgate_types::call::OperationKind;

use crate::cli::{LogArgs, LogCommand, LogFilter, LogSelection, ProjectArgs};
use crate::output::{BOLD, DIM, Output, display_json, error_with_hint, quoted_lines};
use crate::owner_key;
use crate::{DONE, FAILED};

/// Poll interval of `--follow`.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// Returns the log folders of a project, one per writer. Works with a broken configuration too, because that is when
/// the log is needed.
pub(crate) fn log_folders(project: &ProjectArgs, output: &Output) -> Vec<PathBuf> {
    let loaded = load(&project.folder, project.file.as_deref(), &owner_key::environment());
    let broken = loaded.config.is_none();
    let audit = loaded.config.map(|config| config.audit).unwrap_or_default();
    let folders = ProjectLog::new(project.folder.join(&audit.folder)).folders();
    if broken && !folders.is_empty() {
        let usual = audit.folder.display();
        output.message(&format!("note: the configuration is invalid; showing the log in `{usual}`\n"));
    }
    folders
}

pub(crate) fn run(args: &LogArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let folders = log_folders(project, output);
    let readers: Vec<_> = folders.iter().map(LogReader::new).collect();
    match &args.command {
        Some(LogCommand::Show(one)) => show(&one.id, &readers, output),
        Some(LogCommand::Stats(wanted)) => stats(&call_filter(wanted), &readers, output),
        Some(LogCommand::Verify) => verify_log(&folders, output),
        Some(LogCommand::Export(export)) => {
            let mut stdout = std::io::stdout().lock();
            for reader in &readers {
                if export.csv {
                    reader.export_csv(call_filter(&export.filter), &mut stdout)?;
                } else {
                    reader.export_lines(&call_filter(&export.filter), &mut stdout)?;
                }
            }
            Ok(DONE)
        }
        None if args.follow => follow(&selected_calls(args), &readers, output),
        None => list(args, &readers, output),
    }
}

/// Prints the newest calls in chronological order.
fn list(args: &LogArgs, readers: &[LogReader], output: &Output) -> anyhow::Result<u8> {
    let mut calls = Vec::new();
    for reader in readers {
        let wanted = CallFilter { newest_first: true, limit: Some(args.limit), ..selected_calls(args) };
        for call in reader.query(wanted)? {
            calls.push(call?);
        }
    }
    calls.sort_by_key(|call| std::cmp::Reverse(call.time()));
    calls.truncate(args.limit);
    calls.iter().rev().try_for_each(|call| print_call(call, output))?;
    if calls.is_empty() && !output.json {
        output.next_step("no calls match; make one with `toolgate tools call NAME`");
    }
    Ok(DONE)
}

fn follow(filter: &CallFilter, readers: &[LogReader], output: &Output) -> anyhow::Result<u8> {
    let mut all: Vec<_> =
        readers.iter().map(|reader| reader.follow(filter.clone())).collect::<Result<_, _>>()?;
    if all.is_empty() {
        bail!("there is no log yet; make a call with `toolgate tools call NAME`");
    }
    loop {
        for one in &mut all {
            one.poll()?.iter().try_for_each(|call| print_call(call, output))?;
        }
        std::thread::sleep(FOLLOW_INTERVAL);
    }
}

/// Prints a call on one line.
fn print_call(call: &LoggedCall, output: &Output) -> anyhow::Result<()> {
    if output.json {
        return output.json_line(call);
    }
    let end = call.end.as_ref();
    let took = end.map(|end| milliseconds(end.micros));
    let error = end.and_then(|end| end.error.as_ref());
    let how =
        error.map_or_else(|| call.status().to_owned(), |error| format!("{}: {}", error.code, error.message));
    let how = printable(&how);
    let kind = match call.operation() {
        "tool" => String::new(),
        kind => format!(" ({})", printable(kind)),
    };
    let line = format!(
        "{DIM}{:.3}  {}{DIM:#}  {BOLD}{}{BOLD:#}{kind} by {}  {}  {how}\n",
        call.time(),
        printable(call.id()),
        printable(call.tool()),
        printable(call.caller()),
        took.unwrap_or_default(),
    );
    // Write errors are ignored, so that a closed pipe ends the command quietly.
    output.result(&line);
    Ok(())
}

fn show(id: &str, readers: &[LogReader], output: &Output) -> anyhow::Result<u8> {
    let mut calls = find_calls(id, readers)?;
    let Some(call) = calls.pop().filter(|_| calls.is_empty()) else {
        let what = if calls.is_empty() { "there is no call" } else { "several calls have the id" };
        return Err(error_with_hint(
            format!("{what} `{id}`"),
            "list the newest calls with `toolgate log`; a unique prefix of an id is enough",
        ));
    };
    if output.json {
        output.document(&call)?;
    } else {
        output.result(&call_text(&call)?);
    }
    Ok(DONE)
}

/// Returns the call with this id, or else the calls with this prefix of an id, at most two.
fn find_calls(id: &str, readers: &[LogReader]) -> anyhow::Result<Vec<LoggedCall>> {
    for reader in readers {
        if let Some(call) = reader.show(id)? {
            return Ok(vec![call]);
        }
    }
    let mut calls = Vec::new();
    for reader in readers {
        for id in reader.ids_with_prefix(id, 2)? {
            calls.extend(reader.show(&id)?);
        }
    }
    calls.truncate(2);
    Ok(calls)
}

/// Formats a call with all its details.
fn call_text(call: &LoggedCall) -> anyhow::Result<String> {
    let mut text = format!(
        "{BOLD}{}{BOLD:#} {} by {}\n",
        printable(call.tool()),
        printable(call.status()),
        printable(call.caller())
    );
    let mut row = |key: &str, value: &str| {
        if !value.is_empty() {
            text.push_str(&format!("  {DIM}{key:11}{DIM:#}  {}\n", printable(value)));
        }
    };
    row("id", call.id());
    row("began", &format!("{:.3}", call.time()));
    if call.operation() != "tool" {
        row("operation", call.operation());
    }
    if let Some(begin) = &call.begin {
        row("server", begin.server.as_deref().unwrap_or_default());
        let mut decision = begin.decision.clone();
        if begin.not_approved {
            decision.push_str(", not approved");
        }
        if !begin.rules.is_empty() {
            decision.push_str(&format!(", by {}", begin.rules.join(", ")));
        }
        if let Some(person) = &begin.asked {
            decision.push_str(&format!(", approved by {person}"));
        }
        if let Some(person) = &begin.refused_by {
            decision.push_str(&format!(", refused by {person}"));
        }
        row("decision", &decision);
        row("person", begin.person.as_deref().unwrap_or_default());
        row("groups", &begin.groups.join(", "));
        row("credential", begin.credential.as_deref().unwrap_or_default());
        row("tainted", if begin.tainted { "yes" } else { "" });
        row("session", begin.session.as_deref().unwrap_or_default());
        row("correlation", &begin.correlation);
        row("trace", &begin.trace);
        row("definition", begin.definition.as_deref().unwrap_or_default());
    }
    if let Some(end) = &call.end {
        let cached = if end.cached { ", from the cache" } else { "" };
        let attempts = if end.attempts > 1 { format!(", {} attempts", end.attempts) } else { String::new() };
        row("took", &format!("{}{attempts}{cached}", milliseconds(end.micros)));
        row("sent as", &sent_as(end));
        if let Some(error) = &end.error {
            row("error", &format!("{} in {}: {}", error.code, error.stage, error.message));
            row("effect", &error.outcome);
            row("cause", error.cause.as_deref().unwrap_or_default());
        }
        let stage = |stage: &StageRecord| match stage {
            StageRecord::Plain(name, micros) => format!("{name} {}", milliseconds(*micros)),
            StageRecord::Noted(name, micros, note) => format!("{name} {} ({note})", milliseconds(*micros)),
        };
        row("stages", &end.stages.iter().map(stage).collect::<Vec<_>>().join(", "));
    }
    let (begin, end) = (call.begin.as_ref(), call.end.as_ref());
    let arguments = begin.and_then(|begin| begin.arguments.as_deref());
    let output = end.and_then(|end| end.output.as_deref());
    text.push_str(&body_text("arguments", arguments, begin.and_then(|begin| begin.arguments_cut.as_ref()))?);
    text.push_str(&body_text("output", output, end.and_then(|end| end.output_cut.as_ref()))?);
    Ok(text)
}

/// Formats the credential that the server got, and its account there.
fn sent_as(end: &EndRecord) -> String {
    let EndRecord { upstream_credential, upstream_account, .. } = end;
    let parts = [upstream_credential, upstream_account].into_iter().flatten();
    parts.map(String::as_str).collect::<Vec<_>>().join(", account ")
}

/// Formats the arguments or the output of a call; empty if they were not recorded.
fn body_text(
    name: &str,
    body: Option<&RawValue>,
    truncated: Option<&TruncatedBody>,
) -> anyhow::Result<String> {
    if let Some(body) = body {
        let body: Json = serde_json::from_str(body.get())?;
        return Ok(format!("{BOLD}{name}{BOLD:#}\n{}\n", display_json(&body)?));
    }
    let Some(TruncatedBody { head, length, .. }) = truncated else { return Ok(String::new()) };
    let shown = quoted_lines(head);
    Ok(format!("{BOLD}{name}{BOLD:#} {DIM}the first part of {length} bytes{DIM:#}\n  | {shown}\n"))
}

fn milliseconds(micros: u64) -> String {
    format!("{:.1} ms", Duration::from_micros(micros).as_secs_f64() * 1e3)
}

/// Prints the statistics of all writers, one row per tool.
fn stats(filter: &CallFilter, readers: &[LogReader], output: &Output) -> anyhow::Result<u8> {
    let all = LogReader::merged_stats(readers, filter)?;
    if output.json {
        let row = |(tool, stats): (&String, &ToolStats)| json!({ "tool": tool, "stats": stats, "errorRate": stats.error_rate() });
        output.document(&all.iter().map(row).collect::<Vec<_>>())?;
        return Ok(DONE);
    }
    let header = ["tool", "calls", "errors", "cached", "p50 ms", "p90 ms", "p99 ms"].map(str::to_owned);
    let ms = |micros: u64| format!("{:.1}", Duration::from_micros(micros).as_secs_f64() * 1e3);
    let row = |(tool, stats): (&String, &ToolStats)| {
        let ToolStats { count, errors, cached, p50_micros, p90_micros, p99_micros, .. } = *stats;
        let (p50, p90, p99) = (ms(p50_micros), ms(p90_micros), ms(p99_micros));
        [printable(tool), count.to_string(), errors.to_string(), cached.to_string(), p50, p90, p99]
    };
    let rows: Vec<_> = std::iter::once(header).chain(all.iter().map(row)).collect();
    if all.is_empty() {
        output.next_step("no calls match; make one with `toolgate tools call NAME`");
        return Ok(DONE);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    for (index, row) in rows.iter().enumerate() {
        let numbers = row.iter().zip(&widths).skip(1).map(|(cell, width)| format!("  {cell:>width$}"));
        let (name, width, numbers) = (&row[0], widths[0], numbers.collect::<String>());
        let style = if index == 0 { DIM } else { BOLD };
        output.result(&format!("{style}{name:width$}{style:#}{numbers}\n"));
    }
    Ok(DONE)
}

fn verify_log(folders: &[PathBuf], output: &Output) -> anyhow::Result<u8> {
    let (mut records, mut faults) = (0, Vec::new());
    for folder in folders {
        let verified = verify::verify(folder)?;
        records += verified.records;
        let writer = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        faults.extend(verified.faults.iter().map(|fault| format!("{writer}/{fault}")));
    }
    if output.json {
        output.document(&json!({ "records": records, "faults": faults, "whole": faults.is_empty() }))?;
    } else {
        faults.iter().for_each(|fault| output.result(&format!("{}\n", printable(fault))));
        let verdict = if faults.is_empty() { "the log is intact" } else { "the log is damaged" };
        output.result(&format!("{BOLD}{verdict}{BOLD:#}: {records} records, {} faults\n", faults.len()));
    }
    Ok(if faults.is_empty() { DONE } else { FAILED })
}

fn call_filter(args: &LogFilter) -> CallFilter {
    let LogFilter { tool, kind, caller, status, since, until, grep } = args.clone();
    CallFilter { tool, kind, caller, status, since, until, grep, ..CallFilter::default() }
}

fn selected_calls(args: &LogArgs) -> CallFilter {
    let LogSelection { server, code, decision, rule, session, trace, correlation, slower } =
        args.selection.clone();
    let slower_micros = slower.map(|slower| u64::try_from(slower.get().as_micros()).unwrap_or(u64::MAX));
    let filter = call_filter(&args.filter);
    CallFilter { server, code, decision, rule, session, trace, correlation, slower_micros, ..filter }
}

/// Parses the kind of an operation.
pub(crate) fn kind_argument() -> impl TypedValueParser<Value = OperationKind> {
    let labels = PossibleValuesParser::new(OperationKind::ALL.map(OperationKind::label));
    labels.map(|label| {
        let kind = OperationKind::ALL.into_iter().find(|kind| kind.label() == label);
        kind.expect("the label is one of the possible values")
    })
}

/// Parses a day, a time, or an age.
pub(crate) fn time_argument(text: &str) -> Result<Timestamp, ParseTimeError> {
    parse_time(text, Timestamp::now())
}
