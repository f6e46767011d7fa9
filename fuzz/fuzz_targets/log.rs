//! Reads a file of the execution log: queries succeed, and recovery truncates only its end.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toolgate_audit::fuzz::log(bytes));
