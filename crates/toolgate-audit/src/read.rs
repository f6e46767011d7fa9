//! Queries over a log: lists calls, shows one, computes statistics.
//!
//! Files are read from the end, in blocks, and lines are filtered as bytes before any is parsed, so that the cost of
//! reading the last calls of a tool depends on those calls only. Invariant: it never writes, and the log may be
//! written at the same time. A call is complete when both of its records were read; a call without an end is still
//! running, or was when the process died.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;

use fs_err::File;
use jiff::Timestamp;
use jiff::civil::Date;
use memchr::memmem::{Finder, find};
use memchr::{memchr, memchr2};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use toolgate_types::call::OperationKind;

use crate::chain::{self, RecordLine};
use crate::folder;
use crate::histogram::Histogram;
use crate::merge::{LineMerge, ReadOrder};
use crate::scan::ForwardLines;

mod ends;
pub mod export;
pub mod history;
mod newest;

use newest::NewestCalls;
pub(crate) use newest::QueryStep;

/// Status of a call without an end.
const OPEN: &str = "open";

/// A body that was too long and was truncated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TruncatedBody {
    /// The first part of the body.
    pub head: String,
    /// Length of the body as received, in bytes.
    pub length: u64,
    /// SHA-256 of the body as received, if it has at most 4 KiB. Of the part that was cut off, in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// BLAKE3 of a longer body as received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
}

/// The begin record of a call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BeginRecord {
    /// Sequence number of the record.
    pub seq: u64,
    /// Time the record was written.
    pub time: Timestamp,
    /// Unique call id.
    pub call: String,
    pub caller: String,
    pub tool: String,
    /// Kind of the operation: `tool`, `resource`, `prompt`, and so on.
    #[serde(default = "tool_operation")]
    pub operation: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Correlation id that links related calls.
    pub correlation: String,
    /// True if the client supplied the correlation id.
    pub correlation_from_client: bool,
    pub trace: String,
    /// End user, as the caller named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Version of the calling agent, as the caller named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// Server that offers the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Hash of the tool definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    /// `allow`, `deny` or `undecided`.
    pub decision: String,
    /// Names of the policy rules that decided.
    pub rules: Vec<String>,
    /// True if the call needed approval and did not get it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_approved: bool,
    /// Person who approved the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// True if untrusted content had reached the session before the decision.
    #[serde(default)]
    pub tainted: bool,
    /// Person responsible for the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<String>,
    /// Groups of the caller when the call was decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Name of the credential that authenticated the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// Person that refused to approve the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_by: Option<String>,
    /// True if the tool is deprecated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deprecated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Box<RawValue>>,
    /// The arguments, if they were truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments_cut: Option<TruncatedBody>,
}

/// The kind of records that name none.
fn tool_operation() -> String {
    OperationKind::Tool.label().to_owned()
}

/// The error of a failed call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FailureRecord {
    pub code: String,
    /// Pipeline stage that failed.
    pub stage: String,
    /// Tells if the tool had any effect.
    pub outcome: String,
    /// Message sent to the caller.
    pub message: String,
    /// Error chain for the log only; not sent to the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// The end record of a call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EndRecord {
    /// Sequence number of the record.
    pub seq: u64,
    /// Time the record was written.
    pub time: Timestamp,
    /// Unique call id.
    pub call: String,
    pub caller: String,
    pub tool: String,
    /// Kind of the operation: `tool`, `resource`, `prompt`, and so on.
    #[serde(default = "tool_operation")]
    pub operation: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// `success`, `error` or `abandoned`.
    pub status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureRecord>,
    /// Number of times the tool was invoked.
    pub attempts: u32,
    /// True if the result came from the cache.
    pub cached: bool,
    /// Time from the request to the result.
    pub micros: u64,
    /// Stages the call passed.
    pub stages: Vec<StageRecord>,
    /// Name of the credential that the server got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_credential: Option<String>,
    /// Account at the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_account: Option<String>,
    /// Result of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Box<RawValue>>,
    /// The result, if it was truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_cut: Option<TruncatedBody>,
}

