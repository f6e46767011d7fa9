//! The log from outside: written, killed, filled up, cut, and read again.

#![expect(clippy::unwrap_used, reason = "these are tests, helpers included")]

mod crash;
mod full;
mod history;
mod kit;
mod log;
mod read;
mod seeds;
