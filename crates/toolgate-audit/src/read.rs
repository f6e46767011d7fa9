//! Questions to a log: which calls, how one went, how tools fare.
//!
//! Files are read from the end, in blocks, and lines are looked at as texts before any is parsed, so the last
//! calls of one tool cost what those calls cost. Invariant: it reads and never writes, and a log may be
//! written meanwhile. A call is told when both its lines were seen; one without an end is open, or was
//! when the process died.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;

use fs_err::File;
use jiff::Timestamp;
use jiff::civil::Date;
use memchr::memmem::{Finder, find};
use memchr::{memchr, memchr2};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::chain::{self, Line};
use crate::folder;
use crate::histogram::Histogram;
use crate::merge::{Merge, Order};
use crate::scan::Forward;

pub mod export;
pub mod history;

/// What of a body was too long is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// How it begins.
    pub head: String,
    /// How long it was, in bytes.
    pub length: u64,
    /// The SHA-256 of what is not there.
    pub sha256: String,
}

/// How a call began.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Began {
    /// Its number.
    pub seq: u64,
    /// When it was written.
    pub time: Timestamp,
    /// What tells the call from every other.
    pub call: String,
    /// Who called.
    pub caller: String,
    /// What was called.
    pub tool: String,
    /// The session it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// What links it with other calls.
    pub correlation: String,
    /// Whether the client made that up.
    pub correlation_from_client: bool,
    /// The trace it is part of.
    pub trace: String,
    /// The server that has the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// What tells this definition of the tool from any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    /// `allow`, `deny` or `undecided`.
    pub decision: String,
    /// The rules that decided.
    pub rules: Vec<String>,
    /// Who was asked and said yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// The arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Box<RawValue>>,
    /// The arguments, where they were too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments_cut: Option<Cut>,
}

/// Why a call came to nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Failed {
    /// In one word.
    pub code: String,
    /// Where on the road.
    pub stage: String,
    /// Whether the tool did something.
    pub outcome: String,
    /// What the caller was told.
    pub message: String,
    /// What the caller was not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// How a call ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ended {
    /// Its number.
    pub seq: u64,
    /// When it was written.
    pub time: Timestamp,
    /// What tells the call from every other.
    pub call: String,
    /// Who called.
    pub caller: String,
    /// What was called.
    pub tool: String,
    /// The session it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// `success`, `error` or `abandoned`.
    pub status: String,
    /// Why it came to nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failed>,
    /// How often the tool was tried.
    pub attempts: u32,
    /// Whether the result was known already.
    pub cached: bool,
    /// From the request to the result.
    pub micros: u64,
    /// The stages it passed, with their time in microseconds and what was decided.
    pub stages: Vec<Passed>,
    /// What the tool gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Box<RawValue>>,
    /// What the tool gave, where it was too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_cut: Option<Cut>,
}

/// A stage that was passed: its name, its time in microseconds, what was decided there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Passed {
    /// With a note.
    Noted(String, u64, String),
    /// Without one.
    Plain(String, u64),
}

/// A call, as far as it is known.
#[derive(Debug, Clone, Serialize)]
pub struct Call {
    /// How it began; not known when that was removed as too old, or before the reader began to look.
    pub begin: Option<Began>,
    /// How it ended; not known while it runs, or when the process died with it.
    pub end: Option<Ended>,
}

impl Call {
    fn new(begin: Option<&[u8]>, end: Option<&[u8]>) -> Option<Self> {
        let call = Self {
            begin: begin.and_then(|line| serde_json::from_slice(line).ok()),
            end: end.and_then(|line| serde_json::from_slice(line).ok()),
        };
        (call.begin.is_some() || call.end.is_some()).then_some(call)
    }

    /// What tells it from every other.
    pub fn id(&self) -> &str {
        self.either(|begin| begin.call.as_str(), |end| end.call.as_str())
    }

    /// What was called.
    pub fn tool(&self) -> &str {
        self.either(|begin| begin.tool.as_str(), |end| end.tool.as_str())
    }

