//! A TOML configuration file: never a panic or a hang.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // What is not UTF-8 is refused before any reader sees it.
    if let Ok(text) = std::str::from_utf8(bytes) {
        toolgate_config::fuzz::toml(text);
    }
});
