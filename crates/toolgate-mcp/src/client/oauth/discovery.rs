//! Discovery: from an MCP server to its authorization server.
//!
//! The server's protected resource metadata (RFC 9728) names the authorization server; its URL is in the challenge or
//! well known. The authorization server publishes its endpoints (RFC 8414 or OpenID Connect Discovery). Servers of
//! revision 2025-03-26 have no resource metadata and are their own authorization server, with default endpoints if
//! they publish none. Invariant: metadata counts only for the resource and the issuer that it was requested for.

use serde::Deserialize;
use url::Url;

use super::challenge::Challenge;
use super::fetch::{self, FetchError, Fetcher};

/// Authorization servers of one resource that are tried.
const MAX_SERVERS: usize = 8;
/// Characters of a list of servers in a message.
const MAX_SHOWN_CHARS: usize = 300;
const RESOURCE_METADATA: &str = "oauth-protected-resource";
const OAUTH_METADATA: &str = "oauth-authorization-server";
const OPENID_METADATA: &str = "openid-configuration";

/// Reason why no authorization server was found.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiscoveryError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("the protected resource metadata at `{0}` names no resource")]
    NoResource(String),
    #[error("the protected resource metadata at `{url}` is for `{resource}`, not for `{server}`")]
    WrongResource { url: String, resource: String, server: String },
    #[error("none of the authorization servers has metadata: {0}")]
    NoMetadata(String),
    #[error("the authorization server metadata at `{url}` names no issuer (expected `{expected}`)")]
    NoIssuer { url: String, expected: String },
    #[error("the authorization server metadata at `{url}` is for `{issuer}`, not for `{expected}`")]
    WrongIssuer { url: String, issuer: String, expected: String },
    #[error("the server uses the authorization server `{found}`, but `oauth.issuer` is `{pinned}`")]
    OtherIssuer { found: String, pinned: String },
}

/// Protected resource metadata.
#[derive(Debug, Deserialize)]
struct ResourceMetadata {
    resource: Option<String>,
    /// Name of the field in drafts of RFC 9728.
    authorization_server: Option<String>,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

/// Authorization server metadata.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ServerMetadata {
    pub(super) issuer: Option<String>,
    pub(super) authorization_endpoint: Option<String>,
    pub(super) token_endpoint: String,
    pub(super) registration_endpoint: Option<String>,
    pub(super) revocation_endpoint: Option<String>,
    pub(super) dpop_signing_alg_values_supported: Option<Vec<String>>,
    #[serde(default)]
    pub(super) scopes_supported: Vec<String>,
    pub(super) response_types_supported: Option<Vec<String>>,
    pub(super) code_challenge_methods_supported: Option<Vec<String>>,
    pub(super) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    pub(super) token_endpoint_auth_signing_alg_values_supported: Option<Vec<String>>,
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    pub(super) client_id_metadata_document_supported: bool,
}

/// Result of a discovery.
pub(super) struct DiscoveredServer {
    pub(super) metadata: ServerMetadata,
    /// False if the server publishes no metadata, so that its endpoints are guesses.
    pub(super) is_published: bool,
    /// Resource indicator (RFC 8707).
    pub(super) resource: String,
    /// Scopes of the challenge, or else those of the resource metadata.
    pub(super) scopes: Vec<String>,
}

