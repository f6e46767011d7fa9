//! MCP on the wire: a JSON-RPC core over raw JSON, transports, protocol revisions.
//!
//! Messages are forwarded as the bytes they came in: unknown fields, the spelling of numbers and
//! the order of keys and of notifications survive. The road of a message: a transport reads bytes,
//! [`scan`] bounds them, [`message`] finds the envelope, [`session`] gives it to who waits for it.
//! Invariant: nothing from outside is parsed before it was scanned, and no server can make a reader
//! wait for a writer.

pub mod behind;
#[doc(hidden)]
pub mod fuzz;
pub mod handshake;
pub mod link;
pub mod message;
pub mod mirror;
pub mod oauth;
pub mod params;
pub mod revision;
pub mod serve;
pub mod session;
pub mod trace;
pub mod transport;

pub use behind::{Along, Behind, Open, Thought};
pub use handshake::{HandshakeError, Peer, ProtocolMode};
pub use link::{Incoming, Link, LinkError, Outgoing};
pub use message::{Id, Message, RpcError};
pub use params::Params;
pub use revision::Revision;
pub use session::{Handler, RequestError, Session};
pub use toolgate_types::json::{Raw, scan};
pub use trace::Trace;
pub use transport::spread;
