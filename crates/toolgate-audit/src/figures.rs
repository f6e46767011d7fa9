//! Figures: calls over time, for charts.
//!
//! A call puts one small sample into a buffer of its thread; everything else happens when the buffers are collected, once a
//! second and when figures are asked for. Calls are counted per step, tool and caller, at three resolutions. Invariants:
//! no call waits for a reader, and memory is bounded: pairs of a tool and a caller beyond the limit share one series, and
//! steps that are too old are dropped.

use std::cell::Cell as ThreadCell;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use toolgate_types::{CallerId, ErrorCode};

use crate::metrics::{BOUNDS, ToolMetrics, code_index};
use crate::project::ProjectLog;
use crate::read::LogReader;

/// Buffers that calls write to. Threads share one only if there are more of them.
const BUFFERS: usize = 16;
/// Samples per buffer; they are collected long before.
const MAX_SAMPLES: usize = 1 << 14;
/// Pairs of a tool and a caller with figures of their own.
const MAX_SERIES: usize = 10_000;
/// Figures per resolution. Further pairs of a step share one.
const MAX_CELLS: usize = 60_000;
/// Label of series beyond the limits.
const OTHERS: &str = "(others)";
/// Groups in an answer.
const MAX_GROUPS: usize = 100;
/// Default and maximum number of steps in an answer.
const DEFAULT_STEPS: u64 = 120;
const MAX_STEPS: u64 = 1_000;

/// Resolutions: seconds per step, and number of steps: 15 minutes, 6 hours, 7 days.
const TIERS: [(u64, u64); 3] = [(5, 180), (60, 360), (1_800, 336)];
/// Oldest age of figures.
pub const MAX_AGE: Duration = Duration::from_secs(TIERS[2].0 * TIERS[2].1);

/// The end of a call.
#[derive(Debug, Clone)]
pub struct CallSample {
    pub tool: Arc<ToolMetrics>,
    pub caller: CallerId,
    pub outcome: SampleOutcome,
    pub cached: bool,
    pub took: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleOutcome {
    Success,
    /// It failed; true if nothing was sent.
    Failed(ErrorCode, bool),
    Abandoned,
}

/// Counts of one series in one step.
#[derive(Debug, Clone, Default)]
struct FigureCell {
    success: u32,
    abandoned: u32,
    cached: u32,
    refused: u32,
    /// Counts by index of the error code, and by index of the duration bucket.
    errors: Vec<(u8, u32)>,
    durations: Vec<(u8, u32)>,
}

impl FigureCell {
    fn add(&mut self, outcome: SampleOutcome, cached: bool, took: Duration) {
        match outcome {
            SampleOutcome::Success => self.success += 1,
            SampleOutcome::Abandoned => self.abandoned += 1,
            SampleOutcome::Failed(code, refused) => {
                self.refused += u32::from(refused);
                count(&mut self.errors, code_index(code));
            }
        }
        self.cached += u32::from(cached);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        count(&mut self.durations, BOUNDS.partition_point(|bound| *bound < micros));
    }
}

fn count(counts: &mut Vec<(u8, u32)>, index: usize) {
    let index = u8::try_from(index).unwrap_or(u8::MAX);
    match counts.iter_mut().find(|(known, _)| *known == index) {
        Some((_, count)) => *count += 1,
        None => counts.push((index, 1)),
    }
}

/// A tool and a caller.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SeriesKey {
    tool: Arc<str>,
    server: Arc<str>,
    caller: Arc<str>,
}

/// The series of calls beyond the limits.
const OTHER_SERIES: u32 = 0;

struct FigureTable {
    series: Vec<SeriesKey>,
    ids: HashMap<SeriesKey, u32>,
    tiers: [FigureTier; TIERS.len()],
    /// Since the start, by caller.
    counts: HashMap<Arc<str>, CallCounts>,
}

/// Numbers of calls that ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallCounts {
    pub ended: u64,
    pub errors: u64,
    pub refused: u64,
}

impl CallCounts {
    pub fn add(&mut self, other: &Self) {
        self.ended += other.ended;
        self.errors += other.errors;
        self.refused += other.refused;
    }
}

#[derive(Default)]
struct FigureTier {
    /// By number of the step since 1970, then by series.
    steps: BTreeMap<i64, HashMap<u32, FigureCell>>,
    cells: usize,
}

impl Default for FigureTable {
    fn default() -> Self {
        let others = SeriesKey { tool: OTHERS.into(), server: "".into(), caller: OTHERS.into() };
        Self { series: vec![others], ids: HashMap::new(), tiers: Default::default(), counts: HashMap::new() }
    }
}

