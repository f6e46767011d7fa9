//! What stands behind Toolgate: the servers it runs or reaches, their processes and their health, scripts, and HTTP APIs.
//!
//! A server that is a child process is started, watched and ended here, with everything it started
//! in turn. Invariant: whatever this crate started is gone when it is stopped or dropped, and when
//! Toolgate itself is killed.

pub mod builtin;
pub mod code;
pub mod connect;
pub mod invoke;
pub mod offer;
pub mod openapi;
pub mod process;
pub mod schema;
pub mod script;
pub mod search;
pub mod server;
pub mod suspicion;

/// What callers of a server put together and get back.
pub use toolgate_mcp::oauth::{LoginError, Logins, Person, TokenSource};
pub use toolgate_mcp::{
    Along, Behind, LinkError, Params, Peer, Raw, RequestError, RpcError, Trace, mirror, scan, spread,
};

pub use builtin::Builtin;
pub use script::Scripts;
pub use server::{Clients, Followed, Lane, Nobody, Questions, Server, State, Unavailable, log};
