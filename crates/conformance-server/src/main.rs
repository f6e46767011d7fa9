//! A good MCP server on somebody else's implementation: `conformance-server --http PORT | --sse PORT | --stdio`.
//!
//! It has every tool, prompt and resource that the official conformance suite looks for, and speaks all
//! revisions; with `--legacy` it has never heard of the ones without a handshake, as is always so over
//! HTTP+SSE, whose clients are older than those. Port 0 is one that is free; the port is printed. A tool
//! that asks the client for something does so in the way of the revision that it was called in, so that
//! what stands between a client and a server of different eras has something to translate. With `--chain PORT URL` it
//! is no server but a gateway to one, as simple as the library lets one write it: see [`chain`].
//! Invariant: it knows nothing of Toolgate, and what goes over the wire is the library's doing.

mod ask;
mod chain;
mod http;
mod legacy;
mod prompts;
mod resources;
mod server;
mod sse;
mod tasks;
mod tools;

use std::io::Write;
use std::process::ExitCode;

use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::io::stdio_pipes;
use serde::de::DeserializeOwned;
use serde_json::Value;

use server::Fixture;

/// The revisions that a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// All that the library knows.
    Dual,
    /// Those with a handshake.
    Legacy,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let served = match arguments[..] {
        ["--stdio"] => stdio(Era::Dual).await,
        ["--stdio", "--legacy"] => stdio(Era::Legacy).await,
        ["--http", port] => http::serve(port, http::Door::mcp(Era::Dual)).await,
        ["--http", port, "--legacy"] => http::serve(port, http::Door::mcp(Era::Legacy)).await,
        ["--sse", port] | ["--sse", port, "--legacy"] => http::serve(port, http::Door::sse()).await,
        ["--chain", port, url] => match http::Door::chain(url).await {
            Ok(door) => http::serve(port, door).await,
            Err(error) => Err(error),
        },
        _ => {
            complain(
                "usage: conformance-server (--http PORT | --sse PORT | --stdio) [--legacy] | --chain PORT URL",
            );
            return ExitCode::from(2);
        }
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Serves who started this process, until its end of the pipe closes.
async fn stdio(era: Era) -> Result<(), Box<dyn std::error::Error>> {
    let (reader, writer) = stdio_pipes();
    let transport = AsyncRwTransport::new_server(reader, writer);
    let fixture = Fixture::new(era);
    let running = match era {
        Era::Dual => fixture.serve(transport).await,
        Era::Legacy => fixture.serve(legacy::Transport::new(transport)).await,
    };
    match running {
        Ok(running) => drop(running.waiting().await?),
        // Whoever only looks whether it starts has seen enough.
        Err(ServerInitializeError::ConnectionClosed(_)) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// A value of the library's from how it is written on the wire.
fn typed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("the fixtures are written as the protocol wants them")
}
