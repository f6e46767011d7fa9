//! Parses the frames of a WebSocket server: independent of chunk boundaries, and messages never exceed the size limit.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toolgate_mcp::fuzz::websocket(bytes));
