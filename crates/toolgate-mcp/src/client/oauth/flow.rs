//! OAuth steps of a login: registration, authorization request, code exchange, refresh, client credentials, exchange of
//! tokens and identities, revocation.
//!
//! Token requests are made by `oauth2`, as far as it knows the grant, and sent like all others by [`Fetcher`]. Every request for a token names the
//! MCP server as its resource (RFC 8707), so that the token is of no use elsewhere.

use std::collections::HashSet;
use std::sync::Arc;

use oauth2::basic::{BasicClient, BasicErrorResponseType, BasicTokenResponse};
use oauth2::{
    AuthType, AuthUrl, AuthorizationCode, ClientId, ClientSecret, CsrfToken, EndpointNotSet, EndpointSet,
    PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, RefreshToken, RequestTokenError, Scope,
    TokenResponse as _, TokenUrl,
};
use serde::Deserialize;
use toolgate_types::browser_url::BrowserUrlError;
use toolgate_types::oauth::{DpopMode, IdentityProvider, OauthConfig, OauthGrant, SubjectTokenType};
use toolgate_types::server::UpstreamTls;
use toolgate_types::{BrowserUrl, Secret};
use url::Url;

use super::LoginError;
use super::assertion::{ASSERTION_TYPE, AssertionKey};
use super::callback::CallbackResponse;
use super::challenge::Challenge;
use super::discovery::{self, DiscoveredServer, DiscoveryError};
use super::dpop::{self, DpopKey};
use super::fetch::Fetcher;
use super::registration;
use super::token_record::{OAuthClient, TokenSet, now};
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
    #[error("the authorization server does not support DPoP with ES256, which `oauth.dpop` requires")]
    NoDpop,
    #[error(
        "the authorization server issued a token that is not bound to a key, but `oauth.dpop` is `required`"
    )]
    NotBound,
    #[error("the authorization server issued a token of type `{0}`")]
    TokenType(String),
    #[error("the identity provider issued a token of type `{0}`, not an identity assertion")]
    NoAssertion(String),
    #[error("`oauth.issuer` is needed: a token is exchanged only at the issuer that the configuration names")]
    NotPinned,
    #[error("`oauth.identity_provider` is needed")]
    NoIdentityProvider,
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
    /// Key that the tokens are bound to.
    dpop_key: Option<Arc<DpopKey>>,
    dpop_mode: DpopMode,
}

/// Response of a token endpoint to the grants that `oauth2` does not know.
#[derive(Deserialize)]
struct ExchangeResponse {
    access_token: String,
    #[serde(default)]
    token_type: String,
    issued_token_type: Option<String>,
    expires_in: Option<u64>,
    refresh_token: Option<String>,
    scope: Option<String>,
}

