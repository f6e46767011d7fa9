//! The file backend on a disk that forgets, tears and fails, over thousands of runs.
//!
//! A run is made by its number alone. `TOOLGATE_RUN=17` repeats one, `TOOLGATE_RUNS=100000` makes more of them.

mod disk;

use fastrand::Rng;
use toolgate_store::document::{Act, Kind};
use toolgate_store::file::{Files, Paths};
use toolgate_store::store::{CommitError, Rev};

use crate::kit::{op, tool};
use disk::{Lie, SimDisk};

const TOOLS: &str = "/a/tools.json";
const SERVERS: &str = "/b/mcp.json";

#[test]
fn what_was_acknowledged_is_there() {
    let runs: u64 = std::env::var("TOOLGATE_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(3000);
    let only: Option<u64> = std::env::var("TOOLGATE_RUN").ok().and_then(|text| text.parse().ok());
    let (mut crashes, mut failures) = (0, 0);
    for number in only.map_or(0..runs, |only| only..only + 1) {
        match run(number, Lie::None) {
            Ok(told) => {
                crashes += told.crashes;
                failures += told.failures;
            }
            Err(wrong) => panic!("run {number}: {wrong}\nTOOLGATE_RUN={number} repeats it"),
        }
    }
    assert!(only.is_some() || crashes > runs && failures > runs, "{crashes} crashes, {failures} failures");
}

/// A disk that lies shows that the simulation would find a writer that leaves the step out.
#[test]
fn a_step_that_is_left_out_is_noticed() {
    for lie in [Lie::FilesAreNotSynced, Lie::FoldersAreNotSynced, Lie::RenamesCopy] {
        let noticed = (0..400).find(|number| run(*number, lie).is_err());
        assert!(noticed.is_some(), "{lie:?} does no harm in 400 runs");
    }
}

#[derive(Default)]
struct Told {
    crashes: u64,
    failures: u64,
}

/// What a file may hold: what was acknowledged last, or what was tried since.
type Possible = [Vec<Option<String>>; 2];

fn run(number: u64, lie: Lie) -> Result<Told, String> {
    let mut rng = Rng::with_seed(number);
    // Names of temporary files, too.
    fastrand::seed(number);
    let disk = SimDisk::new(rng.fork(), lie);
    let mut told = Told::default();
    let mut possible: Possible = [vec![None], vec![None]];
    for _ in 0..rng.usize(2..6) {
        let Some(mut files) = open(&disk, &mut rng, &mut possible, &mut told)? else { continue };
        live(&mut files, &disk, &mut rng, &mut possible, &mut told)?;
        disk.crash();
        told.crashes += 1;
    }
    disk.behave();
    let mut files = Files::open(disk.clone(), paths()).map_err(|error| error.to_string())?;
    compare(&mut files, &possible)?;
    if disk.temporary_files() > 0 {
        return Err("something is left beside the files".to_owned());
    }
    Ok(told)
}

fn paths() -> Paths {
    Paths { tools: Some(TOOLS.into()), servers: Some(SERVERS.into()) }
}

/// Opens the files and compares. A start may fail or crash as well.
fn open(
    disk: &SimDisk,
    rng: &mut Rng,
    possible: &mut Possible,
    told: &mut Told,
) -> Result<Option<Files<SimDisk>>, String> {
    disk.trouble(rng);
    let Ok(mut files) = Files::open(disk.clone(), paths()) else {
        told.failures += 1;
        disk.crash();
        disk.behave();
        compare(&mut Files::open(disk.clone(), paths()).map_err(|error| error.to_string())?, possible)?;
        disk.crash();
        return Ok(None);
    };
    // What a start finds is safe: nothing that was tried before can come back.
    if let Some(found) = compare(&mut files, possible)? {
        *possible = found.map(|text| vec![text]);
    }
    Ok(Some(files))
}

/// What the files hold, which must be possible.
fn compare(files: &mut Files<SimDisk>, possible: &Possible) -> Result<Option<[Option<String>; 2]>, String> {
    // A read that fails says nothing.
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

/// Changes until the disk is dead, or enough was done.
fn live(
    files: &mut Files<SimDisk>,
    disk: &SimDisk,
    rng: &mut Rng,
    possible: &mut Possible,
    told: &mut Told,
) -> Result<(), String> {
    for _ in 0..rng.usize(1..8) {
        if rng.u8(..) < 24 {
            // Somebody else writes, whole and safe.
            let text = format!("{{\"tools\": [] /* {} */}}", rng.u32(..));
            disk.put(TOOLS, &text);
            possible[0] = vec![Some(text)];
        }
        let Ok(before) = files.snapshot() else { break };
        let wrong = Rev::of([None, Some(b"another")]);
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
        for (at, kind) in [Kind::Tool, Kind::Server].into_iter().enumerate() {
            if ops.iter().any(|op| op.kind == kind) {
                possible[at].push(after.of(kind).map(toolgate_store::document::Document::text));
            }
        }
        match files.commit(Some(before.rev), &ops) {
            Ok(snapshot) => {
                let texts = [snapshot.texts.tools, snapshot.texts.servers]
                    .map(|text| text.map(|text| text.to_string()));
                for (at, text) in texts.into_iter().enumerate() {
                    // The folder was synced where its file was written; elsewhere doubt stays.
                    let kind = [Kind::Tool, Kind::Server][at];
                    if ops.iter().any(|op| op.kind == kind) && text != before_text(&before, at) {
                        possible[at] = vec![text];
                    }
                }
            }
            Err(CommitError::Unavailable(_)) => told.failures += 1,
            Err(error) => return Err(format!("refused: {error}")),
        }
        if disk.is_dead() {
            break;
        }
        compare(files, possible)?;
    }
    Ok(())
}

fn before_text(before: &toolgate_store::store::Snapshot, at: usize) -> Option<String> {
    [&before.texts.tools, &before.texts.servers][at].as_ref().map(|text| text.to_string())
}

fn change(rng: &mut Rng, before: &toolgate_store::store::Snapshot) -> toolgate_store::document::Op {
    let kind = if rng.bool() { Kind::Tool } else { Kind::Server };
    let name = format!("n{}", rng.u8(..6));
    let there =
        before.documents.as_ref().is_ok_and(|all| all.of(kind).is_some_and(|own| own.entry(&name).is_some()));
    let act = match (there, rng.bool()) {
        (false, _) => Act::Add(tool(rng.u64(..))),
        (true, true) => Act::Replace(tool(rng.u64(..))),
        (true, false) => Act::Remove,
    };
    op(kind, &name, act)
}
