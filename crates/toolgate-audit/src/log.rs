//! The execution log as the pipeline uses it: a call begins, and ends.
//!
//! [`ExecutionLog::begin`] and [`OpenCall::end`] render and redact on the calling task, so that many calls do it in
//! parallel, then enqueue the record and return once it is as durable as requested. The caller flushes the queue
//! itself when the writer is idle and at most 32 KiB wait; otherwise the writer thread does. Invariant: every
//! acknowledged begin gets an end, whatever happens to the caller; memory is bounded, and callers wait when it is
//! used up.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::{Semaphore, oneshot};
use toolgate_types::SecretPattern;
use toolgate_types::call::Stage;
use toolgate_types::{CallError, ErrorCode, ExecutionState, OnFull, Secret};

use crate::chain;
use crate::clock::{Clock, SystemClock};
use crate::folder::{self, FolderLock, TornTail};
use crate::record::{CallBegin, CallEnd, CallFailure, CallPrefix, CallStatus, LogEvent, RecordRenderer};
use crate::redact::Redactor;
use crate::reserve::{self, DiskReserve};
use crate::sync::{Syncer, Waiter};
use crate::writer::{self, LogWriter, WriterSetup};

/// Capacity of the queue in units of [`UNIT`] bytes: 64 MiB.
const QUEUE_UNITS: u32 = 64 << 10;
const UNIT: usize = 1024;
/// Largest backlog that the caller writes itself: this much is in the kernel sooner than a thread can be woken.
const MAX_INLINE_BYTES: usize = 32 << 10;
/// Number of times the caller flushes newly queued records before it leaves them to the writer thread.
const MAX_FLUSH_ROUNDS: usize = 4;

/// Settings of a log.
pub struct LogOptions {
    /// Bytes of arguments, and of output, kept per call; longer bodies are truncated.
    pub max_body: usize,
    /// Age of a file's last record at which the file is removed.
    pub keep: Duration,
    /// Secrets to mask.
    pub secrets: Vec<Secret>,
    /// Shapes of secrets to mask, in addition to the well-known ones.
    pub patterns: Vec<SecretPattern>,
    /// Bytes of disk space reserved for the ends of calls; 0 reserves none.
    pub reserve: u64,
    /// Handling of calls that may be repeated when the disk is full.
    pub on_full: OnFull,
    pub clock: Arc<dyn Clock>,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            max_body: 1 << 20,
            keep: Duration::from_secs(30 * 24 * 60 * 60),
            secrets: Vec::new(),
            patterns: Vec::new(),
            reserve: 64 << 20,
            on_full: OnFull::Deny,
            clock: Arc::new(SystemClock::new()),
        }
    }
}

/// The log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open for writing.
    #[error("the execution log in `{}` is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The file system returned an error.
    #[error("the execution log cannot be opened")]
    Io(#[from] io::Error),
}

/// A record could not be made as durable as requested. The operation that depends on it must not go on.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the execution log cannot be written")]
pub struct LogUnavailable {
    /// True if the record may have been written all the same.
    written: bool,
    #[source]
    cause: Option<Arc<io::Error>>,
}

impl LogUnavailable {
    pub(crate) fn new(written: bool, cause: Arc<io::Error>) -> Self {
        Self { written, cause: Some(cause) }
    }

    /// Returns true if the disk is full.
    pub fn is_full(&self) -> bool {
        self.cause.as_ref().is_some_and(|cause| reserve::is_full(cause))
    }

    /// The writer thread is gone.
    const STOPPED: Self = Self { written: true, cause: None };
}

/// Condition for acknowledging a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The kernel has the record: it survives a crash of this process. It is synced to disk within 10 ms.
    Written,
    /// The disk has the record: it survives a power failure.
    Synced,
}

/// The execution log. Clones share one log, which is flushed and closed when the last clone and the last open call
/// are dropped.
#[derive(Clone)]
pub struct ExecutionLog(Arc<LogInner>);

