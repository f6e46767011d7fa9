//! The contracts of shared state on a real PostgreSQL, races between replicas, and an absent database.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod away;
mod caller_stores;
#[path = "../../../toolgate-store/tests/it/callers.rs"]
mod callers;
#[path = "../../../toolgate-store/tests/it/contract.rs"]
mod contract;
#[path = "../../../toolgate-store/tests/it/kit.rs"]
#[expect(dead_code, reason = "shared with the tests of the store")]
mod kit;
mod limits;
#[path = "../../../testkit/postgres.rs"]
mod postgres;
mod registry_stores;
mod replicas;
mod taint;
