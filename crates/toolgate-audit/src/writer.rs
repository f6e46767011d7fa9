//! The writer: numbers records, links them in the hash chain and appends them to the file of their day.
//!
//! All queued records are written at once, so a busy log makes few and large writes. Invariant: whole lines or none.
//! If a write fails, the file is truncated, and sequence number and hash chain stay as they were.
//!
//! Files are not memory-mapped, although that would save a system call per record: a truncated file or a full disk
//! would then kill the process with a signal instead of an error, and a file preallocated beyond its lines would show
//! zeros to its readers.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fs_err::File;
use fs_err::os::unix::fs::FileExt;
use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::chain::{self, ChainHead, RecordLine, utc_day};
use crate::clock::Clock;
use crate::folder::{self, RecoveredLog};
use crate::log::{Durability, LogUnavailable, QueuedRecord, RecordKind, RecordQueue};
use crate::part_buffer::PartBuffer;
use crate::reserve::{self, DiskReserve};
use crate::retention::{self, RetentionSchedule};
use crate::storage_errors::StorageOperation;
use crate::sync::{Syncer, WrittenBatch};

/// Interval between retries while the log cannot be written.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Sleep time of an idle writer thread; after it, the thread looks for files to remove.
const IDLE_SLEEP: Duration = Duration::from_secs(10 * 60);
/// Maximum bytes per write, not counting the last record.
const MAX_WRITE_BYTES: usize = 4 << 20;
/// Maximum number of open files: the one of today, and one for records of another day.
const MAX_OPEN_FILES: usize = 2;
/// Maximum bytes kept in memory while nothing can be written.
const MAX_BACKLOG_BYTES: usize = 16 << 20;
/// Capacity of the queue that is kept between writes, in records.
const MAX_KEPT_RECORDS: usize = 1 << 10;
/// Backward clock steps shorter than this are not logged.
const MIN_CLOCK_STEP: SignedDuration = SignedDuration::from_secs(1);

pub(crate) struct LogWriter {
    folder: PathBuf,
    clock: Arc<dyn Clock>,
    queue: Arc<RecordQueue>,
    syncer: Arc<Syncer>,
    head: ChainHead,
    last_time: Option<Timestamp>,
    /// Length of each file, counting complete writes only.
    lengths: BTreeMap<Date, u64>,
    open: VecDeque<(Date, Arc<File>)>,
    buffer: PartBuffer,
    down: Option<Outage>,
    /// Records to write first once writing works again.
    backlog: VecDeque<QueuedRecord>,
    backlog_bytes: usize,
    /// Exchanged with the queue, so that neither is allocated for each write.
    taken: VecDeque<QueuedRecord>,
    retention: RetentionSchedule,
    /// File being removed, by a separate thread because removing a large file is slow.
    removing: Option<(Date, JoinHandle<io::Result<()>>)>,
    reserve: DiskReserve,
    /// Set while the disk reserve is released: only ends are written until it is refilled.
    low: Option<Outage>,
    /// Day of the last record.
    last_day: Option<Date>,
}

pub(crate) struct WriterSetup {
    pub(crate) folder: PathBuf,
    pub(crate) recovered: RecoveredLog,
    pub(crate) keep: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) queue: Arc<RecordQueue>,
    pub(crate) syncer: Arc<Syncer>,
    pub(crate) reserve: DiskReserve,
}

/// A condition that prevents writing.
struct Outage {
    cause: Arc<io::Error>,
    tried: Duration,
}

impl LogWriter {
    pub(crate) fn new(setup: WriterSetup) -> Self {
        let WriterSetup { folder, recovered, keep, clock, queue, syncer, reserve } = setup;
        let retention = RetentionSchedule::new(keep, &*clock);
        let mut writer = Self {
            folder,
            clock,
            queue,
            syncer,
            head: recovered.head,
            last_time: recovered.last_time,
            lengths: recovered.lengths,
            open: VecDeque::new(),
            buffer: PartBuffer::default(),
            down: None,
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            taken: VecDeque::new(),
            retention,
            removing: None,
            reserve,
            low: None,
            last_day: None,
        };
        writer.refill();
        writer
    }

