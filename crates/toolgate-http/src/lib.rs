//! HTTP/1.1 over any byte stream: one strict parser for both sides of a connection.
//!
//! [`server`] reads requests and writes responses, [`client`] the other way round. A message that two parsers could
//! read differently is rejected: a bare line feed, a body with two lengths, a length that is not a number. Invariant:
//! heads, header counts, chunk lines and trailers have limits, and nothing is read beyond the message that a caller
//! asked for, except into one bounded buffer.

pub mod client;
pub mod server;

#[doc(hidden)]
pub mod fuzz;

mod chunks;
mod head;

pub use head::{BodyLength, HeadError};
