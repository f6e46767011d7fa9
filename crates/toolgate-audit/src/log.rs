//! The execution log as the pipeline uses it: a call begins, and ends.
//!
//! [`ExecutionLog::begin`] and [`OpenCall::end`] render and redact on the calling task, so that many calls do it in
//! parallel, then enqueue the record and return once it is as durable as requested. With several calls in progress, a
//! caller first lets the other ready tasks of its thread run, so that one write takes the records of all of them. The
//! first of them flushes the queue itself when the writer is idle and at most 128 KiB wait; otherwise the writer thread
//! does. Invariant: every acknowledged begin gets an end, whatever happens to the caller; memory is bounded, and callers
//! wait when it is used up.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::{Semaphore, oneshot};
use toolgate_redact::KnownSecrets;
use toolgate_state::StateDir;
use toolgate_types::SecretPattern;
use toolgate_types::call::Stage;
use toolgate_types::{ErrorCode, ExecutionState, OnFull, Secret};

use crate::chain;
use crate::clock::{Clock, SystemClock};
use crate::folder::{self, FolderLock, TornTail};
use crate::part_buffer::PartBuffer;
use crate::record::{CallBegin, CallEnd, CallFailure, CallPrefix, CallStatus, LogEvent, RecordRenderer};
use crate::redact::Redactor;
use crate::reserve::{self, DiskReserve};
use crate::storage_errors::StorageErrors;
use crate::sync::{Syncer, Waiter};
use crate::writer::{self, LogWriter, WriterSetup};

/// Capacity of the queue in units of [`UNIT`] bytes: 64 MiB.
const QUEUE_UNITS: u32 = 64 << 10;
const UNIT: usize = 1024;
/// Largest backlog that the caller writes itself: this much is in the kernel about as soon as a thread can be woken.
const MAX_INLINE_BYTES: usize = 128 << 10;
/// Number of times the caller flushes newly queued records before it leaves them to the writer thread.
const MAX_FLUSH_ROUNDS: usize = 4;

/// With at least this many calls in progress, callers collect their records. With fewer, the wait costs more than a write.
const MIN_CALLS_TO_COLLECT: usize = 4;

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
    /// Number of [`OpenCall`]s.
    open_calls: AtomicUsize,
    threads: Option<(JoinHandle<()>, JoinHandle<()>)>,
    _lock: FolderLock,
}

