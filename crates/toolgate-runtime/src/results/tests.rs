//! Tests for storing, expiry, access and reading.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value;
use toolgate_types::{ByteSize, HumanDuration, Secret};

use super::*;

fn results(folder: &Path, max_inline: u64, keep: HumanDuration, max_disk: u64) -> Arc<ResultStore> {
    let limits = ResultLimits {
        max_inline: ByteSize::from_bytes(max_inline),
        keep,
        max_disk: ByteSize::from_bytes(max_disk),
    };
    ResultStore::in_project(folder, limits, Redactor::new(vec![Secret::new("hunter2-hunter2")], vec![]))
}

fn hour() -> HumanDuration {
    HumanDuration::from_secs(3_600)
}

fn reply(value: Value) -> ToolReply {
    ToolReply::convert(RawJson::from_value(&value)).unwrap()
}

fn text(text: &str) -> ToolReply {
    reply(json!({ "content": [{ "type": "text", "text": text }] }))
}

fn id(name: &str) -> CallerId {
    name.parse().unwrap()
}

#[tokio::test]
async fn stores_results_for_their_caller() {
    let folder = tempfile::tempdir().unwrap();
    let results = results(folder.path(), 100, hour(), 10_000);
    let (small, truncated) = results.truncate(&id("ann"), ("find", false), None, text("small")).await;
    assert!(truncated.is_none() && small.raw == text("small").raw);

    let full = text(&format!("{} hunter2-hunter2 {}", "ä".repeat(300), "z".repeat(300)));
    let (result, truncated) = results.truncate(&id("ann"), ("find", false), None, full.clone()).await;
    let TruncatedResult { uri: Some(uri), shown: 100, total } = truncated.unwrap() else {
        panic!("the preview has 100 bytes")
    };
    assert_eq!(total, full.raw.bytes().len());
    let data: Value = result.data.parse().unwrap();
    assert_eq!(data[0]["text"], "ä".repeat(50));
    assert_eq!((&data[1]["type"], &data[1]["uri"]), (&json!("resource_link"), &json!(uri)));

    let stored = results.read(&id("ann"), &uri).await.unwrap();
    assert_eq!(stored.tool, "find");
    assert!(stored.reply.as_str().contains(&"z".repeat(300)) && stored.reply.as_str().contains(" *** "));
    assert!(
        matches!(results.read(&id("bob"), &uri).await, Err(ReadError::Absent(_))),
        "it belongs to another caller"
    );
    for bad in
        ["toolgate://results/../../x", "toolgate://results/", "file:///etc/passwd", &uri.replace('a', "b")]
    {
        assert!(matches!(results.read(&id("ann"), bad).await, Err(ReadError::Absent(_))), "{bad}");
    }
    let again = results.truncate(&id("ann"), ("find", false), None, full).await.1.unwrap();
    assert_eq!(again.uri, Some(uri), "equal results share one file");
    for (limit, shown) in [(40, 40), (100_000, 100)] {
        let full = text(&"b".repeat(300));
        let (_, truncated) = results.truncate(&id("ann"), ("find", false), Some(limit), full).await;
        assert_eq!(truncated.map(|truncated| truncated.shown), Some(shown), "the smaller limit counts");
    }
}

#[tokio::test]
async fn results_expire_and_disk_use_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let files = || fs_err::read_dir(folder.path().join(FOLDER)).unwrap().count();
    let short = results(folder.path(), 10, "1ms".parse().unwrap(), 1_000);
    let uri = short
        .truncate(&id("ann"), ("find", false), None, text(&"a".repeat(300)))
        .await
        .1
        .unwrap()
        .uri
        .unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert!(short.read(&id("ann"), &uri).await.is_err(), "it has expired");
    let long = results(folder.path(), 10, hour(), 1_000);
    for letter in ["b", "c", "d", "e"] {
        assert!(
            long.truncate(&id("ann"), ("find", false), None, text(&letter.repeat(300)))
                .await
                .1
                .unwrap()
                .uri
                .is_some()
        );
    }
    assert!((1..=2).contains(&files()), "there is room for two, and there are {}", files());
    let too_large =
        long.truncate(&id("ann"), ("find", false), None, text(&"f".repeat(2_000))).await.1.unwrap();
    assert_eq!(too_large.uri, None, "a result that cannot be stored has no URI");
}

