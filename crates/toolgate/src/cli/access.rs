//! Flags of who may do what: callers and the policy.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::Timestamp;

use crate::command::log;

#[derive(Debug, Subcommand)]
pub(crate) enum CallersCommand {
    /// List who may call: those in toolgate.yaml, and those that were made
    #[command(after_help = "\
Examples:
  toolgate callers list --json | jq -r '.callers[].id'
  toolgate -C my-project callers list

Exit codes: 0 done, 1 failed, 78 configuration refused.")]
    List,
    /// Make a caller, and the key by which the door knows it
    #[command(after_help = "\
Examples:
  toolgate callers add ci --permission 'tickets:*' --permission mail:read
  toolgate callers add ci --description 'the nightly build' --json | jq -r .key

The key is shown this once; only its hash is kept, in .toolgate/keys.json. A server that runs for the
project takes it at once.

Exit codes: 0 made, 1 not made, 78 configuration refused.")]
    Add(AddCallerArgs),
    /// Take a caller away that was made: its key counts no more
    #[command(after_help = "\
Examples:
  toolgate callers remove ci
  toolgate -C my-project callers remove ci --json

Who is in toolgate.yaml is removed there. A server that runs for the project lets nobody in by that key
from then on.

Exit codes: 0 removed, 1 not removed, 78 configuration refused.")]
    Remove(CallerArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AddCallerArgs {
    /// Who it is: letters, digits and `. _ - @ : /`
    pub(crate) id: String,
    /// What it may do, as `resource:action`; may be given more than once
    #[arg(long = "permission", value_name = "PERMISSION")]
    pub(crate) permissions: Vec<String>,
    /// What it is for
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CallerArgs {
    /// Who it is
    pub(crate) id: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Say which recorded calls other rules would decide otherwise, and for whom
    #[command(after_help = "\
Examples:
  toolgate policy test candidate.cedar
  toolgate policy test candidate.cedar --since 7d --tool 'mail__*' --json

Nothing is called and nobody is asked. Exit codes: 0 nothing flips, 1 something does, 78 the rules are wrong.")]
    Test(PolicyTestArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PolicyTestArgs {
    /// The file with the rules
    #[arg(value_name = "FILE")]
    pub(crate) rules: PathBuf,
    /// Calls from this time on: 2026-11-15T08:00:00Z, 2026-11-15, yesterday, or how long ago, such as 7d
    #[arg(long, value_name = "TIME", value_parser = log::time)]
    pub(crate) since: Option<Timestamp>,
    /// Of this caller
    #[arg(long)]
    pub(crate) caller: Option<String>,
    /// Of this tool; `github__*` stands for all that begin so
    #[arg(long)]
    pub(crate) tool: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// The caller, of those that toolgate.yaml names
    pub(crate) caller: String,
    /// The tool
    pub(crate) tool: String,
    /// The arguments as one JSON object
    #[arg(value_name = "JSON", default_value = "{}")]
    pub(crate) arguments: String,
}
