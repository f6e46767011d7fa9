//! `auth`, `credential` and `forward` of a server: the owner of its credentials, and the place of a static one.

use toolgate_types::server::{AuthMode, AuthPolicy, CredentialTarget, Transport};

use super::{IsolationName, ServerFile};
use crate::context::Context;
use crate::feature::checks::is_header_name;
use crate::keys::{Spanned, choice, keys};
use crate::source::Span;

choice! {
    /// Owner of the credentials of a server.
    enum AuthName as "an owner of credentials" {
        /// All callers share one credential.
        Shared = "shared",
        /// Each caller has its own.
        Caller = "caller",
    }
}

keys! {
    /// Place of a credential that was stored with `toolgate credentials set`. One of the two.
    struct CredentialFile as "credential" {
        /// Header that holds it, such as `X-Api-Key`. Default: `Authorization`, as a bearer token.
        header: String,
        /// Environment variable of the child process that holds it, such as `GITHUB_TOKEN`.
        env: String,
    }
}

/// Headers of the protocol. A credential in their place would break it.
const PROTOCOL_HEADERS: [&str; 12] = [
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "accept",
    "accept-encoding",
    "mcp-session-id",
    "mcp-protocol-version",
    "last-event-id",
    "dpop",
    "te",
];
/// Variables that choose code to run: their value would come from a caller.
const CODE_VARIABLES: [&str; 9] = [
    "PATH",
    "NODE_OPTIONS",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONHOME",
    "BASH_ENV",
    "ENV",
    "PERL5OPT",
    "RUBYOPT",
];

/// Resolves the credentials of a server. Reports a problem and returns `None` if they cannot work.
pub(super) fn resolve_auth(
    file: &mut ServerFile,
    transport: &Transport,
    span: Span,
    cx: &mut Context<'_>,
) -> Option<AuthPolicy> {
    let mode = match file.auth.as_ref().map(|at| at.value) {
        Some(AuthName::Caller) => AuthMode::Caller,
        Some(AuthName::Shared) | None => AuthMode::Shared,
    };
    let auth_span = file.auth.as_ref().map_or(span, |at| at.span);
    let forward = file.forward.as_ref().filter(|at| at.value).map(|at| at.key_span);
    let credential = match file.credential.take() {
        Some(written) => Some(resolve_credential(written, transport, cx)?),
        None => None,
    };
    let mut refuse = |span: Span, message: String, hint: &str| {
        cx.error(span, format!("{message}{}", cx.location_suffix()), hint);
        None
    };
    let (is_remote, oauth, headers) = match transport {
        Transport::Stdio(_) => (false, None, None),
        Transport::Websocket(remote) => (true, None, Some(&remote.headers)),
        Transport::Http(remote) | Transport::Sse(remote) => {
            (true, remote.oauth.as_ref(), Some(&remote.headers))
        }
    };
    let exchanges_caller =
        oauth.is_some_and(|oauth| oauth.grant.exchanges_token() && oauth.subject_token_file.is_none());
    if mode == AuthMode::Shared {
        if let Some(at) = forward {
            return refuse(
                at,
                "`forward` without credentials of callers".to_owned(),
                "set `auth` to `caller`",
            );
        }
        if exchanges_caller {
            let message = "the token of which caller is exchanged is not known".to_owned();
            return refuse(span, message, "set `auth` to `caller`, or add `subject_token_file` in `oauth`");
        }
        return Some(AuthPolicy { mode, credential, forward: false });
    }
    if let Some(at) = file.isolation.as_ref().filter(|at| at.value == IsolationName::Shared) {
        let message = "credentials of callers with `isolation: shared`".to_owned();
        return refuse(at.key_span, message, "a connection with the credential of a caller cannot be shared");
    }
    let own =
        headers.and_then(|headers| headers.keys().find(|name| name.eq_ignore_ascii_case("authorization")));
    if own.is_some() {
        let message = "credentials of callers with the header `Authorization` for all callers".to_owned();
        return refuse(auth_span, message, "remove the header; each caller stores its own credential");
    }
    if !is_remote && credential.is_none() {
        let message = "a `stdio` server with credentials of callers needs `credential`".to_owned();
        return refuse(auth_span, message, "name the variable: `credential: { env: GITHUB_TOKEN }`");
    }
    let is_plain_http = matches!(transport, Transport::Http(_) | Transport::Sse(_)) && oauth.is_none();
    if let Some(at) = forward.filter(|_| !is_plain_http || credential.is_some()) {
        let message = "`forward` does not go together with other credentials".to_owned();
        return refuse(at, message, "it is for an `http` server without `oauth` and `credential`");
    }
    Some(AuthPolicy { mode, credential, forward: forward.is_some() })
}

