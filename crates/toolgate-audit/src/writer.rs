//! What writes: it numbers the lines, chains them and appends them to the file of their day.
//!
//! What waits is written at once, so a busy log makes few and large writes. Invariant: whole lines or none.
//! Where a write fails the file is cut back, and number and chain stand where they stood before.
//!
//! Not through a mapping, though a line would cost no system call then: a file that somebody cuts, or a disk without
//! room, would end the process with a signal instead of an error, and a file made longer than its lines would show
//! zeros to its readers.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fs_err::File;
use fs_err::os::unix::fs::FileExt;
use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};

use crate::chain::{Head, Line, day};
use crate::clock::Clock;
use crate::folder::{self, Found};
use crate::log::{Durability, Job, JobKind, Queue, Unavailable};
use crate::reserve::{self, Reserve};
use crate::retention::{self, Retention};
use crate::sync::{Syncer, Wrote};

/// How often a log that cannot be written is tried again.
const PROBE: Duration = Duration::from_secs(1);
/// How long the writer sleeps when nothing happens; then it looks for files that are too old.
const IDLE: Duration = Duration::from_secs(10 * 60);
/// What is written at once, not counting its last line.
const LARGEST_WRITE: usize = 4 << 20;
/// How many files are open: that of today, and one for lines of another day.
const MOST_FILES: usize = 2;
/// What is kept for later when nothing can be written.
const LARGEST_BACKLOG: usize = 16 << 20;
/// A clock that goes back by less is not worth a word.
const JUMP: SignedDuration = SignedDuration::from_secs(1);

pub(crate) struct Writer {
    folder: PathBuf,
    clock: Arc<dyn Clock>,
    queue: Arc<Queue>,
    syncer: Arc<Syncer>,
    head: Head,
    last_time: Option<Timestamp>,
    /// How long the files are, of all that was written whole.
    lengths: BTreeMap<Date, u64>,
    open: VecDeque<(Date, Arc<File>)>,
    buffer: Vec<u8>,
    down: Option<Down>,
    /// What is written first when it can be.
    backlog: VecDeque<Job>,
    backlog_bytes: usize,
    retention: Retention,
    /// A file that is being removed, by a thread of its own: a large one takes its time.
    removing: Option<(Date, JoinHandle<io::Result<()>>)>,
    reserve: Reserve,
    /// The reserve was given away: only ends are written until it has its room again.
    low: Option<Down>,
    /// The day of the last line.
    last_day: Option<Date>,
}

/// What a writer is made of.
pub(crate) struct WriterSetup {
    pub(crate) folder: PathBuf,
    pub(crate) found: Found,
    pub(crate) keep: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) syncer: Arc<Syncer>,
    pub(crate) reserve: Reserve,
}

/// Nothing can be written.
struct Down {
    cause: Arc<io::Error>,
    tried: Duration,
}

impl Writer {
    pub(crate) fn new(setup: WriterSetup) -> Self {
        let WriterSetup { folder, found, keep, clock, queue, syncer, reserve } = setup;
        let retention = Retention::new(keep, &*clock, found.last_time);
        let mut writer = Self {
            folder,
            clock,
            queue,
            syncer,
            head: found.head,
            last_time: found.last_time,
            lengths: found.lengths,
            open: VecDeque::new(),
            buffer: Vec::new(),
            down: None,
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            retention,
            removing: None,
            reserve,
            low: None,
            last_day: None,
        };
        writer.refill();
        writer
    }

    /// Writes all that waits.
    pub(crate) fn turn(&mut self) {
        let jobs = self.queue.take();
        let units: usize = jobs.iter().map(|job| job.units as usize).sum();
        self.handle(jobs.into());
        self.queue.room.add_permits(units);
        self.retain();
    }

    /// Nothing will follow.
    fn finish(&mut self) {
        self.finish_removing();
        if !self.backlog.is_empty() {
            self.write(VecDeque::new());
            if !self.backlog.is_empty() {
                tracing::error!(records = self.backlog.len(), "the execution log lost records at its end");
            }
        }
    }

