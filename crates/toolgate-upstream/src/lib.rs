//! Everything Toolgate calls: MCP servers with their child processes, connections and health; scripts; HTTP APIs.
//!
//! A server that is a child process is started, supervised and stopped here, together with every process it started.
//! Invariant: all processes started by this crate are gone when they are stopped or dropped, and when Toolgate itself
//! is killed.

mod blocking;
pub mod builtin;
pub mod code;
pub mod connect;
pub mod credentials;
pub mod invoke;
pub mod login_tickets;
pub mod offer;
pub mod openapi;
pub mod poisoning;
pub mod process;
pub mod questions;
pub mod script;
pub mod search;
pub mod server;

/// Types of the MCP client that users of a server need.
pub use toolgate_mcp::oauth::{BrowserLogin, LoginError, LogoutOutcome, TokenSource};
pub use toolgate_mcp::{
    DownstreamClient, Forwarded, LinkError, Params, PeerInfo, RawJson, RequestError, RpcError, TraceContext,
    UserWait, mirror, scan, with_jitter,
};

pub use blocking::run_blocking;
pub use builtin::BuiltinTool;
pub use connect::{ConnectionOwner, OutageKind};
pub use credentials::LoginOptions;
pub use questions::{NoResponder, Responder};
pub use script::ScriptRunner;
pub use server::{
    ClientConnection, ClientFeatures, ListError, LogLimit, MAX_EAGER_WAIT, Requester, ResourceSubscription,
    ResourceUpdate, Server, ServerHistory, ServerOutage, ServerState, ServerUnavailable, log_server_message,
};
