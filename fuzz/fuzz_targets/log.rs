//! A file of the execution log: questions are answered, and recovery cuts off its end alone.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toolgate_audit::fuzz::log(bytes));
