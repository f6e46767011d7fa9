//! Models over real connections, with a server that speaks each protocol and follows a script.

mod kit;
mod models;
