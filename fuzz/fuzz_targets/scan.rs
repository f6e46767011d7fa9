//! Scans a message before it is parsed: accepted if and only if a strict `serde_json` accepts it.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toolgate_mcp::fuzz::scan(bytes));