impl FigureTable {
    fn series(&mut self, tool: &str, server: &str, caller: &str) -> u32 {
        let key = SeriesKey { tool: tool.into(), server: server.into(), caller: caller.into() };
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        if self.series.len() >= MAX_SERIES {
            return OTHER_SERIES;
        }
        let id = u32::try_from(self.series.len()).unwrap_or(OTHER_SERIES);
        self.series.push(key.clone());
        self.ids.insert(key, id);
        id
    }

    fn add(&mut self, series: u32, ended: i64, now: i64, add: impl Fn(&mut FigureCell)) {
        for (tier, (seconds, steps)) in self.tiers.iter_mut().zip(TIERS) {
            let step = ended.div_euclid(seconds.cast_signed());
            let oldest = now.div_euclid(seconds.cast_signed()) - steps.cast_signed();
            if step < oldest {
                continue;
            }
            while let Some(first) = tier.steps.first_entry().filter(|first| *first.key() < oldest) {
                tier.cells -= first.remove().len();
            }
            let cells = tier.steps.entry(step).or_default();
            let has_room = tier.cells < MAX_CELLS || cells.contains_key(&series);
            let before = cells.len();
            add(cells.entry(if has_room { series } else { OTHER_SERIES }).or_default());
            tier.cells += cells.len() - before;
        }
    }
}

/// Figures of the calls of a gateway.
pub struct CallFigures {
    /// Off in processes that show no figures.
    is_on: AtomicBool,
    buffers: [Mutex<Vec<(i64, CallSample)>>; BUFFERS],
    table: Mutex<FigureTable>,
    /// True once the log from before the start was read.
    is_complete: AtomicBool,
}

impl Default for CallFigures {
    fn default() -> Self {
        Self {
            is_on: AtomicBool::new(false),
            buffers: std::array::from_fn(|_| Mutex::default()),
            table: Mutex::default(),
            is_complete: AtomicBool::new(false),
        }
    }
}

/// Selects figures.
#[derive(Debug, Clone, Default)]
pub struct FigureQuery {
    /// Tool name; `github.*` matches all names with that prefix.
    pub tool: Option<String>,
    pub server: Option<String>,
    pub caller: Option<String>,
    /// Age of the oldest calls.
    pub age: Duration,
    /// Length of a step. It is rounded up to a multiple of the resolution.
    pub step: Option<Duration>,
    pub group: Option<FigureGroup>,
}

/// Member to group figures by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureGroup {
    Tool,
    Server,
    Caller,
}

/// Sums over calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FigureSum {
    pub calls: u64,
    pub success: u64,
    /// Number of errors by code.
    pub errors: BTreeMap<&'static str, u64>,
    pub failed: u64,
    pub abandoned: u64,
    pub cached: u64,
    /// Calls that failed before they were sent.
    pub refused: u64,
    /// Number of calls per bucket of the duration.
    pub durations: [u64; BOUNDS.len() + 1],
    /// Percentiles of the duration in microseconds.
    pub p50: Option<u64>,
    pub p95: Option<u64>,
    pub p99: Option<u64>,
}

impl Default for FigureSum {
    fn default() -> Self {
        Self {
            calls: 0,
            success: 0,
            errors: BTreeMap::new(),
            failed: 0,
            abandoned: 0,
            cached: 0,
            refused: 0,
            durations: [0; BOUNDS.len() + 1],
            p50: None,
            p95: None,
            p99: None,
        }
    }
}

impl FigureSum {
    fn add(&mut self, cell: &FigureCell) {
        self.success += u64::from(cell.success);
        self.abandoned += u64::from(cell.abandoned);
        self.cached += u64::from(cell.cached);
        self.refused += u64::from(cell.refused);
        self.calls += u64::from(cell.success) + u64::from(cell.abandoned);
        for (code, count) in &cell.errors {
            let code = ErrorCode::ALL[usize::from(*code)].label();
            *self.errors.entry(code).or_default() += u64::from(*count);
            self.failed += u64::from(*count);
            self.calls += u64::from(*count);
        }
        for (bucket, count) in &cell.durations {
            self.durations[usize::from(*bucket)] += u64::from(*count);
        }
    }

    fn finish(&mut self) {
        [self.p50, self.p95, self.p99] = [50, 95, 99].map(|share| percentile(&self.durations, share));
    }
}

