//! Typed tools in Rust: a function with a doc comment and a parameters struct becomes a tool that fulfils the full
//! contract, and a set of tools becomes an MCP server.
//!
//! Define tools with the attribute [`tool`](macro@tool) or with [`Tool::builder`], its long form. [`testing`] calls
//! tools in the same process. See docs/sdk.md for a guide and `examples/cards` for a complete program.
//!
//! ```
//! use toolgate_sdk::{ToolError, tool};
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Params {
//!     /// Text to count the words of.
//!     text: String,
//! }
//!
//! #[derive(serde::Serialize, schemars::JsonSchema)]
//! struct Count {
//!     words: usize,
//! }
//!
//! /// Counts the words of a text. Use it before sending text to a service with a word limit. Returns the number.
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
//! # Ok::<(), toolgate_sdk::ContractError>(())
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
//! Invariant: every [`Tool`] fulfils the contract, and each of its results is complete.

#![warn(missing_docs)]

// The attribute refers to this crate by name, and the tests of this crate use it too.
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

pub use builder::{BrokenRule, ContractError, ToolBuilder};
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
