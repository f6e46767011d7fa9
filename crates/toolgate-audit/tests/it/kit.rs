//! What the tests share: a clock that can be set, a call in few words, this program as a child.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use toolgate_audit::{Begin, Clock, Decision, End, Log, OpenError, Options, Reader, Status, Verified};
use toolgate_types::json::Raw;

/// Both clocks of a log, in microseconds.
pub(crate) struct Hands {
    wall: AtomicI64,
    running: AtomicU64,
}

impl Hands {
    pub(crate) fn at(time: &str) -> Arc<Self> {
        let wall = time.parse::<Timestamp>().unwrap().as_microsecond();
        Arc::new(Self { wall: wall.into(), running: 0.into() })
    }

    /// Time passes.
    pub(crate) fn pass(&self, time: Duration) {
        let micros = i64::try_from(time.as_micros()).unwrap();
        self.wall.fetch_add(micros, Ordering::SeqCst);
        self.running.fetch_add(micros.unsigned_abs(), Ordering::SeqCst);
    }

    /// Somebody sets the clock.
    pub(crate) fn jump(&self, seconds: i64) {
        self.wall.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_microsecond(self.wall.load(Ordering::SeqCst)).unwrap()
    }

    fn running(&self) -> Duration {
        Duration::from_micros(self.running.load(Ordering::SeqCst))
    }
}

pub(crate) fn options(clock: &Arc<Hands>) -> Options {
    Options { clock: Arc::clone(clock) as Arc<dyn Clock>, reserve: 0, ..Options::default() }
}

/// A child that another test starts holds all locks of this process for a moment, those that were let go of included.
pub(crate) fn open(folder: &Path, clock: &Arc<Hands>) -> Log {
    for _ in 0..200 {
        match Log::open(folder, options(clock)) {
            Err(OpenError::InUse(_)) => std::thread::sleep(Duration::from_millis(5)),
            opened => return opened.unwrap(),
        }
    }
    panic!("somebody has the log in {}", folder.display());
}

pub(crate) fn raw(json: &str) -> Raw {
    Raw::trusted(json.to_owned())
}

pub(crate) fn begin<'a>(call: &'a str, tool: &'a str, arguments: &'a Raw) -> Begin<'a> {
    Begin {
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
        arguments,
        secret: None,
    }
}

pub(crate) fn success(output: &Raw) -> End<'_> {
    End {
        status: Status::Success,
        error: None,
        attempts: 1,
        cached: false,
        took: Duration::from_millis(5),
        stages: &[],
        output: Some(output),
        secret: None,
    }
}

pub(crate) fn verify(folder: &Path) -> Verified {
    toolgate_audit::verify::verify(folder).unwrap()
}

/// Fails with the faults, when there are any.
pub(crate) fn assert_whole(folder: &Path, records: u64) {
    let verified = verify(folder);
    assert_eq!(verified.faults, []);
    assert_eq!(verified.records, records);
}

/// The ids of all calls, in the order they began.
pub(crate) fn ids(folder: &Path) -> Vec<String> {
    let filter = toolgate_audit::Filter { newest_first: true, ..toolgate_audit::Filter::default() };
    let calls = Reader::new(folder).query(filter).unwrap();
    let mut ids: Vec<_> = calls.map(|call| call.unwrap().id().to_owned()).collect();
    ids.reverse();
    ids
}

/// The names of what is in a folder, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs_err::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Set for a test that runs as a child: what it is to do.
pub(crate) const TASK: &str = "TOOLGATE_AUDIT_TEST";

/// This program again, running one test.
pub(crate) fn again(test: &str, task: &str) -> Command {
    let mut command = program(std::env::current_exe().unwrap().to_str().unwrap());
    command.args(["--exact", test, "--include-ignored", "--nocapture"]).env(TASK, task);
    command
}

#[expect(clippy::disallowed_methods, reason = "a child of a test, which waits for it")]
pub(crate) fn program(name: &str) -> Command {
    Command::new(name)
}
