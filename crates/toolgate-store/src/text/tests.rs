//! Tests of the JSON editor: texts before and after a change, and properties of all changes.

use std::collections::BTreeSet;

use jsonc_parser::parse_to_serde_value;
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Parses a text. Returns `None` if it is not JSON.
fn held(text: &str) -> Option<Json> {
    parse_to_serde_value(text, &OPTIONS).ok()
}

fn check(before: &str, change: impl FnOnce(&mut EntryList), after: &str) {
    let mut list = EntryList::parse(before).unwrap();
    assert_eq!(list.text(), before, "uncut");
    change(&mut list);
    assert_eq!(list.text(), after);
    assert!(held(after).is_some(), "{after}");
}

#[test]
fn entries_are_added_in_the_style_of_the_file() {
    let entry = json!({ "a": 1, "b": ["x", "y"], "c": [{ "d": {} }] });
    let add = |list: &mut EntryList| list.push(Some("new"), &entry);
    let pretty = "\"new\": {\n    \"a\": 1,\n    \"b\": [\"x\", \"y\"],\n    \"c\": [\n      {\n        \"d\": {}\n      }\n    ]\n  }";
    check("{}", add, &format!("{{\n  {pretty}\n}}"));
    check("{\n  \"old\": 1\n}\n", add, &format!("{{\n  \"old\": 1,\n  {pretty}\n}}\n"));
    check(r#"{"old":1}"#, add, r#"{"old":1, "new":{"a":1,"b":["x","y"],"c":[{"d":{}}]}}"#);
    check(
        "{\n\t\"old\" : 1\n}",
        |list| list.push(Some("n"), &json!({ "a": 1 })),
        "{\n\t\"old\" : 1,\n\t\"n\" : {\n\t\t\"a\": 1\n\t}\n}",
    );
    check(
        "{\r\n  \"old\": 1\r\n}",
        |list| list.push(Some("n"), &json!({ "a": 1 })),
        "{\r\n  \"old\": 1,\r\n  \"n\": {\r\n    \"a\": 1\r\n  }\r\n}",
    );
}

#[test]
fn comments_and_commas_stay_where_they_are() {
    let add = |list: &mut EntryList| list.push(None, &json!(9));
    check(
        "[\n  1, // one\n  2 // two  \n  // the end\n]",
        add,
        "[\n  1, // one\n  2, // two  \n  // the end\n  9\n]",
    );
    check("[\n  1,\n  2, // two\n]", add, "[\n  1,\n  2, // two\n  9,\n]");
    check("[ // nothing yet\n]", add, "[ // nothing yet\n  9\n]");
    check("[/* none */]", add, "[/* none */\n  9\n]");
    check("[1 /* one */]", add, "[1, /* one */ 9]");
}

#[test]
fn removes_entries_and_keeps_comments() {
    let text = "[\n  1, // one\n  2, // two\n  // about three\n  3 // three\n]";
    check(text, |list| list.remove(0), "[ // one\n  2, // two\n  // about three\n  3 // three\n]");
    check(text, |list| list.remove(1), "[\n  1, // one\n  // two\n  // about three\n  3 // three\n]");
    check(text, |list| list.remove(2), "[\n  1, // one\n  2 // two\n  // about three\n  // three\n]");
    check("[\n  1,\n  2,\n]", |list| list.remove(1), "[\n  1,\n]");
    check("[\n  1,\n  2\n]", |list| list.remove(1), "[\n  1\n]");
    check("[\n  1,\n  2\n]", |list| list.remove(0), "[\n  2\n]");
    check("[1, 2]", |list| list.remove(0), "[2]");
    check("[1, 2]", |list| list.remove(1), "[1]");
    check("[\n  1\n]", |list| list.remove(0), "[]");
    check("[1 // one\n]", |list| list.remove(0), "[ // one\n]");
}

#[test]
fn values_are_replaced_in_their_place() {
    let text = "{\n  // first\n  \"a\": {\n    \"x\": 1\n  }, \"b\": {\"y\": 2} /* b */\n}";
    check(
        text,
        |list| list.set("a", &json!({ "z": 3 })),
        "{\n  // first\n  \"a\": {\n    \"z\": 3\n  }, \"b\": {\"y\": 2} /* b */\n}",
    );
    check(
        text,
        |list| list.set("b", &json!({ "z": 3 })),
        "{\n  // first\n  \"a\": {\n    \"x\": 1\n  }, \"b\": { \"z\": 3 } /* b */\n}",
    );
}

#[test]
fn edits_an_inner_list() {
    let text = "{\n  \"servers\": {},\n  \"inputs\": []\n}\n";
    let mut list = EntryList::parse(text).unwrap();
    let mut inner = list.inner("servers").unwrap().unwrap();
    inner.push(Some("a"), &json!({ "url": "x" }));
    list.put_inner("servers", &inner);
    assert_eq!(
        list.text(),
        "{\n  \"servers\": {\n    \"a\": {\n      \"url\": \"x\"\n    }\n  },\n  \"inputs\": []\n}\n"
    );
}

#[test]
fn rejects_invalid_json() {
    for text in
        ["", "[", "{\"a\"}", "{\"a\":}", "[1 2]", "[] []", "{1: 2}", "[,]", "{\"a\": [}", "\"a\"", "// x"]
    {
        assert!(EntryList::parse(text).is_err(), "{text}");
    }
}

#[test]
fn limits_depth_before_splitting() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(EntryList::parse(&nested(512)).unwrap().text(), nested(512));
    assert!(matches!(EntryList::parse(&nested(520)), Err(TextError::Syntax(_))));
    assert!(matches!(EntryList::parse(&nested(1_000_000)), Err(TextError::Syntax(_))));
}

