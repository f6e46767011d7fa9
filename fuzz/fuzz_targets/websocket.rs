//! What a server sends over a WebSocket: however it is cut, messages of the allowed size.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toolgate_mcp::fuzz::websocket(bytes));
