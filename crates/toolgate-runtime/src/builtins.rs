//! Built-in tools, and the configuration key that enables each.

use std::path::Path;
use std::sync::Arc;

use toolgate_types::BuiltinConfig;
use toolgate_upstream::BuiltinTool;
use toolgate_upstream::code::CodeRunner;
use toolgate_upstream::search::{self, WEB_SEARCH};

use crate::questions::{self, QuestionQueue, REQUEST_HUMAN_INPUT};
use crate::results::ResultStore;

mod code;

pub use code::CODE_EXECUTION;
pub(crate) use code::reply as code_reply;

/// Creates the enabled built-in tools. `request_human_input` uses the queue; large files go to the result store.
pub fn enabled(
    rules: BuiltinConfig,
    project: &Path,
    queue: Option<&Arc<QuestionQueue>>,
    results: Option<&Arc<ResultStore>>,
) -> Vec<BuiltinTool> {
    let human_input = queue.map(questions::input_tool);
    let web_search = rules.web_search.map(search::tool);
    let code_execution =
        rules.code_execution.map(|rules| code::tool(CodeRunner::new(rules, project), results.cloned()));
    [human_input, web_search, code_execution].into_iter().flatten().collect()
}

/// The configuration key that enables a built-in tool.
pub fn config_key(tool: &str) -> Option<&'static str> {
    match tool {
        REQUEST_HUMAN_INPUT => Some("human_input"),
        WEB_SEARCH => Some("web_search"),
        code::CODE_EXECUTION => Some("code_execution"),
        _ => None,
    }
}
