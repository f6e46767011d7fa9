//! Entry points for the fuzz targets: each feeds arbitrary bytes to one parser and checks its invariants.

use std::path::PathBuf;
use std::sync::LazyLock;

use jiff::civil::date;
use serde_json::Value;
use toolgate_redact::{KnownSecrets, contains_credential, mask_config};
use toolgate_types::Secret;

use crate::fields::SecretFields;
use crate::folder;
use crate::read::history::HistoryWindow;
use crate::read::{CallFilter, LogReader};
use crate::redact::Redactor;
use crate::verify::verify;

/// A secret with several encodings, none of which may appear.
const SECRET: &str = "a\"b/c d";
/// The secret in hexadecimal and, without the characters that depend on the next byte, in base64.
const ENCODED: [&str; 3] = ["6122622f632064", "6122622F632064", "YSJiL2MgZ"];

/// Redacts arbitrary text as JSON and as a string. The result must be one line of JSON without the secret.
///
/// # Panics
/// If the invariant does not hold.
pub fn redact(text: &str) {
    static PARTS: LazyLock<(Redactor, SecretFields)> = LazyLock::new(|| {
        let schema =
            serde_json::json!({ "properties": { "pin": { "x-secret": true } }, "items": { "$ref": "#" } });
        let pattern = "ACME-[0-9]+".parse().expect("it is a pattern");
        (Redactor::new(vec![Secret::new(SECRET)], vec![pattern]), SecretFields::from_schema(&schema))
    });
    let (redactor, fields) = &*PARTS;
    let mut line = String::new();
    redactor.write(&KnownSecrets::default(), &mut line, |line, out| line.json(text, fields, out));
    assert!(!line.contains('\n'), "one line: {line}");
    let before: Option<Value> = serde_json::from_str(text).ok();
    let after: Option<Value> = serde_json::from_str(&line).ok();
    assert!(before.is_none() || after.is_some(), "valid JSON stays valid: {line}");
    after.iter().for_each(assert_hidden);
    let mut line = String::new();
    redactor.write(&KnownSecrets::default(), &mut line, |line, out| line.write_string(text, out));
    assert_hidden(&serde_json::from_str(&line).expect("a string is JSON"));
    let once = redactor.mask(text);
    assert_eq!(redactor.mask(&once), once, "masking is idempotent");
    // The stricter and the laxer rules of egress and of configurations accept any text too.
    contains_credential(text, &KnownSecrets::default());
    mask_config(text, &[]);
}

fn assert_hidden(value: &Value) {
    match value {
        Value::String(text) => {
            let shown = ENCODED.into_iter().chain([SECRET]).find(|form| text.contains(form));
            assert!(shown.is_none(), "the secret is in {text}");
        }
        Value::Array(items) => items.iter().for_each(assert_hidden),
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            assert_hidden(&Value::String(name.clone()));
            assert_hidden(value);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Reads arbitrary bytes as a day's file. Every query must succeed, and recovery may only truncate the end.
///
/// # Panics
/// If the invariant does not hold, or the folder for temporary files cannot be used.
pub fn log(bytes: &[u8]) {
    let name = format!("toolgate-fuzz-log-{}", std::process::id());
    // In memory if possible: on a busy disk a sync can take seconds.
    let memory = PathBuf::from("/dev/shm");
    let folder = if memory.is_dir() { memory } else { std::env::temp_dir() }.join(name);
    fs_err::create_dir_all(&folder).expect("it can be made");
    let path = folder::day_path(&folder, date(2026, 11, 15));
    fs_err::write(&path, bytes).expect("it can be written");
    let reader = LogReader::new(&folder);
    for newest_first in [false, true] {
        let filter = CallFilter { newest_first, ..CallFilter::default() };
        let calls = reader.query(filter).expect("it can be read");
        calls.for_each(|call| drop(call.expect("it can be read")));
    }
    reader.stats(&CallFilter::default()).expect("it can be read");
    reader.show("c1").expect("it can be read");
    let recent = HistoryWindow { since: None, calls: 100, bytes: 1 << 20 };
    reader.history(&recent).expect("it can be read");
    let before = verify(&folder).expect("it can be read").records;
    let found = folder::recover(&folder).expect("it can be recovered");
    let kept = fs_err::read(&path).expect("it can be read");
    assert!(
        bytes.starts_with(&kept) && (kept.is_empty() || kept.ends_with(b"\n")),
        "only the end is truncated"
    );
    assert!(verify(&folder).expect("it can be read").records <= before);
    let again = folder::recover(&folder).expect("it can be recovered");
    assert_eq!((again.head, again.torn.len()), (found.head, 0), "recovery is idempotent");
    fs_err::remove_dir_all(&folder).expect("it can be removed");
}
