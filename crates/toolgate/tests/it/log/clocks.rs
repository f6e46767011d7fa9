//! Clocks that people set, and days that end, while calls are made. The clock of the executable is faked by
//! libfaketime, which the test command installs beside the peers.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::door::{Door, OWNER, project};
use crate::peers::peers;
use crate::program::{PATIENCE, Program};

const DAY: i64 = 24 * 60 * 60;

/// The seconds from now to a time.
fn until(epoch_seconds: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    epoch_seconds - i64::try_from(now).expect("it fits")
}

fn library() -> PathBuf {
    let lib = peers().join("debian/usr/lib");
    let machine = fs_err::read_dir(&lib)
        .expect("libfaketime is installed")
        .next()
        .expect("a machine")
        .expect("a folder");
    machine.path().join("faketime/libfaketimeMT.so.1")
}

/// A project whose `toolgate` sees a clock that is off by as much as the file `clock` says.
fn faked(config: &serde_json::Value, offset: i64) -> Program {
    let program = project(config);
    program.write("clock", format!("{offset:+}s"));
    let clock = program.path("clock").display().to_string();
    program
        .with("LD_PRELOAD", &library().display().to_string())
        .with("FAKETIME_TIMESTAMP_FILE", &clock)
        .with("FAKETIME_NO_CACHE", "1")
        .with("FAKETIME_DONT_FAKE_MONOTONIC", "1")
}

/// The days of the log, each with its lines.
fn days(program: &Program) -> Vec<(String, Vec<String>)> {
    let folder = program.path(".toolgate/log/1");
    let Ok(entries) = fs_err::read_dir(folder) else { return Vec::new() };
    let mut days = Vec::new();
    for entry in entries.map(|entry| entry.expect("an entry")) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(day) = name.strip_suffix(".jsonl").filter(|day| day.starts_with("20")) {
            let text = fs_err::read_to_string(entry.path()).expect("a file of the log");
            days.push((day.to_owned(), text.lines().map(str::to_owned).collect()));
        }
    }
    days.sort();
    days
}

fn is_whole(door: &Door) {
    let verified = door.program.run("log verify");
    assert_eq!(verified.code, 0, "{verified}");
}

/// Midnight in UTC is where a file ends, whatever people call that time where they are: here one on the day
/// their summer begins, and one on the day it ends.
#[test]
#[ignore = "needs what `cargo xtask test` installs"]
#[expect(clippy::disallowed_methods, reason = "its time is real")]
fn a_day_ends_while_calls_are_made() {
    for (before, after, midnight) in
        [("2026-03-07", "2026-03-08", 1_772_928_000), ("2026-10-31", "2026-11-01", 1_793_491_200)]
    {
        let program = faked(&json!({}), until(midnight - 2)).with("TZ", "America/New_York");
        let door = Door::of(program);
        let start = Instant::now();
        let mut calls = 0;
        while days(&door.program).last().is_none_or(|(day, lines)| day != after || lines.len() < 20) {
            assert!(start.elapsed() < PATIENCE, "the day does not end: {:?}", days(&door.program));
            assert_eq!(door.call(OWNER, "echo", &json!({ "message": "x" })).status, 200);
            calls += 1;
        }
        let days = days(&door.program);
        assert_eq!(days.iter().map(|(day, _)| day.as_str()).collect::<Vec<_>>(), [before, after]);
        for (day, lines) in &days {
            assert!(lines.iter().all(|line| line.contains(&format!("\"{day}T"))), "{day}: {lines:#?}");
        }
        let ends = days.iter().flat_map(|(_, lines)| lines).filter(|line| line.contains(r#""kind":"end""#));
        assert_eq!(ends.count(), calls, "each call is there once");
        is_whole(&door);
    }
}

/// Nothing but stamps follows the clock of the wall: no time runs out, no allowance comes back, no log goes.
#[test]
#[ignore = "needs what `cargo xtask test` installs"]
#[expect(clippy::disallowed_methods, reason = "its time is real")]
fn a_clock_that_is_set_changes_no_call() {
    let tools = json!([{ "name": "fail", "rate_limit": { "max_calls": 2, "window_ms": 600_000 } }]);
    let door = Door::of(faked(&json!({ "tools": tools }), 0));
    let limited = || door.call(OWNER, "fail", &json!({})).told().1;
    assert_ne!(limited(), "rate_limited");
    assert_ne!(limited(), "rate_limited");
    let mut calls = 2;
    for offset in [-DAY, DAY, 1, 2, 3, 0] {
        door.program.write("clock", format!("{offset:+}s"));
        let start = Instant::now();
        for _ in 0..10 {
            assert_eq!(door.call(OWNER, "echo", &json!({ "message": "x" })).status, 200);
        }
        assert!(start.elapsed() < Duration::from_secs(50), "no call waits for a clock");
        assert_eq!(limited(), "rate_limited", "an allowance does not come back with a clock of {offset} s");
        calls += 11;
    }
    let ends = days(&door.program)
        .iter()
        .flat_map(|(_, lines)| lines.clone())
        .filter(|line| line.contains(r#""kind":"end""#))
        .count();
    assert_eq!(ends, calls, "nothing is written over, and nothing goes");
    is_whole(&door);
}
