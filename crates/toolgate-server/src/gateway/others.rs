//! Prompts, resources, completions and log levels: passed on to the server that has them.

use std::sync::Arc;

use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::json;
use toolgate_mcp::serve::{Outcome, Request, in_words_of};
use toolgate_mcp::{Params, Raw, RequestError, Revision, RpcError};
use toolgate_runtime::results::{ReadError, SCHEME};
use toolgate_runtime::runtime::{Ask, AskError};
use toolgate_types::ServerName;

use super::{Gateway, Visitor, name_of};

/// There is no such resource: before the newest revision this had a code of its own.
const NO_RESOURCE: i64 = -32002;

pub(super) fn no_resource(uri: &str, revision: Revision) -> RpcError {
    let code = if revision.has_handshake() { NO_RESOURCE } else { RpcError::INVALID_PARAMS };
    let uri: String = uri.chars().take(512).collect();
    RpcError {
        data: Some(Raw::of(&json!({ "uri": uri }))),
        ..RpcError::new(code, format!("there is no resource `{uri}`"))
    }
}

/// What a server said in place of a result, or why it said nothing.
pub(super) fn refused(error: AskError, revision: Revision) -> RpcError {
    match error {
        AskError::Request {
            why: RequestError::Rpc(mut error) | RequestError::Unanswered(mut error), ..
        } => {
            if error.code == NO_RESOURCE && !revision.has_handshake() {
                error.code = RpcError::INVALID_PARAMS;
            }
            error
        }
        error => RpcError::new(-32603, error.to_string()),
    }
}

impl Gateway {
    async fn pass(
        &self,
        server: &str,
        what: Ask,
        params: Params,
        request: &Request,
        known: &[&str],
    ) -> Outcome {
        let revision = request.client.revision();
        let along = request.along(known);
        let passed = self.runtime.pass(server, what, params, (&along, &request.trace)).await;
        passed.map(|result| in_words_of(revision, result)).map_err(|error| refused(error, revision))
    }

    pub(super) async fn prompt(&self, visitor: &Visitor, request: Request) -> Outcome {
        let name: String = request.member("name")?;
        let all = self.named_prompts(visitor);
        let Some((_, server, prompt)) = all.into_iter().find(|(known, ..)| *known == name) else {
            return Err(RpcError::new(RpcError::INVALID_PARAMS, format!("there is no prompt `{name}`")));
        };
        let params = Params::none().with("name", &prompt.id);
        self.pass(&server, Ask::Prompt, params, &request, &["name"]).await
    }