/// Finds the authorization server of an MCP server. If the configuration names an issuer, no other one is used.
pub(super) async fn discover(
    fetcher: &Fetcher,
    server: &Url,
    pinned: Option<&str>,
    challenge: Option<&str>,
) -> Result<DiscoveredServer, DiscoveryError> {
    let discovery = Discovery { fetcher, server, pinned };
    let mut challenge = challenge.map(Challenge::parse);
    let mut resource = discovery.hinted_resource(challenge.as_ref()).await?;
    if resource.is_none() {
        let probed = fetcher.probe(server).await?;
        resource = discovery.hinted_resource(probed.as_ref()).await?;
        challenge = challenge.or(probed);
    }
    if resource.is_none() {
        resource = discovery.well_known_resource().await?;
    }
    let published = match &resource {
        Some((url, resource)) => discovery.named_server(url, resource).await?,
        None => None,
    };
    let published = match published {
        Some(metadata) => Some(metadata),
        None => discovery.same_server().await?,
    };
    if let Some(pinned) = pinned {
        let found = published.as_ref().and_then(|metadata| metadata.issuer.clone());
        let found = found.unwrap_or_else(|| server.origin().ascii_serialization());
        if !is_same_issuer(&found, pinned) {
            return Err(DiscoveryError::OtherIssuer { found, pinned: pinned.to_owned() });
        }
    }
    let mut scopes = challenge.map(|challenge| challenge.scopes).unwrap_or_default();
    let mut indicator = server.to_string();
    if let Some((_, resource)) = resource {
        if scopes.is_empty() {
            scopes = resource.scopes_supported;
        }
        indicator = resource.resource.unwrap_or(indicator);
    }
    Ok(DiscoveredServer {
        is_published: published.is_some(),
        metadata: published.unwrap_or_else(|| default_endpoints(server)),
        resource: indicator,
        scopes,
    })
}

/// Gets the metadata of an issuer that the configuration names.
pub(super) async fn issuer_metadata(
    fetcher: &Fetcher,
    issuer: &Url,
) -> Result<ServerMetadata, DiscoveryError> {
    for url in &metadata_urls(issuer) {
        if let Some(metadata) = fetcher.get::<ServerMetadata>(url).await? {
            check_issuer(url, &metadata, issuer.as_str())?;
            return Ok(metadata);
        }
    }
    Err(DiscoveryError::NoMetadata(issuer.to_string()))
}

/// Discovery for one MCP server.
struct Discovery<'a> {
    fetcher: &'a Fetcher,
    server: &'a Url,
    /// Issuer that the configuration names.
    pinned: Option<&'a str>,
}

