//! Clock changes, midnight during calls, and records from a machine whose clock was not set. The clock is faked by
//! libfaketime, which `cargo xtask test` installs with the peers.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::support::gateway::{Gateway, OWNER, project};
use crate::support::program::{HANG_TIMEOUT, Program};
use crate::support::third_party::peers;

const DAY: i64 = 24 * 60 * 60;

/// Returns the seconds from now to a time.
fn wait_until(epoch_seconds: i64) -> i64 {
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

/// Creates a project whose `toolgate` sees a clock shifted by the content of the file `clock`.
fn project_with_clock(config: &serde_json::Value, offset: i64) -> Program {
    let program = project(config);
    program.write("clock", format!("{offset:+}s"));
    let clock = program.path("clock").display().to_string();
    program
        .with("LD_PRELOAD", &library().display().to_string())
        .with("FAKETIME_TIMESTAMP_FILE", &clock)
        .with("FAKETIME_NO_CACHE", "1")
        .with("FAKETIME_DONT_FAKE_MONOTONIC", "1")
}

/// Returns the log files by day, each with its number of lines.
fn days(program: &Program) -> Vec<(String, Vec<String>)> {
    let folder = program.path(".toolgate/log/1");
    let Ok(entries) = fs_err::read_dir(folder) else { return Vec::new() };
    let mut days = Vec::new();
    for entry in entries.map(|entry| entry.expect("an entry")) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(day) = name.strip_suffix(".jsonl").filter(|day| day.len() == "2026-11-15".len()) {
            let text = fs_err::read_to_string(entry.path()).expect("a file of the log");
            days.push((day.to_owned(), text.lines().map(str::to_owned).collect()));
        }
    }
    days.sort();
    days
}

fn is_whole(gateway: &Gateway) {
    let verified = gateway.program.run("log verify");
    assert_eq!(verified.code, 0, "{verified}");
}

/// A log file ends at midnight UTC, in any time zone and on the days of DST changes.
#[test]
#[ignore = "needs what `cargo xtask test` installs"]
#[expect(clippy::disallowed_methods, reason = "its time is real")]
fn midnight_during_calls() {
    for (before, after, midnight) in
        [("2026-03-07", "2026-03-08", 1_772_928_000), ("2026-10-31", "2026-11-01", 1_793_491_200)]
    {
        let program = project_with_clock(&json!({}), wait_until(midnight - 2)).with("TZ", "America/New_York");
        let gateway = Gateway::serve(program);
        let start = Instant::now();
        let mut calls = 0;
        while days(&gateway.program).last().is_none_or(|(day, lines)| day != after || lines.len() < 20) {
            assert!(start.elapsed() < HANG_TIMEOUT, "the day does not end: {:?}", days(&gateway.program));
            assert_eq!(gateway.call(OWNER, "echo", &json!({ "message": "x" })).status, 200);
            calls += 1;
        }
        let days = days(&gateway.program);
        assert_eq!(days.iter().map(|(day, _)| day.as_str()).collect::<Vec<_>>(), [before, after]);
        for (day, lines) in &days {
            assert!(lines.iter().all(|line| line.contains(&format!("\"{day}T"))), "{day}: {lines:#?}");
        }
        let ends = days.iter().flat_map(|(_, lines)| lines).filter(|line| line.contains(r#""kind":"end""#));
        assert_eq!(ends.count(), calls, "each call is logged once");
        is_whole(&gateway);
    }
}

/// Only timestamps follow the wall clock: timeouts, rate limits and retention do not.
#[test]
#[ignore = "needs what `cargo xtask test` installs"]
#[expect(clippy::disallowed_methods, reason = "its time is real")]
fn clock_changes_affect_no_call() {
    let tools = json!([{ "name": "fail", "rate_limit": { "max_calls": 2, "window_ms": 600_000 } }]);
    let gateway = Gateway::serve(project_with_clock(&json!({ "tools": tools }), 0));
    let limited = || gateway.call(OWNER, "fail", &json!({})).status_and_code().1;
    assert_ne!(limited(), "rate_limited");
    assert_ne!(limited(), "rate_limited");
    let mut calls = 2;
    for offset in [-DAY, DAY, 1, 2, 3, 0] {
        gateway.program.write("clock", format!("{offset:+}s"));
        let start = Instant::now();
        for _ in 0..10 {
            assert_eq!(gateway.call(OWNER, "echo", &json!({ "message": "x" })).status, 200);
        }
        assert!(start.elapsed() < Duration::from_secs(50), "no call waits for a clock");
        assert_eq!(limited(), "rate_limited", "a clock change of {offset} s refills no rate limit");
        calls += 11;
    }
    let ends = days(&gateway.program)
        .iter()
        .flat_map(|(_, lines)| lines.clone())
        .filter(|line| line.contains(r#""kind":"end""#))
        .count();
    assert_eq!(ends, calls, "no log file is overwritten or deleted");
    is_whole(&gateway);
}

/// The first records are from a boot with an unset clock: their timestamps do not make them expire.
#[test]
fn records_of_an_unset_clock_are_kept() {
    for unset in ["1970-01-01", "2099-01-01"] {
        let program = project(&json!({}));
        assert_eq!(program.run("tools call s__echo message=x").code, 0);
        let folder = program.path(".toolgate/log/1");
        for (day, lines) in days(&program) {
            // The timestamps are the only difference, as retention does not check hashes.
            let text =
                lines.join("\n").replace(&format!("\"time\":\"{day}T"), &format!("\"time\":\"{unset}T"));
            fs_err::remove_file(folder.join(format!("{day}.jsonl"))).expect("it exists");
            fs_err::write(folder.join(format!("{unset}.jsonl")), text + "\n").expect("the folder exists");
        }
        for _ in 0..3 {
            assert_eq!(program.run("tools call s__echo message=x").code, 0);
        }
        let days = days(&program);
        assert!(days.iter().any(|(day, _)| day == unset), "{days:?}");
        assert!(days.len() >= 2, "{days:?}");
    }
}
