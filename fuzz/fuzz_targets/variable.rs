//! A text with `${NAME}` in it: never a panic, a hang or endless expansion.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // What is not UTF-8 is refused before any reader sees it.
    if let Ok(text) = std::str::from_utf8(bytes) {
        toolgate_config::fuzz::variable(text);
    }
});
