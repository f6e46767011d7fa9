//! Redacts a body and a text of the execution log: the result is one line of JSON, without secrets.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // Input that is not UTF-8 is rejected before it reaches the parser.
    if let Ok(text) = std::str::from_utf8(bytes) {
        toolgate_audit::fuzz::redact(text);
    }
});
