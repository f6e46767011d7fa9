//! `toolgate serve` and `toolgate stdio`.

mod access_matrix;
mod api_docs;
mod batches;
mod callers;
mod http;
mod human_input;
mod jwt;
mod kills;
mod limits;
mod load;
mod mcp;
mod pipeline;
mod profile_clients;
mod profile_names;
mod profiles;
mod rest;
mod resumable_streams;
mod server_questions;
mod soak;
mod stdio;
mod third_party_clients;
mod tls;
