//! `toolgate log`: what was called, by whom, and how it ended.
//!
//! The log of a project is in `.toolgate/log`, a folder for each process that writes at the same time: one
//! log has one writer. Readers see them as one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use serde_json::json;
use toolgate_audit::log::OpenError;
use toolgate_audit::project::{MOST_WRITERS, ProjectLog, moment};
use toolgate_audit::{Call, Filter, History, Log, Options, Reader, Recent, verify};
use toolgate_types::Secret;

use crate::cli::{LogArgs, LogCommand, LogFilter, Project};
use crate::output::{BOLD, DIM, Output, hinted, shown_json};
use crate::{DONE, FAILED};

/// How often a log that is followed is looked at.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);

/// Opens the log of a project to write to it.
pub(crate) fn open(project: &Path, secrets: Vec<Secret>) -> anyhow::Result<Log> {
    let folder = project.join(".toolgate");
    fs_err::create_dir_all(&folder)?;
    let ignore = folder.join(".gitignore");
    if !ignore.exists() {
        // What was said in confidence is not to be committed by accident.
        fs_err::write(&ignore, "*\n")?;
    }
    for writer in 1..=MOST_WRITERS {
        let options = Options { secrets: secrets.clone(), ..Options::default() };
        match Log::open(ProjectLog::of(project).writer(writer), options) {
            Err(OpenError::InUse(_)) => {}
            opened => return opened.context("calls cannot be written down, so none is made"),
        }
    }
    bail!("{MOST_WRITERS} processes write to the execution log of this project already");
}

/// What the log says of how tools did lately, and what followed what. Nothing, where it cannot be read: hints
/// are then made of less.
pub(crate) fn history(project: &Path) -> History {
    let mut all = History::default();
    for folder in ProjectLog::of(project).folders() {
        match Reader::new(folder).history(&Recent::of(Timestamp::now())) {
            Ok(history) => all.add(history),
            Err(error) => tracing::warn!("the execution log cannot be read: {error}"),
        }
    }
    all
}

pub(crate) fn run(args: &LogArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let folders = ProjectLog::of(&project.folder).folders();
    let readers: Vec<_> = folders.iter().map(Reader::new).collect();
    match &args.command {
        Some(LogCommand::Show(one)) => show(&one.id, &readers, output),
        Some(LogCommand::Stats(wanted)) => stats(&filter(wanted)?, &readers, output),
        Some(LogCommand::Verify) => check(&folders, output),
        Some(LogCommand::Export(export)) => {
            let mut stdout = std::io::stdout().lock();
            for reader in &readers {
                if export.csv {
                    reader.export_csv(filter(&export.filter)?, &mut stdout)?;
                } else {
                    reader.export_lines(&filter(&export.filter)?, &mut stdout)?;
                }
            }
            Ok(DONE)
        }
        None if args.follow => follow(&filter(&args.filter)?, &readers, output),
        None => list(args, &readers, output),
    }
}

/// The newest calls, the newest last, as a log is read.
fn list(args: &LogArgs, readers: &[Reader], output: &Output) -> anyhow::Result<u8> {
    let mut calls = Vec::new();
    for reader in readers {
        let wanted = Filter { newest_first: true, limit: Some(args.limit), ..filter(&args.filter)? };
        for call in reader.query(wanted)? {
            calls.push(call?);
        }
    }
    calls.sort_by_key(|call| std::cmp::Reverse(call.time()));
    calls.truncate(args.limit);
    calls.iter().rev().try_for_each(|call| tell(call, output))?;
    if calls.is_empty() && !output.json {
        output.next("there is no such call; `toolgate tools call NAME` makes one");
    }
    Ok(DONE)
}

fn follow(filter: &Filter, readers: &[Reader], output: &Output) -> anyhow::Result<u8> {
    let mut all: Vec<_> =
        readers.iter().map(|reader| reader.follow(filter.clone())).collect::<Result<_, _>>()?;
    if all.is_empty() {
        bail!("there is no log to follow yet; `toolgate tools call NAME` begins one");
    }
    loop {
        for one in &mut all {
            one.poll()?.iter().try_for_each(|call| tell(call, output))?;
        }
        std::thread::sleep(FOLLOW_EVERY);
    }
}

/// One call on a line.
fn tell(call: &Call, output: &Output) -> anyhow::Result<()> {
    if output.json {
        return output.line(call);
    }
    let end = call.end.as_ref();
    let took = end.map(|end| format!("{:.1} ms", Duration::from_micros(end.micros).as_secs_f64() * 1e3));
    let error = end.and_then(|end| end.error.as_ref());
    let how =
        error.map_or_else(|| call.status().to_owned(), |error| format!("{}: {}", error.code, error.message));
    let line = format!(
        "{DIM}{:.3}  {}{DIM:#}  {BOLD}{}{BOLD:#} by {}  {}  {how}\n",
        call.time(),
        call.id(),
        call.tool(),
        call.caller(),
        took.unwrap_or_default(),
    );
    // A closed pipe ends it quietly.
    output.result(&line);
    Ok(())
}

fn show(id: &str, readers: &[Reader], output: &Output) -> anyhow::Result<u8> {
    for reader in readers {
        if let Some(call) = reader.show(id)? {
            if output.json {
                output.document(&call)?;
            } else {
                output.result(&format!("{}\n", shown_json(&call)?));
            }
            return Ok(DONE);
        }
    }
    Err(hinted(format!("there is no call `{id}`"), "`toolgate log` lists the newest"))
}

fn stats(filter: &Filter, readers: &[Reader], output: &Output) -> anyhow::Result<u8> {
    // Percentiles of several writers cannot be put together from theirs, so each has its own line.
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
            one["tool"].as_str().unwrap_or_default(),
            stats["count"],
            stats["errors"],
            ms("p50_micros"),
            ms("p90_micros"),
            ms("p99_micros"),
        ));
    }
    Ok(DONE)
}

fn check(folders: &[PathBuf], output: &Output) -> anyhow::Result<u8> {
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
        faults.iter().for_each(|fault| output.result(&format!("{fault}\n")));
        let verdict = if faults.is_empty() { "the log is whole" } else { "the log is not whole" };
        output.result(&format!("{BOLD}{verdict}{BOLD:#}: {records} records, {} faults\n", faults.len()));
    }
    Ok(if faults.is_empty() { DONE } else { FAILED })
}

fn filter(args: &LogFilter) -> anyhow::Result<Filter> {
    let LogFilter { tool, caller, status, since, until, grep } = args.clone();
    let time = |text: Option<String>| text.map(|text| moment(&text, Timestamp::now())).transpose();
    Ok(Filter { tool, caller, status, since: time(since)?, until: time(until)?, grep, ..Filter::default() })
}
