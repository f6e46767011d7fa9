//! MCP servers behind Toolgate.

mod addresses;
mod by_hand;
mod caller_credentials;
mod credentials;
mod http_faults;
mod http_outages;
mod isolation;
mod logins;
mod outage;
mod packages;
mod pipeline;
mod servers;
mod stdio_faults;
mod stored_results;
mod third_party_servers;
