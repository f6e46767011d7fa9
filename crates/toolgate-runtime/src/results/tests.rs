//! What is kept, for whom and how long, and what can be read of it.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value;
use toolgate_types::{ByteSize, HumanDuration, Secret};

use super::*;

fn results(folder: &Path, max_inline: u64, keep: HumanDuration, max_disk: u64) -> Arc<Results> {
    let limits = ResultLimits {
        max_inline: ByteSize::from_bytes(max_inline),
        keep,
        max_disk: ByteSize::from_bytes(max_disk),
    };
    Results::of(folder, limits, Redactor::new(vec![Secret::new("hunter2-hunter2")], vec![]))
}

fn hour() -> HumanDuration {
    HumanDuration::from_secs(3_600)
}

fn reply(value: Value) -> Reply {
    Reply::convert(Raw::of(&value)).unwrap()
}

fn text(text: &str) -> Reply {
    reply(json!({ "content": [{ "type": "text", "text": text }] }))
}

fn id(name: &str) -> CallerId {
    name.parse().unwrap()
}

#[tokio::test]
async fn kept_whole_for_who_called() {
    let folder = tempfile::tempdir().unwrap();
    let results = results(folder.path(), 100, hour(), 10_000);
    let (small, cut) = results.cut(&id("ann"), "find", text("small")).await;
    assert!(cut.is_none() && small.raw == text("small").raw);

    let whole = text(&format!("{} hunter2-hunter2 {}", "ä".repeat(300), "z".repeat(300)));
    let (given, cut) = results.cut(&id("ann"), "find", whole.clone()).await;
    let Cut { uri: Some(uri), shown: 100, of } = cut.unwrap() else { panic!("it is cut at 100") };
    assert_eq!(of, whole.raw.bytes().len());
    let data: Value = given.data.parse().unwrap();
    assert_eq!(data[0]["text"], "ä".repeat(50));
    assert_eq!((&data[1]["type"], &data[1]["uri"]), (&json!("resource_link"), &json!(uri)));

    let kept = results.read(&id("ann"), &uri).await.unwrap();
    assert_eq!(kept.tool, "find");
    assert!(kept.reply.get().contains(&"z".repeat(300)) && kept.reply.get().contains(" *** "));
    assert!(matches!(results.read(&id("bob"), &uri).await, Err(ReadError::Absent(_))), "it is not his");
    for bad in
        ["toolgate://results/../../x", "toolgate://results/", "file:///etc/passwd", &uri.replace('a', "b")]
    {
        assert!(matches!(results.read(&id("ann"), bad).await, Err(ReadError::Absent(_))), "{bad}");
    }
    let again = results.cut(&id("ann"), "find", whole).await.1.unwrap();
    assert_eq!(again.uri, Some(uri), "the same result is kept once");
}

#[tokio::test]
async fn everything_ends_and_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let files = || fs_err::read_dir(folder.path().join(FOLDER)).unwrap().count();
    let short = results(folder.path(), 10, "1ms".parse().unwrap(), 1_000);
    let uri = short.cut(&id("ann"), "find", text(&"a".repeat(300))).await.1.unwrap().uri.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert!(short.read(&id("ann"), &uri).await.is_err(), "its time is over");
    let long = results(folder.path(), 10, hour(), 1_000);
    for letter in ["b", "c", "d", "e"] {
        assert!(long.cut(&id("ann"), "find", text(&letter.repeat(300))).await.1.unwrap().uri.is_some());
    }
    assert!((1..=2).contains(&files()), "there is room for two, and there are {}", files());
    let too_large = long.cut(&id("ann"), "find", text(&"f".repeat(2_000))).await.1.unwrap();
    assert_eq!(too_large.uri, None, "what cannot be kept is told as that");
}

fn wanted(reply: &Reply, arguments: Value) -> (String, Value) {
    let wanted: read::Wanted = serde_json::from_value(arguments).unwrap();
    let given: Value = wanted.of(&reply.raw, 1_000).unwrap().parse().unwrap();
    (given["content"][0]["text"].as_str().unwrap().to_owned(), given["structuredContent"].clone())
}

#[test]
fn pages_lines_and_pointers() {
    let lines = text("one\ntwo\nthree\ntwo and a half\n");
    let of = |arguments| wanted(&lines, arguments);
    let place = |offset, next: Option<u64>| json!({ "offset": offset, "nextOffset": next, "total": 29 });
    assert_eq!(of(json!({ "uri": "", "length": 5 })), ("one\nt".to_owned(), place(0, Some(5))));
    assert_eq!(of(json!({ "uri": "", "offset": 23 })), (" half\n".to_owned(), place(23, None)));
    let (shown, place) = of(json!({ "uri": "", "grep": "^two" }));
    assert_eq!(shown, "2: two\n4: two and a half");
    assert_eq!(place, json!({ "matches": 2, "nextOffset": null, "total": 4 }));
    assert_eq!(of(json!({ "uri": "", "grep": "half", "context": 1 })).0, "3: three\n4: two and a half");
    let (shown, place) = of(json!({ "uri": "", "grep": "o", "length": 1 }));
    assert_eq!((shown.as_str(), &place["nextOffset"]), ("1: one", &json!(1)));
    assert_eq!(of(json!({ "uri": "", "grep": "o", "offset": 1, "length": 1 })).0, "2: two");
    let bad: read::Wanted = serde_json::from_value(json!({ "uri": "", "grep": "(" })).unwrap();
    assert!(bad.of(&lines.raw, 100).unwrap_err().starts_with("`grep` is not a pattern"));

    let structured = reply(json!({ "content": [], "structuredContent": { "a": [{ "b": "text" }, 2] } }));
    assert_eq!(wanted(&structured, json!({ "uri": "", "pointer": "/a/0/b" })).0, "text");
    assert_eq!(wanted(&structured, json!({ "uri": "", "pointer": "/a/1" })).0, "2");
    let as_text = text(r#"{"a":{"b":[1,2]}}"#);
    assert_eq!(wanted(&as_text, json!({ "uri": "", "pointer": "/a/b/1" })).0, "2");
    let nothing: read::Wanted = serde_json::from_value(json!({ "uri": "", "pointer": "/z" })).unwrap();
    assert_eq!(nothing.of(&as_text.raw, 100).unwrap_err(), "there is nothing at `/z`");
}

proptest! {
    /// Pages follow each other without a gap, whatever the text and the length of a page.
    #[test]
    fn pages_make_the_whole(whole in "[aä€😀\n]{0,60}", length in 1usize..9) {
        let reply = text(&whole);
        let (mut read, mut offset) = (String::new(), Some(0));
        while let Some(at) = offset {
            let (page, place) = wanted(&reply, json!({ "uri": "", "offset": at, "length": length }));
            read.push_str(&page);
            offset = place["nextOffset"].as_u64();
        }
        prop_assert_eq!(read, whole);
    }

    /// A preview is as long as was said at most, valid, and the beginning of the whole.
    #[test]
    fn a_preview_is_the_beginning(whole in "[aä€😀]{50,90}", most in 1usize..40) {
        let (given, shown) = preview(&text(&whole).raw, most, None, "find");
        let given: Value = given.parse().unwrap();
        let beginning = given["content"][0]["text"].as_str().unwrap();
        prop_assert!(beginning.len() <= most && whole.starts_with(beginning) && shown == most);
    }
}