    pub(crate) fn handle(&mut self, jobs: VecDeque<Job>) {
        if self.down.is_none()
            && let Some(cause) = self.syncer.failure()
        {
            self.fail(cause);
        }
        let now = self.clock.running();
        if let Some(down) = &mut self.down {
            if now.saturating_sub(down.tried) < PROBE {
                let cause = Arc::clone(&down.cause);
                self.refuse(jobs, &cause);
                return;
            }
            down.tried = now;
        }
        if self.low.as_ref().is_some_and(|low| now.saturating_sub(low.tried) >= PROBE) {
            self.refill();
        }
        match &self.low {
            None => self.write(jobs),
            Some(low) => {
                let cause = Arc::clone(&low.cause);
                self.write_ends(jobs, &cause);
            }
        }
    }

    /// Whether all that comes is written.
    pub(crate) fn is_up(&self) -> bool {
        self.down.is_none() && self.low.is_none()
    }

    /// How long the thread may sleep.
    fn pause(&self) -> Duration {
        if self.is_up() { IDLE } else { PROBE }
    }

    /// Takes the room of the reserve again; when there is none, nothing new is begun.
    fn refill(&mut self) {
        match self.reserve.take() {
            Ok(()) => {
                if self.low.take().is_some() && self.down.is_none() {
                    tracing::info!("there is room for the execution log again");
                    self.queue.set_down(false);
                }
            }
            Err(error) => self.run_low(Arc::new(error)),
        }
    }

    fn run_low(&mut self, cause: Arc<io::Error>) {
        if self.low.is_none() {
            tracing::error!(error = %cause, "there is no room left for the execution log; calls are refused");
        }
        self.low = Some(Down { cause, tried: self.clock.running() });
        self.queue.set_down(true);
    }

    /// Writes what became of calls that were sent, those that wait included, and nothing else.
    fn write_ends(&mut self, jobs: VecDeque<Job>, cause: &Arc<io::Error>) {
        let (ends, others) = jobs.into_iter().partition::<VecDeque<_>, _>(|job| job.kind == JobKind::End);
        self.refuse(others, cause);
        // A begin that was kept is one that nobody heard of: its end follows, and needs it.
        let belongs = |job: &Job| job.kind != JobKind::Note;
        let (waiting, kept) = self.backlog.drain(..).partition::<VecDeque<_>, _>(belongs);
        self.backlog_bytes = kept.iter().map(|job| job.body.len()).sum();
        self.backlog = kept;
        if let Err((ends, error)) = self.write_all(waiting.into_iter().chain(ends).collect()) {
            self.give_up(ends, error);
        }
    }

    /// Something was written.
    fn up(&mut self) {
        if self.down.take().is_some() {
            tracing::info!("the execution log can be written again");
            self.queue.set_down(self.low.is_some());
        }
    }

    /// Nothing is written for a while, and not to the files that are open: what the system knows about those
    /// cannot be trusted.
    fn fail(&mut self, cause: Arc<io::Error>) {
        if self.down.is_none() {
            tracing::error!(error = %cause, "the execution log cannot be written");
        }
        self.open.clear();
        self.down = Some(Down { cause, tried: self.clock.running() });
        self.queue.set_down(true);
    }

    /// Tells who waits, and keeps for later what tells of the past.
    fn refuse(&mut self, jobs: impl IntoIterator<Item = Job>, cause: &Arc<io::Error>) {
        for mut job in jobs {
            let unheard = match job.waiter.take() {
                Some(waiter) => waiter.send(Err(Unavailable::new(false, Arc::clone(cause)))).is_err(),
                None => true,
            };
            // Of a begin that nobody waits for any more, the end will follow.
            if job.kind == JobKind::Begin && !unheard {
                continue;
            }
            if self.backlog_bytes + job.body.len() > LARGEST_BACKLOG {
                tracing::error!("the execution log lost a record: {}", excerpt(&job.body));
                continue;
            }
            self.backlog_bytes += job.body.len();
            self.backlog.push_back(Job { units: 0, durability: Durability::Written, ..job });
        }
    }

