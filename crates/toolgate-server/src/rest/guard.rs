//! Checks of registry entries that arrive over the network. Files of the operator are not checked.
//!
//! There are five. Only callers with `servers:exec`, granted by its exact name, may choose the program that runs: the
//! command of a server, and only one the operator allows, or the script of a tool. Only callers that have the permissions
//! a tool requires may change them. An entry may read only variables that the project already reads. A URL must point to
//! the internet, or to a network the operator allows; and the entry gets these networks as its `allow_networks`, because
//! its host may lead elsewhere later. An entry may not send tokens of callers to a server or issuer of its choice.
//! Invariant: a check starts nothing, and sends only DNS queries.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Map, Value as Json};
use tokio::time::timeout;
use toolgate_mcp::network::{AddressPolicy, BlockedAddress};
use toolgate_store::document::{EntryAction, EntryKind, EntryOp};
use toolgate_store::registry::{RegistryProblem, RegistryState, ToolAuthorizer, ToolChange};
use toolgate_types::network::Network;
use toolgate_types::server::Transport;
use toolgate_types::tool::{Permission, ScriptSpec};
use toolgate_types::{Caller, ServeConfig, ToolDefinition};
use url::{Position, Url};

use crate::auth::{HttpError, require_permission};
use crate::response::ErrorDetails;
use crate::routes::SERVERS_EXEC;

/// Keys of a server entry that run a command on this machine, or read its files.
const LOCAL_KEYS: [&str; 10] =
    ["command", "args", "server", "env", "env_file", "envFile", "cwd", "encoding", "config", "tls"];
/// Key of a server entry with the networks of its connections.
const ALLOW_NETWORKS: &str = "allow_networks";
/// Time limit of a DNS lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Networks and commands the operator allows.
#[derive(Debug, Clone, Default)]
pub(crate) struct AllowList {
    /// Allowed internal networks.
    pub(crate) networks: Vec<Network>,
    /// Allowed commands; `None` allows any.
    pub(crate) commands: Option<Vec<String>>,
}

impl AllowList {
    pub(crate) fn new(config: &ServeConfig) -> Self {
        Self { networks: config.allow_networks.clone(), commands: config.allow_commands.clone() }
    }
}

/// Checks that a caller may make a change, and limits the networks of the entry.
pub(super) async fn check(
    op: &mut EntryOp,
    caller: &Caller,
    state: &RegistryState,
    allowed: &AllowList,
) -> Result<(), HttpError> {
    let (EntryAction::Add(entry) | EntryAction::Replace(entry) | EntryAction::Patch(entry)) = &op.action
    else {
        return Ok(());
    };
    if op.kind == EntryKind::Server && is_local(op, entry, state) {
        // Not in the route table, because only the body tells a local command from a URL.
        require_permission(caller, SERVERS_EXEC)?;
        check_command(op, entry, state, allowed)?;
    }
    if op.kind == EntryKind::Server {
        check_caller_tokens(entry)?;
    }
    check_variables(entry, state)?;
    if op.kind == EntryKind::Server {
        for url in urls(entry) {
            check_url(url, &allowed.networks).await?;
        }
        limit_networks(op, &allowed.networks)?;
    }
    Ok(())
}

/// Writes the allowed networks into an entry with a URL, so that they are checked on every connection.
fn limit_networks(op: &mut EntryOp, allowed: &[Network]) -> Result<(), HttpError> {
    let (EntryAction::Add(entry) | EntryAction::Replace(entry) | EntryAction::Patch(entry)) = &mut op.action
    else {
        return Ok(());
    };
    if entry.contains_key(ALLOW_NETWORKS) {
        let message = format!("`{ALLOW_NETWORKS}` cannot be set over HTTP");
        return Err(HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message)
            .hint("`serve.allow_networks` in toolgate.yaml lists the allowed networks"));
    }
    if ["url", "oauth"].iter().any(|key| entry.contains_key(*key)) {
        let networks = allowed.iter().map(|network| Json::String(network.to_string())).collect();
        entry.insert(ALLOW_NETWORKS.to_owned(), Json::Array(networks));
    }
    Ok(())
}

/// Rejects an entry that would send tokens of callers, or files of this machine, to a server or issuer of its choice.
fn check_caller_tokens(entry: &Map<String, Json>) -> Result<(), HttpError> {
    const OAUTH_KEYS: [&str; 4] =
        ["subject_token_file", "subject_token_type", "identity_provider", "audience"];
    const GRANTS: [&str; 3] = ["token_exchange", "identity_assertion", "workload_identity"];
    let oauth = entry.get("oauth").and_then(Json::as_object);
    let has_grant =
        oauth.and_then(|oauth| oauth.get("grant")?.as_str()).is_some_and(|it| GRANTS.contains(&it));
    let oauth_key = OAUTH_KEYS.iter().find(|key| oauth.is_some_and(|oauth| oauth.contains_key(**key)));
    let key = match (entry.contains_key("forward"), has_grant, oauth_key) {
        (true, ..) => "forward",
        (_, true, _) => "oauth.grant",
        (.., Some(key)) => key,
        _ => return Ok(()),
    };
    let message = format!("`{key}` cannot be set over HTTP: it would send tokens of callers");
    Err(HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message)
        .hint("write the entry into a file of the project"))
}

