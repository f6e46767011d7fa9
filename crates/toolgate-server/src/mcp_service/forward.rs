//! Prompts, resources, completions and log levels: forwarded to the server that owns them.

use std::sync::Arc;

use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::json;
use toolgate_mcp::server::{ClientRequest, RpcResult, adapt_result};
use toolgate_mcp::{Params, RawJson, RequestError, Revision, RpcError};
use toolgate_runtime::results::{ReadError, URI_PREFIX};
use toolgate_runtime::runtime::{RequestKind, ServerRequestError};
use toolgate_types::ServerName;

use super::{McpCaller, McpService, name_of};

/// Error code for unknown resources, before the newest revision.
const RESOURCE_NOT_FOUND: i64 = -32002;

pub(super) fn no_resource(uri: &str, revision: Revision) -> RpcError {
    let code = if revision.has_handshake() { RESOURCE_NOT_FOUND } else { RpcError::INVALID_PARAMS };
    let uri: String = uri.chars().take(512).collect();
    RpcError {
        data: Some(RawJson::from_value(&json!({ "uri": uri }))),
        ..RpcError::new(code, format!("there is no resource `{uri}`"))
    }
}

/// Converts a failed request to a server to the error for the client.
pub(super) fn rpc_error(error: ServerRequestError, revision: Revision) -> RpcError {
    match error {
        ServerRequestError::Request {
            why: RequestError::Rpc(mut error) | RequestError::Unanswered(mut error),
            ..
        } => {
            if error.code == RESOURCE_NOT_FOUND && !revision.has_handshake() {
                error.code = RpcError::INVALID_PARAMS;
            }
            error
        }
        error => RpcError::new(-32603, error.to_string()),
    }
}

impl McpService {
    async fn forward(
        &self,
        server: &str,
        kind: RequestKind,
        params: Params,
        request: &ClientRequest,
        known: &[&str],
    ) -> RpcResult {
        let revision = request.client.revision();
        let forwarded = request.forwarded(known);
        let result = self.runtime.forward(server, kind, params, (&forwarded, &request.trace)).await;
        result.map(|result| adapt_result(revision, result)).map_err(|error| rpc_error(error, revision))
    }

    pub(super) async fn prompt(&self, mcp_caller: &McpCaller, request: ClientRequest) -> RpcResult {
        let name: String = request.member("name")?;
        let all = self.named_prompts(mcp_caller);
        let Some((_, server, prompt)) = all.into_iter().find(|(known, ..)| *known == name) else {
            return Err(RpcError::new(RpcError::INVALID_PARAMS, format!("there is no prompt `{name}`")));
        };
        let params = Params::none().with("name", &prompt.id);
        self.forward(&server, RequestKind::Prompt, params, &request, &["name"]).await
    }

