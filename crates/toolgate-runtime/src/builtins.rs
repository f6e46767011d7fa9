//! The tools that Toolgate brings along: which there are, and which key of the configuration brings each.

use crate::desk::REQUEST_HUMAN_INPUT;

/// The key of the configuration that brings a tool of ours.
pub fn key(tool: &str) -> Option<&'static str> {
    match tool {
        REQUEST_HUMAN_INPUT => Some("human_input"),
        _ => None,
    }
}