impl Discovery<'_> {
    /// Gets the resource metadata that a challenge points to.
    async fn hinted_resource(
        &self,
        challenge: Option<&Challenge>,
    ) -> Result<Option<(Url, ResourceMetadata)>, DiscoveryError> {
        let hints = challenge.map(|challenge| challenge.resource_metadata.as_slice()).unwrap_or_default();
        let mut hints = hints.iter().filter_map(|hint| self.server.join(hint.trim()).ok());
        // A URL that must not be fetched is no reason to fail: the metadata may be at its well-known URL.
        let Some(url) = hints.find(|url| self.fetcher.check(url).is_ok()) else { return Ok(None) };
        let Some(metadata) = self.fetcher.get::<ResourceMetadata>(&url).await? else { return Ok(None) };
        check_resource(self.server, &url, &metadata)?;
        Ok(Some((url, metadata)))
    }

    /// Looks for resource metadata at the well-known URLs.
    async fn well_known_resource(&self) -> Result<Option<(Url, ResourceMetadata)>, DiscoveryError> {
        let path = self.server.path().trim_matches('/');
        let mut paths = vec![format!("/.well-known/{RESOURCE_METADATA}")];
        if !path.is_empty() {
            let inserted = format!("/.well-known/{RESOURCE_METADATA}/{path}");
            let appended = format!("/{path}/.well-known/{RESOURCE_METADATA}");
            paths.splice(0..0, [inserted, appended]);
        }
        for path in paths {
            let url = with_path(self.server, &path);
            let Some(metadata) = self.fetcher.get::<ResourceMetadata>(&url).await? else { continue };
            match check_resource(self.server, &url, &metadata) {
                Ok(()) => return Ok(Some((url, metadata))),
                // Nothing pointed here, so this may be any document.
                Err(error) => tracing::debug!(%error, "not the metadata of this resource"),
            }
        }
        Ok(None)
    }

    /// Gets the metadata of the first usable authorization server that the resource names; `None` if it names none.
    async fn named_server(
        &self,
        url: &Url,
        resource: &ResourceMetadata,
    ) -> Result<Option<ServerMetadata>, DiscoveryError> {
        let names = resource.authorization_server.iter().chain(&resource.authorization_servers);
        let mut names: Vec<_> = names.map(|name| name.trim()).filter(|name| !name.is_empty()).collect();
        names.dedup();
        names.truncate(MAX_SERVERS);
        if names.is_empty() {
            return Ok(None);
        }
        if let Some(pinned) = self.pinned {
            let issuer = |name: &str| Some(without_well_known(&url.join(name).ok()?).to_string());
            let is_pinned = |name: &&str| issuer(name).is_some_and(|issuer| is_same_issuer(&issuer, pinned));
            if !names.iter().any(is_pinned) {
                let found = names.join("`, `").chars().take(MAX_SHOWN_CHARS).collect();
                return Err(DiscoveryError::OtherIssuer { found, pinned: pinned.to_owned() });
            }
            names.retain(is_pinned);
        }
        let mut refused = None;
        for name in &names {
            let Ok(issuer) = url.join(name) else { continue };
            if let Err(error) = self.fetcher.check(&issuer) {
                refused = Some(error);
                continue;
            }
            let issuer = without_well_known(&issuer);
            let mut urls = metadata_urls(&issuer);
            if !is_root(&issuer) {
                urls.push(with_path(&issuer, &format!("/.well-known/{OAUTH_METADATA}")));
            }
            if let Some(metadata) = self.first_metadata(&urls, &issuer).await? {
                return Ok(Some(metadata));
            }
        }
        // The user is not sent to a server that the resource did not name.
        match refused {
            Some(error) => Err(error.into()),
            None => Err(DiscoveryError::NoMetadata(names.join(", "))),
        }
    }

    /// Gets the metadata of an MCP server that is its own authorization server.
    async fn same_server(&self) -> Result<Option<ServerMetadata>, DiscoveryError> {
        let origin = with_path(self.server, "");
        if !is_root(self.server) {
            let issuer = with_path(self.server, self.server.path().trim_end_matches('/'));
            if let Some(metadata) = self.first_metadata(&metadata_urls(&issuer), &issuer).await? {
                return Ok(Some(metadata));
            }
        }
        self.first_metadata(&metadata_urls(&origin), &origin).await
    }

    async fn first_metadata(
        &self,
        urls: &[Url],
        issuer: &Url,
    ) -> Result<Option<ServerMetadata>, DiscoveryError> {
        for url in urls {
            if let Some(metadata) = self.fetcher.get::<ServerMetadata>(url).await? {
                check_issuer(url, &metadata, issuer.as_str())?;
                return Ok(Some(metadata));
            }
        }
        Ok(None)
    }
}

/// Checks that resource metadata is for this server, or for a path above it.
fn check_resource(server: &Url, url: &Url, metadata: &ResourceMetadata) -> Result<(), DiscoveryError> {
    let Some(resource) = &metadata.resource else {
        return Err(DiscoveryError::NoResource(url.to_string()));
    };
    if Url::parse(resource).is_ok_and(|resource| covers(&resource, server)) {
        return Ok(());
    }
    Err(DiscoveryError::WrongResource {
        url: url.to_string(),
        resource: resource.clone(),
        server: server.to_string(),
    })
}

/// Reads arbitrary bytes as a challenge and as both kinds of metadata, for the fuzz target.
///
/// # Panics
/// If a document counts for another resource or issuer, or a URL is allowed that must not be fetched.
pub(crate) fn fuzz_discovery(bytes: &[u8]) {
    let server = Url::parse("https://mcp.example.com/tools/mcp").expect("a valid URL");
    let mut urls = Vec::new();
    if let Ok(header) = std::str::from_utf8(bytes) {
        let challenge = Challenge::parse(header);
        urls.extend(challenge.resource_metadata.iter().filter_map(|hint| server.join(hint.trim()).ok()));
    }
    if let Ok(metadata) = fetch::parse::<ResourceMetadata>(&server, bytes) {
        if check_resource(&server, &server, &metadata).is_ok() {
            let resource = metadata.resource.as_deref().and_then(|resource| Url::parse(resource).ok());
            assert_eq!(resource.map(|resource| resource.origin()), Some(server.origin()));
        }
        let names = metadata.authorization_server.iter().chain(&metadata.authorization_servers);
        for issuer in names.filter_map(|name| server.join(name.trim()).ok()) {
            let issuer = without_well_known(&issuer);
            let well_known = metadata_urls(&issuer);
            assert!(
                well_known.iter().all(|url| url.scheme() == issuer.scheme() && url.host() == issuer.host())
            );
            urls.extend(well_known);
        }
    }
    if let Ok(metadata) = fetch::parse::<ServerMetadata>(&server, bytes) {
        if check_issuer(&server, &metadata, "https://id.example.com/").is_ok() {
            let issuer = metadata.issuer.as_deref().unwrap_or_default();
            assert_eq!(issuer.trim_end_matches('/'), "https://id.example.com");
        }
        let endpoints =
            [metadata.authorization_endpoint, metadata.registration_endpoint, metadata.revocation_endpoint];
        let endpoints = endpoints.into_iter().flatten().chain([metadata.token_endpoint]);
        urls.extend(endpoints.filter_map(|url| Url::parse(&url).ok()));
    }
    urls.iter().for_each(|url| fetch::fuzz_url(&server, url));
}