/// A stage of a call: its name, its duration in microseconds, and the decision made there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StageRecord {
    Noted(String, u64, String),
    Plain(String, u64),
}

/// A call, as far as its records are available.
#[derive(Debug, Clone, Serialize)]
pub struct LoggedCall {
    /// `None` if retention removed the begin, or it was written before the reader started.
    pub begin: Option<BeginRecord>,
    /// `None` while the call runs, or if the process died during the call.
    pub end: Option<EndRecord>,
}

impl LoggedCall {
    fn new(begin: Option<&[u8]>, end: Option<&[u8]>) -> Option<Self> {
        let call = Self {
            begin: begin.and_then(|line| serde_json::from_slice(line).ok()),
            end: end.and_then(|line| serde_json::from_slice(line).ok()),
        };
        (call.begin.is_some() || call.end.is_some()).then_some(call)
    }

    pub fn id(&self) -> &str {
        self.either(|begin| begin.call.as_str(), |end| end.call.as_str())
    }

    pub fn tool(&self) -> &str {
        self.either(|begin| begin.tool.as_str(), |end| end.tool.as_str())
    }

    /// Returns the kind of the operation.
    pub fn operation(&self) -> &str {
        self.either(|begin| begin.operation.as_str(), |end| end.operation.as_str())
    }

    pub fn caller(&self) -> &str {
        self.either(|begin| begin.caller.as_str(), |end| end.caller.as_str())
    }

    /// Returns the time the call began, or else the time it ended.
    pub fn time(&self) -> Timestamp {
        self.either(|begin| begin.time, |end| end.time)
    }

    /// Returns the status of the call; `open` if it has no end.
    pub fn status(&self) -> &str {
        self.end.as_ref().map_or(OPEN, |end| end.status.as_str())
    }

    /// Returns the code of the error, if the call failed.
    pub fn error_code(&self) -> Option<&str> {
        Some(self.end.as_ref()?.error.as_ref()?.code.as_str())
    }

    pub fn session(&self) -> Option<&str> {
        self.either(|begin| begin.session.as_deref(), |end| end.session.as_deref())
    }

    fn either<'a, T>(&'a self, begin: impl Fn(&'a BeginRecord) -> T, end: impl Fn(&'a EndRecord) -> T) -> T {
        match (&self.begin, &self.end) {
            (Some(known), _) => begin(known),
            (None, Some(known)) => end(known),
            (None, None) => unreachable!("a call without a line is not made"),
        }
    }
}

/// Selects calls.
#[derive(Debug, Clone, Default)]
pub struct CallFilter {
    /// Tool name; `github.*` matches all names with that prefix.
    pub tool: Option<String>,
    /// Kind of the operation. `None` selects all but lists, because there are many of them.
    pub kind: Option<OperationKind>,
    pub caller: Option<String>,
    /// Status: `success`, `error`, `abandoned`, `open`, or an error code.
    pub status: Option<String>,
    /// Calls that began at this time or later.
    pub since: Option<Timestamp>,
    /// Calls that began before this time.
    pub until: Option<Timestamp>,
    /// String that occurs anywhere in the records of the call.
    pub grep: Option<String>,
    pub server: Option<String>,
    /// Error code.
    pub code: Option<String>,
    /// `allow`, `deny` or `undecided`.
    pub decision: Option<String>,
    /// Name of a policy rule that decided.
    pub rule: Option<String>,
    pub session: Option<String>,
    pub trace: Option<String>,
    pub correlation: Option<String>,
    /// Minimum duration, in microseconds.
    pub slower_micros: Option<u64>,
    /// Maximum number of calls.
    pub limit: Option<usize>,
    /// Returns the newest calls first, in the order they began. Otherwise returns the oldest calls first, in the order
    /// they ended, followed by those without an end.
    pub newest_first: bool,
}

