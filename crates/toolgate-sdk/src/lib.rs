//! Typed tools in Rust: a function with a doc comment and a parameters struct becomes a tool that keeps the
//! full contract, and a set of tools becomes an MCP server.
//!
//! [`tool`](macro@tool) is the short way, [`Tool::builder`] the one with all the words; the first only calls the
//! second. [`testing`] calls tools in the same process. docs/sdk.md tells more, and `examples/cards` shows all.
//!
//! ```
//! use toolgate_sdk::{ToolError, tool};
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Params {
//!     /// The text to be counted.
//!     text: String,
//! }
//!
//! #[derive(serde::Serialize, schemars::JsonSchema)]
//! struct Count {
//!     words: usize,
//! }
//!
//! /// Counts the words of a text. Use it before a text is sent where there is a limit. Returns the number.
//! #[tool(
//!     version = "1.0.0", category = analysis, response_time = fast, idempotent = true,
//!     cacheable = false, permissions = [], tags = ["text"],
//!     example(description = "Two words", params = { "text": "good morning" }, result = { "words": 2 })
//! )]
//! fn count_words(params: Params) -> Result<Count, ToolError> {
//!     Ok(Count { words: params.text.split_whitespace().count() })
//! }
//!
//! assert_eq!(count_words_tool()?.name(), "count-words");
//! # Ok::<(), toolgate_sdk::Unmet>(())
//! ```
//!
//! A name, a doc comment or a version that breaks a rule does not compile:
//!
//! ```compile_fail
//! # use toolgate_sdk::{ToolError, tool};
//! # #[derive(serde::Deserialize, schemars::JsonSchema)]
//! # struct Params {}
//! # #[derive(serde::Serialize, schemars::JsonSchema)]
//! # struct Count {}
//! /// Too short.
//! #[tool(
//!     version = "1.0.0", category = analysis, response_time = fast, idempotent = true,
//!     cacheable = false, permissions = [], tags = ["text"], example(description = "None", params = {})
//! )]
//! fn count_words(params: Params) -> Result<Count, ToolError> {
//!     Ok(Count {})
//! }
//! ```
//!
//! Invariant: a [`Tool`] that exists keeps every rule of the contract, and each of its results is whole.

// The attribute names this crate as its users do; its own tests use it too.
extern crate self as toolgate_sdk;

pub mod builder;
pub mod common;
pub mod definition;
pub mod error;
pub mod hints;
pub mod id;
pub mod mcp;
mod schema;
pub mod serve;
pub mod testing;
pub mod tool;
pub mod tools;

pub use builder::{ToolBuilder, Unmet, UnmetRule};
pub use common::{DateRange, Metadata, Page, Pagination, SortOrder, Sorting};
pub use definition::Definition;
pub use error::ToolError;
pub use hints::{Answer, Hints};
pub use id::Id;
pub use jiff::Timestamp;
pub use schemars;
pub use serde;
pub use serde_json::{self, Value, json};
pub use serve::serve;
pub use tool::{CallResult, Tool};
pub use toolgate_sdk_macros::tool;
pub use toolgate_types::ToolContext as Context;
pub use toolgate_types::contract;
pub use toolgate_types::tool::{Category, ResponseTime};
pub use tools::Tools;
