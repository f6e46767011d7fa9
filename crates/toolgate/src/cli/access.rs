//! Arguments for callers and the policy.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::Timestamp;

use crate::command::log;

#[derive(Debug, Subcommand)]
pub(crate) enum CallersCommand {
    /// List callers of toolgate.yaml and callers with a created key
    #[command(after_help = "\
Examples:
  toolgate callers list --json | jq -r '.callers[].id'
  toolgate -C my-project callers list

Exit codes: 0 done, 1 failed, 78 invalid configuration.")]
    List,
    /// Create a caller and its API key
    #[command(after_help = "\
Examples:
  toolgate callers add ci --permission 'tickets:*' --permission mail:read
  toolgate callers add ci --description 'the nightly build' --json | jq -r .key

The key is shown only once; its hash is stored in .toolgate/keys.json. A running gateway of the project
accepts the key at once.

Exit codes: 0 created, 1 not created, 78 invalid configuration.")]
    Add(AddCallerArgs),
    /// Remove a created caller and revoke its key
    #[command(after_help = "\
Examples:
  toolgate callers remove ci
  toolgate -C my-project callers remove ci --json

Callers of toolgate.yaml are removed there. A running gateway of the project rejects the key from then
on.

Exit codes: 0 removed, 1 not removed, 78 invalid configuration.")]
    Remove(CallerArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AddCallerArgs {
    /// Id of the caller: letters, digits and `. _ - @ : /`
    pub(crate) id: String,
    /// Permission of the caller, as `resource:action`; can be repeated [default: none]
    #[arg(long = "permission", value_name = "PERMISSION")]
    pub(crate) permissions: Vec<String>,
    /// Purpose of the caller, for listings [default: none]
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CallerArgs {
    /// Id of the caller
    pub(crate) id: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Show recorded calls that other rules decide differently
    #[command(after_help = "\
Examples:
  toolgate policy test candidate.cedar
  toolgate policy test candidate.cedar --since 7d --tool 'mail__*' --json

Calls nothing and asks no one. Exit codes: 0 no decision changes, 1 some change, 78 invalid rules.")]
    Test(PolicyTestArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PolicyTestArgs {
    /// File with the Cedar rules
    #[arg(value_name = "FILE")]
    pub(crate) rules: PathBuf,
    /// Only calls from this time on: 2026-11-15T08:00:00Z, 2026-11-15, yesterday, or an age such as 7d [default: all]
    #[arg(long, value_name = "TIME", value_parser = log::time_argument)]
    pub(crate) since: Option<Timestamp>,
    /// Only calls of this caller [default: all]
    #[arg(long)]
    pub(crate) caller: Option<String>,
    /// Only calls of this tool; `github__*` matches all with this prefix [default: all]
    #[arg(long)]
    pub(crate) tool: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// Id of the caller, as named in toolgate.yaml
    pub(crate) caller: String,
    /// Name of the tool
    pub(crate) tool: String,
    /// Arguments of the call as one JSON object
    #[arg(value_name = "JSON", default_value = "{}")]
    pub(crate) arguments: String,
}
