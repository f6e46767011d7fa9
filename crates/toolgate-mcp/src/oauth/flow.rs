//! The steps of OAuth, done by `rmcp`: discovery, registration, the code, refreshing.
//!
//! The one module that names `rmcp`. Invariant: nothing of it is seen outside.

use std::net::IpAddr;

use reqwest::redirect;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, AuthorizationMetadataSource,
    ClientCredentialsConfig, CredentialStore, InMemoryCredentialStore, JwtSigningAlgorithm,
    OAuthClientConfig, OAuthTokenResponse, StoredCredentials, WWWAuthenticateParams,
};
use serde::Deserialize;
use serde_json::json;
use toolgate_types::Text;
use toolgate_types::oauth::Oauth;
use toolgate_types::server::Tls;
use url::{Host, Url};

use super::LoginError;
use super::callback::Answer;
use super::file::{Client, Tokens, now};
use crate::transport::tls;

/// The scope that brings refresh tokens, where a server knows it.
const OFFLINE: &str = "offline_access";
/// How we are called where we register ourselves.
const NAME: &str = "Toolgate";

/// A login on its way, with one authorization server.
pub(super) struct Flow {
    manager: AuthorizationManager,
    metadata: AuthorizationMetadata,
    memory: InMemoryCredentialStore,
    server: Url,
    /// Whether the server publishes anything about itself.
    published: bool,
    /// The name of the authorization server.
    pub(super) issuer: String,
}

