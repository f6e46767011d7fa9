//! Commands that need no running server, and their documentation.

mod connect;
mod docs;
mod escapes;
mod help;
mod import;
mod init;
mod policy_test;
mod search;
mod tutorial;
