//! Arguments of `toolgate cluster`.

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show the replicas and whether they agree
    #[command(after_help = "\
Examples:
  toolgate cluster status
  toolgate cluster status --json | jq '.replicas[] | select(.live) | .name'

Exit codes: 0 all live replicas agree, 1 they do not or the database is unavailable, 78 invalid
configuration.")]
    Status,
    /// Store tools.json and mcp.json in the database
    #[command(after_help = "\
Examples:
  toolgate cluster push
  toolgate -C my-project cluster push

Replaces the tools and servers of the cluster by those of this folder. The replicas use them within a
second, if they are valid there.

Exit codes: 0 done, 1 failed, 78 invalid configuration.")]
    Push,
    /// Write the shared tools and servers into files
    #[command(after_help = "\
Examples:
  toolgate cluster pull
  toolgate cluster pull && git diff

Replaces tools.json and mcp.json of this folder by those of the cluster.

Exit codes: 0 done, 1 failed, 78 invalid configuration.")]
    Pull,
    /// Ask a replica to finish its calls and stop
    #[command(after_help = "\
Examples:
  toolgate cluster drain gateway-2

Like SIGTERM, but for a replica on another machine.

Exit codes: 0 asked, 1 there is no such replica or the database is unavailable, 78 invalid configuration.")]
    Drain {
        /// Name of the replica
        #[arg(value_name = "NAME")]
        name: String,
    },
}
