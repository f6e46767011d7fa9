//! Doors for the fuzz targets: each gives any bytes to one reader and checks what must hold.

use std::path::PathBuf;
use std::sync::LazyLock;

use jiff::civil::date;
use serde_json::Value;
use toolgate_types::Secret;

use crate::fields::SecretFields;
use crate::folder;
use crate::read::history::Recent;
use crate::read::{Filter, Reader};
use crate::redact::Redactor;
use crate::verify::verify;

/// A text that is spelled in several ways, and is not shown in any.
const SECRET: &str = "a\"b/c d";

/// Any text as a body and as a text: the line stays one line of JSON, and the secret is nowhere in it.
///
/// # Panics
/// When that does not hold.
pub fn redact(text: &str) {
    static PARTS: LazyLock<(Redactor, SecretFields)> = LazyLock::new(|| {
        let schema =
            serde_json::json!({ "properties": { "pin": { "x-secret": true } }, "items": { "$ref": "#" } });
        let pattern = "ACME-[0-9]+".parse().expect("it is a pattern");
        (Redactor::new(vec![Secret::new(SECRET)], vec![pattern]), SecretFields::of(&schema))
    });
    let (redactor, fields) = &*PARTS;
    let mut line = String::new();
    redactor.write(&[], &mut line, |line, out| line.json(text, fields, out));
    assert!(!line.contains('\n'), "one line: {line}");
    let before: Option<Value> = serde_json::from_str(text).ok();
    let after: Option<Value> = serde_json::from_str(&line).ok();
    assert!(before.is_none() || after.is_some(), "what was JSON is JSON: {line}");
    after.iter().for_each(hides);
    let mut line = String::new();
    redactor.write(&[], &mut line, |line, out| line.text(text, out));
    hides(&serde_json::from_str(&line).expect("a text is JSON"));
}

fn hides(value: &Value) {
    match value {
        Value::String(text) => assert!(!text.contains(SECRET), "the secret is in {text}"),
        Value::Array(items) => items.iter().for_each(hides),
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            hides(&Value::String(name.clone()));
            hides(value);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Any bytes as the file of a day: every question is answered, and recovery cuts off the end and nothing else.
///
/// # Panics
/// When that does not hold, or the folder for temporary files cannot be used.
pub fn log(bytes: &[u8]) {
    let name = format!("toolgate-fuzz-log-{}", std::process::id());
    // In memory where that can be: a sync can take a busy disk seconds.
    let memory = PathBuf::from("/dev/shm");
    let folder = if memory.is_dir() { memory } else { std::env::temp_dir() }.join(name);
    fs_err::create_dir_all(&folder).expect("it can be made");
    let path = folder::path(&folder, date(2026, 11, 15));
    fs_err::write(&path, bytes).expect("it can be written");
    let reader = Reader::new(&folder);
    for newest_first in [false, true] {
        let filter = Filter { newest_first, ..Filter::default() };
        let calls = reader.query(filter).expect("it can be read");
        calls.for_each(|call| drop(call.expect("it can be read")));
    }
    reader.stats(&Filter::default()).expect("it can be read");
    reader.show("c1").expect("it can be read");
    let recent = Recent { since: None, calls: 100, bytes: 1 << 20 };
    reader.history(&recent).expect("it can be read");
    let before = verify(&folder).expect("it can be read").records;
    let found = folder::recover(&folder).expect("it can be recovered");
    let kept = fs_err::read(&path).expect("it can be read");
    assert!(bytes.starts_with(&kept) && (kept.is_empty() || kept.ends_with(b"\n")), "the end is cut off");
    assert!(verify(&folder).expect("it can be read").records <= before);
    let again = folder::recover(&folder).expect("it can be recovered");
    assert_eq!((again.head, again.torn.len()), (found.head, 0), "once is enough");
    fs_err::remove_dir_all(&folder).expect("it can be removed");
}