const JWT_BEARER_GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const TOKEN_EXCHANGE_GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN_TYPE: &str = "urn:ietf:params:oauth:token-type:access_token";
const ID_TOKEN_TYPE: &str = "urn:ietf:params:oauth:token-type:id_token";
const JWT_TYPE: &str = "urn:ietf:params:oauth:token-type:jwt";
/// Type of an identity assertion.
const ID_JAG_TYPE: &str = "urn:ietf:params:oauth:token-type:id-jag";

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
            Ok(Self {
                fetcher,
                discovered,
                issuer,
                is_pinned: pinned.is_some(),
                origin: server.origin(),
                dpop_key: None,
                dpop_mode: DpopMode::Off,
            })
        };
        discovery.await.map_err(|error: DiscoveryError| LoginError::Discovery(error.into()))
    }

    /// Requests tokens that are bound to a key, if the mode and the authorization server want it. `known` is the stored
    /// key of this login.
    pub(super) fn enable_dpop(&mut self, mode: DpopMode, known: Option<&str>) -> Result<(), LoginError> {
        self.dpop_mode = mode;
        let algorithms = self.discovered.metadata.dpop_signing_alg_values_supported.as_deref();
        let is_supported = algorithms.is_some_and(|all| all.iter().any(|name| name == dpop::ALGORITHM));
        match (mode, is_supported) {
            (DpopMode::Off, _) | (DpopMode::Auto, false) => Ok(()),
            (DpopMode::Required, false) => Err(LoginError::Discovery(FlowError::NoDpop.into())),
            (DpopMode::Auto | DpopMode::Required, true) => {
                let key = Arc::new(known.and_then(DpopKey::parse).unwrap_or_else(DpopKey::generate));
                self.fetcher.bind_tokens(Arc::clone(&key));
                self.dpop_key = Some(key);
                Ok(())
            }
        }
    }

    /// The key that the tokens are bound to, for storage.
    pub(super) fn dpop_key(&self) -> Option<&str> {
        self.dpop_key.as_ref().map(|key| key.stored())
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
        self.token_set(&response, request.scopes)
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
                let mut refreshed = self.token_set(&response, scopes)?;
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
        Ok((client, self.token_set(&response, Vec::new())?))
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

    /// Exchanges a token, an identity assertion or the identity of a workload for an access token.
    pub(super) async fn exchange_subject(
        &self,
        options: &OauthConfig,
        scopes: Vec<String>,
        subject: &Secret,
        tls: &UpstreamTls,
    ) -> Result<(OAuthClient, TokenSet), LoginError> {
        let exchange = async {
            if !self.is_pinned {
                return Err(FlowError::NotPinned.into());
            }
            let subject_type = match (options.subject_token_type, options.grant) {
                (SubjectTokenType::Auto, OauthGrant::IdentityAssertion) | (SubjectTokenType::IdToken, _) => {
                    ID_TOKEN_TYPE
                }
                (SubjectTokenType::Auto | SubjectTokenType::AccessToken, _) => ACCESS_TOKEN_TYPE,
                (SubjectTokenType::Jwt, _) => JWT_TYPE,
            };
            let scope = scopes.join(" ");
            let assertion;
            let mut form = vec![("resource", self.discovered.resource.as_str())];
            match options.grant {
                OauthGrant::TokenExchange => {
                    form.extend([
                        ("grant_type", TOKEN_EXCHANGE_GRANT),
                        ("subject_token", subject.expose()),
                        ("subject_token_type", subject_type),
                        ("requested_token_type", ACCESS_TOKEN_TYPE),
                    ]);
                    form.extend(options.audience.as_deref().map(|audience| ("audience", audience)));
                }
                OauthGrant::IdentityAssertion => {
                    let provider = options.identity_provider.as_ref().ok_or(FlowError::NoIdentityProvider)?;
                    assertion = self.identity_assertion(provider, subject, subject_type, &scope, tls).await?;
                    form.extend([("grant_type", JWT_BEARER_GRANT), ("assertion", assertion.as_str())]);
                }
                _ => form.extend([("grant_type", JWT_BEARER_GRANT), ("assertion", subject.expose())]),
            }
            if !scope.is_empty() {
                form.push(("scope", &scope));
            }
            let response = self.post_grant(options, form).await?;
            if let Some(other) = response.issued_token_type.filter(|issued| {
                options.grant == OauthGrant::TokenExchange
                    && ![ACCESS_TOKEN_TYPE, JWT_TYPE].contains(&issued.as_str())
            }) {
                return Err(FlowError::TokenType(other).into());
            }
            let granted = response.scope.map(|scope| scope.split_whitespace().map(str::to_owned).collect());
            let tokens = TokenSet {
                access_token: response.access_token,
                refresh_token: response.refresh_token,
                expires_at: response.expires_in.map(|lifetime| now().saturating_add(lifetime)),
                lifetime: response.expires_in,
                scopes: granted.unwrap_or(scopes),
                dpop: self.is_bound(&response.token_type)?,
            };
            Ok(tokens)
        };
        let tokens = exchange.await.map_err(LoginError::Exchange)?;
        // The secret stays in the configuration.
        let id = options.client_id.as_ref().map(|id| id.expose().to_owned()).unwrap_or_default();
        Ok((OAuthClient { id, secret: None, redirect_uri: String::new(), registered: false }, tokens))
    }

    /// Posts a grant to the token endpoint, authenticated as the configured client.
    async fn post_grant<'a>(
        &'a self,
        options: &'a OauthConfig,
        mut form: Vec<(&'a str, &'a str)>,
    ) -> Result<ExchangeResponse, Box<dyn std::error::Error + Send + Sync>> {
        let endpoint = Url::parse(&self.discovered.metadata.token_endpoint)?;
        let id = options.client_id.as_ref().map(|id| id.expose());
        let assertion;
        let mut basic = None;
        match (id, &options.client_secret, &options.private_key) {
            (Some(id), Some(secret), _) => match self.secret_auth_type()? {
                AuthType::BasicAuth => basic = Some((id, secret.expose())),
                _ => form.extend([("client_id", id), ("client_secret", secret.expose())]),
            },
            (Some(id), None, Some(key)) => {
                assertion = self.assertion(id, key.expose())?;
                form.extend([
                    ("client_id", id),
                    ("client_assertion_type", ASSERTION_TYPE),
                    ("client_assertion", assertion.as_str()),
                ]);
            }
            (Some(id), None, None) => form.push(("client_id", id)),
            (None, ..) => {}
        }
        Ok(self.fetcher.post_form(&endpoint, &form, basic).await?)
    }

    /// Gets an assertion of the caller's identity for this authorization server from the identity provider.
    async fn identity_assertion(
        &self,
        provider: &IdentityProvider,
        subject: &Secret,
        subject_type: &str,
        scope: &str,
        tls: &UpstreamTls,
    ) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        let issuer = Url::parse(&provider.issuer)?;
        // The operator names the identity provider, so it may be where a server may be.
        let fetcher = Fetcher::new(&issuer, tls, &AddressPolicy::of_server(&issuer, None)).await?;
        let metadata = discovery::issuer_metadata(&fetcher, &issuer).await?;
        let endpoint = Url::parse(&metadata.token_endpoint)?;
        let mut form = vec![
            ("grant_type", TOKEN_EXCHANGE_GRANT),
            ("requested_token_type", ID_JAG_TYPE),
            ("audience", self.issuer.as_str()),
            ("resource", self.discovered.resource.as_str()),
            ("subject_token", subject.expose()),
            ("subject_token_type", subject_type),
        ];
        if !scope.is_empty() {
            form.push(("scope", scope));
        }
        let id = provider.client_id.as_ref().map(|id| id.expose());
        let client = match (id, &provider.client_secret) {
            (Some(id), Some(secret)) => Some((id, secret.expose())),
            _ => None,
        };
        form.extend(id.filter(|_| client.is_none()).map(|id| ("client_id", id)));
        let response: ExchangeResponse = fetcher.post_form(&endpoint, &form, client).await?;
        match response.issued_token_type.as_deref() {
            Some(ID_JAG_TYPE) => Ok(response.access_token),
            other => Err(FlowError::NoAssertion(other.unwrap_or("unknown").to_owned()).into()),
        }
    }

    /// Revokes tokens at the authorization server (RFC 7009); returns false if it offers no revocation.
    pub(super) async fn revoke(
        &self,
        client: &OAuthClient,
        configured_secret: Option<&str>,
        tokens: &TokenSet,
    ) -> Result<bool, LoginError> {
        let metadata = &self.discovered.metadata;
        let Some(endpoint) = &metadata.revocation_endpoint else { return Ok(false) };
        let revoke = async {
            let url = Url::parse(endpoint)?;
            let secret = client.secret.as_deref().or(configured_secret);
            let basic = match secret {
                Some(secret) => {
                    self.check_secret(client)?;
                    // It gets the same secret as the token endpoint, so it has to be in the same place.
                    let token_endpoint = Url::parse(&metadata.token_endpoint)?;
                    if !self.is_pinned && token_endpoint.origin() != url.origin() {
                        let (url, issuer) = (endpoint.clone(), self.issuer.clone());
                        return Err(FlowError::OtherOrigin { url, issuer }.into());
                    }
                    Some((client.id.as_str(), secret))
                }
                None => None,
            };
            let refresh = tokens.refresh_token.as_deref().map(|token| (token, "refresh_token"));
            for (token, hint) in refresh.into_iter().chain([(tokens.access_token.as_str(), "access_token")]) {
                let mut form = vec![("token", token), ("token_type_hint", hint)];
                form.extend(basic.is_none().then_some(("client_id", client.id.as_str())));
                self.fetcher.post_revocation(&url, &form, basic).await?;
            }
            Ok(true)
        };
        revoke.await.map_err(LoginError::Revocation)
    }

    /// Converts a token response. One without scopes grants the requested ones.
    fn token_set(
        &self,
        response: &BasicTokenResponse,
        requested: Vec<String>,
    ) -> Result<TokenSet, LoginError> {
        let scopes = response.scopes().map(|scopes| scopes.iter().map(|scope| scope.to_string()).collect());
        let lifetime = response.expires_in().map(|lifetime| lifetime.as_secs());
        let dpop = self.is_bound(response.token_type().as_ref());
        Ok(TokenSet {
            access_token: response.access_token().secret().clone(),
            refresh_token: response.refresh_token().map(|token| token.secret().clone()),
            expires_at: lifetime.map(|lifetime| now().saturating_add(lifetime)),
            lifetime,
            scopes: scopes.unwrap_or(requested),
            dpop: dpop.map_err(|error| LoginError::Exchange(error.into()))?,
        })
    }

    /// Returns true if a token of this type is bound to our key.
    fn is_bound(&self, token_type: &str) -> Result<bool, FlowError> {
        let is_dpop = token_type.eq_ignore_ascii_case("dpop");
        match self.dpop_mode {
            DpopMode::Required if !is_dpop => Err(FlowError::NotBound),
            // It could not be used: only the holder of its key can.
            _ if is_dpop && self.dpop_key.is_none() => Err(FlowError::TokenType(token_type.to_owned())),
            _ => Ok(is_dpop),
        }
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

#[cfg(test)]
mod tests;
