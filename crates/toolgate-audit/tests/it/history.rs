//! Tool history: totals per tool, and the tools used after one another.

use std::path::Path;
use std::time::Duration;

use toolgate_audit::{
    CallFailure, CallStatus, Durability, HistoryWindow, LogReader, ToolHistory, ToolTotals,
};
use toolgate_types::{CallError, ErrorCode, Stage};

use crate::kit::{ManualClock, begin, open, raw, success};

const ALL: HistoryWindow = HistoryWindow { since: None, calls: usize::MAX, bytes: u64::MAX };

/// A call: caller, session, tool, attempts, and true if it succeeded.
type CallRow<'a> = (&'a str, Option<&'a str>, &'a str, u32, bool);

/// Writes calls of a millisecond, a minute apart, starting five minutes before midnight.
async fn write_log(folder: &Path, calls: &[CallRow<'_>]) {
    let clock = ManualClock::at("2026-11-14T23:55:00Z");
    let log = open(folder, &clock);
    // A message that looks like the output member must not end the parsed part.
    let error = CallError::new(ErrorCode::Timeout, Stage::Invoke, r#"","output":"#);
    for &(caller, session, tool, attempts, good) in calls {
        let (id, output) = (log.new_call_id(), raw(r#"{"a":",\"output\""}"#));
        let mut asked = begin(&id, tool, &output);
        (asked.caller, asked.session) = (caller, session);
        let mut end = success(&output);
        (end.attempts, end.took) = (attempts, Duration::from_millis(1));
        if !good {
            (end.status, end.error) = (CallStatus::Error, Some(CallFailure::from(&error)));
        }
        log.record(&asked, &end, Durability::Written).await.unwrap();
        clock.pass(Duration::from_secs(60));
    }
}

async fn history(calls: &[CallRow<'_>], recent: &HistoryWindow) -> ToolHistory {
    let folder = tempfile::tempdir().unwrap();
    write_log(folder.path(), calls).await;
    LogReader::new(folder.path()).history(recent).unwrap()
}

fn follows(history: &ToolHistory) -> Vec<(&str, &str, &str, u64)> {
    let pairs = history.followers.iter().flat_map(|(pair, next)| next.iter().map(move |next| (pair, next)));
    pairs
        .map(|((caller, tool), (next, count))| (caller.as_str(), tool.as_str(), next.as_str(), *count))
        .collect()
}

#[tokio::test]
async fn totals_per_tool() {
    let calls = [
        ("ann", None, "find", 1, true),
        ("ann", None, "find", 2, false),
        ("bob", None, "find", 1, true),
        // Served from the cache, and rejected: neither counts for the tool.
        ("bob", None, "find", 0, true),
        ("bob", None, "pay", 0, false),
    ];
    let history = history(&calls, &ALL).await;
    let tools: Vec<_> = history.tools.into_iter().collect();
    assert_eq!(tools, [("find".to_owned(), ToolTotals { calls: 3, good: 2, micros: 3000 })]);
}

#[tokio::test]
async fn tools_used_after_one_another() {
    let calls = [
        ("ann", Some("1"), "find", 1, true),
        ("bob", Some("1"), "find", 1, true),
        ("ann", Some("2"), "look", 1, true),
        ("ann", Some("1"), "pay", 1, false),
        ("ann", Some("1"), "pay", 1, true),
        ("bob", Some("1"), "look", 1, true),
        ("ann", None, "look", 1, true),
        ("ann", None, "find", 1, true),
    ];
    let history = history(&calls, &ALL).await;
    assert_eq!(
        follows(&history),
        [("ann", "find", "pay", 1), ("ann", "look", "find", 1), ("bob", "find", "look", 1)]
    );
    let last: Vec<_> = history.last.values().map(String::as_str).collect();
    assert_eq!(last, ["find", "pay", "look", "look"]);
}

#[tokio::test]
async fn history_is_limited_by_count_age_and_size() {
    let calls: Vec<_> =
        ["a", "b", "c", "d", "e", "f", "g"].map(|tool| ("ann", None, tool, 1, true)).into_iter().collect();
    let tools = |history: ToolHistory| history.tools.into_keys().collect::<String>();
    assert_eq!(tools(history(&calls, &ALL).await), "abcdefg");
    assert_eq!(tools(history(&calls, &HistoryWindow { calls: 3, ..ALL }).await), "efg");
    // The sixth call is the first one after midnight.
    let since = Some("2026-11-14T23:59:00Z".parse().unwrap());
    assert_eq!(tools(history(&calls, &HistoryWindow { since, ..ALL }).await), "efg");
    let some = tools(history(&calls, &HistoryWindow { bytes: 2000, ..ALL }).await);
    assert!(some.ends_with('g') && (2..6).contains(&some.len()), "{some}");
    assert_eq!(tools(history(&[], &ALL).await), "");
    let week = HistoryWindow::ending_at("2026-11-22T00:00:00Z".parse().unwrap());
    assert_eq!(tools(history(&calls, &week).await), "fg");
}

#[tokio::test]
async fn histories_of_two_logs_are_added() {
    let mut both = history(&[("ann", None, "a", 1, true), ("ann", None, "b", 1, true)], &ALL).await;
    both.add(history(&[("bob", None, "a", 1, false), ("ann", None, "a", 1, true)], &ALL).await);
    assert_eq!(both.tools["a"], ToolTotals { calls: 3, good: 2, micros: 3000 });
    assert_eq!(follows(&both), [("ann", "a", "b", 1)]);
    assert_eq!(both.last.values().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn history_of_a_missing_log_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(LogReader::new(folder.path().join("none")).history(&ALL).unwrap(), ToolHistory::default());
}
