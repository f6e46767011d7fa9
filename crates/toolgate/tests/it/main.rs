//! Tests of the real executable: its output, its exit codes and the files it writes.
//!
//! Every test runs `toolgate` in a temporary project; most compare the whole output with a snapshot.

mod agent;
#[path = "../../../testkit/built.rs"]
mod built;
mod cli;
mod config;
mod gateway;
mod log;
#[path = "../../../testkit/postgres.rs"]
#[expect(dead_code, reason = "shared with the tests of the database")]
mod postgres;
mod registry;
#[path = "../../../testkit/scripted.rs"]
mod scripted;
mod support;
mod tools;
mod upstream;