    /// Writes all queued records.
    pub(crate) fn drain_queue(&mut self) {
        let mut records = std::mem::take(&mut self.taken);
        self.queue.take(&mut records);
        let units: usize = records.iter().map(|record| record.units as usize).sum();
        self.handle(&mut records);
        records.clear();
        records.shrink_to(MAX_KEPT_RECORDS);
        self.taken = records;
        self.queue.capacity.add_permits(units);
        self.start_removal();
    }

    /// Writes the backlog one last time before the log is closed.
    fn finish(&mut self) {
        self.finish_removing();
        if !self.backlog.is_empty() {
            self.write(&mut VecDeque::new());
            if !self.backlog.is_empty() {
                tracing::error!(records = self.backlog.len(), "the execution log lost records at its end");
                self.queue.errors.count_lost(self.backlog.len());
            }
        }
    }

    /// Writes records, or rejects them. Leaves none of them.
    pub(crate) fn handle(&mut self, records: &mut VecDeque<QueuedRecord>) {
        if self.down.is_none()
            && let Some(cause) = self.syncer.failure()
        {
            self.fail(cause);
        }
        let now = self.clock.elapsed();
        if let Some(down) = &mut self.down {
            if now.saturating_sub(down.tried) < RETRY_INTERVAL {
                let cause = Arc::clone(&down.cause);
                self.reject(records.drain(..), &cause);
                return;
            }
            down.tried = now;
        }
        if self.low.as_ref().is_some_and(|low| now.saturating_sub(low.tried) >= RETRY_INTERVAL) {
            self.refill();
        }
        match &self.low {
            None => self.write(records),
            Some(low) => {
                let cause = Arc::clone(&low.cause);
                self.write_ends(records, &cause);
            }
        }
    }

    /// Returns true if all records are written, not only ends.
    pub(crate) fn is_up(&self) -> bool {
        self.down.is_none() && self.low.is_none()
    }

    /// Returns the maximum sleep time of the writer thread.
    fn pause(&self) -> Duration {
        if self.is_up() { IDLE_SLEEP } else { RETRY_INTERVAL }
    }

    /// Takes the disk reserve again. If there is no room for it, no new call may begin.
    fn refill(&mut self) {
        match self.reserve.allocate() {
            Ok(()) => {
                if self.low.take().is_some() && self.down.is_none() {
                    tracing::info!("the disk has room for the execution log again");
                    self.queue.set_down(false);
                }
            }
            Err(error) => {
                self.queue.errors.count(StorageOperation::Reserve);
                self.enter_low_space(Arc::new(error));
            }
        }
    }

    fn enter_low_space(&mut self, cause: Arc<io::Error>) {
        if self.low.is_none() {
            tracing::error!(error = %cause, "the disk is full: the execution log rejects new calls");
        }
        self.low = Some(Outage { cause, tried: self.clock.elapsed() });
        self.queue.set_down(true);
    }

    /// Writes only the ends of calls that were sent, including those in the backlog.
    fn write_ends(&mut self, records: &mut VecDeque<QueuedRecord>, cause: &Arc<io::Error>) {
        let (ends, others) =
            records.drain(..).partition::<VecDeque<_>, _>(|record| record.kind == RecordKind::End);
        self.reject(others, cause);
        // A begin in the backlog is one that was never reported to its caller: its end follows and needs it.
        let belongs = |record: &QueuedRecord| record.kind != RecordKind::Note;
        let (waiting, kept) = self.backlog.drain(..).partition::<VecDeque<_>, _>(belongs);
        self.backlog_bytes = kept.iter().map(|record| record.body.len()).sum();
        self.backlog = kept;
        let mut ends = waiting.into_iter().chain(ends).collect();
        if let Err(error) = self.write_all(&mut ends) {
            self.fail_and_reject(&mut ends, error);
        }
    }

