//! Processes that are killed while they write.
//!
//! The test starts itself as the process to kill. The changes it acknowledged are compared with the files after the
//! next start. Two deliberately faulty writers prove that the comparison detects lost changes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value as Json;
use tokio::task::JoinSet;
use toolgate_store::document::{EntryAction, EntryKind, EntryOp, RegistryDocument};
use toolgate_store::file::FileStore;
use toolgate_store::registry::Registry;

use crate::kit::{add, change, check, nowhere, op, paths, tool};

const TASK: &str = "TOOLGATE_STORE_TASK";
/// Prefixes of the child's output: before a change is requested, and after it was acknowledged.
const TRY: &str = "TRY ";
const ACK: &str = "ACK ";
const WRITERS: usize = 64;
const SEEDED: usize = 100;

#[test]
fn kills() {
    survives(12);
}

#[test]
#[ignore = "takes minutes; `cargo xtask crash` runs it"]
fn two_hundred_kills() {
    survives(200);
}

/// Kills a process repeatedly, each time on the files that the previous one left.
#[expect(clippy::print_stderr, reason = "the number of tested changes is part of the result")]
fn survives(kills: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut model = seed(folder.path());
    let mut acknowledged = 0;
    for kill in 0..kills {
        let said = run_and_kill("good", folder.path());
        acknowledged += said.iter().filter(|line| line.starts_with(ACK)).count();
        let problems = compare(folder.path(), &mut model, &said);
        assert!(problems.is_empty(), "after kill {kill}: {problems:#?}");
    }
    eprintln!("{kills} kills, {acknowledged} acknowledged changes");
    assert!(acknowledged > kills, "{acknowledged} changes are too few to say anything");
}

#[test]
fn detects_a_writer_that_acknowledges_too_early() {
    assert_detected("early");
}

#[test]
fn detects_a_writer_that_writes_in_place() {
    assert_detected("in_place");
}

fn assert_detected(task: &str) {
    let found = (0..40).any(|_| {
        let folder = tempfile::tempdir().unwrap();
        let mut model = seed(folder.path());
        let said = run_and_kill(task, folder.path());
        !compare(folder.path(), &mut model, &said).is_empty()
    });
    assert!(found, "40 kills found no fault in a faulty writer");
}

/// The version of each entry; `None` if it does not exist.
type Model = BTreeMap<String, Option<u64>>;

fn seed(folder: &Path) -> Model {
    let mut document =
        RegistryDocument::parse(EntryKind::Tool, &RegistryDocument::empty_text(EntryKind::Tool)).unwrap();
    let names: Vec<_> = (0..SEEDED).map(|n| format!("seed{n}")).collect();
    for name in &names {
        document.apply(name, &add(name).action).unwrap();
    }
    fs_err::write(folder.join("tools.json"), document.text()).unwrap();
    names.into_iter().map(|name| (name, Some(1))).collect()
}

/// Returns the problems of the file after a kill. An entry must have the last acknowledged or a later attempted
/// version.
fn compare(folder: &Path, model: &mut Model, said: &[String]) -> Vec<String> {
    let text = fs_err::read_to_string(folder.join("tools.json")).unwrap();
    let document: Json = match serde_json::from_str(&text) {
        Ok(document) => document,
        Err(error) => return vec![format!("the file is torn: {error}")],
    };
    let found: Model = document["tools"].as_array().unwrap().iter().map(entry).collect();
    let mut tried: BTreeMap<String, Vec<Option<u64>>> = BTreeMap::new();
    for line in said {
        let (acknowledged, line) = match line.strip_prefix(TRY) {
            Some(line) => (false, line),
            None => (true, line.strip_prefix(ACK).unwrap()),
        };
        let (name, version) = line.split_once(' ').unwrap();
        let version = version.parse().ok();
        if acknowledged {
            model.insert(name.to_owned(), version);
            tried.remove(name);
        } else {
            tried.entry(name.to_owned()).or_default().push(version);
        }
    }
    let mut problems = Vec::new();
    for (name, expected) in model.iter() {
        let found = found.get(name).copied().flatten();
        let possible = tried.get(name).is_some_and(|tried| tried.contains(&found));
        if found != *expected && !possible {
            problems.push(format!("{name}: found {found:?}, acknowledged {expected:?}"));
        }
    }
    for name in found.keys().filter(|name| !model.contains_key(*name)) {
        if !tried.contains_key(name) {
            problems.push(format!("{name} was never asked for"));
        }
    }
    // The next run continues from the present contents.
    model.retain(|name, _| found.contains_key(name));
    model.extend(found);
    problems
}