/// Interpolates a percentile within its bucket.
fn percentile(durations: &[u64; BOUNDS.len() + 1], share: u64) -> Option<u64> {
    let total: u64 = durations.iter().sum();
    let rank = (total * share).div_ceil(100);
    let mut before = 0;
    for (index, count) in durations.iter().enumerate() {
        if before + count >= rank && *count > 0 {
            let low = index.checked_sub(1).map_or(0, |index| BOUNDS[index]);
            let high = BOUNDS.get(index).copied().unwrap_or(low);
            return Some(low + (high - low) * (rank - before) / count);
        }
        before += count;
    }
    None
}

/// A step, by the time it begins.
#[derive(Debug, Clone, Serialize)]
pub struct FigureStep {
    pub time: Timestamp,
    #[serde(flatten)]
    pub sum: FigureSum,
}

#[derive(Debug, Clone, Serialize)]
pub struct NamedFigures {
    pub name: String,
    #[serde(flatten)]
    pub sum: FigureSum,
}

/// The answer to a query.
#[derive(Debug, Clone, Serialize)]
pub struct FigureReport {
    pub since: Timestamp,
    pub until: Timestamp,
    /// Length of a step in seconds.
    pub step: u64,
    /// False while the log from before the start is still being read.
    pub complete: bool,
    /// Upper bounds of the buckets in microseconds. The last bucket has none.
    pub bounds: [u64; BOUNDS.len()],
    pub total: FigureSum,
    pub steps: Vec<FigureStep>,
    pub groups: Option<Vec<NamedFigures>>,
}

thread_local! {
    static BUFFER: ThreadCell<usize> = const { ThreadCell::new(usize::MAX) };
}

/// Returns the buffer of this thread.
fn buffer_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    BUFFER.with(|buffer| {
        if buffer.get() == usize::MAX {
            buffer.set(NEXT.fetch_add(1, Ordering::Relaxed) % BUFFERS);
        }
        buffer.get()
    })
}

impl CallFigures {
    /// Starts to count. Before, samples are dropped.
    pub fn turn_on(&self) {
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Counts a call that ended. Called on the path of every call.
    pub fn record(&self, sample: impl FnOnce() -> CallSample) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let entry = (Timestamp::now().as_second(), sample());
        let mut samples = self.buffers[buffer_index()].lock();
        samples.push(entry);
        if samples.len() >= MAX_SAMPLES {
            let full = std::mem::take(&mut *samples);
            drop(samples);
            self.add_samples(full, Timestamp::now());
        }
    }

    /// Moves the samples of all buffers into the table.
    pub fn collect(&self, now: Timestamp) {
        for buffer in &self.buffers {
            let samples = std::mem::take(&mut *buffer.lock());
            self.add_samples(samples, now);
        }
    }

    fn add_samples(&self, samples: Vec<(i64, CallSample)>, now: Timestamp) {
        if samples.is_empty() {
            return;
        }
        let mut table = self.table.lock();
        for (ended, CallSample { tool, caller, outcome, cached, took }) in samples {
            let series = table.series(tool.name(), tool.server(), caller.as_str());
            let label = Arc::clone(&table.series[series as usize].caller);
            let is_error = matches!(outcome, SampleOutcome::Failed(..));
            let is_refused = matches!(outcome, SampleOutcome::Failed(_, true));
            let counts = CallCounts { ended: 1, errors: is_error.into(), refused: is_refused.into() };
            table.counts.entry(label).or_default().add(&counts);
            table.add(series, ended, now.as_second(), |cell| cell.add(outcome, cached, took));
        }
    }

    /// Reads the calls that ended before `until` from the log. May take long.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn load(&self, log: &ProjectLog, until: Timestamp, go_on: &dyn Fn() -> bool) -> io::Result<()> {
        let since = until.checked_sub(MAX_AGE).unwrap_or(Timestamp::MIN);
        for folder in log.folders() {
            LogReader::new(folder).recent_ends(since, until, go_on, &mut |end| {
                let code =
                    end.code.and_then(|code| ErrorCode::ALL.into_iter().find(|known| known.label() == code));
                let outcome = match (end.status, code) {
                    ("success", _) => SampleOutcome::Success,
                    ("error", code) => {
                        let refused = end.attempts == 0 && !end.cached;
                        SampleOutcome::Failed(code.unwrap_or(ErrorCode::ProviderFailure), refused)
                    }
                    _ => SampleOutcome::Abandoned,
                };
                let mut table = self.table.lock();
                let series = table.series(end.tool, end.server, end.caller);
                let took = Duration::from_micros(end.micros);
                table.add(series, end.ended.as_second(), until.as_second(), |cell| {
                    cell.add(outcome, end.cached, took);
                });
            })?;
        }
        self.is_complete.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Numbers of calls since the start, by caller. Callers beyond the limit share an entry.
    pub fn counts(&self) -> HashMap<Arc<str>, CallCounts> {
        self.table.lock().counts.clone()
    }