impl CallFilter {
    /// Parses the records of a call, if it matches.
    fn match_call(&self, begin: Option<&[u8]>, end: Option<&[u8]>) -> Option<LoggedCall> {
        let said = |wanted: &String| {
            let quoted = quoted(wanted);
            let within = |line: &[u8]| {
                find(line, wanted.as_bytes()).is_some()
                    || find(line, &quoted.as_bytes()[1..quoted.len() - 1]).is_some()
            };
            [begin, end].into_iter().flatten().any(within)
        };
        // Checked before anything is parsed.
        if !self.grep.as_ref().is_none_or(said) {
            return None;
        }
        LoggedCall::new(begin, end).filter(|call| self.accepts(call))
    }

    fn accepts(&self, call: &LoggedCall) -> bool {
        let tool = |wanted: &String| match wanted.strip_suffix('*') {
            Some(start) => call.tool().starts_with(start),
            None => call.tool() == wanted,
        };
        let code = call.error_code();
        let status = |wanted: &String| call.status() == wanted || code == Some(wanted);
        let begin = call.begin.as_ref();
        let begin_is = |wanted: &Option<String>, member: fn(&BeginRecord) -> Option<&String>| match wanted {
            Some(_) => begin.and_then(member) == wanted.as_ref(),
            None => true,
        };
        let session = |wanted: &String| call.session() == Some(wanted);
        let rule = |wanted: &String| begin.is_some_and(|begin| begin.rules.contains(wanted));
        let slower = |micros: u64| call.end.as_ref().is_some_and(|end| end.micros >= micros);
        self.tool.as_ref().is_none_or(tool)
            && match self.kind {
                Some(kind) => call.operation() == kind.label(),
                None => call.operation() != OperationKind::List.label(),
            }
            && self.caller.as_ref().is_none_or(|wanted| call.caller() == wanted)
            && self.status.as_ref().is_none_or(status)
            && self.since.is_none_or(|since| call.time() >= since)
            && self.until.is_none_or(|until| call.time() < until)
            && begin_is(&self.server, |begin| begin.server.as_ref())
            && begin_is(&self.decision, |begin| Some(&begin.decision))
            && begin_is(&self.trace, |begin| Some(&begin.trace))
            && begin_is(&self.correlation, |begin| Some(&begin.correlation))
            && self.code.as_ref().is_none_or(|wanted| code == Some(wanted))
            && self.session.as_ref().is_none_or(session)
            && self.rule.as_ref().is_none_or(rule)
            && self.slower_micros.is_none_or(slower)
    }

    /// Returns a predicate that rejects most lines without parsing them.
    fn line_predicate(&self) -> impl Fn(&[u8]) -> bool + Send + 'static {
        let tool = self.tool.as_ref().map(|tool| match tool.strip_suffix('*') {
            Some(start) => needle("tool", start).trim_end_matches('"').to_owned(),
            None => needle("tool", tool),
        });
        let caller = self.caller.as_ref().map(|caller| needle("caller", caller));
        let kind = self.kind.filter(|kind| *kind != OperationKind::Tool);
        let kind = kind.map(|kind| needle("operation", kind.label()));
        let finders: Vec<_> = [tool, kind, caller]
            .into_iter()
            .flatten()
            .map(|needle| Finder::new(needle.as_bytes()).into_owned())
            .collect();
        let since = self.since.map(chain::format_timestamp);
        move |line| {
            let late =
                |since: &String| RecordLine::parse(line).is_some_and(|line| line.time >= since.as_str());
            finders.iter().all(|finder| finder.find(line).is_some()) && since.as_ref().is_none_or(late)
        }
    }
}

/// Formats a string member as in a line.
fn needle(name: &str, text: &str) -> String {
    format!("\"{name}\":{}", quoted(text))
}

pub(crate) fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// The members of a record that identify its call.
#[derive(Deserialize)]
struct RecordKey<'a> {
    kind: &'a str,
    #[serde(borrow)]
    call: Cow<'a, str>,
}

