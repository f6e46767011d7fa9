//! MCP servers behind Toolgate.

mod http_faults;
mod outage;
mod packages;
mod pipeline;
mod servers;
mod stdio_faults;
mod stored_results;
mod third_party_servers;
