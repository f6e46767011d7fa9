//! Guarantees of the store, tested through its public interface.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod caller_stores;
mod callers;
mod contract;
mod cost;
mod crash;
mod credential_crash;
mod credential_steps;
mod credentials;
mod file_stores;
mod kit;
mod queue;
mod simulation;