impl<'a> RecordKey<'a> {
    /// Returns true for a begin, and the call id.
    fn parse(line: &'a [u8]) -> Option<(bool, Cow<'a, str>)> {
        // Both are the first members, and ids of ours have no escapes: most lines need no parsing.
        if let Some(rest) = RecordLine::parse(line)?.members().strip_prefix(b",\"kind\":\"")
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
pub struct LogReader {
    folder: PathBuf,
}

impl LogReader {
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    fn days(&self) -> io::Result<Vec<Date>> {
        match folder::list_days(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            days => days,
        }
    }

    /// Opens a day's file. Returns `None` if retention removed it in the meantime.
    fn open(&self, day: Date) -> io::Result<Option<File>> {
        match folder::open_for_reading(&folder::day_path(&self.folder, day)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            file => file.map(Some),
        }
    }

    /// Iterates over the calls that match a filter.
    pub fn query(&self, filter: CallFilter) -> io::Result<CallIter> {
        let left = filter.limit.unwrap_or(usize::MAX);
        let calls = if filter.newest_first {
            CallOrder::NewestFirst(Box::new(NewestCalls::new(self, filter)?))
        } else {
            CallOrder::OldestFirst(Box::new(OldestCalls::new(self, filter)?))
        };
        Ok(CallIter { calls, left })
    }

    /// Returns the ids of calls that begin with a prefix, at most `limit` of them.
    pub fn ids_with_prefix(&self, prefix: &str, limit: usize) -> io::Result<BTreeSet<String>> {
        let wanted = needle("call", prefix);
        let finder = Finder::new(wanted.trim_end_matches('"')).into_owned();
        let mut merge =
            LineMerge::new(&self.folder, self.days()?, ReadOrder::NewestFirst, move |_, _, line| {
                finder.find(line).is_some()
            })?;
        let mut ids = BTreeSet::new();
        while ids.len() < limit
            && let Some(found) = merge.next()?
        {
            if let Some((_, id)) = RecordKey::parse(&found.line)
                && id.starts_with(prefix)
            {
                ids.insert(id.into_owned());
            }
        }
        Ok(ids)
    }

    /// Computes statistics per tool, or per name of the filter's kind, over calls that ended in the filter's time range.
    pub fn stats(&self, filter: &CallFilter) -> io::Result<BTreeMap<String, ToolStats>> {
        Self::merged_stats(std::slice::from_ref(self), filter)
    }

    /// Computes the same statistics over several logs, as if they were one.
    pub fn merged_stats(readers: &[Self], filter: &CallFilter) -> io::Result<BTreeMap<String, ToolStats>> {
        let mut tools = BTreeMap::new();
        for reader in readers {
            reader.collect_stats(filter, &mut tools)?;
        }
        let finish = |(tool, (mut stats, histogram)): (String, (ToolStats, Histogram))| {
            [stats.p50_micros, stats.p90_micros, stats.p99_micros] =
                [0.5, 0.9, 0.99].map(|share| histogram.percentile(share));
            (tool, stats)
        };
        Ok(tools.into_iter().map(finish).collect())
    }

    /// Adds the calls of this log to the statistics.
    fn collect_stats(
        &self,
        filter: &CallFilter,
        tools: &mut BTreeMap<String, (ToolStats, Histogram)>,
    ) -> io::Result<()> {
        #[derive(Deserialize)]
        struct EndSummary<'a> {
            #[serde(borrow)]
            tool: Cow<'a, str>,
            #[serde(default)]
            operation: Option<&'a str>,
            #[serde(borrow)]
            caller: Cow<'a, str>,
            status: &'a str,
            cached: bool,
            micros: u64,
        }
        let line_predicate = filter.line_predicate();
        let until = filter.until.map(chain::format_timestamp);
        let end = Finder::new(r#","kind":"end","#);
        let days = self.days()?.into_iter().filter(|day| {
            filter.since.is_none_or(|since| *day >= chain::utc_day(since))
                && filter.until.is_none_or(|until| *day <= chain::utc_day(until))
        });
        let mut merge = LineMerge::new(&self.folder, days, ReadOrder::OldestFirst, |_, _, line| {
            let early =
                |until: &String| RecordLine::parse(line).is_some_and(|line| line.time < until.as_str());
            end.find(line).is_some() && line_predicate(line) && until.as_ref().is_none_or(early)
        })?;
        while let Some(found) = merge.next()? {
            let Ok(brief) = serde_json::from_slice::<EndSummary<'_>>(&found.line) else { continue };
            let other = |wanted: &String| match wanted.strip_suffix('*') {
                Some(start) => !brief.tool.starts_with(start),
                None => brief.tool != *wanted,
            };
            let kind = brief.operation.unwrap_or(OperationKind::Tool.label());
            if kind != filter.kind.unwrap_or_default().label()
                || filter.tool.as_ref().is_some_and(other)
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
        Ok(())
    }

    /// Follows a log from its present end.
    pub fn follow(&self, filter: CallFilter) -> io::Result<LogFollower> {
        let mut files = BTreeMap::new();
        for day in self.days()? {
            let Some(file) = self.open(day)? else { continue };
            let end = folder::find_end(&file)?.length;
            files.insert(day, ForwardLines::new(file, end)?);
        }
        Ok(LogFollower { reader: self.clone(), filter, files, begins: HashMap::new() })
    }

    /// Follows a new log from its start.
    pub(crate) fn follow_whole(&self, filter: CallFilter) -> LogFollower {
        LogFollower { reader: self.clone(), filter, files: BTreeMap::new(), begins: HashMap::new() }
    }
}

/// Statistics of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ToolStats {
    /// Number of calls that ended.
    pub count: u64,
    /// Number of calls that ended with an error.
    pub errors: u64,
    /// Number of calls whose caller disconnected.
    pub abandoned: u64,
    /// Number of calls served from the cache.
    pub cached: u64,
    /// Median duration.
    pub p50_micros: u64,
    /// 90th percentile of the duration.
    pub p90_micros: u64,
    /// 99th percentile of the duration.
    pub p99_micros: u64,
}

impl ToolStats {
    /// Returns the share of calls that ended with an error.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    pub fn error_rate(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.errors as f64 / self.count as f64 }
    }
}

/// Iterates over calls that match a filter.
pub struct CallIter {
    calls: CallOrder,
    left: usize,
}

enum CallOrder {
    NewestFirst(Box<NewestCalls>),
    OldestFirst(Box<OldestCalls>),
}

impl CallIter {
    /// Reads on to the next call, or for a part of the log: a caller can give up between two steps.
    pub(crate) fn step(&mut self) -> io::Result<QueryStep> {
        if self.left == 0 {
            return Ok(QueryStep::End);
        }
        let step = match &mut self.calls {
            CallOrder::NewestFirst(calls) => calls.step()?,
            CallOrder::OldestFirst(calls) => match calls.next_candidate()? {
                Some(Some(call)) => QueryStep::Call(Box::new(call)),
                Some(None) => QueryStep::Progress,
                None => QueryStep::End,
            },
        };
        self.left -= usize::from(matches!(step, QueryStep::Call(_)));
        Ok(step)
    }
}

/// Iterates over calls that match a filter in the order they ended, followed by those without an end.
struct OldestCalls {
    reader: LogReader,
    merge: LineMerge<'static>,
    filter: CallFilter,
    /// Days after the filter's time range, on which calls of that range may have ended.
    later: Vec<Date>,
    /// Begins without their end so far. Bounded by the number of concurrent calls.
    unpaired: HashMap<String, (u64, Vec<u8>)>,
    /// Set after the last line: the remaining begins, next one last.
    rest: Option<Vec<(u64, Vec<u8>)>>,
}

impl OldestCalls {
    fn new(reader: &LogReader, filter: CallFilter) -> io::Result<Self> {
        let since = filter.since.map(chain::utc_day);
        let until = filter.until.map(chain::utc_day);
        let days = reader.days()?.into_iter().filter(|day| since.is_none_or(|since| *day >= since));
        let (days, later): (Vec<_>, Vec<_>) = days.partition(|day| until.is_none_or(|until| *day <= until));
        let line_predicate = filter.line_predicate();
        let merge = LineMerge::new(&reader.folder, days, ReadOrder::OldestFirst, move |_, _, line| {
            line_predicate(line)
        })?;
        Ok(Self { reader: reader.clone(), merge, filter, later, unpaired: HashMap::new(), rest: None })
    }

