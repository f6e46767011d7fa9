//! What a log says about its tools: how they did, and what followed what.

use std::path::Path;
use std::time::Duration;

use toolgate_audit::{Durability, Failure, History, Reader, Recent, Status, ToolRecord};
use toolgate_types::{CallError, ErrorCode, Stage};

use crate::kit::{Hands, begin, open, raw, success};

const ALL: Recent = Recent { since: None, calls: usize::MAX, bytes: u64::MAX };

/// A call: who, in which session, which tool, how often it was tried, whether it went well.
type Called<'a> = (&'a str, Option<&'a str>, &'a str, u32, bool);

/// Calls a minute apart, from five minutes before midnight, each of a millisecond.
async fn log_of(folder: &Path, calls: &[Called<'_>]) {
    let clock = Hands::at("2026-11-14T23:55:00Z");
    let log = open(folder, &clock);
    // What looks like the member that follows does not end what is read.
    let error = CallError::new(ErrorCode::Timeout, Stage::Invoke, r#"","output":"#);
    for &(caller, session, tool, attempts, good) in calls {
        let (id, output) = (log.call_id(), raw(r#"{"a":",\"output\""}"#));
        let mut asked = begin(&id, tool, &output);
        (asked.caller, asked.session) = (caller, session);
        let mut end = success(&output);
        (end.attempts, end.took) = (attempts, Duration::from_millis(1));
        if !good {
            (end.status, end.error) = (Status::Error, Some(Failure::from(&error)));
        }
        log.record(&asked, &end, Durability::Written).await.unwrap();
        clock.pass(Duration::from_secs(60));
    }
}

async fn history(calls: &[Called<'_>], recent: &Recent) -> History {
    let folder = tempfile::tempdir().unwrap();
    log_of(folder.path(), calls).await;
    Reader::new(folder.path()).history(recent).unwrap()
}

fn follows(history: &History) -> Vec<(&str, &str, u64)> {
    let pairs = history.followers.iter().flat_map(|(tool, next)| next.iter().map(move |next| (tool, next)));
    pairs.map(|(tool, (next, count))| (tool.as_str(), next.as_str(), *count)).collect()
}

#[tokio::test]
async fn how_tools_did() {
    let calls = [
        ("ann", None, "find", 1, true),
        ("ann", None, "find", 2, false),
        ("bob", None, "find", 1, true),
        // From memory, and refused: neither says anything about the tool.
        ("bob", None, "find", 0, true),
        ("bob", None, "pay", 0, false),
    ];
    let history = history(&calls, &ALL).await;
    let tools: Vec<_> = history.tools.into_iter().collect();
    assert_eq!(tools, [("find".to_owned(), ToolRecord { calls: 3, good: 2, micros: 3000 })]);
}

#[tokio::test]
async fn who_followed_whom() {
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
    assert_eq!(follows(&history), [("find", "look", 1), ("find", "pay", 1), ("look", "find", 1)]);
    let last: Vec<_> = history.last.values().map(String::as_str).collect();
    assert_eq!(last, ["find", "pay", "look", "look"]);
}

#[tokio::test]
async fn only_the_recent_past() {
    let calls: Vec<_> =
        ["a", "b", "c", "d", "e", "f", "g"].map(|tool| ("ann", None, tool, 1, true)).into_iter().collect();
    let tools = |history: History| history.tools.into_keys().collect::<String>();
    assert_eq!(tools(history(&calls, &ALL).await), "abcdefg");
    assert_eq!(tools(history(&calls, &Recent { calls: 3, ..ALL }).await), "efg");
    // The sixth call is the first one after midnight.
    let since = Some("2026-11-14T23:59:00Z".parse().unwrap());
    assert_eq!(tools(history(&calls, &Recent { since, ..ALL }).await), "efg");
    let some = tools(history(&calls, &Recent { bytes: 2000, ..ALL }).await);
    assert!(some.ends_with('g') && (2..6).contains(&some.len()), "{some}");
    assert_eq!(tools(history(&[], &ALL).await), "");
    let week = Recent::of("2026-11-22T00:00:00Z".parse().unwrap());
    assert_eq!(tools(history(&calls, &week).await), "fg");
}

#[tokio::test]
async fn of_two_logs() {
    let mut both = history(&[("ann", None, "a", 1, true), ("ann", None, "b", 1, true)], &ALL).await;
    both.add(history(&[("bob", None, "a", 1, false), ("ann", None, "a", 1, true)], &ALL).await);
    assert_eq!(both.tools["a"], ToolRecord { calls: 3, good: 2, micros: 3000 });
    assert_eq!(follows(&both), [("a", "b", 1)]);
    assert_eq!(both.last.values().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn of_no_log() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(Reader::new(folder.path().join("none")).history(&ALL).unwrap(), History::default());
}
