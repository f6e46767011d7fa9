//! Client half: connections and sessions with the servers behind the gateway.
//!
//! It shares messages and links with the [server half](crate::server), and nothing else.

#[cfg(feature = "client")]
pub mod handshake;
pub(crate) mod list_size;
#[cfg(feature = "client")]
pub mod oauth;
#[cfg(feature = "client")]
pub mod session;
#[cfg(feature = "client")]
pub mod transport;
#[cfg(feature = "client")]
mod url_elicitation;

/// Without the client, only lines: a server speaks them on its stdin and stdout.
#[cfg(not(feature = "client"))]
pub mod transport {
    pub mod lines;
}
