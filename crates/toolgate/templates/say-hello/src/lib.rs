//! The tool `say-hello`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_sdk::{ToolError, Tools, tool};

/// What it takes. Every field needs a comment: it is all that a model knows of it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Params {
    /// A text.
    pub text: String,
}

/// What it gives.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Output {
    /// The text.
    pub text: String,
    /// How many characters it has.
    pub length: usize,
}

/// What say-hello does, when to use it, and what it returns: models choose by this text.
#[tool(
    version = "0.1.0",
    category = analysis,
    response_time = fast,
    idempotent = true,
    cacheable = false,
    permissions = [],
    tags = ["say-hello"],
    example(description = "A short text", params = { "text": "hello" }, result = { "text": "hello", "length": 5 })
)]
pub async fn say_hello(params: Params) -> Result<Output, ToolError> {
    let length = params.text.chars().count();
    Ok(Output { text: params.text, length })
}

/// All tools that are served.
///
/// # Errors
/// The rules of the contract that one of them does not keep.
pub fn tools() -> Result<Tools, Box<dyn std::error::Error + Send + Sync>> {
    Ok(Tools::new("say-hello", env!("CARGO_PKG_VERSION")).with(say_hello_tool()?)?)
}
