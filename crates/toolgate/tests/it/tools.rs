//! Local tools: scripts, SDK, OpenAPI, code execution and web search.

mod code_execution;
mod functions;
mod new_script;
mod new_sdk_tool;
mod openapi;
#[cfg(target_os = "linux")]
mod sandbox_escapes;
mod script_swaps;
mod scripts;
mod sdk;
mod web_search;
mod workers;