/// Checks a change of a tool when it is applied: the caller needs `servers:exec` to choose the program, and both
/// the old and the new permissions of the tool to change them. A tool that does not exist counts as one with its default
/// permission, so that removing a tool and adding it again is the same as changing it.
pub(super) fn tool_authorizer(caller: &Caller) -> ToolAuthorizer {
    let caller = caller.clone();
    ToolAuthorizer::new(move |change| {
        let exec: Permission = SERVERS_EXEC.parse().expect("a valid permission");
        let mut needed = Vec::new();
        if changes_program(change) && !caller.has_explicit_permission(&exec) {
            needed.push(exec);
        }
        let required = |tool: Option<&ToolDefinition>| match tool {
            Some(tool) => tool.required_permissions(),
            None => change.name.parse().iter().map(Permission::of_own_tool).collect(),
        };
        let (before, after) = (required(change.before), required(change.after));
        let covers = |one: &[Permission], other: &[Permission]| one.iter().all(|it| other.contains(it));
        if !covers(&before, &after) || !covers(&after, &before) {
            let missing = before.into_iter().chain(after).filter(|it| !caller.has_permission(it));
            needed.extend(missing);
        }
        needed
    })
}

/// Returns true if a change chooses the program that runs, or the way it starts. The script of a new tool may be the default
/// one, `NAME.py` in the folder of the operator.
fn changes_program(ToolChange { name, before, after }: ToolChange<'_>) -> bool {
    let Some(after) = after.map(|tool| &tool.script) else { return false };
    match before.map(|tool| &tool.script) {
        Some(before) => {
            (&before.script_path, &before.entrypoint, &before.env)
                != (&after.script_path, &after.entrypoint, &after.env)
        }
        None => {
            after.script_path != after.folder.join(format!("{name}.py"))
                || after.entrypoint != ScriptSpec::DEFAULT_ENTRYPOINT
                || !after.env.is_empty()
        }
    }
}

/// Returns true if an entry, or the entry it patches, is about a process on this machine.
fn is_local(op: &EntryOp, entry: &Map<String, Json>, state: &RegistryState) -> bool {
    let kind = ["transport", "type"].iter().filter_map(|key| entry.get(*key)?.as_str());
    if LOCAL_KEYS.iter().any(|key| entry.contains_key(*key)) || kind.into_iter().any(|kind| kind == "stdio") {
        return true;
    }
    let there =
        state.documents.get(EntryKind::Server).is_some_and(|servers| servers.entry(&op.name).is_some());
    let remote =
        state.checked.servers.iter().any(|server| {
            server.name.as_str() == op.name && !matches!(server.transport, Transport::Stdio(_))
        });
    // An entry that is not in the checked configuration is unknown, so it is treated as local.
    matches!(op.action, EntryAction::Patch(_)) && there && !remote
}

/// Checks that the command of an entry is allowed. A patch without a command keeps the existing one. An entry without
/// any command is rejected.
fn check_command(
    op: &EntryOp,
    entry: &Map<String, Json>,
    state: &RegistryState,
    allowed: &AllowList,
) -> Result<(), HttpError> {
    let Some(commands) = &allowed.commands else { return Ok(()) };
    let written = || state.documents.get(EntryKind::Server)?.entry_value(&op.name);
    let written = if matches!(op.action, EntryAction::Patch(_)) { written() } else { None };
    let value = |key: &str| entry.get(key).or_else(|| written.as_ref()?.get(key)).and_then(Json::as_str);
    let refused =
        |message: String| HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, "command_refused", message);
    if value("server").is_some() {
        let hint =
            "write the program that runs the package as `command`, such as `npx`, and the package in `args`";
        return Err(refused("`server` is not allowed with `serve.allow_commands`".to_owned()).hint(hint));
    }
    let message = match value("command") {
        Some(own) if commands.iter().any(|command| command == own) => return Ok(()),
        Some(own) => format!("command `{own}` is not allowed"),
        None => "the entry has no `command`".to_owned(),
    };
    Err(refused(message).hint("`serve.allow_commands` in toolgate.yaml lists the allowed commands"))
}

/// Checks that an entry reads only variables the project already reads.
fn check_variables(entry: &Map<String, Json>, state: &RegistryState) -> Result<(), HttpError> {
    let mut unknown = Vec::new();
    for value in entry.values() {
        visit_strings(value, &mut |text| {
            for part in text.split("${").skip(1) {
                let name = part.split('}').next().unwrap_or_default();
                let name = name.split_once(":-").map_or(name, |(name, _)| name);
                let name = name.strip_prefix("env:").unwrap_or(name);
                if !state.checked.variables.contains(name) {
                    unknown.push(name.to_owned());
                }
            }
        });
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let problem = |name: String| RegistryProblem {
        message: format!("`${{{name}}}` is not a variable of this project"),
        place: None,
        hint: Some("add it to the project files, or use `toolgate servers add` on the machine".to_owned()),
    };
    let message = "an entry registered over HTTP can use only variables that the project files use";
    let problems = unknown.into_iter().map(problem).collect();
    let details = Some(Box::new(ErrorDetails { problems, ..ErrorDetails::default() }));
    let error = HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message);
    Err(HttpError { details, ..error })
}

