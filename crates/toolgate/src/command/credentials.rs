//! `toolgate credentials list|set|remove|rekey`: stored credentials of callers.

use std::io::{IsTerminal as _, Read as _};

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::json;
use toolgate_app::{CredentialsError, ProjectCallers, ProjectCredentials};
use toolgate_config::{Config, load};
use toolgate_redact::printable;
use toolgate_store::credentials::{CredentialId, CredentialInfo, MAX_SECRET_BYTES};
use toolgate_types::{Caller, CallerId, Secret};

use crate::cli::{CredentialArgs, CredentialsCommand, ListCredentialsArgs, ProjectArgs, RekeyArgs};
use crate::command::login::user_state;
use crate::output::{BOLD, DIM, Output, error_or_hint, error_with_hint};
use crate::owner_key;
use crate::{DONE, INVALID_CONFIG};

pub(crate) fn run(
    command: &CredentialsCommand,
    project: &ProjectArgs,
    output: &Output,
) -> anyhow::Result<u8> {
    let Some((config, credentials)) = open(project, output)? else { return Ok(INVALID_CONFIG) };
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match command {
        CredentialsCommand::List(args) => {
            list(args, tokio.block_on(credentials.list()).map_err(with_hint)?, output)
        }
        CredentialsCommand::Set(args) => {
            let caller = find_caller(&args.caller, &config, project)?;
            let secret = read_secret(args)?;
            tokio
                .block_on(credentials.set(&config, &args.server, &caller, secret.expose()))
                .map_err(with_hint)?;
            let (server, caller) = (printable(&args.server), printable(&args.caller));
            if output.json {
                output.document(&json!({ "server": args.server, "caller": args.caller, "stored": true }))?;
            } else {
                output.result(&format!(
                    "stored the credential of {BOLD}{caller}{BOLD:#} for {BOLD}{server}{BOLD:#}\n"
                ));
            }
            Ok(DONE)
        }
        CredentialsCommand::Remove(args) => {
            let caller = parse_caller(&args.caller)?;
            let server =
                args.server.parse().with_context(|| format!("`{}` cannot name a server", args.server))?;
            let removed =
                tokio.block_on(credentials.remove(&CredentialId { caller, server })).map_err(with_hint)?;
            let (server, caller) = (printable(&args.server), printable(&args.caller));
            if output.json {
                output
                    .document(&json!({ "server": args.server, "caller": args.caller, "removed": removed }))?;
            } else if removed {
                output.result(&format!(
                    "removed the credential of {BOLD}{caller}{BOLD:#} for {BOLD}{server}{BOLD:#}\n"
                ));
            } else {
                output.result(&format!(
                    "{BOLD}{caller}{BOLD:#} has stored no credential for {BOLD}{server}{BOLD:#}\n"
                ));
            }
            Ok(DONE)
        }
        CredentialsCommand::Rekey(RekeyArgs { new_key_file }) => {
            let count = credentials.rekey(new_key_file.as_deref()).map_err(with_hint)?;
            if output.json {
                output.document(&json!({ "credentials": count }))?;
            } else {
                output.result(&format!("{count} credentials are encrypted with the new key\n"));
                if new_key_file.is_some() {
                    output.next_step(
                        "set `credentials` in toolgate.yaml to the new key, and restart the gateway",
                    );
                }
            }
            Ok(DONE)
        }
    }
}

fn list(args: &ListCredentialsArgs, mut all: Vec<CredentialInfo>, output: &Output) -> anyhow::Result<u8> {
    all.retain(|info| args.caller.as_deref().is_none_or(|caller| info.caller.as_str() == caller));
    if output.json {
        output.document(&json!({ "credentials": all }))?;
        return Ok(DONE);
    }
    let time = |seconds: u64| {
        let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
        time.map_or_else(|| "unknown".to_owned(), |time| time.to_string())
    };
    for CredentialInfo { caller, server, kind, audience, stored_at, expires_at } in &all {
        let (caller, server, audience) = (caller.as_str(), printable(server.as_str()), printable(audience));
        let until = expires_at.map(|end| format!(", expires {}", time(end))).unwrap_or_default();
        let at = if audience.is_empty() { String::new() } else { format!("  {audience}") };
        output.result(&format!(
            "{BOLD}{caller}{BOLD:#}  {server}  {}{at}  {DIM}stored {}{until}{DIM:#}\n",
            kind.label(),
            time(*stored_at)
        ));
    }
    if all.is_empty() {
        output.next_step(
            "no credentials are stored; `toolgate servers login` and `toolgate credentials set` do",
        );
    }
    Ok(DONE)
}

/// Opens the store of the project. Prints the problems and returns `None` if the configuration is invalid.
pub(crate) fn open(
    project: &ProjectArgs,
    output: &Output,
) -> anyhow::Result<Option<(Config, ProjectCredentials)>> {
    let loaded = load(&project.folder, project.file.as_deref(), &owner_key::environment());
    let Some(config) = loaded.config else {
        output.message(&loaded.report.render());
        output.next_step("run `toolgate check` to see the problems; nothing was started");
        return Ok(None);
    };
    output.mask_secrets(&config.secrets, &config.audit.redact);
    match ProjectCredentials::open(&config, user_state().as_deref()) {
        Ok(credentials) => Ok(Some((config, credentials))),
        Err(error) => {
            output.error(&with_hint(error));
            Ok(None)
        }
    }
}

pub(crate) fn with_hint(error: CredentialsError) -> anyhow::Error {
    let hint = error.hint();
    error_or_hint(error, hint)
}

pub(crate) fn parse_caller(id: &str) -> anyhow::Result<CallerId> {
    id.parse().with_context(|| format!("`{}` cannot be a caller", printable(id)))
}

/// Returns the caller with this id. Callers of tokens are not listed anywhere, so any id may be one of them.
pub(crate) fn find_caller(id: &str, config: &Config, project: &ProjectArgs) -> anyhow::Result<CallerId> {
    let caller = parse_caller(id)?;
    let is_known = id == Caller::OWNER
        || !config.serve.jwt.is_empty()
        || ProjectCallers::new(config, &project.state_folder())
            .list()
            .map_or(true, |callers| callers.iter().any(|known| known.id.as_str() == id));
    if is_known {
        return Ok(caller);
    }
    Err(error_with_hint(
        format!("there is no caller `{}`", printable(id)),
        "`toolgate callers list` lists them",
    ))
}

/// Reads the secret from stdin, without an echo at a terminal.
fn read_secret(args: &CredentialArgs) -> anyhow::Result<Secret> {
    if std::io::stdin().is_terminal() {
        let prompt = format!("credential of {} for {}: ", printable(&args.caller), printable(&args.server));
        return Ok(Secret::new(rpassword::prompt_password(prompt).context("cannot read the credential")?));
    }
    let mut text = String::new();
    let limit = MAX_SECRET_BYTES as u64 + 2;
    std::io::stdin()
        .take(limit)
        .read_to_string(&mut text)
        .context("cannot read the credential from stdin")?;
    Ok(Secret::new(text.trim_end_matches(['\r', '\n'])))
}