    /// Answers a query.
    pub fn report(&self, query: &FigureQuery, now: Timestamp) -> FigureReport {
        self.collect(now);
        let age = query.age.clamp(Duration::from_secs(TIERS[0].0), MAX_AGE).as_secs();
        let tier =
            TIERS.iter().position(|(seconds, steps)| seconds * steps >= age).unwrap_or(TIERS.len() - 1);
        let (resolution, _) = TIERS[tier];
        let step = query.step.map_or(age.div_ceil(DEFAULT_STEPS), |step| step.as_secs());
        let step = step.max(age.div_ceil(MAX_STEPS)).max(1).next_multiple_of(resolution);
        // Steps are aligned, so that a step is the same in every answer until it ends.
        let signed_step = step.cast_signed();
        let last = now.as_second().div_euclid(signed_step);
        let first = (now.as_second() - age.cast_signed()).div_euclid(signed_step) + 1;
        let first = first.min(last);
        let mut sums: Vec<FigureSum> = (first..=last).map(|_| FigureSum::default()).collect();
        let mut total = FigureSum::default();
        let mut groups: HashMap<&str, FigureSum> = HashMap::new();
        let table = self.table.lock();
        let is_wanted: Vec<_> = table.series.iter().map(|series| query.accepts(series)).collect();
        let per_step = (step / resolution).cast_signed();
        for (number, cells) in table.tiers[tier].steps.range(first * per_step..(last + 1) * per_step) {
            let sum = &mut sums[usize::try_from(number.div_euclid(per_step) - first).unwrap_or_default()];
            for (series, cell) in cells.iter().filter(|(series, _)| is_wanted[**series as usize]) {
                sum.add(cell);
                total.add(cell);
                let key = &table.series[*series as usize];
                let name = match query.group {
                    Some(FigureGroup::Tool) => &key.tool,
                    Some(FigureGroup::Server) => &key.server,
                    Some(FigureGroup::Caller) => &key.caller,
                    None => continue,
                };
                groups.entry(&**name).or_default().add(cell);
            }
        }
        total.finish();
        sums.iter_mut().for_each(FigureSum::finish);
        let mut groups: Vec<_> = groups.into_iter().map(|(name, sum)| (name.to_owned(), sum)).collect();
        drop(table);
        groups.sort_by(|a, b| (b.1.calls, &a.0).cmp(&(a.1.calls, &b.0)));
        groups.truncate(MAX_GROUPS);
        let named = groups.into_iter().map(|(name, mut sum)| {
            sum.finish();
            NamedFigures { name, sum }
        });
        let at = |step: i64| Timestamp::from_second(step * signed_step).unwrap_or(now);
        let steps = sums.into_iter().zip(first..).map(|(sum, step)| FigureStep { time: at(step), sum });
        FigureReport {
            since: at(first),
            until: now,
            step,
            complete: self.is_complete.load(Ordering::Relaxed),
            bounds: BOUNDS,
            total,
            steps: steps.collect(),
            groups: query.group.map(|_| named.collect()),
        }
    }
}

