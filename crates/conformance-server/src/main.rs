//! Reference MCP server on a third-party implementation: `conformance-server --http PORT | --sse PORT | --stdio`.
//!
//! Offers every tool, prompt and resource of the official conformance suite, and speaks all revisions. With `--legacy`
//! it knows only those with a handshake, as always over HTTP+SSE, which predates the others. Port 0 picks a free one;
//! the port is printed. A tool that asks the client a question does so in the way of the revision of the call, so that
//! a gateway between a client and a server of different eras has something to translate. With `--chain PORT URL` it
//! runs a minimal gateway to a server instead: see [`chain`]. Invariant: it does not depend on Toolgate, and the
//! library alone produces what goes over the wire.

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

use server::FixtureServer;

/// Revisions that a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProtocolEra {
    /// All that the library supports.
    Dual,
    /// Those with a handshake.
    Legacy,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let served = match arguments[..] {
        ["--stdio"] => stdio(ProtocolEra::Dual).await,
        ["--stdio", "--legacy"] => stdio(ProtocolEra::Legacy).await,
        ["--http", port] => http::serve(port, http::HttpEndpoint::mcp(ProtocolEra::Dual)).await,
        ["--http", port, "--legacy"] => http::serve(port, http::HttpEndpoint::mcp(ProtocolEra::Legacy)).await,
        ["--sse", port] | ["--sse", port, "--legacy"] => http::serve(port, http::HttpEndpoint::sse()).await,
        ["--chain", port, url] => match http::HttpEndpoint::chain(url).await {
            Ok(endpoint) => http::serve(port, endpoint).await,
            Err(error) => Err(error),
        },
        _ => {
            print_error(
                "usage: conformance-server (--http PORT | --sse PORT | --stdio) [--legacy] | --chain PORT URL",
            );
            return ExitCode::from(2);
        }
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Serves the parent process over stdin and stdout, until it closes the pipe.
async fn stdio(era: ProtocolEra) -> Result<(), Box<dyn std::error::Error>> {
    let (reader, writer) = stdio_pipes();
    let transport = AsyncRwTransport::new_server(reader, writer);
    let fixture = FixtureServer::new(era);
    let running = match era {
        ProtocolEra::Dual => fixture.serve(transport).await,
        ProtocolEra::Legacy => fixture.serve(legacy::LegacyTransport::new(transport)).await,
    };
    match running {
        Ok(running) => drop(running.waiting().await?),
        // A client that only checks whether the server starts.
        Err(ServerInitializeError::ConnectionClosed(_)) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn print_error(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Converts the JSON of the wire to a type of the library.
fn from_wire<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("the fixtures are valid MCP")
}
