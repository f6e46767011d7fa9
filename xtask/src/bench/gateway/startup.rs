//! Cold start: the time from the start of `toolgate serve` to the answer of the first call.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;
use serde_json::json;

use super::contender::{self, BenchSetup, Contender, GatewayProject};
use super::median;

/// Starts in a project that was started before.
const RUNS: usize = 15;
/// Time limit for the first call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Milliseconds from the start of the process to the answer of its first call.
#[derive(Debug, Clone, Serialize)]
pub(super) struct StartupReport {
    /// The first start in a new project. It records the definitions of all tools.
    pub(super) first_ms: f64,
    /// Median of later starts.
    pub(super) later_ms: f64,
}

pub(super) fn measure(setup: &BenchSetup<'_>) -> anyhow::Result<StartupReport> {
    let upstream = contender::upstream(setup)?;
    let project = GatewayProject::create(setup, "startup", upstream.port)?;
    // The executable may not be in memory yet; this start does not count.
    let warm_up = GatewayProject::create(setup, "startup-warm-up", upstream.port)?;
    start_once(setup, &warm_up)?;
    let first_ms = start_once(setup, &project)?;
    let later = (0..RUNS).map(|_| start_once(setup, &project)).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(StartupReport { first_ms, later_ms: median(later) })
}

fn start_once(setup: &BenchSetup<'_>, project: &GatewayProject) -> anyhow::Result<f64> {
    let start = Instant::now();
    let gateway = project.start(setup)?;
    call(&gateway).context("the first call failed")?;
    let elapsed = start.elapsed();
    gateway.stop(CALL_TIMEOUT)?;
    Ok(elapsed.as_secs_f64() * 1_000.0)
}

/// Makes one call over a new connection.
fn call(gateway: &Contender) -> anyhow::Result<()> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "startup", "version": "1.0.0" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": "small", "arguments": { "query": "something" }, "_meta": meta });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let headers = gateway.headers();
    let request = format!(
        "POST /mcp HTTP/1.1\r\n{headers}MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: small\r\n\
         Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(("127.0.0.1", gateway.port()))?;
    stream.set_read_timeout(Some(CALL_TIMEOUT))?;
    stream.write_all(request.as_bytes())?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    let response = String::from_utf8_lossy(&response);
    anyhow::ensure!(response.contains(r#""result""#), "unexpected response: {response}");
    Ok(())
}