    /// Reads on to the next call; the inner `None` is a call that does not match, the outer one the end.
    fn next_candidate(&mut self) -> io::Result<Option<Option<LoggedCall>>> {
        if self.rest.is_none() {
            if let Some(found) = self.merge.next()? {
                return Ok(Some(self.pair(found.seq, found.line)));
            }
            let mut rest: Vec<_> = self.unpaired.drain().map(|(_, begin)| begin).collect();
            rest.sort_by_key(|(seq, _)| u64::MAX - seq);
            self.rest = Some(rest);
        }
        let Some((_, begin)) = self.rest.as_mut().and_then(Vec::pop) else { return Ok(None) };
        let end = self.find_later_end(&begin)?;
        Ok(Some(self.filter.match_call(Some(&begin), end.as_deref())))
    }

    fn pair(&mut self, seq: u64, line: Vec<u8>) -> Option<LoggedCall> {
        let (begins, id) = RecordKey::parse(&line)?;
        if begins {
            let id = id.into_owned();
            self.unpaired.insert(id, (seq, line));
            return None;
        }
        let begin = self.unpaired.remove(&*id).map(|(_, line)| line);
        // The begin of such an end was before the filter's time range, or was removed.
        if begin.is_none() && self.filter.since.is_some() {
            return None;
        }
        self.filter.match_call(begin.as_deref(), Some(&line))
    }

