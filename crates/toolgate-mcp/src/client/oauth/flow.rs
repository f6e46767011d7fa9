//! OAuth steps of a login: registration, authorization request, code exchange, refresh, client credentials.
//!
//! Token requests are made by `oauth2`, and sent like all others by [`Fetcher`]. Every request for a token names the
//! MCP server as its resource (RFC 8707), so that the token is of no use elsewhere.

use std::collections::HashSet;

use oauth2::basic::{BasicClient, BasicErrorResponseType, BasicTokenResponse};
use oauth2::{
    AuthType, AuthUrl, AuthorizationCode, ClientId, ClientSecret, CsrfToken, EndpointNotSet, EndpointSet,
    PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, RefreshToken, RequestTokenError, Scope,
    TokenResponse as _, TokenUrl,
};
use toolgate_types::BrowserUrl;
use toolgate_types::browser_url::BrowserUrlError;
use toolgate_types::oauth::OauthConfig;
use toolgate_types::server::UpstreamTls;
use url::Url;

use super::LoginError;
use super::assertion::{ASSERTION_TYPE, AssertionKey};
use super::callback::CallbackResponse;
use super::challenge::Challenge;
use super::discovery::{self, DiscoveredServer, DiscoveryError};
use super::fetch::Fetcher;
use super::registration;
use super::token_file::{OAuthClient, TokenSet, now};
use crate::network::AddressPolicy;

/// Scope that requests refresh tokens, where the server supports it.
const OFFLINE_SCOPE: &str = "offline_access";
/// Parameter that names the MCP server.
const RESOURCE: &str = "resource";

type TokenClient = BasicClient<EndpointNotSet, EndpointNotSet, EndpointNotSet, EndpointNotSet, EndpointSet>;

