//! The index of a day's file: the values in each block of the file, so that queries skip the other blocks.
//!
//! An index lies beside its file, as `2026-11-15.index`. It consists of entries, one per block of about 128 KiB: place,
//! sequence numbers, times, the longest duration, a Bloom filter of the values that calls are searched by, and the calls
//! that cross the borders of the block. [`LogIndexer`] writes it in the background, long after the records. Invariants:
//! it is derived from the file alone and rebuilt when it is missing or damaged; an entry only says where to look, and
//! calls are always read from the file; a call that ended has all of its values in the block of its end.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fs_err::File;
use fs_err::os::unix::fs::FileExt;
use jiff::civil::Date;
use rustix::fs::{FlockOperation, flock};
use toolgate_state::{FileAccess, open_private};

use crate::chain::RecordLine;
use crate::folder;
use crate::scan::{BackwardLines, ForwardLines};
use crate::terms::{RecordTerms, hash_bytes};

/// Bytes of a block, at least; a block ends with a line.
const BLOCK_BYTES: u64 = 128 << 10;
/// Bytes of the file that is written to that are left to the readers: they scan it faster than it is worth to index it.
const MAX_UNINDEXED_BYTES: u64 = 8 << 20;
/// The same for files of past days.
const MAX_UNINDEXED_PAST_BYTES: u64 = 1 << 20;
/// Bits of the Bloom filter per value, and bits that a value sets: one in about 2,000 blocks is read in vain.
const BITS_PER_TERM: usize = 16;
const PROBES: u64 = 8;
/// Maximum number of calls without an end. Beyond it, blocks with ends of unknown calls are always read.
const MAX_OPEN_CALLS: usize = 100_000;
/// Bytes of entries that are written at once.
const BATCH_BYTES: usize = 256 << 10;
/// Bytes of entries that a reader reads first, and at most at once.
const FIRST_READ_BYTES: u64 = 64 << 10;
const MAX_READ_BYTES: u64 = 4 << 20;

/// Start of an index; the last byte is the version of the format. The length of the valid part follows.
const MAGIC: [u8; 8] = *b"tgindex\x02";
const HEADER_BYTES: u64 = 16;
/// Bytes of the fixed part of an entry.
const FIXED_BYTES: usize = 10 * 8;
/// Bytes of an entry after its content: checksum and length.
const TRAILER_BYTES: usize = 16;
/// Maximum length of an entry that a reader accepts.
const MAX_ENTRY_BYTES: u64 = 64 << 20;

/// The fixed part of an entry: one block of a day's file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EntryHead {
    /// Place of the block in the file.
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) first_seq: u64,
    pub(crate) last_seq: u64,
    /// Earliest and latest time of its records, in microseconds.
    pub(crate) min_time: i64,
    pub(crate) max_time: i64,
    /// Longest duration of the calls that end in the block.
    pub(crate) max_micros: u64,
    /// Hash of the last line, to recognise the file.
    last_hash: u64,
    /// True if the block has ends without a known begin: it cannot be skipped.
    pub(crate) has_unknown: bool,
}

impl EntryHead {
    /// Returns the offset after the block.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.length
    }
}

/// An entry that is not written yet.
#[derive(Debug, Default)]
struct NewEntry {
    head: EntryHead,
    /// Calls that begin in the block and do not end in it, and those that end in it and began before.
    begins: Vec<u64>,
    ends: Vec<u64>,
    bloom: Vec<u64>,
}

