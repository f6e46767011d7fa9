//! The log as the road sees it: a call begins, and ends.
//!
//! [`Log::begin`] and [`Open::end`] render and redact where they are called, so many calls do it side by side,
//! hand the line over, and return when it is as durable as was asked. Whoever hands over a short line writes all that
//! waits himself where nobody else does; a line that would keep him is left to a thread. Invariant: a begin that was
//! acknowledged gets an end, whatever happens to who made the call; memory is bounded, and who finds it used up
//! waits.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Semaphore, oneshot};
use toolgate_types::call::Stage;
use toolgate_types::redact::Pattern;
use toolgate_types::{CallError, ErrorCode, OnFull, Outcome, Secret};

use crate::chain;
use crate::clock::{Clock, SystemClock};
use crate::folder::{self, Lock, Torn};
use crate::record::{Begin, End, Event, Failure, Ids, Renderer, Status};
use crate::redact::Redactor;
use crate::reserve::{self, Reserve};
use crate::sync::{Syncer, Waiter};
use crate::writer::{self, Writer, WriterSetup};

/// What may wait to be written, in units of [`UNIT`] bytes: 64 MiB.
const QUEUE_UNITS: u32 = 64 << 10;
const UNIT: usize = 1024;
/// What is written by whoever hands it over: so much is in the kernel sooner than another thread is awake.
const SHORT: usize = 32 << 10;
/// How often he looks whether more came meanwhile, before he leaves it to the thread.
const ROUNDS: usize = 4;

/// How a log is kept.
pub struct Options {
    /// What of arguments and of output is written down in full, in bytes each.
    pub max_body: usize,
    /// How old the last record of a file gets before the file is removed.
    pub keep: Duration,
    /// What must not be shown.
    pub secrets: Vec<Secret>,
    /// Shapes of secrets beside those that everybody's have.
    pub patterns: Vec<Pattern>,
    /// Room on the disk that is kept for the ends of calls, in bytes; with 0 none is.
    pub reserve: u64,
    /// What becomes of calls that may be repeated when the disk is full.
    pub on_full: OnFull,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
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

/// A log that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process writes it.
    #[error("the execution log in `{}` is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The system refuses.
    #[error("the execution log cannot be opened")]
    Io(#[from] io::Error),
}

/// A record is not as durable as it must be, and what depends on it must not go on.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the execution log cannot be written")]
pub struct Unavailable {
    /// Whether the record may be there all the same.
    written: bool,
    #[source]
    cause: Option<Arc<io::Error>>,
}

impl Unavailable {
    pub(crate) fn new(written: bool, cause: Arc<io::Error>) -> Self {
        Self { written, cause: Some(cause) }
    }

    /// Whether it is for lack of room.
    pub fn is_full(&self) -> bool {
        self.cause.as_ref().is_some_and(|cause| reserve::is_full(cause))
    }

    /// The thread that writes is gone.
    const STOPPED: Self = Self { written: true, cause: None };
}

/// What must hold before a record is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The kernel has it: it outlives this process. It is on the disk within 10 ms.
    Written,
    /// The disk has it: it outlives the machine.
    Synced,
}

/// The execution log. Clones are the same log; it is closed, with all that was handed to it, when the last
/// one and the last open call are gone.
#[derive(Clone)]
pub struct Log(Arc<Inner>);

struct Inner {
    renderer: Renderer,
    queue: Arc<Queue>,
    writer: Arc<Mutex<Writer>>,
    syncer: Arc<Syncer>,
    torn: Vec<Torn>,
    on_full: OnFull,
    threads: Option<(JoinHandle<()>, JoinHandle<()>)>,
    _lock: Lock,
}

impl Log {
    /// Opens a log, or begins one. Cuts off what a crash tore, see [`Self::torn`].
    pub fn open(folder: impl Into<PathBuf>, options: Options) -> Result<Self, OpenError> {
        let folder = folder.into();
        fs_err::create_dir_all(&folder)?;
        let lock = Lock::take(&folder)?.ok_or_else(|| OpenError::InUse(folder.clone()))?;
        let found = folder::recover(&folder)?;
        for torn in &found.torn {
            tracing::warn!(file = %torn.file.display(), bytes = torn.bytes, "a torn line was cut off");
        }
        let torn = found.torn.clone();
        let queue = Arc::new(Queue::new(Arc::clone(&options.clock)));
        let syncer = Arc::new(Syncer::new(folder.clone(), found.lengths.clone()));
        let setup = WriterSetup {
            reserve: Reserve::new(&folder, options.reserve),
            folder,
            found,
            keep: options.keep,
            clock: options.clock,
            queue: Arc::clone(&queue),
            syncer: Arc::clone(&syncer),
        };
        let writer = Arc::new(Mutex::new(Writer::new(setup)));
        let redactor = Redactor::new(options.secrets, options.patterns);
        let renderer = Renderer::new(redactor, options.max_body);
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let sync_thread = {
            let (syncer, queue) = (Arc::clone(&syncer), Arc::clone(&queue));
            named("log-sync").spawn(move || syncer.run(|| queue.nudge()))?
        };
        let closing = CloseOnDrop(Arc::clone(&queue));
        let writer_thread = {
            let (writer, queue) = (Arc::clone(&writer), Arc::clone(&queue));
            named("log-write").spawn(move || {
                let _closing = closing;
                writer::run(&writer, &queue);
            })?
        };
        let threads = Some((writer_thread, sync_thread));
        let on_full = options.on_full;
        Ok(Self(Arc::new(Inner { renderer, queue, writer, syncer, torn, on_full, threads, _lock: lock })))
    }