    /// Who called.
    pub fn caller(&self) -> &str {
        self.either(|begin| begin.caller.as_str(), |end| end.caller.as_str())
    }

    /// When it began, or else when it ended.
    pub fn time(&self) -> Timestamp {
        self.either(|begin| begin.time, |end| end.time)
    }

    /// How it ended in one word; `open` when it did not.
    pub fn status(&self) -> &str {
        self.end.as_ref().map_or("open", |end| end.status.as_str())
    }

    fn either<'a, T>(&'a self, begin: impl Fn(&'a Began) -> T, end: impl Fn(&'a Ended) -> T) -> T {
        match (&self.begin, &self.end) {
            (Some(known), _) => begin(known),
            (None, Some(known)) => end(known),
            (None, None) => unreachable!("a call without a line is not made"),
        }
    }
}

/// Which calls.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Of this tool; `github.*` stands for all that begin so.
    pub tool: Option<String>,
    /// Of this caller.
    pub caller: Option<String>,
    /// That ended so: `success`, `error`, `abandoned`, `open`, or the code of an error.
    pub status: Option<String>,
    /// That began at this time or later.
    pub since: Option<Timestamp>,
    /// That began before this time.
    pub until: Option<Timestamp>,
    /// With this text anywhere in their records.
    pub grep: Option<String>,
    /// At most so many.
    pub limit: Option<usize>,
    /// The last ones, the newest first, in the order they began. Otherwise the first ones, in the order they
    /// ended, and those without an end after them.
    pub newest_first: bool,
}

impl Filter {
    /// The call of two lines, when it passes.
    fn passing(&self, begin: Option<&[u8]>, end: Option<&[u8]>) -> Option<Call> {
        let said = |wanted: &String| {
            let quoted = quoted(wanted);
            let within = |line: &[u8]| {
                find(line, wanted.as_bytes()).is_some()
                    || find(line, &quoted.as_bytes()[1..quoted.len() - 1]).is_some()
            };
            [begin, end].into_iter().flatten().any(within)
        };
        // Before anything is parsed.
        if !self.grep.as_ref().is_none_or(said) {
            return None;
        }
        Call::new(begin, end).filter(|call| self.accepts(call))
    }

    fn accepts(&self, call: &Call) -> bool {
        let tool = |wanted: &String| match wanted.strip_suffix('*') {
            Some(start) => call.tool().starts_with(start),
            None => call.tool() == wanted,
        };
        let status = |wanted: &String| {
            let code = call.end.as_ref().and_then(|end| end.error.as_ref()).map(|error| error.code.as_str());
            call.status() == wanted || code == Some(wanted)
        };
        self.tool.as_ref().is_none_or(tool)
            && self.caller.as_ref().is_none_or(|wanted| call.caller() == wanted)
            && self.status.as_ref().is_none_or(status)
            && self.since.is_none_or(|since| call.time() >= since)
            && self.until.is_none_or(|until| call.time() < until)
    }

    /// What to look for in a line before it is parsed.
    fn quick(&self) -> impl Fn(&[u8]) -> bool + Send + 'static {
        let tool = self.tool.as_ref().map(|tool| match tool.strip_suffix('*') {
            Some(start) => needle("tool", start).trim_end_matches('"').to_owned(),
            None => needle("tool", tool),
        });
        let caller = self.caller.as_ref().map(|caller| needle("caller", caller));
        let finders: Vec<_> = [tool, caller]
            .into_iter()
            .flatten()
            .map(|needle| Finder::new(needle.as_bytes()).into_owned())
            .collect();
        let since = self.since.map(chain::stamp_text);
        move |line| {
            let late = |since: &String| Line::look(line).is_some_and(|line| line.time >= since.as_str());
            finders.iter().all(|finder| finder.find(line).is_some()) && since.as_ref().is_none_or(late)
        }
    }
}

