//! Parses a stream of server-sent events: the result follows the WHATWG rules and does not depend on chunk boundaries.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toolgate_mcp::fuzz::events(bytes));
