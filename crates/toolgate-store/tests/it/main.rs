//! What the store promises, shown from outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod contract;
mod crash;
mod kit;
mod queue;
mod simulation;