/// A member with a text, as it stands in a line.
fn needle(name: &str, text: &str) -> String {
    format!("\"{name}\":{}", quoted(text))
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// What a line says about which call it belongs to.
#[derive(Deserialize)]
struct Glance<'a> {
    kind: &'a str,
    #[serde(borrow)]
    call: Cow<'a, str>,
}

impl<'a> Glance<'a> {
    /// Says whether it is a begin, and of which call.
    fn at(line: &'a [u8]) -> Option<(bool, Cow<'a, str>)> {
        // Both stand first, and ids of ours have nothing to escape: most lines need not be parsed.
        if let Some(rest) = Line::look(line)?.rest().strip_prefix(b",\"kind\":\"")
            && let Some(kind) = memchr(b'"', rest)
            && let Some(id) = rest[kind..].strip_prefix(b"\",\"call\":\"")
            && let Some(end) = memchr2(b'"', b'\\', id)
            && id[end] == b'"'
        {
            return Some((&rest[..kind] == b"begin", String::from_utf8_lossy(&id[..end])));
        }
        let glance: Self = serde_json::from_slice(line).ok()?;
        Some((glance.kind == "begin", glance.call))
    }
}

/// Reads a log.
#[derive(Debug, Clone)]
pub struct Reader {
    folder: PathBuf,
}

impl Reader {
    /// A reader of the log in a folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    fn days(&self) -> io::Result<Vec<Date>> {
        match folder::days(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            days => days,
        }
    }

    /// The file of a day, when it was not removed as too old in this moment.
    fn open(&self, day: Date) -> io::Result<Option<File>> {
        match File::open(folder::path(&self.folder, day)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            file => file.map(Some),
        }
    }

    /// The calls that pass a filter, one after the other.
    pub fn query(&self, filter: Filter) -> io::Result<Calls> {
        let since = filter.since.map(chain::day);
        let until = filter.until.map(chain::day);
        let days = self.days()?.into_iter().filter(|day| since.is_none_or(|since| *day >= since));
        let (days, later) = days.partition(|day| until.is_none_or(|until| *day <= until));
        let days: Vec<_> = days;
        let order = if filter.newest_first { Order::NewestFirst } else { Order::OldestFirst };
        let quick = filter.quick();
        let merge = Merge::new(&self.folder, days, order, move |_, _, line| quick(line))?;
        let left = filter.limit.unwrap_or(usize::MAX);
        Ok(Calls { reader: self.clone(), merge, filter, later, halves: HashMap::new(), rest: None, left })
    }

    /// One call.
    pub fn show(&self, call: &str) -> io::Result<Option<Call>> {
        let finder = Finder::new(&needle("call", call)).into_owned();
        // An id of ours says when it was made.
        let made =
            call.get(..12).filter(|_| call.len() == 28).and_then(|time| i64::from_str_radix(time, 16).ok());
        let made = made.and_then(|millis| Timestamp::from_millisecond(millis).ok()).map(chain::day);
        let days: Vec<_> = self.days()?;
        let days = days.into_iter().filter(|day| made.is_none_or(|made| *day >= made));
        let mut merge = Merge::new(&self.folder, days, Order::NewestFirst, move |_, _, line| {
            finder.find(line).is_some()
        })?;
        let mut end = None;
        while let Some(found) = merge.next()? {
            match Glance::at(&found.line) {
                Some((true, id)) if id == call => return Ok(Call::new(Some(&found.line), end.as_deref())),
                Some((false, id)) if id == call => end = Some(found.line),
                _ => {}
            }
        }
        Ok(Call::new(None, end.as_deref()))
    }

    /// How the tools fared, by their names. Counts calls that ended in the filter's time.
    pub fn stats(&self, filter: &Filter) -> io::Result<BTreeMap<String, ToolStats>> {
        #[derive(Deserialize)]
        struct Brief<'a> {
            #[serde(borrow)]
            tool: Cow<'a, str>,
            #[serde(borrow)]
            caller: Cow<'a, str>,
            status: &'a str,
            cached: bool,
            micros: u64,
        }
        let quick = filter.quick();
        let until = filter.until.map(chain::stamp_text);
        let end = Finder::new(r#","kind":"end","#);
        let days = self.days()?.into_iter().filter(|day| {
            filter.since.is_none_or(|since| *day >= chain::day(since))
                && filter.until.is_none_or(|until| *day <= chain::day(until))
        });
        let mut merge = Merge::new(&self.folder, days, Order::OldestFirst, |_, _, line| {
            let early = |until: &String| Line::look(line).is_some_and(|line| line.time < until.as_str());
            end.find(line).is_some() && quick(line) && until.as_ref().is_none_or(early)
        })?;
        let mut tools: BTreeMap<String, (ToolStats, Histogram)> = BTreeMap::new();
        while let Some(found) = merge.next()? {
            let Ok(brief) = serde_json::from_slice::<Brief<'_>>(&found.line) else { continue };
            let other = |wanted: &String| match wanted.strip_suffix('*') {
                Some(start) => !brief.tool.starts_with(start),
                None => brief.tool != *wanted,
            };
            if filter.tool.as_ref().is_some_and(other)
                || filter.caller.as_ref().is_some_and(|wanted| brief.caller != *wanted)
            {
                continue;
            }
            if !tools.contains_key(&*brief.tool) {
                tools.insert(brief.tool.clone().into_owned(), Default::default());
            }
            let Some((stats, histogram)) = tools.get_mut(&*brief.tool) else { continue };
            stats.count += 1;
            stats.errors += u64::from(brief.status == "error");
            stats.abandoned += u64::from(brief.status == "abandoned");
            stats.cached += u64::from(brief.cached);
            histogram.add(brief.micros);
        }
        let finish = |(tool, (mut stats, histogram)): (String, (ToolStats, Histogram))| {
            [stats.p50_micros, stats.p90_micros, stats.p99_micros] =
                [0.5, 0.9, 0.99].map(|share| histogram.percentile(share));
            (tool, stats)
        };
        Ok(tools.into_iter().map(finish).collect())
    }

    /// Follows a log from its present end.
    pub fn follow(&self, filter: Filter) -> io::Result<Follow> {
        let mut files = BTreeMap::new();
        for day in self.days()? {
            let Some(file) = self.open(day)? else { continue };
            let end = folder::end(&file)?.length;
            files.insert(day, Forward::new(file, end)?);
        }
        Ok(Follow { reader: self.clone(), filter, files, begins: HashMap::new() })
    }

    /// Follows a log that is new, from its start.
    pub(crate) fn follow_whole(&self, filter: Filter) -> Follow {
        Follow { reader: self.clone(), filter, files: BTreeMap::new(), begins: HashMap::new() }
    }
}