    /// Leaves the failed state after a successful write.
    fn mark_available(&mut self) {
        if self.down.take().is_some() {
            tracing::info!("the execution log can be written again");
            self.queue.set_down(self.low.is_some());
        }
    }

    /// Enters the failed state. Open files are closed, because the kernel's state of them cannot be trusted after an
    /// error.
    fn fail(&mut self, cause: Arc<io::Error>) {
        if self.down.is_none() {
            tracing::error!(error = %cause, "the execution log cannot be written");
        }
        self.open.clear();
        self.down = Some(Outage { cause, tried: self.clock.elapsed() });
        self.queue.set_down(true);
    }

    /// Rejects records: notifies their waiters, and keeps those that report the past for later.
    fn reject(&mut self, records: impl IntoIterator<Item = QueuedRecord>, cause: &Arc<io::Error>) {
        for mut record in records {
            let receiver_gone = match record.waiter.take() {
                Some(waiter) => waiter.send(Err(LogUnavailable::new(false, Arc::clone(cause)))).is_err(),
                None => true,
            };
            // If the caller of a begin is gone, its end will follow, so the begin is kept.
            if record.kind == RecordKind::Begin && !receiver_gone {
                continue;
            }
            if self.backlog_bytes + record.body.len() > MAX_BACKLOG_BYTES {
                tracing::error!("the execution log lost a record: {}", excerpt(&record.body));
                self.queue.errors.count_lost(1);
                continue;
            }
            self.backlog_bytes += record.body.len();
            // A received body may be larger than the part of it that is recorded.
            record.body.unshare();
            self.backlog.push_back(QueuedRecord { units: 0, durability: Durability::Written, ..record });
        }
    }

    /// Writes the backlog and the records. On an error, the unwritten ones are rejected; if the disk is full, the
    /// reserve is released and used for the ends of calls.
    fn write(&mut self, records: &mut VecDeque<QueuedRecord>) {
        if !self.backlog.is_empty() {
            self.backlog_bytes = 0;
            let new = std::mem::take(records);
            records.extend(self.backlog.drain(..).chain(new));
        }
        let Err(error) = self.write_all(records) else { return };
        if !(reserve::is_full(&error) && self.reserve.is_held()) {
            return self.fail_and_reject(records, error);
        }
        self.queue.errors.count(StorageOperation::Write);
        let cause = Arc::new(error);
        if let Err(error) = self.reserve.release() {
            tracing::error!(%error, "cannot release the disk space reserved for the execution log");
        }
        self.enter_low_space(Arc::clone(&cause));
        self.write_ends(records, &cause);
    }

    /// Writes records, batching those of one day. On an error, the unwritten ones are left.
    fn write_all(&mut self, records: &mut VecDeque<QueuedRecord>) -> io::Result<()> {
        if self.syncer.failure().is_some() {
            self.restore()?;
        }
        while let Some(first) = records.front() {
            let day = utc_day(first.at);
            let mut head = self.head;
            let mut count = 0;
            self.buffer.reset(MAX_WRITE_BYTES);
            let day_number = chain::utc_day_number(first.at);
            for record in records.iter().take_while(|record| chain::utc_day_number(record.at) == day_number) {
                if self.buffer.len() >= MAX_WRITE_BYTES {
                    break;
                }
                head.append(record.at, &record.body, &mut self.buffer);
                count += 1;
            }
            let last_time = records[count - 1].at;
            self.switch_day(day)?;
            let (file, created) = self.append(day)?;
            self.head = head;
            self.check_clock(last_time);
            self.retention.note_write(day, self.clock.elapsed());
            // Before any waiter is notified.
            self.mark_available();
            let mut waiters = Vec::new();
            for record in records.drain(..count) {
                match (record.durability, record.waiter) {
                    (Durability::Synced, Some(waiter)) => waiters.push(waiter),
                    // The receiver may have been dropped.
                    (_, waiter) => drop(waiter.map(|waiter| waiter.send(Ok(())))),
                }
            }
            let length = self.lengths[&day];
            self.syncer.register_write(WrittenBatch { day, file, length, created, waiters });
        }
        // Received bodies are not kept any longer.
        self.buffer.reset(MAX_WRITE_BYTES);
        Ok(())
    }