    pub(super) async fn resource(&self, mcp_caller: &McpCaller, request: ClientRequest) -> RpcResult {
        let uri: String = request.member("uri")?;
        let revision = request.client.revision();
        if uri.starts_with(URI_PREFIX) {
            return self.stored_result(mcp_caller, &uri, revision).await;
        }
        let mut last = no_resource(&uri, revision);
        for server in self.servers_for_resource(mcp_caller, &uri) {
            let params = Params::none().with("uri", &uri);
            match self.forward(name_of(&server), RequestKind::Resource, params, &request, &["uri"]).await {
                Ok(result) => return Ok(with_cache_hints(result, revision)),
                Err(error) if [RESOURCE_NOT_FOUND, RpcError::INVALID_PARAMS].contains(&error.code) => {
                    last = error
                }
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Reads a stored result.
    async fn stored_result(&self, mcp_caller: &McpCaller, uri: &str, revision: Revision) -> RpcResult {
        let results = self.runtime.results().ok_or_else(|| no_resource(uri, revision))?;
        let stored = results.read(&mcp_caller.caller.id, uri).await.map_err(|error| match error {
            ReadError::Absent(_) => no_resource(uri, revision),
            error => RpcError::new(-32603, error.to_string()),
        })?;
        let contents = json!({ "uri": uri, "mimeType": "application/json", "text": stored.reply.as_str() });
        let result = adapt_result(revision, RawJson::from_value(&json!({ "contents": [contents] })));
        Ok(with_cache_hints(result, revision))
    }

    /// Servers that may own a resource, most likely first: those that list it, then those with a matching template,
    /// then those with resources of the same scheme.
    pub(super) fn servers_for_resource(&self, mcp_caller: &McpCaller, uri: &str) -> Vec<ServerName> {
        let scheme = uri.split(':').next().unwrap_or_default();
        let mut found = Vec::new();
        let Ok(profile) = self.profile(mcp_caller) else { return Vec::new() };
        let part = |id: &str| profile.as_ref().is_none_or(|profile| profile.resources.contains(&[id, uri]));
        for (server, offer) in self.runtime.offers() {
            if !mcp_caller.has_access(&server, "resources") {
                continue;
            }
            let rank = if part(uri) && offer.resources.iter().any(|one| one.id == uri) {
                0
            } else if offer.templates.iter().any(|one| matches_template(&one.id, uri) && part(&one.id)) {
                1
            } else if part(uri)
                && offer
                    .resources
                    .iter()
                    .chain(&*offer.templates)
                    .any(|one| one.id.split(':').next() == Some(scheme))
            {
                2
            } else {
                continue;
            };
            if let Ok(name) = server.parse::<ServerName>() {
                found.push((rank, name));
            }
        }
        // Stable sort: equal ranks keep the order of the configuration. The scheme counts only if a single server uses
        // it.
        found.sort_by_key(|(rank, _)| *rank);
        let best = found.first().map_or(0, |(rank, _)| *rank);
        if best < 2 || found.len() > 1 {
            found.retain(|(rank, _)| *rank < 2);
        }
        found.into_iter().map(|(_, name)| name).collect()
    }

    pub(super) async fn complete(&self, mcp_caller: &McpCaller, request: ClientRequest) -> RpcResult {
        #[derive(Deserialize)]
        struct Reference {
            #[serde(rename = "type")]
            kind: String,
            #[serde(default)]
            name: Option<String>,
            #[serde(default)]
            uri: Option<String>,
        }
        let bad =
            || RpcError::new(RpcError::INVALID_PARAMS, "`ref` must name a prompt or a resource template");
        let raw = request.raw_member("ref").ok_or_else(bad)?;
        let reference: Reference = raw.parse().map_err(|_| bad())?;
        let (server, renamed) = match (reference.kind.as_str(), reference.name, reference.uri) {
            ("ref/prompt", Some(name), _) => {
                let all = self.named_prompts(mcp_caller);
                let found = all.into_iter().find(|(known, ..)| *known == name).ok_or_else(bad)?;
                (found.1, RawJson::from_value(&json!({ "type": "ref/prompt", "name": found.2.id })))
            }
            ("ref/resource", _, Some(uri)) => {
                let offers = self.runtime.offers();
                let profile = self.profile(mcp_caller)?;
                if profile.is_some_and(|profile| !profile.resources.contains(&[&uri])) {
                    return Err(bad());
                }
                let has = |(server, offer): &(String, toolgate_runtime::ServerOffer)| {
                    mcp_caller.has_access(server, "resources")
                        && offer.templates.iter().chain(&*offer.resources).any(|one| one.id == uri)
                };
                (offers.into_iter().find(has).ok_or_else(bad)?.0, raw)
            }
            _ => return Err(bad()),
        };
        let completes = self
            .runtime
            .peers()
            .iter()
            .any(|(name, peer)| name.as_str() == server && peer.has_capability("completions"));
        if !completes {
            let none =
                RawJson::from_value(&json!({ "completion": { "values": [], "total": 0, "hasMore": false } }));
            return Ok(adapt_result(request.client.revision(), none));
        }
        let params = Params::none().with_raw("ref", renamed);
        self.forward(&server, RequestKind::Completion, params, &request, &["ref"]).await
    }

    /// Sets the log level on every server that logs. The level of each client is applied where messages are sent to it.
    pub(super) async fn set_level(&self, request: &ClientRequest) -> RpcResult {
        let level: String = request.member("level")?;
        let peers = self.runtime.peers();
        let logs =
            peers.iter().filter(|(_, peer)| peer.revision.has_handshake() && peer.has_capability("logging"));
        let requests = logs.map(|(server, _)| {
            let runtime = Arc::clone(&self.runtime);
            let params = Params::none().with("level", &level);
            async move { runtime.request(server.as_str(), RequestKind::LogLevel, params).await }
        });
        for error in join_all(requests).await.into_iter().filter_map(Result::err) {
            tracing::debug!("a server rejected the log level: {error}");
        }
        Ok(RawJson::from_value(&json!({})))
    }
}

/// Adds the cache lifetime and scope that the newest revision requires. Always private, even if the server says public,
/// because the result was given to this caller.
fn with_cache_hints(result: RawJson, revision: Revision) -> RawJson {
    if revision.has_handshake() {
        return result;
    }
    let members = result.members();
    let mut out = String::from("{");
    let mut ttl = "0";
    for (name, value) in &members {
        match &**name {
            "ttlMs" => ttl = value,
            "cacheScope" => {}
            _ => {
                out.push_str(&format!("{}:{},", serde_json::Value::from(&**name), value));
            }
        }
    }
    out.push_str(&format!("\"ttlMs\":{ttl},\"cacheScope\":\"private\"}}"));
    RawJson::from_trusted(out)
}

/// Returns true if a URI matches a template. An expression matches any string without a slash, or with slashes if its
/// operator allows them.
fn matches_template(template: &str, uri: &str) -> bool {
    let Some((before, rest)) = template.split_once('{') else { return template == uri };
    let (Some((name, after)), Some(uri)) = (rest.split_once('}'), uri.strip_prefix(before)) else {
        return false;
    };
    let slashes = name.starts_with(['+', '#', '/', '?', '&', ';', '.']) || name.ends_with('*');
    let optional = name.starts_with(['?', '&', '/', ';', '#', '.']);
    let ends = uri.char_indices().map(|(at, _)| at).chain([uri.len()]);
    ends.filter(|end| optional || *end > 0)
        .take_while(|end| slashes || !uri[..*end].contains('/'))
        .any(|end| matches_template(after, &uri[end..]))
}

#[test]
fn uri_templates_match_uris() {
    for (template, uri, due) in [
        ("test://template/{id}/data", "test://template/1/data", true),
        ("test://template/{id}/data", "test://template/1/2/data", false),
        ("test://template/{id}/data", "test://template//data", false),
        ("file:///{+path}", "file:///a/b", true),
        ("a://b", "a://b", true),
        ("a://b", "a://bc", false),
        ("s://{a}/{b}", "s://x/y", true),
        ("s://x{?q}", "s://x", true),
        ("s://{", "s://{", false),
    ] {
        assert_eq!(matches_template(template, uri), due, "{template} {uri}");
    }
}
