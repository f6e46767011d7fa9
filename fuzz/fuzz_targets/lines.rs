//! The output of a child: however it is cut, its lines, and never more than one of them in memory.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toolgate_mcp::fuzz::lines(bytes));