impl FigureQuery {
    fn accepts(&self, series: &SeriesKey) -> bool {
        let tool = |wanted: &String| match wanted.strip_suffix('*') {
            Some(start) => series.tool.starts_with(start),
            None => *series.tool == **wanted,
        };
        self.tool.as_ref().is_none_or(tool)
            && self.server.as_ref().is_none_or(|wanted| *series.server == **wanted)
            && self.caller.as_ref().is_none_or(|wanted| *series.caller == **wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    fn sample(
        metrics: &Metrics,
        tool: &str,
        caller: &str,
        outcome: SampleOutcome,
        millis: u64,
    ) -> CallSample {
        CallSample {
            tool: metrics.tool(tool, "files"),
            caller: caller.parse().unwrap(),
            outcome,
            cached: millis == 0,
            took: Duration::from_millis(millis),
        }
    }

    #[test]
    fn counts_per_step_tool_and_caller() {
        let (figures, metrics) = (CallFigures::default(), Metrics::default());
        let now: Timestamp = "2026-11-18T12:00:02Z".parse().unwrap();
        let failed = SampleOutcome::Failed(ErrorCode::Timeout, false);
        let denied = SampleOutcome::Failed(ErrorCode::Unauthorized, true);
        let at = |seconds: i64| now.as_second() - seconds;
        figures.add_samples(
            vec![
                (at(0), sample(&metrics, "files.read", "ann", SampleOutcome::Success, 3)),
                (at(1), sample(&metrics, "files.read", "bob", SampleOutcome::Success, 0)),
                (at(3), sample(&metrics, "files.write", "ann", failed, 30)),
                (at(1_000), sample(&metrics, "files.write", "ann", denied, 1)),
                (at(100_000), sample(&metrics, "files.read", "ann", SampleOutcome::Abandoned, 1)),
                (at(700_000), sample(&metrics, "files.read", "ann", SampleOutcome::Abandoned, 1)),
            ],
            now,
        );
        let report = |age: u64, change: fn(FigureQuery) -> FigureQuery| {
            let query = FigureQuery { age: Duration::from_secs(age), ..FigureQuery::default() };
            figures.report(&change(query), now)
        };
        let minutes = report(900, |query| query);
        assert_eq!((minutes.step, minutes.steps.len()), (10, 90));
        assert_eq!((minutes.total.calls, minutes.total.success, minutes.total.cached), (3, 2, 1));
        assert_eq!(minutes.total.errors, BTreeMap::from([("timeout", 1)]));
        let counts: Vec<_> = minutes.steps.iter().rev().map(|step| step.sum.calls).take(3).collect();
        assert_eq!(counts, [2, 1, 0]);
        assert_eq!(minutes.steps.last().unwrap().time.to_string(), "2026-11-18T12:00:00Z");
        assert!(minutes.total.p99 > minutes.total.p50 && minutes.steps[0].sum.p50.is_none());
        let hours = report(6 * 3600, |query| FigureQuery { group: Some(FigureGroup::Tool), ..query });
        assert_eq!((hours.step, hours.total.calls, hours.total.refused), (180, 4, 1));
        let groups: Vec<_> =
            hours.groups.unwrap().into_iter().map(|group| (group.name, group.sum.calls)).collect();
        assert_eq!(groups, [("files.read".to_owned(), 2), ("files.write".to_owned(), 2)]);
        let week = report(8 * 24 * 3600, |query| query);
        assert_eq!((week.total.calls, week.total.abandoned), (5, 1));
        let bob = report(900, |query| FigureQuery { caller: Some("bob".to_owned()), ..query });
        assert_eq!(bob.total.calls, 1);
        let prefix = report(900, |query| FigureQuery { tool: Some("files.w*".to_owned()), ..query });
        assert_eq!(prefix.total.calls, 1);
        let none = report(900, |query| FigureQuery { server: Some("x".to_owned()), ..query });
        assert_eq!((none.total.calls, none.steps.len()), (0, 90));
        let fine = report(900, |query| FigureQuery { step: Some(Duration::from_secs(7)), ..query });
        assert_eq!(fine.step, 10);
    }

    #[test]
    fn memory_is_bounded() {
        let (figures, metrics) = (CallFigures::default(), Metrics::default());
        let now: Timestamp = "2026-11-18T12:00:02Z".parse().unwrap();
        let callers = (0..MAX_SERIES + 500).map(|index| format!("c{index}"));
        let samples = |at: i64| {
            callers
                .clone()
                .map(move |caller| (at, caller))
                .map(|(at, caller)| (at, sample(&metrics, "t", &caller, SampleOutcome::Success, 1)))
        };
        for step in 0..10 {
            figures.add_samples(samples(now.as_second() - step * 60).collect(), now);
        }
        let table = figures.table.lock();
        assert_eq!(table.series.len(), MAX_SERIES);
        assert!(table.tiers.iter().all(|tier| tier.cells <= MAX_CELLS + tier.steps.len()));
        let cells = |tier: &FigureTier| tier.steps.values().map(HashMap::len).sum::<usize>();
        assert!(table.tiers.iter().all(|tier| tier.cells == cells(tier)));
        drop(table);
        let query = FigureQuery { age: Duration::from_secs(900), ..FigureQuery::default() };
        let calls = 10 * (MAX_SERIES as u64 + 500);
        assert_eq!(figures.report(&query, now).total.calls, calls, "calls beyond the limits count, too");
    }

    #[test]
    fn samples_are_dropped_until_it_is_on() {
        let (figures, metrics) = (CallFigures::default(), Metrics::default());
        let record = || figures.record(|| sample(&metrics, "t", "ann", SampleOutcome::Success, 1));
        record();
        figures.turn_on();
        record();
        let query = FigureQuery { age: Duration::from_secs(60), ..FigureQuery::default() };
        assert_eq!(figures.report(&query, Timestamp::now()).total.calls, 1);
    }
}
