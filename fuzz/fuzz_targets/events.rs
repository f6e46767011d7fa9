//! A stream of server-sent events: however it is cut, what the rules of the WHATWG make of it.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toolgate_mcp::fuzz::events(bytes));
