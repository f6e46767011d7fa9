//! Machines that lose their power: the real writer and the real recovery on a disk that forgets.
//!
//! The disk is a folder. What was synced is known from here; what was not may be gone at a crash, whole or page
//! by page, and so may the name of a new file. A seed decides what is written, when it is synced, when a sync
//! fails, how the clock goes and what a crash takes. Invariant: a seed always does the same.
//! `POWER_LOSS_SEED=17 cargo test -p toolgate-audit power_loss` runs one again.

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
use crate::log::{Durability, Job, JobKind, Queue, Unavailable};
use crate::reserve::Reserve;
use crate::sync::Syncer;
use crate::verify::verify;
use crate::writer::{Writer, WriterSetup};

/// Every seed is a history of four crashes; `POWER_LOSS_SEEDS` runs more of them.
const SEEDS: u64 = 400;
const PAGE: usize = 256;

thread_local! {
    static DISK: RefCell<Option<Disk>> = const { RefCell::new(None) };
}

/// What of a folder would be there after a crash.
#[derive(Default)]
struct Disk {
    files: BTreeMap<PathBuf, Vec<u8>>,
    names: BTreeSet<PathBuf>,
    /// The next sync fails.
    failing: bool,
    /// Wrong: it says that it has what it does not have.
    lies: bool,
}

/// Takes the place of a sync, where a simulation runs.
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
            disk.names.extend(lines_of(path));
        } else {
            disk.files.insert(path.to_owned(), fs_err::read(path).unwrap());
        }
        Some(Ok(()))
    })
}

/// The files with lines in a folder.
fn lines_of(folder: &Path) -> Vec<PathBuf> {
    folder::days(folder).unwrap().into_iter().map(|day| folder::path(folder, day)).collect()
}

struct Hands {
    wall: AtomicI64,
    running: AtomicU64,
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_microsecond(self.wall.load(Ordering::Relaxed)).unwrap()
    }

    fn running(&self) -> Duration {
        Duration::from_micros(self.running.load(Ordering::Relaxed))
    }
}

impl Hands {
    fn pass(&self, random: &mut Rng) {
        let micros = random.u64(0..2_000_000);
        self.running.fetch_add(micros, Ordering::Relaxed);
        self.wall.fetch_add(i64::try_from(micros).unwrap(), Ordering::Relaxed);
        if random.u8(..) < 12 {
            // Over midnight, or back.
            self.wall.fetch_add(random.i64(-2..3) * 43_200_000_000, Ordering::Relaxed);
        }
    }
}

/// A process, from its start to the crash.
struct Process {
    writer: Writer,
    syncer: Arc<Syncer>,
    waiting: Vec<(String, oneshot::Receiver<Result<(), Unavailable>>)>,
}

impl Process {
    fn start(folder: &Path, clock: &Arc<Hands>) -> Self {
        let clock = Arc::clone(clock) as Arc<dyn Clock>;
        let found = folder::recover(folder).unwrap();
        let syncer = Arc::new(Syncer::new(folder.to_owned(), found.lengths.clone()));
        let writer = Writer::new(WriterSetup {
            folder: folder.to_owned(),
            found,
            keep: Duration::from_secs(1 << 30),
            queue: Arc::new(Queue::new(Arc::clone(&clock))),
            clock,
            syncer: Arc::clone(&syncer),
            reserve: Reserve::new(folder, 0),
        });
        Self { writer, syncer, waiting: Vec::new() }
    }

    fn write(&mut self, clock: &Hands, random: &mut Rng, next: &mut u64) {
        let mut jobs = VecDeque::new();
        for _ in 0..random.usize(1..5) {
            *next += 1;
            let id = format!("call-{next}");
            let (waiter, receiver) = oneshot::channel();
            let synced = random.bool();
            if synced {
                self.waiting.push((id.clone(), receiver));
            }
            jobs.push_back(Job {
                at: clock.now(),
                body: format!(r#""kind":"end","call":"{id}","text":"{}""#, "x".repeat(random.usize(..250))),
                units: 0,
                durability: if synced { Durability::Synced } else { Durability::Written },
                kind: if random.bool() { JobKind::Begin } else { JobKind::End },
                waiter: Some(waiter),
            });
        }
        self.writer.handle(jobs);
    }

    /// Who was told that their record is durable.
    fn acknowledged(&mut self) -> Vec<String> {
        let told = |(id, receiver): &mut (String, oneshot::Receiver<_>)| {
            matches!(receiver.try_recv(), Ok(Ok(()))).then(|| id.clone())
        };
        self.waiting.iter_mut().filter_map(told).collect()
    }
}

/// What is left of the folder.
fn lose_power(folder: &Path, random: &mut Rng) {
    DISK.with_borrow_mut(|disk| {
        let disk = disk.as_mut().unwrap();
        for path in lines_of(folder) {
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

/// What is wrong after the crashes of a seed.
fn problems(seed: u64, lies: bool) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    DISK.set(Some(Disk { lies, ..Disk::default() }));
    let mut random = Rng::with_seed(seed);
    let start: Timestamp = "2026-11-15T23:59:58Z".parse().unwrap();
    let clock = Arc::new(Hands { wall: start.as_microsecond().into(), running: 0.into() });
    let (mut acknowledged, mut next, mut problems) = (BTreeSet::new(), 0, Vec::new());
    for _crash in 0..4 {
        let mut process = Process::start(folder.path(), &clock);
        for _step in 0..random.usize(1..20) {
            match random.u8(..8) {
                0..=3 => process.write(&clock, &mut random, &mut next),
                4 | 5 => process.syncer.settle_now(),
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
            lines_of(folder.path()).iter().map(|path| fs_err::read_to_string(path).unwrap()).collect();
        let lost = acknowledged.iter().filter(|id| !all.contains(&format!("\"{id}\"")));
        problems.extend(lost.map(|id| format!("{id} was acknowledged and is lost")));
    }
    DISK.set(None);
    problems
}

#[test]
fn nothing_that_was_acknowledged_is_lost_with_the_power() {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let all = 0..number("POWER_LOSS_SEEDS").unwrap_or(SEEDS);
    for seed in number("POWER_LOSS_SEED").map_or(all, |seed| seed..seed + 1) {
        let problems = problems(seed, false);
        assert!(problems.is_empty(), "POWER_LOSS_SEED={seed}: {problems:#?}");
    }
}

/// The simulation finds what is wrong where something is.
#[test]
fn a_disk_that_lies_is_caught() {
    assert!((0..20).any(|seed| !problems(seed, true).is_empty()));
}

#[test]
fn a_seed_does_the_same_again() {
    let with_the_most = |seed| problems(seed, true);
    assert_eq!(with_the_most(3), with_the_most(3));
}
