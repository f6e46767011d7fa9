//! SIGKILL at any moment: acknowledged records survive, and the hash chain is intact.
//!
//! A child process writes and prints each acknowledgement; it is killed, and the files are compared with its output.
//! Two deliberately wrong writers prove that the comparison detects lost records.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use toolgate_audit::{Durability, ExecutionLog, FaultKind, LogOptions};

use crate::kit::{TASK, again, begin, begin_call, raw, success, verify};

/// Prefix of an acknowledgement in the child's output.
const ACK: &str = "ack ";

#[test]
fn twenty_kills() {
    kills(20);
}

#[test]
#[ignore = "takes some minutes"]
fn two_hundred_kills() {
    kills(200);
}

fn kills(count: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = HashSet::new();
    for kill in 0..count {
        acknowledged.extend(run_and_kill("good", folder.path()));
        let problems = problems(folder.path(), &acknowledged);
        assert!(problems.is_empty(), "after kill {kill}: {problems:?}");
    }
    assert!(acknowledged.len() > 10 * count, "only {} were acknowledged", acknowledged.len());
    let log = ExecutionLog::open(folder.path(), LogOptions::default()).unwrap();
    assert!(log.torn_tails().len() <= 1);
    drop(log);
    assert_eq!(verify(folder.path()).faults, []);
}

#[test]
fn detects_a_writer_that_acknowledges_too_early() {
    caught("early");
}

#[test]
fn detects_a_writer_that_rewrites_in_place() {
    caught("in_place");
}

fn caught(task: &str) {
    let found = (0..20).any(|_| {
        let folder = tempfile::tempdir().unwrap();
        let acknowledged = run_and_kill(task, folder.path());
        !problems(&folder.path().join("target"), &acknowledged).is_empty()
    });
    assert!(found, "20 kills found no fault in a faulty writer");
}

/// Returns the problems of a log, given the acknowledged records.
fn problems(folder: &Path, acknowledged: &HashSet<String>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut torn = 0;
    for fault in verify(folder).faults {
        match fault.kind {
            FaultKind::Torn { .. } => torn += 1,
            _ => problems.push(fault.to_string()),
        }
    }
    if torn > 1 {
        problems.push(format!("{torn} torn lines"));
    }
    let found = records(folder);
    problems.extend(acknowledged.difference(&found).map(|record| format!("lost: {record}")));
    problems
}

/// Returns `begin ID` and `end ID` for every whole line.
fn records(folder: &Path) -> HashSet<String> {
    let mut records = HashSet::new();
    for entry in fs_err::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            records.extend(fs_err::read_to_string(path).unwrap().lines().filter_map(record));
        }
    }
    records
}

fn record(line: &str) -> Option<String> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    Some(format!("{} {}", line["kind"].as_str()?, line["call"].as_str()?))
}

/// Starts a child, kills it shortly after its first acknowledgement, and returns all acknowledgements.
fn run_and_kill(task: &str, folder: &Path) -> HashSet<String> {
    let mut command = again("crash::child", task);
    command.arg("--test-threads=1").env("FOLDER", folder).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut text = first_acknowledgement(&mut child, &mut output);
    // A random moment: the kill must not wait for anything.
    std::thread::sleep(Duration::from_micros(fastrand::u64(0..30_000)));
    child.kill().unwrap();
    child.wait().unwrap();
    output.read_to_string(&mut text).unwrap();
    // An incomplete line is not an acknowledgement.
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    text[..whole].lines().filter_map(|line| line.strip_prefix(ACK)).map(str::to_owned).collect()
}

fn first_acknowledgement(child: &mut Child, output: &mut BufReader<ChildStdout>) -> String {
    let mut text = String::new();
    while !text.lines().any(|line| line.starts_with(ACK)) {
        let read = output.read_line(&mut text).unwrap();
        assert!(read > 0, "the child exited by itself: {:?} {text}", child.wait());
    }
    text
}

fn acknowledge(kind: &str, id: &str) {
    let mut output = std::io::stdout();
    writeln!(output, "{ACK}{kind} {id}").unwrap();
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
        "early" => early(&folder),
        "in_place" => in_place(&folder),
        task => panic!("no such task: {task}"),
    }
}

fn good(folder: &Path) {
    let log = ExecutionLog::open(folder, LogOptions::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let forever = async |log: ExecutionLog, durability, size: usize| loop {
        let arguments = raw(&format!("\"{}\"", "x".repeat(fastrand::usize(..size))));
        let id = log.new_call_id();
        let open = begin_call(&log, &begin(&id, "files.write", &arguments), durability).await.unwrap();
        acknowledge("begin", &id);
        if fastrand::u8(..) < 16 {
            continue; // The client left.
        }
        open.end(&success(&arguments), durability).await.unwrap();
        acknowledge("end", &id);
    };
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for index in 0..8 {
            let durability = if index % 2 == 0 { Durability::Written } else { Durability::Synced };
            // Large enough for a kill to hit the middle of a write.
            let size = if index == 0 { 200_000 } else { 600 };
            tasks.spawn(forever(log.clone(), durability, size));
        }
        tasks.join_all().await;
    });
}

/// Returns the lines of a correct log, for the faulty writers.
fn lines(folder: &Path) -> Vec<String> {
    let folder = folder.join("source");
    let log = ExecutionLog::open(&folder, LogOptions::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let arguments = raw("{}");
    runtime.block_on(async {
        for _ in 0..1000 {
            let id = log.new_call_id();
            let asked = begin(&id, "files.write", &arguments);
            log.record(&asked, &success(&arguments), Durability::Written).await.unwrap();
        }
    });
    drop(log);
    let name = crate::kit::names(&folder).into_iter().find(|name| name.ends_with(".jsonl")).unwrap();
    let text = fs_err::read_to_string(folder.join(&name)).unwrap();
    fs_err::create_dir(folder.with_file_name("target")).unwrap();
    text.lines().map(|line| format!("{line}\n")).chain([name]).collect()
}

fn acknowledge_line(line: &str) {
    let said = record(line).unwrap();
    let (kind, id) = said.split_once(' ').unwrap();
    acknowledge(kind, id);
}

/// Faulty: acknowledges records that are still in memory.
fn early(folder: &Path) {
    let mut lines = lines(folder);
    let path = folder.join("target").join(lines.pop().unwrap());
    let mut file = fs_err::OpenOptions::new().append(true).create(true).open(path).unwrap();
    let mut waiting = String::new();
    for (index, line) in lines.iter().enumerate() {
        acknowledge_line(line);
        waiting += line;
        if index % 20 == 19 {
            file.write_all(waiting.as_bytes()).unwrap();
            waiting.clear();
        }
    }
    std::thread::park();
}

/// Faulty: while it rewrites the file, acknowledged records are nowhere.
fn in_place(folder: &Path) {
    let mut lines = lines(folder);
    let path = folder.join("target").join(lines.pop().unwrap());
    let mut all = String::new();
    for line in &lines {
        all += line;
        fs_err::write(&path, &all).unwrap();
        acknowledge_line(line);
    }
    std::thread::park();
}