impl NewEntry {
    fn fill_bloom(&mut self, terms: &mut Vec<u64>) {
        terms.sort_unstable();
        terms.dedup();
        self.bloom = vec![0; (terms.len() * BITS_PER_TERM).div_ceil(64).max(1)];
        let bits = self.bloom.len() as u64 * 64;
        for term in terms.drain(..) {
            probes(term, bits).for_each(|bit| self.bloom[(bit / 64) as usize] |= 1 << (bit % 64));
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let counts = (self.begins.len() as u64) << 32 | self.ends.len() as u64;
        let head = &self.head;
        let fixed = [
            head.offset,
            head.length,
            head.first_seq,
            head.last_seq,
            head.min_time.cast_unsigned(),
            head.max_time.cast_unsigned(),
            head.max_micros,
            head.last_hash,
            u64::from(head.has_unknown),
            counts,
        ];
        let words = fixed.iter().chain(&self.begins).chain(&self.ends).chain(&self.bloom);
        words.for_each(|word| out.extend(word.to_le_bytes()));
        let checksum = hash_bytes(0, &out[start..]);
        out.extend(checksum.to_le_bytes());
        let length = (out.len() - start + 8) as u64;
        out.extend(length.to_le_bytes());
    }
}

/// An entry as read. Its lists stay where they were read, because most entries are looked at for one term only.
#[derive(Debug)]
pub(crate) struct IndexEntry {
    pub(crate) head: EntryHead,
    batch: Arc<Vec<u8>>,
    /// Places in the batch: the calls that begin in the block, those that end in it, and the Bloom filter.
    begins: Range<usize>,
    ends: Range<usize>,
    bloom: Range<usize>,
}

impl IndexEntry {
    /// Calls that begin in the block and do not end in it.
    pub(crate) fn begins(&self) -> impl Iterator<Item = u64> {
        words(&self.batch[self.begins.clone()])
    }

    /// Calls that end in the block and began before.
    pub(crate) fn ends(&self) -> impl Iterator<Item = u64> {
        words(&self.batch[self.ends.clone()])
    }

    /// Returns false if no record of the block has the term.
    pub(crate) fn may_contain(&self, term: u64) -> bool {
        let bloom = &self.batch[self.bloom.clone()];
        let bits = bloom.len() as u64 * 8;
        bits > 0 && probes(term, bits).all(|bit| bloom[(bit / 8) as usize] & 1 << (bit % 8) != 0)
    }

