//! Minimal client on the official SDK: starts a server, lists its tools, exits.
//!
//! Baseline for `cargo xtask bench catalog`, which compares it with `toolgate tools list`.

use rmcp::ServiceExt;
use rmcp::transport::TokioChildProcess;

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "the list is what it is asked for")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args_os().skip(1);
    let mut command = tokio::process::Command::new(words.next().ok_or("usage: raw_client COMMAND …")?);
    command.args(words);
    let client = ().serve(TokioChildProcess::new(command)?).await?;
    for tool in client.list_all_tools().await? {
        println!("{}  {}", tool.name, tool.description.unwrap_or_default());
    }
    client.cancel().await?;
    Ok(())
}