    /// Syncs the previous day's file before the first record of another day: a power failure then loses only the end
    /// of the log, never something in its middle.
    fn switch_day(&mut self, day: Date) -> io::Result<()> {
        if let Some(last) = self.last_day.filter(|last| *last != day)
            && self.syncer.synced().get(&last).copied().unwrap_or(0) < self.lengths[&last]
        {
            let file = self.file(last)?;
            if let Err(error) = folder::sync_file(&file).and_then(|()| folder::sync_folder(&self.folder)) {
                let cause = Arc::new(error);
                self.syncer.fail(&cause);
                return Err(io::Error::new(cause.kind(), cause));
            }
        }
        self.last_day = Some(day);
        Ok(())
    }

    fn fail_and_reject(&mut self, records: &mut VecDeque<QueuedRecord>, error: io::Error) {
        self.queue.errors.count(StorageOperation::Write);
        let cause = Arc::new(error);
        // Before any waiter is notified.
        self.fail(Arc::clone(&cause));
        self.reject(records.drain(..), &cause);
    }

    fn check_clock(&mut self, time: Timestamp) {
        if let Some(last) = self.last_time
            && last.duration_since(time) >= MIN_CLOCK_STEP
        {
            tracing::warn!(%last, now = %time, "the clock went back; records stay ordered by sequence number");
        }
        self.last_time = Some(time);
    }

    /// Appends the buffer to a day's file, all or nothing. Also returns true if the file is new.
    fn append(&mut self, day: Date) -> io::Result<(Arc<File>, bool)> {
        let file = self.file(day)?;
        let length = self.lengths[&day];
        let written = match self.buffer.as_slice() {
            Some(whole) => write_at(&file, &mut [io::IoSlice::new(whole)], length),
            None => write_at(&file, &mut self.buffer.slices(), length),
        };
        if let Err(error) = written {
            // If this fails too, the file is truncated when it is opened again.
            if let Err(error) = file.set_len(length) {
                tracing::error!(%error, "cannot truncate a torn line of the execution log yet");
            }
            return Err(error);
        }
        self.lengths.insert(day, length + self.buffer.len() as u64);
        // The name of an empty file may not be durable yet.
        Ok((file, length == 0))
    }

    /// Opens a day's file, or returns it if it is open already.
    fn file(&mut self, day: Date) -> io::Result<Arc<File>> {
        if self.removing.as_ref().is_some_and(|(removing, _)| *removing == day) {
            self.finish_removing();
        }
        if let Some((_, file)) = self.open.iter().find(|(open, _)| *open == day) {
            return Ok(Arc::clone(file));
        }
        let path = folder::day_path(&self.folder, day);
        let file = Arc::new(folder::open_day_file(&path)?);
        let expected = *self.lengths.entry(day).or_default();
        let found = file.metadata()?.len();
        if found > expected {
            // Left over from a write that failed.
            folder::truncate(&file, &path, expected)?;
        } else if found < expected {
            tracing::error!(file = %path.display(), expected, found, "a file of the execution log has become shorter");
            let end = folder::find_end(&file)?;
            folder::truncate(&file, &path, end.length)?;
            self.lengths.insert(day, end.length);
        }
        if self.open.len() == MAX_OPEN_FILES {
            self.open.pop_front();
        }
        self.open.push_back((day, Arc::clone(&file)));
        Ok(file)
    }