fn entry(tool: &Json) -> (String, Option<u64>) {
    let version = tool["description"].as_str().and_then(|text| text.strip_prefix("version ")?.parse().ok());
    (tool["name"].as_str().unwrap_or_default().to_owned(), version)
}

/// Starts a process, kills it shortly after its first acknowledgement, and returns its output.
fn run_and_kill(task: &str, folder: &Path) -> Vec<String> {
    let mut child = again(task, folder);
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut text = first_acknowledgement(&mut child, &mut output);
    // A random moment: the kill must not wait for anything. The output is read in the meantime.
    let reader = std::thread::spawn(move || {
        let _ = output.read_to_string(&mut text);
        text
    });
    std::thread::sleep(Duration::from_micros(fastrand::u64(0..300_000)));
    child.kill().unwrap();
    child.wait().unwrap();
    let text = reader.join().unwrap();
    // An incomplete line does not count.
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    let said = |line: &&str| line.starts_with(TRY) || line.starts_with(ACK);
    text[..whole].lines().filter(said).map(str::to_owned).collect()
}

#[expect(clippy::disallowed_methods, reason = "it is killed on purpose")]
fn again(task: &str, folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["crash::child", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(TASK, task)
        .env("FOLDER", folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn first_acknowledgement(child: &mut Child, output: &mut BufReader<ChildStdout>) -> String {
    let mut text = String::new();
    while !text.lines().any(|line| line.starts_with(ACK)) {
        let read = output.read_line(&mut text).unwrap();
        assert!(read > 0, "the child ended by itself: {:?} {text}", child.wait());
    }
    text
}

fn say(what: &str, op: &EntryOp) {
    let version = match &op.action {
        EntryAction::Remove => "-".to_owned(),
        EntryAction::Add(entry) | EntryAction::Replace(entry) | EntryAction::Patch(entry) => {
            entry["description"].as_str().unwrap().strip_prefix("version ").unwrap().to_owned()
        }
    };
    let mut output = std::io::stdout().lock();
    writeln!(output, "\n{what}{} {version}", op.name).unwrap();
    output.flush().unwrap();
}

/// The process that is killed.
#[test]
#[ignore = "run by the other tests"]
fn child() {
    let Ok(task) = std::env::var(TASK) else { return };
    let folder = PathBuf::from(std::env::var("FOLDER").unwrap());
    match task.as_str() {
        "good" => good(&folder),
        "early" => bad(&folder, true),
        "in_place" => bad(&folder, false),
        task => panic!("no such task: {task}"),
    }
}

/// Runs writers that change disjoint entries, so that the contents of each entry are known.
fn good(folder: &Path) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = FileStore::open(paths(folder)).await.unwrap();
        let (registry, actor) = Registry::open(store, check(), nowhere()).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(actor.run());
        for writer in 0..WRITERS {
            tasks.spawn(write(registry.clone(), writer));
        }
        tasks.join_all().await;
    });
}

async fn write(registry: Registry, writer: usize) {
    loop {
        let name = match fastrand::bool() {
            true => format!("seed{}", writer + WRITERS * fastrand::usize(..2)),
            false => format!("own{writer}_{}", fastrand::u8(..4)),
        };
        let there = registry.state().documents.tools.as_ref().unwrap().entry(&name).is_some();
        let version = tool(fastrand::u64(2..1_000_000));
        let act = match (there, fastrand::u8(..4)) {
            (false, _) => EntryAction::Add(version),
            (true, 0) => EntryAction::Remove,
            (true, 1) => EntryAction::Patch(version),
            (true, _) => EntryAction::Replace(version),
        };
        let op = op(EntryKind::Tool, &name, act);
        say(TRY, &op);
        registry.submit(change(op.clone())).await.unwrap();
        say(ACK, &op);
    }
}

/// Faulty in one of two ways: acknowledges changes that are only in memory, or overwrites the file in place.
fn bad(folder: &Path, early: bool) {
    let path = folder.join("tools.json");
    let mut document =
        RegistryDocument::parse(EntryKind::Tool, &fs_err::read_to_string(&path).unwrap()).unwrap();
    for round in 0.. {
        let op = op(
            EntryKind::Tool,
            &format!("seed{}", fastrand::usize(..SEEDED)),
            EntryAction::Replace(tool(2 + round)),
        );
        say(TRY, &op);
        document.apply(&op.name, &op.action).unwrap();
        if early {
            say(ACK, &op);
            if round % 20 == 19 {
                let beside = folder.join("beside");
                fs_err::write(&beside, document.text()).unwrap();
                fs_err::rename(&beside, &path).unwrap();
            }
        } else {
            fs_err::write(&path, document.text()).unwrap();
            say(ACK, &op);
        }
    }
}
