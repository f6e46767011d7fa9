//! Writing: two records per call, one file per day, one hash chain.

use std::path::Path;
use std::task::Poll;
use std::time::Duration;

use proptest::prelude::*;
use sha2::{Digest, Sha256};
use toolgate_audit::{
    CallFilter, CallStatus, Clock, Durability, ExecutionLog, LogReader, OpenError, StageTime,
};
use toolgate_types::{CallError, ErrorCode, Stage};

use crate::kit::{
    ManualClock, again, assert_whole, begin, begin_call, ids, names, open, raw, success, verify,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Writes a complete call.
async fn call(log: &ExecutionLog, id: &str) {
    let arguments = raw(r#"{"path":"a"}"#);
    let open = begin_call(log, &begin(id, "files.read", &arguments), Durability::Written).await.unwrap();
    open.end(&success(&raw(r#""text""#)), Durability::Written).await.unwrap();
}

#[tokio::test]
async fn reopened_log_continues_its_chain() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at("2026-11-15T10:00:00Z");
    for id in ["a", "b", "c"] {
        let log = open(folder.path(), &clock);
        assert_eq!(log.torn_tails(), []);
        call(&log, id).await;
    }
    assert_whole(folder.path(), 6);
    assert_eq!(ids(folder.path()), ["a", "b", "c"]);
    let text = fs_err::read_to_string(folder.path().join("2026-11-15.jsonl")).unwrap();
    assert!(text.starts_with(r#"{"seq":1,"time":"2026-11-15T10:00:00.000000Z","kind":"begin","call":"a","#));
}

#[tokio::test]
async fn both_durabilities_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let log = ExecutionLog::open(folder.path(), toolgate_audit::LogOptions::default()).unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..200 {
        let log = log.clone();
        tasks.spawn(async move {
            let durability = if index % 3 == 0 { Durability::Synced } else { Durability::Written };
            let arguments = raw("{}");
            let id = log.new_call_id();
            let open = begin_call(&log, &begin(&id, "t", &arguments), durability).await.unwrap();
            open.end(&success(&raw("1")), durability).await.unwrap();
        });
    }
    tasks.join_all().await;
    assert_whole(folder.path(), 400);
}

/// Short records are written by the caller, long ones by the writer thread; neither may be left in the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_caller_waits_forever() {
    let folder = tempfile::tempdir().unwrap();
    let log = ExecutionLog::open(folder.path(), toolgate_audit::LogOptions::default()).unwrap();
    let long = format!("\"{}\"", "word ".repeat(10_000));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8 {
        let (log, long) = (log.clone(), long.clone());
        tasks.spawn(async move {
            for index in 0..100 {
                let arguments = raw("{}");
                let id = log.new_call_id();
                let asked = begin(&id, "t", &arguments);
                let open = begin_call(&log, &asked, Durability::Written).await.unwrap();
                let output = raw(if (task + index) % 4 == 0 { &long } else { "1" });
                open.end(&success(&output), Durability::Written).await.unwrap();
            }
        });
    }
    tokio::time::timeout(Duration::from_secs(60), tasks.join_all())
        .await
        .expect("every caller gets its acknowledgement");
    assert_whole(folder.path(), 1_600);
}

#[tokio::test]
async fn dropped_call_is_recorded_as_abandoned() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at("2026-11-15T10:00:00Z");
    let log = open(folder.path(), &clock);
    let arguments = raw("{}");
    drop(begin_call(&log, &begin("a", "t", &arguments), Durability::Written).await.unwrap());
    // Dropped before the begin was acknowledged.
    let asked = begin("b", "t", &arguments);
    let mut beginning = Box::pin(begin_call(&log, &asked, Durability::Synced));
    let waker = std::task::Waker::noop();
    let _ = beginning.as_mut().poll(&mut std::task::Context::from_waker(waker));
    drop(beginning);
    // Dropped before it was enqueued.
    drop(Box::pin(begin_call(&log, &asked, Durability::Synced)));
    drop(log);
    assert_whole(folder.path(), 4);
    for id in ["a", "b"] {
        let call = LogReader::new(folder.path()).show(id).unwrap().unwrap();
        assert_eq!(call.status(), CallStatus::Abandoned.label());
    }
}

/// With several calls in progress, the first task that runs again writes the records of all.
#[tokio::test]
async fn records_of_ready_tasks_are_written_together() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at("2026-11-15T10:00:00Z");
    let log = open(folder.path(), &clock);
    let file = folder.path().join("2026-11-15.jsonl");
    let lines = || fs_err::read_to_string(&file).unwrap_or_default().lines().count();
    let arguments = raw("{}");
    // The writer thread holds the writer for a moment when it starts, so the first rounds may differ.
    for round in 0.. {
        let (before, mut calls) = (lines(), Vec::new());
        for id in ["a", "b", "c", "d", "e"].map(|id| format!("{id}{round}")) {
            calls.push(log.begin(&begin(&id, "t", &arguments), Durability::Written).await.unwrap());
        }
        let mut waiting: Vec<_> = calls.iter_mut().map(|call| Box::pin(call.acknowledged())).collect();
        let mut polled = || {
            let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
            let polled = waiting.iter_mut().map(|call| call.as_mut().poll(context).map(|done| done.is_ok()));
            (polled.collect::<Vec<_>>(), lines() - before)
        };
        let rounds = [polled(), polled()];
        drop(waiting);
        // A record whose future is never awaited is written, too.
        let before = lines();
        drop(calls.remove(0).end(&success(&raw("1")), Durability::Written));
        if rounds == [(vec![Poll::Pending; 5], 0), (vec![Poll::Ready(true); 5], 5)] && lines() == before + 1 {
            return;
        }
        assert!(round < 100, "{rounds:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn rejected_call_writes_both_records_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at("2026-11-15T10:00:00Z");
    let log = open(folder.path(), &clock);
    let arguments = raw("{}");
    log.record(&begin("a", "t", &arguments), &success(&raw("1")), Durability::Synced).await.unwrap();
    assert_whole(folder.path(), 2);
}

#[test]
fn only_one_process_can_open_a_log() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at("2026-11-15T10:00:00Z");
    let log = open(folder.path(), &clock);
    let second = ExecutionLog::open(folder.path(), crate::kit::options(&clock));
    assert!(matches!(second, Err(OpenError::InUse(_))));
    drop(log);
    open(folder.path(), &clock);
}

#[tokio::test]
async fn torn_line_is_truncated_and_saved() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at("2026-11-15T10:00:00Z");
    call(&open(folder.path(), &clock), "a").await;
    let path = folder.path().join("2026-11-15.jsonl");
    let whole = fs_err::read(&path).unwrap();
    for torn in [&b"{\"seq\":3,\"ti"[..], &[0; 5000], b"\0\0\n\0"] {
        fs_err::write(&path, [&whole, torn].concat()).unwrap();
        assert_eq!(verify(folder.path()).faults.len(), 1 + usize::from(torn.len() == 4));
        let log = open(folder.path(), &clock);
        assert_eq!(log.torn_tails().len(), 1);
        assert_eq!(log.torn_tails()[0].bytes, torn.len() as u64);
        let kept = log.torn_tails()[0].kept.clone().unwrap();
        assert!(fs_err::read(&kept).unwrap().strip_suffix(b"\n").unwrap().ends_with(torn));
        drop(log);
        assert_eq!(fs_err::read(&path).unwrap(), whole);
    }
    call(&open(folder.path(), &clock), "b").await;
    assert_whole(folder.path(), 4);
}

/// Every record is in the file of its UTC day, whatever the local time zone and its daylight saving time.
#[tokio::test]
async fn one_file_per_day() {
    let days = [
        ("2026-11-15", "2026-11-16"), // An ordinary night.
        ("2026-03-07", "2026-03-08"), // Daylight saving time starts in New York.
        ("2026-10-31", "2026-11-01"), // And ends.
        ("2026-12-31", "2027-01-01"),
        ("2028-02-28", "2028-02-29"),
    ];
    for (day, next) in days {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(&format!("{day}T23:59:58Z"));
        let log = open(folder.path(), &clock);
        let mut expected = Vec::new();
        // Across midnight in steps of 50 ms, then through the next day in half hours.
        for step in 0..140 {
            let id = step.to_string();
            call(&log, &id).await;
            expected.push(id);
            clock.pass(if step < 100 { Duration::from_millis(50) } else { Duration::from_secs(1800) });
        }
        drop(log);
        assert_whole(folder.path(), 280);
        assert_eq!(ids(folder.path()), expected);
        assert_eq!(names(folder.path()), [format!("{day}.jsonl"), format!("{next}.jsonl"), "lock".into()]);
        let lines =
            |day| fs_err::read_to_string(folder.path().join(format!("{day}.jsonl"))).unwrap().lines().count();
        assert_eq!((lines(day), lines(next)), (80, 200));
    }
}

#[test]
fn one_file_per_day_in_new_york() {
    let mut command = again("log::one_file_per_day", "");
    let output = command.env("TZ", "America/New_York").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

#[tokio::test]
async fn clock_jumps_do_not_change_the_order() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at("2026-11-15T10:00:00Z");
    let log = open(folder.path(), &clock);
    let day = 24 * 60 * 60;
    let jumps = [0, -day, 0, day, day, -day, 0].into_iter().chain([1; 100]).chain([400 * day, -400 * day]);
    let mut expected = Vec::new();
    for (step, jump) in jumps.enumerate() {
        clock.jump(jump);
        let id = step.to_string();
        call(&log, &id).await;
        expected.push(id);
    }
    drop(log);
    assert_whole(folder.path(), 2 * expected.len() as u64);
    assert_eq!(ids(folder.path()), expected);
    let files = ["2026-11-14.jsonl", "2026-11-15.jsonl", "2026-11-16.jsonl", "2027-12-20.jsonl", "lock"];
    assert_eq!(names(folder.path()), files);
    // The chain continues from the highest sequence number, not from the latest day.
    call(&open(folder.path(), &clock), "x").await;
    assert_whole(folder.path(), 2 * expected.len() as u64 + 2);
}

/// Makes calls until a file is removed: the writer looks for expired files after each write, and a thread removes them.
async fn wait_until_removed(log: &ExecutionLog, file: &Path) {
    let is_gone = async {
        while file.exists() {
            call(log, "again").await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), is_gone).await.unwrap();
}

/// Lets hours pass until a file is removed: one file is removed per hour.
async fn wait_hours_until_removed(log: &ExecutionLog, clock: &ManualClock, file: &Path) {
    let is_removed = async {
        while file.exists() {
            clock.pass(Duration::from_secs(3600));
            call(log, "again").await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), is_removed).await.unwrap();
}

#[tokio::test]
async fn files_are_kept_for_thirty_days() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at("2026-01-01T23:00:00Z");
    let log = open(folder.path(), &clock);
    let first: jiff::civil::Date = "2026-01-01".parse().unwrap();
    let file = |step: u32| {
        folder.path().join(format!("{}.jsonl", first.checked_add(jiff::Span::new().days(step)).unwrap()))
    };
    for step in 0..45 {
        call(&log, &step.to_string()).await;
        if step > 30 {
            wait_until_removed(&log, &file(step - 31)).await;
        }
        assert!(file(step.saturating_sub(29)).exists());
        clock.pass(DAY);
    }
    drop(log);
    let days: Vec<_> = names(folder.path()).into_iter().filter(|name| name.starts_with("2026")).collect();
    // The writer may have checked once more after the last day.
    assert!((30..=31).contains(&days.len()), "{days:?}");
    assert_eq!(verify(folder.path()).faults, []);
    // A change to the first remaining record is still detected.
    let path = folder.path().join(&days[0]);
    let text = fs_err::read_to_string(&path).unwrap();
    fs_err::write(&path, text.replace("files.read", "files.reap")).unwrap();
    assert_eq!(verify(folder.path()).faults[0].line, 1);
}

/// Versions before BLAKE3 hashed every record with SHA-256, however long.
#[tokio::test]
async fn log_of_an_older_version_is_continued() {
    let folder = tempfile::tempdir().unwrap();
    let (mut text, mut hash) = (String::new(), "0".repeat(64));
    for (seq, length) in [3, 100_000, 3].into_iter().enumerate() {
        let line = format!(
            r#"{{"seq":{},"time":"2026-11-15T09:00:00.000000Z","kind":"note","text":"{}""#,
            seq + 1,
            "x".repeat(length)
        );
        hash = Sha256::digest(format!("{hash}{line}}}")).iter().map(|byte| format!("{byte:02x}")).collect();
        text += &format!("{line},\"hash\":\"{hash}\"}}\n");
    }
    let path = folder.path().join("2026-11-15.jsonl");
    fs_err::write(&path, &text).unwrap();
    assert_whole(folder.path(), 3);
    let log = open(folder.path(), &ManualClock::at("2026-11-15T10:00:00Z"));
    call(&log, "a").await;
    let output = raw(&format!(r#"{{"text":"{}"}}"#, "y".repeat(100_000)));
    let arguments = raw("{}");
    let open = begin_call(&log, &begin("b", "files.read", &arguments), Durability::Written).await.unwrap();
    open.end(&success(&output), Durability::Synced).await.unwrap();
    drop(log);
    assert_whole(folder.path(), 7);
    let whole = fs_err::read_to_string(&path).unwrap();
    let long = whole.lines().last().unwrap();
    assert!(whole.starts_with(&text) && long.contains(output.as_str()));
    assert!(whole.matches(r#","hashed_with":"blake3","hash":""#).count() == 1 && long.contains("blake3"));
    let call = LogReader::new(folder.path()).show("b").unwrap().unwrap();
    assert_eq!(call.end.unwrap().output.unwrap().get(), output.as_str());
    // Changes are noticed in old and in new records.
    for (old, new, line) in [("xxxx", "xxxy", 2), ("yyyy", "yyyz", 7), (r#","hashed_with":"blake3""#, "", 7)]
    {
        fs_err::write(&path, whole.replacen(old, new, 1)).unwrap();
        let faults = verify(folder.path()).faults;
        assert_eq!(faults.iter().map(|fault| fault.line).collect::<Vec<_>>(), [line], "{old}");
    }
}

#[tokio::test]
async fn wrong_clock_removes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at("2026-01-01T12:00:00Z");
    for step in 0..20 {
        call(&open(folder.path(), &clock), &step.to_string()).await;
        clock.pass(DAY);
    }
    let count = || names(folder.path()).iter().filter(|name| name.starts_with("202")).count();
    let log = open(folder.path(), &clock);
    clock.jump(400 * 24 * 60 * 60);
    for step in 20..23 {
        clock.pass(Duration::from_secs(7200));
        call(&log, &step.to_string()).await;
    }
    drop(log);
    assert_eq!(count(), 21);
    // Opened with a wrong clock, and open for two days.
    for year in 1..3 {
        clock.jump(400 * 24 * 60 * 60);
        let log = open(folder.path(), &clock);
        for hour in 0..48 {
            clock.pass(Duration::from_secs(3601));
            call(&log, &format!("{year}.{hour}")).await;
        }
        drop(log);
        assert_eq!(verify(folder.path()).faults, []);
        assert!(folder.path().join("2026-01-01.jsonl").exists(), "it is 21 days old");
    }
}

/// Files are removed in time even if the log is opened anew for every call.
#[tokio::test]
async fn files_of_short_processes_expire() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at("2026-01-01T12:00:00Z");
    let first = folder.path().join("2026-01-01.jsonl");
    for step in 0..=32 {
        assert!(step == 0 || first.exists(), "{step}");
        call(&open(folder.path(), &clock), &step.to_string()).await;
        clock.pass(DAY);
    }
    assert!(!first.exists());
}

/// Records from a boot with an unset clock stay as long as others, whether it showed the past or the future.
#[tokio::test]
async fn boots_with_an_unset_clock_expire_nothing() {
    const HOUR: Duration = Duration::from_secs(3600);
    let right: jiff::Timestamp = "2026-11-15T12:00:00Z".parse().unwrap();
    for day in ["1970-01-01", "2099-01-01"] {
        let folder = tempfile::tempdir().unwrap();
        let unset: jiff::Timestamp = format!("{day}T00:00:05Z").parse().unwrap();
        let clock = ManualClock::at(&unset.to_string());
        let set = |time: jiff::Timestamp| clock.jump(time.as_second() - clock.now().as_second());
        let wrong = folder.path().join(format!("{day}.jsonl"));
        // Every week, the machine boots with the wrong time, makes a call, and corrects the clock.
        for week in 0..4 {
            set(unset);
            let log = open(folder.path(), &clock);
            call(&log, &format!("{week}.wrong")).await;
            set(right + clock.elapsed());
            for hour in 0..7 * 24 {
                clock.pass(HOUR);
                call(&log, &format!("{week}.{hour}")).await;
            }
            assert!(wrong.exists() && folder.path().join("2026-11-16.jsonl").exists(), "{day} {week}");
        }
        // Another week after its last record, the file is still too young for 23 days.
        let log = open(folder.path(), &clock);
        for hour in 0..30 * 24 {
            assert!(hour > 23 * 24 || wrong.exists(), "{day} {hour}");
            clock.pass(HOUR);
            call(&log, &format!("last.{hour}")).await;
        }
        wait_hours_until_removed(&log, &clock, &wrong).await;
        drop(log);
        assert_eq!(verify(folder.path()).faults, []);
    }
}

/// The age of a record is its real age, not that of its timestamp.
#[tokio::test]
async fn wrong_timestamp_does_not_expire_a_record() {
    let day = 24 * 60 * 60;
    for (jump, name) in [(-1000 * day, "2023-04-10.jsonl"), (1000 * day, "2028-09-30.jsonl")] {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::at("2026-01-01T12:00:00Z");
        let log = open(folder.path(), &clock);
        let wrong = folder.path().join(name);
        for step in 0..=40 {
            call(&log, &step.to_string()).await;
            if step == 3 {
                clock.jump(jump);
                call(&log, "wrong").await;
                clock.jump(-jump);
            }
            assert!(!(3..33).contains(&step) || wrong.exists(), "{step}");
            clock.pass(DAY);
        }
        wait_hours_until_removed(&log, &clock, &wrong).await;
        drop(log);
        assert_eq!(verify(folder.path()).faults, []);
    }
}

/// Puts twelve kinds of secrets into every member that takes a string from outside.
#[tokio::test]
async fn no_secret_is_written() {
    let known = "s3cr3t \"quoted\"\n\\ value";
    let secrets = [
        known,
        "98237461923",
        "ghp_abcdefghijklmnop1234",
        "sk-abcdefghijklmnop1234",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
        "xoxb-123456789012",
        "glpat-abcdefghijkl1",
    ];
    // Secrets recognised only by their context.
    let given_away = [
        ("Authorization: Bearer ", "qwertzuiop1"),
        ("https://ann:", "hunter2hunter@x.test/"),
        ("--password ", "asdfghjkl2"),
        ("DB_PASSWORD=", "yxcvbnm3"),
    ];
    let mut texts: Vec<String> = secrets.iter().map(|secret| format!("saw {secret} here")).collect();
    texts.extend(given_away.iter().map(|(before, secret)| format!("saw {before}{secret}")));
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at("2026-11-15T10:00:00Z");
    let known = vec![toolgate_types::Secret::new(known), toolgate_types::Secret::new("98237461923")];
    let options = toolgate_audit::LogOptions { secrets: known, ..crate::kit::options(&clock) };
    let log = ExecutionLog::open(folder.path(), options).unwrap();
    for text in &texts {
        let json = raw(
            &serde_json::json!({ "deep": [{ "a": text, text: 1, "n": 98_237_461_923_u64 }] }).to_string()
        );
        let rules = [text.clone()];
        let text = text.as_str();
        let mut asked = begin(text, text, &json);
        (asked.caller, asked.correlation, asked.trace) = (text, text, text);
        (asked.server, asked.definition, asked.asked, asked.rules) =
            (Some(text), Some(text), Some(text), &rules);
        let error = CallError::new(ErrorCode::Timeout, Stage::Invoke, text).with_source(text);
        let stages = [StageTime {
            stage: Stage::Cache,
            took: Duration::from_micros(1),
            note: Some(text.to_owned().into()),
        }];
        let mut end = success(&json);
        (end.error, end.stages) = (Some((&error).into()), &stages);
        log.record(&asked, &end, Durability::Written).await.unwrap();
    }
    let named = raw(
        r#"{"api_key":"plm9okn8","list":["--token","ijb7uhv6"],"headers":[{"name":"Cookie","value":"ygc5"}]}"#,
    );
    log.record(&begin("c", "t", &named), &success(&named), Durability::Written).await.unwrap();
    drop(log);
    let text = fs_err::read_to_string(folder.path().join("2026-11-15.jsonl")).unwrap();
    let shown = secrets.into_iter().chain(given_away.map(|(_, secret)| secret.split('@').next().unwrap()));
    for secret in shown.chain(["plm9okn8", "ijb7uhv6", "ygc5", "s3cr3t", "quoted"]) {
        assert!(!text.contains(secret), "{secret}");
    }
    assert!(text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
    assert_whole(folder.path(), 26);
}

#[tokio::test]
async fn changes_are_detected() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at("2026-11-15T10:00:00Z");
    let log = open(folder.path(), &clock);
    for id in ["a", "b", "c"] {
        call(&log, id).await;
    }
    let path = folder.path().join("2026-11-15.jsonl");
    let text = fs_err::read_to_string(&path).unwrap();
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    let faults = |lines: &[&str]| {
        fs_err::write(&path, lines.concat()).unwrap();
        let faults: Vec<_> = verify(folder.path()).faults.iter().map(ToString::to_string).collect();
        faults.join("; ")
    };
    let changed = lines[2].replace("\"ann\"", "\"bob\"");
    assert_eq!(
        faults(&[lines[0], lines[1], &changed, lines[3]]),
        "2026-11-15.jsonl:3: the hash is wrong: this record or the one before was changed"
    );
    assert_eq!(faults(&[lines[0], lines[3]]), "2026-11-15.jsonl:2: records 2 to 3 are missing");
    assert_eq!(
        faults(&[lines[0], lines[1], lines[1]]),
        "2026-11-15.jsonl:3: record 2 is duplicated or out of order"
    );
    assert_eq!(faults(&[lines[0], "hello\n", lines[1]]), "2026-11-15.jsonl:2: not a record");
    assert_eq!(faults(&[lines[0], &lines[1][..9]]), "2026-11-15.jsonl:2: incomplete line of 9 bytes");
    assert_eq!(faults(&lines), "");
}

fn written(bodies: &[String], cut: prop::sample::Index, again: bool) -> Result<(), TestCaseError> {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at("2026-11-15T23:59:59.9Z");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let write = |log: &ExecutionLog, id: String, body: &String| {
        let arguments = raw(&serde_json::to_string(body).unwrap());
        let asked = begin(&id, body, &arguments);
        runtime.block_on(log.record(&asked, &success(&arguments), Durability::Written)).unwrap();
        clock.pass(Duration::from_millis(30));
    };
    let log = open(folder.path(), &clock);
    for (index, body) in bodies.iter().enumerate() {
        write(&log, index.to_string(), body);
    }
    drop(log);
    let last = names(folder.path()).into_iter().rfind(|name| name.ends_with(".jsonl")).unwrap();
    let path = folder.path().join(last);
    let bytes = fs_err::read(&path).unwrap();
    let before = verify(folder.path()).records - bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
    let left = &bytes[..cut.index(bytes.len() + 1)];
    fs_err::write(&path, left).unwrap();
    let lines = before + left.iter().filter(|byte| **byte == b'\n').count() as u64;
    let log = open(folder.path(), &clock);
    prop_assert_eq!(log.torn_tails().len(), usize::from(left.last().is_some_and(|byte| *byte != b'\n')));
    if again {
        write(&log, "x".to_owned(), &bodies[0]);
    }
    drop(log);
    let verified = verify(folder.path());
    prop_assert_eq!(verified.faults, []);
    prop_assert_eq!(verified.records, lines + if again { 2 } else { 0 });
    let calls = LogReader::new(folder.path()).query(CallFilter::default()).unwrap();
    prop_assert!(calls.count() as u64 >= lines / 2);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn log_truncated_anywhere_is_valid_up_to_its_last_line(
        bodies in prop::collection::vec("(\\PC|\n|\"){0,30}", 1..8),
        cut in any::<prop::sample::Index>(),
        again in any::<bool>(),
    ) {
        written(&bodies, cut, again)?;
    }
}
