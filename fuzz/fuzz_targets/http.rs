//! Reads heads and chunked bodies: whole and byte by byte, with the same result.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toolgate_http::fuzz::http(bytes));
