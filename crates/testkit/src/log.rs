//! Log of the events that a server saw, for the test that started it: a line of JSON per event in the file that the
//! environment variable `TESTKIT_LOG` names.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// Appends an event, with the time in milliseconds.
pub(crate) fn write(event: &Value) {
    let Some(path) = std::env::var_os("TESTKIT_LOG") else { return };
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let mut line = json!({ "at": at });
    if let (Some(line), Some(event)) = (line.as_object_mut(), event.as_object()) {
        line.extend(event.clone());
    }
    // One write per line, so that lines of different threads and processes do not mix.
    let file = OpenOptions::new().append(true).create(true).open(path);
    let _ = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
}
