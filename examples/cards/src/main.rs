//! Serves the tools: over stdio, or over HTTP with `--http 127.0.0.1:7400`.

use cards::store::Store;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let tools = cards::tools(&Store::sample()?)?;
    toolgate_sdk::serve(tools).await?;
    Ok(())
}
