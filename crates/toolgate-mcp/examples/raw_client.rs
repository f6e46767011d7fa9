//! The official SDK as a client and nothing around it: starts a server, lists its tools, ends.
//!
//! What `cargo xtask bench catalog` compares `toolgate tools list` with.

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
