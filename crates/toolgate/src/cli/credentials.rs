//! Arguments for stored credentials.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum CredentialsCommand {
    /// List stored credentials, without their secrets
    #[command(after_help = "\
Examples:
  toolgate credentials list
  toolgate credentials list --as ann --json | jq -r '.credentials[].server'

Exit codes: 0 done, 1 failed, 78 invalid configuration or wrong key of the store.")]
    List(ListCredentialsArgs),
    /// Store a token or key that a server gets
    #[command(after_help = "\
Examples:
  toolgate credentials set github --as ann                    ask for it, without an echo
  pass show github | toolgate credentials set github --as ann

The secret is read from stdin, never from the command line. It is stored encrypted and never shown. A running
gateway uses it from the next call on.

Exit codes: 0 stored, 1 not stored, 2 wrong usage, 78 invalid configuration or wrong key of the store.")]
    Set(CredentialArgs),
    /// Remove a stored credential
    #[command(after_help = "\
Examples:
  toolgate credentials remove github --as ann
  toolgate credentials remove github --json

To revoke an OAuth login at its server, too, use `toolgate servers logout`.

Exit codes: 0 done, 1 failed, 78 invalid configuration or wrong key of the store.")]
    Remove(CredentialArgs),
    /// Encrypt all credentials with a new key
    #[command(after_help = "\
Examples:
  toolgate credentials rekey                                  create a key in the place of the old one
  toolgate credentials rekey --new-key-file new.key           use this key; then change `credentials`

A key in a file is replaced, and a running gateway follows. If the key is in a variable or comes from a
program, pass the new one with `--new-key-file`, change it there, and restart the gateway. If the command
is interrupted, the old or the new key opens the store.

Exit codes: 0 done, 1 failed, 78 invalid configuration or wrong key of the store.")]
    Rekey(RekeyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListCredentialsArgs {
    /// Only those of this caller [default: all]
    #[arg(long = "as", value_name = "CALLER")]
    pub(crate) caller: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CredentialArgs {
    /// Name of the server
    pub(crate) server: String,
    /// Caller that it belongs to
    #[arg(long = "as", value_name = "CALLER", default_value = "owner")]
    pub(crate) caller: String,
}

#[derive(Debug, Args)]
pub(crate) struct RekeyArgs {
    /// File with the new key: 32 bytes in base64 or hexadecimal [default: a random key]
    #[arg(long, value_name = "FILE")]
    pub(crate) new_key_file: Option<PathBuf>,
}