fn read_part(reply: &ToolReply, arguments: Value) -> (String, Value) {
    let read_part: read::ReadRequest = serde_json::from_value(arguments).unwrap();
    let result: Value = read_part.read(&reply.raw, 1_000).unwrap().parse().unwrap();
    (result["content"][0]["text"].as_str().unwrap().to_owned(), result["structuredContent"].clone())
}

#[test]
fn reads_pages_lines_and_pointers() {
    let lines = text("one\ntwo\nthree\ntwo and a half\n");
    let part = |arguments| read_part(&lines, arguments);
    let place = |offset, next: Option<u64>| json!({ "offset": offset, "nextOffset": next, "total": 29 });
    assert_eq!(part(json!({ "uri": "", "length": 5 })), ("one\nt".to_owned(), place(0, Some(5))));
    assert_eq!(part(json!({ "uri": "", "offset": 23 })), (" half\n".to_owned(), place(23, None)));
    let (shown, place) = part(json!({ "uri": "", "grep": "^two" }));
    assert_eq!(shown, "2: two\n4: two and a half");
    assert_eq!(place, json!({ "matches": 2, "nextOffset": null, "total": 4 }));
    assert_eq!(part(json!({ "uri": "", "grep": "half", "context": 1 })).0, "3: three\n4: two and a half");
    let (shown, place) = part(json!({ "uri": "", "grep": "o", "length": 1 }));
    assert_eq!((shown.as_str(), &place["nextOffset"]), ("1: one", &json!(1)));
    assert_eq!(part(json!({ "uri": "", "grep": "o", "offset": 1, "length": 1 })).0, "2: two");
    let bad: read::ReadRequest = serde_json::from_value(json!({ "uri": "", "grep": "(" })).unwrap();
    assert!(bad.read(&lines.raw, 100).unwrap_err().starts_with("`grep` is not a valid regular expression"));

    let structured = reply(json!({ "content": [], "structuredContent": { "a": [{ "b": "text" }, 2] } }));
    assert_eq!(read_part(&structured, json!({ "uri": "", "pointer": "/a/0/b" })).0, "text");
    assert_eq!(read_part(&structured, json!({ "uri": "", "pointer": "/a/1" })).0, "2");
    let as_text = text(r#"{"a":{"b":[1,2]}}"#);
    assert_eq!(read_part(&as_text, json!({ "uri": "", "pointer": "/a/b/1" })).0, "2");
    let nothing: read::ReadRequest = serde_json::from_value(json!({ "uri": "", "pointer": "/z" })).unwrap();
    assert_eq!(nothing.read(&as_text.raw, 100).unwrap_err(), "there is no value at `/z`");
}

proptest! {
    /// Pages join to the full text, for every text and page size.
    #[test]
    fn pages_join_to_the_full_text(full in "[aä€😀\n]{0,60}", length in 1usize..9) {
        let reply = text(&full);
        let (mut read, mut offset) = (String::new(), Some(0));
        while let Some(at) = offset {
            let (page, place) = read_part(&reply, json!({ "uri": "", "offset": at, "length": length }));
            read.push_str(&page);
            offset = place["nextOffset"].as_u64();
        }
        prop_assert_eq!(read, full);
    }

    /// A preview is valid JSON, within the limit, and a prefix of the full result.
    #[test]
    fn preview_is_a_prefix(full in "[aä€😀]{50,90}", most in 1usize..40) {
        let (result, shown) = preview(&text(&full).raw, most, None, "find");
        let result: Value = result.parse().unwrap();
        let beginning = result["content"][0]["text"].as_str().unwrap();
        prop_assert!(beginning.len() <= most && full.starts_with(beginning) && shown == most);
    }
}