#[test]
fn error_messages() {
    for (text, message) in [
        ("// x", "it is not valid JSON: there is no value"),
        ("1", "it is neither an object nor an array"),
        ("{", "it is not valid JSON"),
        // A byte order mark is rejected, not dropped.
        ("\u{feff}{}", "it is not valid JSON"),
    ] {
        assert_eq!(EntryList::parse(text).unwrap_err().to_string(), message, "{text}");
    }
}

/// Blank lines, mixed line endings and unusual spacing outside of the entry stay.
#[test]
fn spacing_elsewhere_stays() {
    let text = "{\n\n\n  \"a\" :1 , \r\n\t\"b\":  2  ,\n\n\n}\r\n\n";
    check(text, |list| list.set("b", &json!(3)), &text.replace("2", "3"));
    check(
        text,
        |list| list.push(Some("c"), &json!(3)),
        "{\n\n\n  \"a\" :1 , \r\n\t\"b\":  2  ,\r\n\t\"c\":  3,\n\n\n}\r\n\n",
    );
    check(text, |list| list.remove(1), "{\n\n\n  \"a\" :1 ,\n\n\n}\r\n\n");
}

/// Generates white space and comments.
fn trivia() -> impl Strategy<Value = String> {
    proptest::collection::vec(
        prop_oneof![
            4 => Just("\n  ".to_owned()),
            2 => Just(" ".to_owned()),
            1 => Just("\r\n".to_owned()),
            1 => "[a-z]{1,3}".prop_map(|word| format!("// {word}-{word} \n")),
            1 => "[a-z]{1,3}".prop_map(|word| format!("/* {word}, ] */")),
        ],
        0..4,
    )
    .prop_map(|parts| parts.concat())
}

/// Generates an object in unusual formatting.
fn messy() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just("1.50".to_owned()),
        Just("\"a, ] } \\\" // b\"".to_owned()),
        Just("{ \"unknown\" : [1,\n 2, // two\n] }".to_owned()),
    ];
    let entry = (trivia(), trivia(), trivia(), value, trivia());
    (trivia(), proptest::collection::vec(entry, 0..6), any::<bool>(), trivia(), trivia()).prop_map(
        |(before, entries, trailing, end, after)| {
            let mut text = format!("{before}{{");
            for (index, (lead, behind, colon, value, tail)) in entries.iter().enumerate() {
                let comma = if index + 1 < entries.len() || trailing { "," } else { "" };
                text += &format!("{lead}\"k{index}\"{behind}:{colon}{value}{tail}{comma}");
            }
            text + &end + "}" + &after
        },
    )
}

#[derive(Debug, Clone)]
enum Step {
    Set(u8, u8),
    Remove(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..9_u8, any::<u8>()).prop_map(|(key, value)| Step::Set(key, value)),
        (0..9_u8).prop_map(Step::Remove)
    ]
}

/// Returns all comments of a text.
fn remarks(text: &str) -> BTreeSet<String> {
    let mut scanner = Scanner::new(text, &ScannerOptions::default());
    let mut found = BTreeSet::new();
    while let Ok(Some(token)) = scanner.scan() {
        if let Token::CommentLine(remark) | Token::CommentBlock(remark) = token {
            found.insert(remark.to_owned());
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changes_keep_everything_else(text in messy(), steps in proptest::collection::vec(step(), 1..12)) {
        let mut list = EntryList::parse(&text).unwrap();
        prop_assert_eq!(list.text(), text.clone());
        let mut model = held(&text).unwrap().as_object().unwrap().clone();
        for step in steps {
            let before: Vec<_> = list.entries.iter().map(|entry| (entry.key.as_ref().unwrap().text.clone(), entry.value.clone())).collect();
            let outside: BTreeSet<_> = {
                let trivia = list.entries.iter().flat_map(|entry| [&entry.before, &entry.after]);
                trivia.chain([&list.open, &list.end, &list.close]).flat_map(|text| remarks(text)).collect()
            };
            let touched = match step {
                Step::Set(key, value) => {
                    let key = format!("k{key}");
                    let value = json!({ "n": value, "list": [value, { "deep": true }] });
                    list.set(&key, &value);
                    model.insert(key.clone(), value);
                    key
                }
                Step::Remove(key) => {
                    let key = format!("k{key}");
                    if let Some(at) = list.position(&key) {
                        list.remove(at);
                    }
                    model.shift_remove(&key);
                    key
                }
            };
            let text = list.text();
            let now = held(&text);
            prop_assert_eq!(now.as_ref(), Some(&Json::Object(model.clone())), "{}", text);
            let order: Vec<_> = model.keys().collect();
            prop_assert_eq!(list.keys().collect::<Vec<_>>(), order);
            let again = EntryList::parse(&text).unwrap();
            for (key, value) in before.iter().filter(|(key, _)| !key.contains(&format!("\"{touched}\""))) {
                let kept = again.entries.iter().any(|entry| entry.key.as_ref().unwrap().text == *key && entry.value == *value);
                prop_assert!(kept, "{} is not what it was in {}", key, text);
            }
            let left = remarks(&text);
            prop_assert!(outside.is_subset(&left), "{:?} were lost in {}", outside.difference(&left).collect::<Vec<_>>(), text);
        }
    }
}
