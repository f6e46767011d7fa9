//! What is said to who has to log in first: where, and for what (RFC 9728, RFC 6750).
//!
//! Invariant: it is said only where tokens count; it names issuers and scopes of the configuration, and nothing else.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use serde_json::json;
use toolgate_types::Caller;
use toolgate_types::profile::ProfileName;
use toolgate_types::tool::Permission;

use super::{Gate, Standing, authority};
use crate::Door;
use crate::accept::Whence;
use crate::answer::{self, Refusal};

/// Where the metadata is.
pub(crate) const PLACE: &str = "/.well-known/oauth-protected-resource";
/// How the challenge begins that names what is missing.
const LACKING: &str = "Bearer error=\"insufficient_scope\", scope=\"";

/// Whom a request was for, kept until its answer is known.
pub(crate) struct Addressed {
    base: String,
    /// What of us it was for, as the end of an address.
    part: String,
}

impl Gate {
    /// Whom a request is for, where that has to be told.
    pub(crate) fn addressed(&self, parts: &Parts, whence: &Whence) -> Option<Addressed> {
        if self.tokens.is_empty() {
            return None;
        }
        let Whence::Network(ends, _) = whence else { return None };
        let base = match &self.url {
            Some(url) => url.clone(),
            None => format!("{}://{}", if ends.secure { "https" } else { "http" }, authority(parts)?),
        };
        let path = parts.uri.path();
        Some(Addressed { base, part: part(path.strip_prefix(PLACE).unwrap_or(path)) })
    }

    /// Adds to a challenge where tokens are to be had, and the scopes that would help.
    pub(crate) fn challenge(&self, response: &mut Response, Addressed { base, part }: &Addressed) {
        let Some(told) = response.headers().get(header::WWW_AUTHENTICATE) else { return };
        let Some(told) = told.to_str().ok().map(ToOwned::to_owned) else { return };
        let (start, scopes) = match told.strip_prefix(LACKING) {
            Some(missing) => {
                ("Bearer error=\"insufficient_scope\"".to_owned(), self.giving(missing.trim_end_matches('"')))
            }
            None => (told, self.all_scopes()),
        };
        let place = format!("{base}{PLACE}{part}");
        let scope =
            if scopes.is_empty() { String::new() } else { format!(", scope=\"{}\"", scopes.join(" ")) };
        let challenge = format!("{start}, resource_metadata=\"{place}\"{scope}");
        if let Ok(challenge) = HeaderValue::from_str(&challenge) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
    }

    /// Whether it is the scopes of its token that say what somebody may do. Whom the configuration names has
    /// what it has there, whatever its token says.
    pub(crate) fn goes_by_scopes(&self, caller: &Caller, standing: Standing) -> bool {
        matches!(standing, Standing::Until(_)) && self.caller(caller.id.as_str()).is_none()
    }

    /// Whether there is a scope that gives what is missing.
    pub(crate) fn has_scope_for(&self, missing: &[Permission]) -> bool {
        !self.scopes_for(missing).is_empty()
    }

    /// The scopes that give what is missing; without any, what is missing itself.
    fn giving(&self, missing: &str) -> Vec<String> {
        let permissions: Vec<Permission> = missing.split(' ').filter_map(|it| it.parse().ok()).collect();
        let scopes = self.scopes_for(&permissions);
        if scopes.is_empty() { vec![missing.to_owned()] } else { scopes }
    }

    fn scopes_for(&self, permissions: &[Permission]) -> Vec<String> {
        let mut scopes: Vec<_> = self
            .tokens
            .issuers()
            .flat_map(|issuer| &issuer.scopes)
            .filter(|(_, gives)| permissions.iter().any(|it| gives.iter().any(|pattern| pattern.covers(it))))
            .map(|(scope, _)| scope.clone())
            .collect();
        scopes.sort_unstable();
        scopes.dedup();
        scopes
    }

    fn all_scopes(&self) -> Vec<String> {
        let mut scopes: Vec<_> =
            self.tokens.issuers().flat_map(|issuer| issuer.scopes.keys()).cloned().collect();
        scopes.sort_unstable();
        scopes.dedup();
        scopes
    }
}

/// The part of us that an address is of: all, MCP, or a profile. Whether there is such a profile is not told to who was
/// not let in.
fn part(path: &str) -> String {
    let Some(rest) = path.strip_prefix("/mcp") else { return String::new() };
    match rest.strip_prefix('/').map(str::parse::<ProfileName>) {
        Some(Ok(profile)) => format!("/mcp/{profile}"),
        Some(Err(_)) => "/mcp".to_owned(),
        None if rest.is_empty() => "/mcp".to_owned(),
        None => String::new(),
    }
}

/// What we are to who wants a token for us: for anybody to read, where tokens count.
pub(crate) async fn metadata(State(door): State<Arc<Door>>, parts: Parts) -> Result<Response, Refusal> {
    let gate = &door.gate;
    let whence = parts.extensions.get::<Whence>();
    let addressed = whence.and_then(|whence| gate.addressed(&parts, whence));
    let Addressed { base, part } = addressed.ok_or_else(|| Refusal::not_found("no tokens are taken here"))?;
    let issuers: Vec<_> = gate.tokens.issuers().map(|issuer| &issuer.issuer).collect();
    Ok(answer::document(&json!({
        "resource": format!("{base}{part}"),
        "authorization_servers": issuers,
        "scopes_supported": gate.all_scopes(),
        "bearer_methods_supported": ["header"],
        "resource_name": "Toolgate",
    })))
}
