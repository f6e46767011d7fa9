//! Power failures: the real writer and the real recovery on a simulated disk that loses unsynced data.
//!
//! The disk is a folder. The simulation tracks what was synced; anything else may be lost in a crash, entirely or page
//! by page, and so may the name of a new file. A seed decides what is written, when it is synced, when a sync fails,
//! how the clock moves and what a crash loses. Invariant: a seed is deterministic.
//! `POWER_LOSS_SEED=17 cargo test -p toolgate-audit power_loss` runs one seed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use jiff::Timestamp;
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::folder;
use crate::log::{Durability, LogUnavailable, QueuedRecord, RecordKind, RecordQueue};
use crate::reserve::DiskReserve;
use crate::sync::Syncer;
use crate::verify::verify;
use crate::writer::{LogWriter, WriterSetup};

/// Number of seeds; each runs through four crashes. `POWER_LOSS_SEEDS` sets another number.
const SEEDS: u64 = 400;
const PAGE: usize = 256;

thread_local! {
    static DISK: RefCell<Option<SimulatedDisk>> = const { RefCell::new(None) };
}

/// The durable contents of a folder.
#[derive(Default)]
struct SimulatedDisk {
    files: BTreeMap<PathBuf, Vec<u8>>,
    names: BTreeSet<PathBuf>,
    /// The next sync fails.
    failing: bool,
    /// Deliberately wrong: reports a sync as successful without doing it.
    lies: bool,
}

/// Replaces a sync while a simulation runs on this thread.
pub(crate) fn sync(path: &Path) -> Option<io::Result<()>> {
    DISK.with_borrow_mut(|disk| {
        let disk = disk.as_mut()?;
        if std::mem::take(&mut disk.failing) {
            return Some(Err(io::Error::other("simulated")));
        }
        if disk.lies {
            return Some(Ok(()));
        }
        if path.is_dir() {
            disk.names.extend(log_files(path));
        } else {
            disk.files.insert(path.to_owned(), fs_err::read(path).unwrap());
        }
        Some(Ok(()))
    })
}

/// Lists the log files in a folder.
fn log_files(folder: &Path) -> Vec<PathBuf> {
    folder::list_days(folder).unwrap().into_iter().map(|day| folder::day_path(folder, day)).collect()
}

struct ManualClock {
    wall: AtomicI64,
    running: AtomicU64,
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_microsecond(self.wall.load(Ordering::Relaxed)).unwrap()
    }

    fn elapsed(&self) -> Duration {
        Duration::from_micros(self.running.load(Ordering::Relaxed))
    }
}

impl ManualClock {
    fn pass(&self, random: &mut Rng) {
        let micros = random.u64(0..2_000_000);
        self.running.fetch_add(micros, Ordering::Relaxed);
        self.wall.fetch_add(i64::try_from(micros).unwrap(), Ordering::Relaxed);
        if random.u8(..) < 12 {
            // Across midnight, forwards or backwards.
            self.wall.fetch_add(random.i64(-2..3) * 43_200_000_000, Ordering::Relaxed);
        }
    }
}

/// A process from its start to the crash.
struct SimulatedProcess {
    writer: LogWriter,
    syncer: Arc<Syncer>,
    waiting: Vec<(String, oneshot::Receiver<Result<(), LogUnavailable>>)>,
}

impl SimulatedProcess {
    fn start(folder: &Path, clock: &Arc<ManualClock>) -> Self {
        let clock = Arc::clone(clock) as Arc<dyn Clock>;
        let recovered = folder::recover(folder).unwrap();
        let queue = Arc::new(RecordQueue::new(Arc::clone(&clock)));
        let errors = Arc::clone(&queue.errors);
        let syncer = Arc::new(Syncer::new(folder.to_owned(), recovered.lengths.clone(), errors));
        let writer = LogWriter::new(WriterSetup {
            folder: folder.to_owned(),
            recovered,
            keep: Duration::from_secs(1 << 30),
            queue,
            clock,
            syncer: Arc::clone(&syncer),
            reserve: DiskReserve::new(folder, 0),
        });
        Self { writer, syncer, waiting: Vec::new() }
    }