struct LogInner {
    renderer: RecordRenderer,
    queue: Arc<RecordQueue>,
    writer: Arc<Mutex<LogWriter>>,
    syncer: Arc<Syncer>,
    torn: Vec<TornTail>,
    on_full: OnFull,
    threads: Option<(JoinHandle<()>, JoinHandle<()>)>,
    _lock: FolderLock,
}

impl ExecutionLog {
    /// Opens a log, or creates one. Truncates lines torn by a crash, see [`Self::torn_tails`].
    pub fn open(folder: impl Into<PathBuf>, options: LogOptions) -> Result<Self, OpenError> {
        let folder = folder.into();
        fs_err::create_dir_all(&folder)?;
        let lock = FolderLock::take(&folder)?.ok_or_else(|| OpenError::InUse(folder.clone()))?;
        let recovered = folder::recover(&folder)?;
        for torn in &recovered.torn {
            tracing::warn!(file = %torn.file.display(), bytes = torn.bytes, "truncated a torn line of the execution log");
        }
        let torn = recovered.torn.clone();
        let queue = Arc::new(RecordQueue::new(Arc::clone(&options.clock)));
        let syncer = Arc::new(Syncer::new(folder.clone(), recovered.lengths.clone()));
        let setup = WriterSetup {
            reserve: DiskReserve::new(&folder, options.reserve),
            folder,
            recovered,
            keep: options.keep,
            clock: options.clock,
            queue: Arc::clone(&queue),
            syncer: Arc::clone(&syncer),
        };
        let writer = Arc::new(Mutex::new(LogWriter::new(setup)));
        let redactor = Redactor::new(options.secrets, options.patterns);
        let renderer = RecordRenderer::new(redactor, options.max_body);
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let sync_thread = {
            let (syncer, queue) = (Arc::clone(&syncer), Arc::clone(&queue));
            named("log-sync").spawn(move || syncer.run(|| queue.wake_writer()))?
        };
        let closing = QueueCloser(Arc::clone(&queue));
        let writer_thread = {
            let (writer, queue) = (Arc::clone(&writer), Arc::clone(&queue));
            named("log-write").spawn(move || {
                let _closing = closing;
                writer::run(&writer, &queue);
            })?
        };
        let threads = Some((writer_thread, sync_thread));
        let on_full = options.on_full;
        Ok(Self(Arc::new(LogInner { renderer, queue, writer, syncer, torn, on_full, threads, _lock: lock })))
    }

    /// Returns the torn lines that were truncated when the log was opened.
    pub fn torn_tails(&self) -> &[TornTail] {
        &self.0.torn
    }

    /// Returns true if the last record could be written. A hint only: the next record may still fail.
    pub fn is_available(&self) -> bool {
        let state = self.0.queue.lock();
        !state.down && !state.closed
    }

    /// Masks these secrets too from now on.
    pub fn add_secrets(&self, secrets: &[Secret]) {
        self.0.renderer.add_secrets(secrets);
    }

    /// Masks all secrets in a string, as in a record.
    pub fn mask(&self, text: &str) -> String {
        self.0.renderer.mask(text)
    }

    /// Returns true if a repeatable call may run although its begin record could not be written.
    pub fn allows_unrecorded(&self, error: &LogUnavailable) -> bool {
        self.0.on_full == OnFull::Allow && error.is_full()
    }

    /// Generates a unique call id; ids sort by time.
    pub fn new_call_id(&self) -> String {
        let millis = self.0.queue.clock.now().as_millisecond();
        let bytes = (u128::from(millis.cast_unsigned()) << 64 | u128::from(fastrand::u64(..))).to_be_bytes();
        // 48 bits are enough for the time.
        let digits = chain::hex(&bytes[2..]);
        std::str::from_utf8(&digits[..28]).unwrap_or_default().to_owned()
    }