    /// Recovers from a failed sync: everything not known to be durable is read through a new descriptor, checked, and
    /// written again, so that the next sync covers it.
    fn restore(&mut self) -> io::Result<()> {
        let synced = self.syncer.synced();
        let mut restored = Vec::new();
        for (day, length) in self.lengths.clone() {
            let from = synced.get(&day).copied().unwrap_or(0);
            if from >= length {
                continue;
            }
            let file = self.file(day)?;
            let length = self.lengths[&day];
            let mut lines = vec![0; usize::try_from(length.saturating_sub(from)).map_err(io::Error::other)?];
            file.read_exact_at(&mut lines, from)?;
            let valid_prefix = valid_prefix(&lines);
            if valid_prefix < lines.len() {
                tracing::error!(
                    lost = lines.len() - valid_prefix,
                    "the disk lost records of the execution log"
                );
                folder::truncate(&file, &folder::day_path(&self.folder, day), from + valid_prefix as u64)?;
                self.lengths.insert(day, from + valid_prefix as u64);
            }
            write_at(&file, &mut [io::IoSlice::new(&lines[..valid_prefix])], from)?;
            restored.push((day, file));
        }
        self.syncer.clear_failure();
        self.mark_available();
        for (day, file) in restored {
            let length = self.lengths[&day];
            // The file name may not be durable either.
            self.syncer.register_write(WrittenBatch {
                day,
                file,
                length,
                created: true,
                waiters: Vec::new(),
            });
        }
        Ok(())
    }

    /// Starts removing a file whose retention has expired, if there is one.
    fn start_removal(&mut self) {
        if self.removing.as_ref().is_some_and(|(_, thread)| thread.is_finished()) {
            self.finish_removing();
        }
        if self.removing.is_some() {
            return;
        }
        if let Some((day, now)) = self.retention.next_expired(&*self.clock, &self.folder, &self.lengths) {
            self.open.retain(|(open, _)| *open != day);
            let folder = self.folder.clone();
            let thread = thread::Builder::new().name("log-remove".to_owned());
            let thread = thread.spawn(move || retention::remove(&folder, day, now));
            self.removing = thread.ok().map(|thread| (day, thread));
        }
    }

    fn finish_removing(&mut self) {
        let Some((day, thread)) = self.removing.take() else { return };
        match thread.join() {
            Ok(Ok(())) => {
                self.lengths.remove(&day);
                self.syncer.forget(day);
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot remove an expired file of the execution log");
                self.queue.errors.count(StorageOperation::Remove);
            }
            // The panic has already been reported.
            Err(_panic) => {}
        }
    }
}

/// Runs the writer thread: writes records that no caller writes itself, retries after failures, and removes expired
/// files. Records are taken by the holder of the writer lock, so they keep their order.
pub(crate) fn run(writer: &Mutex<LogWriter>, queue: &RecordQueue) {
    let lock = || writer.lock();
    let mut pause = Duration::ZERO;
    while queue.sleep(pause).is_some() {
        let mut writer = lock();
        writer.drain_queue();
        pause = writer.pause();
    }
    lock().finish();
}

/// Returns the length of the prefix that consists of valid lines in sequence.
fn valid_prefix(lines: &[u8]) -> usize {
    let (mut valid_prefix, mut before) = (0, None);
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let Some(looked) = line.strip_suffix(b"\n").and_then(RecordLine::parse) else { break };
        if before.is_some_and(|(seq, hash)| looked.seq == seq + 1 && !looked.follows(hash)) {
            break;
        }
        before = Some((looked.seq, looked.hash));
        valid_prefix += line.len();
    }
    valid_prefix
}

/// Maximum number of parts in one system call.
const MAX_PARTS: usize = 1024;

/// Writes all parts, one after the other.
fn write_at(file: &File, mut parts: &mut [io::IoSlice<'_>], mut at: u64) -> io::Result<()> {
    while let [first, more @ ..] = &*parts {
        let written = match more {
            [] => rustix::io::pwrite(file, first, at),
            _ => rustix::io::pwritev(file, &parts[..parts.len().min(MAX_PARTS)], at),
        };
        match written {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                io::IoSlice::advance_slices(&mut parts, written);
                at += written as u64;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn excerpt(record: &PartBuffer) -> String {
    let start: Vec<u8> = record.parts().flatten().copied().take(200).collect();
    String::from_utf8_lossy(&start).into_owned()
}
