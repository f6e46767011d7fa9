//! What an entry that came over the network may say. The operator's files are not asked any of this.
//!
//! Three things: only who was given `servers:exec` by its name says what runs on this machine, and it is a program that
//! the operator allows; an entry reads no variable
//! that the project does not read anyway; and an address leads to the internet, or to a network that the operator
//! allows. Invariant: nothing is started, and nothing is sent but questions for names.

use std::net::IpAddr;
use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Map, Value as Json};
use tokio::net::lookup_host;
use tokio::time::timeout;
use toolgate_store::document::{Act, Kind, Op};
use toolgate_store::registry::{Problem, State};
use toolgate_types::Caller;
use toolgate_types::network::{Network, inside};
use toolgate_types::server::Transport;
use url::{Host, Position, Url};

use super::SERVERS_EXEC;
use crate::admit::{Refusal, demand_by_name};
use crate::answer::Details;

/// Keys of a server that say what runs here, or which of its files are read.
const LOCAL: [&str; 10] =
    ["command", "args", "server", "env", "env_file", "envFile", "cwd", "encoding", "config", "tls"];
/// How long a name may take to be found.
const LOOKUP: Duration = Duration::from_secs(3);

/// What the operator allows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Allowed {
    /// Networks that are not the internet.
    pub(crate) networks: Vec<Network>,
    /// Programs; any where nothing is said.
    pub(crate) commands: Option<Vec<String>>,
}

/// Whether a caller may make this change.
pub(super) async fn check(op: &Op, caller: &Caller, state: &State, allowed: &Allowed) -> Result<(), Refusal> {
    let (Act::Add(entry) | Act::Replace(entry) | Act::Patch(entry)) = &op.act else { return Ok(()) };
    if op.kind == Kind::Server && runs_here(op, entry, state) {
        demand_by_name(caller, SERVERS_EXEC)?;
        command(op, entry, state, allowed)?;
    }
    variables(entry, state)?;
    if op.kind == Kind::Server {
        for address in addresses(entry) {
            leads_outside(address, &allowed.networks).await?;
        }
    }
    Ok(())
}

/// Whether an entry, or what it is a part of, is about a process of this machine.
fn runs_here(op: &Op, entry: &Map<String, Json>, state: &State) -> bool {
    let kind = ["transport", "type"].iter().filter_map(|key| entry.get(*key)?.as_str());
    if LOCAL.iter().any(|key| entry.contains_key(*key)) || kind.into_iter().any(|kind| kind == "stdio") {
        return true;
    }
    let there = state.documents.of(Kind::Server).is_some_and(|servers| servers.entry(&op.name).is_some());
    let remote =
        state.checked.servers.iter().any(|server| {
            server.name.as_str() == op.name && !matches!(server.transport, Transport::Stdio(_))
        });
    // One that is left out is not known any better, so it is taken for one that runs here.
    matches!(op.act, Act::Patch(_)) && there && !remote
}

/// Whether the program of an entry is one that may be run. What an entry that is patched does not say stays as it
/// was written, and an entry without a program of its own names none that is allowed.
fn command(op: &Op, entry: &Map<String, Json>, state: &State, allowed: &Allowed) -> Result<(), Refusal> {
    let Some(commands) = &allowed.commands else { return Ok(()) };
    let written = || {
        let servers = state.documents.of(Kind::Server)?;
        serde_json::from_str::<Map<String, Json>>(servers.entry(&op.name)?).ok()
    };
    let written = if matches!(op.act, Act::Patch(_)) { written() } else { None };
    let own = entry.get("command").or_else(|| written.as_ref()?.get("command"));
    let own = own.and_then(Json::as_str);
    if own.is_some_and(|own| commands.iter().any(|command| command == own)) && !entry.contains_key("server") {
        return Ok(());
    }
    let message = match own {
        Some(own) => format!("`{own}` is not a program that may be run"),
        None => "it does not say in `command` which program runs".to_owned(),
    };
    Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "command_refused", message)
        .hint("`serve.allow_commands` in toolgate.yaml names programs that may be registered"))
}