    /// Writes the begin record of a call. Do not send the call before this returns, or it may go unrecorded; do not
    /// send it at all after an error.
    pub async fn begin(
        &self,
        begin: &CallBegin<'_>,
        durability: Durability,
    ) -> Result<OpenCall, LogUnavailable> {
        let prefix = self.0.renderer.prefix(begin);
        let body = self.0.renderer.begin(&prefix, begin);
        let units = units(&body);
        let capacity =
            self.0.queue.capacity.acquire_many(units).await.map_err(|_closed| LogUnavailable::STOPPED)?;
        capacity.forget();
        let since = self.0.queue.clock.elapsed();
        let mut open = OpenCall { log: self.clone(), prefix, since, state: OpenCallState::Begun };
        let receiver = self.0.submit([NewRecord { body, units, durability, kind: RecordKind::Begin }]);
        open.state = OpenCallState::Beginning(receiver);
        let OpenCallState::Beginning(receiver) = &mut open.state else { unreachable!("it was just set") };
        match receiver.await.unwrap_or(Err(LogUnavailable::STOPPED)) {
            Ok(()) => {
                open.state = OpenCallState::Begun;
                Ok(open)
            }
            Err(unavailable) => {
                open.handle_rejected_begin(&unavailable);
                Err(unavailable)
            }
        }
    }

    /// Writes both records of a call that ends as it begins, because it was rejected or served from the cache.
    pub async fn record(
        &self,
        begin: &CallBegin<'_>,
        end: &CallEnd<'_>,
        durability: Durability,
    ) -> Result<(), LogUnavailable> {
        let prefix = self.0.renderer.prefix(begin);
        let bodies = [self.0.renderer.begin(&prefix, begin), self.0.renderer.end(&prefix, end)];
        let all = bodies.iter().map(|body| units(body)).sum::<u32>().min(QUEUE_UNITS);
        let capacity =
            self.0.queue.capacity.acquire_many(all).await.map_err(|_closed| LogUnavailable::STOPPED)?;
        capacity.forget();
        let records = bodies.map(|body| NewRecord { body, units: 0, durability, kind: RecordKind::Note });
        let [begin, end] = records;
        let receiver = self.0.submit([begin, NewRecord { units: all, ..end }]);
        receiver.await.unwrap_or(Err(LogUnavailable::STOPPED))
    }

    /// Writes both records of a call whose caller disconnected before the call was sent. Does not wait, not even
    /// for queue capacity: the caller is gone, and the number of such calls is bounded by the admission limits.
    pub fn record_abandoned(&self, begin: &CallBegin<'_>, error: &CallError, took: Duration) {
        let end = CallEnd::abandoned(error, took);
        let prefix = self.0.renderer.prefix(begin);
        let durability = Durability::Written;
        let bodies = [self.0.renderer.begin(&prefix, begin), self.0.renderer.end(&prefix, &end)];
        drop(self.0.submit(bodies.map(|body| NewRecord {
            body,
            units: 0,
            durability,
            kind: RecordKind::Note,
        })));
    }

    /// Writes an event. The record is enqueued at once, even if the future is never awaited.
    pub fn record_event(
        &self,
        event: &LogEvent<'_>,
    ) -> impl Future<Output = Result<(), LogUnavailable>> + Send + use<> {
        let body = self.0.renderer.event(event);
        let record = NewRecord { body, units: 0, durability: Durability::Written, kind: RecordKind::Note };
        let receiver = self.0.submit([record]);
        async move { receiver.await.unwrap_or(Err(LogUnavailable::STOPPED)) }
    }
}

fn units(body: &str) -> u32 {
    u32::try_from(body.len() / UNIT + 1).unwrap_or(QUEUE_UNITS).min(QUEUE_UNITS)
}

impl LogInner {
    /// Enqueues records, and writes them at once if that is quick. The receiver reports the last of them.
    fn submit<const N: usize>(
        &self,
        records: [NewRecord; N],
    ) -> oneshot::Receiver<Result<(), LogUnavailable>> {
        let (receiver, waiting) = self.queue.push(records);
        let mut short = waiting <= MAX_INLINE_BYTES;
        // The holder of the writer checks the queue again after releasing it, so no record is left behind.
        for _ in 0..MAX_FLUSH_ROUNDS {
            if !short {
                break;
            }
            let Some(mut writer) = self.writer.try_lock() else { return receiver };
            writer.drain_queue();
            let is_up = writer.is_up();
            drop(writer);
            if !is_up {
                // From now on the writer thread retries.
                self.queue.wake_writer();
            }
            match self.queue.waiting() {
                0 => return receiver,
                waiting => short = waiting <= MAX_INLINE_BYTES,
            }
        }
        self.queue.wake();
        receiver
    }
}