/// Reason why an authorization server cannot be used, or why its response is not accepted.
#[derive(Debug, thiserror::Error)]
enum FlowError {
    #[error("the authorization server has no authorization endpoint")]
    NoAuthorizationEndpoint,
    #[error("the authorization server does not support authorization codes")]
    NoCodes,
    #[error("the authorization server does not support PKCE with S256")]
    NoPkce,
    #[error(
        "the metadata of the authorization server does not list PKCE with S256; if you trust `{0}`, set \
         `oauth.issuer` to it"
    )]
    UnknownPkce(String),
    #[error(
        "`client_secret` is not sent to `{url}`, because that is not on the host and port of the server; if you \
         trust it, set `oauth.issuer` to `{issuer}`"
    )]
    OtherOrigin { url: String, issuer: String },
    #[error("invalid URL of the token endpoint")]
    TokenUrl(#[from] url::ParseError),
    #[error(transparent)]
    BrowserUrl(#[from] BrowserUrlError),
    #[error("the authorization server does not support {wanted}; it supports {supported}")]
    NoAuthMethod { wanted: &'static str, supported: String },
    #[error("the authorization server has no issuer, which `private_key_jwt` needs")]
    NoIssuer,
    #[error("the response comes from issuer `{received}`, not from `{expected}`")]
    WrongIssuer { received: String, expected: String },
    #[error("the response does not name its issuer `{expected}`")]
    IssuerMissing { expected: String },
}

/// Login in progress with one authorization server.
pub(super) struct LoginFlow {
    fetcher: Fetcher,
    discovered: DiscoveredServer,
    /// Issuer of the authorization server.
    pub(super) issuer: String,
    /// True if the configuration names this issuer.
    is_pinned: bool,
    /// Origin of the MCP server.
    origin: url::Origin,
}

/// Server that a login is for.
#[derive(Clone, Copy)]
pub(super) struct LoginTarget<'a> {
    pub(super) server: &'a Url,
    pub(super) tls: &'a UpstreamTls,
    pub(super) addresses: &'a AddressPolicy,
    /// Issuer that the configuration names.
    pub(super) issuer: Option<&'a str>,
}

/// Authorization request, until its response arrives.
pub(super) struct AuthorizationRequest {
    /// URL to open in the browser.
    pub(super) url: BrowserUrl,
    pub(super) state: String,
    verifier: PkceCodeVerifier,
    scopes: Vec<String>,
}

/// Returns the scopes in a challenge.
pub(super) fn challenged_scopes(challenge: Option<&str>) -> Vec<String> {
    challenge.map(|challenge| Challenge::parse(challenge).scopes).unwrap_or_default()
}

impl LoginFlow {
    /// Discovers the authorization server.
    pub(super) async fn discover(
        target: LoginTarget<'_>,
        challenge: Option<&str>,
    ) -> Result<Self, LoginError> {
        let LoginTarget { server, tls, addresses, issuer: pinned } = target;
        let discovery = async {
            let fetcher = Fetcher::new(server, tls, addresses).await?;
            let discovered = discovery::discover(&fetcher, server, pinned, challenge).await?;
            let issuer = discovered.metadata.issuer.clone();
            let issuer = issuer.unwrap_or_else(|| server.origin().ascii_serialization());
            Ok(Self { fetcher, discovered, issuer, is_pinned: pinned.is_some(), origin: server.origin() })
        };
        discovery.await.map_err(|error: DiscoveryError| LoginError::Discovery(error.into()))
    }

    /// Combines configured, challenged and already granted scopes.
    pub(super) fn scopes(
        &self,
        configured: &[String],
        granted: &[String],
        challenge: Option<&str>,
    ) -> Vec<String> {
        let mut scopes = granted.to_vec();
        if configured.is_empty() {
            scopes.extend_from_slice(&self.discovered.scopes);
        } else {
            scopes.extend_from_slice(configured);
            scopes.extend(challenged_scopes(challenge));
        }
        self.with_offline_scope(scopes)
    }

    /// Adds the scope for refresh tokens if the server supports it, and removes duplicates.
    fn with_offline_scope(&self, mut scopes: Vec<String>) -> Vec<String> {
        let supported = &self.discovered.metadata.scopes_supported;
        if !scopes.is_empty() && supported.iter().any(|scope| scope == OFFLINE_SCOPE) {
            scopes.push(OFFLINE_SCOPE.to_owned());
        }
        let mut seen = HashSet::new();
        scopes.retain(|scope| seen.insert(scope.clone()));
        scopes
    }

    /// Returns the client registration: configured, by metadata document, registered before, or registered now.
    pub(super) async fn client(
        &self,
        options: &OauthConfig,
        known: Option<&OAuthClient>,
        redirect_uri: String,
        scopes: &[String],
    ) -> Result<OAuthClient, LoginError> {
        let metadata = &self.discovered.metadata;
        let document = options.client_metadata_url.as_ref();
        if let Some(id) = &options.client_id {
            let secret = options.client_secret.as_ref().map(|secret| secret.expose().to_owned());
            let client = OAuthClient { id: id.expose().to_owned(), secret, redirect_uri, registered: false };
            // Before a person logs in for nothing.
            self.check_secret(&client).map_err(|error| LoginError::Exchange(error.into()))?;
            return Ok(client);
        }
        if let Some(document) = document.filter(|_| metadata.client_id_metadata_document_supported) {
            let id = document.expose().to_owned();
            return Ok(OAuthClient { id, secret: None, redirect_uri, registered: false });
        }
        if let Some(known) = known.filter(|known| known.registered && known.redirect_uri == redirect_uri) {
            return Ok(known.clone());
        }
        // A registration is of no use if the login cannot succeed.
        self.check_code_flow().map_err(|error| LoginError::Registration(error.into()))?;
        let endpoint = metadata.registration_endpoint.as_deref();
        let registered = registration::register(&self.fetcher, endpoint, redirect_uri, scopes).await;
        registered.map_err(|error| {
            if self.discovered.is_published {
                LoginError::Registration(error.into())
            } else {
                LoginError::NoOauth
            }
        })
    }

    /// Builds the authorization request.
    pub(super) fn authorization_request(
        &self,
        client: &OAuthClient,
        scopes: Vec<String>,
    ) -> Result<AuthorizationRequest, LoginError> {
        let build = || {
            self.check_code_flow()?;
            let endpoint = self.discovered.metadata.authorization_endpoint.clone();
            let endpoint = AuthUrl::new(endpoint.ok_or(FlowError::NoAuthorizationEndpoint)?)?;
            // Not fetched, but opened: it must not be a `file:` URL, or one of another application.
            BrowserUrl::try_from(endpoint.url().clone()).map_err(FlowError::BrowserUrl)?;
            self.fetcher.check(endpoint.url())?;
            let oauth_client = BasicClient::new(ClientId::new(client.id.clone()))
                .set_auth_uri(endpoint)
                .set_redirect_uri(RedirectUrl::new(client.redirect_uri.clone())?);
            let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
            let (url, state) = oauth_client
                .authorize_url(CsrfToken::new_random)
                .set_pkce_challenge(challenge)
                .add_extra_param(RESOURCE, &self.discovered.resource)
                .add_scopes(scopes.iter().cloned().map(Scope::new))
                .url();
            let url = BrowserUrl::try_from(url).map_err(FlowError::BrowserUrl)?;
            Ok(AuthorizationRequest { url, state: state.into_secret(), verifier, scopes })
        };
        build().map_err(LoginError::Discovery)
    }

    /// Checks that the server supports authorization codes with PKCE. A server that publishes metadata has to list PKCE,
    /// unless the operator chose its issuer: one that ignores PKCE accepts stolen codes.
    fn check_code_flow(&self) -> Result<(), FlowError> {
        let DiscoveredServer { metadata, is_published, .. } = &self.discovered;
        let lists = |list: &[String], value: &str| list.iter().any(|entry| entry == value);
        if metadata.response_types_supported.as_ref().is_some_and(|list| !lists(list, "code")) {
            return Err(FlowError::NoCodes);
        }
        match &metadata.code_challenge_methods_supported {
            Some(list) if lists(list, "S256") => Ok(()),
            Some(_) => Err(FlowError::NoPkce),
            None if *is_published && !self.is_pinned => Err(FlowError::UnknownPkce(self.issuer.clone())),
            None => Ok(()),
        }
    }

    /// Checks that a secret from the configuration may be sent. Any server can name any issuer, and its metadata any
    /// token endpoint, so both must have the origin of the server unless the operator chose the issuer.
    fn check_secret(&self, client: &OAuthClient) -> Result<(), FlowError> {
        if self.is_pinned || client.secret.is_none() || client.registered {
            return Ok(());
        }
        let is_elsewhere = |url: &&String| !Url::parse(url).is_ok_and(|url| url.origin() == self.origin);
        match [&self.issuer, &self.discovered.metadata.token_endpoint].into_iter().find(is_elsewhere) {
            Some(url) => Err(FlowError::OtherOrigin { url: url.clone(), issuer: self.issuer.clone() }),
            None => Ok(()),
        }
    }

    /// Exchanges the code for tokens, after checking the issuer.
    pub(super) async fn exchange(
        &self,
        client: &OAuthClient,
        request: AuthorizationRequest,
        response: &CallbackResponse,
    ) -> Result<TokenSet, LoginError> {
        let code = response.outcome.as_ref().map_err(|error| LoginError::Refused(error.clone()))?;
        self.check_response_issuer(response.issuer.as_deref())
            .map_err(|error| LoginError::Exchange(error.into()))?;
        let exchange = async {
            let redirect_uri = RedirectUrl::new(client.redirect_uri.clone())?;
            let oauth_client =
                self.token_client(client, self.login_auth_type())?.set_redirect_uri(redirect_uri);
            let request_tokens = oauth_client
                .exchange_code(AuthorizationCode::new(code.clone()))
                .set_pkce_verifier(request.verifier)
                .add_extra_param(RESOURCE, &self.discovered.resource);
            Ok(request_tokens.request_async(&self.fetcher).await?)
        };
        let response = exchange.await.map_err(LoginError::Exchange)?;
        Ok(token_set(&response, request.scopes))
    }

    /// Checks the issuer in the response to an authorization request (RFC 9207).
    fn check_response_issuer(&self, received: Option<&str>) -> Result<(), FlowError> {
        let metadata = &self.discovered.metadata;
        let expected = self.issuer.clone();
        match received {
            // Without metadata the issuer is unknown, so no response can name the right one.
            Some(received) if metadata.issuer.as_deref() != Some(received) => {
                Err(FlowError::WrongIssuer { received: received.to_owned(), expected })
            }
            None if metadata.authorization_response_iss_parameter_supported => {
                Err(FlowError::IssuerMissing { expected })
            }
            _ => Ok(()),
        }
    }

    /// Refreshes tokens; `None` if the server requires a new login.
    pub(super) async fn refresh(
        &self,
        client: &OAuthClient,
        tokens: &TokenSet,
    ) -> Result<Option<TokenSet>, LoginError> {
        let Some(refresh_token) = tokens.refresh_token.clone() else { return Ok(None) };
        let refresh_token = RefreshToken::new(refresh_token);
        let scopes = self.with_offline_scope(tokens.scopes.clone());
        let oauth_client = self.token_client(client, self.login_auth_type());
        let oauth_client = oauth_client.map_err(|error| LoginError::Exchange(error.into()))?;
        let request_tokens = oauth_client
            .exchange_refresh_token(&refresh_token)
            .add_extra_param(RESOURCE, &self.discovered.resource)
            .add_scopes(scopes.iter().cloned().map(Scope::new));
        match request_tokens.request_async(&self.fetcher).await {
            Ok(response) => {
                let mut refreshed = token_set(&response, scopes);
                // A response without a refresh token keeps the old one valid.
                refreshed.refresh_token =
                    refreshed.refresh_token.or_else(|| Some(refresh_token.into_secret()));
                Ok(Some(refreshed))
            }
            Err(RequestTokenError::ServerResponse(response))
                if *response.error() == BasicErrorResponseType::InvalidGrant =>
            {
                Ok(None)
            }
            Err(error) => Err(LoginError::Exchange(error.into())),
        }
    }

    /// Logs in with client credentials.
    pub(super) async fn client_credentials(
        &self,
        options: &OauthConfig,
        scopes: Vec<String>,
    ) -> Result<(OAuthClient, TokenSet), LoginError> {
        let Some(id) = &options.client_id else { return Err(LoginError::NoClient) };
        let mut client = OAuthClient {
            id: id.expose().to_owned(),
            secret: options.client_secret.as_ref().map(|secret| secret.expose().to_owned()),
            redirect_uri: String::new(),
            registered: false,
        };
        let exchange = async {
            let assertion = match (&client.secret, &options.private_key) {
                (Some(_), _) => None,
                (None, Some(key)) => Some(self.assertion(&client.id, key.expose())?),
                (None, None) => return Ok(None),
            };
            let auth_type =
                if assertion.is_none() { self.secret_auth_type()? } else { AuthType::RequestBody };
            let oauth_client = self.token_client(&client, auth_type)?;
            let mut request_tokens = oauth_client
                .exchange_client_credentials()
                .add_extra_param(RESOURCE, &self.discovered.resource)
                .add_scopes(scopes.into_iter().map(Scope::new));
            if let Some(assertion) = assertion {
                request_tokens = request_tokens
                    .add_extra_param("client_assertion_type", ASSERTION_TYPE)
                    .add_extra_param("client_assertion", assertion);
            }
            Ok(Some(request_tokens.request_async(&self.fetcher).await?))
        };
        let response = exchange.await.map_err(LoginError::Exchange)?;
        let response = response.ok_or(LoginError::NoClient)?;
        // The secret stays in the configuration.
        client.secret = None;
        Ok((client, token_set(&response, Vec::new())))
    }

    fn assertion(
        &self,
        client_id: &str,
        key: &str,
    ) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        let metadata = &self.discovered.metadata;
        self.check_auth_method(&["private_key_jwt"])?;
        let issuer = metadata.issuer.as_deref().ok_or(FlowError::NoIssuer)?;
        let algorithms = metadata.token_endpoint_auth_signing_alg_values_supported.as_deref();
        Ok(AssertionKey::from_pem(key)?.sign(client_id, issuer, algorithms)?)
    }

    fn check_auth_method(&self, wanted: &[&'static str]) -> Result<(), FlowError> {
        let Some(supported) = &self.discovered.metadata.token_endpoint_auth_methods_supported else {
            return Ok(());
        };
        if wanted.iter().any(|wanted| supported.iter().any(|method| method == wanted)) {
            return Ok(());
        }
        Err(FlowError::NoAuthMethod { wanted: wanted[0], supported: supported.join(", ") })
    }

    /// Place of the secret in a login: a header, unless the server supports the body only.
    fn login_auth_type(&self) -> AuthType {
        let is_post_only =
            self.supports_method("client_secret_post") && !self.supports_method("client_secret_basic");
        if is_post_only { AuthType::RequestBody } else { AuthType::BasicAuth }
    }

    /// Place of the secret for client credentials: the body, unless the server supports the header only.
    fn secret_auth_type(&self) -> Result<AuthType, FlowError> {
        self.check_auth_method(&["client_secret_post", "client_secret_basic"])?;
        let is_basic_only =
            self.supports_method("client_secret_basic") && !self.supports_method("client_secret_post");
        Ok(if is_basic_only { AuthType::BasicAuth } else { AuthType::RequestBody })
    }

    /// True if the server names an authentication method.
    fn supports_method(&self, method: &str) -> bool {
        let supported = &self.discovered.metadata.token_endpoint_auth_methods_supported;
        supported.iter().flatten().any(|supported| supported == method)
    }

    fn token_client(&self, client: &OAuthClient, auth_type: AuthType) -> Result<TokenClient, FlowError> {
        self.check_secret(client)?;
        let endpoint = TokenUrl::new(self.discovered.metadata.token_endpoint.clone())?;
        let mut oauth_client = BasicClient::new(ClientId::new(client.id.clone()))
            .set_token_uri(endpoint)
            .set_auth_type(auth_type);
        if let Some(secret) = &client.secret {
            oauth_client = oauth_client.set_client_secret(ClientSecret::new(secret.clone()));
        }
        Ok(oauth_client)
    }
}

/// Converts a token response. One without scopes grants the requested ones.
fn token_set(response: &BasicTokenResponse, requested: Vec<String>) -> TokenSet {
    let scopes = response.scopes().map(|scopes| scopes.iter().map(|scope| scope.to_string()).collect());
    TokenSet {
        access_token: response.access_token().secret().clone(),
        refresh_token: response.refresh_token().map(|token| token.secret().clone()),
        expires_at: response.expires_in().map(|lifetime| now().saturating_add(lifetime.as_secs())),
        scopes: scopes.unwrap_or(requested),
    }
}

#[cfg(test)]
mod tests;
