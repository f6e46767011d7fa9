//! Queries that return the newest calls first, with the help of the index.
//!
//! Files are read from their end, block by block. Blocks that the index covers are skipped if no call in them can match;
//! all others are read whole, and so are the parts without an index. A call that matches has all of its values in
//! the block of its end, so a begin needs no look if its end was skipped for its values. Invariant: calls come in the order
//! they began, and the result is the same with an index as without.

use std::borrow::Cow;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::sync::Arc;

use fs_err::File;
use fs_err::os::unix::fs::FileExt;
use jiff::civil::Date;
use memchr::memmem::Finder;
use memchr::{memchr, memrchr, memrchr_iter};

use super::{CallFilter, LogReader, LoggedCall, OPEN, RecordKey};
use crate::chain::RecordLine;
use crate::folder;
use crate::index::{BackwardEntries, IndexEntry};
use crate::terms::{TermField, TermMap, caller_and_tool, term, term_of};

/// Bytes of a file without an index that are read at once, at least.
const PIECE_BYTES: u64 = 256 << 10;

/// A part of a day's file that ends with a line.
struct FileBlock {
    file: Arc<File>,
    offset: u64,
    length: u64,
    first_seq: u64,
    last_seq: u64,
    content: BlockContent,
}

enum BlockContent {
    /// Not read yet.
    Indexed(Box<IndexEntry>),
    Read(Vec<u8>),
}

/// A place in a file.
#[derive(Clone)]
struct FilePart {
    file: Arc<File>,
    offset: u64,
    length: u64,
}

impl FilePart {
    fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.length).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, self.offset)?;
        Ok(bytes)
    }
}

/// The blocks of a day's file, last one first.
struct DayBlocks {
    file: Arc<File>,
    entries: Option<BackwardEntries>,
    /// End of the part that was not returned yet.
    end: u64,
}

impl DayBlocks {
    fn open(reader: &LogReader, day: Date) -> io::Result<Option<Self>> {
        let Some(file) = reader.open(day)? else { return Ok(None) };
        let file = Arc::new(file);
        let entries = BackwardEntries::open(&reader.folder, day, &file)?;
        let length = file.metadata()?.len();
        let mut blocks = Self { file, entries, end: length };
        // Bytes after the last newline are torn, or still being written.
        while blocks.end > 0 {
            let piece = blocks.piece(blocks.end.saturating_sub(PIECE_BYTES));
            let bytes = piece.read()?;
            if let Some(at) = memrchr(b'\n', &bytes) {
                blocks.end = piece.offset + at as u64 + 1;
                break;
            }
            blocks.end = piece.offset;
        }
        Ok(Some(blocks))
    }

    /// Returns the part from an offset to the end.
    fn piece(&self, offset: u64) -> FilePart {
        FilePart { file: Arc::clone(&self.file), offset, length: self.end - offset }
    }

