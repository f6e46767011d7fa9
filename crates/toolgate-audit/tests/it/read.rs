//! Queries over a log.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use toolgate_audit::{CallFailure, CallFilter, CallStatus, Durability, ExecutionLog, LogReader};
use toolgate_types::{CallError, ErrorCode, Stage};

use crate::kit::{ManualClock, begin, begin_call, open, raw, success};

/// Writes ten calls, a minute apart, across midnight: `a.even` and `a.odd` alternate, every third is by bob, the fifth
/// failed, and the last is still open.
async fn ten_calls(folder: &Path) -> (ExecutionLog, toolgate_audit::OpenCall, Arc<ManualClock>) {
    let clock = ManualClock::at("2026-11-14T23:55:30Z");
    let log = open(folder, &clock);
    let mut last = None;
    for index in 0..10_u64 {
        let arguments = raw(&format!(r#"{{"path":"file-{index}","say":"a \"word\""}}"#));
        let id = format!("c{index}");
        let mut asked = begin(&id, if index % 2 == 0 { "a.even" } else { "a.odd" }, &arguments);
        if index % 3 == 0 {
            asked.caller = "bob";
        }
        let open = begin_call(&log, &asked, Durability::Written).await.unwrap();
        clock.pass(Duration::from_secs(60));
        let output = raw(r#"["done"]"#);
        let mut end = success(&output);
        end.took = Duration::from_millis(index + 1);
        end.cached = index == 2;
        let error = CallError::new(ErrorCode::Timeout, Stage::Invoke, "=too slow, \"sorry\"");
        if index == 5 {
            (end.status, end.error, end.output) = (CallStatus::Error, Some(CallFailure::from(&error)), None);
        }
        if index == 9 {
            last = Some(open);
        } else {
            open.end(&end, Durability::Written).await.unwrap();
        }
    }
    (log, last.unwrap(), clock)
}

fn found(folder: &Path, filter: CallFilter) -> String {
    let calls = LogReader::new(folder).query(filter).unwrap();
    calls.map(|call| call.unwrap().id()[1..].to_owned()).collect()
}

#[tokio::test]
async fn filters() {
    let folder = tempfile::tempdir().unwrap();
    let _open = ten_calls(folder.path()).await;
    let all = CallFilter::default;
    let check = |filter: CallFilter, newest: &str| {
        let oldest: String = newest.chars().rev().collect();
        assert_eq!(found(folder.path(), CallFilter { newest_first: true, ..filter.clone() }), newest);
        assert_eq!(found(folder.path(), filter), oldest);
    };
    let text = |text: &str| Some(text.to_owned());
    let time = |time: &str| Some(time.parse().unwrap());
    check(all(), "9876543210");
    check(CallFilter { tool: text("a.odd"), ..all() }, "97531");
    check(CallFilter { tool: text("a.*"), caller: text("bob"), ..all() }, "9630");
    check(CallFilter { tool: text("a.o"), ..all() }, "");
    check(CallFilter { status: text("success"), ..all() }, "87643210");
    check(CallFilter { status: text("error"), ..all() }, "5");
    check(CallFilter { status: text("timeout"), ..all() }, "5");
    check(CallFilter { status: text("open"), ..all() }, "9");
    check(CallFilter { grep: text("file-7"), ..all() }, "7");
    check(CallFilter { grep: text("too slow"), ..all() }, "5");
    check(CallFilter { grep: text("a \"word\""), tool: text("a.even"), ..all() }, "86420");
    check(CallFilter { since: time("2026-11-15T00:00:00Z"), ..all() }, "98765");
    // The end of call 4 is in the file of the next day.
    check(CallFilter { until: time("2026-11-15T00:00:00Z"), status: text("success"), ..all() }, "43210");
    check(CallFilter { until: time("2026-11-14T23:59:59Z"), status: text("open"), ..all() }, "");
    let (since, until) = (time("2026-11-14T23:57:30Z"), time("2026-11-14T23:58:30Z"));
    check(CallFilter { since, until, ..all() }, "2");
    let limited = CallFilter { limit: Some(3), ..all() };
    assert_eq!(found(folder.path(), CallFilter { newest_first: true, ..limited.clone() }), "987");
    assert_eq!(found(folder.path(), limited), "012");
    assert_eq!(found(&folder.path().join("nothing"), all()), "");
}

#[tokio::test]
async fn shows_one_call_and_statistics() {
    let folder = tempfile::tempdir().unwrap();
    let _open = ten_calls(folder.path()).await;
    let reader = LogReader::new(folder.path());
    let call = reader.show("c5").unwrap().unwrap();
    let begin = call.begin.as_ref().unwrap();
    assert_eq!(begin.arguments.as_ref().unwrap().get(), r#"{"path":"file-5","say":"a \"word\""}"#);
    assert_eq!(call.end.as_ref().unwrap().error.as_ref().unwrap().message, "=too slow, \"sorry\"");
    assert_eq!(reader.show("c9").unwrap().unwrap().status(), "open");
    assert!(reader.show("c").unwrap().is_none());
    let stats = reader.stats(&CallFilter::default()).unwrap();
    let (even, odd) = (&stats["a.even"], &stats["a.odd"]);
    assert_eq!((even.count, even.errors, even.cached, odd.count, odd.errors), (5, 0, 1, 4, 1));
    assert!((5000..5200).contains(&even.p50_micros) && (9000..9300).contains(&even.p99_micros));
    assert!((odd.error_rate() - 0.25).abs() < 1e-9);
}

#[tokio::test]
async fn finds_a_call_by_its_generated_id() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _open, clock) = ten_calls(folder.path()).await;
    clock.pass(Duration::from_secs(24 * 60 * 60));
    let (id, arguments) = (log.new_call_id(), raw("{}"));
    let open = begin_call(&log, &begin(&id, "t", &arguments), Durability::Written).await.unwrap();
    clock.pass(Duration::from_secs(24 * 60 * 60));
    open.end(&success(&arguments), Durability::Written).await.unwrap();
    let call = LogReader::new(folder.path()).show(&id).unwrap().unwrap();
    assert!(call.begin.is_some() && call.end.is_some());
}

#[tokio::test]
async fn follows_calls_as_they_end() {
    let folder = tempfile::tempdir().unwrap();
    let (log, open, clock) = ten_calls(folder.path()).await;
    let mut follow = LogReader::new(folder.path()).follow(CallFilter::default()).unwrap();
    assert!(follow.poll().unwrap().is_empty());
    let output = raw("1");
    open.end(&success(&output), Durability::Written).await.unwrap();
    let ids = |calls: Vec<toolgate_audit::LoggedCall>| {
        calls.iter().map(|call| call.id().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(follow.poll().unwrap()), ["c9"]);
    clock.pass(Duration::from_secs(24 * 60 * 60));
    let next = begin_call(&log, &begin("next", "t", &output), Durability::Written).await.unwrap();
    assert!(follow.poll().unwrap().is_empty());
    next.end(&success(&output), Durability::Written).await.unwrap();
    let calls = follow.poll().unwrap();
    assert!(calls[0].begin.is_some());
    assert_eq!(ids(calls), ["next"]);
}

#[tokio::test]
async fn exports_lines_and_csv() {
    let folder = tempfile::tempdir().unwrap();
    let _open = ten_calls(folder.path()).await;
    let reader = LogReader::new(folder.path());
    let mut lines = Vec::new();
    assert_eq!(reader.export_lines(&CallFilter::default(), &mut lines).unwrap(), 19);
    let files: Vec<_> = ["2026-11-14.jsonl", "2026-11-15.jsonl"]
        .iter()
        .flat_map(|name| fs_err::read(folder.path().join(name)).unwrap())
        .collect();
    assert_eq!(lines, files);
    let mut table = Vec::new();
    let filter = CallFilter { status: Some("error".to_owned()), ..CallFilter::default() };
    assert_eq!(reader.export_csv(filter, &mut table).unwrap(), 1);
    let table = String::from_utf8(table).unwrap();
    let row = table.lines().nth(1).unwrap();
    assert!(row.starts_with("2026-11-15T00:00:30.000000Z,c5,ann,a.odd,files,allow,,,error,timeout,invoke,"));
    assert!(row.contains(r#","'=too slow, ""sorry""",1,false,6000,r1,"#), "{row}");
}