    /// Parses an entry with its trailer. Returns `None` if it is damaged.
    fn parse(batch: &Arc<Vec<u8>>, place: Range<usize>) -> Option<Self> {
        let bytes = &batch[place.clone()];
        let content = &bytes[..bytes.len().checked_sub(TRAILER_BYTES)?];
        let trailer = &bytes[content.len()..];
        if content.len() < FIXED_BYTES
            || !content.len().is_multiple_of(8)
            || word(trailer, 0) != hash_bytes(0, content)
            || word(trailer, 1) != bytes.len() as u64
        {
            return None;
        }
        let counts = word(content, 9);
        let bytes_of = |count: u64| usize::try_from(count * 8).ok();
        let begins = place.start + FIXED_BYTES;
        let ends = begins.checked_add(bytes_of(counts >> 32)?)?;
        let bloom = ends.checked_add(bytes_of(counts & u64::from(u32::MAX))?)?;
        let end = place.start + content.len();
        let head = EntryHead {
            offset: word(content, 0),
            length: word(content, 1),
            first_seq: word(content, 2),
            last_seq: word(content, 3),
            min_time: word(content, 4).cast_signed(),
            max_time: word(content, 5).cast_signed(),
            max_micros: word(content, 6),
            last_hash: word(content, 7),
            has_unknown: word(content, 8) != 0,
        };
        let batch = Arc::clone(batch);
        (bloom <= end).then_some(Self {
            head,
            batch,
            begins: begins..ends,
            ends: ends..bloom,
            bloom: bloom..end,
        })
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// Returns the word at an index of a text that is long enough.
fn word(bytes: &[u8], index: usize) -> u64 {
    let bytes = bytes[index * 8..index * 8 + 8].try_into();
    u64::from_le_bytes(bytes.expect("eight bytes"))
}

/// Returns the bits of a term in a Bloom filter.
fn probes(term: u64, bits: u64) -> impl Iterator<Item = u64> {
    let (first, step) = (term, term.rotate_left(32) | 1);
    (0..PROBES).map(move |index| {
        let hash = first.wrapping_add(step.wrapping_mul(index));
        ((u128::from(hash) * u128::from(bits)) >> 64) as u64
    })
}

fn index_path(folder: &Path, day: Date) -> PathBuf {
    folder.join(format!("{day}.index"))
}

/// Removes the index of a day, if there is one.
pub(crate) fn remove(folder: &Path, day: Date) -> io::Result<()> {
    match fs_err::remove_file(index_path(folder, day)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Reads the length of the valid part of an index; `None` if it is not an index of this version.
fn committed_length(index: &File) -> io::Result<Option<u64>> {
    let mut header = [0; HEADER_BYTES as usize];
    match index.read_exact_at(&mut header, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = word(&header, 1);
    let is_valid = header[..8] == MAGIC && (HEADER_BYTES..=index.metadata()?.len()).contains(&length);
    Ok(is_valid.then_some(length))
}

/// Returns true if the line before `offset` is the last one of the entry.
fn is_anchored(file: &File, entry: &EntryHead) -> io::Result<bool> {
    if file.metadata()?.len() < entry.end() {
        return Ok(false);
    }
    let mut lines = BackwardLines::new(folder::open_for_reading(file.path())?, entry.end())?;
    if lines.position() != entry.end() {
        return Ok(false);
    }
    let line = lines.line()?.and_then(RecordLine::parse);
    Ok(line.is_some_and(|line| line.seq == entry.last_seq && hash_bytes(0, line.hash) == entry.last_hash))
}

/// Reads the entries of an index, last one first.
pub(crate) struct BackwardEntries {
    index: File,
    /// Offset of the batch in the index.
    start: u64,
    batch: Arc<Vec<u8>>,
    /// Length of the unread part of the batch.
    end: usize,
    /// Bytes to read next: a page needs the last entries only, and a rare call all of them.
    next_size: u64,
    /// End of the next block in the day's file.
    next_end: u64,
}

impl BackwardEntries {
    /// Opens the index of a day's file. Returns `None` if there is none that belongs to the file.
    pub(crate) fn open(folder: &Path, day: Date, file: &File) -> io::Result<Option<Self>> {
        let index = match folder::open_for_reading(&index_path(folder, day)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            index => index?,
        };
        let Some(length) = committed_length(&index)? else { return Ok(None) };
        let mut entries = Self {
            index,
            start: length,
            batch: Arc::default(),
            end: 0,
            next_size: FIRST_READ_BYTES,
            next_end: 0,
        };
        let Some(last) = entries.read_entry()?.filter(|last| last.head.length > 0) else { return Ok(None) };
        if !is_anchored(file, &last.head)? {
            return Ok(None);
        }
        // The last entry is read again.
        entries.end = entries.batch.len();
        entries.next_end = last.head.end();
        Ok(Some(entries))
    }

    /// Returns the end of the next block in the day's file: everything before it is indexed.
    pub(crate) fn next_end(&self) -> u64 {
        self.next_end
    }

    /// Reads the previous entry. Returns `None` at the start of the index, or if the entry is damaged.
    pub(crate) fn entry(&mut self) -> io::Result<Option<IndexEntry>> {
        let Some(entry) = self.read_entry()? else { return Ok(None) };
        if entry.head.end() != self.next_end || entry.head.length == 0 {
            return Ok(None);
        }
        self.next_end = entry.head.offset;
        Ok(Some(entry))
    }

    fn read_entry(&mut self) -> io::Result<Option<IndexEntry>> {
        if !self.load(8)? {
            return Ok(None);
        }
        let length = word(&self.batch[self.end - 8..self.end], 0);
        let Some(size) = usize::try_from(length).ok().filter(|_| length <= MAX_ENTRY_BYTES) else {
            return Ok(None);
        };
        if size < FIXED_BYTES + TRAILER_BYTES || !self.load(size)? {
            return Ok(None);
        }
        let entry = IndexEntry::parse(&self.batch, self.end - size..self.end);
        self.end -= size;
        Ok(entry)
    }

    /// Makes at least `size` unread bytes available. Returns false if there are not as many.
    fn load(&mut self, size: usize) -> io::Result<bool> {
        if self.end >= size {
            return Ok(true);
        }
        let left = self.start - HEADER_BYTES;
        let more = ((size - self.end) as u64).max(self.next_size).min(left);
        if (self.end as u64) + more < size as u64 {
            return Ok(false);
        }
        self.next_size = (self.next_size * 2).min(MAX_READ_BYTES);
        let more = usize::try_from(more).map_err(io::Error::other)?;
        let mut batch = vec![0; more + self.end];
        self.index.read_exact_at(&mut batch[..more], self.start - more as u64)?;
        batch[more..].copy_from_slice(&self.batch[..self.end]);
        self.start -= more as u64;
        (self.end, self.batch) = (batch.len(), Arc::new(batch));
        Ok(true)
    }
}

/// Terms of calls without an end, by the hash of their id.
type OpenCalls = HashMap<u64, Box<[u64]>>;

/// Writes the indexes of a log's folder.
pub struct LogIndexer {
    folder: PathBuf,
    /// Calls without an end so far, with the terms of their begins.
    open: OpenCalls,
    /// Indexed bytes of each file, as far as they are known to be correct.
    indexed: BTreeMap<Date, u64>,
    sizes: IndexSizes,
}

/// Sizes that tests make small.
#[derive(Debug, Clone, Copy)]
struct IndexSizes {
    block: u64,
    /// Bytes that are left to the readers, in the newest file and in others.
    newest: u64,
    past: u64,
}

impl LogIndexer {
    pub fn new(folder: impl AsRef<Path>) -> Self {
        let sizes =
            IndexSizes { block: BLOCK_BYTES, newest: MAX_UNINDEXED_BYTES, past: MAX_UNINDEXED_PAST_BYTES };
        Self { folder: folder.as_ref().to_owned(), open: HashMap::new(), indexed: BTreeMap::new(), sizes }
    }

    /// Indexes everything, in blocks of this size.
    #[cfg(test)]
    pub(crate) fn eager(folder: &Path, block: u64) -> Self {
        Self { sizes: IndexSizes { block, newest: 0, past: 0 }, ..Self::new(folder) }
    }

    /// Indexes the records added to the log. Stops when `go_on` returns false.
    ///
    /// # Errors
    /// If a file cannot be read or written. The next call tries again.
    pub fn update(&mut self, go_on: &dyn Fn() -> bool) -> io::Result<()> {
        let days = match folder::list_days(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            days => days?,
        };
        self.indexed.retain(|day, _| days.contains(day));
        let newest = days.last().copied();
        for day in days {
            if !go_on() {
                return Ok(());
            }
            self.update_day(day, Some(day) == newest, go_on)?;
        }
        Ok(())
    }

    /// Returns the number of bytes that are indexed, of all files.
    pub fn indexed_bytes(&self) -> u64 {
        self.indexed.values().sum()
    }

    fn update_day(&mut self, day: Date, is_newest: bool, go_on: &dyn Fn() -> bool) -> io::Result<()> {
        let path = folder::day_path(&self.folder, day);
        let length = match fs_err::metadata(&path) {
            // Removed by retention in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            metadata => metadata?.len(),
        };
        let most = if is_newest { self.sizes.newest } else { self.sizes.past };
        if length.saturating_sub(self.indexed.get(&day).copied().unwrap_or(0)) <= most {
            return Ok(());
        }
        let file = folder::open_for_reading(&path)?;
        let index = open_private(&index_path(&self.folder, day), FileAccess::Create)?;
        if flock(&index, FlockOperation::NonBlockingLockExclusive).is_err() {
            // Another process is at it.
            return Ok(());
        }
        let (mut index_length, mut indexed) = self.check(day, &file, &index)?;
        self.indexed.insert(day, indexed);
        if length.saturating_sub(indexed) <= most {
            return Ok(());
        }
        let mut lines = ForwardLines::new(file, indexed)?;
        let mut batch = Vec::new();
        let mut is_over = false;
        while !is_over && go_on() {
            let (block, begun) = self.next_block(&mut lines, indexed)?;
            // The last block of the newest file is still being written.
            is_over = block.head.length < self.sizes.block;
            if block.head.length > 0 && !(is_over && is_newest) {
                indexed = block.head.end();
                block.write(&mut batch);
                if self.open.len() >= MAX_OPEN_CALLS {
                    self.open.clear();
                }
                self.open.extend(begun);
            }
            if batch.len() >= BATCH_BYTES {
                index_length = commit(&index, index_length, &batch)?;
                batch.clear();
            }
        }
        commit(&index, index_length, &batch)?;
        self.indexed.insert(day, indexed);
        Ok(())
    }

    /// Checks an index, and empties it if it is damaged or belongs to another file. Returns its length, and the number
    /// of bytes of the file that it covers.
    fn check(&self, day: Date, file: &File, index: &File) -> io::Result<(u64, u64)> {
        if let Some(mut entries) = BackwardEntries::open(&self.folder, day, file)? {
            let (length, covered) = (entries.start + entries.end as u64, entries.next_end());
            if self.indexed.get(&day) == Some(&covered) {
                return Ok((length, covered));
            }
            // Every entry is checked once, because a damaged one hides those before it from readers.
            while entries.entry()?.is_some() {}
            if entries.next_end() == 0 {
                return Ok((length, covered));
            }
        }
        tracing::debug!(%day, "the index of a file of the execution log is built");
        index.set_len(0)?;
        index.write_all_at(&MAGIC, 0)?;
        Ok((commit(index, HEADER_BYTES, &[])?, 0))
    }

    /// Reads lines until a block is full, or the file ends. Also returns the calls that begin in the block and do not end
    /// in it.
    fn next_block(&mut self, lines: &mut ForwardLines, offset: u64) -> io::Result<(NewEntry, OpenCalls)> {
        let mut entry = NewEntry::default();
        let head = &mut entry.head;
        (head.offset, head.min_time, head.max_time) = (offset, i64::MAX, i64::MIN);
        let (mut terms, mut begun) = (Vec::new(), HashMap::new());
        let mut record = RecordTerms::default();
        while head.length < self.sizes.block
            && let Some(line) = lines.line()?
        {
            head.length += line.len() as u64 + 1;
            let Some(line) = RecordLine::parse(line) else { continue };
            if head.last_seq == 0 {
                head.first_seq = line.seq;
            }
            (head.last_seq, head.last_hash) = (line.seq, hash_bytes(0, line.hash));
            if let Some(time) = line.timestamp() {
                head.min_time = head.min_time.min(time.as_microsecond());
                head.max_time = head.max_time.max(time.as_microsecond());
            }
            if !record.read(line.members()) {
                continue;
            }
            terms.extend(&record.own);
            if record.is_begin {
                terms.extend(&record.begin);
                begun.insert(record.call, Box::from(record.begin.as_slice()));
                continue;
            }
            head.max_micros = head.max_micros.max(record.micros);
            if begun.remove(&record.call).is_none() {
                entry.ends.push(record.call);
                match self.open.remove(&record.call) {
                    Some(begin) => terms.extend(&begin),
                    None => head.has_unknown = true,
                }
            }
        }
        entry.begins = begun.keys().copied().collect();
        entry.fill_bloom(&mut terms);
        Ok((entry, begun))
    }
}

/// Appends entries to an index, and makes them valid. Returns its new length.
fn commit(index: &File, length: u64, entries: &[u8]) -> io::Result<u64> {
    index.write_all_at(entries, length)?;
    let length = length + entries.len() as u64;
    index.write_all_at(&length.to_le_bytes(), 8)?;
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(terms: &[u64]) -> (NewEntry, Vec<u8>) {
        let head = EntryHead { offset: 5, length: 7, ..EntryHead::default() };
        let mut entry = NewEntry { head, begins: vec![1, 2], ends: vec![3], bloom: Vec::new() };
        entry.fill_bloom(&mut terms.to_vec());
        let mut bytes = Vec::new();
        entry.write(&mut bytes);
        (entry, bytes)
    }

    fn parse(bytes: &[u8]) -> Option<IndexEntry> {
        // The place of an entry in a batch is any.
        let batch = [b"before", bytes, b"after"].concat();
        IndexEntry::parse(&Arc::new(batch), 6..6 + bytes.len())
    }

    #[test]
    fn entries_round_trip_and_damage_is_found() {
        let (entry, bytes) = entry(&[1, 2, 3]);
        let read = parse(&bytes).unwrap();
        assert_eq!(read.head, entry.head);
        assert_eq!((read.begins().collect(), read.ends().collect()), (entry.begins, entry.ends));
        assert!([1, 2, 3].into_iter().all(|term| read.may_contain(term)));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(parse(&damaged).is_none(), "byte {at}");
        }
        for length in 0..bytes.len() {
            assert!(parse(&bytes[..length]).is_none(), "{length} bytes");
        }
    }

    #[test]
    fn few_blocks_are_read_in_vain() {
        let mut random = fastrand::Rng::with_seed(7);
        let terms: Vec<_> = (0..500).map(|_| random.u64(..)).collect();
        let entry = parse(&entry(&terms).1).unwrap();
        assert!(terms.iter().all(|term| entry.may_contain(*term)));
        let wrong = (0..100_000).filter(|_| entry.may_contain(random.u64(..))).count();
        assert!(wrong < 200, "{wrong} of 100,000");
    }
}
