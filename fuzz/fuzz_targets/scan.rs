//! A message before it is parsed: taken exactly when `serde_json`, made strict, takes it.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toolgate_mcp::fuzz::scan(bytes));
