//! Login of people with OpenID Connect: the authorization code flow with PKCE.
//!
//! The gateway is a client of the issuer. An access token that the gateway would accept from a program makes the caller;
//! the ID token proves with its nonce that the response is for the browser that began the login. Invariant: a code and
//! the secret of the client are sent only to the token endpoint in the metadata of a configured issuer.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value as Json;
use tokio::time::Instant;
use toolgate_types::issuer::IssuerLogin;
use url::Url;

use super::issuer_client::IssuerClient;
use super::jwks::JwksError;
use super::{Authenticator, HttpError, TokenSession};
use crate::listener::ConnectionEnds;

/// Maximum age of the metadata.
const MAX_AGE: Duration = Duration::from_secs(600);
/// Minimum time between two fetches that fail.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(5);

/// Random values that bind a login to the browser that began it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoginSecrets {
    pub(crate) state: String,
    pub(crate) nonce: String,
    /// Code verifier of PKCE.
    pub(crate) verifier: String,
}

impl LoginSecrets {
    pub(crate) fn random() -> Self {
        let random = || {
            let mut bytes = [0; 32];
            aws_lc_rs::rand::fill(&mut bytes).expect("the system has random numbers");
            URL_SAFE_NO_PAD.encode(bytes)
        };
        Self { state: random(), nonce: random(), verifier: random() }
    }
}

/// An issuer that people can log in with.
pub(crate) struct LoginProvider {
    issuer: String,
    login: IssuerLogin,
    client: IssuerClient,
    /// The lock is held during a fetch.
    endpoints: tokio::sync::Mutex<Option<CachedDiscovery>>,
}

/// The last result of discovery, with its time.
type CachedDiscovery = (Instant, Result<Arc<Endpoints>, String>);

struct Endpoints {
    authorization: Url,
    token: Url,
    /// The secret of the client is sent in the form, because the issuer does not support Basic authentication.
    secret_in_form: bool,
    /// Its responses name it: one that does not may be the response of another issuer.
    names_itself: bool,
}

/// The tokens of a login.
#[derive(Deserialize)]
struct IssuedTokens {
    access_token: String,
    id_token: Option<String>,
}

impl LoginProvider {
    pub(super) fn new(issuer: &str, login: IssuerLogin) -> Result<Self, JwksError> {
        let client = IssuerClient::new(issuer, issuer).map_err(|why| JwksError::new(issuer, why))?;
        Ok(Self { issuer: issuer.to_owned(), login, client, endpoints: tokio::sync::Mutex::default() })
    }

    pub(super) fn issuer(&self) -> &str {
        &self.issuer
    }

    pub(super) fn client_id(&self) -> &str {
        &self.login.client_id
    }

    pub(super) fn label(&self) -> &str {
        &self.login.label
    }

    /// The endpoints of the issuer. Requests that arrive during a fetch share its result.
    async fn endpoints(&self) -> Result<Arc<Endpoints>, HttpError> {
        let mut cached = self.endpoints.lock().await;
        let now = Instant::now();
        let is_fresh = |at: Instant, found: &Result<_, String>| {
            now.saturating_duration_since(at) < if found.is_ok() { MAX_AGE } else { MIN_FETCH_INTERVAL }
        };
        let found = match cached.take().filter(|(at, found)| is_fresh(*at, found)) {
            Some(known) => known,
            None => (now, self.discover().await.map(Arc::new)),
        };
        let (_, result) = cached.insert(found);
        result.clone().map_err(|why| self.unavailable(&why))
    }

    async fn discover(&self) -> Result<Endpoints, String> {
        let metadata = self.client.metadata().await?;
        let url = |name: &str, url: &Option<String>| self.client.endpoint(name, url.as_deref());
        let methods = metadata.token_endpoint_auth_methods_supported.as_deref().unwrap_or_default();
        let supports = |method: &str| methods.iter().any(|known| known == method);
        Ok(Endpoints {
            authorization: url("authorization_endpoint", &metadata.authorization_endpoint)?,
            token: url("token_endpoint", &metadata.token_endpoint)?,
            secret_in_form: supports("client_secret_post") && !supports("client_secret_basic"),
            names_itself: metadata.authorization_response_iss_parameter_supported == Some(true),
        })
    }

    fn unavailable(&self, why: &str) -> HttpError {
        tracing::warn!(issuer = self.issuer, "a login is not possible: {why}");
        HttpError::unavailable(format!("`{}` cannot be used for a login now", self.login.label))
            .hint("log in with an API key; the log of the gateway has the reason")
    }

    /// Checks that a response is one of this issuer (RFC 9207), before its code is sent anywhere.
    ///
    /// # Errors
    /// If the response names another issuer, or none although this one always names itself.
    pub(crate) async fn check_response_issuer(&self, named: Option<&str>) -> Result<(), HttpError> {
        let is_ours = match named {
            Some(named) => named == self.issuer,
            None => !self.endpoints().await?.names_itself,
        };
        if is_ours { Ok(()) } else { Err(login_failed("the response is of another issuer")) }
    }