    fn next(&mut self) -> io::Result<Option<FileBlock>> {
        while self.end > 0 {
            let indexed = self.entries.as_ref().map_or(0, BackwardEntries::next_end);
            if indexed == self.end
                && let Some(entries) = &mut self.entries
            {
                let Some(entry) = entries.entry()? else {
                    // Damaged: the rest is read without it.
                    self.entries = None;
                    continue;
                };
                self.end = entry.head.offset;
                return Ok(Some(FileBlock {
                    file: Arc::clone(&self.file),
                    offset: entry.head.offset,
                    length: entry.head.length,
                    first_seq: entry.head.first_seq,
                    last_seq: entry.head.last_seq,
                    content: BlockContent::Indexed(Box::new(entry)),
                }));
            }
            if let Some(block) = self.next_unindexed(indexed.min(self.end))? {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// Reads the lines at the end of a part that is not indexed. Returns `None` if none of them is a record.
    fn next_unindexed(&mut self, start: u64) -> io::Result<Option<FileBlock>> {
        let mut size = PIECE_BYTES;
        loop {
            let mut piece = self.piece(self.end.saturating_sub(size).max(start));
            let mut bytes = piece.read()?;
            if piece.offset > start {
                // The first line may be incomplete.
                match memchr(b'\n', &bytes[..bytes.len() - 1]) {
                    Some(at) => {
                        bytes.drain(..=at);
                        piece.offset += at as u64 + 1;
                    }
                    None => {
                        size *= 4;
                        continue;
                    }
                }
            }
            self.end = piece.offset;
            let last_seq = lines_backward(&bytes).find_map(RecordLine::parse).map(|line| line.seq);
            let first_seq =
                bytes.split(|byte| *byte == b'\n').find_map(RecordLine::parse).map(|line| line.seq);
            let length = bytes.len() as u64;
            return Ok(last_seq.map(|last_seq| FileBlock {
                file: Arc::clone(&self.file),
                offset: piece.offset,
                length,
                first_seq: first_seq.unwrap_or(last_seq),
                last_seq,
                content: BlockContent::Read(bytes),
            }));
        }
    }
}

/// Iterates over the lines of a text that ends with a newline, last one first.
fn lines_backward(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut end = bytes.len().saturating_sub(1);
    let body = &bytes[..end];
    let mut starts = memrchr_iter(b'\n', body).map(|at| at + 1).chain((!bytes.is_empty()).then_some(0));
    std::iter::from_fn(move || {
        let start = starts.next()?;
        let line = &bytes[start..end];
        end = start.saturating_sub(1);
        Some(line)
    })
}

/// The blocks of all files of a log, newest records first.
struct LogBlocks {
    reader: LogReader,
    /// Files that are not opened yet, with their last sequence number; the next one due is the last.
    waiting: Vec<(u64, Date)>,
    active: Vec<(FileBlock, DayBlocks)>,
}

impl LogBlocks {
    fn new(reader: &LogReader, days: impl IntoIterator<Item = Date>) -> io::Result<Self> {
        let mut waiting = Vec::new();
        for day in days {
            if let Some(file) = reader.open(day)? {
                let last = folder::find_end(&file)?.last;
                waiting.extend(last.map(|last| (last.head.seq, day)));
            }
        }
        waiting.sort_unstable();
        Ok(Self { reader: reader.clone(), waiting, active: Vec::new() })
    }

    /// Returns the highest sequence number of the blocks that are left.
    fn highest_left(&self) -> Option<u64> {
        let waiting = self.waiting.last().map(|(seq, _)| *seq);
        self.active.iter().map(|(block, _)| block.last_seq).chain(waiting).max()
    }

    fn next(&mut self) -> io::Result<Option<FileBlock>> {
        loop {
            let due = (0..self.active.len()).max_by_key(|index| self.active[*index].0.last_seq);
            let due_seq = due.map_or(0, |due| self.active[due].0.last_seq);
            if let Some((_, day)) = self.waiting.pop_if(|(seq, _)| *seq >= due_seq) {
                if let Some(mut blocks) = DayBlocks::open(&self.reader, day)?
                    && let Some(first) = blocks.next()?
                {
                    self.active.push((first, blocks));
                }
                continue;
            }
            let Some(due) = due else { return Ok(None) };
            let (block, blocks) = &mut self.active[due];
            return Ok(Some(match blocks.next()? {
                Some(next) => std::mem::replace(block, next),
                None => self.active.swap_remove(due).0,
            }));
        }
    }
}

/// An end without its begin so far.
enum AwaitedBegin {
    /// The end, as read.
    Read(u64, Vec<u8>),
    /// The end is in this part, skipped for its time.
    Skipped(FilePart),
    /// The call does not match.
    Unwanted,
}

/// A call that waits for those that began later.
struct ReadyCall {
    begin_seq: u64,
    call: LoggedCall,
}

impl PartialEq for ReadyCall {
    fn eq(&self, other: &Self) -> bool {
        self.begin_seq == other.begin_seq
    }
}

impl Eq for ReadyCall {}

impl PartialOrd for ReadyCall {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ReadyCall {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.begin_seq.cmp(&other.begin_seq)
    }
}

type LinePredicate = Box<dyn Fn(&[u8]) -> bool + Send>;

/// Iterates over the calls that match a filter, newest first.
pub(super) struct NewestCalls {
    filter: CallFilter,
    blocks: LogBlocks,
    /// Values that the calls have.
    terms: Vec<u64>,
    predicate: LinePredicate,
    grep: Option<[Finder<'static>; 2]>,
    /// Earliest time of a begin, as in a line.
    since_text: Option<String>,
    /// Time after the last begin, rounded up.
    until_text: Option<String>,
    /// Time range of the begins, in microseconds.
    since: i64,
    until: i64,
    /// Ends without their begin so far, by the call. Bounded by the number of concurrent calls.
    ends: TermMap<AwaitedBegin>,
    /// Begins with an end that may be in another file, because the clock was set back at midnight.
    begins: TermMap<(u64, Vec<u8>)>,
    ready: BinaryHeap<ReadyCall>,
    is_over: bool,
}

/// A step of a query.
pub(crate) enum QueryStep {
    Call(Box<LoggedCall>),
    /// A block was read or skipped.
    Progress,
    End,
}

impl NewestCalls {
    pub(super) fn new(reader: &LogReader, filter: CallFilter) -> io::Result<Self> {
        // Calls of the last days may have ended after the filter's time range.
        let since = filter.since.map(crate::chain::utc_day);
        let days = reader.days()?.into_iter().filter(|day| since.is_none_or(|since| *day >= since));
        let blocks = LogBlocks::new(reader, days)?;
        let grep = filter.grep.as_ref().map(|text| {
            let quoted = super::quoted(text);
            let quoted = &quoted[1..quoted.len() - 1];
            [text.as_str(), quoted].map(|text| Finder::new(text.as_bytes()).into_owned())
        });
        Ok(Self {
            terms: filter_terms(&filter),
            // If the clock was set back, a call of the time range may have ended before it.
            predicate: Box::new(CallFilter { since: None, ..filter.clone() }.line_predicate()),
            since_text: filter.since.map(crate::chain::format_timestamp),
            until_text: filter.until.and_then(ceil).map(crate::chain::format_timestamp),
            grep,
            since: filter.since.map_or(i64::MIN, jiff::Timestamp::as_microsecond),
            until: filter.until.map_or(i64::MAX, ceil_microsecond),
            filter,
            blocks,
            ends: TermMap::default(),
            begins: TermMap::default(),
            ready: BinaryHeap::new(),
            is_over: false,
        })
    }

    pub(super) fn step(&mut self) -> io::Result<QueryStep> {
        let highest = self.blocks.highest_left();
        if !self.begins.is_empty() {
            let has_no_end = |seq: u64| highest.is_none_or(|highest| seq > highest);
            for (_, (begin_seq, line)) in self.begins.extract_if(|_, (seq, _)| has_no_end(*seq)) {
                if let Some(call) = self.filter.match_call(Some(&line), None) {
                    self.ready.push(ReadyCall { begin_seq, call });
                }
            }
        }
        if let Some(next) = self.ready.peek()
            && highest.is_none_or(|highest| next.begin_seq > highest)
            && let Some(next) = self.ready.pop()
        {
            return Ok(QueryStep::Call(Box::new(next.call)));
        }
        if let Some(block) = self.blocks.next()? {
            self.take_block(block)?;
            return Ok(QueryStep::Progress);
        }
        if std::mem::replace(&mut self.is_over, true) {
            return Ok(QueryStep::End);
        }
        // The begins of these were removed, or were before the filter's time range.
        if self.filter.since.is_none() {
            for (_, awaited) in self.ends.drain() {
                if let AwaitedBegin::Read(begin_seq, line) = awaited
                    && let Some(call) = self.filter.match_call(None, Some(&line))
                {
                    self.ready.push(ReadyCall { begin_seq, call });
                }
            }
        }
        Ok(QueryStep::Progress)
    }

    fn take_block(&mut self, block: FileBlock) -> io::Result<()> {
        let FileBlock { file, offset, length, first_seq, content, .. } = block;
        let part = FilePart { file, offset, length };
        // Another file has records between those of this block.
        let is_interleaved = self.blocks.highest_left().is_some_and(|highest| highest > first_seq);
        let (bytes, may_match) = match content {
            BlockContent::Read(bytes) => (bytes, true),
            BlockContent::Indexed(entry) => {
                let may_match = self.may_match(&entry);
                let is_in_time = entry.head.max_time >= self.since && entry.head.min_time < self.until;
                let begins_any = |is_awaited: fn(&AwaitedBegin) -> bool| {
                    entry.begins().any(|call| self.ends.get(&call).is_some_and(is_awaited))
                };
                let begins_read = begins_any(|awaited| matches!(awaited, AwaitedBegin::Read(..)));
                let begins_skipped = begins_any(|awaited| matches!(awaited, AwaitedBegin::Skipped(_)));
                let has_ends = may_match && entry.ends().any(|call| self.begins.contains_key(&call));
                let must_read = is_interleaved || begins_read || has_ends;
                if !must_read && !(is_in_time && (may_match || begins_skipped)) {
                    self.skip_block(&entry, &part, may_match);
                    return Ok(());
                }
                let bytes = part.read()?;
                // Most blocks do not have a rare text. An end in such a block is fetched if its begin has the text.
                let has_text = |grep: &[Finder<'_>; 2]| grep.iter().any(|text| text.find(&bytes).is_some());
                if !must_read && !self.grep.as_ref().is_none_or(has_text) {
                    self.skip_block(&entry, &part, may_match);
                    return Ok(());
                }
                (bytes, may_match)
            }
        };
        self.read_block(&bytes, may_match)
    }

    /// Returns true if a call that matches may end in the block, or begin in it and have no end.
    fn may_match(&self, entry: &IndexEntry) -> bool {
        let filter = &self.filter;
        if filter.status.as_deref() == Some(OPEN)
            && !entry.begins().any(|call| !self.ends.contains_key(&call))
        {
            return false;
        }
        if entry.head.has_unknown {
            return true;
        }
        filter.slower_micros.is_none_or(|micros| entry.head.max_micros >= micros)
            && self.terms.iter().all(|term| entry.may_contain(*term))
    }

    fn skip_block(&mut self, entry: &IndexEntry, part: &FilePart, may_match: bool) {
        for call in entry.begins() {
            self.ends.remove(&call);
        }
        for call in entry.ends() {
            if self.begins.remove(&call).is_some() {
                continue;
            }
            let awaited =
                if may_match { AwaitedBegin::Skipped(part.clone()) } else { AwaitedBegin::Unwanted };
            self.ends.insert(call, awaited);
        }
    }

    fn read_block(&mut self, bytes: &[u8], may_match: bool) -> io::Result<()> {
        let mut ends: HashMap<Cow<'_, str>, Option<(u64, &[u8])>> = HashMap::new();
        let highest = self.blocks.highest_left().unwrap_or(0);
        for line in lines_backward(bytes) {
            let Some(record) = RecordLine::parse(line) else { continue };
            let Some((begins, id)) = RecordKey::parse(line) else { continue };
            if !begins {
                let is_wanted = may_match && (self.predicate)(line);
                ends.insert(id, is_wanted.then_some((record.seq, line)));
                continue;
            }
            let is_late = self.since_text.as_ref().is_none_or(|since| record.time >= since.as_str());
            let is_early = self.until_text.as_ref().is_none_or(|until| record.time < until.as_str());
            let is_wanted = is_late && is_early && (self.predicate)(line);
            let fetched;
            let end = match ends.remove(&id) {
                Some(None) => continue,
                Some(Some((_, end))) => Some(end),
                None => match self.ends.remove(&call_term(&id)) {
                    Some(AwaitedBegin::Unwanted) => continue,
                    Some(AwaitedBegin::Read(_, end)) => {
                        fetched = end;
                        Some(&fetched[..])
                    }
                    Some(AwaitedBegin::Skipped(part)) if is_wanted => {
                        let Some(end) = find_end(&part.read()?, &id) else { continue };
                        fetched = end;
                        Some(&fetched[..])
                    }
                    Some(AwaitedBegin::Skipped(_)) => continue,
                    None if record.seq < highest => {
                        if is_wanted {
                            self.begins.insert(call_term(&id), (record.seq, line.to_vec()));
                        }
                        continue;
                    }
                    None => None,
                },
            };
            if is_wanted && let Some(call) = self.filter.match_call(Some(line), end) {
                self.ready.push(ReadyCall { begin_seq: record.seq, call });
            }
        }
        for (id, end) in ends {
            if let Some((begin_seq, begin)) = self.begins.remove(&call_term(&id)) {
                if let Some((_, end)) = end
                    && let Some(call) = self.filter.match_call(Some(&begin), Some(end))
                {
                    self.ready.push(ReadyCall { begin_seq, call });
                }
                continue;
            }
            let awaited = match end {
                Some((seq, line)) => AwaitedBegin::Read(seq, line.to_vec()),
                None => AwaitedBegin::Unwanted,
            };
            self.ends.insert(call_term(&id), awaited);
        }
        Ok(())
    }
}

/// Finds the end of a call among lines.
fn find_end(bytes: &[u8], id: &str) -> Option<Vec<u8>> {
    let is_end = |line: &&[u8]| RecordKey::parse(line).is_some_and(|(begins, found)| !begins && found == id);
    lines_backward(bytes).find(is_end).map(<[u8]>::to_vec)
}

fn call_term(id: &str) -> u64 {
    if id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return term(TermField::Call, id.as_bytes());
    }
    term_of(TermField::Call, id)
}

/// Returns the values that every call has that matches.
fn filter_terms(filter: &CallFilter) -> Vec<u64> {
    let tool = filter.tool.as_ref().filter(|tool| !tool.ends_with('*'));
    let status = filter.status.as_ref().filter(|status| *status != OPEN);
    let members = [
        (TermField::Tool, tool),
        (TermField::Caller, filter.caller.as_ref()),
        (TermField::Server, filter.server.as_ref()),
        (TermField::Session, filter.session.as_ref()),
        (TermField::Correlation, filter.correlation.as_ref()),
        (TermField::Trace, filter.trace.as_ref()),
        (TermField::Decision, filter.decision.as_ref()),
        (TermField::Rule, filter.rule.as_ref()),
        (TermField::Status, status),
        (TermField::Status, filter.code.as_ref()),
    ];
    let terms = members.into_iter().filter_map(|(field, value)| Some(term_of(field, value?)));
    let pair = tool.zip(filter.caller.as_ref()).map(|(tool, caller)| {
        caller_and_tool(term_of(TermField::Caller, caller), term_of(TermField::Tool, tool))
    });
    let kind = filter.kind.filter(|kind| *kind != toolgate_types::call::OperationKind::Tool);
    terms.chain(pair).chain(kind.map(|kind| term_of(TermField::Operation, kind.label()))).collect()
}

/// Rounds a time up to a microsecond, as in a line.
fn ceil(time: jiff::Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_microsecond(ceil_microsecond(time)).ok()
}

/// Returns the microseconds of a time, rounded up.
fn ceil_microsecond(time: jiff::Timestamp) -> i64 {
    let micros = time.as_nanosecond().div_euclid(1000);
    let rest = time.as_nanosecond().rem_euclid(1000);
    i64::try_from(micros).unwrap_or(i64::MAX).saturating_add(i64::from(rest > 0))
}

impl LogReader {
    /// Finds a call by its id.
    pub fn show(&self, call: &str) -> io::Result<Option<LoggedCall>> {
        let finder = Finder::new(&super::needle("call", call)).into_owned();
        let wanted = call_term(call);
        // An id generated by the log contains its creation time.
        let made =
            call.get(..12).filter(|_| call.len() == 28).and_then(|time| i64::from_str_radix(time, 16).ok());
        let made =
            made.and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok()).map(crate::chain::utc_day);
        let days = self.days()?.into_iter().filter(|day| made.is_none_or(|made| *day >= made));
        let mut blocks = LogBlocks::new(self, days)?;
        let mut begin: Option<(u64, Vec<u8>)> = None;
        let mut end: Option<Vec<u8>> = None;
        while let Some(block) = blocks.next()? {
            let FileBlock { file, offset, length, last_seq, content, .. } = block;
            // The rest was written before the call.
            if begin.as_ref().is_some_and(|(seq, _)| end.is_some() || last_seq < *seq) {
                break;
            }
            let bytes = match content {
                BlockContent::Read(bytes) => bytes,
                BlockContent::Indexed(entry) if entry.may_contain(wanted) => {
                    FilePart { file, offset, length }.read()?
                }
                BlockContent::Indexed(_) => continue,
            };
            if finder.find(&bytes).is_none() {
                continue;
            }
            for line in lines_backward(&bytes) {
                match (RecordKey::parse(line), RecordLine::parse(line)) {
                    (Some((true, id)), Some(record)) if id == call => {
                        begin = Some((record.seq, line.to_vec()))
                    }
                    (Some((false, id)), _) if id == call => end = Some(line.to_vec()),
                    _ => {}
                }
            }
        }
        Ok(LoggedCall::new(begin.as_ref().map(|(_, line)| &line[..]), end.as_deref()))
    }
}

#[cfg(test)]
mod tests;