    /// What was cut off when it was opened.
    pub fn torn(&self) -> &[Torn] {
        &self.0.torn
    }

    /// Whether the last line could be written. Telling, not promising: the next one may fare otherwise.
    pub fn is_available(&self) -> bool {
        let state = self.0.queue.lock();
        !state.down && !state.closed
    }

    /// Writes none of these down, from now on.
    pub fn learn(&self, secrets: &[Secret]) {
        self.0.renderer.learn(secrets);
    }

    /// A text without what must not be shown, as it would be written down.
    pub fn masked(&self, text: &str) -> String {
        self.0.renderer.masked(text)
    }

    /// Whether a call that may be repeated is made although its begin could not be written down.
    pub fn goes_on(&self, refused: &Unavailable) -> bool {
        self.0.on_full == OnFull::Allow && refused.is_full()
    }

    /// A new id for a call, which sorts by time.
    pub fn call_id(&self) -> String {
        let millis = self.0.queue.clock.now().as_millisecond();
        let bytes = (u128::from(millis.cast_unsigned()) << 64 | u128::from(fastrand::u64(..))).to_be_bytes();
        // 48 bits are enough for the time.
        let digits = chain::hex(&bytes[2..]);
        std::str::from_utf8(&digits[..28]).unwrap_or_default().to_owned()
    }

    /// Writes down how a call was decided on. A call that is dispatched before this returned may go
    /// unrecorded; after an error it must not be dispatched.
    pub async fn begin(&self, begin: &Begin<'_>, durability: Durability) -> Result<Open, Unavailable> {
        let ids = self.0.renderer.ids(begin);
        let body = self.0.renderer.begin(&ids, begin);
        let units = units(&body);
        let room = self.0.queue.room.acquire_many(units).await.map_err(|_closed| Unavailable::STOPPED)?;
        room.forget();
        let since = self.0.queue.clock.running();
        let mut open = Open { log: self.clone(), ids, since, state: OpenState::Begun };
        let receiver = self.0.hand_over([Line { body, units, durability, kind: JobKind::Begin }]);
        open.state = OpenState::Beginning(receiver);
        let OpenState::Beginning(receiver) = &mut open.state else { unreachable!("it was just set") };
        match receiver.await.unwrap_or(Err(Unavailable::STOPPED)) {
            Ok(()) => {
                open.state = OpenState::Begun;
                Ok(open)
            }
            Err(unavailable) => {
                open.refused(&unavailable);
                Err(unavailable)
            }
        }
    }

    /// Writes down a call that ends as it begins: one that was refused, or answered from memory.
    pub async fn record(
        &self,
        begin: &Begin<'_>,
        end: &End<'_>,
        durability: Durability,
    ) -> Result<(), Unavailable> {
        let ids = self.0.renderer.ids(begin);
        let bodies = [self.0.renderer.begin(&ids, begin), self.0.renderer.end(&ids, end)];
        let all = bodies.iter().map(|body| units(body)).sum::<u32>().min(QUEUE_UNITS);
        let room = self.0.queue.room.acquire_many(all).await.map_err(|_closed| Unavailable::STOPPED)?;
        room.forget();
        let lines = bodies.map(|body| Line { body, units: 0, durability, kind: JobKind::Note });
        let [begin, end] = lines;
        let receiver = self.0.hand_over([begin, Line { units: all, ..end }]);
        receiver.await.unwrap_or(Err(Unavailable::STOPPED))
    }

