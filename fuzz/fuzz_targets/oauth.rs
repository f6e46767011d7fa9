//! Reads OAuth metadata and challenges: they count only for the resource and issuer that were asked for.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toolgate_mcp::fuzz::oauth(bytes));