impl ExecutionLog {
    /// Opens a log, or creates one. Truncates lines torn by a crash, see [`Self::torn_tails`].
    pub fn open(folder: impl Into<PathBuf>, options: LogOptions) -> Result<Self, OpenError> {
        let folder = folder.into();
        StateDir::create(&folder)?;
        let lock = FolderLock::take(&folder)?.ok_or_else(|| OpenError::InUse(folder.clone()))?;
        let recovered = folder::recover(&folder)?;
        for torn in &recovered.torn {
            tracing::warn!(file = %torn.file.display(), bytes = torn.bytes, "truncated a torn line of the execution log");
        }
        let torn = recovered.torn.clone();
        let queue = Arc::new(RecordQueue::new(Arc::clone(&options.clock)));
        let syncer =
            Arc::new(Syncer::new(folder.clone(), recovered.lengths.clone(), Arc::clone(&queue.errors)));
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
        let open_calls = AtomicUsize::new(0);
        Ok(Self(Arc::new(LogInner {
            renderer,
            queue,
            writer,
            syncer,
            torn,
            on_full,
            open_calls,
            threads,
            _lock: lock,
        })))
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

    /// Appends the counters of storage errors in the Prometheus text format.
    pub fn render_metrics(&self, out: &mut String) {
        self.0.queue.errors.render(out);
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

    /// Enqueues the begin record of a call. Do not send the call before [`OpenCall::acknowledged`] returns, or it may
    /// go unrecorded; do not send it at all after an error.
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
        self.0.open_calls.fetch_add(1, Ordering::Relaxed);
        let queued = self.enqueue([NewRecord { body, units, durability, kind: RecordKind::Begin }]);
        Ok(OpenCall { log: self.clone(), prefix, since, state: OpenCallState::Beginning(queued) })
    }

    /// Writes both records of a call that ends as it begins, because it was rejected or served from the cache.
    pub async fn record(
        &self,
        begin: &CallBegin<'_>,
        end: &CallEnd<'_>,
        durability: Durability,
    ) -> Result<(), LogUnavailable> {
        let prefix = self.0.renderer.prefix(begin);
        let renderer = &self.0.renderer;
        let begin =
            if end.is_refused() { renderer.refused(&prefix, begin) } else { renderer.begin(&prefix, begin) };
        let bodies = [begin, renderer.end(&prefix, end)];
        let all = bodies.iter().map(units).sum::<u32>().min(QUEUE_UNITS);
        let capacity =
            self.0.queue.capacity.acquire_many(all).await.map_err(|_closed| LogUnavailable::STOPPED)?;
        capacity.forget();
        let records = bodies.map(|body| NewRecord { body, units: 0, durability, kind: RecordKind::Note });
        let [begin, end] = records;
        self.enqueue([begin, NewRecord { units: all, ..end }]).written().await
    }

    /// Writes both records of a call whose caller disconnected before the call was sent. Does not wait, not even
    /// for queue capacity: the caller is gone, and the number of such calls is bounded by the admission limits.
    pub fn record_abandoned(&self, begin: &CallBegin<'_>, end: &CallEnd<'_>) {
        let prefix = self.0.renderer.prefix(begin);
        let durability = Durability::Written;
        let bodies = [self.0.renderer.refused(&prefix, begin), self.0.renderer.end(&prefix, end)];
        drop(self.enqueue(bodies.map(|body| NewRecord {
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
        let mut queued = self.enqueue([record]);
        async move { queued.written().await }
    }

    /// Enqueues records. They are written when the result is awaited, at the latest when it is dropped.
    fn enqueue<const N: usize>(&self, records: [NewRecord; N]) -> QueuedWrite {
        let receiver = self.0.queue.push(records);
        QueuedWrite { receiver, unflushed: Some(self.clone()) }
    }
}

/// Records in the queue. Written at the latest when this is dropped.
struct QueuedWrite {
    /// Reports the last of the records.
    receiver: oneshot::Receiver<Result<(), LogUnavailable>>,
    /// `None` once the queue was flushed.
    unflushed: Option<ExecutionLog>,
}

impl QueuedWrite {
    /// Waits until the records are as durable as requested.
    async fn written(&mut self) -> Result<(), LogUnavailable> {
        if let Some(log) = &self.unflushed {
            if log.0.open_calls.load(Ordering::Relaxed) >= MIN_CALLS_TO_COLLECT {
                run_other_tasks().await;
            }
            // Another task may have written them by now.
            match self.receiver.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => self.flush(),
                outcome => {
                    self.unflushed = None;
                    return outcome.unwrap_or(Err(LogUnavailable::STOPPED));
                }
            }
        }
        (&mut self.receiver).await.unwrap_or(Err(LogUnavailable::STOPPED))
    }

    fn flush(&mut self) {
        if let Some(log) = self.unflushed.take() {
            log.0.flush();
        }
    }
}

impl Drop for QueuedWrite {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Yields to the other tasks that are ready on this thread. Unlike `yield_now`, does not poll for new events first.
async fn run_other_tasks() {
    let mut has_run = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_run, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

fn units(body: &PartBuffer) -> u32 {
    u32::try_from(body.len() / UNIT + 1).unwrap_or(QUEUE_UNITS).min(QUEUE_UNITS)
}

impl LogInner {
    /// Writes the queued records if that is quick, or wakes the writer thread.
    fn flush(&self) {
        // The holder of the writer checks the queue again after releasing it, so no record is left behind.
        for _ in 0..MAX_FLUSH_ROUNDS {
            match self.queue.waiting() {
                0 => return,
                waiting if waiting > MAX_INLINE_BYTES => break,
                _ => {}
            }
            let Some(mut writer) = self.writer.try_lock() else { return };
            writer.drain_queue();
            let is_up = writer.is_up();
            drop(writer);
            if !is_up {
                // From now on the writer thread retries.
                self.queue.wake_writer();
            }
        }
        self.queue.wake();
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

/// A call whose begin record is enqueued. Dropping it without [`Self::end`] records it as abandoned: its caller
/// disconnected. Each begin record gets exactly one end.
#[must_use = "dropping it records the call as abandoned"]
pub struct OpenCall {
    log: ExecutionLog,
    prefix: CallPrefix,
    since: Duration,
    state: OpenCallState,
}

enum OpenCallState {
    /// The begin record was enqueued and is not acknowledged yet.
    Beginning(QueuedWrite),
    Begun,
    /// The begin record was rejected, so it gets no end.
    Rejected,
    Ended,
}

impl OpenCall {
    /// Waits until the begin record is as durable as requested. After an error the record may be in the log all the
    /// same; [`Self::is_recorded`] tells.
    ///
    /// # Errors
    /// If the record could not be written or synced.
    pub async fn acknowledged(&mut self) -> Result<(), LogUnavailable> {
        let OpenCallState::Beginning(queued) = &mut self.state else { return Ok(()) };
        let acknowledged = queued.written().await;
        self.set_begun(&acknowledged);
        acknowledged
    }

    /// Returns true if the begin record is in the log or will be. If not, this call needs no end: use
    /// [`ExecutionLog::record`] to write both of its records.
    pub fn is_recorded(&mut self) -> bool {
        if let OpenCallState::Beginning(queued) = &mut self.state {
            // From here on the writer keeps a begin that fails, because its end follows.
            queued.receiver.close();
            let acknowledged = queued.receiver.try_recv().unwrap_or(Ok(()));
            self.set_begun(&acknowledged);
        }
        !matches!(self.state, OpenCallState::Rejected)
    }

    fn set_begun(&mut self, acknowledged: &Result<(), LogUnavailable>) {
        self.state = match acknowledged {
            Err(unavailable) if !unavailable.written => OpenCallState::Rejected,
            _ => OpenCallState::Begun,
        };
    }

    /// Masks these secrets too in the end record: the caller may have logged in during the call.
    pub fn add_secrets(&mut self, more: &KnownSecrets) {
        self.prefix.add_secrets(more);
    }

    /// Writes the end record. It is enqueued at once, even if the future is never awaited. If it cannot be written
    /// now, it is kept in memory and written later.
    pub fn end(
        mut self,
        end: &CallEnd<'_>,
        durability: Durability,
    ) -> impl Future<Output = Result<(), LogUnavailable>> + Send + use<> {
        let mut queued = self.enqueue(end, durability);
        async move { queued.written().await }
    }

    fn enqueue(&mut self, end: &CallEnd<'_>, durability: Durability) -> QueuedWrite {
        self.state = OpenCallState::Ended;
        let body = self.log.0.renderer.end(&self.prefix, end);
        // Does not wait for capacity: there is one end per begin, and the begin did wait.
        self.log.enqueue([NewRecord { body, units: 0, durability, kind: RecordKind::End }])
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.log.0.open_calls.fetch_sub(1, Ordering::Relaxed);
        if matches!(self.state, OpenCallState::Ended) || !self.is_recorded() {
            return;
        }
        let error = CallFailure {
            code: ErrorCode::Cancelled,
            stage: Stage::Invoke,
            outcome: ExecutionState::Unknown,
            message: "the caller disconnected before the call finished",
            cause: None,
        };
        let took = self.log.0.queue.clock.elapsed().saturating_sub(self.since);
        let end = CallEnd {
            status: CallStatus::Abandoned,
            error: Some(error),
            attempts: 0,
            cached: false,
            took,
            stages: &[],
            output: None,
            secret: None,
            upstream: None,
        };
        drop(self.enqueue(&end, Durability::Written));
    }
}

/// A rendered record that is not in the queue yet.
struct NewRecord {
    body: PartBuffer,
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
    pub(crate) body: PartBuffer,
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
    pub(crate) errors: Arc<StorageErrors>,
    state: Mutex<QueueState>,
    wake: Condvar,
}

#[derive(Default)]
pub(crate) struct QueueState {
    records: VecDeque<QueuedRecord>,
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
        Self { clock, capacity, errors: Arc::default(), state: Mutex::default(), wake: Condvar::new() }
    }

    /// Stamps records with the current time and enqueues them together. Stamping under the lock keeps records in the
    /// order of their timestamps, as long as the clock goes forward. The receiver reports the last of them.
    fn push<const N: usize>(&self, records: [NewRecord; N]) -> oneshot::Receiver<Result<(), LogUnavailable>> {
        let (sender, receiver) = oneshot::channel();
        let mut sender = Some(sender);
        let mut state = self.lock();
        if state.closed {
            return receiver;
        }
        let at = self.clock.now();
        for (index, NewRecord { body, units, durability, kind }) in records.into_iter().enumerate() {
            let waiter = sender.take_if(|_| index + 1 == N);
            state.bytes += body.len();
            state.records.push_back(QueuedRecord { at, body, units, durability, kind, waiter });
        }
        receiver
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

    /// Takes all queued records, in exchange for an empty queue.
    pub(crate) fn take(&self, empty: &mut VecDeque<QueuedRecord>) {
        let mut state = self.lock();
        state.bytes = 0;
        std::mem::swap(&mut state.records, empty);
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