    /// Writes down a call whose caller left before it was sent. Does not wait, not even for room: who left
    /// waits for nothing, and there are no more of them than calls were let in.
    pub fn abandoned(&self, begin: &Begin<'_>, error: &CallError, took: Duration) {
        let end = End::abandoned(error, took);
        let ids = self.0.renderer.ids(begin);
        let durability = Durability::Written;
        let bodies = [self.0.renderer.begin(&ids, begin), self.0.renderer.end(&ids, &end)];
        drop(self.0.hand_over(bodies.map(|body| Line { body, units: 0, durability, kind: JobKind::Note })));
    }

    /// Writes down something that happened beside the calls. The line is handed over at once, whether the future
    /// is awaited or not.
    pub fn note(&self, event: &Event<'_>) -> impl Future<Output = Result<(), Unavailable>> + Send + use<> {
        let body = self.0.renderer.event(event);
        let line = Line { body, units: 0, durability: Durability::Written, kind: JobKind::Note };
        let receiver = self.0.hand_over([line]);
        async move { receiver.await.unwrap_or(Err(Unavailable::STOPPED)) }
    }
}

fn units(body: &str) -> u32 {
    u32::try_from(body.len() / UNIT + 1).unwrap_or(QUEUE_UNITS).min(QUEUE_UNITS)
}

impl Inner {
    /// Hands lines over, and writes them where that is quickly done. Who waits is told about the last one.
    fn hand_over<const N: usize>(&self, lines: [Line; N]) -> oneshot::Receiver<Result<(), Unavailable>> {
        let (receiver, waiting) = self.queue.push(lines);
        let mut short = waiting <= SHORT;
        // Whoever has the writer looks once more after letting go of it, so no line is left behind.
        for _ in 0..ROUNDS {
            if !short {
                break;
            }
            let mut writer = match self.writer.try_lock() {
                Ok(writer) => writer,
                Err(TryLockError::WouldBlock) => return receiver,
                Err(TryLockError::Poisoned(writer)) => writer.into_inner(),
            };
            writer.turn();
            let is_up = writer.is_up();
            drop(writer);
            if !is_up {
                // The thread tries again, from now on.
                self.queue.nudge();
            }
            match self.queue.waiting() {
                0 => return receiver,
                waiting => short = waiting <= SHORT,
            }
        }
        self.queue.wake();
        receiver
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.close();
        let Some((writer, syncer)) = self.threads.take() else { return };
        // A thread that panicked has said so.
        let _ = writer.join();
        self.syncer.close();
        let _ = syncer.join();
    }
}

/// A call that has begun. Dropped without [`Self::end`], it is written down as abandoned: who made it left.
#[must_use = "dropping it says that the call was abandoned"]
pub struct Open {
    log: Log,
    ids: Ids,
    since: Duration,
    state: OpenState,
}

enum OpenState {
    /// Its begin was handed over; what became of it is not known.
    Beginning(oneshot::Receiver<Result<(), Unavailable>>),
    Begun,
    Ended,
}

impl Open {
    /// Writes down how it ended. The line is handed over at once, whether the future is awaited or not, and
    /// is kept in memory and written later when it cannot be written now.
    pub fn end(
        mut self,
        end: &End<'_>,
        durability: Durability,
    ) -> impl Future<Output = Result<(), Unavailable>> + Send + use<> {
        let receiver = self.hand_over(end, durability);
        async move { receiver.await.unwrap_or(Err(Unavailable::STOPPED)) }
    }

    fn hand_over(
        &mut self,
        end: &End<'_>,
        durability: Durability,
    ) -> oneshot::Receiver<Result<(), Unavailable>> {
        self.state = OpenState::Ended;
        let body = self.log.0.renderer.end(&self.ids, end);
        // It does not wait for room: there is one end for each begin, and those did.
        self.log.0.hand_over([Line { body, units: 0, durability, kind: JobKind::End }])
    }

    /// Its begin is not as durable as it must be. Where it is written all the same, it gets an end.
    fn refused(&mut self, unavailable: &Unavailable) {
        if unavailable.written {
            let error = Failure {
                code: ErrorCode::StorageUnavailable,
                stage: Stage::Record,
                outcome: Outcome::NotStarted,
                message: "the execution log cannot be written",
                cause: unavailable.cause.as_ref().map(ToString::to_string),
            };
            let end = self.short_end(Status::Error, Some(error));
            self.hand_over(&end, Durability::Written);
        } else {
            self.state = OpenState::Ended;
        }
    }

