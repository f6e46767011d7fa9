//! Client half: connections and sessions with the servers behind the gateway.
//!
//! It shares messages and links with the [server half](crate::server), and nothing else.

pub mod handshake;
pub(crate) mod list_size;
pub mod oauth;
pub mod session;
pub mod transport;
mod url_elicitation;
