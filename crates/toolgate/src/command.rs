//! The subcommands, a file each. `run` returns the exit code.

pub(crate) mod approve;
pub(crate) mod change;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod content;
pub(crate) mod examples;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod listing;
pub(crate) mod live;
pub(crate) mod log;
pub(crate) mod login;
pub(crate) mod policy;
pub(crate) mod prompts;
pub(crate) mod questions;
pub(crate) mod registry;
pub(crate) mod resources;
pub(crate) mod scaffold;
pub(crate) mod schema;
pub(crate) mod serve;
pub(crate) mod servers;
pub(crate) mod socket;
pub(crate) mod stdio;
pub(crate) mod tools;
pub(crate) mod watch;
pub(crate) mod why;
