//! The subcommands, a file each. `run` returns the exit code.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod schema;
