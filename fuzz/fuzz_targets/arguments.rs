//! Decides calls with arbitrary arguments: a forbidden value is never allowed, however the arguments are prepared.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toolgate_policy::fuzz::arguments(bytes));
