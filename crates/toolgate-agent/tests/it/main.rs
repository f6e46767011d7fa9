//! Model clients over real connections, against a scripted server that implements each API.

#[path = "../../../testkit/built.rs"]
mod built;
mod kit;
mod models;
#[path = "../../../testkit/scripted.rs"]
mod scripted;
