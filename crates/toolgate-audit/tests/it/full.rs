//! Full and failing disks, and recovery afterwards.
//!
//! Uses a real file system of one megabyte, and errors that `strace` injects into system calls. Both need privileges;
//! on machines without them these tests print a notice and pass.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use toolgate_audit::{Durability, ExecutionLog, LogOptions, LogReader};

use crate::kit::{TASK, again, assert_whole, begin, begin_call, program, raw, success, verify};

/// Runs the child under another program. Returns false if that program does not work on this machine.
#[expect(clippy::print_stderr, reason = "skipped tests must be visible in the output")]
fn run_under(wrapper: &[&str], works: &[&str], task: &str, folder: &Path) -> bool {
    let probe = program(works[0]).args(&works[1..]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: `{}` does not work here", works.join(" "));
        return false;
    }
    let child = again("full::child", task);
    let mut command: Command = program(wrapper[0]);
    command.args(&wrapper[1..]).arg(child.get_program()).args(child.get_args());
    let output = command.env(TASK, task).env("FOLDER", folder).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    true
}

#[test]
fn full_disk_rejects_calls_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let mount = r#"mount -t tmpfs -o size=1m tmpfs "$FOLDER" && exec "$0" "$@""#;
    let works = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", folder.path().to_str().unwrap()];
    run_under(&["unshare", "-m", "sh", "-c", mount], &works, "full", folder.path());
}

#[test]
fn failed_sync_is_not_retried_on_the_same_descriptor() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let (log, name) = (folder.path().join("log"), trace.to_str().unwrap());
    let inject = "inject=fdatasync:error=EIO:when=3+4";
    let wrapper = ["strace", "-f", "-o", name, "-e", "trace=fdatasync,close,openat", "-e", inject];
    if run_under(&wrapper, &["strace", "-f", "-o", "/dev/null", "true"], "errors", &log) {
        assert_whole_after_errors(&log);
        no_descriptor_is_synced_after_an_error(&fs_err::read_to_string(trace).unwrap());
    }
}

#[test]
fn failed_write_leaves_nothing_behind() {
    for error in ["EIO", "ENOSPC"] {
        let folder = tempfile::tempdir().unwrap();
        let inject = format!("inject=pwrite64,pwritev:error={error}:when=2+5");
        let wrapper = ["strace", "-f", "-o", "/dev/null", "-e", "trace=pwrite64,pwritev", "-e", &inject];
        let works = ["strace", "-f", "-o", "/dev/null", "true"];
        if run_under(&wrapper, &works, "errors", folder.path()) {
            assert_whole_after_errors(folder.path());
        }
    }
}

fn assert_whole_after_errors(folder: &Path) {
    let verified = verify(folder);
    assert_eq!(verified.faults, []);
    // Every begin has its end, even if the begin was rejected after it had been written.
    assert_eq!(verified.records % 2, 0);
    let calls = LogReader::new(folder).query(toolgate_audit::CallFilter::default()).unwrap();
    assert!(calls.map(Result::unwrap).all(|call| call.begin.is_some() && call.end.is_some()));
}

fn no_descriptor_is_synced_after_an_error(trace: &str) {
    let descriptor =
        |line: &str| line.split_once('(').map(|(_, rest)| rest.split([')', ' ']).next().unwrap().to_owned());
    let mut failed = Vec::new();
    let mut failures = 0;
    for line in trace.lines() {
        let Some(descriptor) = descriptor(line) else { continue };
        if line.contains(" close(") {
            failed.retain(|failed| *failed != descriptor);
        } else if line.contains(" fdatasync(") {
            assert!(!failed.contains(&descriptor), "synced again: {line}");
            if line.contains("INJECTED") {
                failed.push(descriptor);
                failures += 1;
            }
        }
    }
    assert!(failures > 0, "nothing failed: {trace}");
}

#[test]
#[ignore = "run by the other tests"]
fn child() {
    let Ok(task) = std::env::var(TASK) else { return };
    let folder = PathBuf::from(std::env::var("FOLDER").unwrap());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    match task.as_str() {
        "full" => runtime.block_on(full(&folder)),
        "errors" => runtime.block_on(errors(&folder)),
        task => panic!("no such task: {task}"),
    }
}

async fn full(folder: &Path) {
    let ballast = folder.join("ballast");
    fs_err::write(&ballast, vec![0; 512 << 10]).unwrap();
    let log = ExecutionLog::open(folder, LogOptions::default()).unwrap();
    let small = raw("{}");
    let early = begin_call(&log, &begin("early", "t", &small), Durability::Synced).await.unwrap();
    let large = raw(&format!("\"{}\"", "x".repeat(9_999)));
    let mut written = 1;
    let mut begun = Vec::new();
    loop {
        let id = format!("call-{written}");
        match begin_call(&log, &begin(&id, "t", &large), Durability::Synced).await {
            Ok(open) => begun.push(open),
            Err(_unavailable) => break,
        }
        written += 1;
        assert!(written < 1000, "one megabyte holds no thousand of these");
    }
    assert!(written > 40 && !log.is_available());
    assert_whole(folder, written);
    // New calls are rejected at once.
    assert!(begin_call(&log, &begin("no", "t", &small), Durability::Written).await.is_err());
    // Calls in progress can still record their end, because space is reserved for it.
    early.end(&success(&small), Durability::Synced).await.unwrap();
    assert_whole(folder, written + 1);
    assert_eq!(LogReader::new(folder).show("early").unwrap().unwrap().status(), "success");
    // Ends that exceed the reserve are kept in memory.
    drop(begun.split_off(begun.len() / 2));
    assert_eq!(verify(folder).faults, []);
    fs_err::remove_file(&ballast).unwrap();
    let freed = SystemTime::now();
    let after = loop {
        match begin_call(&log, &begin("after", "t", &small), Durability::Synced).await {
            Ok(open) => break open,
            Err(_unavailable) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    // Takes two seconds on an idle machine; only a hang takes a minute.
    while !log.is_available() {
        assert!(freed.elapsed().unwrap() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    after.end(&success(&small), Durability::Synced).await.unwrap();
    drop(begun);
    drop(log);
    assert_whole(folder, 2 * written + 2);
    let reader = LogReader::new(folder);
    assert_eq!(reader.show("early").unwrap().unwrap().status(), "success");
    assert_eq!(reader.show("call-1").unwrap().unwrap().status(), "abandoned");
    assert!(reader.show("no").unwrap().is_none());
}

/// Makes calls until two were rejected and six succeeded.
async fn errors(folder: &Path) {
    let log = ExecutionLog::open(folder, LogOptions::default()).unwrap();
    let arguments = raw(r#"{"a":1}"#);
    // Long enough to be written in parts.
    let output = raw(&format!(r#"["{}"]"#, "x".repeat(20_000)));
    let (mut refused, mut done) = (0, 0);
    let until = SystemTime::now() + Duration::from_secs(30);
    while refused < 2 || done < 6 {
        assert!(SystemTime::now() < until, "{refused} refused, {done} done");
        let id = log.new_call_id();
        match begin_call(&log, &begin(&id, "t", &arguments), Durability::Synced).await {
            Ok(open) => match open.end(&success(&output), Durability::Synced).await {
                Ok(()) => done += 1,
                Err(_unavailable) => refused += 1,
            },
            Err(_unavailable) => {
                refused += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}