impl Drop for LogInner {
    fn drop(&mut self) {
        self.queue.close();
        let Some((writer, syncer)) = self.threads.take() else { return };
        // A thread that panicked has already reported it.
        let _ = writer.join();
        self.syncer.close();
        let _ = syncer.join();
    }
}

/// A call that has begun. Dropping it without [`Self::end`] records it as abandoned: its caller disconnected.
#[must_use = "dropping it records the call as abandoned"]
pub struct OpenCall {
    log: ExecutionLog,
    prefix: CallPrefix,
    since: Duration,
    state: OpenCallState,
}

enum OpenCallState {
    /// The begin record was enqueued and is not acknowledged yet.
    Beginning(oneshot::Receiver<Result<(), LogUnavailable>>),
    Begun,
    Ended,
}

impl OpenCall {
    /// Writes the end record. It is enqueued at once, even if the future is never awaited. If it cannot be written
    /// now, it is kept in memory and written later.
    pub fn end(
        mut self,
        end: &CallEnd<'_>,
        durability: Durability,
    ) -> impl Future<Output = Result<(), LogUnavailable>> + Send + use<> {
        let receiver = self.submit(end, durability);
        async move { receiver.await.unwrap_or(Err(LogUnavailable::STOPPED)) }
    }

    fn submit(
        &mut self,
        end: &CallEnd<'_>,
        durability: Durability,
    ) -> oneshot::Receiver<Result<(), LogUnavailable>> {
        self.state = OpenCallState::Ended;
        let body = self.log.0.renderer.end(&self.prefix, end);
        // Does not wait for capacity: there is one end per begin, and the begin did wait.
        self.log.0.submit([NewRecord { body, units: 0, durability, kind: RecordKind::End }])
    }

    /// Handles a begin record that could not be made durable. If it was written all the same, it gets an end.
    fn handle_rejected_begin(&mut self, unavailable: &LogUnavailable) {
        if unavailable.written {
            let error = CallFailure {
                code: ErrorCode::StorageUnavailable,
                stage: Stage::Record,
                outcome: ExecutionState::NotStarted,
                message: "the execution log cannot be written",
                cause: unavailable.cause.as_ref().map(ToString::to_string),
            };
            let end = self.minimal_end(CallStatus::Error, Some(error));
            self.submit(&end, Durability::Written);
        } else {
            self.state = OpenCallState::Ended;
        }
    }

    fn minimal_end<'a>(&self, status: CallStatus, error: Option<CallFailure<'a>>) -> CallEnd<'a> {
        let took = self.log.0.queue.clock.elapsed().saturating_sub(self.since);
        CallEnd { status, error, attempts: 0, cached: false, took, stages: &[], output: None, secret: None }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        match &mut self.state {
            OpenCallState::Ended => return,
            OpenCallState::Begun => {}
            OpenCallState::Beginning(receiver) => {
                // From here on the writer keeps a begin that fails, because this end follows it.
                receiver.close();
                if let Ok(Err(unavailable)) = receiver.try_recv()
                    && !unavailable.written
                {
                    return;
                }
            }
        }
        let error = CallFailure {
            code: ErrorCode::Cancelled,
            stage: Stage::Invoke,
            outcome: ExecutionState::Unknown,
            message: "the caller disconnected before the call finished",
            cause: None,
        };
        let end = self.minimal_end(CallStatus::Abandoned, Some(error));
        self.submit(&end, Durability::Written);
    }
}

/// A rendered record that is not in the queue yet.
struct NewRecord {
    body: String,
    units: u32,
    durability: Durability,
    kind: RecordKind,
}

/// Decides what happens to a record that cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// Permits a call to be sent: rejected if it cannot be written now.
    Begin,
    /// Reports the result of a call that was sent: kept and written later if it cannot be written now, and may use
    /// the reserved disk space.
    End,
    /// Reports something that nothing depends on: kept and written later, too.
    Note,
}