    /// Writes the backlog and the jobs. On an error, what was not written is refused; where the disk is full, the
    /// room that was reserved is used for what became of calls.
    fn write(&mut self, jobs: VecDeque<Job>) {
        let jobs = if self.backlog.is_empty() {
            jobs
        } else {
            self.backlog_bytes = 0;
            self.backlog.drain(..).chain(jobs).collect()
        };
        let Err((jobs, error)) = self.write_all(jobs) else { return };
        if !(reserve::is_full(&error) && self.reserve.is_held()) {
            return self.give_up(jobs, error);
        }
        let cause = Arc::new(error);
        if let Err(error) = self.reserve.release() {
            tracing::error!(%error, "the room that was reserved cannot be used");
        }
        self.run_low(Arc::clone(&cause));
        self.write_ends(jobs, &cause);
    }

    /// Writes jobs, as many at once as belong to one day. On an error, gives back what was not written.
    fn write_all(&mut self, mut jobs: VecDeque<Job>) -> Result<(), (VecDeque<Job>, io::Error)> {
        if self.syncer.failure().is_some()
            && let Err(error) = self.restore()
        {
            return Err((jobs, error));
        }
        while let Some(first) = jobs.front() {
            let day = day(first.at);
            let mut head = self.head;
            let mut count = 0;
            self.buffer.clear();
            for job in jobs.iter().take_while(|job| crate::chain::day(job.at) == day) {
                if self.buffer.len() >= LARGEST_WRITE {
                    break;
                }
                head.append(job.at, &job.body, &mut self.buffer);
                count += 1;
            }
            let last_time = jobs[count - 1].at;
            let (file, created) = match self.turn_to(day).and_then(|()| self.append(day)) {
                Ok(done) => done,
                Err(error) => return Err((jobs, error)),
            };
            self.head = head;
            self.note_time(last_time);
            // Before anyone is told.
            self.up();
            let mut waiters = Vec::new();
            for job in jobs.drain(..count) {
                match (job.durability, job.waiter) {
                    (Durability::Synced, Some(waiter)) => waiters.push(waiter),
                    // Who left does not want to know.
                    (_, waiter) => drop(waiter.map(|waiter| waiter.send(Ok(())))),
                }
            }
            let length = self.lengths[&day];
            self.syncer.wrote(Wrote { day, file, length, created, waiters });
        }
        // One large record should not hold its memory for ever.
        self.buffer.shrink_to(LARGEST_WRITE);
        Ok(())
    }

    /// Makes durable what was written to another day before the first line of this one: what a machine that
    /// loses its power loses is then the end of the log, and not something in its middle.
    fn turn_to(&mut self, day: Date) -> io::Result<()> {
        if let Some(last) = self.last_day.filter(|last| *last != day)
            && self.syncer.synced().get(&last).copied().unwrap_or(0) < self.lengths[&last]
        {
            let file = self.file(last)?;
            if let Err(error) = folder::sync_file(&file).and_then(|()| folder::sync(&self.folder)) {
                let cause = Arc::new(error);
                self.syncer.fail(&cause);
                return Err(io::Error::new(cause.kind(), cause));
            }
        }
        self.last_day = Some(day);
        Ok(())
    }

    fn give_up(&mut self, jobs: VecDeque<Job>, error: io::Error) {
        let cause = Arc::new(error);
        // Before anyone is told.
        self.fail(Arc::clone(&cause));
        self.refuse(jobs, &cause);
    }

    fn note_time(&mut self, time: Timestamp) {
        if let Some(last) = self.last_time
            && last.duration_since(time) >= JUMP
        {
            tracing::warn!(%last, now = %time, "the clock went back; records are ordered by their number");
        }
        self.last_time = Some(time);
    }