fn resolve_credential(
    Spanned { value: file, key_span, .. }: Spanned<CredentialFile>,
    transport: &Transport,
    cx: &mut Context<'_>,
) -> Option<CredentialTarget> {
    let is_stdio = matches!(transport, Transport::Stdio(_));
    let (target, hint) = match (file.header, file.env) {
        (Some(header), None) if !is_stdio => {
            let name = header.value.to_ascii_lowercase();
            if is_header_name(&name) && !PROTOCOL_HEADERS.contains(&name.as_str()) {
                return Some(CredentialTarget::Header(header.value));
            }
            (
                format!("`{}` cannot be the header of a credential", header.value),
                "use one such as `X-Api-Key`",
            )
        }
        (None, Some(env)) if is_stdio => {
            let name = env.value.as_str();
            let is_name = !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                && !name.starts_with(|c: char| c.is_ascii_digit());
            let runs_code = CODE_VARIABLES.contains(&name)
                || ["LD_", "DYLD_", "GIT_", "TOOLGATE_"].iter().any(|prefix| name.starts_with(prefix));
            if is_name && !runs_code {
                return Some(CredentialTarget::Env(env.value));
            }
            (format!("`{name}` cannot be the variable of a credential"), "use one such as `GITHUB_TOKEN`")
        }
        (None, None) if !file.present_keys.is_empty() => return None,
        _ if is_stdio => {
            ("`credential` of a `stdio` server needs `env` alone".to_owned(), "write `{ env: NAME }`")
        }
        _ => ("`credential` of a URL needs `header` alone".to_owned(), "write `{ header: NAME }`"),
    };
    cx.error(key_span, format!("{target}{}", cx.location_suffix()), hint);
    None
}

#[cfg(test)]
mod tests {
    use crate::feature::servers::tests::{bad_server, good_server};

    #[test]
    fn checks_owners() {
        for keys in [
            "url: 'http://h', auth: caller",
            "url: 'http://h', auth: shared, credential: {header: X-Api-Key}",
            "url: 'ws://h', auth: caller",
            "command: x, auth: caller, credential: {env: GITHUB_TOKEN}",
            "url: 'http://h', auth: caller, isolation: session",
            "url: 'http://h', auth: caller, oauth: {grant: token_exchange, issuer: 'https://i.example.com'}",
        ] {
            good_server(keys);
        }
        bad_server("url: 'http://h', auth: me", "`me` is not an owner of credentials in MCP server `a`");
        bad_server(
            "command: x, auth: caller",
            "a `stdio` server with credentials of callers needs `credential` in MCP server `a`",
        );
        bad_server(
            "url: 'http://h', auth: caller, isolation: shared",
            "credentials of callers with `isolation: shared` in MCP server `a`",
        );
        bad_server(
            "url: 'http://h', auth: caller, headers: {authorization: x}",
            "credentials of callers with the header `Authorization` for all callers in MCP server `a`",
        );
        bad_server(
            "url: 'http://h', forward: true",
            "`forward` without credentials of callers in MCP server `a`",
        );
        bad_server(
            "url: 'http://h', auth: caller, forward: true, oauth: {}",
            "`forward` does not go together with other credentials in MCP server `a`",
        );
        bad_server(
            "url: 'http://h', oauth: {grant: token_exchange, issuer: 'https://i.example.com'}",
            "the token of which caller is exchanged is not known in MCP server `a`",
        );
        for header in ["Host", "a b", "Mcp-Session-Id", ""] {
            bad_server(
                &format!("url: 'http://h', auth: caller, credential: {{header: '{header}'}}"),
                &format!("`{header}` cannot be the header of a credential in MCP server `a`"),
            );
        }
        for name in ["PATH", "LD_PRELOAD", "A=B", "", "1A"] {
            bad_server(
                &format!("command: x, auth: caller, credential: {{env: '{name}'}}"),
                &format!("`{name}` cannot be the variable of a credential in MCP server `a`"),
            );
        }
        bad_server(
            "url: 'http://h', auth: caller, credential: {env: TOKEN}",
            "`credential` of a URL needs `header` alone in MCP server `a`",
        );
        bad_server(
            "command: x, auth: caller, credential: {header: X-Key}",
            "`credential` of a `stdio` server needs `env` alone in MCP server `a`",
        );
    }
}
