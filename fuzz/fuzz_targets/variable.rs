//! Expands a text with `${NAME}`: must not panic, hang or expand without end.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // Input that is not UTF-8 is rejected before it reaches the parser.
    if let Ok(text) = std::str::from_utf8(bytes) {
        toolgate_config::fuzz::variable(text);
    }
});