    fn write(&mut self, clock: &ManualClock, random: &mut Rng, next: &mut u64) {
        let mut records = VecDeque::new();
        for _ in 0..random.usize(1..5) {
            *next += 1;
            let id = format!("call-{next}");
            let (waiter, receiver) = oneshot::channel();
            let synced = random.bool();
            // Long ones have another hash.
            let length = if random.u8(..) < 12 { 5_000 } else { random.usize(..250) };
            if synced {
                self.waiting.push((id.clone(), receiver));
            }
            records.push_back(QueuedRecord {
                at: clock.now(),
                body: format!(r#""kind":"end","call":"{id}","text":"{}""#, "x".repeat(length)).into(),
                units: 0,
                durability: if synced { Durability::Synced } else { Durability::Written },
                kind: if random.bool() { RecordKind::Begin } else { RecordKind::End },
                waiter: Some(waiter),
            });
        }
        self.writer.handle(&mut records);
    }

    /// Returns the ids of calls whose record was acknowledged as durable.
    fn acknowledged(&mut self) -> Vec<String> {
        let acknowledged_id = |(id, receiver): &mut (String, oneshot::Receiver<_>)| {
            matches!(receiver.try_recv(), Ok(Ok(()))).then(|| id.clone())
        };
        self.waiting.iter_mut().filter_map(acknowledged_id).collect()
    }
}

/// Applies a power failure to the folder.
fn lose_power(folder: &Path, random: &mut Rng) {
    DISK.with_borrow_mut(|disk| {
        let disk = disk.as_mut().unwrap();
        for path in log_files(folder) {
            if !disk.names.contains(&path) && random.bool() {
                fs_err::remove_file(&path).unwrap();
                disk.files.remove(&path);
                continue;
            }
            let durable = disk.files.get(&path).map_or(0, Vec::len);
            let mut bytes = fs_err::read(&path).unwrap();
            bytes.truncate(random.usize(durable.min(bytes.len())..=bytes.len()));
            let mut from = durable;
            while from < bytes.len() {
                let to = (from / PAGE * PAGE + PAGE).min(bytes.len());
                if random.u8(..3) == 0 {
                    bytes[from..to].fill(0);
                }
                from = to;
            }
            fs_err::write(&path, &bytes).unwrap();
            disk.names.insert(path.clone());
            disk.files.insert(path, bytes);
        }
        disk.failing = false;
    });
}

/// Returns the problems found after the crashes of a seed.
fn problems(seed: u64, lies: bool) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    DISK.set(Some(SimulatedDisk { lies, ..SimulatedDisk::default() }));
    let mut random = Rng::with_seed(seed);
    let start: Timestamp = "2026-11-15T23:59:58Z".parse().unwrap();
    let clock = Arc::new(ManualClock { wall: start.as_microsecond().into(), running: 0.into() });
    let (mut acknowledged, mut next, mut problems) = (BTreeSet::new(), 0, Vec::new());
    for _crash in 0..4 {
        let mut process = SimulatedProcess::start(folder.path(), &clock);
        for _step in 0..random.usize(1..20) {
            match random.u8(..8) {
                0..=3 => process.write(&clock, &mut random, &mut next),
                4 | 5 => process.syncer.sync_now(),
                6 => clock.pass(&mut random),
                _ if random.u8(..4) == 0 => {
                    DISK.with_borrow_mut(|disk| disk.as_mut().unwrap().failing = true)
                }
                _ => {}
            }
            acknowledged.extend(process.acknowledged());
        }
        drop(process);
        lose_power(folder.path(), &mut random);
        folder::recover(folder.path()).unwrap();
        problems.extend(verify(folder.path()).unwrap().faults.iter().map(ToString::to_string));
        let all: String =
            log_files(folder.path()).iter().map(|path| fs_err::read_to_string(path).unwrap()).collect();
        let lost = acknowledged.iter().filter(|id| !all.contains(&format!("\"{id}\"")));
        problems.extend(lost.map(|id| format!("{id} was acknowledged and is lost")));
    }
    DISK.set(None);
    problems
}

#[test]
fn acknowledged_records_survive_power_loss() {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let all = 0..number("POWER_LOSS_SEEDS").unwrap_or(SEEDS);
    for seed in number("POWER_LOSS_SEED").map_or(all, |seed| seed..seed + 1) {
        let problems = problems(seed, false);
        assert!(problems.is_empty(), "POWER_LOSS_SEED={seed}: {problems:#?}");
    }
}

/// Checks that the simulation detects a faulty disk.
#[test]
fn detects_a_disk_that_lies() {
    assert!((0..20).any(|seed| !problems(seed, true).is_empty()));
}

#[test]
fn seeds_are_deterministic() {
    let lying_disk = |seed| problems(seed, true);
    assert_eq!(lying_disk(3), lying_disk(3));
}
