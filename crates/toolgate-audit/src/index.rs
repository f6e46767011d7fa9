//! The index of a day's file: the values in each block of the file, so that queries skip the other blocks.
//!
//! An index lies beside its file, as `2026-11-15.index`. It consists of entries, one per block of about 128 KiB: place,
//! sequence numbers, times, the longest duration, a Bloom filter of the values that calls are searched by, and the calls
//! that cross the borders of the block. [`LogIndexer`] writes it in the background, long after the records. Invariants:
//! it is derived from the file alone and rebuilt when it is missing or damaged; an entry only says where to look, and
//! calls are always read from the file; a call that ended has all of its values in the block of its end.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};

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

/// Start of an index; the last byte is the version of the format. The length of the valid part follows.
const MAGIC: [u8; 8] = *b"tgindex\x01";
const HEADER_BYTES: u64 = 16;
/// Bytes of the fixed part of an entry.
const FIXED_BYTES: usize = 10 * 8;
/// Bytes of an entry after its content: checksum and length.
const TRAILER_BYTES: usize = 16;
/// Maximum length of an entry that a reader accepts.
const MAX_ENTRY_BYTES: u64 = 64 << 20;

/// One block of a day's file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IndexEntry {
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
    /// Calls that begin in the block and do not end in it, and those that end in it and began before.
    pub(crate) begins: Vec<u64>,
    pub(crate) ends: Vec<u64>,
    bloom: Vec<u64>,
}

