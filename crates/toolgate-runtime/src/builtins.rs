//! The tools that Toolgate brings along: which there are, and which key of the configuration brings each.

use std::sync::Arc;

use toolgate_types::BuiltinRules;
use toolgate_upstream::Builtin;
use toolgate_upstream::search::{self, WEB_SEARCH};

use crate::desk::{self, Desk, REQUEST_HUMAN_INPUT};

/// Those that the configuration wants. Questions to people wait at the desk.
pub fn all(rules: BuiltinRules, desk: Option<&Arc<Desk>>) -> Vec<Builtin> {
    let asks = desk.map(desk::tool);
    let searches = rules.web_search.map(search::tool);
    [asks, searches].into_iter().flatten().collect()
}

/// The key of the configuration that brings a tool of ours.
pub fn key(tool: &str) -> Option<&'static str> {
    match tool {
        REQUEST_HUMAN_INPUT => Some("human_input"),
        WEB_SEARCH => Some("web_search"),
        _ => None,
    }
}