/// How a tool fared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ToolStats {
    /// Calls that ended.
    pub count: u64,
    /// Those that ended with an error.
    pub errors: u64,
    /// Those that nobody waited for.
    pub abandoned: u64,
    /// Those that were answered from memory.
    pub cached: u64,
    /// Half of them took no longer.
    pub p50_micros: u64,
    /// Nine of ten took no longer.
    pub p90_micros: u64,
    /// All but one of a hundred took no longer.
    pub p99_micros: u64,
}

impl ToolStats {
    /// The share of calls that ended with an error.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    pub fn error_rate(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.errors as f64 / self.count as f64 }
    }
}

/// Calls that pass a filter.
pub struct Calls {
    reader: Reader,
    merge: Merge<'static>,
    filter: Filter,
    /// Days after the filter's, where calls of its time may have ended.
    later: Vec<Date>,
    /// Lines whose other half was not met: ends when the newest come first, else begins. As many as there
    /// were calls at a time.
    halves: HashMap<String, (u64, Vec<u8>)>,
    /// When all lines were read: the halves that are left, the next one last.
    rest: Option<Vec<(u64, Vec<u8>)>>,
    left: usize,
}

impl Calls {
    fn advance(&mut self) -> io::Result<Option<Call>> {
        while self.left > 0 {
            let Some(call) = self.candidate()? else { return Ok(None) };
            if let Some(call) = call {
                self.left -= 1;
                return Ok(Some(call));
            }
        }
        Ok(None)
    }