impl IndexEntry {
    /// Returns the offset after the block.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// Returns false if no record of the block has the term.
    pub(crate) fn may_contain(&self, term: u64) -> bool {
        let bits = self.bloom.len() as u64 * 64;
        bits > 0 && probes(term, bits).all(|bit| self.bloom[(bit / 64) as usize] & 1 << (bit % 64) != 0)
    }

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
        let fixed = [
            self.offset,
            self.length,
            self.first_seq,
            self.last_seq,
            self.min_time.cast_unsigned(),
            self.max_time.cast_unsigned(),
            self.max_micros,
            self.last_hash,
            u64::from(self.has_unknown),
            counts,
        ];
        let words = fixed.iter().chain(&self.begins).chain(&self.ends).chain(&self.bloom);
        words.for_each(|word| out.extend(word.to_le_bytes()));
        let checksum = hash_bytes(0, &out[start..]);
        out.extend(checksum.to_le_bytes());
        let length = (out.len() - start + 8) as u64;
        out.extend(length.to_le_bytes());
    }

    /// Parses an entry with its trailer. Returns `None` if it is damaged.
    fn parse(bytes: &[u8]) -> Option<Self> {
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
        let (begins, ends) =
            (usize::try_from(counts >> 32).ok()?, usize::try_from(counts & u64::from(u32::MAX)).ok()?);
        let words = || content[FIXED_BYTES..].as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let entry = Self {
            offset: word(content, 0),
            length: word(content, 1),
            first_seq: word(content, 2),
            last_seq: word(content, 3),
            min_time: word(content, 4).cast_signed(),
            max_time: word(content, 5).cast_signed(),
            max_micros: word(content, 6),
            last_hash: word(content, 7),
            has_unknown: word(content, 8) != 0,
            begins: words().take(begins).collect(),
            ends: words().skip(begins).take(ends).collect(),
            bloom: words().skip(begins + ends).collect(),
        };
        (entry.begins.len() == begins && entry.ends.len() == ends).then_some(entry)
    }
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
fn is_anchored(file: &File, entry: &IndexEntry) -> io::Result<bool> {
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
    /// Offset of the buffer in the index.
    start: u64,
    buffer: Vec<u8>,
    /// Length of the unread part of the buffer.
    end: usize,
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
        let mut entries = Self { index, start: length, buffer: Vec::new(), end: 0, next_end: 0 };
        let Some(last) = entries.read_entry()?.filter(|last| last.length > 0) else { return Ok(None) };
        if !is_anchored(file, &last)? {
            return Ok(None);
        }
        let next_end = last.end();
        Ok(Some(Self { index: entries.index, start: length, buffer: Vec::new(), end: 0, next_end }))
    }

    /// Returns the end of the next block in the day's file: everything before it is indexed.
    pub(crate) fn next_end(&self) -> u64 {
        self.next_end
    }

    /// Reads the previous entry. Returns `None` at the start of the index, or if the entry is damaged.
    pub(crate) fn entry(&mut self) -> io::Result<Option<IndexEntry>> {
        let Some(entry) = self.read_entry()? else { return Ok(None) };
        if entry.end() != self.next_end || entry.length == 0 {
            return Ok(None);
        }
        self.next_end = entry.offset;
        Ok(Some(entry))
    }

    fn read_entry(&mut self) -> io::Result<Option<IndexEntry>> {
        if !self.load(8)? {
            return Ok(None);
        }
        let length = word(&self.buffer[self.end - 8..self.end], 0);
        let Some(size) = usize::try_from(length).ok().filter(|_| length <= MAX_ENTRY_BYTES) else {
            return Ok(None);
        };
        if size < FIXED_BYTES + TRAILER_BYTES || !self.load(size)? {
            return Ok(None);
        }
        let entry = IndexEntry::parse(&self.buffer[self.end - size..self.end]);
        self.end -= size;
        Ok(entry)
    }

    /// Makes at least `size` unread bytes available. Returns false if there are not as many.
    fn load(&mut self, size: usize) -> io::Result<bool> {
        if self.end >= size {
            return Ok(true);
        }
        let left = self.start - HEADER_BYTES;
        let more = ((size - self.end) as u64).max(BATCH_BYTES as u64).min(left);
        if (self.end as u64) + more < size as u64 {
            return Ok(false);
        }
        let more = usize::try_from(more).map_err(io::Error::other)?;
        let mut buffer = vec![0; more + self.end];
        self.index.read_exact_at(&mut buffer[..more], self.start - more as u64)?;
        buffer[more..].copy_from_slice(&self.buffer[..self.end]);
        self.start -= more as u64;
        (self.end, self.buffer) = (buffer.len(), buffer);
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
            is_over = block.length < self.sizes.block;
            if block.length > 0 && !(is_over && is_newest) {
                indexed = block.end();
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
            let (length, covered) = (entries.start, entries.next_end());
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
    fn next_block(&mut self, lines: &mut ForwardLines, offset: u64) -> io::Result<(IndexEntry, OpenCalls)> {
        let mut entry =
            IndexEntry { offset, min_time: i64::MAX, max_time: i64::MIN, ..IndexEntry::default() };
        let (mut terms, mut begun) = (Vec::new(), HashMap::new());
        let mut record = RecordTerms::default();
        while entry.length < self.sizes.block
            && let Some(line) = lines.line()?
        {
            entry.length += line.len() as u64 + 1;
            let Some(line) = RecordLine::parse(line) else { continue };
            if entry.last_seq == 0 {
                entry.first_seq = line.seq;
            }
            (entry.last_seq, entry.last_hash) = (line.seq, hash_bytes(0, line.hash));
            if let Some(time) = line.timestamp() {
                entry.min_time = entry.min_time.min(time.as_microsecond());
                entry.max_time = entry.max_time.max(time.as_microsecond());
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
            entry.max_micros = entry.max_micros.max(record.micros);
            if begun.remove(&record.call).is_none() {
                entry.ends.push(record.call);
                match self.open.remove(&record.call) {
                    Some(begin) => terms.extend(&begin),
                    None => entry.has_unknown = true,
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

    fn entry(offset: u64, terms: &[u64]) -> IndexEntry {
        let mut entry =
            IndexEntry { offset, length: 7, begins: vec![1, 2], ends: vec![3], ..IndexEntry::default() };
        entry.fill_bloom(&mut terms.to_vec());
        entry
    }

    #[test]
    fn entries_round_trip_and_damage_is_found() {
        let entry = entry(5, &[1, 2, 3]);
        let mut bytes = Vec::new();
        entry.write(&mut bytes);
        assert_eq!(IndexEntry::parse(&bytes), Some(entry));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(IndexEntry::parse(&damaged), None, "byte {at}");
        }
        for length in 0..bytes.len() {
            assert_eq!(IndexEntry::parse(&bytes[..length]), None, "{length} bytes");
        }
    }

    #[test]
    fn few_blocks_are_read_in_vain() {
        let mut random = fastrand::Rng::with_seed(7);
        let terms: Vec<_> = (0..500).map(|_| random.u64(..)).collect();
        let entry = entry(0, &terms);
        assert!(terms.iter().all(|term| entry.may_contain(*term)));
        let wrong = (0..100_000).filter(|_| entry.may_contain(random.u64(..))).count();
        assert!(wrong < 200, "{wrong} of 100,000");
    }
}
