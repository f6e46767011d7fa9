//! Questions to a log.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use toolgate_audit::{Durability, Failure, Filter, Log, Reader, Status};
use toolgate_types::{CallError, ErrorCode, Stage};

use crate::kit::{Hands, begin, open, raw, success};

/// Ten calls, a minute apart, over midnight: `a.even` and `a.odd` in turn, every third of bob's, the fifth
/// failed, the last still open.
async fn ten_calls(folder: &Path) -> (Log, toolgate_audit::Open, Arc<Hands>) {
    let clock = Hands::at("2026-11-14T23:55:30Z");
    let log = open(folder, &clock);
    let mut last = None;
    for index in 0..10_u64 {
        let arguments = raw(&format!(r#"{{"path":"file-{index}","say":"a \"word\""}}"#));
        let id = format!("c{index}");
        let mut asked = begin(&id, if index % 2 == 0 { "a.even" } else { "a.odd" }, &arguments);
        if index % 3 == 0 {
            asked.caller = "bob";
        }
        let open = log.begin(&asked, Durability::Written).await.unwrap();
        clock.pass(Duration::from_secs(60));
        let output = raw(r#"["done"]"#);
        let mut end = success(&output);
        end.took = Duration::from_millis(index + 1);
        end.cached = index == 2;
        let error = CallError::new(ErrorCode::Timeout, Stage::Invoke, "=too slow, \"sorry\"");
        if index == 5 {
            (end.status, end.error, end.output) = (Status::Error, Some(Failure::from(&error)), None);
        }
        if index == 9 {
            last = Some(open);
        } else {
            open.end(&end, Durability::Written).await.unwrap();
        }
    }
    (log, last.unwrap(), clock)
}

fn found(folder: &Path, filter: Filter) -> String {
    let calls = Reader::new(folder).query(filter).unwrap();
    calls.map(|call| call.unwrap().id()[1..].to_owned()).collect()
}

#[tokio::test]
async fn filters() {
    let folder = tempfile::tempdir().unwrap();
    let _open = ten_calls(folder.path()).await;
    let all = Filter::default;
    let check = |filter: Filter, newest: &str| {
        let oldest: String = newest.chars().rev().collect();
        assert_eq!(found(folder.path(), Filter { newest_first: true, ..filter.clone() }), newest);
        assert_eq!(found(folder.path(), filter), oldest);
    };
    let text = |text: &str| Some(text.to_owned());
    let time = |time: &str| Some(time.parse().unwrap());
    check(all(), "9876543210");
    check(Filter { tool: text("a.odd"), ..all() }, "97531");
    check(Filter { tool: text("a.*"), caller: text("bob"), ..all() }, "9630");
    check(Filter { tool: text("a.o"), ..all() }, "");
    check(Filter { status: text("success"), ..all() }, "87643210");
    check(Filter { status: text("error"), ..all() }, "5");
    check(Filter { status: text("timeout"), ..all() }, "5");
    check(Filter { status: text("open"), ..all() }, "9");
    check(Filter { grep: text("file-7"), ..all() }, "7");
    check(Filter { grep: text("too slow"), ..all() }, "5");
    check(Filter { grep: text("a \"word\""), tool: text("a.even"), ..all() }, "86420");
    check(Filter { since: time("2026-11-15T00:00:00Z"), ..all() }, "98765");
    // Its end is in the file of the next day.
    check(Filter { until: time("2026-11-15T00:00:00Z"), status: text("success"), ..all() }, "43210");
    check(Filter { until: time("2026-11-14T23:59:59Z"), status: text("open"), ..all() }, "");
    let (since, until) = (time("2026-11-14T23:57:30Z"), time("2026-11-14T23:58:30Z"));
    check(Filter { since, until, ..all() }, "2");
    let limited = Filter { limit: Some(3), ..all() };
    assert_eq!(found(folder.path(), Filter { newest_first: true, ..limited.clone() }), "987");
    assert_eq!(found(folder.path(), limited), "012");
    assert_eq!(found(&folder.path().join("nothing"), all()), "");
}

#[tokio::test]
async fn one_call_and_all_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let _open = ten_calls(folder.path()).await;
    let reader = Reader::new(folder.path());
    let call = reader.show("c5").unwrap().unwrap();
    let begin = call.begin.as_ref().unwrap();
    assert_eq!(begin.arguments.as_ref().unwrap().get(), r#"{"path":"file-5","say":"a \"word\""}"#);
    assert_eq!(call.end.as_ref().unwrap().error.as_ref().unwrap().message, "=too slow, \"sorry\"");
    assert_eq!(reader.show("c9").unwrap().unwrap().status(), "open");
    assert!(reader.show("c").unwrap().is_none());
    let stats = reader.stats(&Filter::default()).unwrap();
    let (even, odd) = (&stats["a.even"], &stats["a.odd"]);
    assert_eq!((even.count, even.errors, even.cached, odd.count, odd.errors), (5, 0, 1, 4, 1));
    assert!((5000..5200).contains(&even.p50_micros) && (9000..9300).contains(&even.p99_micros));
    assert!((odd.error_rate() - 0.25).abs() < 1e-9);
}

#[tokio::test]
async fn an_id_of_ours_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _open, clock) = ten_calls(folder.path()).await;
    clock.pass(Duration::from_secs(24 * 60 * 60));
    let (id, arguments) = (log.call_id(), raw("{}"));
    let open = log.begin(&begin(&id, "t", &arguments), Durability::Written).await.unwrap();
    clock.pass(Duration::from_secs(24 * 60 * 60));
    open.end(&success(&arguments), Durability::Written).await.unwrap();
    let call = Reader::new(folder.path()).show(&id).unwrap().unwrap();
    assert!(call.begin.is_some() && call.end.is_some());
}

#[tokio::test]
async fn following() {
    let folder = tempfile::tempdir().unwrap();
    let (log, open, clock) = ten_calls(folder.path()).await;
    let mut follow = Reader::new(folder.path()).follow(Filter::default()).unwrap();
    assert!(follow.poll().unwrap().is_empty());
    let output = raw("1");
    open.end(&success(&output), Durability::Written).await.unwrap();
    let ids =
        |calls: Vec<toolgate_audit::Call>| calls.iter().map(|call| call.id().to_owned()).collect::<Vec<_>>();
    assert_eq!(ids(follow.poll().unwrap()), ["c9"]);
    clock.pass(Duration::from_secs(24 * 60 * 60));
    let next = log.begin(&begin("next", "t", &output), Durability::Written).await.unwrap();
    assert!(follow.poll().unwrap().is_empty());
    next.end(&success(&output), Durability::Written).await.unwrap();
    let calls = follow.poll().unwrap();
    assert!(calls[0].begin.is_some());
    assert_eq!(ids(calls), ["next"]);
}

#[tokio::test]
async fn exports() {
    let folder = tempfile::tempdir().unwrap();
    let _open = ten_calls(folder.path()).await;
    let reader = Reader::new(folder.path());
    let mut lines = Vec::new();
    assert_eq!(reader.export_lines(&Filter::default(), &mut lines).unwrap(), 19);
    let files: Vec<_> = ["2026-11-14.jsonl", "2026-11-15.jsonl"]
        .iter()
        .flat_map(|name| fs_err::read(folder.path().join(name)).unwrap())
        .collect();
    assert_eq!(lines, files);
    let mut table = Vec::new();
    let filter = Filter { status: Some("error".to_owned()), ..Filter::default() };
    assert_eq!(reader.export_csv(filter, &mut table).unwrap(), 1);
    let table = String::from_utf8(table).unwrap();
    let row = table.lines().nth(1).unwrap();
    assert!(row.starts_with("2026-11-15T00:00:30.000000Z,c5,ann,a.odd,files,allow,,,error,timeout,invoke,"));
    assert!(row.contains(r#","'=too slow, ""sorry""",1,false,6000,r1,"#), "{row}");
}