    /// Appends the buffer to the file of a day: all of it, or nothing. Says whether the file is new.
    fn append(&mut self, day: Date) -> io::Result<(Arc<File>, bool)> {
        let file = self.file(day)?;
        let length = self.lengths[&day];
        if let Err(error) = write_at(&file, &self.buffer, length) {
            // Where this fails too, it is done when the file is opened again.
            if let Err(error) = file.set_len(length) {
                tracing::error!(%error, "a torn line could not be cut off yet");
            }
            return Err(error);
        }
        self.lengths.insert(day, length + self.buffer.len() as u64);
        // The name of an empty file may not be durable.
        Ok((file, length == 0))
    }

    /// The file of a day.
    fn file(&mut self, day: Date) -> io::Result<Arc<File>> {
        if self.removing.as_ref().is_some_and(|(removing, _)| *removing == day) {
            self.finish_removing();
        }
        if let Some((_, file)) = self.open.iter().find(|(open, _)| *open == day) {
            return Ok(Arc::clone(file));
        }
        let path = folder::path(&self.folder, day);
        let file = Arc::new(folder::open(&path)?);
        let expected = *self.lengths.entry(day).or_default();
        let found = file.metadata()?.len();
        if found > expected {
            // What is left of a write that failed.
            folder::cut(&file, &path, expected)?;
        } else if found < expected {
            tracing::error!(file = %path.display(), expected, found, "the execution log has become shorter");
            let end = folder::end(&file)?;
            folder::cut(&file, &path, end.length)?;
            self.lengths.insert(day, end.length);
        }
        if self.open.len() == MOST_FILES {
            self.open.pop_front();
        }
        self.open.push_back((day, Arc::clone(&file)));
        Ok(file)
    }

    /// After a sync failed: what is not known to be durable is read through a new descriptor, checked, and
    /// written again, so that the next sync has it to do.
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
            let good = good(&lines);
            if good < lines.len() {
                tracing::error!(
                    lost = lines.len() - good,
                    "the disk lost what was written to the execution log"
                );
                folder::cut(&file, &folder::path(&self.folder, day), from + good as u64)?;
                self.lengths.insert(day, from + good as u64);
            }
            write_at(&file, &lines[..good], from)?;
            restored.push((day, file));
        }
        self.syncer.renew();
        self.up();
        for (day, file) in restored {
            let length = self.lengths[&day];
            // Its name may not be durable either.
            self.syncer.wrote(Wrote { day, file, length, created: true, waiters: Vec::new() });
        }
        Ok(())
    }

    /// Removes a file that is too old, when there is one.
    fn retain(&mut self) {
        if self.removing.as_ref().is_some_and(|(_, thread)| thread.is_finished()) {
            self.finish_removing();
        }
        if self.removing.is_some() {
            return;
        }
        if let Some((day, now)) = self.retention.due(&*self.clock, &self.folder, &self.lengths) {
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
                tracing::warn!(%error, "an old file of the execution log could not be removed");
            }
            // It has said so.
            Err(_panic) => {}
        }
    }
}

/// The thread: it writes what nobody else does, tries again where nothing could be written, and removes what is old.
/// Lines are taken by whoever has the writer, so they keep their order.
pub(crate) fn run(writer: &Mutex<Writer>, queue: &Queue) {
    let lock = || writer.lock().unwrap_or_else(PoisonError::into_inner);
    let mut pause = Duration::ZERO;
    while queue.sleep(pause).is_some() {
        let mut writer = lock();
        writer.turn();
        pause = writer.pause();
    }
    lock().finish();
}

/// How much of the text is lines that follow each other.
fn good(lines: &[u8]) -> usize {
    let (mut good, mut before) = (0, None);
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let Some(looked) = line.strip_suffix(b"\n").and_then(Line::look) else { break };
        if before.is_some_and(|(seq, hash)| looked.seq == seq + 1 && !looked.follows(hash)) {
            break;
        }
        before = Some((looked.seq, looked.hash));
        good += line.len();
    }
    good
}

fn write_at(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                at += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn excerpt(body: &str) -> &str {
    &body[..body.floor_char_boundary(200)]
}
