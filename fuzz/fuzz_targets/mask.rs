//! Masks the first line in the rest of a text: no form of it remains.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // Input that is not UTF-8 is rejected before it reaches the redactor.
    if let Ok(text) = std::str::from_utf8(bytes) {
        toolgate_redact::fuzz::known_secret(text);
    }
});
