//! A body and a text of the execution log: one line of JSON, and no secret in it.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // What is not UTF-8 is refused before any reader sees it.
    if let Ok(text) = std::str::from_utf8(bytes) {
        toolgate_audit::fuzz::redact(text);
    }
});