/// A record waiting to be written.
pub(crate) struct QueuedRecord {
    pub(crate) at: Timestamp,
    pub(crate) body: String,
    /// Queue capacity it occupies.
    pub(crate) units: u32,
    pub(crate) durability: Durability,
    pub(crate) kind: RecordKind,
    pub(crate) waiter: Option<Waiter>,
}

/// The queue of records on the way to the writer.
pub(crate) struct RecordQueue {
    pub(crate) clock: Arc<dyn Clock>,
    /// Free capacity, in units.
    pub(crate) capacity: Semaphore,
    state: Mutex<QueueState>,
    wake: Condvar,
}

#[derive(Default)]
pub(crate) struct QueueState {
    records: Vec<QueuedRecord>,
    /// Total length of the queued records.
    bytes: usize,
    /// True while the writer thread sleeps.
    sleeping: bool,
    /// The writer thread has something to do besides writing records.
    wake_requested: bool,
    closed: bool,
    /// The last record could not be written.
    pub(crate) down: bool,
}

impl QueueState {
    fn is_idle(&self) -> bool {
        self.records.is_empty() && !self.wake_requested && !self.closed
    }
}

impl RecordQueue {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let capacity = Semaphore::new(QUEUE_UNITS as usize);
        Self { clock, capacity, state: Mutex::default(), wake: Condvar::new() }
    }

    /// Stamps records with the current time and enqueues them together. Stamping under the lock keeps records in the
    /// order of their timestamps, as long as the clock goes forward. Also returns the number of bytes queued.
    fn push<const N: usize>(
        &self,
        records: [NewRecord; N],
    ) -> (oneshot::Receiver<Result<(), LogUnavailable>>, usize) {
        let (sender, receiver) = oneshot::channel();
        let mut sender = Some(sender);
        let mut state = self.lock();
        if state.closed {
            return (receiver, usize::MAX);
        }
        let at = self.clock.now();
        for (index, NewRecord { body, units, durability, kind }) in records.into_iter().enumerate() {
            let waiter = sender.take_if(|_| index + 1 == N);
            state.bytes += body.len();
            state.records.push(QueuedRecord { at, body, units, durability, kind, waiter });
        }
        (receiver, state.bytes)
    }

    /// Returns the number of bytes queued.
    fn waiting(&self) -> usize {
        self.lock().bytes
    }

    /// Wakes the writer thread to write the queued records.
    fn wake(&self) {
        // The thread resets `sleeping` itself once awake: another writer may take the records first, and it sleeps on.
        if self.lock().sleeping {
            self.wake.notify_one();
        }
    }

    /// Sleeps until there is something to do or the time is up. Returns `None` when the queue is closed and empty.
    pub(crate) fn sleep(&self, at_most: Duration) -> Option<()> {
        let mut state = self.lock();
        state.sleeping = state.is_idle();
        if state.sleeping {
            self.wake.wait_while_for(&mut state, |state| state.is_idle(), at_most);
            state.sleeping = false;
        }
        state.wake_requested = false;
        if state.records.is_empty() && state.closed { None } else { Some(()) }
    }

    /// Takes all queued records.
    pub(crate) fn take(&self) -> Vec<QueuedRecord> {
        let mut state = self.lock();
        state.bytes = 0;
        std::mem::take(&mut state.records)
    }

    /// Wakes the writer thread even if no record is queued.
    pub(crate) fn wake_writer(&self) {
        self.lock().wake_requested = true;
        self.wake.notify_one();
    }

    pub(crate) fn set_down(&self, down: bool) {
        self.lock().down = down;
    }

    fn close(&self) {
        self.lock().closed = true;
        self.capacity.close();
        self.wake.notify_one();
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }
}

/// Closes the queue when the writer thread ends for any reason, so that no caller waits for it forever.
struct QueueCloser(Arc<RecordQueue>);

impl Drop for QueueCloser {
    fn drop(&mut self) {
        self.0.close();
        // Dropping the senders notifies the waiting callers.
        self.0.lock().records.clear();
    }
}
