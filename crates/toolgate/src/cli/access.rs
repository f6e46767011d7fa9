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
    /// Change rights or description of a created caller
    #[command(after_help = "\
Examples:
  toolgate callers update ci --permission 'tickets:*' --permission mail:read
  toolgate callers update ci --description 'the nightly build'

Options that are left out change nothing. Callers of toolgate.yaml are changed there. A running gateway of
the project uses the change at once and ends streams of the caller if its rights differ.

Exit codes: 0 changed, 1 not changed, 78 invalid configuration.")]
    Update(UpdateCallerArgs),
    /// Remove a created caller and revoke its key
    #[command(after_help = "\
Examples:
  toolgate callers remove ci
  toolgate -C my-project callers remove ci --json

Callers of toolgate.yaml are removed there. A running gateway of the project rejects the keys from then
on and ends their streams.

Exit codes: 0 removed, 1 not removed, 78 invalid configuration.")]
    Remove(CallerArgs),
    /// List, add, rotate and revoke API keys of a caller
    #[command(
        subcommand,
        after_help = "Examples:\n  toolgate callers keys list ci\n  toolgate callers keys add ci --name laptop --expires 90d\n  toolgate callers keys rotate ci laptop --overlap 24h\n  toolgate callers keys revoke ci laptop"
    )]
    Keys(KeysCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// List the stored keys of a caller
    #[command(after_help = "\
Examples:
  toolgate callers keys list ci
  toolgate callers keys list ci --json | jq -r '.keys[] | select(.lastUsed == null) | .name'

Keys of toolgate.yaml and of TOOLGATE_API_KEY are not listed. The last use is stored once a minute.

Exit codes: 0 done, 1 failed, 78 invalid configuration.")]
    List(CallerArgs),
    /// Add a key of a caller
    #[command(after_help = "\
Examples:
  toolgate callers keys add ci --name laptop --expires 90d
  toolgate callers keys add ci --name laptop --json | jq -r .key

The key is shown only once. Callers of toolgate.yaml can have stored keys, too.

Exit codes: 0 added, 1 not added, 78 invalid configuration.")]
    Add(AddKeyArgs),
    /// Replace a key; the old one stays valid for the overlap
    #[command(after_help = "\
Examples:
  toolgate callers keys rotate ci laptop --overlap 24h
  toolgate callers keys rotate ci laptop --expires 90d --json | jq -r .key

The new key has the name of the old one. The old one is NAME.old until the overlap ends. Without
--overlap the old key is revoked at once.

Exit codes: 0 rotated, 1 not rotated, 78 invalid configuration.")]
    Rotate(RotateKeyArgs),
    /// Revoke a key
    #[command(after_help = "\
Examples:
  toolgate callers keys revoke ci laptop
  toolgate -C my-project callers keys revoke ci laptop --json

A running gateway of the project rejects the key at once and ends its streams.

Exit codes: 0 revoked, 1 not revoked, 78 invalid configuration.")]
    Revoke(RevokeKeyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AddKeyArgs {
    /// Id of the caller
    pub(crate) id: String,
    /// Name of the key: letters, digits and `. _ - @`
    #[arg(long, default_value = "default")]
    pub(crate) name: String,
    /// Expiry of the key: 90d, 2027-01-31, 2027-01-31T08:00:00Z [default: never]
    #[arg(long, value_name = "TIME")]
    pub(crate) expires: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RotateKeyArgs {
    /// Id of the caller
    pub(crate) id: String,
    /// Name of the key
    pub(crate) name: String,
    /// Time that the old key stays valid, such as 24h [default: none]
    #[arg(long, value_name = "DURATION")]
    pub(crate) overlap: Option<String>,
    /// Expiry of the new key [default: the lifetime of the old key]
    #[arg(long, value_name = "TIME")]
    pub(crate) expires: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeKeyArgs {
    /// Id of the caller
    pub(crate) id: String,
    /// Name of the key
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Files that would replace the project file (.yaml) or the policy (.cedar)
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Only recorded calls from this time on, in the format of `log --since` [default: all]
    #[arg(long, value_name = "TIME", value_parser = log::time_argument)]
    pub(crate) since: Option<Timestamp>,
}

#[derive(Debug, Args)]
pub(crate) struct AddCallerArgs {
    /// Id of the caller: letters, digits and `. _ - @ : /`
    pub(crate) id: String,
    /// Permission of the caller, as `resource:action`; can be repeated [default: none]
    #[arg(long = "permission", value_name = "PERMISSION")]
    pub(crate) permissions: Vec<String>,
    /// Group of the caller, declared in toolgate.yaml; can be repeated [default: none]
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    /// Purpose of the caller, for listings [default: none]
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// Expiry of its key: 90d, 2027-01-31, 2027-01-31T08:00:00Z [default: never]
    #[arg(long, value_name = "TIME")]
    pub(crate) expires: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("change").required(true).multiple(true),
    override_usage = "toolgate callers update [OPTIONS] <--permission …|--group …|--description …> <ID>"
)]
pub(crate) struct UpdateCallerArgs {
    /// Id of the caller
    pub(crate) id: String,
    /// All permissions of the caller from now on; can be repeated [default: unchanged]
    #[arg(long = "permission", value_name = "PERMISSION", group = "change")]
    pub(crate) permissions: Option<Vec<String>>,
    /// All groups of the caller from now on; can be repeated [default: unchanged]
    #[arg(long = "group", value_name = "GROUP", group = "change")]
    pub(crate) groups: Option<Vec<String>>,
    /// Purpose of the caller; an empty text removes it [default: unchanged]
    #[arg(long, value_name = "TEXT", group = "change")]
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