/// Well-known URLs of an issuer's metadata: RFC 8414, then OpenID Connect with the path inserted and appended.
fn metadata_urls(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_matches('/');
    let paths = if path.is_empty() {
        vec![format!("/.well-known/{OAUTH_METADATA}"), format!("/.well-known/{OPENID_METADATA}")]
    } else {
        vec![
            format!("/.well-known/{OAUTH_METADATA}/{path}"),
            format!("/.well-known/{OPENID_METADATA}/{path}"),
            format!("/{path}/.well-known/{OPENID_METADATA}"),
        ]
    };
    paths.iter().map(|path| with_path(issuer, path)).collect()
}

/// Returns the issuer of a metadata URL: some servers name the document instead.
fn without_well_known(url: &Url) -> Url {
    for name in [OAUTH_METADATA, OPENID_METADATA] {
        if let Some((before, after)) = url.path().split_once(&format!("/.well-known/{name}")) {
            return with_path(url, &format!("{before}{after}"));
        }
    }
    url.clone()
}

fn check_issuer(url: &Url, metadata: &ServerMetadata, expected: &str) -> Result<(), DiscoveryError> {
    let (url, expected) = (url.to_string(), expected.to_owned());
    let Some(issuer) = metadata.issuer.clone() else {
        return Err(DiscoveryError::NoIssuer { url, expected });
    };
    if is_same_issuer(&issuer, &expected) {
        return Ok(());
    }
    Err(DiscoveryError::WrongIssuer { url, issuer, expected })
}

/// Compares two issuers. Only a trailing slash of an empty path makes no difference.
fn is_same_issuer(one: &str, other: &str) -> bool {
    let normalized = |issuer: &str| match Url::parse(issuer) {
        Ok(parsed) if is_root(&parsed) => issuer.trim_end_matches('/').to_owned(),
        _ => issuer.to_owned(),
    };
    normalized(one) == normalized(other)
}

/// True if a resource is the server or a path above it. Queries may differ.
fn covers(resource: &Url, server: &Url) -> bool {
    let rest = server.path().strip_prefix(resource.path());
    resource.fragment().is_none()
        && resource.origin() == server.origin()
        && rest.is_some_and(|rest| rest.is_empty() || resource.path().ends_with('/') || rest.starts_with('/'))
}

/// Endpoints of servers of revision 2025-03-26 that publish no metadata.
fn default_endpoints(server: &Url) -> ServerMetadata {
    let endpoint = |path| with_path(server, path).to_string();
    ServerMetadata {
        authorization_endpoint: Some(endpoint("/authorize")),
        token_endpoint: endpoint("/token"),
        registration_endpoint: Some(endpoint("/register")),
        ..ServerMetadata::default()
    }
}

fn with_path(url: &Url, path: &str) -> Url {
    let mut url = url.clone();
    url.set_path(path);
    url.set_query(None);
    url.set_fragment(None);
    url
}

fn is_root(url: &Url) -> bool {
    url.path().trim_matches('/').is_empty()
}

#[cfg(test)]
mod tests;