    /// The next call, when it passes. `None` at the end.
    fn candidate(&mut self) -> io::Result<Option<Option<Call>>> {
        if self.rest.is_none() {
            if let Some(found) = self.merge.next()? {
                return Ok(Some(self.pair(found.seq, found.line)?));
            }
            let mut rest: Vec<_> = self.halves.drain().map(|(_, half)| half).collect();
            rest.sort_by_key(|(seq, _)| if self.filter.newest_first { *seq } else { u64::MAX - seq });
            self.rest = Some(rest);
        }
        let Some((_, line)) = self.rest.as_mut().and_then(Vec::pop) else { return Ok(None) };
        // Of an end without a begin, the begin was before the filter's time, or is gone.
        if self.filter.newest_first {
            let gone = self.filter.since.is_none();
            return Ok(Some(if gone { self.filter.passing(None, Some(&line)) } else { None }));
        }
        let end = self.later_end(&line)?;
        Ok(Some(self.filter.passing(Some(&line), end.as_deref())))
    }

    fn pair(&mut self, seq: u64, line: Vec<u8>) -> io::Result<Option<Call>> {
        let Some((begins, id)) = Glance::at(&line) else { return Ok(None) };
        let second = begins == self.filter.newest_first;
        if !second {
            let id = id.into_owned();
            self.halves.insert(id, (seq, line));
            return Ok(None);
        }
        let other = self.halves.remove(&*id).map(|(_, line)| line);
        if begins {
            let end = match other {
                Some(end) => Some(end),
                None => self.later_end(&line)?,
            };
            Ok(self.filter.passing(Some(&line), end.as_deref()))
        } else if other.is_none() && self.filter.since.is_some() {
            Ok(None)
        } else {
            Ok(self.filter.passing(other.as_deref(), Some(&line)))
        }
    }

    /// The end of a call that ended after the filter's last day.
    fn later_end(&self, begin: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let Some((_, id)) = Glance::at(begin).filter(|_| !self.later.is_empty()) else { return Ok(None) };
        let finder = Finder::new(&needle("call", &id)).into_owned();
        let mut merge =
            Merge::new(&self.reader.folder, self.later.clone(), Order::OldestFirst, move |_, _, line| {
                finder.find(line).is_some()
            })?;
        while let Some(found) = merge.next()? {
            if Glance::at(&found.line).is_some_and(|(begins, found)| !begins && found == id) {
                return Ok(Some(found.line));
            }
        }
        Ok(None)
    }
}

impl Iterator for Calls {
    type Item = io::Result<Call>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}

/// Calls as they end.
pub struct Follow {
    reader: Reader,
    filter: Filter,
    files: BTreeMap<Date, Forward>,
    begins: HashMap<String, Vec<u8>>,
}

impl Follow {
    /// The calls that ended since the last time it was asked.
    pub fn poll(&mut self) -> io::Result<Vec<Call>> {
        for day in self.reader.days()? {
            if !self.files.contains_key(&day)
                && let Some(file) = self.reader.open(day)?
            {
                self.files.insert(day, Forward::new(file, 0)?);
            }
        }
        let mut lines = BTreeMap::new();
        for file in self.files.values_mut() {
            while let Some(line) = file.line()? {
                if let Some(looked) = Line::look(line) {
                    lines.insert(looked.seq, line.to_vec());
                }
            }
        }
        let mut calls = Vec::new();
        for line in lines.into_values() {
            let Some((begins, id)) = Glance::at(&line) else { continue };
            if begins {
                let id = id.into_owned();
                self.begins.insert(id, line);
                continue;
            }
            let begin = self.begins.remove(&*id);
            calls.extend(self.filter.passing(begin.as_deref(), Some(&line)));
        }
        Ok(calls)
    }
}
