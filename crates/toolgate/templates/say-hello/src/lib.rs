//! The tool `say-hello`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_sdk::{ToolError, Tools, tool};

/// Parameters. Every field needs a doc comment: models know an argument only by it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Params {
    /// Text to measure.
    pub text: String,
}

/// Result.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Output {
    /// The same text.
    pub text: String,
    /// Number of characters.
    pub length: usize,
}

/// Describe what say-hello does, when to use it and what it returns: models choose tools by this text.
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

/// Returns all tools of this program.
///
/// # Errors
/// If the definition of a tool breaks a rule of the contract.
pub fn tools() -> Result<Tools, Box<dyn std::error::Error + Send + Sync>> {
    Ok(Tools::new("say-hello", env!("CARGO_PKG_VERSION")).with(say_hello_tool()?)?)
}
