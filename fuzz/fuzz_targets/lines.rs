//! Splits the output of a child process into lines: independent of chunk boundaries, and never more than one line in
//! memory.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toolgate_mcp::fuzz::lines(bytes));