    pub(super) async fn resource(&self, visitor: &Visitor, request: Request) -> Outcome {
        let uri: String = request.member("uri")?;
        let revision = request.client.revision();
        if uri.starts_with(SCHEME) {
            return self.kept(visitor, &uri, revision).await;
        }
        let mut last = no_resource(&uri, revision);
        for server in self.holders(visitor, &uri) {
            let params = Params::none().with("uri", &uri);
            match self.pass(name_of(&server), Ask::Resource, params, &request, &["uri"]).await {
                Ok(result) => return Ok(held(result, revision)),
                Err(error) if [NO_RESOURCE, RpcError::INVALID_PARAMS].contains(&error.code) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// A result that was too large to be given whole.
    async fn kept(&self, visitor: &Visitor, uri: &str, revision: Revision) -> Outcome {
        let results = self.runtime.results().ok_or_else(|| no_resource(uri, revision))?;
        let kept = results.read(&visitor.caller.id, uri).await.map_err(|error| match error {
            ReadError::Absent(_) => no_resource(uri, revision),
            error => RpcError::new(-32603, error.to_string()),
        })?;
        let contents = json!({ "uri": uri, "mimeType": "application/json", "text": kept.reply.get() });
        let result = in_words_of(revision, Raw::of(&json!({ "contents": [contents] })));
        Ok(held(result, revision))
    }

    /// The servers that may have a resource, the likeliest first: those that list it, then those with a template
    /// that fits, then those that have others of its kind.
    pub(super) fn holders(&self, visitor: &Visitor, uri: &str) -> Vec<ServerName> {
        let scheme = uri.split(':').next().unwrap_or_default();
        let mut found = Vec::new();
        let Ok(profile) = self.profile(visitor) else { return Vec::new() };
        let part = |id: &str| profile.as_ref().is_none_or(|profile| profile.resources.has(&[id, uri]));
        for (server, offer) in self.runtime.offers() {
            if !visitor.may_have(&server, "resources") {
                continue;
            }
            let rank = if part(uri) && offer.resources.iter().any(|one| one.id == uri) {
                0
            } else if offer.templates.iter().any(|one| fits(&one.id, uri) && part(&one.id)) {
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
        // The order of the configuration stays among equals. Others of its kind say something only where one
        // server alone has them.
        found.sort_by_key(|(rank, _)| *rank);
        let best = found.first().map_or(0, |(rank, _)| *rank);
        if best < 2 || found.len() > 1 {
            found.retain(|(rank, _)| *rank < 2);
        }
        found.into_iter().map(|(_, name)| name).collect()
    }

    pub(super) async fn complete(&self, visitor: &Visitor, request: Request) -> Outcome {
        #[derive(Deserialize)]
        struct Reference {
            #[serde(rename = "type")]
            kind: String,
            #[serde(default)]
            name: Option<String>,
            #[serde(default)]
            uri: Option<String>,
        }
        let bad = || RpcError::new(RpcError::INVALID_PARAMS, "`ref` names a prompt or a template");
        let raw = request.raw_member("ref").ok_or_else(bad)?;
        let reference: Reference = raw.parse().map_err(|_| bad())?;
        let (server, renamed) = match (reference.kind.as_str(), reference.name, reference.uri) {
            ("ref/prompt", Some(name), _) => {
                let all = self.named_prompts(visitor);
                let found = all.into_iter().find(|(known, ..)| *known == name).ok_or_else(bad)?;
                (found.1, Raw::of(&json!({ "type": "ref/prompt", "name": found.2.id })))
            }
            ("ref/resource", _, Some(uri)) => {
                let offers = self.runtime.offers();
                let profile = self.profile(visitor)?;
                if profile.is_some_and(|profile| !profile.resources.has(&[&uri])) {
                    return Err(bad());
                }
                let has = |(server, offer): &(String, toolgate_runtime::Offer)| {
                    visitor.may_have(server, "resources")
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
            .any(|(name, peer)| name.as_str() == server && peer.has("completions"));
        if !completes {
            let none = Raw::of(&json!({ "completion": { "values": [], "total": 0, "hasMore": false } }));
            return Ok(in_words_of(request.client.revision(), none));
        }
        let params = Params::none().with_raw("ref", renamed);
        self.pass(&server, Ask::Completion, params, &request, &["ref"]).await
    }

    /// Every server that logs is told; what each client reads is decided where it is written to.
    pub(super) async fn set_level(&self, request: &Request) -> Outcome {
        let level: String = request.member("level")?;
        let peers = self.runtime.peers();
        let logs = peers.iter().filter(|(_, peer)| peer.revision.has_handshake() && peer.has("logging"));
        let told = logs.map(|(server, _)| {
            let runtime = Arc::clone(&self.runtime);
            let params = Params::none().with("level", &level);
            async move { runtime.ask(server.as_str(), Ask::LogLevel, params).await }
        });
        for error in join_all(told).await.into_iter().filter_map(Result::err) {
            tracing::debug!("a log level is not taken: {error}");
        }
        Ok(Raw::of(&json!({})))
    }
}

/// A result that says how long it holds, and for whom, as the newest revision demands. What a server calls public
/// was given to this caller.
fn held(result: Raw, revision: Revision) -> Raw {
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
    Raw::trusted(out)
}

/// Whether an address fits a template: what stands between braces is any text without a slash, or with some where
/// the template says so.
fn fits(template: &str, uri: &str) -> bool {
    let Some((before, rest)) = template.split_once('{') else { return template == uri };
    let (Some((name, after)), Some(uri)) = (rest.split_once('}'), uri.strip_prefix(before)) else {
        return false;
    };
    let slashes = name.starts_with(['+', '#', '/', '?', '&', ';', '.']) || name.ends_with('*');
    let optional = name.starts_with(['?', '&', '/', ';', '#', '.']);
    let ends = uri.char_indices().map(|(at, _)| at).chain([uri.len()]);
    ends.filter(|end| optional || *end > 0)
        .take_while(|end| slashes || !uri[..*end].contains('/'))
        .any(|end| fits(after, &uri[end..]))
}

#[test]
fn templates_and_addresses() {
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
        assert_eq!(fits(template, uri), due, "{template} {uri}");
    }
}
