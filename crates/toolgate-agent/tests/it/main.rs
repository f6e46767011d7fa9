//! Models over real connections, with a server that speaks each protocol and follows a script.

#[path = "../../../testkit/built.rs"]
mod built;
mod kit;
mod models;
#[path = "../../../testkit/scripted.rs"]
mod scripted;
