//! `toolgate log`: what was called, by whom, and how it ended.
//!
//! The log of a project is in `.toolgate/log`, or where `audit` says: a folder for each process that writes at the same time: one
//! log has one writer. Readers see them as one.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use serde_json::json;
use toolgate_audit::log::OpenError;
use toolgate_audit::project::{MOST_WRITERS, MomentError, ProjectLog, moment};
use toolgate_audit::{Call, Event, Filter, History, Log, Options, Reader, Recent, verify};
use toolgate_config::{Config, Environment, load};
use toolgate_types::{AuditRules, Secret};

use crate::cli::{LogArgs, LogCommand, LogFilter, Project};
use crate::output::{BOLD, DIM, Output, hinted, shown_json};
use crate::{DONE, FAILED};

/// How often a log that is followed is looked at.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);

const NOT_WRITTEN: &str = "calls cannot be written down, so none is made";

/// What a command keeps on the disk for the end of its one call, beside its bodies.
const RESERVE_OF_ONE: u64 = 1 << 20;

/// How many calls a process has on their way at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calls {
    One,
    Many,
}

/// How the log of a project is kept.
pub(crate) struct Keeping {
    project: PathBuf,
    rules: AuditRules,
    secrets: Vec<Secret>,
    policy: String,
    /// The configuration as it is shown, without secrets.
    shown: Vec<u8>,
}

impl Keeping {
    pub(crate) fn of(config: &Config) -> anyhow::Result<Self> {
        Ok(Self {
            project: config.project.clone(),
            rules: config.audit.clone(),
            secrets: config.secrets.clone(),
            policy: config.policy.as_ref().map_or("permissions", |policy| &policy.version).to_owned(),
            shown: serde_json::to_vec(config)?,
        })
    }

    /// Where it is.
    pub(crate) fn log(&self) -> ProjectLog {
        ProjectLog::new(self.project.join(&self.rules.folder))
    }

    /// Opens it to write to it.
    pub(crate) fn open(&self, calls: Calls) -> anyhow::Result<Log> {
        let Self { project, rules, secrets, policy, shown } = self;
        let folder = project.join(&rules.folder);
        fs_err::create_dir_all(&folder).context(NOT_WRITTEN)?;
        // What was said in confidence is not to be committed by accident.
        let usual = project.join(".toolgate");
        let ignore = if folder.starts_with(&usual) { usual } else { folder }.join(".gitignore");
        if !ignore.exists() {
            fs_err::write(&ignore, "*\n").context(NOT_WRITTEN)?;
        }
        let most = match calls {
            Calls::One => rules.max_body.bytes() * 2 + RESERVE_OF_ONE,
            Calls::Many => u64::MAX,
        };
        for writer in 1..=MOST_WRITERS {
            let options = Options {
                max_body: usize::try_from(rules.max_body.bytes()).unwrap_or(usize::MAX),
                keep: rules.keep.get(),
                secrets: secrets.clone(),
                patterns: rules.redact.clone(),
                reserve: rules.reserve.0.map_or(0, |size| size.bytes().min(most)),
                on_full: rules.on_full,
                ..Options::default()
            };
            match Log::open(self.log().writer(writer), options) {
                Err(OpenError::InUse(_)) => {}
                opened => {
                    let log = opened.context(NOT_WRITTEN)?;
                    let start = Event::Start { version: env!("CARGO_PKG_VERSION"), policy, config: shown };
                    // It is handed over at once, and the calls that follow it wait for what matters.
                    drop(log.note(&start));
                    return Ok(log);
                }
            }
        }
        bail!("{MOST_WRITERS} processes write to the execution log of this project already");
    }

    /// What the log says of how tools did lately, and what followed what. Nothing, where it cannot be read: hints
    /// are then made of less.
    pub(crate) fn history(&self) -> History {
        let mut all = History::default();
        for folder in self.log().folders() {
            match Reader::new(folder).history(&Recent::of(Timestamp::now())) {
                Ok(history) => all.add(history),
                Err(error) => tracing::warn!("the execution log cannot be read: {error}"),
            }
        }
        all
    }
}

/// The folders of a project's log, by the number of their writer. A configuration that is broken is not in the
/// way of who looks for what happened.
pub(crate) fn folders(project: &Project, output: &Output) -> Vec<PathBuf> {
    let loaded = load(&project.folder, project.file.as_deref(), &Environment::of_process());
    let broken = loaded.config.is_none();
    let rules = loaded.config.map(|config| config.audit).unwrap_or_default();
    let folders = ProjectLog::new(project.folder.join(&rules.folder)).folders();
    if broken && !folders.is_empty() {
        let usual = rules.folder.display();
        output.message(&format!("note: the configuration cannot be read, so this is the log in `{usual}`\n"));
    }
    folders
}

pub(crate) fn run(args: &LogArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let folders = folders(project, output);
    let readers: Vec<_> = folders.iter().map(Reader::new).collect();
    match &args.command {
        Some(LogCommand::Show(one)) => show(&one.id, &readers, output),
        Some(LogCommand::Stats(wanted)) => stats(&filter(wanted), &readers, output),
        Some(LogCommand::Verify) => check(&folders, output),
        Some(LogCommand::Export(export)) => {
            let mut stdout = std::io::stdout().lock();
            for reader in &readers {
                if export.csv {
                    reader.export_csv(filter(&export.filter), &mut stdout)?;
                } else {
                    reader.export_lines(&filter(&export.filter), &mut stdout)?;
                }
            }
            Ok(DONE)
        }
        None if args.follow => follow(&filter(&args.filter), &readers, output),
        None => list(args, &readers, output),
    }
}

/// The newest calls, the newest last, as a log is read.
fn list(args: &LogArgs, readers: &[Reader], output: &Output) -> anyhow::Result<u8> {
    let mut calls = Vec::new();
    for reader in readers {
        let wanted = Filter { newest_first: true, limit: Some(args.limit), ..filter(&args.filter) };
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

fn filter(args: &LogFilter) -> Filter {
    let LogFilter { tool, caller, status, since, until, grep } = args.clone();
    Filter { tool, caller, status, since, until, grep, ..Filter::default() }
}

/// A day, a time, or how long ago.
pub(crate) fn time(text: &str) -> Result<Timestamp, MomentError> {
    moment(text, Timestamp::now())
}
