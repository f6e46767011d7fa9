//! Serves the tools over stdio. The feature `http` of toolgate-sdk adds `--http 127.0.0.1:7400`.

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    toolgate_sdk::serve(say_hello::tools()?).await?;
    Ok(())
}
