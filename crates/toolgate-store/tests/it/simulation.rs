//! The file backend on a simulated disk that loses, tears and fails, over thousands of runs.
//!
//! A run depends only on its number. `TOOLGATE_RUN=17` repeats one, `TOOLGATE_RUNS=100000` sets their number.

mod disk;

use fastrand::Rng;
use toolgate_store::document::{EntryAction, EntryKind};
use toolgate_store::file::{RegistryFiles, RegistryPaths};
use toolgate_store::store::{CommitError, Revision};

use crate::kit::{op, tool};
use disk::{DiskLie, SimDisk};

const TOOLS: &str = "/a/tools.json";
const SERVERS: &str = "/b/mcp.json";

#[test]
fn acknowledged_changes_survive_crashes() {
    let runs: u64 = std::env::var("TOOLGATE_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(3000);
    let only: Option<u64> = std::env::var("TOOLGATE_RUN").ok().and_then(|text| text.parse().ok());
    let (mut crashes, mut failures) = (0, 0);
    for number in only.map_or(0..runs, |only| only..only + 1) {
        match run(number, DiskLie::None) {
            Ok(stats) => {
                crashes += stats.crashes;
                failures += stats.failures;
            }
            Err(wrong) => panic!("run {number}: {wrong}\nTOOLGATE_RUN={number} repeats it"),
        }
    }
    assert!(only.is_some() || crashes > runs && failures > runs, "{crashes} crashes, {failures} failures");
}

/// A disk that skips a step shows that the simulation would detect a writer that omits it.
#[test]
fn detects_an_omitted_step() {
    for lie in [DiskLie::FilesAreNotSynced, DiskLie::FoldersAreNotSynced, DiskLie::RenamesCopy] {
        let noticed = (0..400).find(|number| run(*number, lie).is_err());
        assert!(noticed.is_some(), "{lie:?} does no harm in 400 runs");
    }
}

#[derive(Default)]
struct RunStats {
    crashes: u64,
    failures: u64,
}

/// Possible contents of each file: the last acknowledged ones, and those attempted since.
type Possible = [Vec<Option<String>>; 2];

fn run(number: u64, lie: DiskLie) -> Result<RunStats, String> {
    let mut rng = Rng::with_seed(number);
    // Also seeds the names of temporary files.
    fastrand::seed(number);
    let disk = SimDisk::new(rng.fork(), lie);
    let mut stats = RunStats::default();
    let mut possible: Possible = [vec![None], vec![None]];
    for _ in 0..rng.usize(2..6) {
        let Some(mut files) = open(&disk, &mut rng, &mut possible, &mut stats)? else { continue };
        make_changes(&mut files, &disk, &mut rng, &mut possible, &mut stats)?;
        disk.crash();
        stats.crashes += 1;
    }
    disk.stop_failing();
    let mut files = RegistryFiles::open(disk.clone(), paths()).map_err(|error| error.to_string())?;
    compare(&mut files, &possible)?;
    if disk.temporary_files() > 0 {
        return Err("a temporary file is left".to_owned());
    }
    Ok(stats)
}

fn paths() -> RegistryPaths {
    RegistryPaths { tools: Some(TOOLS.into()), servers: Some(SERVERS.into()) }
}

/// Opens the files and compares them. Opening may fail or crash as well.
fn open(
    disk: &SimDisk,
    rng: &mut Rng,
    possible: &mut Possible,
    stats: &mut RunStats,
) -> Result<Option<RegistryFiles<SimDisk>>, String> {
    disk.start_failing(rng);
    let Ok(mut files) = RegistryFiles::open(disk.clone(), paths()) else {
        stats.failures += 1;
        disk.crash();
        disk.stop_failing();
        compare(
            &mut RegistryFiles::open(disk.clone(), paths()).map_err(|error| error.to_string())?,
            possible,
        )?;
        disk.crash();
        return Ok(None);
    };
    // The contents found at a start are durable: no earlier attempt can reappear.
    if let Some(found) = compare(&mut files, possible)? {
        *possible = found.map(|text| vec![text]);
    }
    Ok(Some(files))
}

/// Returns the contents of the files, or an error if they are not possible.
fn compare(
    files: &mut RegistryFiles<SimDisk>,
    possible: &Possible,
) -> Result<Option<[Option<String>; 2]>, String> {
    // A failed read proves nothing.
    let Ok(snapshot) = files.snapshot() else { return Ok(None) };
    let texts = [snapshot.texts.tools, snapshot.texts.servers].map(|text| text.map(|text| text.to_string()));
    for (text, possible) in texts.iter().zip(possible) {
        if !possible.contains(text) {
            return Err(format!("found {text:?}, of {possible:#?}"));
        }
    }
    snapshot.documents.map_err(|error| format!("{texts:?}: {error}"))?;
    Ok(Some(texts))
}

/// Makes changes until the disk is dead, or for a random number of steps.
fn make_changes(
    files: &mut RegistryFiles<SimDisk>,
    disk: &SimDisk,
    rng: &mut Rng,
    possible: &mut Possible,
    stats: &mut RunStats,
) -> Result<(), String> {
    for _ in 0..rng.usize(1..8) {
        if rng.u8(..) < 24 {
            // Another program writes a complete file and syncs it.
            let text = format!("{{\"tools\": [] /* {} */}}", rng.u32(..));
            disk.put(TOOLS, &text);
            possible[0] = vec![Some(text)];
        }
        let Ok(before) = files.snapshot() else { break };
        let wrong = Revision::of_contents([None, Some(b"another")]);
        if rng.u8(..) < 16 {
            let outcome = files.commit(Some(wrong), &[]);
            let refused = matches!(outcome, Err(CommitError::Conflict { .. } | CommitError::Unavailable(_)));
            refused.then_some(()).ok_or("a stale revision is not refused")?;
        }
        let ops: Vec<_> = (0..rng.usize(1..4)).map(|_| change(rng, &before)).collect();
        let mut after = before.documents.clone().map_err(|error| error.to_string())?;
        if ops.iter().any(|op| after.apply(op).is_err()) {
            continue;
        }
        for (at, kind) in [EntryKind::Tool, EntryKind::Server].into_iter().enumerate() {
            if ops.iter().any(|op| op.kind == kind) {
                possible[at].push(after.get(kind).map(toolgate_store::document::RegistryDocument::text));
            }
        }
        match files.commit(Some(before.rev), &ops) {
            Ok(snapshot) => {
                let texts = [snapshot.texts.tools, snapshot.texts.servers]
                    .map(|text| text.map(|text| text.to_string()));
                for (at, text) in texts.into_iter().enumerate() {
                    // The folder was synced only if its file was written; otherwise both contents remain possible.
                    let kind = [EntryKind::Tool, EntryKind::Server][at];
                    if ops.iter().any(|op| op.kind == kind) && text != before_text(&before, at) {
                        possible[at] = vec![text];
                    }
                }
            }
            Err(CommitError::Unavailable(_)) => stats.failures += 1,
            Err(error) => return Err(format!("refused: {error}")),
        }
        if disk.is_dead() {
            break;
        }
        compare(files, possible)?;
    }
    Ok(())
}

fn before_text(before: &toolgate_store::store::RegistrySnapshot, at: usize) -> Option<String> {
    [&before.texts.tools, &before.texts.servers][at].as_ref().map(|text| text.to_string())
}

fn change(
    rng: &mut Rng,
    before: &toolgate_store::store::RegistrySnapshot,
) -> toolgate_store::document::EntryOp {
    let kind = if rng.bool() { EntryKind::Tool } else { EntryKind::Server };
    let name = format!("n{}", rng.u8(..6));
    let there = before
        .documents
        .as_ref()
        .is_ok_and(|all| all.get(kind).is_some_and(|own| own.entry(&name).is_some()));
    let act = match (there, rng.bool()) {
        (false, _) => EntryAction::Add(tool(rng.u64(..))),
        (true, true) => EntryAction::Replace(tool(rng.u64(..))),
        (true, false) => EntryAction::Remove,
    };
    op(kind, &name, act)
}
