//! OAuth protected resource metadata and challenges (RFC 9728, RFC 6750): where to get a token, and with which scopes.
//!
//! Invariant: published only if token issuers are configured; it contains only issuers and scopes of the configuration.

use http::header::{self, HeaderValue};
use http::request::Parts;
use serde_json::json;
use toolgate_types::Caller;
use toolgate_types::profile::ProfileName;
use toolgate_types::tool::Permission;

use super::{Authenticator, CredentialLifetime, authority};
use crate::listener::ConnectionSource;
use crate::response::{self, HttpError, Response};
use crate::route::AdmittedRequest;

/// Path of the metadata document.
pub(crate) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";
/// Prefix of the challenge that names missing permissions.
const INSUFFICIENT_SCOPE: &str = "Bearer error=\"insufficient_scope\", scope=\"";

/// The resource a request was for, kept until its response is known.
pub(crate) struct ChallengeTarget {
    base: String,
    /// Path of the resource: empty, `/mcp`, or `/mcp/{profile}`.
    resource_path: String,
}

impl Authenticator {
    /// Returns the requested resource, if challenges need one.
    pub(crate) fn challenge_target(
        &self,
        parts: &Parts,
        source: &ConnectionSource,
    ) -> Option<ChallengeTarget> {
        let rules = self.rules();
        if rules.tokens.is_empty() {
            return None;
        }
        let ConnectionSource::Network(ends, _) = source else { return None };
        let base = match &rules.url {
            Some(url) => url.clone(),
            None => format!("{}://{}", if ends.secure { "https" } else { "http" }, authority(parts)?),
        };
        let path = parts.uri.path();
        Some(ChallengeTarget {
            base,
            resource_path: resource_path(path.strip_prefix(METADATA_PATH).unwrap_or(path)),
        })
    }

    /// Adds the metadata URL and the useful scopes to a challenge.
    pub(crate) fn extend_challenge(
        &self,
        response: &mut Response,
        ChallengeTarget { base, resource_path }: &ChallengeTarget,
    ) {
        let Some(challenge) = response.headers().get(header::WWW_AUTHENTICATE) else { return };
        let Some(challenge) = challenge.to_str().ok().map(ToOwned::to_owned) else { return };
        let (start, scopes) = match challenge.strip_prefix(INSUFFICIENT_SCOPE) {
            Some(missing) => (
                "Bearer error=\"insufficient_scope\"".to_owned(),
                self.scopes_granting(missing.trim_end_matches('"')),
            ),
            None => (challenge, self.all_scopes()),
        };
        let url = format!("{base}{METADATA_PATH}{resource_path}");
        let scope =
            if scopes.is_empty() { String::new() } else { format!(", scope=\"{}\"", scopes.join(" ")) };
        let challenge = format!("{start}, resource_metadata=\"{url}\"{scope}");
        if let Ok(challenge) = HeaderValue::from_str(&challenge) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
    }

    /// Returns true if the scopes of the token define the permissions. A configured caller has its configured
    /// permissions, whatever its token says.
    pub(crate) fn is_limited_by_scopes(&self, caller: &Caller, lifetime: &CredentialLifetime) -> bool {
        lifetime.is_token() && self.caller(caller.id.as_str()).is_none()
    }

    /// Returns true if some scope grants one of the missing permissions.
    pub(crate) fn has_scope_for(&self, missing: &[Permission]) -> bool {
        !self.scopes_for(missing).is_empty()
    }

    /// Scopes that grant the missing permissions. Falls back to the permissions themselves.
    fn scopes_granting(&self, missing: &str) -> Vec<String> {
        let permissions: Vec<Permission> = missing.split(' ').filter_map(|it| it.parse().ok()).collect();
        let scopes = self.scopes_for(&permissions);
        if scopes.is_empty() { vec![missing.to_owned()] } else { scopes }
    }

    fn scopes_for(&self, permissions: &[Permission]) -> Vec<String> {
        let rules = self.rules();
        let mut scopes: Vec<_> = rules
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
        let rules = self.rules();
        let mut scopes: Vec<_> =
            rules.tokens.issuers().flat_map(|issuer| issuer.scopes.keys()).cloned().collect();
        scopes.sort_unstable();
        scopes.dedup();
        scopes
    }
}

/// Resource of a path: all, MCP, or a profile. Accepts any valid profile name, so that unauthenticated clients cannot
/// probe for profiles.
fn resource_path(path: &str) -> String {
    let Some(rest) = path.strip_prefix("/mcp") else { return String::new() };
    match rest.strip_prefix('/').map(str::parse::<ProfileName>) {
        Some(Ok(profile)) => format!("/mcp/{profile}"),
        Some(Err(_)) => "/mcp".to_owned(),
        None if rest.is_empty() => "/mcp".to_owned(),
        None => String::new(),
    }
}

/// Serves the metadata document. Public, if token issuers are configured.
pub(crate) async fn metadata(request: AdmittedRequest) -> Result<Response, HttpError> {
    let authenticator = &request.gateway.authenticator;
    let target = authenticator.challenge_target(&request.parts, &request.source);
    let ChallengeTarget { base, resource_path } =
        target.ok_or_else(|| HttpError::not_found("no token issuer is configured"))?;
    let rules = authenticator.rules();
    let issuers: Vec<_> = rules.tokens.issuers().map(|issuer| &issuer.issuer).collect();
    Ok(response::json(&json!({
        "resource": format!("{base}{resource_path}"),
        "authorization_servers": issuers,
        "scopes_supported": authenticator.all_scopes(),
        "bearer_methods_supported": ["header"],
        "resource_name": "Toolgate",
    })))
}
