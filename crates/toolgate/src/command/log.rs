//! `toolgate log`: shows, verifies and exports the execution log.
//!
//! The log is in `.toolgate/log`, or in the folder set by `audit`. A log has a single writer, so each concurrent
//! process has its own subfolder. Readers merge them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use jiff::Timestamp;
use serde_json::json;
use toolgate_audit::project::{ParseTimeError, ProjectLog, parse_time};
use toolgate_audit::{CallFilter, LogReader, LoggedCall, verify};
use toolgate_config::load;
use toolgate_redact::printable;
use toolgate_types::call::OperationKind;

use crate::cli::{LogArgs, LogCommand, LogFilter, ProjectArgs};
use crate::output::{BOLD, DIM, Output, display_json, error_with_hint};
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
        None if args.follow => follow(&call_filter(&args.filter), &readers, output),
        None => list(args, &readers, output),
    }
}

/// Prints the newest calls in chronological order.
fn list(args: &LogArgs, readers: &[LogReader], output: &Output) -> anyhow::Result<u8> {
    let mut calls = Vec::new();
    for reader in readers {
        let wanted = CallFilter { newest_first: true, limit: Some(args.limit), ..call_filter(&args.filter) };
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
    let took = end.map(|end| format!("{:.1} ms", Duration::from_micros(end.micros).as_secs_f64() * 1e3));
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
    for reader in readers {
        if let Some(call) = reader.show(id)? {
            if output.json {
                output.document(&call)?;
            } else {
                output.result(&format!("{}\n", display_json(&call)?));
            }
            return Ok(DONE);
        }
    }
    Err(error_with_hint(format!("there is no call `{id}`"), "list the newest calls with `toolgate log`"))
}

fn stats(filter: &CallFilter, readers: &[LogReader], output: &Output) -> anyhow::Result<u8> {
    // Percentiles of several writers cannot be merged, so each writer has its own line.
    let mut all = Vec::new();
    for (writer, reader) in readers.iter().enumerate() {
        for (tool, stats) in reader.stats(filter)? {
            all.push(json!({ "tool": tool, "writer": writer + 1, "stats": stats, "errorRate": stats.error_rate() }));
        }
    }
    if output.json {
        output.document(&all)?;
        return Ok(DONE);
    }
    for one in &all {
        let stats = &one["stats"];
        let ms = |name: &str| stats[name].as_f64().unwrap_or_default() / 1e3;
        output.result(&format!(
            "{BOLD}{}{BOLD:#}  {} calls, {} errors, p50 {:.1} ms, p90 {:.1} ms, p99 {:.1} ms\n",
            printable(one["tool"].as_str().unwrap_or_default()),
            stats["count"],
            stats["errors"],
            ms("p50_micros"),
            ms("p90_micros"),
            ms("p99_micros"),
        ));
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
