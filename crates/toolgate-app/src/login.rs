//! OAuth logins of servers: the folder of their tokens, and the tokens of one server.

use std::path::PathBuf;

use toolgate_config::{Config, Environment};
use toolgate_upstream::connect::token_source;
use toolgate_upstream::{LoginOptions, TokenSource};

/// A server has no tokens to log in or out with.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    #[error("there is no MCP server `{0}`; `toolgate servers` lists them")]
    UnknownServer(String),
    #[error("MCP server `{0}` needs no login: it does not use HTTP, or its `headers` contain a token")]
    NotNeeded(String),
}

/// Returns the folder of the tokens, in the user's state directory.
pub fn token_folder(environment: &Environment) -> Option<PathBuf> {
    let state = environment.variables.get("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.filter(|path| path.is_absolute());
    let state = state.or_else(|| environment.home.as_ref().map(|home| home.join(".local/state")))?;
    Some(state.join("toolgate/tokens"))
}

/// Returns the tokens of a server.
///
/// # Errors
/// If there is no such server, or it needs no login.
pub fn server_tokens(
    config: &Config,
    server: &str,
    logins: &LoginOptions,
) -> Result<TokenSource, LoginError> {
    let spec = config.servers.iter().find(|spec| spec.name.as_str() == server);
    let spec = spec.ok_or_else(|| LoginError::UnknownServer(server.to_owned()))?;
    token_source(spec, logins).ok_or_else(|| LoginError::NotNeeded(server.to_owned()))
}
