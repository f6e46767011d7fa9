//! The tools that Toolgate brings along: which there are, and which key of the configuration brings each.

use std::path::Path;
use std::sync::Arc;

use toolgate_types::BuiltinRules;
use toolgate_upstream::Builtin;
use toolgate_upstream::code::Runner;
use toolgate_upstream::search::{self, WEB_SEARCH};

use crate::desk::{self, Desk, REQUEST_HUMAN_INPUT};
use crate::results::Results;

mod code;

/// Those that the configuration wants. Questions to people wait at the desk; large files are kept with the results.
pub fn all(
    rules: BuiltinRules,
    project: &Path,
    desk: Option<&Arc<Desk>>,
    results: Option<&Arc<Results>>,
) -> Vec<Builtin> {
    let asks = desk.map(desk::tool);
    let searches = rules.web_search.map(search::tool);
    let runs = rules.code_execution.map(|rules| code::tool(Runner::new(rules, project), results.cloned()));
    [asks, searches, runs].into_iter().flatten().collect()
}

/// The key of the configuration that brings a tool of ours.
pub fn key(tool: &str) -> Option<&'static str> {
    match tool {
        REQUEST_HUMAN_INPUT => Some("human_input"),
        WEB_SEARCH => Some("web_search"),
        code::CODE_EXECUTION => Some("code_execution"),
        _ => None,
    }
}