    /// Finds the end of a call that ended after the filter's last day.
    fn find_later_end(&self, begin: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let Some((_, id)) = RecordKey::parse(begin).filter(|_| !self.later.is_empty()) else {
            return Ok(None);
        };
        let finder = Finder::new(&needle("call", &id)).into_owned();
        let mut merge = LineMerge::new(
            &self.reader.folder,
            self.later.clone(),
            ReadOrder::OldestFirst,
            move |_, _, line| finder.find(line).is_some(),
        )?;
        while let Some(found) = merge.next()? {
            if RecordKey::parse(&found.line).is_some_and(|(begins, found)| !begins && found == id) {
                return Ok(Some(found.line));
            }
        }
        Ok(None)
    }
}

impl Iterator for CallIter {
    type Item = io::Result<LoggedCall>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.step() {
                Ok(QueryStep::Call(call)) => return Some(Ok(*call)),
                Ok(QueryStep::Progress) => {}
                Ok(QueryStep::End) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Yields calls as they end.
pub struct LogFollower {
    reader: LogReader,
    filter: CallFilter,
    files: BTreeMap<Date, ForwardLines>,
    begins: HashMap<String, Vec<u8>>,
}

impl LogFollower {
    /// Returns the calls that ended since the last poll.
    pub fn poll(&mut self) -> io::Result<Vec<LoggedCall>> {
        for day in self.reader.days()? {
            if !self.files.contains_key(&day)
                && let Some(file) = self.reader.open(day)?
            {
                self.files.insert(day, ForwardLines::new(file, 0)?);
            }
        }
        let mut lines = BTreeMap::new();
        for file in self.files.values_mut() {
            while let Some(line) = file.line()? {
                if let Some(looked) = RecordLine::parse(line) {
                    lines.insert(looked.seq, line.to_vec());
                }
            }
        }
        let mut calls = Vec::new();
        for line in lines.into_values() {
            let Some((begins, id)) = RecordKey::parse(&line) else { continue };
            if begins {
                let id = id.into_owned();
                self.begins.insert(id, line);
                continue;
            }
            match self.begins.remove(&*id) {
                Some(begin) => calls.extend(self.filter.match_call(Some(&begin), Some(&line))),
                // The call began before the follower.
                None => calls.extend(self.reader.show(&id)?.filter(|call| self.filter.accepts(call))),
            }
        }
        Ok(calls)
    }
}