    fn short_end<'a>(&self, status: Status, error: Option<Failure<'a>>) -> End<'a> {
        let took = self.log.0.queue.clock.running().saturating_sub(self.since);
        End { status, error, attempts: 0, cached: false, took, stages: &[], output: None, secret: None }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        match &mut self.state {
            OpenState::Ended => return,
            OpenState::Begun => {}
            OpenState::Beginning(receiver) => {
                // From here on a begin that is refused is kept by the writer, since this end follows.
                receiver.close();
                if let Ok(Err(unavailable)) = receiver.try_recv()
                    && !unavailable.written
                {
                    return;
                }
            }
        }
        let error = Failure {
            code: ErrorCode::Cancelled,
            stage: Stage::Invoke,
            outcome: Outcome::Unknown,
            message: "who made the call left",
            cause: None,
        };
        let end = self.short_end(Status::Abandoned, Some(error));
        self.hand_over(&end, Durability::Written);
    }
}

/// A line that is handed over.
struct Line {
    body: String,
    units: u32,
    durability: Durability,
    kind: JobKind,
}

/// What a line tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobKind {
    /// That a call may be sent: refused when it cannot be written now.
    Begin,
    /// What became of a call that was sent. It is kept and written later when it cannot be written now, and
    /// may use the room that is reserved.
    End,
    /// What has happened and nobody depends on: kept as well.
    Note,
}

/// A line on its way to the writer.
pub(crate) struct Job {
    pub(crate) at: Timestamp,
    pub(crate) body: String,
    /// The room it takes in the queue.
    pub(crate) units: u32,
    pub(crate) durability: Durability,
    pub(crate) kind: JobKind,
    pub(crate) waiter: Option<Waiter>,
}

/// The way to the writer.
pub(crate) struct Queue {
    pub(crate) clock: Arc<dyn Clock>,
    /// For who has something to write: how much more fits.
    pub(crate) room: Semaphore,
    state: Mutex<QueueState>,
    wake: Condvar,
}

#[derive(Default)]
pub(crate) struct QueueState {
    jobs: Vec<Job>,
    /// How long they are together.
    bytes: usize,
    /// The thread sleeps.
    sleeping: bool,
    /// The writer should look at something else than jobs.
    nudged: bool,
    closed: bool,
    /// The last line could not be written.
    pub(crate) down: bool,
}

impl QueueState {
    fn is_idle(&self) -> bool {
        self.jobs.is_empty() && !self.nudged && !self.closed
    }
}

impl Queue {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let room = Semaphore::new(QUEUE_UNITS as usize);
        Self { clock, room, state: Mutex::default(), wake: Condvar::new() }
    }

    /// Stamps the lines and takes them, together. Stamped under the lock, lines follow each other as
    /// their stamps do, as long as the clock goes forward. Says how many bytes wait now.
    fn push<const N: usize>(&self, lines: [Line; N]) -> (oneshot::Receiver<Result<(), Unavailable>>, usize) {
        let (sender, receiver) = oneshot::channel();
        let mut sender = Some(sender);
        let mut state = self.lock();
        if state.closed {
            return (receiver, usize::MAX);
        }
        let at = self.clock.now();
        for (index, Line { body, units, durability, kind }) in lines.into_iter().enumerate() {
            let waiter = sender.take_if(|_| index + 1 == N);
            state.bytes += body.len();
            state.jobs.push(Job { at, body, units, durability, kind, waiter });
        }
        (receiver, state.bytes)
    }

    /// How many bytes wait.
    fn waiting(&self) -> usize {
        self.lock().bytes
    }

    /// Has the thread write what waits.
    fn wake(&self) {
        // It says itself when it is awake: until then somebody else may take what it was woken for, and it sleeps on.
        if self.lock().sleeping {
            self.wake.notify_one();
        }
    }

    /// Sleeps until something waits, a nudge comes, or the time is up. `None` at the end.
    pub(crate) fn sleep(&self, at_most: Duration) -> Option<()> {
        let mut state = self.lock();
        state.sleeping = state.is_idle();
        if state.sleeping {
            let waited = self.wake.wait_timeout_while(state, at_most, |state| state.is_idle());
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.sleeping = false;
        }
        state.nudged = false;
        if state.jobs.is_empty() && state.closed { None } else { Some(()) }
    }

    /// All that waits.
    pub(crate) fn take(&self) -> Vec<Job> {
        let mut state = self.lock();
        state.bytes = 0;
        std::mem::take(&mut state.jobs)
    }

    /// Wakes the writer.
    pub(crate) fn nudge(&self) {
        self.lock().nudged = true;
        self.wake.notify_one();
    }

    pub(crate) fn set_down(&self, down: bool) {
        self.lock().down = down;
    }

    fn close(&self) {
        self.lock().closed = true;
        self.room.close();
        self.wake.notify_one();
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whatever ends the writer, nobody waits for it any more.
struct CloseOnDrop(Arc<Queue>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
        // Who waits for these is told by their senders' end.
        self.0.lock().jobs.clear();
    }
}