    /// The URL of the issuer that begins a login.
    pub(crate) async fn authorization_url(
        &self,
        redirect_uri: &str,
        secrets: &LoginSecrets,
    ) -> Result<Url, HttpError> {
        let mut url = self.endpoints().await?.authorization.clone();
        let challenge = digest::digest(&digest::SHA256, secrets.verifier.as_bytes());
        let mut scopes = vec!["openid"];
        scopes.extend(self.login.scopes.iter().map(String::as_str).filter(|scope| *scope != "openid"));
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.login.client_id)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("scope", &scopes.join(" "))
            .append_pair("state", &secrets.state)
            .append_pair("nonce", &secrets.nonce)
            .append_pair("code_challenge", &URL_SAFE_NO_PAD.encode(challenge))
            .append_pair("code_challenge_method", "S256");
        Ok(url)
    }

    /// Exchanges a code for tokens.
    async fn exchange(
        &self,
        code: &str,
        redirect_uri: &str,
        verifier: &str,
    ) -> Result<IssuedTokens, HttpError> {
        let endpoints = self.endpoints().await?;
        let id = self.login.client_id.as_str();
        let secret = self.login.client_secret.as_ref().map(|secret| secret.expose());
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect_uri),
            ("code_verifier", verifier),
        ];
        // RFC 6749, section 2.3.1: both are encoded like a form before they are encoded as Base64.
        let encoded = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let basic = secret.filter(|_| !endpoints.secret_in_form).map(|secret| (encoded(id), encoded(secret)));
        if basic.is_none() {
            form.push(("client_id", id));
            form.extend(secret.map(|secret| ("client_secret", secret)));
        }
        let basic = basic.as_ref().map(|(id, secret)| (id.as_str(), secret.as_str()));
        let sent = self.client.post_form(&endpoints.token, basic, &form).await;
        let (status, body) = sent.map_err(|why| self.unavailable(&why))?;
        if status.as_u16() != 200 {
            let answer: Json = serde_json::from_slice(&body).unwrap_or_default();
            let code: String = answer["error"].as_str().unwrap_or_default().chars().take(80).collect();
            tracing::warn!(issuer = self.issuer, %status, code, "the code of a login was refused");
            return Err(login_failed("the issuer refused the login").hint("begin the login again"));
        }
        serde_json::from_slice(&body).map_err(|_| self.unavailable("the token response is invalid"))
    }
}

/// The error of a login that failed. Not 401: the page of the error offers the login again by itself.
pub(crate) fn login_failed(message: impl Into<String>) -> HttpError {
    HttpError::new(StatusCode::FORBIDDEN, "unauthorized", message)
}

impl Authenticator {
    /// The issuers that people can log in with, and the labels of these logins.
    pub(crate) fn login_labels(&self) -> Vec<(String, String)> {
        let rules = self.rules();
        rules.tokens.login_labels().map(|(issuer, label)| (issuer.to_owned(), label.to_owned())).collect()
    }

    pub(crate) fn login_provider(&self, issuer: &str) -> Option<Arc<LoginProvider>> {
        self.rules().tokens.login_provider(issuer).map(Arc::clone)
    }

    /// Exchanges the code of a login, and checks both tokens. Returns the session of the caller.
    pub(crate) async fn finish_login(
        &self,
        provider: &LoginProvider,
        code: &str,
        redirect_uri: &str,
        secrets: &LoginSecrets,
        ends: ConnectionEnds,
    ) -> Result<TokenSession, HttpError> {
        let tokens = provider.exchange(code, redirect_uri, &secrets.verifier).await?;
        let state = self.state();
        let (verifier, now) = (&state.rules.tokens, Instant::now());
        let rejected = |error| match error {
            super::TokenError::Invalid(reason) => {
                tracing::warn!(client = %ends.client, issuer = provider.issuer, "login refused: {reason}");
                login_failed(format!("the login is not valid: {reason}"))
            }
            super::TokenError::KeysUnavailable => provider.unavailable("its keys are unavailable"),
        };
        let id_token =
            tokens.id_token.ok_or_else(|| provider.unavailable("the response has no `id_token`"))?;
        verifier.verify_id_token(&id_token, provider, &secrets.nonce, now).await.map_err(rejected)?;
        let verified = verifier.verify_for_session(&tokens.access_token, provider.issuer(), now).await;
        let (identity, session) = verified.map_err(rejected)?;
        let caller = state.token_caller(&identity);
        let caller =
            caller.ok_or_else(|| login_failed("a token cannot authenticate as `owner` or `anonymous`"))?;
        self.subjects.note(&caller.id, &tokens.access_token);
        tracing::info!(client = %ends.client, caller = %caller.id, "login to the console");
        Ok(session)
    }
}