/// The scopes that a challenge asks for.
pub(super) fn challenged_scopes(challenge: Option<&str>, server: &Url) -> Vec<String> {
    let scope = challenge.and_then(|challenge| WWWAuthenticateParams::parse(challenge, server).scope);
    scope.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

/// Whether a challenge says that a token is good, but not for this.
pub(super) fn wants_more_scope(challenge: &str, server: &Url) -> bool {
    WWWAuthenticateParams::parse(challenge, server).is_insufficient_scope()
}

impl Flow {
    /// Finds out where to log in.
    pub(super) async fn discover(
        server: &Url,
        tls: &Tls,
        challenge: Option<&str>,
    ) -> Result<Self, LoginError> {
        let discovery = async {
            let mut manager = if is_private(server).await {
                AuthorizationManager::new_allowing_private_addresses(server.as_str()).await?
            } else {
                AuthorizationManager::new(server.as_str()).await?
            };
            if !tls.is_default() {
                manager.with_client(client(tls)?)?;
            }
            let memory = InMemoryCredentialStore::new();
            manager.set_credential_store(memory.clone());
            let found = manager.resolve_metadata_from_challenge(challenge).await?;
            manager.set_metadata(found.metadata.clone());
            let issuer = found.metadata.issuer.clone();
            let issuer = issuer.unwrap_or_else(|| server.origin().ascii_serialization());
            let published = found.source != AuthorizationMetadataSource::LegacyEndpointFallback;
            Ok(Self { manager, metadata: found.metadata, memory, server: server.clone(), published, issuer })
        };
        discovery.await.map_err(|error: AuthError| LoginError::Discovery(error.into()))
    }

    /// What to ask for: what the configuration says, what the server asks for, and what we have.
    pub(super) async fn scopes(
        &self,
        configured: &[String],
        granted: &[String],
        challenge: Option<&str>,
    ) -> Vec<String> {
        let mut scopes = granted.to_vec();
        if configured.is_empty() {
            scopes.extend(self.manager.select_initial_scopes(&[]).await);
        } else {
            scopes.extend_from_slice(configured);
            scopes.extend(challenged_scopes(challenge, &self.server));
        }
        if !scopes.is_empty() && self.metadata.scopes_supported.iter().flatten().any(|scope| scope == OFFLINE)
        {
            scopes.push(OFFLINE.to_owned());
        }
        let mut seen = std::collections::HashSet::new();
        scopes.retain(|scope| seen.insert(scope.clone()));
        scopes
    }

    /// Who we are: as configured, as described by a document, as registered before, or as registered now.
    pub(super) async fn client(
        &mut self,
        options: &Oauth,
        known: Option<&Client>,
        redirect_uri: String,
        scopes: &[String],
    ) -> Result<Client, LoginError> {
        let reads_documents = self.says("client_id_metadata_document_supported");
        let client = if let Some(id) = &options.client_id {
            let secret = options.client_secret.as_ref().map(|secret| secret.expose().to_owned());
            Client { id: id.expose().to_owned(), secret, redirect_uri, registered: false }
        } else if let Some(document) = options.client_metadata_url.as_ref().filter(|_| reads_documents) {
            Client { id: document.expose().to_owned(), secret: None, redirect_uri, registered: false }
        } else if let Some(known) =
            known.filter(|known| known.registered && known.redirect_uri == redirect_uri)
        {
            known.clone()
        } else {
            let scopes: Vec<_> = scopes.iter().map(String::as_str).collect();
            let registered = self.manager.register_client(NAME, &redirect_uri, &scopes).await;
            let config = registered.map_err(|error| {
                if self.published { LoginError::Registration(error.into()) } else { LoginError::NoOauth }
            })?;
            Client { id: config.client_id, secret: config.client_secret, redirect_uri, registered: true }
        };
        self.configure(&client)?;
        Ok(client)
    }

    fn configure(&mut self, client: &Client) -> Result<(), LoginError> {
        let mut config = OAuthClientConfig::new(&client.id, &client.redirect_uri);
        config.client_secret.clone_from(&client.secret);
        self.manager.configure_client(config).map_err(|error| LoginError::Registration(error.into()))
    }

    fn says(&self, field: &str) -> bool {
        self.metadata.additional_fields.get(field).and_then(serde_json::Value::as_bool).unwrap_or(false)
    }

    /// Where the browser is to go.
    pub(super) async fn authorization_url(&self, scopes: &[String]) -> Result<Url, LoginError> {
        let scopes: Vec<_> = scopes.iter().map(String::as_str).collect();
        let url = self.manager.get_authorization_url(&scopes).await;
        let url = url.and_then(|url: String| Ok(Url::parse(&url)?));
        url.map_err(|error| LoginError::Discovery(error.into()))
    }

    /// The code for tokens. Checks who the answer is from.
    pub(super) async fn exchange(&self, answer: &Answer) -> Result<Tokens, LoginError> {
        let Answer { state, issuer, outcome } = answer;
        let code = outcome.as_ref().map_err(|error| LoginError::Refused(error.clone()))?;
        let exchanged =
            self.manager.exchange_code_for_token_with_issuer(code, state, issuer.as_deref()).await;
        exchanged.map_err(|error| LoginError::Exchange(error.into()))?;
        self.received().await
    }

    /// New tokens for old ones; `None` where the server wants the person again.
    pub(super) async fn refresh(
        &mut self,
        client: &Client,
        tokens: &Tokens,
    ) -> Result<Option<Tokens>, LoginError> {
        self.configure(client)?;
        let old = json!({
            "access_token": &tokens.access_token,
            "token_type": "bearer",
            "refresh_token": &tokens.refresh_token,
        });
        let old: OAuthTokenResponse =
            serde_json::from_value(old).expect("what was taken out of an answer makes one");
        let old = StoredCredentials::new(client.id.clone(), Some(old), tokens.scopes.clone(), None);
        self.memory.save(old).await.map_err(|error| LoginError::Exchange(error.into()))?;
        match self.manager.refresh_token().await {
            Ok(_) => self.received().await.map(Some),
            Err(AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_)) => Ok(None),
            Err(error) => Err(LoginError::Exchange(error.into())),
        }
    }

    /// A login of the client itself.
    pub(super) async fn client_credentials(
        mut self,
        options: &Oauth,
        scopes: Vec<String>,
    ) -> Result<(Client, Tokens), LoginError> {
        let text = |text: &Option<Text>| text.as_ref().map(|text| text.expose().to_owned());
        let Some(id) = text(&options.client_id) else { return Err(LoginError::NoClient) };
        let resource = Some(self.server.to_string());
        let secret = text(&options.client_secret);
        let config = match (secret.clone(), text(&options.private_key)) {
            (Some(client_secret), _) => ClientCredentialsConfig::ClientSecret {
                client_id: id.clone(),
                client_secret,
                scopes,
                resource,
            },
            (None, Some(key)) => ClientCredentialsConfig::PrivateKeyJwt {
                client_id: id.clone(),
                signing_algorithm: algorithm(&key),
                signing_key: key.into_bytes(),
                token_endpoint_audience: None,
                scopes,
                resource,
            },
            (None, None) => return Err(LoginError::NoClient),
        };
        let runtime = tokio::runtime::Handle::current();
        // The exchange with a signature cannot move between threads, so it gets one.
        let exchange = tokio::task::spawn_blocking(move || {
            runtime.block_on(async {
                self.manager.validate_client_credentials_metadata(&config)?;
                self.manager.configure_client_credentials(&config)?;
                self.manager.exchange_client_credentials(&config).await?;
                Ok(self)
            })
        });
        let exchanged = exchange.await.map_err(|error| LoginError::Exchange(error.into()))?;
        let this = exchanged.map_err(|error: AuthError| LoginError::Exchange(error.into()))?;
        let client = Client { id, secret: None, redirect_uri: String::new(), registered: false };
        Ok((client, this.received().await?))
    }

    /// The tokens that just came.
    async fn received(&self) -> Result<Tokens, LoginError> {
        #[derive(Deserialize)]
        struct Answer {
            access_token: String,
            refresh_token: Option<String>,
            expires_in: Option<u64>,
        }
        let stored = self.memory.load().await.map_err(|error| LoginError::Exchange(error.into()))?;
        let stored = stored.expect("tokens that came were stored");
        let answer = stored.token_response.map(serde_json::to_value);
        let answer = answer.transpose().map_err(|error| LoginError::Exchange(error.into()))?;
        let answer: Answer = serde_json::from_value(answer.unwrap_or_default())
            .map_err(|error| LoginError::Exchange(error.into()))?;
        Ok(Tokens {
            access_token: answer.access_token,
            refresh_token: answer.refresh_token,
            expires_at: answer.expires_in.map(|seconds| now().saturating_add(seconds)),
            scopes: stored.granted_scopes,
        })
    }
}

