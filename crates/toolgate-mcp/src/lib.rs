//! MCP on the wire: JSON-RPC over raw JSON, transports, protocol revisions.
//!
//! Two halves share messages and links: [`client`] talks to servers, [`server`] to clients. Both decode and encode; the
//! server half calls no code of its users: they answer each decoded request with a future or a stream.
//!
//! Messages are forwarded as the bytes they arrived in: unknown fields, number formatting, key order and
//! notification order survive. Path of an incoming message: a transport reads bytes, [`scan`] enforces the
//! limits, [`message`] parses the envelope, [`session`] delivers it to the waiting request or the handler.
//! The feature `client`, on by default, has the client half and its dependencies; tools of the SDK do without.
//! Invariant: input is scanned before it is parsed, and a reader never blocks on a writer.

#![cfg_attr(
    not(feature = "client"),
    expect(dead_code, reason = "parts that both halves share have uses in the client half alone")
)]

pub mod body_buffer;
pub mod client;
pub mod downstream;
#[cfg(feature = "client")]
#[doc(hidden)]
pub mod fuzz;
mod input_required;
mod instance;
pub mod link;
pub mod message;
pub mod mirror;
#[cfg(feature = "client")]
pub mod network;
pub mod params;
pub mod revision;
pub mod server;
pub mod trace;

pub use client::transport;
#[cfg(feature = "client")]
pub use client::{handshake, oauth, session};
pub use downstream::{DownstreamClient, Forwarded, UserWait, WaitGuard};
#[cfg(feature = "client")]
pub use handshake::{HandshakeError, PeerInfo, ProtocolMode};
pub use link::{Link, LinkCommand, LinkError, LinkEvent};
pub use message::{Message, MessageParts, RequestId, RpcError};
pub use params::Params;
pub use revision::Revision;
#[cfg(feature = "client")]
pub use session::{Handler, RequestError, Session};
pub use toolgate_json::{RawJson, scan};
pub use trace::TraceContext;
#[cfg(feature = "client")]
pub use transport::with_jitter;