/// Every variable of an entry is one that the project reads anyway.
fn variables(entry: &Map<String, Json>, state: &State) -> Result<(), Refusal> {
    let mut unknown = Vec::new();
    for value in entry.values() {
        each_text(value, &mut |text| {
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
    let problem = |name: String| Problem {
        message: format!("`${{{name}}}` is not a variable that this project uses"),
        place: None,
        hint: Some("whoever has the files can add it there, or with `toolgate servers add`".to_owned()),
    };
    let message = "an entry that comes over HTTP reads no other variables than the files do";
    let problems = unknown.into_iter().map(problem).collect();
    let details = Some(Box::new(Details { problems, revision: None }));
    let refusal = Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message);
    Err(Refusal { details, ..refusal })
}

fn each_text(value: &Json, see: &mut dyn FnMut(&str)) {
    match value {
        Json::String(text) => see(text),
        Json::Array(items) => items.iter().for_each(|item| each_text(item, see)),
        Json::Object(entries) => entries.iter().for_each(|(key, value)| {
            see(key);
            each_text(value, see);
        }),
        _ => {}
    }
}

/// The addresses that an entry makes us talk to.
fn addresses(entry: &Map<String, Json>) -> Vec<&str> {
    let mut found: Vec<&str> = entry.get("url").and_then(Json::as_str).into_iter().collect();
    if let Some(Json::Object(oauth)) = entry.get("oauth") {
        found.extend(oauth.values().filter_map(Json::as_str).filter(|text| text.contains("://")));
    }
    found
}

/// Whether an address leads to the internet, or to where the operator allows.
async fn leads_outside(address: &str, allowed: &[Network]) -> Result<(), Refusal> {
    let url = Url::parse(address).map_err(|_| blocked("it is not an address"))?;
    if !matches!(url.scheme(), "http" | "https" | "ws" | "wss") {
        return Err(blocked("an MCP server has an address with `https`, `http`, `wss` or `ws`"));
    }
    // What different readers could take for different hosts.
    let odd = |c: char| c.is_control() || c.is_whitespace() || c == '\\';
    if address.contains(odd) || !url.username().is_empty() || url.password().is_some() {
        return Err(blocked("its host is not clear"));
    }
    if url[..Position::BeforePath].contains('$') {
        return Err(blocked("a variable says where it leads"));
    }
    let addresses = match url.host() {
        Some(Host::Ipv4(address)) => vec![IpAddr::V4(address)],
        Some(Host::Ipv6(address)) => vec![IpAddr::V6(address)],
        Some(Host::Domain(name)) => found(name, url.port_or_known_default().unwrap_or(443)).await?,
        None => return Err(blocked("it has no host")),
    };
    let refused = |address: &&IpAddr| !allowed.iter().any(|network| network.contains(**address));
    match addresses.iter().filter(refused).find_map(|address| inside(*address)) {
        Some(what) => Err(blocked(&format!("it leads to {what}"))
            .hint("`serve.allow_networks` in toolgate.yaml names networks that may be registered")),
        None => Ok(()),
    }
}

/// All addresses that a name has now.
async fn found(name: &str, port: u16) -> Result<Vec<IpAddr>, Refusal> {
    let bare = name.trim_end_matches('.');
    if bare == "localhost" || bare.ends_with(".localhost") {
        return Ok(vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])]);
    }
    let unknown = || blocked("its host is not found, so nobody knows where it leads");
    let addresses = timeout(LOOKUP, lookup_host((name, port))).await.map_err(|_| unknown())?;
    let addresses: Vec<_> = addresses.map_err(|_| unknown())?.map(|address| address.ip()).collect();
    if addresses.is_empty() { Err(unknown()) } else { Ok(addresses) }
}

fn blocked(why: &str) -> Refusal {
    let message = format!("the address is refused: {why}");
    Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "ssrf_blocked", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spellings of this machine, of metadata and of inner networks, and what is not HTTP at all.
    const INNER: [&str; 30] = [
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
    async fn addresses_that_lead_inside() {
        for address in INNER {
            let refusal = leads_outside(address, &[]).await.expect_err(address);
            assert_eq!((refusal.status.as_u16(), refusal.code), (422, "ssrf_blocked"), "{address}");
        }
        for address in ["https://8.8.8.8/mcp", "wss://[2606:4700::1111]/", "http://1.1.1.1:8080/${PATH_OF}"] {
            assert!(leads_outside(address, &[]).await.is_ok(), "{address}");
        }
    }

    #[tokio::test]
    async fn networks_that_are_allowed_and_no_other() {
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
            assert_eq!(leads_outside(address, &allowed).await.is_ok(), passes, "{address}");
        }
    }
}