/// Keys of RSA are longer than those of elliptic curves by far.
fn algorithm(pem: &str) -> JwtSigningAlgorithm {
    if pem.len() > 700 { JwtSigningAlgorithm::RS256 } else { JwtSigningAlgorithm::ES256 }
}

/// With certificates of our own, as for the server itself.
fn client(tls: &Tls) -> Result<reqwest::Client, AuthError> {
    let internal = |error: &dyn std::error::Error| AuthError::InternalError(error.to_string());
    let tls = rustls::ClientConfig::clone(&*tls::load(tls).map_err(|error| internal(&error))?);
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(redirect::Policy::none())
        .no_proxy();
    builder.timeout(std::time::Duration::from_secs(30)).build().map_err(|error| internal(&error))
}

/// Whether a server is in our own network. Only then may its authorization server be there too:
/// one from outside could send us to addresses that it cannot reach itself.
async fn is_private(server: &Url) -> bool {
    let private = |address: IpAddr| match address {
        IpAddr::V4(address) => address.is_private(),
        IpAddr::V6(address) => address.is_unique_local(),
    };
    match server.host() {
        Some(Host::Ipv4(address)) => private(address.into()),
        Some(Host::Ipv6(address)) => private(address.into()),
        Some(Host::Domain(name)) => {
            let port = server.port_or_known_default().unwrap_or_default();
            let found = tokio::net::lookup_host((name, port)).await;
            found.is_ok_and(|mut addresses| addresses.any(|address| private(address.ip())))
        }
        None => false,
    }
}
