//! The log as a library user sees it: written, killed, filled up, truncated, and read again.

#![expect(clippy::unwrap_used, reason = "these are tests, helpers included")]

mod crash;
mod full;
mod history;
mod kit;
mod log;
mod read;
mod seeds;
