//! Shared test helpers: a manual clock, short call builders, and this program as a child process.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use toolgate_audit::{
    CallBegin, CallEnd, CallStatus, Clock, Decision, Durability, ExecutionLog, LogOptions, LogReader,
    LogUnavailable, OpenCall, OpenError, VerifyReport,
};
use toolgate_json::RawJson;

/// A clock set by the test: wall-clock and monotonic time in microseconds.
pub(crate) struct ManualClock {
    wall: AtomicI64,
    running: AtomicU64,
}

impl ManualClock {
    pub(crate) fn at(time: &str) -> Arc<Self> {
        let wall = time.parse::<Timestamp>().unwrap().as_microsecond();
        Arc::new(Self { wall: wall.into(), running: 0.into() })
    }

    /// Advances both clocks.
    pub(crate) fn pass(&self, time: Duration) {
        let micros = i64::try_from(time.as_micros()).unwrap();
        self.wall.fetch_add(micros, Ordering::SeqCst);
        self.running.fetch_add(micros.unsigned_abs(), Ordering::SeqCst);
    }

    /// Sets the wall clock forwards or backwards.
    pub(crate) fn jump(&self, seconds: i64) {
        self.wall.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_microsecond(self.wall.load(Ordering::SeqCst)).unwrap()
    }

    fn elapsed(&self) -> Duration {
        Duration::from_micros(self.running.load(Ordering::SeqCst))
    }
}

pub(crate) fn options(clock: &Arc<ManualClock>) -> LogOptions {
    LogOptions { clock: Arc::clone(clock) as Arc<dyn Clock>, reserve: 0, ..LogOptions::default() }
}

/// Opens a log. Retries, because a child process forked by another test briefly inherits all locks of this process,
/// even those already released.
pub(crate) fn open(folder: &Path, clock: &Arc<ManualClock>) -> ExecutionLog {
    for _ in 0..200 {
        match ExecutionLog::open(folder, options(clock)) {
            Err(OpenError::InUse(_)) => std::thread::sleep(Duration::from_millis(5)),
            opened => return opened.unwrap(),
        }
    }
    panic!("the log in {} is still locked", folder.display());
}

pub(crate) fn raw(json: &str) -> RawJson {
    RawJson::from_trusted(json.to_owned())
}

pub(crate) fn begin<'a>(call: &'a str, tool: &'a str, arguments: &'a RawJson) -> CallBegin<'a> {
    CallBegin {
        operation: Default::default(),
        tainted: false,
        deprecated: false,
        user: None,
        agent_version: None,
        call,
        caller: "ann",
        tool,
        session: None,
        correlation: "r1",
        correlation_from_client: false,
        trace: "4bf92f3577b34da6a3ce929d0e0e4736",
        server: Some("files"),
        definition: Some("2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"),
        decision: Decision::Allow,
        rules: &[],
        asked: None,
        refused_by: None,
        identity: Default::default(),
        arguments,
        secret: None,
    }
}

/// Writes the begin record of a call and waits for it.
pub(crate) async fn begin_call(
    log: &ExecutionLog,
    begin: &CallBegin<'_>,
    durability: Durability,
) -> Result<OpenCall, LogUnavailable> {
    let mut open = log.begin(begin, durability).await?;
    open.acknowledged().await.map(|()| open)
}

pub(crate) fn success(output: &RawJson) -> CallEnd<'_> {
    CallEnd {
        status: CallStatus::Success,
        error: None,
        attempts: 1,
        cached: false,
        took: Duration::from_millis(5),
        stages: &[],
        output: Some(output),
        secret: None,
        upstream: None,
    }
}

pub(crate) fn verify(folder: &Path) -> VerifyReport {
    toolgate_audit::verify::verify(folder).unwrap()
}

/// Fails if the log has faults or another number of records.
pub(crate) fn assert_whole(folder: &Path, records: u64) {
    let verified = verify(folder);
    assert_eq!(verified.faults, []);
    assert_eq!(verified.records, records);
}

/// Returns the ids of all calls, in the order they began.
pub(crate) fn ids(folder: &Path) -> Vec<String> {
    let filter = toolgate_audit::CallFilter { newest_first: true, ..toolgate_audit::CallFilter::default() };
    let calls = LogReader::new(folder).query(filter).unwrap();
    let mut ids: Vec<_> = calls.map(|call| call.unwrap().id().to_owned()).collect();
    ids.reverse();
    ids
}

/// Returns the sorted names of the files in a folder.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs_err::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Environment variable that tells a test running as a child process what to do.
pub(crate) const TASK: &str = "TOOLGATE_AUDIT_TEST";

/// Returns a command that runs one test of this program.
pub(crate) fn again(test: &str, task: &str) -> Command {
    let mut command = program(std::env::current_exe().unwrap().to_str().unwrap());
    command.args(["--exact", test, "--include-ignored", "--nocapture"]).env(TASK, task);
    command
}

#[expect(clippy::disallowed_methods, reason = "a child of a test, which waits for it")]
pub(crate) fn program(name: &str) -> Command {
    Command::new(name)
}