fn visit_strings(value: &Json, see: &mut dyn FnMut(&str)) {
    match value {
        Json::String(text) => see(text),
        Json::Array(items) => items.iter().for_each(|item| visit_strings(item, see)),
        Json::Object(entries) => entries.iter().for_each(|(key, value)| {
            see(key);
            visit_strings(value, see);
        }),
        _ => {}
    }
}

/// URLs the gateway would connect to because of an entry.
fn urls(entry: &Map<String, Json>) -> Vec<&str> {
    let mut urls: Vec<&str> = entry.get("url").and_then(Json::as_str).into_iter().collect();
    if let Some(Json::Object(oauth)) = entry.get("oauth") {
        urls.extend(oauth.values().filter_map(Json::as_str).filter(|text| text.contains("://")));
    }
    urls
}

/// Checks that a URL points to the internet, or to an allowed network (SSRF protection).
async fn check_url(address: &str, allowed: &[Network]) -> Result<(), HttpError> {
    let url = Url::parse(address).map_err(|_| url_blocked("it is not a valid URL"))?;
    if !matches!(url.scheme(), "http" | "https" | "ws" | "wss") {
        return Err(url_blocked("its scheme is not `https`, `http`, `wss` or `ws`"));
    }
    // Parsers disagree about the host of such URLs.
    let odd = |c: char| c.is_control() || c.is_whitespace() || c == '\\';
    if address.contains(odd) || !url.username().is_empty() || url.password().is_some() {
        return Err(url_blocked("its host is ambiguous"));
    }
    if url[..Position::BeforePath].contains('$') {
        return Err(url_blocked("its host contains a variable"));
    }
    let Some(host) = url.host() else { return Err(url_blocked("it has no host")) };
    let (policy, port) = (AddressPolicy::listed(allowed), url.port_or_known_default().unwrap_or(443));
    let unknown = || url_blocked("its host cannot be resolved");
    match timeout(LOOKUP_TIMEOUT, policy.resolve(host, port)).await.map_err(|_| unknown())? {
        Ok(addresses) if addresses.is_empty() => Err(unknown()),
        Ok(_) => Ok(()),
        Err(error) => match BlockedAddress::find(&error) {
            Some(blocked) => Err(url_blocked(&format!("it points to {}", blocked.network))
                .hint("`serve.allow_networks` in toolgate.yaml lists the allowed networks")),
            None => Err(unknown()),
        },
    }
}

fn url_blocked(reason: &str) -> HttpError {
    let message = format!("the URL is not allowed: {reason}");
    HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, "ssrf_blocked", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spellings of loopback, metadata and internal addresses, and URLs that are not HTTP.
    const INTERNAL_URLS: [&str; 30] = [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://0x7f.1/",
        "http://2130706433/",
        "http://017700000001/",
        "http://①②⑦.⓪.⓪.①/",
        "http://127.0.0.1./",
        "http://localhost/",
        "http://LOCALHOST./",
        "http://a.localhost/",
        "http://[::1]/",
        "http://[::]/",
        "http://0/",
        "http://[::ffff:169.254.169.254]/",
        "http://169.254.169.254/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[2002:7f00:1::]/",
        "http://[fec0::1]/",
        "http://[fd00:ec2::254]/",
        "http://100.64.0.1/",
        "http://198.18.0.1/",
        "http://240.0.0.1/",
        "http://168.63.129.16/",
        "ws://10.0.0.1/",
        "https://8.8.8.8@10.0.0.1/",
        "http://8.8.8.8\\@10.0.0.1/",
        "http://${HOST}/",
        "file:///etc/passwd",
        "gopher://8.8.8.8/",
        "unix:/run/socket",
    ];

    #[tokio::test]
    async fn rejects_urls_of_internal_hosts() {
        for address in INTERNAL_URLS {
            let error = check_url(address, &[]).await.expect_err(address);
            assert_eq!((error.status.as_u16(), error.code), (422, "ssrf_blocked"), "{address}");
        }
        for address in ["https://8.8.8.8/mcp", "wss://[2606:4700::1111]/", "http://1.1.1.1:8080/${PATH_OF}"] {
            assert!(check_url(address, &[]).await.is_ok(), "{address}");
        }
    }

    #[tokio::test]
    async fn allows_only_listed_networks() {
        let allowed = ["10.0.0.0/8".parse().unwrap()];
        for (address, passes) in [
            ("http://10.1.2.3/", true),
            ("http://0xa.1/", true),
            ("http://[::ffff:10.0.0.1]/", true),
            ("http://11.0.0.1/", true),
            ("http://192.168.0.1/", false),
            ("http://[64:ff9b::a00:1]/", false),
            ("http://127.0.0.1/", false),
        ] {
            assert_eq!(check_url(address, &allowed).await.is_ok(), passes, "{address}");
        }
    }
}
